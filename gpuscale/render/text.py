"""Documents in the terminal, by rich; a pipe gets plain lines."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any, TextIO

from gpuscale.foreign import clean
from gpuscale.render.document import Bars, Block, Document, Drawn, Facts, Summary, Table, Text
from gpuscale.render.fit import WIDE_GAP, Part, fit
from gpuscale.render.layers import LABEL_WIDTH, lines_of
from gpuscale.render.output import coloured, write
from gpuscale.render.palette import in_terminal, meaning
from gpuscale.render.plain import BAR_WIDTH, bar_texts, cells, one_line, to_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text as Styled

PIPE_WIDTH = 100_000
TONES = {"good": "green", "near": "yellow", "bad": "red", "": ""}
"""Colours of a verdict; its words alone say it too."""

WIDEST = 120
"""Columns of a summary, at most."""


def tone_of(document: Document) -> str:
    """Tone of the whole answer, of its data."""
    if document.answered_no:
        return "bad"
    return "good" if getattr(document.result, "fits", None) is True else ""


def console(stream: TextIO) -> Console:
    """Make the one console: no markup, no highlighting, nothing cut or wrapped in a pipe."""
    from rich.console import Console

    width, height = PIPE_WIDTH, 100
    if stream.isatty():
        columns, lines = shutil.get_terminal_size()
        width, height = max(20, columns), max(1, lines)
    wanted = coloured(stream)
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=width,
        height=height,
        force_terminal=wanted or None,
        color_system="auto" if wanted else None,
    )


def print_document(document: Document, stream: TextIO, explain: bool = False) -> None:
    """Print each block, an empty line between blocks; all of it or nothing."""
    if not (stream.isatty() or coloured(stream)):
        write(stream, to_text(document, explain))
        return
    out = console(stream)
    with out.capture() as captured:
        for i, block in enumerate(document.blocks):
            if i:
                out.print()
            if not isinstance(block, Text) and block.title:
                out.print(clean(block.title), style="bold")
            _print_block(block, out, tone_of(document), first=not i)
        if explain and document.terms:
            from gpuscale.render.explain import print_trees

            out.print("\nHow it comes about", style="bold")
            print_trees(document.terms, out)
    write(stream, re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))


def _print_block(block: Block, out: Console, tone: str, first: bool) -> None:
    from rich.text import Text as Styled

    if isinstance(block, Text):
        text = Styled(clean(block.text))
        if first:
            text.stylize(f"bold {TONES[tone]}", 0, len(block.text.split("\n")[0]))
        out.print(text, soft_wrap=out.width >= PIPE_WIDTH)
    elif isinstance(block, Summary):
        _print_summary(block, out)
    elif isinstance(block, Drawn):
        out.print(_picture(block), overflow="crop", no_wrap=True)
    elif isinstance(block, Facts):
        _print_facts(block, out, tone)
    elif isinstance(block, Bars):
        _print_bars(block, out)
    else:
        _print_table(block, out)


def _print_summary(block: Summary, out: Console) -> None:
    from rich.text import Text as Styled

    width = 0 if out.width >= PIPE_WIDTH else min(out.width, WIDEST)
    headed = True
    for label, value, note, tone in lines_of(block, width):
        colour = TONES[tone]
        if not (label or value or note):
            out.print()
            headed = False
            continue
        line = Styled().append("" if headed else f"{label:<{LABEL_WIDTH - 1}} ", "dim")
        out.print(line.append(value, f"bold {colour}").append(note, colour), soft_wrap=True)


def _picture(block: Drawn) -> Styled:
    """Lines of a picture in letters, each letter in the colour of what it means."""
    from rich.text import Text as Styled

    rows = [Styled(clean(line)) for line in block.lines]
    for row, start, end, name in block.tints:
        rows[row].stylize(in_terminal(name), start, end)
    return Styled("\n").join(rows)


def _print_table(block: Table, out: Console) -> None:
    headers = [one_line(c.header) for c in block.columns]
    rows = [[one_line(cell) for cell in row] for row in cells(block)]
    for i, part in enumerate(fit([headers, *rows], [c.right for c in block.columns], out.width)):
        if i:
            out.print()
        _print_part(block, [headers, *rows], part, out)


def _print_part(block: Table, rows: list[list[str]], part: Part, out: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text as Styled

    sides = (0, 1, 0, 1 if part.gap == WIDE_GAP else 0)
    table = RichTable(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=sides, border_style="dim"
    )
    for i, width in zip(part.indices, part.widths, strict=True):
        justify: Any = "right" if block.columns[i].right else "left"
        table.add_column(rows[0][i], justify=justify, overflow="fold", width=width)
    for row in rows[1:]:
        table.add_row(*(Styled(row[i]) for i in part.indices))
    out.print(table)


def _print_facts(block: Facts, out: Console, tone: str) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text as Styled

    table = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    labels = max((len(row[0]) for row in block.rows), default=0)
    values = max((len(row[1]) for row in block.rows), default=0)
    table.add_column(overflow="fold", no_wrap=labels <= 24, style="dim")
    table.add_column(justify="right", overflow="fold", no_wrap=values <= 16, style="bold")
    table.add_column(overflow="fold")
    for row in block.rows:
        colour = TONES[tone] if row[0] == "verdict" else ""
        label, value, remark = map(clean, row)
        table.add_row(Styled(label), Styled(value, colour), Styled(remark, colour))
    out.print(table)


def _print_bars(block: Bars, out: Console) -> None:
    from rich.text import Text as Styled

    labels = [one_line(label) for label, _, _ in block.rows]
    label_width = max(map(len, labels), default=0)
    text_width = max((len(text) for _, _, text in block.rows), default=0)
    bar_width = max(8, min(BAR_WIDTH, out.width - label_width - text_width - 4))
    full, empty = ("█", "·") if out.encoding.startswith("utf") else ("#", ".")
    bars = bar_texts(block, bar_width, full, empty)
    for label, (_, _, text), bar in zip(labels, block.rows, bars, strict=True):
        line = Styled(f"{label:<{label_width}}  {text:>{text_width}}  ")
        name = meaning(label)
        line.append(bar.rstrip(empty), in_terminal(name) if name else "")
        line.append(bar[len(bar.rstrip(empty)) :], "dim")
        out.print(line, overflow="fold")
    if block.limit_text:
        out.print(Styled(clean(block.limit_text)))
