"""Exact best-first search: the layout returned is the best of every layout in the space."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace

from gpuscale.core.search import space as sp
from gpuscale.core.search.bounds import pipeline_floor_s
from gpuscale.core.search.incumbents import Incumbents
from gpuscale.core.search.problem import Problem, problem_for
from gpuscale.core.search.results import INFINITY, FoundLayout, LayoutGroup, SearchResult
from gpuscale.core.search.space import Space
from gpuscale.core.search.walk import Walk

PROGRESS_EVERY = 256
"""Groups between two reports of progress."""


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
    total = max(1, len(heap))
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
        batches = []
        for b in sp.micro_batches(space, facts, grid) if degrees else ():
            if (tails := groups.tails(grid, b)).exchanges:
                m = groups.n_micro_batches(grid, b)
                of_each = pipeline_floor_s(1.0, grid.pp, m, tails.fill) * groups.late
                batches.append((b, tails, of_each, groups.times(grid, b)))
                counts.declared += len(degrees) * outer * len(kinds) * tails.n_all
                for ep in {min(2, ep) for ep, _ in degrees}:
                    walk.families(grid, ep, tails)
        for ep, etp in degrees:
            for b, tails, of_each, times in batches:
                for kind in kinds:
                    each_s = times.get((ep, etp, kind), 0.0)
                    if each_s * of_each >= limit_s:
                        continue
                    group = LayoutGroup(grid, ep, etp, b, *kind[:3])
                    if groups.states_too_large(group, tails) or groups.fits_nowhere(group):
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
