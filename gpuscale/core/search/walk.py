"""One walk over a space: bounds, and evaluation of groups.

Branch and bound: A. H. Land, A. G. Doig, Econometrica 28(3), 1960.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gpuscale.core.layout import hides_exchange
from gpuscale.core.rules import against_refused
from gpuscale.core.search import space as sp
from gpuscale.core.search.bounds import pipeline_floor_s
from gpuscale.core.search.burden import (
    Burdens,
    of_degrees,
    of_recompute,
    of_schedule,
    of_states,
    total,
)
from gpuscale.core.search.families import family
from gpuscale.core.search.groups import Groups, Recompute
from gpuscale.core.search.incumbents import Incumbents
from gpuscale.core.search.problem import (
    Problem,
    exchange_s,
    exposed,
    micro_batch_s,
    peak_bytes,
    stages_of,
    step_s,
)
from gpuscale.core.search.results import FoundLayout, LayoutGroup, Tails
from gpuscale.core.search.space import ProcessGrid, Space, Tail
from gpuscale.core.step.pipeline import pipeline_s
from gpuscale.core.step.records import StageTimes
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

        def share(of: Callable[..., Burdens], *job: Any) -> Callable[..., float]:
            return cache(lambda *what: total(of(*what, *job)) if weigh else 0.0)

        self.of_degrees = share(of_degrees, problem.facts, space.domain_gpus)
        self.of_recompute, self.of_states = share(of_recompute), share(of_states)
        self.of_schedule = share(of_schedule, problem.facts.n_layers)
        self.groups = Groups(problem, space)
        self.exposed, self.full = exposed(problem), exposed(problem, "full")
        self.more_is_slower = not any(space.offload_activations)  # else it spares copies
        self.family_names: dict[tuple[object, ...], frozenset[str]] = {}
        self.late, self.room_bytes = problem.late, problem.room_bytes
        self.some_fits = False  # of the group in hand: fits, or was left out for its time

    def visit(self, group: LayoutGroup, bound_s: float, sharp: bool) -> float | None:
        """Evaluate what of a group can matter; count the rest.

        Returns a greater bound of it, where one with what CP exchanges was not tried: not `sharp`.
        """
        counts, grid, groups = self.counts, group.grid, self.groups
        tails = groups.tails(grid, group.micro_batch_size)
        names = self.families(grid, group.ep, tails)
        share = self.of_degrees((grid.tp, grid.cp, grid.pp, group.ep, group.etp, group.order))
        if self._hopeless(bound_s, share, names):
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
                    group, tails, recompute, overlap, left, share=whole, names=names
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
        names: frozenset[str],
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
            if self._hopeless(floor_s, share, names):
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
                if self._hopeless(m * stages.seconds * self.late, share, names):
                    self.some_fits = True
                    continue
                self.counts.dominated += (each - len(tails.exchanges)) * len(alike)
                each_s, all_s = stages.seconds, stages.all_stages_s
                pipes = sorted(
                    (sum(pipeline_s(each_s, all_s, m, v, s)) * self.late, s, v) for s, v in alike
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
        share = node.share + self.of_states(*tail[2:4], *tail[6:8])
        if self._hopeless(pipes[0][0], share, (name,)):
            self.some_fits = True
            return
        offloads = (tail.offload_optimizer, tail.offload_activations)
        if any((z, *offloads) in node.fails for z in range(tail.zero_stage, 3)):
            node.some_too_large = True
            counts.too_large += len(pipes)
            return
        layout = self.groups.layout(group, node.recompute, node.overlap_tp, tail)
        exchange = exchange_s(p, layout, node.stages) * self.late
        if self._hopeless(pipes[0][0] + exchange, share, (name,)):
            self.some_fits = True
            return
        peak = peak_bytes(p, layout, node.vpp)
        if peak > self.room_bytes:  # with 1F1B, which keeps least
            node.fails.add((tail.zero_stage, *offloads))
            node.some_too_large = True
            counts.too_large += len(pipes)
            return
        for pipe, schedule, vpp in pipes:
            whole = share + self.of_schedule(schedule, vpp, grid.pp)
            if self._hopeless(pipe + exchange, whole, (name,)):
                self.some_fits = True
                continue
            last = tail._replace(schedule=schedule, vpp=vpp)
            layout = self.groups.layout(group, node.recompute, node.overlap_tp, last)
            if against_refused(layout, p.facts):  # which says nothing of its neighbours
                counts.declared -= 1
                node.some_too_large = self.some_fits = True
                continue
            time_s = step_s(p, layout, node.stages)
            if self._hopeless(time_s, whole, (name,)):
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

    def families(self, grid: ProcessGrid, ep: int, tails: Tails) -> frozenset[str]:
        """Families that layouts of a grid can belong to; each is followed from then on."""
        key = (grid.tp > 1, grid.cp > 1, ep > 1, id(tails))
        found = self.family_names.get(key)
        if found is None:
            found = self.family_names[key] = frozenset(
                family(grid.tp, grid.pp, grid.cp, ep, t.zero_stage, t.shard_group_size)
                for t in tails.exchanges
            )
            self.known.follow(found)
        return found
