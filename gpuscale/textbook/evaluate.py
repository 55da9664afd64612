"""The questions and their answers, by one small safe evaluator: registered calls, nothing else."""

from __future__ import annotations

import ast
import importlib
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.core.records import dataclass, field
from gpuscale.io.text import read_toml

MAX_LENGTH = 500

MAX_EXPONENT = 64


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"exponent above {MAX_EXPONENT}")
    return base**exponent


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: _power,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "floor": math.floor,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "sum": sum,
    "tanh": math.tanh,
}
"""Functions that the arithmetic of a `Term` may call."""


class ExpressionError(ValueError):
    """The expression uses what is not allowed, or fails."""


@dataclass(slots=True)
class EvaluationTrace:
    """What happened while an expression was evaluated."""

    catalogue: list[tuple[str, Any]] = field(default_factory=list)  # text of a look-up, value
    steps: list[tuple[str, Any]] = field(default_factory=list)  # call with numbers put in, value


@lru_cache(maxsize=1024)
def parse(text: str) -> ast.expr:
    """Syntax tree of an expression.

    Raises ExpressionError if it is too long or no expression.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression longer than {MAX_LENGTH} characters")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"not an expression: {text[:60]!r}") from None


def evaluate(
    text: str,
    names: Callable[[str], Any],
    is_lookup: Callable[[str], bool] = lambda name: False,
    trace: EvaluationTrace | None = None,
) -> Any:
    """Evaluate an expression.

    `names`: gives the function or constant of a name, or raises KeyError. `is_lookup`: whether a
    function only looks something up (a catalogue), for `trace`. `trace`: collects look-ups and
    steps, in order of evaluation. Raises ExpressionError if a node is not allowed, a name not known
    or a function fails.

    >>> evaluate("2 * double(4)", {"double": lambda x: 2 * x}.__getitem__)
    16
    """
    return _Walk(names, is_lookup, trace).value(parse(text))


class _Walk:
    """One evaluation."""

    def __init__(
        self,
        names: Callable[[str], Any],
        is_lookup: Callable[[str], bool],
        trace: EvaluationTrace | None,
    ) -> None:
        self.names, self.is_lookup, self.trace = names, is_lookup, trace

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
            return node.value
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self.guarded(
                _BINARY[type(node.op)], self.value(node.left), self.value(node.right)
            )
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.guarded(operator.neg, self.value(node.operand))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            left, right = self.value(node.left), self.value(node.comparators[0])
            return self.guarded(_COMPARE[type(node.ops[0])], left, right)
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(self.value(e) for e in node.elts)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Subscript):
            return self.guarded(operator.getitem, self.value(node.value), self.value(node.slice))
        if isinstance(node, ast.Name):
            return self.named(node.id)
        raise ExpressionError(f"{type(node).__name__} is not allowed in an expression")

    def named(self, name: str) -> Any:
        try:
            return self.names(name)
        except KeyError:
            raise ExpressionError(f"unknown name {name!r}") from None

    def guarded(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ExpressionError(str(error)) from None

    def attribute(self, node: ast.Attribute) -> Any:
        if node.attr.startswith("_"):
            raise ExpressionError(f"attribute {node.attr!r} is not allowed")
        value = self.guarded(getattr, self.value(node.value), node.attr)
        if self.trace is not None and self.root_is_lookup(node):
            self.trace.catalogue.append((ast.unparse(node), value))
        return value

    def call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name) or any(k.arg is None for k in node.keywords):
            raise ExpressionError("only functions of the registry can be called")
        args = [self.value(a) for a in node.args]
        kwargs = {str(k.arg): self.value(k.value) for k in node.keywords}
        value = self.guarded(self.named(node.func.id), *args, **kwargs)
        if self.trace is not None and self.is_lookup(node.func.id):
            if isinstance(value, (tuple, float, str)):  # records are shown by their attributes
                self.trace.catalogue.append((ast.unparse(node), value))
        elif self.trace is not None:
            given = [_short(a) for a in args] + [f"{k}={_short(v)}" for k, v in kwargs.items()]
            self.trace.steps.append((f"{node.func.id}({', '.join(given)})", value))
        return value

    def root_is_lookup(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and self.is_lookup(node.func.id)
        )


def compact(value: float) -> str:
    """Twelve digits; the exponent form where that is shorter.

    >>> compact(26000000000.0), compact(0.1 + 0.2), compact(28672.0)
    ('2.6e+10', '0.3', '28672')
    """
    text, short = f"{value:.12g}", f"{value:g}"
    return short if len(short) < len(text) and float(short) == float(text) else text


def _short(value: Any) -> str:
    """Argument as text; records by their name."""
    if isinstance(value, float):
        return compact(value)
    if isinstance(value, (int, str)):
        return repr(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(_short(v) for v in value) + ")"
    return str(getattr(value, "name", type(value).__name__))


FUNCTIONS = Path(__file__).parent / "data" / "functions.toml"

MODULE_OF = {
    name: module for module, names in read_toml(FUNCTIONS).items() for name in names.split()
}
"""Name of a function -> its module."""

LOOKUPS = frozenset(
    "attention gpu layout link model node nvlink pod rate recipe rule unit_layout "
    "vendor_gpu".split()
)
"""Those that only look up specifications."""

BUILTINS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "log10": math.log10}


def is_lookup(name: str) -> bool:
    """Whether a name only looks up specifications."""
    return name in LOOKUPS


@lru_cache(maxsize=512)
def resolve(name: str) -> Any:
    """Find the function of a name; its module is imported when it is first used.

    Raises KeyError if expressions may not use it.

    >>> resolve("critical_intensity")(990e12, 3.35e12) > 295
    True
    """
    if name in BUILTINS:
        return BUILTINS[name]
    return getattr(importlib.import_module(f"gpuscale.{MODULE_OF[name]}"), name)


def summary(name: str) -> tuple[str, str]:
    """Say where a registered function is, and the first line of its docstring.

    >>> summary("critical_intensity")[0]
    'gpuscale.core.kernel.chip'
    """
    function = resolve(name)
    doc = (function.__doc__ or "").strip().split("\n")[0]
    return str(function.__module__), doc


DATA = Path(__file__).parent / "data"
DOCUMENTS = ("000", "001", "002", "003", "004")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One checkable statement of a document."""

    id: str
    document: str
    section: str
    question: str
    quantity: str
    stated: Any = None  # number, text, range, or None where the document gives none


@dataclass(frozen=True, slots=True, kw_only=True)
class QuizQuestion(Statement):
    """A statement, and in `compute` how its answer is computed."""

    title: str  # of the document
    source: str  # what the document is
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

    >>> ridge = next(q for q in load_questions(["000"]) if q.id == "gpu.quiz1.q3.b200")
    >>> compute(ridge)
    281.25
    """
    return evaluate(question.compute, resolve, is_lookup, trace)


def matches(value: Any, expected: Any, tolerance_frac: float) -> bool:
    """Whether a value is the expected one within a relative tolerance (0: equal).

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
