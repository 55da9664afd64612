"""The glossary of the field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.io.glossary import Entry
from gpuscale.render.document import Document


def complete_term(incomplete: str) -> list[str]:
    """Terms that start as typed."""
    from gpuscale.io.glossary import load_glossary

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
        from gpuscale.io.glossary import find_entry

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
    from gpuscale.io.glossary import load_glossary
    from gpuscale.render.document import Column, Document, Table, Text

    entries = load_glossary().values()
    heads = {"topic": "topic", "term": "term", "title": "what it is", "also": "also"}
    columns = [Column(key, head, right=False) for key, head in heads.items()]
    rows = [(e.topic, e.name, e.title, " ".join(e.also)) for e in entries]
    result = Terms(tuple(TermLine(e.name, e.topic, e.title) for e in entries))
    return Document(
        "explain", {}, result, [Table(columns, rows), Text("gpuscale explain TERM shows one")]
    )


def _show(entry: Entry) -> Document:
    from dataclasses import asdict

    from gpuscale.core.records import Term
    from gpuscale.render.document import Block, Document, Facts, Text
    from gpuscale.render.explain import amount, node_of
    from gpuscale.textbook.quiz.expression import ARITHMETIC, evaluate

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
