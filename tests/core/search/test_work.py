"""What a search tries and leaves out: a looser bound finds the same best with more work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_search_exact import problem, small

from gpuscale.core.layout import ORDERS
from gpuscale.core.search.engine import search
from gpuscale.core.search.results import FAMILY_CUTOFF, grid_of

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
