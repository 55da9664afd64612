"""Figures of "How to Scale Your Model", GPU chapter, and of vendors' documents."""

import pytest

from gpuscale.core.fabric.clos import tree
from gpuscale.core.fabric.records import equal_ports
from gpuscale.core.kernel import chip
from gpuscale.core.kernel import roofline as rl
from gpuscale.core.limits import formulas as limits
from gpuscale.core.network.hierarchy import Level, bisection_bytes_per_s, hierarchical_time_s
from gpuscale.textbook.formulas import all_to_all_time_s, collective_time_s

BOOK = "How to Scale Your Model, GPU chapter"
NODE = (Level("node", 8, 450e9, True),)
POD = (*NODE, Level("leaf", 256, 50e9, True), Level("spine", None, 50e9, True))

PUBLISHED = [  # value, published, relative tolerance, source
    (chip.cuda_cores(132), 16896, 0, f"{BOOK}, quiz 1.1"),
    (chip.cuda_cores(148), 18944, 0, f"{BOOK}, quiz 1.1"),
    (chip.vector_flop_per_s(16896, 1.98e9, 1), 33.5e12, 0.002, f"{BOOK}, quiz 1.2"),
    (chip.critical_intensity(990e12, 3.35e12), 295, 0.002, f"{BOOK}, quiz 1.3"),
    (chip.critical_intensity(2250e12, 8e12), 281, 0.001, f"{BOOK}, quiz 1.3"),
    (chip.clock_from_vector_hz(80e12, 18944), 2.1e9, 0.006, f"{BOOK}, quiz 1.6"),
    (rl.matmul_bytes(64, 4096, 8192), 69e6, 0.005, f"{BOOK}, quiz 1.4"),
    (
        rl.roofline(rl.matmul_flop(512, 4096, 8192), 0, 2250e12, 8e12).time_s,
        15e-6,
        0.02,
        f"{BOOK}, quiz 1.4",
    ),
    (bisection_bytes_per_s(8, 450e9), 3.6e12, 0, f"{BOOK}, quiz 2.2"),
    (
        collective_time_s("all-gather", 1024 * 16384 * 2, 8, 450e9),
        65.2e-6,
        0.001,
        f"{BOOK}, collectives, pop quiz 1",
    ),
    (
        hierarchical_time_s("all-gather", 1e9, 1024, POD),
        1e9 / 413e9,
        0.001,
        f"{BOOK}, precise form: 413 GB/s",
    ),
    (limits.dp_min_tokens_per_gpu(990e12, 450e9), 2200, 0, f"{BOOK}, data parallelism"),
    (limits.dp_min_tokens_per_gpu(990e12, 400e9), 2475, 0, f"{BOOK}, data parallelism"),
    (limits.dp_min_tokens_per_gpu(2250e12, 400e9), 5625, 0, f"{BOOK}, quiz 5.1"),
    (limits.dp_min_tokens_per_gpu(2250e12, 3600e9), 625, 0, f"{BOOK}, appendix A"),
    (limits.tp_limit(28672, 990e12, 450e9), 13, 0.003, f"{BOOK}, tensor parallelism"),
    (limits.ep_large_min_ffn(990e12, 400e9), 20000, 0.011, f"{BOOK}, expert parallelism"),
]


@pytest.mark.parametrize(("value", "published", "rel", "source"), PUBLISHED)
def test_value_is_the_published_one(value, published, rel, source):
    assert value == pytest.approx(published, rel=max(rel, 1e-12), abs=0), source


def test_all_to_all_is_2_57_times_dearer_over_two_nodes():
    """The chapter says more than 4 times, by forms that hold for many nodes only."""
    inside = all_to_all_time_s(1e9, 8, 450e9)
    over = all_to_all_time_s(1e9, 2, 400e9)
    assert over / inside == pytest.approx(2.5714, rel=1e-4)


def test_superpod_switch_counts():
    """NVIDIA DGX SuperPOD H100 reference architecture: 8/4, 16/8, 32/16 leaf and spine."""
    counts = [tree([256 * n], equal_ports(64)).switches for n in (1, 2, 4)]
    assert counts == [(8, 4), (16, 8), (32, 16)]


@pytest.mark.parametrize(
    ("inner", "expected_s"), [(4, 0.0025), (8, 0.0025), (16, 0.00125), (64, 0.0003125)]
)
def test_reductions_of_arrays_sharded_on_an_inner_axis(inner, expected_s):
    from gpuscale.core.network.hierarchy import approximate_hierarchical_time_s

    time_s = approximate_hierarchical_time_s("reduce-scatter", 1e9, 450e9, 400e9, 8, inner)
    assert time_s == pytest.approx(expected_s, rel=1e-12)


def test_precise_sharded_form_uses_one_gpus_share_of_the_link():
    """With the node's 400 GB/s in its place the result would be 8 times too small."""
    time_s = hierarchical_time_s("all-gather", 8192 * 32768 * 2, 256, POD, inner=8)
    assert time_s == pytest.approx(31 / 32 * 536870912 / 400e9, rel=1e-12)


def test_two_nodes_are_bound_by_nvlink():
    assert hierarchical_time_s("all-gather", 1e9, 16, POD) == pytest.approx(1e9 * 7 / 8 / 450e9)


def test_nccl_busbw_published_for_in_switch_reduction():
    """SHARP's ideal gain is 2 (n-1)/n in time: 1.75 for 8 GPUs, not 2."""
    ring = collective_time_s("all-reduce", 1e9, 8, 450e9)
    sharp = collective_time_s("all-reduce", 1e9, 8, 450e9, algorithm="sharp")
    assert ring / sharp == pytest.approx(1.75)
