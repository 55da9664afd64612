"""Records shared by all commands: terms of an explanation."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Term:
    """One number of an answer, explained.

    `formula` is arithmetic over the names in `inputs` (Python operators, ``max``, ``min``,
    ``ceil``, ``floor``, ``log2``, ``sqrt``, ``sum``), so that evaluating it gives `value`; an
    empty formula means that the value is an input, whose origin `source` tells.
    """

    name: str
    value: float
    unit: str  # dimension of `core.quantity`, e.g. "s", "bytes", "count", "frac"; "" is a ratio
    formula: str = ""
    inputs: dict[str, float] = field(default_factory=dict)
    source: str = ""
    children: tuple[Term, ...] = ()
