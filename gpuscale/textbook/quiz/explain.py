"""One answer, explained: its call with the numbers put in, and where the figures are from."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from gpuscale.core.records import Term
from gpuscale.textbook.quiz.evaluate import QuizQuestion
from gpuscale.textbook.quiz.expression import EvaluationTrace, evaluate, parse
from gpuscale.textbook.quiz.registry import MODULE_OF, is_lookup, resolve, summary
from gpuscale.textbook.quiz.show import DIMENSION


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
    names = [n for n in _called(question.compute) if n in MODULE_OF]
    functions = tuple((name, *summary(name)) for name in dict.fromkeys(names))
    return Explanation(exact, tuple(figures.values()), tuple(steps.values()), functions)


def _called(text: str) -> list[str]:
    return [
        n.func.id
        for n in ast.walk(parse(text))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]


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
