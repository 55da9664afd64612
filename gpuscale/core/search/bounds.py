"""Groups of layouts: their assemblies, and lower bounds of their time and memory at once.

Memory floor: Rajbhandari et al. 2019 (arXiv:1910.02054), section 3; bubble: Narayanan et al. 2021
(arXiv:2104.04473), section 2.2, with the least bubble of a group's schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from gpuscale.core.layout import DEFAULT_ORDER, Layout
from gpuscale.core.memory import peak
from gpuscale.core.memory.peak import shards as memory_shards
from gpuscale.core.records import replace
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.search import space as sp
from gpuscale.core.search.problem import (
    Problem,
    micro_batch_s,
    stages_dealt,
    unlike_stages,
    without_cp,
)
from gpuscale.core.search.results import INFINITY, LayoutGroup, Tails, make_layout
from gpuscale.core.search.space import ProcessGrid, Space, Tail
from gpuscale.core.stages import StageParams
from gpuscale.core.step.data_parallel import dp_overlap_helps
from gpuscale.core.step.records import Shape
from gpuscale.core.step.step import shape_of


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
        names = ("zero_stage", "shard_group_size", "offload_optimizer")
        tried = [replace(layout, **{n: getattr(tail, n) for n in names}) for tail in states]
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


def _states_bytes(p: Problem, stage: StageParams, layout: Layout) -> float:
    block = peak.state_block(stage, layout, p.memory_parameters, *memory_shards(layout))
    return (
        block.weights_bytes
        + block.gradients_bytes
        + block.master_bytes
        + block.optimizer_bytes
        + block.unsharded_layer_bytes
    )


Kind = tuple[bool, str, str, ProcessGrid | None]
"""Sequence parallelism, precision, order, and the grid where the time of a layer depends on it."""

Recompute = tuple[str, int | None]
"""Mode, and layers of a stage; None: all."""


def _effort(recompute: Recompute) -> tuple[int, float]:
    """Order of recomputations: none, parts of every layer, some layers, all layers."""
    mode, layers = recompute
    order = {"none": 0, "selective": 1, "per-op": 1, "full": 2}
    return order[mode], INFINITY if layers is None else layers


class Groups:
    """Groups of layouts of a space, and bounds of them; each is computed once.

    What depends on the memory model alone is kept for searches with other rates or capacities.
    """

    def __init__(self, problem: Problem, space: Space) -> None:
        self.problem, self.space = problem, space
        self.late, self.room_bytes = problem.late, problem.room_bytes
        sw = problem.software
        self.overlap_helps = (dp_overlap_helps(sw), sw.pp_exposed_frac <= 1.0)  # of DP, of PP
        self.overlap_tp_helps = sw.tp_exposed_frac <= 1.0
        self.pipeline_counts = sw.pipeline_launch_s > 0.0  # in the time of a micro-batch
        facts = problem.facts
        self.expert_degrees = cache(lambda grid: sp.expert_degrees(space, facts, grid))
        self.recomputes = cache(  # of pp, the least effort first
            lambda pp: sorted(sp.recomputes(space, facts, pp), key=_effort)
        )
        known = problem.memory_cache.setdefault(
            (space, problem.facts, *self.overlap_helps), ({}, {}, {}, {})
        )
        self.tail_sets: dict[tuple[object, ...], Tails] = known[0]
        self.states: dict[tuple[object, ...], float] = known[1]  # of a grid
        self.floors: dict[tuple[object, ...], dict[int, float]] = known[2]  # of a place
        self.rooms: dict[tuple[object, ...], float] = known[3]  # in which nothing of a place fits

    def tails(self, grid: ProcessGrid, micro_batch_size: int) -> Tails:
        """Return the assemblies of a grid, less those that are dominated: overlap never hurts."""
        p, space = self.problem, self.space
        m = p.facts.global_batch_size // (grid.dp * micro_batch_size)
        key = (grid.pp, grid.dp * grid.cp, m)
        if (found := self.tail_sets.get(key)) is not None:
            return found
        schedules = sp.schedules(space, p.facts, grid, micro_batch_size)
        alike = (*key[:2], *schedules)  # whatever the micro-batches
        if alike in self.tail_sets:
            return self.tail_sets.setdefault(key, self.tail_sets[alike])
        every = sp.shardings(space, p.facts, grid)
        dp_wins = self.overlap_helps[0] and True in space.overlap_dp
        pp_wins = self.overlap_helps[1] and True in space.overlap_pp
        exchanges = [
            t
            for t in (every if schedules else [])
            if (t.overlap_dp or not dp_wins) and (t.overlap_pp or not pp_wins)
        ]
        exchanges.sort(key=lambda t: (t.offload_optimizer, t.offload_activations))
        weights, rule = p.memory_facts.weights, p.memory_parameters.stage_split
        found = self.tail_sets[key] = self.tail_sets[alike] = Tails(
            n_all=len(every) * len(schedules),
            schedules=schedules,
            dealt=sp.dealings(weights, rule, grid.pp, schedules, p.facts),
            exchanges=exchanges,
            states=tuple(sp.least_states(exchanges)),
            fill=least_fill(schedules),
            least=(exchanges or [Tail()])[-1],
            fully_sharded=tuple({int(t.zero_stage == 3) for t in exchanges}),
        )
        return found

    def overlaps(self, tp: int) -> tuple[bool, ...]:
        """Overlap choices of TP that are not dominated."""
        every = sp.overlap_tps(self.space, tp)
        return every[:1] if self.overlap_tp_helps and every[0] else every

    def n_outer(self, grid: ProcessGrid) -> int:
        """Ways to recompute and to overlap TP in a grid. [1]."""
        return len(self.recomputes(grid.pp)) * len(sp.overlap_tps(self.space, grid.tp))

    def layout(
        self, group: LayoutGroup, recompute: Recompute, overlap_tp: bool, tail: Tail
    ) -> Layout:
        """Write one layout of a group."""
        grid, ep, etp, b, sequence_parallel, precision, order = group
        return make_layout(
            self.problem.facts,
            grid,
            tail,
            recompute,
            ep=ep,
            etp=etp,
            micro_batch_size=b,
            sequence_parallel=sequence_parallel,
            precision=precision,
            overlap_tp=overlap_tp,
            order=order,
        )

    def kinds(self, grid: ProcessGrid) -> list[Kind]:
        """Ways to split a sequence over TP, to multiply and to order the ranks of a grid."""
        splits = sp.sequence_parallels(self.space, self.problem.facts, grid)
        orders = sp.orders(self.space, grid)
        return [
            (seq, precision, order, None if self.nearby(order) else grid)
            for precision in self.space.precision
            for seq in splits
            for order in orders
        ]

    def nearby(self, order: str) -> bool:
        """Whether a micro-batch takes as long whatever the pipeline and the replicas."""
        return order == DEFAULT_ORDER and not self.pipeline_counts

    def n_micro_batches(self, grid: ProcessGrid, b: int) -> int:
        """Micro-batches of a pipeline; a partial last one costs a whole one. [1]."""
        return math.ceil(self.problem.facts.global_batch_size / (grid.dp * b))

    def times(self, grid: ProcessGrid, b: int) -> dict[object, float]:
        """(ep, etp, kind) -> time of a micro-batch, of all grids with as many tokens on a rank."""
        tokens = b * self.problem.facts.seq_len // grid.cp
        found: dict[object, float] = self.problem.cache.setdefault(("alone", grid.tp, tokens), {})
        return found

    def alone_s(self, group: LayoutGroup, tails: Tails) -> float:
        """Bound of a micro-batch of a group without recomputation and what CP exchanges. [s]."""
        return self._micro_batch_s(group, tails, without_cp)

    def _micro_batch_s(
        self, group: LayoutGroup, tails: Tails, seen: Callable[[Shape], Shape]
    ) -> float:
        """Fastest micro-batch of a group without recomputation, of its shape as it is seen."""
        p, times = self.problem, []
        for overlap in self.overlaps(group.grid.tp):
            first = self.layout(group, ("none", None), overlap, tails.least)
            times.append(micro_batch_s(p, seen(shape_of(first, p.hardware, p.software))))
        return min(times)

    def bound_s(self, group: LayoutGroup, tails: Tails) -> float:
        """Bound the time of every layout of a group: its micro-batches without recomputation."""
        grid, b, cache = group.grid, group.micro_batch_size, self.problem.cache
        far = None if self.nearby(group.order) else grid
        key = ("each", grid.tp, grid.cp, grid.cp_kind, *group[1:], far)
        each_s: float | None = cache.get(key)
        if each_s is None:
            each_s = cache[key] = self._micro_batch_s(group, tails, lambda shape: shape)
        m = self.n_micro_batches(grid, b)
        return pipeline_floor_s(each_s, grid.pp, m, tails.fill) * self.late

    def states_too_large(self, group: LayoutGroup, tails: Tails) -> bool:
        """Whether weights, gradients and optimizer alone are more than a GPU holds."""
        grid = group.grid
        key = (grid.tp, grid.pp, group.ep, group.etp, group.precision, *tails.dealt)
        least = self.states.get(key)
        if least is None:
            layout = self.layout(group, ("none", None), True, tails.least)
            least = states_floor_bytes(self.problem, layout, tails.states, tails.dealt)
            self.states[key] = least
        return least > self.room_bytes

    def floors_bytes(
        self, group: LayoutGroup, tails: Tails, recompute: Recompute
    ) -> dict[int, float]:
        """Chunks that the layers are dealt in -> bound of the memory of every layout. [byte]."""
        key = (*place_of(group), recompute)
        found = self.floors.get(key)
        if found is None:
            p, first = self.problem, self.layout(group, recompute, True, tails.least)
            found = {v: peak_floor_bytes(p, first, tails.states, v) for v in tails.dealt}
            self.floors[key] = found
        return found

    def holding(self, group: LayoutGroup, tails: Tails) -> dict[int, list[tuple[str, int]]]:
        """Ways to deal the layers of a group that fit with as much recomputation as there is."""
        ways = self.recomputes(group.grid.pp)
        most = [r for r in ways if r == ("full", None)] or ways
        floors = [self.floors_bytes(group, tails, r) for r in most]
        return {
            vpp: schedules
            for vpp, schedules in tails.dealt.items()
            if any(floor[vpp] <= self.room_bytes for floor in floors)
        }

    def fits_nowhere(self, group: LayoutGroup) -> bool:
        """Whether nothing of a group was found to fit in as much memory."""
        return self.rooms.get(place_of(group), 0.0) >= self.room_bytes

    def nothing_fits(self, group: LayoutGroup) -> None:
        """Note that nothing of a group fits."""
        self.rooms[place_of(group)] = self.room_bytes


def place_of(group: LayoutGroup) -> tuple[object, ...]:
    """Leave out of a group what memory does not depend on: kind of CP, order of the ranks."""
    grid = group.grid
    return (grid.tp, grid.cp, grid.pp, *group[1:-1])
