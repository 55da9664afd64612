"""The layouts that need the least memory: what came closest where nothing fits."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from gpuscale.core.context import DEFAULT_CONTEXT
from gpuscale.core.layout import Layout
from gpuscale.core.rules import Facts
from gpuscale.core.search import space as sp
from gpuscale.core.search.bounds import states_floor_bytes
from gpuscale.core.search.families import family
from gpuscale.core.search.problem import Problem, peak_bytes
from gpuscale.core.search.results import make_layout
from gpuscale.core.search.space import Grid, Space, Tail
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
    bounds: dict[tuple[Grid, int, int], tuple[float, list[Tail], int]] = {}
    for grid in sp.grids(space, problem.facts):
        if grid.cp_kind != DEFAULT_CONTEXT and DEFAULT_CONTEXT in space.cp_kind:
            continue  # memory does not depend on the kind, and the default is always allowed
        batches = sp.micro_batches(space, problem.facts, grid)
        tails = sp.tails(space, problem.facts, grid, batches[0]) if batches else []
        if not tails:
            continue
        kept = _least_tails(problem, grid.pp, tails)
        states = tuple(sp.least_states(kept))
        for ep, etp in sp.expert_degrees(space, problem.facts, grid):
            first = ("none", None), False, space.precision[0]
            layout = _written(problem.facts, (grid, ep, etp), batches[0], kept[0], *first)
            dealt = tuple(dict.fromkeys(t.vpp for t in kept))
            floor = states_floor_bytes(problem, layout, states, dealt)
            bounds[grid, ep, etp] = (floor, kept, batches[0])
    for (grid, ep, etp), (floor, kept, batch) in sorted(bounds.items(), key=lambda i: i[1][0]):
        for tail in kept:
            name = family(grid.tp, grid.pp, grid.cp, ep, tail.zero_stage, tail.shard_group_size)
            if name not in names or (name in found and floor >= found[name].peak_bytes):
                continue
            best = min(
                _variants(problem, space, (grid, ep, etp), batch, tail),
                key=lambda c: c.peak_bytes,
                default=None,
            )
            if best is None:  # no setting of it is legal
                continue
            if name not in found or best.peak_bytes < found[name].peak_bytes:
                found[name] = best
    return found


def _least_tails(p: Problem, pp: int, tails: list[Tail]) -> list[Tail]:
    """One assembly per way to shard and to deal the layers: offload, 1F1B where allowed."""
    weights, rule = p.memory_facts.weights, p.memory_parameters.stage_split
    least: dict[tuple[object, ...], Tail] = {}
    for tail in sorted(tails, key=lambda t: (t.schedule != "1f1b", t.vpp)):
        dealt = stage_kinds(weights, rule, pp, tail.vpp, p.facts.stages_given(pp, tail.vpp))
        key = (tail.zero_stage, tail.shard_group_size, dealt)
        old = least.get(key)
        offload = (tail.offload_optimizer, tail.offload_activations)
        if old is None or (
            tail.schedule == old.schedule
            and offload > (old.offload_optimizer, old.offload_activations)
        ):
            least[key] = tail
    return list(least.values())


def _written(
    facts: Facts,
    at: tuple[Grid, int, int],
    batch: int,
    tail: Tail,
    recompute: tuple[str, int | None],
    *split: Any,
) -> Layout:
    sequence_parallel, precision = split
    return make_layout(
        facts,
        at[0],
        tail,
        recompute,
        ep=at[1],
        etp=at[2],
        micro_batch_size=batch,
        sequence_parallel=sequence_parallel,
        precision=precision,
    )


def _variants(
    p: Problem, space: Space, at: tuple[Grid, int, int], batch: int, tail: Tail
) -> list[Closest]:
    choices = itertools.product(
        sp.recomputes(space, p.facts, at[0].pp),
        sp.sequence_parallels(space, p.facts, at[0]),
        space.precision,
    )
    layouts = [_written(p.facts, at, batch, tail, *choice) for choice in choices]
    return [Closest(peak_bytes(p, layout), layout) for layout in layouts]
