"""How long engines have had an architecture: its kernels are fused and tuned over months.

Experts, recurrent layers and sparse attention need kernels of their own; dense layers with plain
attention run on what every engine has.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from gpuscale.core.records import dataclass

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

DAYS_PER_MONTH = 30.44
"""Mean length of a month of the calendar: 365.25 days in 12."""


@dataclass(frozen=True, slots=True)
class EngineMaturity:
    """An architecture on a version of an engine.

    `stage` is "settled" (its kernels are fused and tuned), "new" (it runs as it comes) or "first"
    (it came in those days, or nobody knows when).
    """

    stage: str = "settled"
    engine_day: str = ""  # ISO; "" where the version's day is not known
    released: str = ""  # ISO; "" where nobody has noted the architecture

    @property
    def new(self) -> bool:
        """Whether it runs as it comes."""
        return self.stage != "settled"

    @property
    def months(self) -> float | None:
        """Months from the architecture's release to the engine's version; None where unknown."""
        return months_between(self.released, self.engine_day)


SETTLED = EngineMaturity()
"""Nothing new about it."""


def needs_kernels(model: ModelSpec) -> bool:
    """Whether a model has layers that engines write kernels for: experts, recurrence, sparsity."""
    if model.has_experts:
        return True
    mixers = model.mixers.values()
    return any(m.kind not in ("attention", "none") or sparse_tokens(m) for m in mixers)


def sparse_tokens(mixer: object) -> int:
    """Tokens that a sparse attention chooses; 0 where all are met."""
    return int(getattr(mixer, "sparse_top_k_tokens", 0) or 0)


def months_between(first: str, second: str) -> float | None:
    """Months from one ISO date to another; None where one is not known.

    >>> round(months_between("2025-09-11", "2025-12-03"), 1), months_between("", "2025-12-03")
    (2.7, None)
    """
    if not (first and second):
        return None
    return (date.fromisoformat(second) - date.fromisoformat(first)).days / DAYS_PER_MONTH


@dataclass(frozen=True, slots=True)
class Ages:
    """Months from an architecture's release to an engine's version."""

    first: float = 1.0  # below: the days of the release
    settled: float = 6.0  # from here on: settled


def maturity(model: ModelSpec, released: str, engine_day: str, ages: Ages) -> EngineMaturity:
    """Judge an architecture by its age; one whose release nobody has noted is newer than all."""
    if not needs_kernels(model):
        return SETTLED
    months = months_between(released, engine_day)
    if not released or (months is not None and months < ages.first):
        return EngineMaturity("first", engine_day, released)
    if months is not None and months < ages.settled:
        return EngineMaturity("new", engine_day, released)
    return SETTLED
