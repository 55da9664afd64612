"""Exact best-first search: the layout returned is the best of every layout in the space."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuscale.core.layout import Layout
from gpuscale.core.search import space as sp
from gpuscale.core.search.constraints import Facts
from gpuscale.core.search.families import family
from gpuscale.core.search.problem import (
    Problem,
    compute_s,
    make_layout,
    micro_batch_s,
    peak_bytes,
    stages_of,
    step_parts,
)
from gpuscale.core.search.space import Grid, Space, Tail
from gpuscale.core.step.pipeline import pipeline_s
from gpuscale.core.step.records import Shape
from gpuscale.core.step.step import shape_of

INFINITY = float("inf")


class Found(NamedTuple):
    """A layout with its time and memory."""

    step_s: float
    peak_bytes: float
    layout: Layout
    family: str


class Group(NamedTuple):
    """Layouts that share all blocks but recomputation, overlap and assembly."""

    bound_s: float
    grid: Grid
    ep: int
    etp: int
    micro_batch_size: int
    sequence_parallel: bool
    precision: str


@dataclass(slots=True)
class Counts:
    """How many layouts were declared, and what became of each."""

    declared: int = 0
    evaluated: int = 0
    too_large: int = 0  # do not fit in memory
    dominated: int = 0  # another layout of the same blocks is never worse
    bounded: int = 0  # a lower bound of the time is above what was found


@dataclass(slots=True)
class SearchResult:
    """Best layout, best of each family, next best grids, and what was closest to fitting."""

    best: Found | None = None
    families: dict[str, Found] = field(default_factory=dict)
    next_best: list[Found] = field(default_factory=list)
    closest: dict[str, Found] = field(default_factory=dict)  # families where nothing fits
    counts: Counts = field(default_factory=Counts)
    interrupted: bool = False


def search(
    problem: Problem, space: Space, n_next: int = 4, progress: Callable[[float], None] | None = None
) -> SearchResult:
    """Find the fastest layout that fits, and the fastest of each family.

    Groups of layouts are visited in order of a lower bound of their time; a group is left out
    when it fits in no way, or its bound is above the best of every family that it can belong to
    and above the `n_next` best grids. Nothing is sampled: what is left out is provably no better.

    Parameters
    ----------
    problem : Problem
        Job, cluster, software.
    space : Space
        Candidate values of each dimension.
    n_next : int
        How many further process grids are wanted exactly. [1]
    progress : callable, optional
        Called now and then with the fraction of groups done.
    """
    state = _State(problem, space, n_next)
    heap = [(g.bound_s, i, g) for i, g in enumerate(_groups(problem, space))]
    heapq.heapify(heap)
    total, done = max(1, len(heap)), 0
    try:
        while heap:
            bound, i, group = heap[0]
            sharper = state.sharper_bound(group, bound)
            if sharper > bound:
                heapq.heapreplace(heap, (sharper, i, group))
                continue
            heapq.heappop(heap)
            done += 1
            if progress is not None and done % 512 == 0:
                progress(done / total)
            state.visit(group, bound)
    except KeyboardInterrupt:
        state.result.interrupted = True
    return state.finish()


def _groups(p: Problem, space: Space) -> Iterator[Group]:
    facts, late = p.facts, p.late
    for grid in sp.grids(space, facts):
        experts = sp.expert_degrees(space, facts, grid)
        for b in sp.micro_batches(space, facts, grid):
            m = facts.global_batch_size // (grid.dp * b)
            for precision in space.precision:
                for ep, etp in experts:
                    each = compute_s(p, grid.tp, grid.cp, ep, etp, b, precision)
                    bound = m * each / grid.pp * late
                    for seq in sp.sequence_parallels(space, grid.tp):
                        yield Group(bound, grid, ep, etp, b, seq, precision)


class _State:
    """The walk: incumbents and counts."""

    def __init__(self, problem: Problem, space: Space, n_next: int) -> None:
        self.problem, self.space, self.n_next = problem, space, n_next
        self.result = SearchResult()
        self.grids: dict[tuple[int, ...], Found] = {}
        self.kth_s = INFINITY
        sw = problem.software
        self.overlap_helps = (sw.dp_exposed_frac <= 1.0, sw.pp_exposed_frac <= 1.0)
        self.overlap_tp_helps = sw.tp_exposed_frac <= 1.0
        self.family_names: dict[tuple[object, ...], frozenset[str]] = {}
        self.tail_sets: dict[tuple[int, ...], tuple[int, list[Tail]]] = {}

    def sharper_bound(self, group: Group, bound_s: float) -> float:
        """Bound of a group with its communication, where the bound by kernels alone may matter."""
        if bound_s > group.bound_s or bound_s >= self._limit(self._families(group)):
            return bound_s
        p, grid = self.problem, group.grid
        shape = self._shape(group, ("none", None), self._overlaps(grid.tp)[0])
        m = p.facts.global_batch_size // (grid.dp * group.micro_batch_size)
        return m * micro_batch_s(p, shape) / grid.pp * p.late

    def visit(self, group: Group, bound_s: float) -> None:
        """Evaluate what of a group can matter; count the rest."""
        p, counts, grid = self.problem, self.result.counts, group.grid
        n_all, tails = self._tails(group)
        recomputes = sp.recomputes(self.space, p.facts, grid.pp)
        n_overlaps = len(sp.overlap_tps(self.space, grid.tp))
        counts.declared += n_all * len(recomputes) * n_overlaps
        if not tails:
            return
        if bound_s >= self._limit(self._families(group)):
            counts.bounded += n_all * len(recomputes) * n_overlaps
            return
        tried = self._overlaps(grid.tp)
        counts.dominated += n_all * len(recomputes) * (n_overlaps - len(tried))
        for recompute in recomputes:
            for overlap in tried:
                self._node(group, n_all, tails, recompute, overlap)

    def _overlaps(self, tp: int) -> tuple[bool, ...]:
        """Overlap choices of TP that are not dominated."""
        every = sp.overlap_tps(self.space, tp)
        return every[:1] if self.overlap_tp_helps and every[0] else every

    def _shape(self, group: Group, recompute: tuple[str, int | None], overlap_tp: bool) -> Shape:
        """Return what a layer sees of a group."""
        p = self.problem
        first = self._layout(group, recompute, overlap_tp, self._tails(group)[1][0])
        return shape_of(first, p.hardware, p.software)

    def _node(
        self, group: Group, n_all: int, tails: list[Tail], recompute: tuple[str, int | None],
        overlap_tp: bool,
    ) -> None:  # fmt: skip
        p, counts, grid = self.problem, self.result.counts, group.grid
        names = self._families(group)
        first = self._layout(group, recompute, overlap_tp, tails[0])
        shape = shape_of(first, p.hardware, p.software)
        m = first.n_micro_batches
        if recompute[1] is None:
            bound = m * micro_batch_s(p, shape) / grid.pp * p.late
            if bound >= self._limit(names):
                counts.bounded += n_all
                return
        stages = stages_of(p, first, shape)
        if m * stages[0].seconds * p.late >= self._limit(names):
            counts.bounded += n_all
            return
        counts.dominated += n_all - len(tails)
        bubbles: dict[tuple[str, int], float] = {}
        fits_without: set[tuple[object, ...]] = set()
        for tail in tails:
            name = family(grid.tp, grid.pp, grid.cp, group.ep, tail.zero_stage, tail[3])
            limit = self._limit({name})
            bound = bubbles.get(tail[:2], -1.0)
            if bound < 0.0:
                seconds = pipeline_s(stages[0].seconds, stages[1], m, tail.vpp, tail.schedule)
                bound = bubbles[tail[:2]] = sum(seconds) * p.late
            if bound >= limit:
                counts.bounded += 1
                continue
            offloads = tail.offload_optimizer or tail.offload_activations
            if offloads and tail[:6] in fits_without:
                counts.dominated += 1
                continue
            layout = self._layout(group, recompute, overlap_tp, tail)
            step_s = step_parts(p, layout, stages).total_s
            if step_s >= limit:
                counts.bounded += 1
                continue
            found = Found(step_s, peak_bytes(p, layout), layout, name)
            if found.peak_bytes > p.capacity_bytes:
                counts.too_large += 1
                self._note_closest(found)
                continue
            if not offloads:
                fits_without.add(tail[:6])
            counts.evaluated += 1
            self._note(found)

    def _layout(
        self, group: Group, recompute: tuple[str, int | None], overlap_tp: bool, tail: Tail
    ) -> Layout:
        return make_layout(
            self.problem.facts, group.grid, group.ep, group.etp, group.micro_batch_size,
            group.sequence_parallel, group.precision, recompute, overlap_tp, tail,
        )  # fmt: skip

    def _tails(self, group: Group) -> tuple[int, list[Tail]]:
        """Return (number of assemblies, those not dominated: overlap never hurts)."""
        grid = group.grid
        key = (grid.pp, grid.dp, grid.cp, group.micro_batch_size)
        found = self.tail_sets.get(key)
        if found is None:
            every = sp.tails(self.space, self.problem.facts, grid, group.micro_batch_size)
            dp_wins = self.overlap_helps[0] and True in self.space.overlap_dp
            pp_wins = self.overlap_helps[1] and True in self.space.overlap_pp
            kept = [
                t for t in every if (t.overlap_dp or not dp_wins) and (t.overlap_pp or not pp_wins)
            ]
            kept.sort(key=lambda t: (t.offload_optimizer, t.offload_activations))
            found = self.tail_sets[key] = (len(every), kept)
        return found

    def _families(self, group: Group) -> frozenset[str]:
        """Families that the layouts of a group can belong to."""
        grid = group.grid
        key = (grid, group.ep > 1, group.micro_batch_size)
        found = self.family_names.get(key)
        if found is None:
            found = self.family_names[key] = frozenset(
                family(grid.tp, grid.pp, grid.cp, group.ep, t.zero_stage, t.shard_group_size)
                for t in self._tails(group)[1]
            )
        return found

    def _limit(self, names: Iterable[str]) -> float:
        """Time above which a layout of these families can no longer matter. [s]."""
        limit = self.kth_s
        for name in names:
            known = self.result.families.get(name)
            limit = max(limit, known.step_s if known else INFINITY)
        return limit

    def _note(self, found: Found) -> None:
        result, layout = self.result, found.layout
        if result.best is None or found[:2] < result.best[:2]:
            result.best = found
        old = result.families.get(found.family)
        if old is None or found[:2] < old[:2]:
            result.families[found.family] = found
        key = (layout.tp, layout.cp, layout.pp, layout.ep, layout.etp, int(layout.zero_stage == 3))
        seen = self.grids.get(key)
        if seen is None or found[:2] < seen[:2]:
            self.grids[key] = found
            ordered = sorted(f.step_s for f in self.grids.values())
            if len(ordered) > self.n_next:
                self.kth_s = ordered[self.n_next]

    def _note_closest(self, found: Found) -> None:
        old = self.result.closest.get(found.family)
        if old is None or found.peak_bytes < old.peak_bytes:
            self.result.closest[found.family] = found

    def finish(self) -> SearchResult:
        """Put the result together."""
        result = self.result
        ranked = sorted(self.grids.values(), key=lambda f: f[:2])
        result.next_best = ranked[1 : self.n_next + 1]
        result.closest = {k: v for k, v in result.closest.items() if k not in result.families}
        return result


def brute_force(problem: Problem, space: Space) -> Iterator[tuple[float, float, Layout]]:
    """Every layout of the space with its time and memory, one by one: for tests."""
    facts: Facts = problem.facts
    for group in _groups(problem, space):
        for recompute in sp.recomputes(space, facts, group.grid.pp):
            for overlap in sp.overlap_tps(space, group.grid.tp):
                for tail in sp.tails(space, facts, group.grid, group.micro_batch_size):
                    layout = make_layout(
                        facts, group.grid, group.ep, group.etp, group.micro_batch_size,
                        group.sequence_parallel, group.precision, recompute, overlap, tail,
                    )  # fmt: skip
                    stages = stages_of(
                        problem, layout, shape_of(layout, problem.hardware, problem.software)
                    )
                    yield (
                        step_parts(problem, layout, stages).total_s,
                        peak_bytes(problem, layout),
                        layout,
                    )
