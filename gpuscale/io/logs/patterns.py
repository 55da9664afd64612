"""What programs print: the tables of `presets/log`, one file a program.

A `[[line]]` has a literal (`has`: one of several) and entries ``NAME [UNIT] REGEX``: ``#`` stands
for a number, ``#K`` for one with a letter of thousands behind, ``&`` for a unit as printed, ``@``
for a word; the unit ``text`` keeps the group as it is, ``=WORD`` is a constant, ``&`` is read off
the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_files
from gpuscale.io.toml import read_toml

NUMBER = r"([-+]?\d{1,25}(?:[,_]\d{3}){0,8}(?:\.\d{1,25})?(?:[eE][-+]?\d{1,3})?)"
MARKS = {
    "#K": NUMBER + r"\s?([KMGBT]?)",
    "#": NUMBER,
    "&": r"\s?([A-Za-zµ][A-Za-zµ/]*)",
    "@": r"""([^\s,;'"|\]\)]+)""",
}
_ENTRY = re.compile(r"(\w+) \[([^\]]*)\] (.+)", re.DOTALL)
_MARK = re.compile(r"\\.|#K\b|[#&@]")


def _expanded(regex: str) -> str:
    def put(hit: re.Match[str]) -> str:
        word = hit[0]
        return word[1:] if word in (r"\#", r"\&", r"\@") else MARKS.get(word, word)

    return _MARK.sub(put, regex)


@dataclass
class Find:
    """One fact of a line."""

    name: str
    unit: str
    regex: str
    counted: bool = False

    @cached_property
    def search(self) -> Any:
        """Compiled at its first use: most programs do not occur in a log."""
        return re.compile(_expanded(self.regex)).search


@dataclass
class Line:
    """A kind of line of a program."""

    program: str
    has: tuple[str, ...]
    finds: tuple[Find, ...]
    step: str = ""
    rank: str = ""
    skip: int = 0
    context: bool = False  # only in a remark in parentheses

    @cached_property
    def step_search(self) -> Any:
        """Find the step's number, where the line has one."""
        return re.compile(self.step).search if self.step else None

    @cached_property
    def rank_search(self) -> Any:
        """Find the rank, where the line itself names it."""
        return re.compile(self.rank).search if self.rank else None


@dataclass
class Table:
    """Rows below a header."""

    program: str
    name: str
    has: tuple[str, ...]
    row: str
    columns: tuple[tuple[str, str, str], ...]  # name, unit, column it is read from
    title: str = ""
    always: bool = False  # a row tells itself, without the header

    @cached_property
    def match(self) -> Any:
        """Match a row."""
        return re.compile(self.row).match

    @cached_property
    def title_search(self) -> Any:
        """What the header says of all rows."""
        return re.compile(self.title).search if self.title else None


@dataclass
class Patterns:
    """All that is known of what programs print."""

    titles: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    arguments: list[tuple[str, Any]] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)  # heading -> what names below end with
    same: dict[str, str] = field(default_factory=dict)  # see `pairs`


def _strings(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@lru_cache(maxsize=1)
def load_patterns() -> Patterns:
    """Read the tables of all programs.

    Raises GpuscaleError for a key or an entry that is not known.
    """
    all_ = Patterns()
    for name, path in preset_files("log").items():
        _add(all_, name, read_toml(path))
    return all_


def _add(all_: Patterns, name: str, table: dict[str, Any]) -> None:
    known = {
        "title",
        "kind",
        "software",
        "source",
        "skip",
        "starts",
        "line",
        "table",
        "arguments",
        "same",
        "sections",
    }
    if unknown := sorted(set(table) - known):
        raise GpuscaleError(f"presets/log/{name}.toml: unknown key `{unknown[0]}`")
    all_.titles[name] = table["title"]
    all_.kinds[name] = table.get("kind", "")
    all_.software[name] = table.get("software", "")
    all_.starts += table.get("starts", [])
    all_.same |= table.get("same", {})
    all_.sections |= table.get("sections", {})
    skip = int(table.get("skip", 0))
    for entry in table.get("line", ()):
        finds = tuple(_find(name, text) for text in entry["find"])
        all_.lines.append(
            Line(
                name,
                has=_strings(entry["has"]),
                finds=finds,
                step=entry.get("step", ""),
                rank=entry.get("rank", ""),
                skip=skip,
                context=entry.get("context", False),
            )
        )
    for entry in table.get("table", ()):
        columns = tuple(_column(c) for c in entry["columns"])
        all_.tables.append(
            Table(
                name,
                name=entry["name"],
                has=_strings(entry["has"]),
                row=entry["row"],
                columns=columns,
                title=entry.get("title", ""),
                always=entry.get("always", False),
            )
        )
    for entry in table.get("arguments", ()):
        all_.arguments.append((entry["has"], re.compile(entry["find"]).search))


def _find(program: str, text: str) -> Find:
    hit = _ENTRY.fullmatch(text)
    if hit is None:
        raise GpuscaleError(f"presets/log/{program}.toml: not NAME [UNIT] REGEX: {text[:80]}")
    return Find(hit[1], hit[2], hit[3], counted="#K" in hit[3])


def _column(text: str) -> tuple[str, str, str]:
    name, _, rest = text.partition(" [")
    unit, _, source = rest.partition("]")
    return name, unit.strip(), source.strip() or name
