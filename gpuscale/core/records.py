"""Records shared by all commands: terms of an explanation; records made of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import signature
from typing import Any, TypeVar

from gpuscale.core.dataclasses import dataclass, field

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Term:
    """One number of an answer, explained.

    `formula` is arithmetic over the names in `inputs` (Python operators, ``max``, ``min``,
    ``ceil``, ``floor``, ``exp``, ``expm1``, ``log``, ``log2``, ``sqrt``, ``sum``, ``tanh``), so
    that evaluating it gives `value`. Inputs are those that the computation took, never made from
    its result; each child explains an input of its name. An empty formula means that the value is
    given, measured, simulated or searched for, and `source` tells which.
    """

    name: str
    value: float
    unit: str  # dimension of `core.quantity`, e.g. "s", "bytes", "count", "frac"; "" is a ratio
    formula: str = ""
    inputs: dict[str, float] = field(default_factory=dict)
    source: str = ""
    children: tuple[Term, ...] = ()


_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w(])")


def term_of(name: str, unit: str, formula: str, source: str, *given: object, **more: float) -> Term:
    """Term whose value and inputs are found by their names: in `more`, then in the records given.

    Terms among those given are its children, each an input of its name.

    >>> term_of("tokens_per_s", "", "tokens / step_s", "", tokens=8, step_s=2.0, tokens_per_s=4.0)
    Term(name='tokens_per_s', value=4.0, unit='', formula='tokens / step_s', \
inputs={'tokens': 8.0, 'step_s': 2.0}, source='', children=())
    """
    children = tuple(g for g in given if isinstance(g, Term))
    known = {child.name: child.value for child in children} | more

    def found(key: str) -> float:
        if key in known:
            return float(known[key])
        return float(getattr(next(g for g in given if hasattr(g, key)), key))

    inputs = {key: found(key) for key in dict.fromkeys(_NAMES.findall(formula))}
    return Term(name, found(name), unit, formula, inputs, source, children=children)


def total_of(
    name: str,
    value: float,
    unit: str,
    parts: Mapping[str, float],
    source: str,
    children: tuple[Term, ...] = (),
) -> Term:
    """Term of a sum of parts."""
    formula = " + ".join(parts)
    return Term(name, value, unit, formula, dict(parts), source, children=children)


@lru_cache(maxsize=256)
def _arguments(kind: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(signature(kind).parameters)


def made_of(kind: Callable[..., T], /, *given: object, **more: Any) -> T:
    """Call with arguments found by their names: in `more`, then in the first record that has each.

    What none of them has is left to its default.

    >>> made_of(Term, Term("a", 1.0, "s", source="b"), name="c")
    Term(name='c', value=1.0, unit='s', formula='', inputs={}, source='b', children=())
    """
    for name in _arguments(kind):
        owner = next((g for g in given if hasattr(g, name)), None)
        if name not in more and owner is not None:
            more[name] = getattr(owner, name)
    return kind(**more)
