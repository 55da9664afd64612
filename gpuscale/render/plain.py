"""Documents in a pipe: whole lines, nothing cut, wrapped or coloured, and no rich to import."""

from __future__ import annotations

from collections.abc import Sequence

from gpuscale.foreign import clean
from gpuscale.render.document import Bars, Block, Document, Drawn, Facts, Summary, Table, Text
from gpuscale.render.layers import LABEL_WIDTH, lines_of

BAR_WIDTH = 40
RULE_WIDTH = 100


def cells(block: Table) -> list[list[str]]:
    """Text of every cell of a table; None is a dash."""
    return [
        ["-" if v is None else clean(c.show(v)) for c, v in zip(block.columns, row, strict=True)]
        for row in block.rows
    ]


def one_line(text: str) -> str:
    """Text of a cell or label, on one line."""
    return clean(text).replace("\n", " ")


def columns(rows: Sequence[Sequence[str]], right: Sequence[bool], gap: str) -> list[str]:
    """Lines of padded cells; the last column keeps no trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def bar_texts(block: Bars, width: int, full: str, empty: str) -> list[str]:
    """Draw the bars against the limit, or against the longest one."""
    scale = max([block.limit or 0.0, *(value for _, value, _ in block.rows)], default=0.0) or 1.0
    filled = [round(width * max(0.0, value) / scale) for _, value, _ in block.rows]
    return [full * n + empty * (width - n) for n in filled]


def _table(block: Table) -> list[str]:
    headers = [one_line(c.header) for c in block.columns]
    rows = [[one_line(cell) for cell in row] for row in cells(block)]
    head, *body = columns([headers, *rows], [c.right for c in block.columns], "   ")
    rule = "─" * max(len(head), min(RULE_WIDTH, max(map(len, body), default=0)))
    return [head, rule, *body]


def _bars(block: Bars) -> list[str]:
    bars = bar_texts(block, BAR_WIDTH, "█", "·")
    rows = [
        [one_line(label), text, bar] for (label, _, text), bar in zip(block.rows, bars, strict=True)
    ]
    lines = columns(rows, [False, True, False], "  ")
    return [*lines, clean(block.limit_text)] if block.limit_text else lines


def _lines(block: Block) -> list[str]:
    if isinstance(block, Text):
        return [line.rstrip() for line in clean(block.text).split("\n")]
    if isinstance(block, Summary):
        return [
            f"{label:<{LABEL_WIDTH - 1}} {value}{note}".rstrip() if label else f"{value}{note}"
            for label, value, note, _ in lines_of(block)
        ]
    if isinstance(block, Drawn):
        lines = [clean(line).rstrip() for line in block.lines]
    elif isinstance(block, Table):
        lines = _table(block)
    elif isinstance(block, Facts):
        rows = [[one_line(text) for text in row] for row in block.rows]
        lines = columns(rows, [False, True, False], "  ")
    else:
        lines = _bars(block)
    return [clean(block.title), *lines] if block.title else lines


def to_text(document: Document, explain: bool = False) -> str:
    """Every block, an empty line between blocks; then the terms, if asked for."""
    blocks = [_lines(block) for block in document.blocks]
    if explain and document.terms:
        from gpuscale.render.explain import to_lines

        blocks.append(["How it comes about", *to_lines(document.terms)])
    return "\n\n".join("\n".join(lines) for lines in blocks)
