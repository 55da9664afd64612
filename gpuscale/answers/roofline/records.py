"""Limits of one axis as records, and the words of a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuscale.errors import GpuscaleError


@dataclass(frozen=True, slots=True)
class Links:
    """Peak of a GPU, and the bandwidths of the two scopes."""

    peak: float
    gpu: float
    node: float | None
    node_gpus: int


@dataclass(frozen=True)
class Limit:
    """One limit at one scope."""

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


@dataclass(frozen=True)
class AxisRow(Limit):
    """A limit with the inputs of its formula."""

    inputs: tuple[tuple[str, float], ...] = ()


def verdict_of(have: float | None, need: float, relation: str) -> str:
    """Say whether a limit is met, and by how much it is missed."""
    if have is None:
        return ""
    met = have >= need if relation == ">=" else have <= need
    ratio = (need / have if relation == ">=" else have / need) if have and need else 0.0
    return "compute-bound" if met else f"communication-bound {ratio:.2f}x"


def scopes(links: Links) -> list[tuple[str, float]]:
    """List the scopes that a cluster has, with the bandwidth of each."""
    node = [("node", links.gpu)]
    return node if links.node is None else [*node, ("cluster", links.node)]


def need_of(value: float | int | None, option: str, axis: str) -> Any:
    """Refuse a limit whose number was not given."""
    if value is None:
        raise GpuscaleError(f"roofline {axis} wants {option}")
    return value
