"""What would help most: the step with one figure of the cluster changed, computed again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.plan.solve import fastest, limit_of
from gpuscale.core.step.ideal import ideal_hardware, ideal_software
from gpuscale.core.step.step import breakdown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.search.space import Space
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

KERNEL_FIGURES = ("FLOP/s", "HBM bandwidth", "kernel floor")
"""Figures that kernels alone depend on; the rest leave their times as they are."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The step with one thing changed."""

    figure: str
    change: str
    expected_s: float  # for as many tokens as the step now has
    roofline_s: float
    gain_frac: float  # of the expected time saved per token
    layout_changed: bool = False


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


def searched_sensitivity(
    problem: Problem,
    space: Space,
    layout: Layout,
    factor: float = CHANGE,
    known: Sequence[Layout] = (),
    progress: Callable[[float], None] | None = None,
) -> list[Effect]:
    """Best layout anew with each figure better by a factor, memory size and batch included.

    Parameters
    ----------
    problem, space : Problem, Space
        As searched.
    layout : Layout
        Best layout as things are.
    factor : float
        Rates and memory times it, latencies divided by it. [1]
    known : sequence of Layout
        Further layouts of the space; the faster they are, the less is searched.
    progress : callable, optional
        Called with the fraction done after each figure.
    """
    base, _ = times_of(problem, problem.hardware, layout)
    cases = _cases(problem, layout, factor)
    tried = {layout, *known}
    effects = []
    for i, case in enumerate(cases, 1):
        effects.append(_searched(case, space, layout, tried, base))
        if progress is not None:
            progress(i / len(cases))
    return sorted((e for e in effects if e is not None), key=lambda e: -e.gain_frac)


class _Case(NamedTuple):
    """A problem with one thing changed."""

    figure: str
    change: str
    problem: Problem
    n_steps: int  # of it that do as much as one step does now


def _cases(problem: Problem, layout: Layout, factor: float) -> list[_Case]:
    """Problems with one thing changed each, sharing the blocks that it does not change."""
    cases = []
    for e in sensitivity(problem, layout, factor):
        if e.figure == "global batch":
            continue
        better = replace(
            problem, hardware=with_better(problem.hardware, e.figure, factor), cache={}
        )
        if e.figure in KERNEL_FIGURES:
            better = replace(better, kernel_cache={})
        cases.append(_Case(e.figure, e.change, better, 1))
    percent = f"+{100 * (factor - 1):.0f} %"
    more = replace(problem, capacity_bytes=problem.capacity_bytes * factor)
    facts = replace(problem.facts, global_batch_size=2 * problem.facts.global_batch_size)
    cases.append(_Case("HBM size", percent, more, 1))
    cases.append(_Case("global batch", "x2", replace(problem, facts=facts), 2))
    return cases


def _searched(
    case: _Case, space: Space, layout: Layout, tried: set[Layout], base_s: float
) -> Effect | None:
    """Best layout of a case; `tried` is what else is known, and what it is is added."""
    changed, n = case.problem, case.problem.facts.global_batch_size
    alike = [replace(y, global_batch_size=n) for y in tried]
    best = fastest(changed, space, limit_s=limit_of(changed, alike))
    if best is None:
        return None
    tried.add(best.layout)
    expected, ideal = (t / case.n_steps for t in times_of(changed, changed.hardware, best.layout))
    same = replace(best.layout, global_batch_size=layout.global_batch_size) == layout
    return Effect(case.figure, case.change, expected, ideal, 1 - expected / base_s, not same)
