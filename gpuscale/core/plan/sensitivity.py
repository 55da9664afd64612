"""What would help most: one figure of the cluster changed, or less memory asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.search.engine import fastest
from gpuscale.core.search.problem import Problem
from gpuscale.core.search.results import FoundLayout
from gpuscale.core.search.space import Space
from gpuscale.core.step.ideal import ideal_hardware, ideal_software
from gpuscale.core.step.step import breakdown

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.step.records import Hardware

CHANGE = 1.2
"""Factor by which each figure is made better."""

FIGURES: dict[str, tuple[str, ...]] = {
    "FLOP/s": ("bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s"),
    "HBM bandwidth": ("hbm_bytes_per_s",),
    "scale-up bandwidth": ("scaleup_bytes_per_s",),
    "node egress": ("scaleout_bytes_per_s",),
    "host link": ("host_link_bytes_per_s",),
}
"""Rates, made larger."""

LATENCIES: dict[str, tuple[str, ...]] = {
    "network latency": ("scaleout_latency_factor", "scaleup_latency_factor", "p2p_latency_s"),
    "kernel floor": ("kernel_floor_s", "kernel_gap_s"),
}
"""Times, made smaller by the same factor."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The step with one thing changed."""

    figure: str
    change: str
    expected_s: float  # for as many tokens as the step now has
    roofline_s: float
    gain_frac: float  # of the expected time saved per token


def with_better(hw: Hardware, figure: str, factor: float = CHANGE) -> Hardware:
    """Hardware with one figure better by a factor."""
    if figure in FIGURES:
        return replace(hw, **{name: getattr(hw, name) * factor for name in FIGURES[figure]})
    return replace(hw, **{name: getattr(hw, name) / factor for name in LATENCIES[figure]})


def times_of(problem: Problem, hw: Hardware, layout: Layout) -> tuple[float, float]:
    """Compute (expected, roofline) time of a step. [s]."""
    model, sw, weights = problem.model, problem.software, problem.memory_facts.weights
    expected = breakdown(model, hw, sw, layout, weights=weights)[0].total_s
    ideal_hw, ideal_sw = ideal_hardware(hw), ideal_software(sw)
    ideal = breakdown(model, ideal_hw, ideal_sw, layout, weights=weights)[0].total_s
    return expected, min(expected, ideal)


def sensitivity(problem: Problem, layout: Layout, factor: float = CHANGE) -> list[Effect]:
    """Step of one layout with each figure better by a factor, best gain first.

    The layout stays as it is; the batch row doubles the micro-batches of each rank.

    `problem`: job, cluster, software. `layout`: layout to look at. `factor`: rates times it,
    latencies divided by it [1].
    """
    hw = problem.hardware
    base, _ = times_of(problem, hw, layout)
    effects = []
    for figure in (*FIGURES, *LATENCIES):
        expected, ideal = times_of(problem, with_better(hw, figure, factor), layout)
        sign = "+" if figure in FIGURES else "-"
        percent = 100 * (factor - 1) if figure in FIGURES else 100 * (1 - 1 / factor)
        effects.append(
            Effect(figure, f"{sign}{percent:.0f} %", expected, ideal, 1 - expected / base)
        )
    double = replace(layout, global_batch_size=2 * layout.global_batch_size)
    expected, ideal = (t / 2 for t in times_of(problem, hw, double))
    effects.append(Effect("global batch", "x2", expected, ideal, 1 - expected / base))
    return sorted(effects, key=lambda e: -e.gain_frac)


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
