"""The layout with most memory left: the fastest under falling caps, searched anew."""

from __future__ import annotations

from dataclasses import replace

from gpuscale.core.search.engine import fastest
from gpuscale.core.search.problem import Problem
from gpuscale.core.search.results import FoundLayout
from gpuscale.core.search.space import Space

WITHIN_FRAC = 0.05
"""How much slower than the fastest the layout with most memory left may be."""

BISECTIONS = 8


def fastest_under(
    problem: Problem, space: Space, cap_bytes: float, limit_s: float = float("inf")
) -> FoundLayout | None:
    """Fastest layout that needs at most `cap_bytes` and less than `limit_s`; None if none does."""
    capped = replace(problem, capacity_bytes=cap_bytes, fit_factor=1.0)
    return fastest(capped, space, limit_s=limit_s)


def most_headroom(problem: Problem, space: Space, best: FoundLayout) -> FoundLayout:
    """Layout with most memory left of those at most `WITHIN_FRAC` slower than the fastest.

    Caps are halved until the memory is known to a 256th of the fastest layout's.
    """
    limit_s = best.step_s * (1 + WITHIN_FRAC)
    chosen, low, high = best, 0.0, best.peak_bytes
    for _ in range(BISECTIONS):
        cap = (low + high) / 2
        found = fastest_under(problem, space, cap, limit_s)
        if found is None:
            low = cap
        else:
            chosen, high = found, found.peak_bytes
    return chosen
