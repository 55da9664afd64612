"""Fitting a table into a terminal: widths of its columns, or columns in several parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap

from gpuscale.core.records import dataclass

WIDE_GAP, NARROW_GAP = 3, 2
LONGEST_WORD = 24
MOST_LINES = 3
MOST_LINES_FEW_COLUMNS = 8
FEW_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Part:
    """Columns that stand side by side, with their widths and the blanks between them."""

    indices: tuple[int, ...]
    widths: tuple[int, ...]
    gap: int


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _least(cells: Sequence[str], whole: bool) -> int:
    """Width below which a word of the column would break, or a number lose its unit."""
    header, *rest = cells
    words = [*header.split(" "), *(w for cell in rest for w in (cell.split(" "), [cell])[whole])]
    return min(LONGEST_WORD, max(map(len, words), default=0))


UNIT = r"(?<=\d) (?=%|[A-Za-z]{1,4}\b)"
"""Between a number and its unit, where no line is cut."""


def folded(text: str, width: int) -> list[str]:
    """Text in lines of a width, cut at words; what it is indented by, every line is.

    >>> folded("it takes 24 % of it", 11)
    ['it takes', '24 % of it']
    """
    if not width or len(text) <= width:
        return [text]
    indent = " " * min(len(text) - len(text.lstrip()), width // 2)
    whole = re.sub(UNIT, "\xa0", text)
    lines = wrap(whole, width, break_on_hyphens=False, subsequent_indent=indent) or [""]
    return [line.replace("\xa0", " ") for line in lines]


def lines_needed(text: str, width: int) -> int:
    """Lines that a text takes when it is wrapped at its blanks.

    >>> lines_needed("tokens per DP rank", 10)
    2
    """
    lines, at = 1, 0
    for word in text.split(" "):
        if at and at + 1 + len(word) > width:
            lines, at = lines + 1, 0
        at += len(word) + (1 if at else 0)
    return lines


def shrink(natural: Sequence[int], least: Sequence[int], budget: int) -> list[int] | None:
    """Take from the widest columns until all fit; None if words would break.

    >>> shrink([5, 40, 20], [5, 8, 8], 45)
    [5, 20, 20]
    """
    widths = list(natural)
    if sum(least) > budget:
        return None
    while sum(widths) > budget:
        room = [i for i, w in enumerate(widths) if w > least[i]]
        widest = max(room, key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def fit(table: Sequence[Sequence[str]], whole: Sequence[bool], width: int) -> list[Part]:
    """Divide the columns of a table (the first row are its headers) over one or several parts.

    `width`: of the terminal; 0 has no end.

    As they are, if they fit; wrapped at blanks to a few lines a cell (cells of the columns that
    `whole` marks stay whole); else in parts below each other that repeat what names the rows.
    """
    by_column = list(zip(*table, strict=True))
    natural = [max(map(len, cells)) for cells in by_column]
    everything = tuple(range(len(natural)))
    for gap in (WIDE_GAP, NARROW_GAP):
        if not width or _total(natural, gap) <= width:
            return [Part(everything, tuple(natural), gap)]
    least = [_least(cells, keep) for cells, keep in zip(by_column, whole, strict=True)]
    widths = shrink(natural, least, width - NARROW_GAP * (len(natural) - 1))
    most = MOST_LINES_FEW_COLUMNS if len(natural) <= FEW_COLUMNS else MOST_LINES
    if widths and all(
        lines_needed(cell, widths[i]) <= most for row in table for i, cell in enumerate(row)
    ):
        return [Part(everything, tuple(widths), NARROW_GAP)]
    return _parts(natural, width, naming(table, whole))


def squeezed(rows: Sequence[Sequence[str]], width: int) -> Part:
    """Give columns that stay side by side the widths that a terminal has room for.

    >>> squeezed([("time", "1.0 s", "of a step")], 18).widths
    (4, 5, 5)
    """
    by_column = list(zip(*rows, strict=True))
    widths = [max(map(len, cells)) for cells in by_column]
    if width and _total(widths, NARROW_GAP) > width:
        short = [w <= LONGEST_WORD for w in widths[:-1]]  # these stay whole
        kept = zip(by_column, (*short, False), strict=True)
        least = [_least(("", *cells), whole) for cells, whole in kept]
        room = width - NARROW_GAP * (len(widths) - 1)
        widths = shrink(widths, least, room) or [*least[:-1], max(8, room - sum(least[:-1]))]
    return Part(tuple(range(len(widths))), tuple(widths), NARROW_GAP)


def naming(table: Sequence[Sequence[str]], whole: Sequence[bool]) -> int:
    """How many of the first columns name the rows: until no two rows have the same name.

    >>> table = [("section", "by", "MAPE"), ("runs", "all", "5 %"), ("runs", "dense", "6 %")]
    >>> naming(table, [False, False, True]), naming([("a", "b"), ("1", "x")], [False, False])
    (2, 1)
    """
    rows = table[1:]
    for n in range(1, len(whole)):
        if whole[n] or len({tuple(row[:n]) for row in rows}) == len(rows):
            return n
    return 1


def _parts(natural: Sequence[int], width: int, names: int) -> list[Part]:
    while names > 1 and _total(natural[:names], NARROW_GAP) > width // 2:
        names -= 1
    least = max(8, width // 3)
    named = [(i, w if names > 1 else min(w, least)) for i, w in enumerate(natural[:names])]
    first = _total([w for _, w in named], NARROW_GAP)
    parts: list[list[tuple[int, int]]] = []
    at = width
    for i, wanted in list(enumerate(natural))[names:]:
        column = min(wanted, max(8, width - first - NARROW_GAP))
        if at + NARROW_GAP + column > width:
            parts.append(list(named))
            at = first
        parts[-1].append((i, column))
        at += NARROW_GAP + column
    pairs = parts or [[(0, min(natural[0], width))]]
    return [Part(tuple(i for i, _ in p), tuple(w for _, w in p), NARROW_GAP) for p in pairs]
