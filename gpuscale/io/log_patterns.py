"""What programs print: the tables of `presets/log`, one file a program.

A `[[line]]` has a literal (`has`: one of several) and entries ``NAME [UNIT] REGEX``: ``#`` stands
for a number, ``#K`` for one with a letter of thousands behind, ``&`` for a unit as printed, ``@``
for a word; the unit ``text`` keeps the group as it is, ``=WORD`` is a constant (``=`` takes back
what was said), ``&`` is read off the line.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from math import isfinite
from typing import Any

from gpuscale.core.diagnosis.series import COUNTS, UNITS
from gpuscale.core.records import dataclass, field
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_files
from gpuscale.io.text import Table, read_toml

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


UNSIGNED = ("%", "tokens/s", "ms", "s", "TFLOP/s", "&")
"""Units of figures that are never below 0."""


@dataclass
class Find:
    """One fact of a line."""

    name: str
    unit: str
    regex: str

    @cached_property
    def search(self) -> Any:
        """Compiled at its first use: most programs do not occur in a log."""
        return re.compile(_expanded(self.regex)).search

    def made(self, text: str) -> tuple[float | str, str, str, str] | None:
        """(value, unit as printed, text as printed, SI unit) of what a line says, if anything."""
        hit = self.search(text)
        if hit is None:
            return None
        unit = self.unit
        if unit.startswith("="):
            return unit[1:], "", unit[1:], ""
        groups = hit.groups()
        first = next((g for g in groups if g is not None), None)
        if first is None:
            return None
        if unit == "text":
            return first.strip()[:160], "", first[:160], ""
        try:
            value = float(first.replace(",", "").replace("_", ""))
        except ValueError:
            return None
        if not isfinite(value) or value < 0 and unit in UNSIGNED:
            return None  # -100 % stands for what was not computed
        if "#K" in self.regex and len(groups) > 1 and groups[1]:
            value *= COUNTS[groups[1]]
        if unit == "&":
            unit = groups[1] if len(groups) > 1 and groups[1] else ""
            if unit in COUNTS:
                return value * COUNTS[unit], "", f"{first} {unit}", ""
            if unit not in UNITS:
                return None
        si, factor = UNITS[unit]
        return value * factor, unit, f"{first} {unit}".strip(), si


@dataclass
class LinePattern:
    """A kind of line of a program."""

    program: str
    has: tuple[str, ...]
    find: tuple[Find, ...]
    step: str = ""  # regular expression of the step's number, where the line has one
    rank: str = ""  # and of the rank
    skip: int = 0
    context: bool = False  # only in a remark in parentheses

    @cached_property
    def places(self) -> tuple[Any, Any]:
        """Expressions of step and rank, None where the line says none."""
        step, rank = (re.compile(r) if r else None for r in (self.step, self.rank))
        return step, rank


@dataclass
class TablePattern:
    """Rows that tell themselves."""

    program: str
    name: str
    has: tuple[str, ...]
    row: re.Pattern[str]
    columns: tuple[tuple[str, str, str], ...]  # name, unit ("": a text), group of the row


@dataclass
class Patterns:
    """All that is known of what programs print."""

    software: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    lines: list[LinePattern] = field(default_factory=list)
    tables: list[TablePattern] = field(default_factory=list)
    arguments: list[tuple[str, Any]] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)  # heading -> what names below end with
    same: dict[str, str] = field(default_factory=dict)  # see `pairs`


KNOWN = frozenset(
    "title kind software source skip starts line table arguments same sections".split()
)


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


def _add(all_: Patterns, name: str, table: Table) -> None:
    if unknown := sorted(set(table) - KNOWN):
        raise GpuscaleError(f"presets/log/{name}.toml: unknown key `{unknown[0]}`")
    all_.kinds[name] = table.get("kind", "")
    all_.software[name] = table.get("software", "")
    all_.starts += table.get("starts", [])
    all_.same |= table.get("same", {})
    all_.sections |= table.get("sections", {})
    skip = int(table.get("skip", 0))
    for entry in table.get("line", ()):
        finds = tuple(_find(name, text) for text in entry["find"])
        line = entry | {"has": _strings(entry["has"]), "find": finds, "skip": skip}
        all_.lines.append(LinePattern(name, **line))
    for entry in table.get("table", ()):
        columns = tuple(_column(c) for c in entry["columns"])
        row = re.compile(entry["row"])
        all_.tables.append(TablePattern(name, entry["name"], _strings(entry["has"]), row, columns))
    for entry in table.get("arguments", ()):
        all_.arguments.append((entry["has"], re.compile(entry["find"]).search))


def _find(program: str, text: str) -> Find:
    hit = _ENTRY.fullmatch(text)
    if hit is None:
        raise GpuscaleError(f"presets/log/{program}.toml: not NAME [UNIT] REGEX: {text[:80]}")
    return Find(hit[1], hit[2], hit[3])


def _column(text: str) -> tuple[str, str, str]:
    name, _, rest = text.partition(" [")
    unit, _, source = rest.partition("]")
    return name, unit.strip(), source.strip() or name
