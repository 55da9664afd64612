"""The quiz: every answer of the documents, computed and compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gpuscale.answers import ask
from gpuscale.answers.ask import Asked, Converted, texts
from gpuscale.core.records import KW_ONLY, dataclass, fields
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.render.document import Block, Column, Document, Facts, Table, Text
from gpuscale.textbook import evaluate
from gpuscale.textbook.evaluate import (
    DOCUMENTS,
    CheckedAnswer,
    ExpressionError,
    QuizQuestion,
    Statement,
    compact,
    load_questions,
    matches,
    select,
)
from gpuscale.textbook.explain import (
    DIMENSION,
    QuotedFigure,
    Step,
    exact_text,
    explain,
    note_text,
    stated_text,
    term,
    value_text,
)

ONLY = ("agrees", "rounded", "wrong", "ambiguous")
_COUNTED = {"agrees": "agree", "rounded": "rounded", "wrong": "wrong", "ambiguous": "ambiguous"}


def complete_id(incomplete: str) -> list[str]:
    """Ids of answers."""
    return [q.id for q in load_questions() if q.id.startswith(incomplete)]


@dataclass
class Quiz(ask.Question):
    """Answer every question of the documents, and say where they are wrong.

    Computed with the documents' own hardware figures by the functions of the other commands.
    """

    NAME: ClassVar[str] = "quiz"
    RESULTS: ClassVar[str] = "quiz:QuizAnswer quiz:QuizExplained"
    EXAMPLE: ClassVar[str] = "gpuscale quiz llm.quiz5.q2.3.tokens"
    text: Converted[tuple[str, ...], Sequence[str]] = texts(
        "The id of one answer, to explain it; or words to search questions for.",
        metavar="[ID | TEXT]",
        complete=complete_id,
    )
    _: KW_ONLY
    only: Asked[str | None] = ask.text(
        f"One verdict only: {', '.join(ONLY)}.", known=ONLY, noun="verdict"
    )
    document: Asked[str | None] = ask.text("One document only: 000, 001, 002, 003, 004.")

    def answer(self) -> Document:
        """Answer them all, or explain one."""
        return _answer(self)


@dataclass(frozen=True, kw_only=True)
class QuizRow(Statement):
    """A statement of the documents, and what comes out."""

    stated_unit: str | None
    stated_in_unit: Any
    exact: Any
    unit: str
    matched: bool
    expected: Any
    tolerance_frac: float
    verdict: str
    note: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class QuizExplained(QuizRow):
    """A statement with the numbers put in."""

    title: str
    source: str
    formula: str
    compute: str
    figures: tuple[QuotedFigure, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class QuizAnswer:
    """All statements, counted."""

    total: int
    matched: int
    agrees: int
    rounded: int
    wrong_in_document: int
    ambiguous: int
    documents: list[dict[str, str]]
    answers: tuple[QuizRow, ...]


def _answer(asked: Quiz) -> Document:
    only, document = asked.only, asked.document
    if document is not None and document not in DOCUMENTS:
        raise unknown_name("document", document, DOCUMENTS, f"known: {', '.join(DOCUMENTS)}")
    questions = load_questions()
    words = " ".join(asked.text)
    chosen = select(questions, words, only or "", document or "")
    for question in chosen:
        if question.id == words:
            return _explained(question)
    if not chosen:
        known = [q.id for q in questions]
        raise unknown_name("question", words or "-", known, "list all with `gpuscale quiz`")
    return _listed(chosen, {"text": words, "only": only, "document": document})


def _row(answer: CheckedAnswer) -> dict[str, Any]:
    q = answer.question
    held = {f.name: getattr(q, f.name, getattr(answer, f.name, None)) for f in fields(QuizRow)}
    more = {"stated_unit": q.stated_unit or None, "stated_in_unit": q.stated_si}
    return {**held, **more, "note": note_text(q), "error": answer.error or None}


def _listed(questions: tuple[QuizQuestion, ...], inputs: dict[str, Any]) -> Document:
    reference = evaluate.load_reference()
    answers = [evaluate.answer(q, reference) for q in questions]
    rows = [_row(a) for a in answers]
    counts = {v: sum(a.question.verdict == v for a in answers) for v in ONLY}
    matched = sum(a.matched for a in answers)
    columns = [Column(key, key, right=False) for key in rows[0]]
    blocks = _blocks(answers, matched, dict(counts))
    return Document(
        command="quiz",
        inputs={"catalogue": "documents", **inputs},
        result=QuizAnswer(
            total=len(answers),
            matched=matched,
            wrong_in_document=counts.pop("wrong"),
            **counts,
            documents=_sources(questions),
            answers=tuple(QuizRow(**row) for row in rows),
        ),
        blocks=blocks,
        answered_no=matched < len(answers),
        csv_table=Table(columns, [list(r.values()) for r in rows]),
    )


def _sources(questions: tuple[QuizQuestion, ...]) -> list[dict[str, str]]:
    """Documents of the questions, each once."""
    of = {q.document: q for q in questions}
    return [{"document": d, "title": q.title, "source": q.source} for d, q in of.items()]


def _blocks(answers: list[CheckedAnswer], matched: int, counts: dict[str, int]) -> list[Block]:
    """Tables by document and section, the notes under each, the summary last."""
    from itertools import groupby

    blocks: list[Block] = []
    for document, of_document in groupby(answers, key=lambda a: a.question.document):
        group = list(of_document)
        first = group[0].question
        blocks.append(Text(f"Document {document}: {first.title}\n{first.source}"))
        for section, rows in groupby(group, key=lambda a: a.question.section):
            blocks += _section(f"{document}  {section}", list(rows))
    said = ", ".join(f"{n} {_COUNTED[verdict]}" for verdict, n in counts.items() if n)
    blocks.append(
        Text(
            f"{matched} of {len(answers)} computed answers match the reference values.\n"
            f"The documents' own figures: {said}.\n"
            "`gpuscale quiz ID` shows formula and numbers; `--only wrong` where documents err."
        )
    )
    return blocks


def _section(title: str, answers: list[CheckedAnswer]) -> list[Block]:
    names = ("id", "question", "stated", "exact", "verdict")
    columns = [Column(key, key, right=key in ("stated", "exact")) for key in names]
    rows = []
    for a in answers:
        q = a.question
        verdict = q.verdict.upper() if q.verdict == "wrong" else q.verdict
        if not a.matched:
            why = f" ({a.error})" if a.error else ""
            verdict += f"; NOT MATCHED, expected {a.expected}{why}"
        rows.append([q.id, q.question, stated_text(q), exact_text(q, a.exact), verdict])
    notes = [(a.question.id, "", note_text(a.question)) for a in answers if a.question.note]
    table = Table(columns, rows, title)
    return [table, Facts(notes, "notes")] if notes else [table]


def _compared(a: CheckedAnswer) -> list[tuple[str, str, str]]:
    """Compare what the document says with what is computed."""
    q = a.question
    verdict = {"wrong": "WRONG in the document"}.get(q.verdict, q.verdict)
    within = f"within {a.tolerance_frac:g} relative" if a.tolerance_frac else "exactly"
    rows = [
        ("stated", stated_text(q), f"document {q.document}: {q.source}"),
        ("exact", exact_text(q, a.exact), verdict),
    ]
    if q.unit in DIMENSION:
        rows.append(("in SI units", value_text(a.exact, q.unit), _full(a.exact, q.unit)))
    held = f"reference value {a.expected}, {within}"
    return [*rows, ("matched", "yes" if a.matched else "NO", held)]


def _explained(question: QuizQuestion) -> Document:
    """One answer with formula, call, numbers put in, and the origin of each figure."""
    try:
        found = explain(question)
    except ExpressionError as error:
        raise GpuscaleError(f"{question.id} cannot be computed: {error}") from None
    expected, tolerance = evaluate.load_reference()[question.id]
    matched = matches(found.exact, expected, tolerance)
    answer = CheckedAnswer(question, found.exact, matched, expected, tolerance)
    answer_term = term(question, found)
    steps = [(s.call, "=", _full(s.value, "")) for s in found.steps]
    figures = [(f.name, _full(f.value, ""), f.source) for f in found.figures]
    functions = [(name, "", f"{module}: {doc}") for name, module, doc in found.functions]
    blocks: list[Block] = [
        Text(f"{question.id}: {question.question}\n{question.title}, {question.section}"),
        Facts(_compared(answer)),
        Text(f"formula   {question.formula}\ncomputed  {question.compute}"),
    ]
    for rows, title in (
        (steps, "numbers put in"),
        (figures, "figures looked up"),
        (functions, "functions"),
    ):
        if rows:
            blocks.append(Facts(rows, title))
    if question.note:
        blocks.append(Text(note_text(question)))
    return Document(
        command="quiz",
        inputs={"catalogue": "documents", "id": question.id},
        result=QuizExplained(
            **_row(answer),
            **{key: getattr(question, key) for key in ("title", "source", "formula", "compute")},
            figures=tuple(found.figures),
            steps=tuple(found.steps),
        ),
        blocks=blocks,
        answered_no=not matched,
        terms=[answer_term] if answer_term else [],
    )


def _full(value: Any, unit: str) -> str:
    """Twelve digits of a number; other values as they are, records by their fields."""
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, float)):
        return f"{compact(value)} {unit}".rstrip()
    if isinstance(value, tuple):
        plain = all(isinstance(v, (int, float, str)) for v in value)
        return f"{(', ' if plain else '; ').join(_full(v, '') for v in value)} {unit}".rstrip()
    names = getattr(type(value), "__slots__", ())
    return ", ".join(f"{n} {_full(getattr(value, n), '')}" for n in names) or str(value)
