"""Answers as text, in the document's own unit, and one explained with the numbers put in."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, dataclass
from gpuscale.io.text import read_toml
from gpuscale.textbook.evaluate import (
    MODULE_OF,
    EvaluationTrace,
    QuizQuestion,
    evaluate,
    is_lookup,
    parse,
    resolve,
    summary,
)

UNITS = read_toml(Path(__file__).parent / "data" / "units.toml")
DIMENSION: dict[str, str] = UNITS["dimension"]
"""Unit of an answer -> dimension of `core.quantity`."""

_PLAIN_UNITS = ("1", "text", "formula", "shape", "bool", "SM", "")
_READABLE: dict[str, str] = UNITS["readable"]


def number(value: float) -> str:
    """Six significant digits; whole numbers below 1e9 in full.

    >>> number(16896), number(62.91456), number(6.3e24)
    ('16,896', '62.9146', '6.3e+24')
    """
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.6g}"


def _with_unit(text: str, unit: str) -> str:
    return text if unit in _PLAIN_UNITS else f"{text} {_READABLE.get(unit, unit)}"


def value_text(value: Any, unit: str) -> str:
    """Value in its SI unit, with a prefix where it has one.

    >>> value_text(8.585216e-6, "s"), value_text(False, "bool"), value_text((2, 8), "1")
    ('8.5852 us', 'no', '2 to 8')
    """
    if value is None:
        return "not computed"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return " to ".join(value_text(v, unit) for v in value)
    if unit in DIMENSION:
        return format_si(value, DIMENSION[unit], 5)
    return _with_unit(number(value), {"1/s": "per s", "bit/s": "bit/s"}.get(unit, unit))


def stated_text(question: QuizQuestion) -> str:
    """Write what the document prints; a dash where it gives no value."""
    stated = question.stated
    if stated is None:
        return "-"
    if isinstance(stated, list):
        joined = (" x " if question.stated_unit == "shape" else " to ").join(map(number, stated))
        return _with_unit(joined, question.stated_unit)
    if isinstance(stated, str):
        return _with_unit(stated, question.stated_unit)
    return _with_unit(number(stated), question.stated_unit)


def _binary(unit: str, factor: float) -> str:
    """Give a unit its binary prefix if the factor is one: MB of 2^20 bytes becomes MiB."""
    for prefix, binary in (("k", 2.0**10), ("M", 2.0**20), ("P", 2.0**50)):
        if unit.startswith(prefix) and abs(factor / binary - 1) < 1e-6:
            return f"{prefix.upper()}i{unit[1:]}"
    return unit


def exact_text(question: QuizQuestion, exact: Any) -> str:
    """Exact value in the unit in which the document states its own, else with an SI prefix.

    Where a document writes MB (or kB, PB, M) and means the binary prefix, the answer says MiB.
    """
    stated, si = question.stated, question.stated_si
    comparable = isinstance(stated, (int, float)) and not isinstance(stated, bool) and si
    if comparable and isinstance(exact, (int, float)) and not isinstance(exact, bool):
        return _with_unit(number(exact * stated / si), _binary(question.stated_unit, si / stated))
    if question.stated_unit == "shape" and isinstance(exact, tuple):
        return " x ".join(map(number, exact))
    return value_text(exact, question.unit)


def note_text(question: QuizQuestion) -> str:
    """Return the note; where the document is wrong, with what it prints, on one line.

    >>> from gpuscale.textbook.evaluate import load_questions, select
    >>> note_text(select(load_questions(), "gantt")[0])[:38]
    'document 002 prints 10 slots: The char'
    """
    if question.verdict == "wrong":
        stated = stated_text(question)
        printed = f'"{stated}"' if isinstance(question.stated, str) else stated
        return f"document {question.document} prints {printed}: {question.note}"
    return question.note


@dataclass(frozen=True, slots=True)
class QuotedFigure:
    """A figure that was looked up."""

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Step:
    """A function called with numbers, and what it gave."""

    call: str
    value: Any


@dataclass(frozen=True, slots=True)
class Explanation:
    """How one answer came about."""

    exact: Any
    figures: tuple[QuotedFigure, ...]
    steps: tuple[Step, ...]
    functions: tuple[tuple[str, str, str], ...]  # name, module, what it computes


def explain(question: QuizQuestion) -> Explanation:
    """Compute an answer and keep every figure looked up and every call."""
    trace = EvaluationTrace()
    exact = evaluate(question.compute, resolve, is_lookup, trace)
    figures = {name: QuotedFigure(name, value, _source(name)) for name, value in trace.catalogue}
    steps = {call: Step(call, value) for call, value in trace.steps}
    calls = [n.func for n in ast.walk(parse(question.compute)) if isinstance(n, ast.Call)]
    names = [f.id for f in calls if isinstance(f, ast.Name) and f.id in MODULE_OF]
    functions = tuple((name, *summary(name)) for name in dict.fromkeys(names))
    return Explanation(exact, tuple(figures.values()), tuple(steps.values()), functions)


_OF_WHOLE = {
    "nvlink": "How to Scale Your Model, GPU chapter, NVLink table",
    "pod": "the documents' catalogue, switch levels of a cluster",
    "rate": "the documents' catalogue, peak rates of a GPU",
}


def _source(name: str) -> str:
    """Origin of a looked-up attribute, from the record that it belongs to."""
    if name.endswith(")"):
        return _OF_WHOLE.get(name.split("(")[0], "")
    record, _, attribute = name.rpartition(".")
    owner = evaluate(record, resolve, is_lookup)
    sources = getattr(owner, "sources", None)
    if isinstance(sources, dict):
        return str(sources.get(attribute, ""))
    return str(getattr(owner, "source", ""))


def term(question: QuizQuestion, explanation: Explanation) -> Term | None:
    """Answer as a `Term`: the arithmetic over the results of its functions; None for a text."""
    exact = explanation.exact
    if isinstance(exact, (bool, str)) or not isinstance(exact, (int, float)):
        return None
    inputs: dict[str, float] = {}
    children: list[Term] = []

    class Symbols(ast.NodeTransformer):
        def leaf(self, node: ast.expr) -> ast.expr:
            text = ast.unparse(node)
            value = evaluate(text, resolve, is_lookup)
            base = text.split("(")[0]
            base = {"max": "largest", "min": "smallest"}.get(base, base)
            name = base if base not in inputs else f"{base}_{len(inputs)}"
            inputs[name] = float(value)
            children.append(Term(name, float(value), "", source=text))
            return ast.Name(name)

        def visit_Call(self, node: ast.Call) -> ast.expr:
            return self.leaf(node)

        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            return self.leaf(node)

        def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
            return self.leaf(node)

    tree = Symbols().visit(ast.parse(question.compute, mode="eval").body)
    return Term(
        name=question.quantity,
        value=float(exact),
        unit=DIMENSION.get(question.unit, ""),
        formula=ast.unparse(tree),
        inputs=inputs,
        source=f"{question.title}, {question.section}",
        children=tuple(children),
    )
