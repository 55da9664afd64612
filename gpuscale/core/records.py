"""Records shared by all commands: terms of an explanation."""

from __future__ import annotations

from dataclasses import dataclass, field


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
