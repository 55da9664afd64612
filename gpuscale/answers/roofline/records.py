"""Limits of one axis as records, and the words of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuscale.errors import GpuscaleError


@dataclass(frozen=True, slots=True)
class RooflineLinks:
    """Peak of a GPU, and the bandwidths of the two scopes."""

    peak: float
    gpu: float
    node: float | None
    node_gpus: int

    def scopes(self) -> list[tuple[str, float]]:
        """List the scopes that a cluster has, with the bandwidth of each."""
        node = [("node", self.gpu)]
        return node if self.node is None else [*node, ("cluster", self.node)]


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit at one scope, with the inputs of its formula."""

    scope: str
    bandwidth_bytes_per_s: float
    need: float | None = None
    relation: str = ""
    quantity: str = ""
    have: float | None = None
    math_s: float | None = None
    comm_s: float | None = None
    verdict: str = ""
    formula: str = ""
    inputs: Mapping[str, float] = field(default_factory=dict)


AT_LEAST, AT_MOST = ">=", "<="


def row_of(
    links: RooflineLinks,
    at: tuple[str, float],
    limit: tuple[float, str, str],
    have: float | None,
    judged: float | None = None,
    made: tuple[str, Mapping[str, float]] = ("", {}),
    times_s: tuple[float | None, float | None] = (None, None),
) -> Limit:
    """Row of a limit (need, relation, of what); `judged` is what is held against it, if anything.

    `at`: scope and its rate [byte/s]. `made`: formula and its inputs, peak and rate apart.
    `times_s`: arithmetic and exchange.
    """
    need, relation, quantity = limit
    formula, inputs = made
    known = {"flop_per_s": links.peak, "bytes_per_s": at[1], **inputs}
    used = {name: float(value) for name, value in known.items() if name in formula}
    verdict = verdict_of(judged, need, relation)
    made_row = *at, need, relation, quantity, have, *times_s, verdict
    return Limit(*made_row, formula=formula, inputs=used)


def verdict_of(have: float | None, need: float, relation: str) -> str:
    """Say whether a limit is met, and by how much it is missed."""
    if have is None:
        return ""
    met = have >= need if relation == AT_LEAST else have <= need
    ratio = (need / have if relation == AT_LEAST else have / need) if have and need else 0.0
    return "compute-bound" if met else f"communication-bound {ratio:.2f}x"


def need_of(value: float | int | None, option: str, axis: str) -> Any:
    """Refuse a limit whose number was not given."""
    if value is None:
        raise GpuscaleError(f"roofline {axis} wants {option}")
    return value
