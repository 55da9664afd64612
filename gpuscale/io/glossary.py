"""The glossary's data files: one TOML table per term, checked when read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpuscale.errors import unknown_name
from gpuscale.io.text import read_text
from gpuscale.io.toml import Table, parse_toml

FOLDER = Path(__file__).resolve().parent.parent / "textbook" / "glossary"
TOPICS = ("speed", "network", "parallel", "serving")


@dataclass(frozen=True, slots=True)
class Entry:
    """One term; `core` is the package's own function for `formula`, over the same `inputs`."""

    name: str
    topic: str
    title: str
    text: str
    formula: str
    unit: str
    inputs: dict[str, float]
    example: str
    limits: str
    references: tuple[str, ...]
    also: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    core: str = ""
    command: str = ""


def _entry(name: str, topic: str, table: Table) -> Entry:
    given: Table = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Entry(name=name, topic=topic, **given)


@lru_cache(maxsize=1)
def load_glossary() -> dict[str, Entry]:
    """Read all terms, name -> entry, by topic."""
    found: dict[str, Entry] = {}
    for topic in TOPICS:
        path = FOLDER / f"{topic}.toml"
        tables = parse_toml(read_text(path), path.name)
        found |= {name: _entry(name, topic, table) for name, table in tables.items()}
    return found


def find_entry(name: str) -> Entry:
    """Find the entry of a term or of another word for it.

    Raises GpuscaleError if there is none, with the closest one as the hint.
    """
    glossary = load_glossary()
    wanted = "-".join(name.lower().replace("_", "-").split())
    words = {word: entry for entry in glossary.values() for word in (entry.name, *entry.also)}
    if wanted not in words:
        raise unknown_name("term", name, words, "list them with `gpuscale explain`")
    return words[wanted]
