"""Axes of a sweep, and its answer as a document: a table, and a grid where two keys vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuscale.core.quantity import UNITS, dimension_of, format_count, format_si, parse
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Block, Column, Document, Table, Text

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


MOST_GRIDS = 4


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point of a sweep: its values, and what comes out."""

    values: dict[str, float | int | str]
    answer: str  # yes, no, error
    note: str
    numbers: dict[str, float | int | str | bool | None]


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """The points of a sweep."""

    keys: list[str]
    shown: list[str]
    points: list[SweepPoint]


def amount(key: str, value: Any) -> str:
    """Value with the unit that its key tells.

    Examples
    --------
    >>> amount("expected.time_s", 0.0015), amount("mfu", 0.41), amount("fits", True)
    ('1.500 ms', '0.41', 'yes')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    dim = dimension_of(key.rsplit(".", 1)[-1])
    if dim:
        return format_si(float(value), dim)
    if isinstance(value, int) or abs(value) >= 1e5:
        return format_count(float(value))
    return f"{value:.4g}"


def document(
    name: str,
    inputs: dict[str, Any],
    axes: tuple[SweptKey, ...],
    shown: list[str],
    points: list[SweepPoint],
) -> Document:
    """Put the points together; the answer is no only where it is no at every point."""
    fixed = ", ".join(k if v is True else f"{k} {v}" for k, v in inputs.items() if k != "changed")
    changed = "".join(f", {text}" for text in inputs["changed"])
    keys = " and ".join(axis.key for axis in axes)
    blocks: list[Block] = [Text(f"{name}: {len(points)} points of {keys}\n{fixed}{changed}")]
    long = _long(axes, shown, points)
    grids = len(axes) == 2
    blocks += [_grid(axes, key, points) for key in shown[:MOST_GRIDS]] if grids else [long]
    notes = []
    if grids and any(p.answer == "no" for p in points):
        notes.append("* the answer is no: it does not fit, or a requirement is not met")
    if grids and (wrong := [p for p in points if p.answer == "error"]):
        labels = (dict(zip(a.values, a.labels, strict=True)) for a in axes)
        first = (known[v] for known, v in zip(labels, wrong[0].values.values(), strict=True))
        notes.append(f"- no answer, e.g. {', '.join(first)}: {wrong[0].note}")
    if grids and shown[MOST_GRIDS:]:
        notes.append(f"in JSON and CSV also: {', '.join(shown[MOST_GRIDS:])}")
    if notes:
        blocks.append(Text("\n".join(notes)))
    result = SweepAnswer(
        keys=[axis.key for axis in axes],
        shown=shown,
        points=[replace(p, numbers={k: p.numbers.get(k) for k in shown}) for p in points],
    )
    return Document(
        "sweep",
        {"command": name, **inputs},
        result,
        blocks,
        csv_table=long,
        answered_no=all(p.answer != "yes" for p in points),
    )


def _column(key: str) -> Column:
    return Column(key, key, lambda value: amount(key, value))


def _long(axes: tuple[SweptKey, ...], shown: list[str], points: list[SweepPoint]) -> Table:
    """One row per point; the answer and its note only where they say something."""
    # the table keeps raw values, for CSV
    labels = [dict(zip(a.values, a.labels, strict=True)) for a in axes]
    columns = [
        Column(axis.key, axis.key, known.__getitem__)
        for axis, known in zip(axes, labels, strict=True)
    ]
    columns += [_column(key) for key in shown]
    rows: list[Sequence[Any]] = [
        (*p.values.values(), *(p.numbers.get(key) for key in shown)) for p in points
    ]
    if any(p.answer != "yes" for p in points):
        columns += [Column("answer", "answer", right=False), Column("note", "note", right=False)]
        rows = [(*row, p.answer, p.note) for row, p in zip(rows, points, strict=True)]
    return Table(columns, rows)


def _grid(axes: tuple[SweptKey, ...], key: str, points: list[SweepPoint]) -> Table:
    """One number over both keys: the first key down, the second across."""
    down, across = axes
    width = len(across.texts)
    columns = [Column(down.key, f"{down.key} \\ {across.key}")]
    columns += [Column(f"v{i}", label) for i, label in enumerate(across.labels)]
    rows = []
    for i, label in enumerate(down.labels):
        cells = points[i * width : (i + 1) * width]
        texts = [amount(key, p.numbers.get(key)) + ("*" if p.answer == "no" else "") for p in cells]
        rows.append((label, *texts))
    return Table(columns, rows, key)
