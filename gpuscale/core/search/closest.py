"""The layouts that need the least memory: what came closest where nothing fits."""

from __future__ import annotations

import itertools
from functools import partial

from gpuscale.core.layout import DEFAULT_CONTEXT, Layout
from gpuscale.core.records import NamedTuple
from gpuscale.core.rules import against_refused
from gpuscale.core.search import space as sp
from gpuscale.core.search.bounds import states_floor_bytes
from gpuscale.core.search.problem import Problem, peak_bytes
from gpuscale.core.search.results import family, make_layout
from gpuscale.core.search.space import Space, Tail
from gpuscale.core.stages import stage_kinds


class Closest(NamedTuple):
    """A layout and its memory."""

    peak_bytes: float
    layout: Layout


def least_memory(problem: Problem, space: Space, names: set[str]) -> dict[str, Closest]:
    """Layout of least memory of each family in `names`, whether it fits or not.

    Best-first by the states that a grid needs at least; within a grid the smallest micro-batch,
    every way to recompute and to shard, and the schedule that keeps least (1F1B where allowed).
    """
    found: dict[str, Closest] = {}
    facts, places = problem.facts, []
    for grid in sp.grids(space, facts):
        if grid.cp_kind != DEFAULT_CONTEXT and DEFAULT_CONTEXT in space.cp_kind:
            continue  # memory does not depend on the kind, and the default is always allowed
        batches = sp.micro_batches(space, facts, grid)
        tails = sp.tails(space, facts, grid, batches[0]) if batches else []
        kept = _least_tails(problem, grid.pp, tails)
        for ep, etp in sp.expert_degrees(space, facts, grid) if kept else ():
            made = partial(make_layout, facts, grid, ep=ep, etp=etp, micro_batch_size=batches[0])
            first = made(
                kept[0], ("none", None), sequence_parallel=False, precision=space.precision[0]
            )
            states, dealt = tuple(sp.least_states(kept)), dict.fromkeys(t.vpp for t in kept)
            floor = states_floor_bytes(problem, first, states, dealt)
            places.append((floor, grid, ep, made, kept))
    for floor, grid, ep, made, kept in sorted(places, key=lambda place: place[0]):
        for tail in kept:
            name = family(grid.tp, grid.pp, grid.cp, ep, tail.zero_stage, tail.shard_group_size)
            if name not in names or (name in found and floor >= found[name].peak_bytes):
                continue
            choices = itertools.product(
                sp.recomputes(space, facts, grid.pp),
                sp.sequence_parallels(space, facts, grid),
                space.precision,
            )
            layouts = [
                made(tail, recompute, sequence_parallel=split, precision=precision)
                for recompute, split, precision in choices
            ]
            legal = [x for x in layouts if not against_refused(x, facts)]
            tried = [Closest(peak_bytes(problem, x), x) for x in legal]
            tried += [found[name]] if name in found else []
            if tried:
                found[name] = min(tried, key=lambda c: c.peak_bytes)
    return found


def _least_tails(p: Problem, pp: int, tails: list[Tail]) -> list[Tail]:
    """One assembly per way to shard and to deal the layers: offload, 1F1B where allowed."""
    weights, rule = p.memory_facts.weights, p.memory_parameters.stage_split
    least: dict[tuple[object, ...], Tail] = {}
    for tail in sorted(
        tails,
        key=lambda t: (t.schedule != "1f1b", t.vpp, -t.offload_optimizer, -t.offload_activations),
    ):
        dealt = stage_kinds(weights, rule, pp, tail.vpp, p.facts.stages_given(pp, tail.vpp))
        least.setdefault((tail.zero_stage, tail.shard_group_size, dealt), tail)
    return list(least.values())
