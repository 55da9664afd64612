"""What would help most: one figure of the cluster changed, or what would make it fit."""

from __future__ import annotations

from collections.abc import Mapping

from gpuscale.core.layout import Layout
from gpuscale.core.memory.fit import DEVICE_RESERVED_FRAC, fewest_gpus
from gpuscale.core.plan.pins import pin_space
from gpuscale.core.plan.records import Effect, Estimate, Remedy, host_bytes_per_node
from gpuscale.core.records import fields, replace
from gpuscale.core.search.engine import fastest
from gpuscale.core.search.problem import Problem
from gpuscale.core.search.results import FoundLayout
from gpuscale.core.search.space import Space
from gpuscale.core.step.ideal import ideal_hardware, ideal_software
from gpuscale.core.step.records import Hardware
from gpuscale.core.step.step import breakdown
from gpuscale.core.words import gb

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


DERIVED = ("dp", "vpp", "sequence_parallel", "cp_kind")
"""Dimensions that follow from others; not counted as changes of their own."""


def n_changes(one: Layout, other: Layout) -> int:
    """Dimensions in which two layouts differ.

    >>> from gpuscale.core.layout import Layout
    >>> n_changes(Layout(8, 8, tp=2, dp=4), Layout(8, 8, tp=4, dp=2, zero_stage=3))
    2
    """
    return sum(
        getattr(one, f.name) != getattr(other, f.name) for f in fields(one) if f.name not in DERIVED
    )


def trials(pins: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    """(change in words, pins with it) of every single change of what is pinned.

    >>> [text.split(":")[0] for text, _ in trials({"dp": "64"})]
    ['--offload optimizer', '--dp left free']
    """
    found = []
    if "offload" not in pins:
        change = "--offload optimizer: its states on the host"
        found.append((change, {**pins, "offload": "optimizer"}))
    for flag in pins:
        rest = {k: v for k, v in pins.items() if k != flag}
        found.append((f"--{flag.replace('_', '-')} left free", rest))
    if len(pins) > 1:
        found.append(("every dimension left free", {}))
    return found


def find_remedies(
    problem: Problem, space: Space, pins: Mapping[str, str], closest: Estimate, **kept: str
) -> tuple[Remedy, ...]:
    """Find changes that make a job fit, the smallest first.

    `problem`: job that does not fit. `space`: default space of the job, nothing pinned. `pins`:
    what was pinned, as `pins.pin_space` takes it. `closest`: layout that came closest.
    `kept`: pins that are not left free. Returns: pins left free, each searched again; more GPUs;
    GPUs with more memory.
    """
    found: list[Remedy] = []
    for text, changed in trials(pins):
        if text.startswith("every") and found:
            continue
        try:
            tried, _ = pin_space(space, {**kept, **changed}, problem.facts)
        except ValueError:
            continue
        best = fastest(problem, tried)
        if best is not None:
            if best.layout.offload_optimizer and "offload" not in pins:
                text += f", at least {gb(host_bytes_per_node(problem, best.layout))} a node"
            found.append(
                Remedy(text, best.layout, best.step_s, best.peak_bytes, problem.facts.n_gpus)
            )
    found.sort(key=lambda r: (n_changes(r.layout, closest.layout) if r.layout else 0, r.step_s))
    tp = closest.layout.tp if "tp" in {**kept, **pins} else None
    return (*found, *more_gpus(problem, closest, tp), more_memory(problem, closest))


def more_gpus(problem: Problem, closest: Estimate, tp: int | None) -> tuple[Remedy, ...]:
    """Smallest number of GPUs that holds the job: batch, recomputation and pinned TP stay."""
    fewest = fewest_gpus(
        problem.memory_facts,
        problem.memory_parameters,
        closest.layout,
        problem.facts,
        room_bytes=problem.room_bytes,
        gpus_per_node=problem.hardware.gpus_per_node,
        grow_batch=False,
        tp=tp,
    )
    if fewest is None or fewest.n_gpus <= problem.facts.n_gpus:
        return ()
    degrees = f"TP {fewest.tp} x PP {fewest.pp} x DP {fewest.dp}"
    degrees += f" x CP {closest.layout.cp}" if closest.layout.cp > 1 else ""
    degrees += f", EP {fewest.ep}" if fewest.ep > 1 else ""
    change = f"{fewest.n_gpus:,} GPUs, as {degrees}"
    return (Remedy(change, None, None, fewest.total_bytes, fewest.n_gpus),)


def more_memory(problem: Problem, closest: Estimate) -> Remedy:
    """Memory that a GPU would need for the layout that came closest."""
    hbm = closest.peak_bytes / (1 - DEVICE_RESERVED_FRAC)
    change, n_gpus = f"GPUs with {hbm / 1e9:,.1f} GB of memory", problem.facts.n_gpus
    return Remedy(change, closest.layout, closest.step_s, closest.peak_bytes, n_gpus)
