"""Assemblies of a grid, and lower bounds of the time and memory of many layouts at once.

Memory floor: Rajbhandari et al. 2019 (arXiv:1910.02054), section 3; bubble: Narayanan et al. 2021
(arXiv:2104.04473), section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuscale.core.dataclasses import replace
from gpuscale.core.layout import Layout
from gpuscale.core.memory import peak
from gpuscale.core.memory.peak import shards as memory_shards
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.search.problem import Problem, stages_dealt, unlike_stages
from gpuscale.core.search.results import Tails
from gpuscale.core.search.space import ProcessGrid, Space, Tail, assemblies, dealings, least_states
from gpuscale.core.stages import StageParams


def pipeline_floor_s(micro_batch_s: float, pp: int, n_micro_batches: int, fill: float) -> float:
    """Bound steady and bubble time of any split of `micro_batch_s` over `pp` stages. [s].

    ``m t + fill (total - t)`` grows with the heaviest stage t, which is at least total / pp.
    """
    return micro_batch_s / pp * (n_micro_batches + fill * (pp - 1))


def least_fill(schedules: Sequence[tuple[str, int]]) -> float:
    """Smallest bubble of some (schedule, vpp), in units of the other stages. [1]."""
    return min((SCHEDULES[s].bubble / v for s, v in schedules), default=0.0)


def states_floors_bytes(
    p: Problem, layout: Layout, states: tuple[Tail, ...], dealt: int
) -> tuple[tuple[int, float], ...]:
    """(stage, bound of its memory) of every layout of a grid and its experts: states alone. [byte].

    The least over `states`, see `space.least_states`, of one stage of each kind, with the layers
    dealt in `dealt` chunks, see `space.dealings`.
    """
    x = layout
    key = ("states", x.tp, x.pp, x.ep, x.etp, x.dp * x.cp, x.precision, states, dealt)
    found: tuple[tuple[int, float], ...] | None = p.memory_cache.get(key)
    if found is None:
        parameters, stages = p.memory_parameters, stages_dealt(p, layout, dealt)
        tried = [_sharded_as(layout, tail) for tail in states]
        found = p.memory_cache[key] = tuple(
            (i, parameters.fragmentation * least + parameters.context_bytes)
            for i in unlike_stages(p, stages)
            for least in [min(_states_bytes(p, stages[i], t) for t in tried)]
        )
    return found


def states_floor_bytes(
    p: Problem, layout: Layout, states: tuple[Tail, ...], dealt: Iterable[int]
) -> float:
    """Bound the memory of the fullest GPU by its states, over the ways to deal the layers. [byte].

    `layout, states`: as of `states_floors_bytes`. `dealt`: numbers of chunks.
    """
    return min(max(b for _, b in states_floors_bytes(p, layout, states, vpp)) for vpp in dealt)


def peak_floor_bytes(p: Problem, layout: Layout, states: tuple[Tail, ...], dealt: int) -> float:
    """Bound the memory of every layout that differs from this one in its assembly. [byte].

    Of the fullest stage, the layers dealt in `dealt` chunks: least states, and what passes hold.
    """
    held = _held_floors_bytes(p, layout, dealt)
    frac = p.memory_parameters.fragmentation
    floors = states_floors_bytes(p, layout, states, dealt)
    return max(floor + frac * held[i] for i, floor in floors)


def _held_floors_bytes(p: Problem, layout: Layout, dealt: int) -> dict[int, float]:
    """Stage -> bound of what its passes hold, whatever the assembly and the experts' ranks. [byte].

    One layer's backward pass and its buffers, and the activations that 1F1B keeps in the first
    stage, in the others those of one micro-batch; logits and what is dropped and computed again
    are left out.
    """
    x, flying = layout, min(layout.n_micro_batches, layout.pp)
    size = (x.tp, x.cp, x.pp, x.etp, x.micro_batch_size, x.sequence_parallel, x.precision)
    key = ("held", size, x.recompute, x.recompute_layers, x.offload_activations, flying, dealt)
    found: dict[int, float] | None = p.memory_cache.get(key)
    if found is None:
        parameters, stages = p.memory_parameters, stages_dealt(p, layout, dealt)
        acts = peak.layout_activations(p.memory_facts, parameters, layout)
        passing = peak.passing_bytes(p.memory_facts, layout, parameters)
        found = p.memory_cache[key] = {}
        for i in unlike_stages(p, stages):
            kept = peak.kept_bytes(stages[i], acts, layout, parameters.offloaded_layers)
            live = peak.live_bytes(stages[i], acts, parameters)
            found[i] = (1 if i else flying) * kept + live + passing
    return found


def _sharded_as(layout: Layout, tail: Tail) -> Layout:
    return replace(
        layout,
        zero_stage=tail.zero_stage,
        shard_group_size=tail.shard_group_size,
        offload_optimizer=tail.offload_optimizer,
    )


def _states_bytes(p: Problem, stage: StageParams, layout: Layout) -> float:
    block = peak.state_block(stage, layout, p.memory_parameters, *memory_shards(layout))
    return (
        block.weights_bytes
        + block.gradients_bytes
        + block.master_bytes
        + block.optimizer_bytes
        + block.unsharded_layer_bytes
    )


def tails_of(
    p: Problem, space: Space, grid: ProcessGrid, micro_batch_size: int, helps: tuple[bool, bool]
) -> Tails:
    """Assemblies of a grid, less those that are dominated: overlap never hurts.

    `helps`: whether overlap of DP and of PP does anything in this software.
    """
    schedules, every = assemblies(space, p.facts, grid, micro_batch_size)
    dp_wins = helps[0] and True in space.overlap_dp
    pp_wins = helps[1] and True in space.overlap_pp
    exchanges = [
        t
        for t in (every if schedules else [])
        if (t.overlap_dp or not dp_wins) and (t.overlap_pp or not pp_wins)
    ]
    exchanges.sort(key=lambda t: (t.offload_optimizer, t.offload_activations))
    weights, rule = p.memory_facts.weights, p.memory_parameters.stage_split
    return Tails(
        n_all=len(every) * len(schedules),
        schedules=schedules,
        dealt=dealings(weights, rule, grid.pp, schedules, p.facts),
        exchanges=exchanges,
        states=tuple(least_states(exchanges)),
        fill=least_fill(schedules),
        least=(exchanges or [Tail()])[-1],
        fully_sharded=tuple({int(t.zero_stage == 3) for t in exchanges}),
    )
