"""Documents in the terminal and in a pipe, by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from gpuscale.render.document import Bars, Block, Document, Facts, Table, Text

if TYPE_CHECKING:
    from rich.console import Console

BAR_WIDTH = 40


def console(stream: TextIO) -> Console:
    """Make the one console: no markup, no highlighting, nothing cut or wrapped in a pipe."""
    from rich.console import Console

    wide: dict[str, Any] = {} if stream.isatty() else {"width": 10_000, "height": 100}
    return Console(file=stream, markup=False, highlight=False, soft_wrap=True, **wide)


def print_document(document: Document, stream: TextIO) -> None:
    """Print each block, an empty line between blocks."""
    out = console(stream)
    for i, block in enumerate(document.blocks):
        if i:
            out.print()
        if not isinstance(block, Text) and block.title:
            out.print(block.title, style="bold")
        _print_block(block, out)


def _print_block(block: Block, out: Console) -> None:
    if isinstance(block, Text):
        out.print(block.text)
    elif isinstance(block, Facts):
        _print_facts(block, out)
    elif isinstance(block, Bars):
        _print_bars(block, out)
    else:
        _print_table(block, out)


def _print_table(block: Table, out: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in block.columns:
        table.add_column(
            column.header, justify="right" if column.right else "left",
            overflow="fold",
        )  # fmt: skip
    for row in block.rows:
        table.add_row(
            *("-" if v is None else c.show(v) for c, v in zip(block.columns, row, strict=True))
        )
    out.print(table)


def _print_facts(block: Facts, out: Console) -> None:
    from rich.table import Table as RichTable

    table = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for row in block.rows:
        table.add_row(*row)
    out.print(table)


def _print_bars(block: Bars, out: Console) -> None:
    scale = max([block.limit or 0.0, *(value for _, value, _ in block.rows)], default=0.0) or 1.0
    label_width = max((len(label) for label, _, _ in block.rows), default=0)
    text_width = max((len(text) for _, _, text in block.rows), default=0)
    for label, value, text in block.rows:
        filled = round(BAR_WIDTH * max(0.0, value) / scale)
        bar = "█" * filled + "·" * (BAR_WIDTH - filled)
        out.print(f"{label:<{label_width}}  {text:>{text_width}}  {bar}")
    if block.limit_text:
        out.print(block.limit_text)
