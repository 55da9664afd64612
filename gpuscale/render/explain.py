"""The terms of an answer as a tree: formula in symbols, numbers put in, value, source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.quantity import UNITS, dimension_of, format_si
from gpuscale.core.records import Term
from gpuscale.foreign import clean, markdown
from gpuscale.render.fit import folded

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Node:
    """One figure: what it is, how it comes about, and the figures that it is made of."""

    head: str
    formula: str = ""
    numbers: str = ""
    source: str = ""
    children: tuple[Node, ...] = ()

    def lines(self) -> list[str]:
        """Text of the node itself."""
        more = [f"= {self.formula}" if self.formula else ""]
        more += [f"= {self.numbers}" if self.numbers else ""]
        more += [f"source: {self.source}" if self.source else ""]
        return [self.head, *(clean(line) for line in more if line)]


def number(value: float) -> str:
    """Write a number as it is put into a formula."""
    return str(int(value)) if value == int(value) and abs(value) < 1e7 else f"{value:.6g}"


def amount(name: str, value: float, unit: str = "") -> str:
    """Value with its unit; the name's suffix tells the unit where none is given."""
    dim = unit or dimension_of(name)
    if dim in UNITS and dim != "frac":
        return format_si(value, dim)
    return number(value) + (f" {dim}" if dim not in UNITS and dim else "")


def node_of(term: Term) -> Node:
    """Tree of a term; inputs that no child explains become leaves."""
    known = {child.name for child in term.children}
    numbers = _NAME.sub(
        lambda m: number(term.inputs[m[0]]) if m[0] in term.inputs else m[0], term.formula
    )
    leaves = [
        Node(f"{name} = {amount(name, value)}")
        for name, value in term.inputs.items()
        if name not in known
    ]
    return Node(
        clean(f"{term.name} = {amount(term.name, term.value, term.unit)}"),
        term.formula,
        numbers if numbers != term.formula else "",
        term.source,
        (*map(node_of, term.children), *leaves),
    )


def _drawn(node: Node, width: int, first: str = "", rest: str = "") -> Iterator[str]:
    head, *more = node.lines()
    stem = rest + ("│  " if node.children else "   ")
    for n, line in enumerate((head, *more)):
        for k, part in enumerate(folded(line, width and max(20, width - len(stem)))):
            yield (stem if n or k else first) + part
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _drawn(child, width, rest + branch, rest + below)


def to_lines(terms: Iterable[Term], width: int = 0) -> list[str]:
    """Trees as plain lines; `width` of a terminal, 0 without end."""
    return [line for term in terms for line in _drawn(node_of(term), width)]


def _bullets(node: Node, indent: str) -> Iterator[str]:
    yield f"{indent}- **{node.head}**"
    for text in (node.formula, node.numbers):
        if text:
            yield f"{indent}  `= {text}`"
    if node.source:
        yield f"{indent}  *{markdown(node.source)}*"
    for child in node.children:
        yield from _bullets(child, indent + "  ")


def to_markdown(terms: Iterable[Term]) -> str:
    """Trees as nested lists."""
    return "\n".join(line for term in terms for line in _bullets(node_of(term), ""))
