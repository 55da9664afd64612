"""The answer of a sweep as a document: a table of points, and a grid where two keys vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscale.core.quantity import dimension_of, format_count, format_si
from gpuscale.render.document import Block, Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.sweep import SweptAnswer
    from gpuscale.answers.sweep_axis import SweptKey

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
    points: list[SweptAnswer],
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
        notes.append(f"- no answer, e.g. {', '.join(wrong[0].labels)}: {wrong[0].note}")
    if grids and shown[MOST_GRIDS:]:
        notes.append(f"in JSON and CSV also: {', '.join(shown[MOST_GRIDS:])}")
    if notes:
        blocks.append(Text("\n".join(notes)))
    result = SweepAnswer(
        keys=[axis.key for axis in axes],
        shown=shown,
        points=[
            SweepPoint(
                values={a.key: v for a, v in zip(axes, p.values, strict=True)},
                answer=p.answer,
                note=p.note,
                numbers={key: p.numbers.get(key) for key in shown},
            )
            for p in points
        ],
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


def _long(axes: tuple[SweptKey, ...], shown: list[str], points: list[SweptAnswer]) -> Table:
    """One row per point; the answer and its note only where they say something."""
    # the table keeps raw values, for CSV
    labels = [dict(zip(a.values, a.labels, strict=True)) for a in axes]
    columns = [
        Column(axis.key, axis.key, known.__getitem__)
        for axis, known in zip(axes, labels, strict=True)
    ]
    columns += [_column(key) for key in shown]
    rows: list[Sequence[Any]] = [
        (*p.values, *(p.numbers.get(key) for key in shown)) for p in points
    ]
    if any(p.answer != "yes" for p in points):
        columns += [Column("answer", "answer", right=False), Column("note", "note", right=False)]
        rows = [(*row, p.answer, p.note) for row, p in zip(rows, points, strict=True)]
    return Table(columns, rows)


def _grid(axes: tuple[SweptKey, ...], key: str, points: list[SweptAnswer]) -> Table:
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
