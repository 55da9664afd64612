"""Reading numbers with units from the command line, with errors that name the option."""

from __future__ import annotations

from gpuscale.core.quantity import format_si, parse
from gpuscale.errors import GpuscaleError

MOST = 1e15
"""Largest count that is accepted for a size; far beyond any machine."""


def quantity(
    text: str, dim: str, name: str, *, least: float = 0.0, most: float = 1e24, zero: bool = False
) -> float:
    """Read a positive number with an optional unit.

    Parameters
    ----------
    text : str
        As typed, e.g. ``1GB``.
    dim : str
        Dimension of `core.quantity.UNITS`.
    name : str
        What to call it in an error, e.g. ``--bytes``.
    least, most : float
        Accepted range, in the SI unit.
    zero : bool
        Accept 0.

    Raises
    ------
    GpuscaleError
        If it cannot be read or is out of range.

    Examples
    --------
    >>> quantity("1GB", "bytes", "--bytes")
    1000000000.0
    """
    try:
        value = parse(text, dim)
    except ValueError as error:
        raise GpuscaleError(f"{name}: {error}") from None
    if value == 0 and zero:
        return 0.0
    if not value > 0:
        raise GpuscaleError(f"{name} must be above 0, got {text.strip()[:40]}")
    if not least <= value <= most:
        shown = format_si(value, dim) if value < 1e30 else f"{value:g}"
        raise GpuscaleError(
            f"{name} must be between {format_si(least, dim)} and {format_si(most, dim)}, "
            f"got {shown}"
        )
    return value


def whole(text: str | int, name: str, least: int = 1, most: float = MOST) -> int:
    """Read a whole number of at least `least`; ``64k`` and ``1Mi`` are fine.

    Examples
    --------
    >>> whole("64k", "M"), whole("4Ki", "M")
    (64000, 4096)
    """
    value = float(text) if isinstance(text, int) else 0.0
    if isinstance(text, str):
        try:
            value = parse(text, "count")
        except ValueError as error:
            raise GpuscaleError(f"{name}: {error}") from None
    if value != int(value):
        raise GpuscaleError(f"{name} must be a whole number, got {value:g}")
    if not least <= value <= most:
        raise GpuscaleError(f"{name} must be between {least} and {most:g}, got {value:g}")
    return int(value)


def shape(text: str, name: str = "--shape") -> tuple[int, ...]:
    """Read an array shape such as ``4096x65536``.

    Examples
    --------
    >>> shape("4096x65536")
    (4096, 65536)
    """
    parts = text.lower().replace("×", "x").replace(",", "x").split("x")
    if not 1 <= len(parts) <= 8:
        raise GpuscaleError(f"{name}: give 1 to 8 sizes, such as 4096x65536")
    return tuple(whole(part, f"{name} `{text[:40]}`") for part in parts)
