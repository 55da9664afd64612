"""Numbers with units and number formats of options, with errors that name the option."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuscale.core.formats import FORMATS
from gpuscale.core.quantity import format_si, parse
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.meant import meant

if TYPE_CHECKING:
    from gpuscale.specs.hardware import GpuSpec


def formats_of(spec: GpuSpec, dtype: str | None, dtypes: str | None) -> tuple[str, str, str]:
    """Read (x, w, out) formats; by default bf16, or what the GPU has."""
    if dtype and dtypes:
        raise GpuscaleError("give --dtype or --dtypes, not both")
    if dtypes:
        parts = tuple(p.strip().lower() for p in dtypes.split(","))
        if len(parts) != 3:
            raise GpuscaleError("--dtypes: give three formats, such as bf16,fp8,bf16")
        x, w, out = parts
    elif dtype:
        x = w = dtype.strip().lower()
        out = x if x in ("bf16", "fp16", "fp32", "tf32") else "bf16"
    else:
        x = w = out = next(
            (d for d in ("bf16", "fp16", "fp32", "int8") if spec.flop_per_s(d)), "bf16"
        )
    for name in (x, w, out):
        check_dtype(name)
    return x, w, out


def check_dtype(name: str) -> None:
    """Refuse a number format that is not known."""
    if name not in FORMATS:
        raise unknown_name("dtype", name, FORMATS, f"known: {', '.join(FORMATS)}")


def matrix_rate(spec: GpuSpec, dtype: str) -> float:
    """Dense peak of a GPU in a format, or an error that lists what it has."""
    rate = spec.flop_per_s(dtype)
    if rate is None:
        own = [name for name, f in FORMATS.items() if f.rate == name]
        has = [f"{d} {format_si(r, 'flop_per_s')}" for d in own if (r := spec.flop_per_s(d))]
        raise GpuscaleError(
            f"{spec.name} has no {dtype} matrix rate",
            f"it has {', '.join(has)}" if has else "its preset gives no rate at all",
        )
    return rate


LARGEST = 1e30
"""Largest magnitude of a number that is not a text."""

SMALLEST = 1e-30
"""Smallest quantity above 0: what is less is as good as 0 to divide by."""

_POWERS = r"^(\s*[\d_.]+\s*)([kKmM])(?=\s*(?:tokens)?\s*$)"
"""Sequence lengths and contexts: 32k is 32,768 and 1M is 1,048,576, as models are named."""

NEED_UNIT = {"s": "Ns, Nh or Nd", "usd_per_hour": "'N USD/h', of one GPU"}
"""What a text has no usual unit for: a price may be of a node or a month, a time in ms or days."""

MOST = 1e15
"""Largest count that is accepted for a size; far beyond any machine."""


def quantity(
    text: str | float,
    dim: str,
    name: str,
    *,
    least: float = 0.0,
    most: float = 1e24,
    zero: bool = False,
) -> float:
    """Read a positive number with an optional unit.

    `text`: as typed, e.g. ``1GB``. `dim`: dimension of `core.quantity.UNITS`. `name`: what to call
    it in an error, e.g. ``--bytes``. `least, most`: accepted range, in the SI unit. `zero`: accept
    0. Raises GpuscaleError if it cannot be read or is out of range.

    >>> quantity("1GB", "bytes", "--bytes")
    1000000000.0
    """
    value = _number(text, dim, name)
    if value == 0 and zero:
        return 0.0
    if not value >= SMALLEST:
        raise GpuscaleError(f"{name} must be above 0, got {str(text).strip()[:40]}")
    if dim in NEED_UNIT and isinstance(text, str) and text.strip()[-1:].isdigit():
        shown, what = text.strip()[:40], "a time" if dim == "s" else "a price"
        hint = f"{name} {NEED_UNIT[dim].replace('N', shown)}"
        raise GpuscaleError(f"{name} {shown}: {what} needs its unit", hint)
    if not least <= value <= most:
        dim = "tokens" if dim == "positions" else dim
        shown = format_si(value, dim) if value < 1e30 else f"{value:g}"
        raise GpuscaleError(
            f"{name} must be between {format_si(least, dim)} and {format_si(most, dim)}, "
            f"got {shown}"
        )
    return value


def _number(text: str | float, dim: str, name: str) -> float:
    """Read a number, or a text with a unit; of positions, k is 1,024."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise GpuscaleError(f"{name}: a number is wanted, got {str(text)[:40]}")
    if not isinstance(text, str):
        if not -LARGEST <= text <= LARGEST:
            shown = f"{text:g}" if isinstance(text, float) else "a number that long"
            raise GpuscaleError(f"{name}: {shown} is not a number that can be used")
        return float(text)
    if dim == "positions":
        text = re.sub(_POWERS, lambda m: f"{m[1]}{m[2].upper()}i", text)
    try:
        return parse(text, dim)
    except ValueError as error:
        hint = meant("GPU", text) if name == "--gpus" else ""  # 8xh100
        raise GpuscaleError(f"{name}: {error}", hint) from None


def whole(
    text: str | float, name: str, least: int = 1, most: float = MOST, dim: str = "count"
) -> int:
    """Read a whole number of at least `least`; ``64k`` and ``1Mi`` are fine.

    >>> whole("64k", "M"), whole("4Ki", "M"), whole("64k", "--seq-len", dim="positions")
    (64000, 4096, 65536)
    """
    value = _number(text, dim, name)
    if value != int(value):
        raise GpuscaleError(f"{name} must be a whole number, got {value:g}")
    if not least <= value <= most:
        raise GpuscaleError(f"{name} must be between {least} and {most:,.9g}, got {value:,.9g}")
    return int(value)


def shape(text: str, name: str = "--shape") -> tuple[int, ...]:
    """Read an array shape such as ``4096x65536``.

    >>> shape("4096x65536")
    (4096, 65536)
    """
    parts = text.lower().replace("×", "x").replace(",", "x").split("x")
    if not 1 <= len(parts) <= 8:
        raise GpuscaleError(f"{name}: give 1 to 8 sizes, such as 4096x65536")
    return tuple(whole(part, f"{name} `{text[:40]}`") for part in parts)
