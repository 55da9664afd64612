"""Loading the questions, computing the answers by what an expression may call, comparing them."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.io.toml import read_toml
from gpuscale.textbook.quiz.expression import EvaluationTrace, ExpressionError, evaluate

FUNCTIONS = Path(__file__).parent / "data" / "functions.toml"

MODULE_OF = {
    name: module for module, names in read_toml(FUNCTIONS).items() for name in names.split()
}
"""Name of a function -> its module."""

LOOKUPS = frozenset(
    "attention gpu layout link model node nvlink pod rate recipe rule unit_layout "
    "vendor_gpu".split()
)
"""Functions of `quiz.catalogue`."""

BUILTINS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "log10": math.log10}


def is_lookup(name: str) -> bool:
    """Whether a name only looks up specifications."""
    return name in LOOKUPS


@lru_cache(maxsize=512)
def resolve(name: str) -> Any:
    """Find the function of a name; its module is imported when it is first used.

    Raises KeyError if expressions may not use it.

    Examples
    --------
    >>> resolve("critical_intensity")(990e12, 3.35e12) > 295
    True
    """
    if name in BUILTINS:
        return BUILTINS[name]
    if name in LOOKUPS:
        return getattr(importlib.import_module("gpuscale.textbook.quiz.catalogue"), name)
    return getattr(importlib.import_module(f"gpuscale.{MODULE_OF[name]}"), name)


def summary(name: str) -> tuple[str, str]:
    """Say where a registered function is, and the first line of its docstring.

    Examples
    --------
    >>> summary("critical_intensity")[0]
    'gpuscale.core.kernel.chip'
    """
    function = resolve(name)
    doc = (function.__doc__ or "").strip().split("\n")[0]
    return str(function.__module__), doc


DATA = Path(__file__).parent / "data"
DOCUMENTS = ("000", "001", "002", "003", "004")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuizQuestion:
    """One checkable statement of a document; `compute` says how its answer is computed."""

    id: str
    document: str
    title: str  # of the document
    source: str  # what the document is
    section: str
    question: str
    quantity: str
    stated: Any = None  # number, text, range, or None where the document gives none
    stated_unit: str = ""
    stated_si: float | None = None  # the stated number in `unit`
    unit: str  # of the answer, SI
    compute: str
    formula: str
    verdict: str  # on the document: agrees, rounded, wrong or ambiguous
    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """A question with its computed answer; `matched` against the reference value."""

    question: QuizQuestion
    exact: Any  # None if it cannot be computed, for example with a changed catalogue
    matched: bool
    expected: Any
    tolerance_frac: float
    error: str = ""


def load_questions(documents: Iterable[str] = DOCUMENTS) -> tuple[QuizQuestion, ...]:
    """Read the questions of the documents, in their order.

    Examples
    --------
    >>> len(load_questions())
    460
    """
    found = []
    for document in documents:
        table = json.loads((DATA / f"{document}.json").read_text(encoding="utf-8"))
        of = {key: table[key] for key in ("document", "title", "source")}
        found += [QuizQuestion(**of, **row) for row in table["answers"]]
    return tuple(found)


def load_reference() -> dict[str, tuple[Any, float]]:
    """Read the reference values, id -> (value, relative tolerance); for comparing only."""
    table = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
    return {key: (value, tolerance) for key, (value, tolerance) in table.items()}


def compute(question: QuizQuestion, trace: EvaluationTrace | None = None) -> Any:
    """Compute the answer of a question, in its SI unit.

    Examples
    --------
    >>> ridge = next(q for q in load_questions(["000"]) if q.id == "gpu.quiz1.q3.b200")
    >>> compute(ridge)
    281.25
    """
    return evaluate(question.compute, resolve, is_lookup, trace)


def matches(value: Any, expected: Any, tolerance_frac: float) -> bool:
    """Whether a value is the expected one within a relative tolerance (0: equal).

    Examples
    --------
    >>> matches(1.0001, 1.0, 1e-3), matches((128, 128), [128, 128], 0), matches("a", "b", 0)
    (True, True, False)
    """
    if isinstance(expected, list):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(expected)
            and all(matches(v, e, tolerance_frac) for v, e in zip(value, expected, strict=True))
        )
    if isinstance(expected, (str, bool)) or isinstance(value, (str, bool)):
        return type(value) is type(expected) and bool(value == expected)
    if not isinstance(value, (int, float)):
        return False
    return bool(abs(value - expected) <= tolerance_frac * abs(expected))


def answer(question: QuizQuestion, reference: Mapping[str, tuple[Any, float]]) -> CheckedAnswer:
    """Compute the answer of a question, then compare it."""
    expected, tolerance = reference[question.id]
    try:
        exact = compute(question)
    except ExpressionError as error:
        return CheckedAnswer(question, None, False, expected, tolerance, str(error))
    return CheckedAnswer(question, exact, matches(exact, expected, tolerance), expected, tolerance)


def select(
    questions: Iterable[QuizQuestion], text: str = "", verdict: str = "", document: str = ""
) -> tuple[QuizQuestion, ...]:
    """Questions of a document, with a verdict, and with all words of a text in them.

    Examples
    --------
    >>> [q.id for q in select(load_questions(), "gantt")]
    ['pp.bubble.gantt']
    """
    words = text.lower().split()
    return tuple(
        q
        for q in questions
        if (not verdict or q.verdict == verdict)
        and (not document or q.document == document)
        and all(w in f"{q.id} {q.section} {q.question} {q.quantity}".lower() for w in words)
    )
