"""Bounds of groups of layouts: never above what they bound, near it, and each of its own group."""

from dataclasses import replace

import pytest
from test_search_exact import brute_force, of, problem, small

from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import stage_memories
from gpuscale.core.search.bounds import Groups, peak_floor_bytes, states_floors_bytes
from gpuscale.core.search.closest import least_memory
from gpuscale.core.search.engine import fastest, search
from gpuscale.core.search.results import LayoutGroup
from gpuscale.core.search.space import AS_TP, ProcessGrid, Tail, divisors

FEW = {"vpp": (), "overlap_tp": (True,), "overlap_dp": (True,), "overlap_pp": (True,)}
FEW |= {"shard_group_size": (), "offload_optimizer": (False,), "recompute": ("none", "full")}


def tail_of(x: Layout) -> Tail:
    names = ("schedule", "vpp", "zero_stage", "shard_group_size", "offload_optimizer")
    more = ("offload_activations", "overlap_dp", "overlap_pp")
    return Tail(**{name: getattr(x, name) for name in (*names, *more)})


def group_of(x: Layout) -> LayoutGroup:
    grid = ProcessGrid(x.tp, x.cp, x.cp_kind, x.pp, x.dp)
    rest = (x.ep, x.etp, x.micro_batch_size, x.sequence_parallel, x.precision, x.order)
    return LayoutGroup(grid, *rest)


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_a_bound_of_memory_is_below_the_peak_and_near_it(kind):
    """All but logits, and what experts' ranks and recomputation differ in, is in the bound."""
    p = problem(kind, 8, 80e9)
    space = small(kind, 8, 80e9, cp=(1,), pp=(1, 2, 4), etp=(1, AS_TP), **FEW)
    etps = set()
    near = []
    for _, peak, x in brute_force(p, replace(space, schedule=("1f1b",))):
        floor = peak_floor_bytes(p, x, (tail_of(x),), x.vpp)
        assert floor <= peak * (1 + 1e-12)
        etps.add(x.etp)
        near.append(floor / peak)
    assert min(near) > 0.8 and (max(etps) > 1) == (kind == "moe")


def test_a_bound_of_states_is_the_states_of_the_memory_model():
    p = problem("dense", 8, 80e9)
    for zero in (0, 1, 2, 3):
        x = Layout(4096, 32, tp=2, pp=2, dp=2, zero_stage=zero)
        stages = stage_memories(p.memory_facts, x, p.memory_parameters)
        for i, floor in states_floors_bytes(p, x, (tail_of(x),), 1):
            one, frac = stages[i], p.memory_parameters.fragmentation
            held = floor - p.memory_parameters.context_bytes
            assert frac * one.states_bytes <= held * (1 + 1e-12)  # and what is not sharded yet
            assert held <= frac * (one.states_bytes + one.working_bytes) * (1 + 1e-12)


def test_a_bound_of_time_is_of_its_own_group_and_near_its_fastest():
    p = problem("moe", 8, 80e9)
    space = small("moe", 8, 80e9, cp=(2,), tp=(1, 2), pp=(1, 2), **FEW)
    least: dict[LayoutGroup, float] = {}
    for step_s, _, x in brute_force(p, space):
        group = group_of(x)
        least[group] = min(step_s, least.get(group, step_s))
    together = Groups(p, space)
    assert len({g.ep for g in least}) > 1
    for group, step_s in least.items():
        tails = together.tails(group.grid, group.micro_batch_size)
        bound = together.bound_s(group, tails)
        fresh = Groups(replace(p, cache={}, memory_cache={}, kernel_cache={}), space)
        assert fresh.bound_s(group, fresh.tails(group.grid, group.micro_batch_size)) == bound
        assert 0.5 * step_s < bound <= step_s * (1 + 1e-12)
        for recompute in (("none", None), ("full", None)):
            floors = fresh.floors_bytes(group, tails, recompute)
            assert together.floors_bytes(group, tails, recompute) == floors


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_a_limit_leaves_out_what_is_slower_and_nothing_else(kind):
    p, space = problem(kind, 8, 80e9), small(kind, 8, 80e9)
    best = fastest(p, space)
    assert best is not None and fastest(p, space, limit_s=1.001 * best.step_s) == best
    assert fastest(p, space, limit_s=0.999 * best.step_s) is None


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_the_closest_moves_to_the_host_what_it_may(kind):
    pins = FEW | {"offload_optimizer": (False, True), "offload_activations": (False, True)}
    p, space = problem(kind, 8, 1e9), small(kind, 8, 1e9, cp=(1,), tp=(1, 2), **pins)
    least: dict[str, float] = {}
    for _, peak, x in brute_force(p, space):
        name = of(x)[0]
        least[name] = min(least.get(name, peak), peak)
    found = least_memory(p, space, set(least))
    assert {name: one.peak_bytes for name, one in found.items()} == pytest.approx(least)


def test_a_search_is_as_sharp_where_every_step_is_late():
    """Steps of twice the time have bounds of twice the time: as many layouts are computed."""
    p, space = problem("dense", 8, 80e9), small("dense", 8, 80e9)
    software = replace(p.software, maturity=replace(p.software.maturity, factor=2.0))
    late = replace(p, software=software, cache={}, kernel_cache={})
    assert late.late == 2.0 * p.late
    before, after = search(p, space), search(late, space)
    assert after.best.step_s == pytest.approx(2.0 * before.best.step_s)
    assert after.counts == before.counts


def test_progress_goes_from_nothing_to_all():
    told: list[float] = []
    search(problem("moe", 16, 80e9), small("moe", 16, 80e9), 0, told.append)
    assert told == sorted(told) and told and 0.0 <= told[0] and told[-1] <= 1.0


@pytest.mark.parametrize("n", [1, 2, 36, 97, 720])
def test_divisors(n):
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)
