"""The glossary of the field."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.core.records import Term, asdict, dataclass
from gpuscale.errors import unknown_name
from gpuscale.io.text import Table, parse_toml, read_text
from gpuscale.render.document import Block, Document, Facts, Text, amount, node_of

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


def complete_term(incomplete: str) -> list[str]:
    """Terms that start as typed."""
    return [name for name in load_glossary() if name.startswith(incomplete.lower())]


@dataclass
class Explain(Question):
    """Explain a term of the field: formula, example, limits of validity, references."""

    NAME: ClassVar[str] = "explain"
    RESULTS: ClassVar[str] = "explain:Terms explain:Explained"
    EXAMPLE: ClassVar[str] = "gpuscale explain mfu"
    term: Asked[str | None] = text("A word of the field; none lists all.", complete=complete_term)

    def answer(self) -> Document:
        """Explain it, or list all."""
        return _list() if self.term is None else _show(find_entry(self.term))


@dataclass(frozen=True, slots=True)
class TermLine:
    """A term in the list."""

    term: str
    topic: str
    title: str


@dataclass(frozen=True, slots=True)
class Terms:
    """Every term."""

    terms: tuple[TermLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained(Entry):
    """A term, and the value of its example."""

    value: float


def _list() -> Document:
    from gpuscale.render.document import Column, Table, Text

    entries = load_glossary().values()
    heads = {"topic": "topic", "term": "term", "title": "what it is", "also": "also"}
    columns = [Column(key, head, right=False) for key, head in heads.items()]
    rows = [(e.topic, e.name, e.title, " ".join(e.also)) for e in entries]
    result = Terms(tuple(TermLine(e.name, e.topic, e.title) for e in entries))
    return Document(
        "explain", {}, result, [Table(columns, rows), Text("gpuscale explain TERM shows one")]
    )


def _show(entry: Entry) -> Document:
    from gpuscale.textbook.evaluate import ARITHMETIC, evaluate

    inputs = {name: float(value) for name, value in entry.inputs.items()}
    value = float(evaluate(entry.formula, (ARITHMETIC | inputs).__getitem__))
    term = Term(entry.name, value, entry.unit, entry.formula, inputs, "; ".join(entry.references))
    facts: list[tuple[str, str, str]] = [
        ("formula", "", entry.formula),
        ("example", "", entry.example),
        ("", "", f"{node_of(term).numbers} = {amount(entry.name, value, entry.unit)}"),
        ("limits", "", entry.limits),
        *(("reference" if i == 0 else "", "", r) for i, r in enumerate(entry.references)),
        *([("see also", "", ", ".join(entry.see))] if entry.see else []),
        *([("try", "", entry.command)] if entry.command else []),
    ]
    result = Explained(**asdict(entry), value=value)
    blocks: list[Block] = [
        Text(f"{entry.name}: {entry.title}"),
        Text(" ".join(entry.text.split())),
        Facts(facts),
    ]
    return Document("explain", {"term": entry.name}, result, blocks, terms=[term])
