"""Blocks as texts in rows and columns: what every format that has tables writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuscale.foreign import clean
from gpuscale.render.document import Bars, Facts, Summary, Table

BAR_WIDTH = 40


def cells(block: Table) -> list[list[str]]:
    """Text of every cell of a table; None is a dash."""
    return [
        ["-" if v is None else clean(c.show(v)) for c, v in zip(block.columns, row, strict=True)]
        for row in block.rows
    ]


def one_line(text: str) -> str:
    """Text of a cell or label, on one line."""
    return clean(text).replace("\n", " ")


def bar_texts(block: Bars, width: int = BAR_WIDTH) -> list[str]:
    """Draw the bars against the limit, or against the longest one."""
    scale = max([block.limit or 0.0, *(value for _, value, _ in block.rows)], default=0.0) or 1.0
    filled = [round(width * max(0.0, value) / scale) for _, value, _ in block.rows]
    return ["█" * n + "·" * (width - n) for n in filled]


class Grid(NamedTuple):
    """Texts of a block in rows and columns, for every format that has tables."""

    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    headers: Sequence[str] = ()
    before: str = ""  # sentence above
    after: str = ""  # line below


def grid(block: Table | Facts | Bars | Summary) -> Grid:
    """Lay a block out; bars as characters, against the limit or the longest."""
    if isinstance(block, Table):
        return Grid(
            cells(block), [c.right for c in block.columns], [c.header for c in block.columns]
        )
    if isinstance(block, Facts):
        return Grid(block.rows, [False, True, False])
    if isinstance(block, Bars):
        bars = bar_texts(block)
        rows = [(label, text, bar) for (label, _, text), bar in zip(block.rows, bars, strict=True)]
        return Grid(rows, [False, True, False], after=block.limit_text)
    head, *points = block.points
    said = [(p.key, "  ".join(filter(None, (p.value, p.note)))) for p in points]
    return Grid(said, [False, False], before=head.value)
