"""What a command returns: an answer as data, and blocks that say how to show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpuscale.core.dataclasses import dataclass, field
from gpuscale.core.quantity import dimension_of, format_si
from gpuscale.core.records import Term


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
