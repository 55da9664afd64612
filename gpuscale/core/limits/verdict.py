"""One limit: what it needs, what there is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """A parallelism's roofline: compute-bound if math lasts at least as long as communication."""

    axis: str
    math_s: float
    comm_s: float

    @property
    def bound(self) -> str:
        """Name what takes longer: ``compute`` or ``communication``."""
        return "compute" if self.math_s >= self.comm_s else "communication"

    @property
    def ratio(self) -> float:
        """Communication over arithmetic: above 1 the step is longer by that factor."""
        return self.comm_s / self.math_s if self.math_s > 0 else 0.0
