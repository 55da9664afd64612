"""What would help most: the step with one figure of the cluster changed, computed again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
