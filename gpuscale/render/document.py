"""What a command returns: an answer as data, its layers and blocks; its terms as a tree."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpuscale.core.quantity import UNITS, dimension_of, format_si
from gpuscale.core.records import NamedTuple, Term, dataclass, field, replace
from gpuscale.errors import unknown_name
from gpuscale.foreign import clean, markdown
from gpuscale.render.fit import folded


def in_unit(key: str, value: Any) -> str:
    """Text of a value, in the unit that its key names.

    >>> in_unit("time_s", 0.5), in_unit("n_links", 2048), in_unit("lost_frac", 0.25)
    ('500.0 ms', '2,048', '25 %')
    """
    if isinstance(value, (str, bool)):
        return str(value)
    dim = dimension_of(key.removesuffix("_per_gpu").removesuffix("_per_node"))
    if dim == "frac":
        return f"{100 * value:.3g} %"
    if dim and dim not in ("count", "tokens"):
        return format_si(value, dim)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


@dataclass(frozen=True, slots=True)
class Column:
    """A table column: `key` names it in CSV and JSON (with its unit), `header` on screen."""

    key: str
    header: str
    show: Callable[[Any], str] = str  # raw value -> text; None values are shown as "-"
    right: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values (SI); each renderer formats them with the columns' `show`."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    @classmethod
    def of(
        cls,
        columns: Sequence[Column] | Mapping[str, Any],  # key -> header, or Column
        records: Iterable[Any],
        title: str = "",
    ) -> Table:
        """Table of records or mappings: a column shows the field that its key names.

        Of a key with its header alone, the values are shown in the unit that the key names.
        """
        keys = list(columns) if isinstance(columns, Mapping) else [c.key for c in columns]
        rows = [[r[k] if isinstance(r, Mapping) else getattr(r, k) for k in keys] for r in records]
        if isinstance(columns, Mapping):
            words = [any(isinstance(row[i], str) for row in rows) for i in range(len(keys))]
            columns = [
                Column(k, head, partial(in_unit, k), not left) if isinstance(head, str) else head
                for (k, head), left in zip(columns.items(), words, strict=True)
            ]
        return cls(columns, rows, title)


@dataclass(frozen=True, slots=True)
class Facts:
    """Label, value text and remark, one per line: the terms that make the answer."""

    rows: Sequence[tuple[str, str, str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Labelled bars of one quantity, against a total or a capacity."""

    rows: Sequence[tuple[str, float, str]]  # label, value, value as text
    limit: float | None = None
    limit_text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A line or paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines of equal-width characters that are kept as they are: a picture in letters."""

    lines: Sequence[str]
    title: str = ""
    tints: Sequence[tuple[int, int, int, str]] = ()  # row, start, end, meaning (`palette`)


@dataclass(frozen=True, slots=True)
class Point:
    """A line of a summary; what it says is data, and so is its tone."""

    key: str  # verdict, layout, step, run, memory, cost, bottleneck, would help, taken, next, ...
    value: str
    note: str = ""
    tone: str = ""  # good, near or bad; empty: neither


@dataclass(frozen=True, slots=True)
class Summary:
    """The answer in about a dozen lines: the verdict in a sentence, then a point a line."""

    points: Sequence[Point]
    more: str = ""  # which details there are

    title = ""


Block = Table | Facts | Bars | Text | Drawn | Summary


@dataclass(frozen=True, slots=True)
class Document:
    """The answer of one command.

    `result` is a frozen dataclass (or mapping) whose field names are the JSON keys, SI units with
    a suffix; `table` (or else the first `Table` of `blocks`) is what CSV and Markdown print.
    """

    command: str
    inputs: Mapping[str, Any]
    result: Any
    blocks: Sequence[Block]  # the whole answer
    warnings: Sequence[str] = ()
    answered_no: bool = False  # does not fit, limit exceeded: exit code 1
    terms: Sequence[Term] = field(default_factory=tuple)
    csv_table: Table | None = None
    interrupted: bool = False  # Ctrl-C: the best so far; exit code 130
    pictures: Callable[[], Sequence[Any]] | None = None  # charts beside those of the result
    timeline: Callable[[], Any] | None = None  # `core.step.timeline.Timeline` of the step
    files: Mapping[Path, str | bytes] = field(default_factory=dict)  # to be written beside it
    job: Callable[[], Mapping[str, Any]] | None = None  # whole and resolved: `answers.saved`
    launch: Callable[[str], str] | None = None  # wrapper ("torchrun", "slurm") -> a launch file
    summary: Sequence[Point] = ()
    details: Mapping[str, Sequence[Block]] = field(default_factory=dict)  # `blocks`, by their name

    @classmethod
    def layered(
        cls,
        command: str,
        inputs: Mapping[str, Any],
        result: Any,
        summary: Sequence[Point],
        details: Mapping[str, Sequence[Block]],
        **more: Any,
    ) -> Document:
        """Make an answer of a summary and named details; empty ones are left out.

        An empty summary is the first text and the first figures of the details.
        """
        kept = {name: blocks for name, blocks in details.items() if blocks}
        whole = [block for blocks in kept.values() for block in blocks]
        return cls(command, inputs, result, whole, summary=summary, details=kept, **more)


LABEL_WIDTH = 12
MOST_POINTS = 12


def named(text: str) -> tuple[str, ...]:
    """Details that are named, comma-separated.

    >>> named("memory, limits"), named("")
    (('memory', 'limits'), ())
    """
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def usual() -> tuple[str, ...]:
    """Details that a person wants wherever none are named."""
    return named(os.environ.get("GPUSCALE_SHOW", ""))


def points_of(document: Document) -> Sequence[Point]:
    """Summary of an answer: its own, or its first sentence and figures."""
    if document.summary:
        return document.summary
    first = next((b.text for b in document.blocks if isinstance(b, Text)), document.command)
    figures = next((b.rows for b in document.blocks if isinstance(b, Facts)), ())
    tone = "bad" if document.answered_no else ""
    rows = [Point(*row) for row in figures if row[0]][: MOST_POINTS - 1]
    return [Point("verdict", first.split("\n")[0], tone=tone), *rows]


def summary_of(document: Document) -> Summary:
    """Summary as a block, and which details there are beside it."""
    names = ",".join(document.details)
    return Summary(points_of(document), f"--show {names} or all" if names else "")


def layer(document: Document, show: Sequence[str]) -> Document:
    """Answer with the layers that are asked for: none named, the summary; `all`, every block.

    An answer of a sentence and a table is its own summary. Raises GpuscaleError for a detail that
    the answer does not have.
    """
    short = not document.details or len(points_of(document)) < 2
    if "all" in show or (not show and short):
        return document
    if not show or tuple(show) == ("summary",):
        return replace(document, blocks=[summary_of(document)])
    known = ("summary", *document.details)
    blocks: list[Block] = []
    for name in show:
        if name not in known:
            raise unknown_name("detail in --show:", name, known, f"it has {', '.join(known)}, all")
        own = document.details.get(name, ())
        blocks += [summary_of(document)] if name == "summary" else own
    return replace(document, blocks=blocks)


def lines_of(block: Summary, width: int = 0) -> list[tuple[str, str, str, str]]:
    """Lines of a summary: (label, value, note, tone); `width`: of a line, 0 without end.

    A value and its note are one text, cut at words; the first line of a point has its value.
    """
    head, *points = block.points
    found = [("", line, "", head.tone) for line in _cut(head.value, width)]
    found.append(("", "", "", ""))
    for p in points:
        text = "  ".join(filter(None, (p.value, p.note)))
        for i, line in enumerate(_cut(text, width - LABEL_WIDTH if width else 0)):
            value = p.value if not i and line.startswith(p.value) else "" if i else line
            found.append(("" if i else p.key, value, line[len(value) :], p.tone))
    if block.more:
        found.append(("", "", "", ""))
        room = width - LABEL_WIDTH if 0 < width < len(block.more) + LABEL_WIDTH else 0
        for i, line in enumerate(_cut(block.more.replace(",", ", "), room)):
            found.append(("" if i else "details", "", line.replace(", ", ","), ""))
    return found


def _cut(text: str, width: int) -> list[str]:
    return folded(clean(text).replace("\n", " "), width)


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


_NAME = r"[A-Za-z_]\w*"


@dataclass(frozen=True, slots=True)
class Node:
    """One figure: what it is, how it comes about, and the figures that it is made of."""

    head: str
    formula: str = ""
    numbers: str = ""
    source: str = ""
    children: tuple[Node, ...] = ()

    def lines(self) -> list[str]:
        """Text of the node itself."""
        more = [f"= {self.formula}" if self.formula else ""]
        more += [f"= {self.numbers}" if self.numbers else ""]
        more += [f"source: {self.source}" if self.source else ""]
        return [self.head, *(clean(line) for line in more if line)]


def number(value: float) -> str:
    """Write a number as it is put into a formula."""
    return str(int(value)) if value == int(value) and abs(value) < 1e7 else f"{value:.6g}"


def amount(name: str, value: float, unit: str = "") -> str:
    """Value with its unit; the name's suffix tells the unit where none is given."""
    dim = unit or dimension_of(name)
    if dim in UNITS and dim != "frac":
        return format_si(value, dim)
    return number(value) + (f" {dim}" if dim not in UNITS and dim else "")


