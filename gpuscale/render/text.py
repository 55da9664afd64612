"""Documents as lines: as wide as a terminal and in its colours, by rich; or whole and plain."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from gpuscale.foreign import clean
from gpuscale.render.document import (
    BAR_WIDTH,
    LABEL_WIDTH,
    Bars,
    Block,
    Document,
    Drawn,
    Facts,
    Summary,
    Table,
    Text,
    bar_texts,
    grid,
    lines_of,
    one_line,
)
from gpuscale.render.fit import Part, fit, folded, squeezed
from gpuscale.render.output import coloured, write
from gpuscale.render.palette import in_terminal, meaning

TONES = {"good": "green", "near": "yellow", "bad": "red", "": ""}
"""Colours of a verdict; its words alone say it too."""

WIDEST = 120
"""Columns of a summary, at most."""

LONGEST_RULE = 100
"""Columns of the rule below the headers of a table, where nothing else is as long."""

Line = list[tuple[str, str]]
"""Pieces of a line: text, and its style in rich's words, as ``bold green`` or ``#306fb8``."""


def tone_of(document: Document) -> str:
    """Tone of the whole answer, of its data."""
    if document.answered_no:
        return "bad"
    return "good" if getattr(document.result, "fits", None) is True else ""


def to_text(document: Document, explain: bool = False) -> str:
    """Every block whole and without colours; then the terms, if asked for."""
    return "\n".join(map(bare, lines(document, 0, explain)))


def print_document(document: Document, stream: TextIO, explain: bool = False) -> None:
    """Print each block, an empty line between blocks; all of it or nothing."""
    width = max(20, shutil.get_terminal_size().columns) if stream.isatty() else 0
    rows = lines(document, width, explain)
    write(stream, painted(rows, stream) if coloured(stream) else "\n".join(map(bare, rows)))


def bare(line: Line) -> str:
    """Line without colours."""
    return "".join(text for text, _ in line).rstrip()


def painted(rows: Iterable[Line], stream: TextIO) -> str:
    """Lines in the colours that a terminal has, by rich."""
    from rich.console import Console
    from rich.text import Text as Styled

    out = Console(file=stream, force_terminal=True, highlight=False, emoji=False)
    with out.capture() as captured:
        for row in rows:
            line = Styled.assemble(*row)
            line.rstrip()
            out.print(line, soft_wrap=True)
    return captured.get().rstrip("\n")


def lines(document: Document, width: int, explain: bool = False) -> Iterator[Line]:
    """Lines of an answer; `width` of a terminal, 0 without end."""
    for i, block in enumerate(document.blocks):
        if i:
            yield []
        if not isinstance(block, Text) and block.title:
            yield [(clean(block.title), "bold")]
        yield from _block(block, width, tone_of(document), first=not i)
    if explain and document.terms:
        from gpuscale.render.explain import to_lines

        yield from ([], [("How it comes about", "bold")])
        yield from ([(line, "")] for line in to_lines(document.terms, width))


def _block(block: Block, width: int, tone: str, first: bool) -> Iterator[Line]:
    if isinstance(block, Text):
        for n, line in enumerate(clean(block.text).split("\n")):
            style = f"bold {TONES[tone]}" if first and not n else ""
            yield from ([(part, style)] for part in folded(line, width))
    elif isinstance(block, Summary):
        yield from _summary(block, width)
    elif isinstance(block, Drawn):
        yield from _picture(block, width)
    elif isinstance(block, Table):
        yield from _table(block, width)
    elif isinstance(block, Facts):
        yield from _facts(block, width, tone)
    else:
        yield from _bars(block, width)


def _summary(block: Summary, width: int) -> Iterator[Line]:
    headed = True
    for label, value, note, tone in lines_of(block, min(width, WIDEST)):
        headed = headed and bool(label or value or note)
        head = "" if headed else f"{label:<{LABEL_WIDTH - 1}} "
        yield [(head, "dim"), (value, f"bold {TONES[tone]}"), (note, TONES[tone])]


def _picture(block: Drawn, width: int) -> Iterator[Line]:
    """Lines of a picture in letters, each letter in the colour of what it means."""
    for i, line in enumerate(block.lines):
        row, at, pieces = clean(line)[: width or None], 0, []
        for start, end, name in sorted(t[1:] for t in block.tints if t[0] == i):
            pieces += [(row[at:start], ""), (row[start:end], in_terminal(name))]
            at = end
        yield [*pieces, (row[at:], "")]


def _row(
    cells: Sequence[str], part: Part, right: Sequence[bool], styles: Sequence[str] = ()
) -> Iterator[Line]:
    """Lines of a row: each cell as wide as its column."""
    columns = [folded(cells[i], wide) for i, wide in zip(part.indices, part.widths, strict=True)]
    for k in range(max(map(len, columns))):
        line: Line = []
        for n, (i, wide) in enumerate(zip(part.indices, part.widths, strict=True)):
            text = columns[n][k] if k < len(columns[n]) else ""
            text = text.rjust(wide) if right[i] else text.ljust(wide)
            line += [(" " * part.gap, "")] if n else []
            line.append((text, styles[i] if styles else ""))
        yield line


def _table(block: Table, width: int) -> Iterator[Line]:
    made = grid(block)
    rows = [list(map(one_line, row)) for row in (made.headers, *made.rows)]
    for n, part in enumerate(fit(rows, made.right, width)):
        if n:
            yield []
        head, *body = [list(_row(row, part, made.right)) for row in rows]
        yield from head
        longest = max((len(bare(line)) for found in body for line in found), default=0)
        above = max(len(bare(line)) for line in head)
        yield [("─" * max(above, min(width or LONGEST_RULE, longest)), "dim")]
        yield from (line for found in body for line in found)


def _facts(block: Facts, width: int, tone: str) -> Iterator[Line]:
    rows = [list(map(one_line, row)) for row in block.rows]
    part = squeezed(rows, width)
    for row in rows:
        colour = TONES[tone] if row[0] == "verdict" else ""
        yield from _row(row, part, (False, True, False), ("dim", f"bold {colour}", colour))


def _bars(block: Bars, width: int) -> Iterator[Line]:
    labels = [one_line(label) for label, _, _ in block.rows]
    wide, end = (max(map(len, n), default=0) for n in (labels, [row[2] for row in block.rows]))
    room = min(BAR_WIDTH, width - wide - end - 4) if width else BAR_WIDTH
    drawn = bar_texts(block, max(8, room))
    for label, (_, _, text), bar in zip(labels, block.rows, drawn, strict=True):
        full, name = bar.rstrip("·"), meaning(label)
        colour = in_terminal(name) if name else ""
        yield [(f"{label:<{wide}}  {text:>{end}}  ", ""), (full, colour), (bar[len(full) :], "dim")]
    if block.limit_text:
        yield from ([(part, "")] for part in folded(clean(block.limit_text), width))
