"""Documents as lines, in a terminal's width and colours; as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import enum
import io
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from gpuscale.core.records import fields, is_dataclass
from gpuscale.foreign import clean, csv_cell, fenced, markdown, markdown_cell
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
    points_of,
    summary_of,
)
from gpuscale.render.fit import Part, fit, folded, squeezed
from gpuscale.render.output import ESCAPED, coloured, strict, write
from gpuscale.render.palette import in_terminal, meaning

SCHEMA = 2


def plain(value: Any) -> Any:
    """Turn records, enums and tuples into JSON types; a number that is not finite becomes null.

    A record's class may name properties in `SHOWN` that belong to the answer as well.

    In strict mode (tests) such a number is raised as ArithmeticError.
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value)]
        return {n: plain(getattr(value, n)) for n in (*names, *getattr(value, "SHOWN", ()))}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        if strict():
            raise ArithmeticError(f"{value} in a result")
        return None
    return value


def to_json(
    document: Document, extra: Mapping[str, Any] | None = None, ascii_only: bool = False
) -> str:
    """Make the one envelope of all commands; `ascii_only` for streams that know no more.

    `extra` are the keys of what was asked for besides: `explain`, `requirements`.
    """
    envelope = {
        "schema": SCHEMA,
        "command": document.command,
        "inputs": plain(document.inputs),
        "summary": plain(points_of(document)),
        "result": plain(document.result),
        "warnings": list(document.warnings),
        **({"job": plain(document.job())} if document.job else {}),
    } | {key: plain(value) for key, value in (extra or {}).items()}
    text = json.dumps(envelope, indent=2, ensure_ascii=ascii_only, allow_nan=False)
    return text.translate(ESCAPED)


def _tables(document: Document) -> list[Table]:
    if document.csv_table is not None:
        return [document.csv_table]
    return [b for b in document.blocks if isinstance(b, Table)]


def records(document: Document) -> list[dict[str, object]]:
    """Rows of the main table by key, or the figures of the result as one; SI units."""
    tables = _tables(document)
    if not tables:
        return [dict(leaves(plain(document.result)))]
    keys = [c.key for c in tables[0].columns]
    return [dict(zip(keys, map(plain, row), strict=True)) for row in tables[0].rows]


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested dicts and lists with its dotted key.

    >>> dict(leaves({"a": {"b": [1, 2]}}))
    {'a.b.0': 1, 'a.b.1': 2}
    """
    if not isinstance(value, (dict, list, tuple)):
        yield prefix[:-1], value
        return
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(child, f"{prefix}{key}.")


def to_csv(document: Document) -> str:
    """Print the main table with raw SI values, or key,value lines of the result if none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    tables = _tables(document)
    if tables:
        writer.writerow([csv_cell(c.key) for c in tables[0].columns])
        writer.writerows([[csv_cell(plain(v)) for v in row] for row in tables[0].rows])
    else:
        writer.writerow(["key", "value"])
        writer.writerows([[csv_cell(v) for v in pair] for pair in leaves(plain(document.result))])
    return out.getvalue().rstrip("\n")


def _markdown_table(
    headers: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]
) -> str:
    lines = ["| " + " | ".join(map(markdown_cell, headers)) + " |"]
    lines.append("|" + "|".join("---:" if r else "---" for r in right) + "|")
    lines += ["| " + " | ".join(map(markdown_cell, row)) + " |" for row in rows]
    return "\n".join(lines)


def to_markdown(document: Document, explain: bool = False) -> str:
    """Write the document as Markdown: the same blocks as in the terminal."""
    parts: list[str] = []
    own = any(isinstance(block, Summary) for block in document.blocks)
    head = [summary_of(document)] if document.details and not own else []
    for block in (*head, *document.blocks):
        if isinstance(block, Text):
            parts.append(markdown(block.text))
            continue
        if block.title:
            parts.append(f"### {markdown_cell(block.title)}")
        if isinstance(block, Drawn):
            parts.append(fenced(list(block.lines)))
            continue
        made = grid(block)
        heads = made.headers or [""] * len(made.right)
        table = _markdown_table(heads, made.right, made.rows)
        parts += [*filter(None, (markdown(made.before), table, markdown(made.after)))]
    if explain and document.terms:
        from gpuscale.render import document as trees

        parts += ["### How it comes about", trees.to_markdown(document.terms)]
    parts += [f"warning: {markdown(w)}" for w in document.warnings]
    return "\n\n".join(parts)


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
        from gpuscale.render.document import to_lines

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
