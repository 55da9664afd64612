"""What a search tries and leaves out: a looser bound finds the same best with more work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_search_exact import FEW, brute_force, problem, small, weighed

from gpuscale.core.habits import Refusal
from gpuscale.core.layout import ORDERS
from gpuscale.core.search import space as space_of
from gpuscale.core.search.engine import Walk, search
from gpuscale.core.search.results import FAMILY_CUTOFF, Incumbents, family, grid_of
from gpuscale.core.step.step import breakdown

FIXED = {"overlap_pp": (True,), "overlap_dp": (True,), "offload_optimizer": (False,)}
JOBS: list[tuple[str, int, float, dict[str, object], tuple[int, ...]]] = [
    ("dense", 8, 80, {}, (18, 0, 2350, 5593)),
    ("dense", 8, 7, {"offload_optimizer": (False, True)}, (30, 4674, 6972, 4246)),
    ("dense", 32, 80, {}, (28, 0, 10656, 11074)),
    ("dense", 32, 7, {}, (14, 2120, 8933, 10691)),
    ("dense", 32, 2, {}, (0, 21758, 0, 0)),
    ("dense", 32, 4, {"recompute_layers": (1, 2), "recompute": ("full",)}, (8, 9562, 828, 303)),
    (
        *("dense", 32, 7),
        {"cp": (1, 2, 4), "cp_kind": ("ring", "ulysses"), "order": ORDERS},
        (14, 1610, 6645, 6913),
    ),
    (
        *("dense", 16, 80),
        {"shard_group_size": (2, 4, 8), "zero_stage": (0, 1, 2, 3), "overlap_dp": (False, True)},
        (29, 0, 13605, 27904),
    ),
    ("moe", 16, 80, {}, (25, 0, 3184, 48140)),
    ("moe", 16, 7, {}, (19, 1815, 4679, 44836)),
    ("moe", 16, 4, {"etp": (1, 0), "sequence_parallel": (True, False)}, (0, 76257, 0, 0)),
    (
        *("moe", 16, 7),
        {"schedule": ("1f1b", "interleaved", "zb-h1", "dualpipe"), "pp": (2, 4)},
        (24, 2077, 7041, 33246),
    ),
    (
        *("dense", 16, 7),
        {"offload_activations": (False, True), "overlap_tp": (False, True)},
        (54, 3603, 0, 30145),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job[0]}-{job[1]}-{job[2]:g}GB")
def test_a_search_does_no_more_work_than_it_did(job):
    """(evaluated, too large, dominated, bounded); a change of a bound changes them: renew them."""
    kind, n_gpus, capacity_gb, pins, work = job
    p = problem(kind, n_gpus, capacity_gb * 1e9)
    p = replace(p, cache={}, kernel_cache={}, memory_cache={})
    result = search(p, small(kind, n_gpus, capacity_gb * 1e9, **FIXED | pins), n_next=3)
    counts = result.counts
    found = counts.evaluated, counts.too_large, counts.dominated, counts.bounded
    assert found == work
    again = search(p, small(kind, n_gpus, capacity_gb * 1e9, **FIXED | pins), n_next=3)
    assert again.best == result.best and again.counts.evaluated <= counts.evaluated


def test_weighed_and_fastest_are_searched_apart():
    p, space = problem("dense", 32, 7e9), small("dense", 32, 7e9, **FIXED)
    weighed, plain = search(p, space, 2), search(p, space, 2, weigh=False)
    assert plain.best is not None and plain.fastest is not None and weighed.best is not None
    assert plain.best.layout == plain.fastest.layout
    assert plain.best.weighed_s == plain.best.step_s == plain.fastest.step_s
    assert weighed.best.weighed_s > weighed.best.step_s >= plain.best.step_s
    limited = search(p, space, 2, limit_s=plain.best.step_s)
    assert limited.best is None and limited.counts.evaluated < plain.counts.evaluated


def test_what_is_next_and_what_is_slower():
    p, space = problem("moe", 16, 80e9), small("moe", 16, 80e9, **FIXED)
    result = search(p, space, 3)
    best = result.best
    assert best is not None
    grids = [grid_of(f.layout) for f in (best, *result.next_best)]
    assert len(set(grids)) == len(grids) == 4
    order = [f.weighed_s for f in (best, *result.next_best)]
    assert order == sorted(order)
    assert min(f.weighed_s for f in result.families.values()) == best.weighed_s
    assert all(f.weighed_s <= FAMILY_CUTOFF * best.weighed_s for f in result.families.values())
    assert not set(result.slower) & set(result.families)


def test_progress_rises_and_an_interruption_is_kept():
    p, space = problem("dense", 32, 80e9), small("dense", 32, 80e9)
    told: list[float] = []
    search(p, space, 3, told.append)
    assert all(0.0 <= a <= b <= 1.0 for a, b in zip(told, told[1:], strict=False))

    def interrupt(frac: float) -> None:
        raise KeyboardInterrupt

    cut = search(p, space, 3, interrupt)
    assert cut.interrupted == bool(told) and not search(p, space, 3).interrupted


def test_families_of_a_group_are_those_of_its_layouts():
    p, space = problem("moe", 16, 80e9), small("moe", 16, 80e9, **FIXED)
    walk = Walk(p, space, Incumbents(3))
    for grid in space_of.grids(space, p.facts):
        tails = walk.groups.tails(grid, 1)
        for ep in (1, 2):
            kinds = {(t.zero_stage, t.shard_group_size) for t in tails.exchanges}
            wanted = {family(grid.tp, grid.pp, grid.cp, ep, *kind) for kind in kinds}
            assert walk.families(grid, ep, tails) == wanted
    assert walk.known.all_families >= {"EP + TP + PP + DP", "with CP", "FSDP", "EP + HSDP"}


@pytest.mark.parametrize(("pp", "schedule"), [(1, "1f1b"), (2, "1f1b"), (2, "interleaved")])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_time_is_without_what_its_layout_excludes(recompute, pp, schedule):
    """Graphs of layers end with full recomputation, the hidden exchange with stages not cut up."""
    base = problem("moe", 8, 80e9)
    tuned = replace(base.software, overlap_ep=True, cuda_graphs="layer")
    p = replace(base, software=tuned, cache={}, kernel_cache={}, memory_cache={})
    pins = {"tp": (1,), "pp": (pp,), "ep": (4, 8), "vpp": (2,), "recompute": (recompute,)}
    space = small("moe", 8, 80e9, **FEW | pins | {"schedule": (schedule,)})
    every = []
    for _, peak, x in brute_force(p, space):
        step_s = breakdown(p.model, p.hardware, tuned, x)[0].total_s
        every.append((*weighed(p, space, step_s, x), peak, x))
    best, result = min(every, key=lambda one: one[0]), search(p, space, 3)
    assert result.best is not None
    assert result.best[:2] == pytest.approx(best[:2], rel=1e-12)
    for found in (result.best, *result.next_best):
        own = breakdown(p.model, p.hardware, tuned, found.layout)[0].total_s
        assert found.step_s == pytest.approx(own, rel=1e-12)


def test_a_smaller_shard_group_that_does_not_fit_says_nothing_of_a_larger():
    alone = {"tp": (1,), "pp": (1,), "zero_stage": (3,), "shard_group_size": (2, 4), "fsdp": False}
    p, space = problem("dense", 8, 80e9), small("dense", 8, 80e9, **FEW | alone)
    least = {2: 1e99, 4: 1e99}
    for _, peak, x in brute_force(p, space):
        least[x.shard_group_size] = min(least[x.shard_group_size], peak)
    assert least[4] < least[2]
    room = replace(p, capacity_bytes=(least[2] + least[4]) / 2)
    best = search(room, space, 3).best
    assert best is not None and best.layout.shard_group_size == 4


def test_what_a_framework_refuses_is_not_of_the_space():
    """Nothing of TP 2 is left, so all of it is seen and taken off what was declared."""
    two = {"tp": (1, 2), "recompute": ("none",)}
    p, space = problem("dense", 8, 80e9), small("dense", 8, 80e9, **FEW | two)
    row = Refusal({"tp": ">1"}, "because", "file.py")
    soft = replace(p.facts.runs_on, refused=(row,))
    result = search(replace(p, facts=replace(p.facts, runs_on=soft)), space, 99)
    assert result.best is not None and result.best.layout.tp == 1
    assert result.counts.declared == search(p, replace(space, tp=(1,)), 99).counts.declared