def node_of(term: Term) -> Node:
    """Tree of a term; inputs that no child explains become leaves."""
    known = {child.name for child in term.children}
    numbers = re.sub(
        _NAME, lambda m: number(term.inputs[m[0]]) if m[0] in term.inputs else m[0], term.formula
    )
    leaves = [
        Node(f"{name} = {amount(name, value)}")
        for name, value in term.inputs.items()
        if name not in known
    ]
    return Node(
        clean(f"{term.name} = {amount(term.name, term.value, term.unit)}"),
        term.formula,
        numbers if numbers != term.formula else "",
        term.source,
        (*map(node_of, term.children), *leaves),
    )


def _drawn(node: Node, width: int, first: str = "", rest: str = "") -> Iterator[str]:
    head, *more = node.lines()
    stem = rest + ("│  " if node.children else "   ")
    for n, line in enumerate((head, *more)):
        for k, part in enumerate(folded(line, width and max(20, width - len(stem)))):
            yield (stem if n or k else first) + part
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _drawn(child, width, rest + branch, rest + below)


def to_lines(terms: Iterable[Term], width: int = 0) -> list[str]:
    """Trees as plain lines; `width` of a terminal, 0 without end."""
    return [line for term in terms for line in _drawn(node_of(term), width)]


def _bullets(node: Node, indent: str) -> Iterator[str]:
    yield f"{indent}- **{node.head}**"
    for text in (node.formula, node.numbers):
        if text:
            yield f"{indent}  `= {text}`"
    if node.source:
        yield f"{indent}  *{markdown(node.source)}*"
    for child in node.children:
        yield from _bullets(child, indent + "  ")


def to_markdown(terms: Iterable[Term]) -> str:
    """Trees as nested lists."""
    return "\n".join(line for term in terms for line in _bullets(node_of(term), ""))
