"""`--sweep KEY=VALUES`: the values of one key, read from a range or a list."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuscale.core.quantity import UNITS, dimension_of, format_si, parse
from gpuscale.errors import GpuscaleError

POINTS = (7, 5)
"""Points of a range that names no number of them: with one key, with two."""

MOST_POINTS = 400
EXAMPLE = "for example --sweep cluster.node_egress_bytes_per_s=100GB/s..3.2TB/s or --sweep tp=1,2,4"


@dataclass(frozen=True, slots=True)
class SweptKey:
    """One swept key; a dotted key is one of `--set`, another an option of the command."""

    key: str
    texts: tuple[str, ...]  # as the command reads them
    values: tuple[float | int | str, ...]  # SI numbers, or the texts
    labels: tuple[str, ...]  # as shown


def read_axes(given: tuple[str, ...]) -> tuple[SweptKey, ...]:
    """Read the sweeps of a command line.

    Raises GpuscaleError for more than two keys, a key given twice, no values, or too many of them.

    Examples
    --------
    >>> read_axes(("tp=1..8", "gpu.hbm_bytes=80GB,96GB"))[0].texts
    ('1', '2', '4', '8')
    >>> read_axes(("gpus=8..64:4",))[0].texts
    ('8', '16', '32', '64')
    """
    if len(given) > len(POINTS):
        raise GpuscaleError("--sweep: at most two keys", EXAMPLE)
    axes = tuple(read_axis(text, POINTS[len(given) - 1]) for text in given)
    if len({axis.key for axis in axes}) < len(axes):
        raise GpuscaleError(f"--sweep {axes[0].key}: given twice")
    n_points = math.prod(len(axis.texts) for axis in axes)
    if n_points > MOST_POINTS:
        raise GpuscaleError(f"--sweep: {n_points} points; at most {MOST_POINTS}")
    return axes


def read_axis(text: str, n_points: int) -> SweptKey:
    """Read ``KEY=LOW..HIGH[:N]`` (geometric) or ``KEY=A,B,C``."""
    key, _, values = text.partition("=")
    key, values = key.strip(), values.strip()
    if not key or not values:
        raise GpuscaleError(f"--sweep {text[:60]}: not KEY=VALUES", EXAMPLE)
    if ".." in values:
        low, _, rest = values.partition("..")
        high, _, count = rest.partition(":")
        return _range(key, low.strip(), high.strip(), count.strip(), n_points)
    texts = tuple(t.strip() for t in values.split(","))
    if not all(texts):
        raise GpuscaleError(f"--sweep {text[:60]}: an empty value", EXAMPLE)
    return SweptKey(key, texts, tuple(_read(key, t)[0] for t in texts), texts)


def _read(key: str, text: str) -> tuple[float | str, str]:
    """SI value and dimension; a text that is no number stays one."""
    last = key.rsplit(".", 1)[-1].replace("-", "_")
    for dim in dict.fromkeys([dimension_of(last) or "count", "count", *UNITS]):
        try:
            return parse(text, dim), dim
        except ValueError:
            continue
    return text, ""


def _range(key: str, low_text: str, high_text: str, count: str, n_points: int) -> SweptKey:
    shown = f"--sweep {key[:60]}={low_text[:30]}..{high_text[:30]}"
    (low, dim), (high, other) = _read(key, low_text), _read(key, high_text)
    if not isinstance(low, float) or not isinstance(high, float) or dim != other:
        raise GpuscaleError(f"{shown}: give two numbers of one unit", EXAMPLE)
    if not 0 < low < high:
        raise GpuscaleError(
            f"{shown}: the first must be above 0 and below the second",
            "a comma-separated list takes any values",
        )
    if count and not (count.isdecimal() and 2 <= int(count[:9]) <= MOST_POINTS):
        raise GpuscaleError(f"{shown}: the number of points is 2 to {MOST_POINTS}")
    values = _between(low, high, int(count) if count else None, n_points, dim)
    texts = tuple(str(int(v)) if v.is_integer() and v < 1e15 else repr(v) for v in values)
    numbers = tuple(int(t) if t.isdecimal() else v for t, v in zip(texts, values, strict=True))
    return SweptKey(key, texts, numbers, tuple(format_si(v, dim) for v in values))


def _between(low: float, high: float, count: int | None, n_points: int, dim: str) -> list[float]:
    """Values from low to high by equal factors; whole counts double if that ends at `high`."""
    whole = dim == "count" and low.is_integer() and high.is_integer()
    doublings = math.log2(high / low)
    if whole and count is None and doublings == int(doublings) and doublings < 20:
        count = int(doublings) + 1
    n = count or n_points
    ratio = high / low
    values = [low, *(low * ratio ** (i / (n - 1)) for i in range(1, n - 1)), high]
    if whole:
        return sorted({float(round(v)) for v in values})
    return [float(f"{v:.6g}") for v in values[:-1]] + [high]
