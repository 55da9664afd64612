"""Exact best-first search: the layout returned is the best of every layout in the space."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

from gpuscale.core.search import space as sp
from gpuscale.core.search.bounds import pipeline_floor_s
from gpuscale.core.search.problem import Problem, compute_s
from gpuscale.core.search.results import INFINITY, Group, SearchResult
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
    follow_families : bool
        Whether the best of each family is wanted exactly too.
    limit_s : float
        Slower steps are of no interest. [s]
    progress : callable, optional
        Called now and then with the fraction of groups done.
    """
    state = Walk(problem, space, n_next, follow_families, limit_s)
    heap = [(bound, i, group, False) for i, (bound, group) in enumerate(_groups(state))]
    heapq.heapify(heap)
    total = max(1, len(heap))
    try:
        while heap and heap[0][0] < state.highest_s:
            bound, i, group, sharp = heap[0]
            if not sharp and (sharper := state.sharper_bound(group, bound)) > bound:
                heapq.heapreplace(heap, (sharper, i, group, True))
                continue
            heapq.heappop(heap)
            if progress is not None and len(heap) % PROGRESS_EVERY == 0:
                progress(1.0 - len(heap) / total)
            state.visit(group, bound)
    except KeyboardInterrupt:
        state.result.interrupted = True
    return state.finish()


def _groups(state: Walk) -> Iterator[tuple[float, Group]]:
    """(bound, group) of every one whose model states can fit; counts all of the space."""
    p, space, counts = state.problem, state.space, state.result.counts
    facts, late = p.facts, p.late
    for grid in sp.grids(space, facts):
        outer = len(sp.recomputes(space, facts, grid.pp)) * len(sp.overlap_tps(space, grid.tp))
        splits = sp.sequence_parallels(space, facts, grid)
        batches = [(b, state.tails(grid, b)) for b in sp.micro_batches(space, facts, grid)]
        batches = [(b, t) for b, t in batches if t.exchanges]
        orders = sp.orders(space, grid)
        size = (
            outer
            * len(orders)
            * len(splits)
            * len(space.precision)
            * sum(t.n_all for _, t in batches)
        )
        for ep, etp in sp.expert_degrees(space, facts, grid) if batches else ():
            counts.declared += size
            for _, tails in batches:
                state.families(grid, ep, tails)
            bounds = []
            for b, tails in batches:
                m = facts.global_batch_size // (grid.dp * b)
                for precision in space.precision:
                    each = compute_s(
                        p, grid.tp, cp=grid.cp, ep=ep, etp=etp, micro_batch=b, precision=precision
                    )
                    bound = pipeline_floor_s(each, grid.pp, m, tails.fill) * late
                    if state.follow_families or bound < state.kth_s:
                        bounds.append((bound, b, precision))
            if bounds and state.states_too_large(grid, ep, etp, *batches[0]):
                counts.too_large += size
                continue
            for bound, b, precision in bounds:
                for seq, order in itertools.product(splits, orders):
                    group = Group(
                        grid=grid,
                        ep=ep,
                        etp=etp,
                        micro_batch_size=b,
                        sequence_parallel=seq,
                        precision=precision,
                        order=order,
                    )
                    if not state.fits_nowhere(group):
                        yield bound, group
