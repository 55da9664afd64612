"""Nothing fits: which single change would make it fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from gpuscale.core.layout import Layout
from gpuscale.core.memory.fit import DEVICE_RESERVED_FRAC, fewest_gpus
from gpuscale.core.plan.estimate import Estimate, host_bytes_per_node
from gpuscale.core.plan.pins import pin_space
from gpuscale.core.plan.records import Remedy
from gpuscale.core.search.engine import fastest
from gpuscale.core.search.problem import Problem
from gpuscale.core.search.space import Space
from gpuscale.core.words import gb

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
    problem: Problem, space: Space, pins: Mapping[str, str], closest: Estimate
) -> tuple[Remedy, ...]:
    """Find changes that make a job fit, the smallest first.

    `problem`: job that does not fit. `space`: default space of the job, nothing pinned. `pins`:
    what was pinned, as `pins.pin_space` takes it. `closest`: layout that came closest. Returns:
    pins left free, each searched again; more GPUs; GPUs with more memory.
    """
    found: list[Remedy] = []
    for text, changed in trials(pins):
        if text.startswith("every") and found:
            continue
        try:
            tried, _ = pin_space(space, changed, problem.facts)
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
    return (*found, *more_gpus(problem, closest), more_memory(problem, closest))


def more_gpus(problem: Problem, closest: Estimate) -> tuple[Remedy, ...]:
    """Smallest number of GPUs that holds the job, batch and recomputation as they are."""
    fewest = fewest_gpus(
        problem.memory_facts,
        problem.memory_parameters,
        closest.layout,
        problem.facts,
        room_bytes=problem.room_bytes,
        gpus_per_node=problem.hardware.gpus_per_node,
        grow_batch=False,
    )
    if fewest is None or fewest.n_gpus <= problem.facts.n_gpus:
        return ()
    degrees = f"TP {fewest.tp} x PP {fewest.pp} x DP {fewest.dp}"
    degrees += f", EP {fewest.ep}" if fewest.ep > 1 else ""
    return (
        Remedy(
            f"{fewest.n_gpus:,} GPUs, as {degrees}", None, None, fewest.total_bytes, fewest.n_gpus
        ),
    )


def more_memory(problem: Problem, closest: Estimate) -> Remedy:
    """Memory that a GPU would need for the layout that came closest."""
    hbm = closest.peak_bytes / (1 - DEVICE_RESERVED_FRAC)
    return Remedy(
        f"GPUs with {hbm / 1e9:,.1f} GB of memory",
        closest.layout,
        closest.step_s,
        closest.peak_bytes,
        problem.facts.n_gpus,
    )
