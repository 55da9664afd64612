"""Exact best-first search: the layout returned is the best of every layout in the space.

Branch and bound: A. H. Land, A. G. Doig, Econometrica 28(3), 1960.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import cache
from math import fsum
from typing import Any

from gpuscale.core.layout import hides_exchange
from gpuscale.core.records import dataclass, field, replace
from gpuscale.core.rules import against_refused
from gpuscale.core.search import burden
from gpuscale.core.search import space as sp
from gpuscale.core.search.bounds import Groups, Recompute, pipeline_floor_s
from gpuscale.core.search.problem import (
    Problem,
    exchange_s,
    exposed,
    micro_batch_s,
    peak_bytes,
    problem_for,
    stages_of,
    step_s,
)
from gpuscale.core.search.results import (
    INFINITY,
    FoundLayout,
    Incumbents,
    LayoutGroup,
    Reach,
    SearchResult,
    Tails,
    family,
)
from gpuscale.core.search.space import ProcessGrid, Space, Tail
from gpuscale.core.step.records import StageTimes, pipeline_s
from gpuscale.core.step.step import shape_of

Dealt = dict[int, list[tuple[str, int]]]
"""Chunks that the layers are dealt in -> (schedule, vpp) with which they are."""


@dataclass(slots=True)
class _Node:
    """Layouts of a group with the same recomputation: their stages, and what was learnt."""

    group: LayoutGroup
    recompute: Recompute
    overlap_tp: bool
    vpp: int  # as which the layers are dealt to the stages
    share: float  # of the burdens that all its layouts have
    stages: StageTimes
    pipes: list[tuple[float, str, int]]  # (time of the pipeline, schedule, vpp), fastest first
    fails: set[tuple[int, bool, bool]] = field(default_factory=set)  # none does
    some_too_large: bool = False  # so that more recomputation may help


class Walk:
    """What a group of layouts of a space can still add to what is known."""

    def __init__(
        self, problem: Problem, space: Space, known: Incumbents, weigh: bool = True
    ) -> None:
        self.problem, self.space, self.known = problem, space, known
        self.counts, self._hopeless = known.result.counts, known.hopeless

        def share(of: Callable[..., burden.Burdens], *job: Any) -> Callable[..., float]:
            return cache(lambda *what: burden.total(of(*what, *job)) if weigh else 0.0)

        self.of_recompute, self.of_states = share(burden.of_recompute), share(burden.of_states)
        self.of_schedule = share(burden.of_schedule, problem.facts.n_layers)
        self.groups = Groups(problem, space)
        self.exposed, self.full = exposed(problem), exposed(problem, "full")
        self.more_is_slower = not any(space.offload_activations)  # else it spares copies
        self.of_degrees = share(burden.of_degrees, problem.facts, space.domain_gpus)
        self.known_reach: dict[tuple[object, ...], tuple[float, Reach]] = {}
        self.family_names: dict[tuple[object, ...], frozenset[str]] = {}
        self.late, self.room_bytes = problem.late, problem.room_bytes
        self.some_fits = False  # of the group in hand: fits, or was left out for its time

    def visit(self, group: LayoutGroup, bound_s: float, sharp: bool) -> float | None:
        """Evaluate what of a group can matter; count the rest.

        Returns a greater bound of it, where one with what CP exchanges was not tried: not `sharp`.
        """
        counts, grid, groups = self.counts, group.grid, self.groups
        tails = groups.tails(grid, group.micro_batch_size)
        share, reach = self.reach(group, tails)
        if self._hopeless(bound_s, share, reach):
            return None
        if grid.cp > 1 and not sharp and (sharper := groups.bound_s(group, tails)) > bound_s:
            return sharper
        if groups.fits_nowhere(group):
            counts.too_large += groups.n_outer(grid) * tails.n_all
            return None
        recomputes, tried = groups.recomputes(grid.pp), groups.overlaps(grid.tp)
        self.some_fits = False
        n_overlaps = len(sp.overlap_tps(self.space, grid.tp))
        counts.dominated += tails.n_all * len(recomputes) * (n_overlaps - len(tried))
        dealt = groups.holding(group, tails)
        lost = sum(len(s) for v, s in tails.dealt.items() if v not in dealt)
        each = tails.n_all // len(tails.schedules)
        counts.too_large += each * lost * len(recomputes) * len(tried)
        for overlap in tried if dealt else ():
            left = dealt
            for recompute in recomputes:
                whole = share + self.of_recompute(recompute[0])
                tight = self._recomputing(
                    group, tails, recompute, overlap, left, share=whole, reach=reach
                )
                skipped = sum(len(s) for v, s in dealt.items() if v not in left)
                counts.dominated += each * skipped
                if self.more_is_slower and recompute[0] in ("none", "full"):
                    left = tight  # parts are neither more nor less than layers
        if not self.some_fits:
            groups.nothing_fits(group)
        return None

    def _recomputing(
        self,
        group: LayoutGroup,
        tails: Tails,
        recompute: Recompute,
        overlap_tp: bool,
        dealt: Dealt,
        *,
        share: float,
        reach: Reach,
    ) -> Dealt:
        """Evaluate the layouts with one recomputation; those of `dealt` that more of it may help.

        More recomputation is slower and needs less memory: it helps where something does not fit.
        """
        if not dealt:
            return dealt
        floors = self.groups.floors_bytes(group, tails, recompute)
        large = {v: s for v, s in dealt.items() if floors[v] > self.room_bytes}
        each = tails.n_all // len(tails.schedules)
        self.counts.too_large += each * sum(map(len, large.values()))
        if len(large) == len(dealt):
            return large
        first = self.groups.layout(group, recompute, overlap_tp, tails.least)
        m, pp = first.n_micro_batches, first.pp
        p = self.full if recompute[0] == "full" else self.problem
        shape = shape_of(first, p.hardware, p.software)
        if recompute[1] is None:
            each_s = micro_batch_s(p, shape)
            floor_s = pipeline_floor_s(each_s, pp, m, tails.fill) * self.late
            if self._hopeless(floor_s, share, reach):
                self.some_fits = True
                return {}
        helped = large
        for vpp, schedules in dealt.items():
            if vpp in large:
                continue
            one = p is self.full or p is self.exposed
            hiding = [s for s in schedules if one or hides_exchange("none", pp, s[1])]
            rest = [s for s in schedules if s not in hiding]
            for q, alike in ((p, hiding), (self.exposed, rest)):
                if not alike:
                    continue
                stages = stages_of(q, first, shape, vpp)
                if self._hopeless(m * stages.seconds * self.late, share, reach):
                    self.some_fits = True
                    continue
                self.counts.dominated += (each - len(tails.exchanges)) * len(alike)
                each_s, all_s = stages.seconds, stages.all_stages_s
                pipes = sorted(
                    (fsum(pipeline_s(each_s, all_s, m, v, s)) * self.late, s, v) for s, v in alike
                )
                node = _Node(group, recompute, overlap_tp, vpp, share, stages=stages, pipes=pipes)
                for tail in tails.exchanges:
                    self._exchange(node, tail)
                if node.some_too_large:
                    helped[vpp] = schedules
        return helped

    def _exchange(self, node: _Node, tail: Tail) -> None:
        """Evaluate the schedules of one way to shard, overlap and offload."""
        p, counts, pipes, group = self.problem, self.counts, node.pipes, node.group
        grid = group.grid
        name = family(grid.tp, grid.pp, grid.cp, group.ep, tail.zero_stage, tail[3])
        degrees = (grid.tp, grid.cp, grid.pp, group.ep, group.etp)
        reach = (name,), ((*degrees, int(tail.zero_stage == 3)),)
        share = node.share + self.of_states(*tail[2:4], *tail[6:])
        if self._hopeless(pipes[0][0], share, reach):
            self.some_fits = True
            return
        offloads = (tail.offload_optimizer, tail.offload_activations)
        if any((z, *offloads) in node.fails for z in range(tail.zero_stage, 3)):
            node.some_too_large = True
            counts.too_large += len(pipes)
            return
        layout = self.groups.layout(group, node.recompute, node.overlap_tp, tail)
        exchange = exchange_s(p, layout, node.stages) * self.late
        if self._hopeless(pipes[0][0] + exchange, share, reach):
            self.some_fits = True
            return
        peak = peak_bytes(p, layout, node.vpp)
        if peak > self.room_bytes:  # with 1F1B, which keeps least
            node.fails.add((tail.zero_stage, *offloads))
            node.some_too_large = True
            counts.too_large += len(pipes)
            return
        for _, schedule, vpp in pipes:
            whole = share + self.of_schedule(schedule, vpp, grid.pp)
            last = tail._replace(schedule=schedule, vpp=vpp)
            layout = self.groups.layout(group, node.recompute, node.overlap_tp, last)
            if against_refused(layout, p.facts):  # which says nothing of its neighbours
                counts.declared -= 1
                node.some_too_large = self.some_fits = True
                continue
            time_s = step_s(p, layout, node.stages)
            if self._hopeless(time_s, whole, reach):
                self.some_fits = True
                continue
            found = FoundLayout(time_s * (1.0 + whole), time_s, peak_bytes(p, layout), layout, name)
            if found.peak_bytes > self.room_bytes:
                counts.too_large += 1
                node.some_too_large = True
                continue
            counts.evaluated += 1
            self.some_fits = True
            self.known.note(found)

    def reach(self, group: LayoutGroup, tails: Tails) -> tuple[float, Reach]:
        """(share of the burden of its degrees, what its layouts can be the best of) of a group."""
        tp, cp, _, pp, _ = group.grid
        key = (tp, cp, pp, group.ep, group.etp, group.order, id(tails))
        found = self.known_reach.get(key)
        if found is None:
            grids = tuple((*key[:5], z) for z in tails.fully_sharded)
            names = self.families(group.grid, group.ep, tails)
            found = self.known_reach[key] = self.of_degrees(key[:6]), (names, grids)
        return found

    def families(self, grid: ProcessGrid, ep: int, tails: Tails) -> frozenset[str]:
        """Families that layouts of a grid can belong to; each is followed from then on."""
        key = (grid.cp > 1, ep > 1, id(tails))  # which are of one PP and as many ranks of data
        found = self.family_names.get(key)
        if found is None:
            found = self.family_names[key] = frozenset(
                family(grid.tp, grid.pp, grid.cp, ep, t.zero_stage, t.shard_group_size)
                for t in tails.exchanges
            )
            self.known.follow(found)
        return found


PROGRESS_EVERY = 256  # groups between two reports of progress


def search(
    problem: Problem,
    space: Space,
    n_next: int = 4,
    progress: Callable[[float], None] | None = None,
    *,
    follow_families: bool = True,
    limit_s: float = INFINITY,
    weigh: bool = True,
) -> SearchResult:
    """Find the best layout that fits, the best of each family, and the fastest.

    The best has the least time of a step times 1 + its burden, see `burden`. Groups of layouts are
    visited in order of a lower bound of their time; a group is left out when it fits in no way, or
    its bound is above the fastest and, weighed, above the best of every family that it can belong
    to and above the `n_next` best grids. Nothing is sampled: what is left out is no better.
    DualPipe hides the exchange of experts: a mixture has times of its own under it.

    `problem, space`: job, cluster and software, and the candidate values of each dimension.
    `n_next`: how many further process grids are wanted exactly [1]. `progress`: called now and then
    with the fraction of groups done. `follow_families`: whether the best of each family is wanted
    exactly too. `limit_s`: slower steps are of no interest [s]. `weigh`: whether burdens count;
    else the best is the fastest.
    """
    known = Incumbents(n_next, follow_families, limit_s)
    walks = [Walk(p, part, known, weigh) for p, part in _parts(problem, space)]
    every = ((bound, walk, group) for walk in walks for bound, group in _groups(walk))
    heap = [(bound, i, walk, group, False) for i, (bound, walk, group) in enumerate(every)]
    heapq.heapify(heap)
    total = len(heap)
    try:
        while heap and heap[0][0] < known.highest_s:
            bound, i, walk, group, sharp = heap[0]
            if sharper := walk.visit(group, bound, sharp):
                heapq.heapreplace(heap, (sharper, i, walk, group, True))
                continue
            heapq.heappop(heap)
            if progress is not None and len(heap) % PROGRESS_EVERY == 0:
                progress(1.0 - len(heap) / total)
    except KeyboardInterrupt:
        known.result.interrupted = True
    return known.finish()


def _parts(problem: Problem, space: Space) -> list[tuple[Problem, Space]]:
    """DualPipe, under which experts have a dispatch of their own, and the other schedules."""
    rest = tuple(s for s in space.schedule if s != "dualpipe")
    dual = problem_for(problem, "dualpipe")
    if dual is problem or len(rest) == len(space.schedule):
        return [(problem, space)]
    parts = [(problem, replace(space, schedule=rest))] if rest else []
    return [*parts, (dual, replace(space, schedule=("dualpipe",)))]


def _groups(walk: Walk) -> Iterator[tuple[float, LayoutGroup]]:
    """(bound, group) of every one whose model states can fit; counts all of the space."""
    space, groups, counts = walk.space, walk.groups, walk.counts
    facts, limit_s = walk.problem.facts, walk.known.slowest_s
    for grid in sp.grids(space, facts):
        kinds, outer = groups.kinds(grid), groups.n_outer(grid)
        degrees = groups.expert_degrees(grid)
        batches, spread = [], {min(2, ep) for ep, _ in degrees}
        for b in sp.micro_batches(space, facts, grid) if degrees else ():
            if (tails := groups.tails(grid, b)).exchanges:
                m = groups.n_micro_batches(grid, b)
                of_each = pipeline_floor_s(1.0, grid.pp, m, tails.fill) * groups.late
                batches.append((b, tails, of_each, groups.times(grid, b)))
                counts.declared += len(degrees) * outer * len(kinds) * tails.n_all
                for ep in spread:
                    walk.families(grid, ep, tails)
        for ep, etp in degrees:
            large: dict[tuple[int, str], bool] = {}  # of assemblies and a precision
            for b, tails, of_each, times in batches:
                for kind in kinds:
                    each_s = times.get((ep, etp, kind), 0.0)
                    if each_s * of_each >= limit_s:
                        continue
                    group = LayoutGroup(grid, ep, etp, b, *kind[:3])
                    alike = (id(tails), kind[1])
                    if alike not in large:
                        large[alike] = groups.states_too_large(group, tails)
                    if large[alike] or (groups.rooms and groups.fits_nowhere(group)):
                        counts.too_large += outer * tails.n_all
                        continue
                    if not each_s:
                        each_s = times[ep, etp, kind] = groups.alone_s(group, tails)
                    yield each_s * of_each, group


def fastest(
    problem: Problem,
    space: Space,
    progress: Callable[[float], None] | None = None,
    limit_s: float = INFINITY,
) -> FoundLayout | None:
    """Fastest layout that fits and takes less than `limit_s`; None if none does.

    Raises KeyboardInterrupt if the search was interrupted: what it has may not be the fastest.
    """
    result = search(
        problem, space, 0, progress, follow_families=False, limit_s=limit_s, weigh=False
    )
    if result.interrupted:
        raise KeyboardInterrupt
    return result.best
