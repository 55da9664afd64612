"""Collectives of links with round constants, levels and switches, by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.kernel.calibration import LogAxis, PlaneTable
from gpuscale.core.network.calibration import (
    GENERAL_CUSTOM_OP,
    FabricCalibration,
    LinkCalibration,
    OpCalibration,
    collective_interval_s,
    slowed_link,
    soft_min,
)
from gpuscale.core.network.collective import (
    all_gather_traffic,
    approximate_time_s,
    bandwidths_bytes_per_s,
    busbw_factor,
    check_ranks,
    in_switch_all_reduce_traffic,
    latency_steps,
    traffic_factor,
)
from gpuscale.core.network.expected import (
    RankGroup,
    blend_levels,
    bound_s,
    deduplicated_frac,
    destination_nodes,
    exchange_traffic,
    group_time_s,
    traffic_of,
    tree_channels_s,
)
from gpuscale.core.network.hierarchy import (
    Level,
    approximate_hierarchical_time_s,
    bisection_bytes_per_s,
    level_times,
    network_levels,
    network_report,
    spans,
)
from gpuscale.core.network.ideal import (
    Routing,
    Torus,
    ideal_collective,
    level_all_to_all_times_s,
    reached_frac,
    sweep_sizes,
    torus_bisection_time_s,
)
from gpuscale.core.network.terms import collective_term

# a link that carries what its data sheet says: 10 us to begin, 1 us a hop, bulk protocol alone
PLAIN = OpCalibration(
    base_s=10e-6, hop_s=1e-6, eff_frac=1.0, small_group_loss=0.0, ll_eff_frac=1e-12,
    bulk_factor=1.0, ramp_s=0.0,
)  # fmt: skip
LINK = LinkCalibration("plain", {"ring": PLAIN})
FABRIC = FabricCalibration(LINK, LINK)
B, UP, OUT = 1e9, 400e9, 50e9
FREE = 1e30


def timed(op, n, n_in, up=UP, out=OUT, fabric=FABRIC, **more):
    return group_time_s(RankGroup(op, B, n, n_in, fabric, up, out, **more))


INSIDE = [  # operation, ranks, bytes over a link, hops
    ("all-gather", 8, 7 / 8, 7),
    ("reduce-scatter", 4, 3 / 4, 3),
    ("all-reduce", 8, 14 / 8, 14),
    ("all-to-all", 8, 7 / 8, 3),
    ("broadcast", 8, 1, 3),
    ("send-recv", 2, 1, 1),
]


@pytest.mark.parametrize(("op", "n", "moved", "hops"), INSIDE)
def test_one_domain(op, n, moved, hops):
    want = 10e-6 + hops * 1e-6 + moved * B / UP
    assert timed(op, n, n, algorithm="ring" if op == "all-reduce" else "auto") == pytest.approx(
        want
    )
    assert bound_s(op, B, n, n, UP, OUT) == pytest.approx(moved * B / UP)
    assert timed(op, 1, 1) == 0.0
    assert timed(op, n, n, algorithm="ring") == pytest.approx(want)


BEYOND = [  # operation, bytes over a link inside, of a NIC, hops inside and out; 2 x 8 ranks
    ("all-gather", 15 / 16, 15 / 16 / 8, 15 - 15 * 2 / 16, 15 * 2 / 16),
    ("all-reduce", 30 / 16, 30 / 16 / 8, 30 - 30 * 2 / 16, 30 * 2 / 16),
    ("all-to-all", 7 / 16, 8 / 16, 3, 1),
    ("broadcast", 1, 1 / 8, 3, 1),
    ("send-recv", 0, 1, 0, 1),
]


@pytest.mark.parametrize(("op", "inner", "outer", "near", "far"), BEYOND)
def test_two_domains(op, inner, outer, near, far):
    """The slower level alone, and both, as they are blended."""
    start = 10e-6 + (near + far) * 1e-6
    how = {"algorithm": "ring"} if op == "all-reduce" else {}
    network = timed(op, 16, 8, up=FREE, **how)
    assert network == pytest.approx(start + outer * B / OUT)
    if inner:
        assert timed(op, 16, 8, out=FREE, **how) == pytest.approx(start + inner * B / UP)
    both = blend_levels(inner * B / UP, outer * B / OUT)
    assert timed(op, 16, 8, **how) == pytest.approx(start + both)


def test_bounds_of_two_domains():
    """A reduce-scatter inside, an exchange of shards between, an all-gather inside."""
    assert bound_s("all-reduce", B, 16, 8, UP, FREE) == pytest.approx(14 / 8 * B / UP)
    assert bound_s("all-reduce", B, 16, 8, FREE, OUT) == pytest.approx(2 / 2 / 8 * B / OUT)
    assert bound_s("all-gather", B, 32, 8, FREE, OUT) == pytest.approx(3 / 4 / 8 * B / OUT)
    assert bound_s("all-reduce", B, 16, 8, UP, FREE, in_switch=True) == pytest.approx(B / UP)
    assert bound_s("all-reduce", B, 2, 2, UP, OUT, in_switch=True) == pytest.approx(B / UP)
    assert bound_s("all-to-all", B, 16, 8, FREE, OUT) == pytest.approx(B / 2 / OUT)
    assert bound_s("all-to-all", B, 16, 8, UP, FREE) == pytest.approx(7 / 16 * B / UP)
    assert bound_s("send-recv", B, 2, 1, UP, OUT) == pytest.approx(B / OUT)
    assert bound_s("send-recv", B, 16, 8, UP, FREE) == pytest.approx(B / 8 / FREE)
    assert bound_s("broadcast", B, 16, 8, UP, FREE) == pytest.approx(B / UP)


@given(st.floats(1e-9, 1.0), st.floats(1e-9, 1.0))
def test_levels_and_protocols_are_blended_within_their_bounds(a, b):
    assert max(a, b) <= blend_levels(a, b) <= 2 ** (1 / 6) * max(a, b) * (1 + 1e-12)
    assert blend_levels(a, b) == blend_levels(b, a) and blend_levels(a, 0.0) == a
    assert 0.9 * min(a, b) <= soft_min(a, b) <= min(a, b) and soft_min(a, b) == soft_min(b, a)
    assert soft_min(0.0, a) == 0.0


def test_a_token_crosses_the_network_once():
    """Half of what goes to the other node: the rest is handed on inside, to seven of eight."""
    half = timed("moe-dispatch", 16, 8, up=FREE, network_frac=0.5)
    assert half == pytest.approx(14e-6 + 0.5 * 8 / 16 * B / OUT)
    inside = timed("moe-dispatch", 16, 8, out=FREE, network_frac=0.5)
    assert inside == pytest.approx(14e-6 + (7 / 16 + 8 / 16 * 7 / 8) * B / UP)
    for bad in (0.0, 1.5):
        with pytest.raises(ValueError, match="network_frac"):
            timed("moe-dispatch", 16, 8, network_frac=bad)
    with pytest.raises(ValueError, match="scale-out"):
        timed("all-gather", 16, 8, out=0.0)
    with pytest.raises(ValueError, match="scale-up"):
        timed("all-gather", 16, 8, up=0.0)


def test_trees_switches_and_small_kernels():
    nvls = replace(LINK, ops={"ring": PLAIN, "nvls": PLAIN})
    switched = FabricCalibration(nvls, LINK)
    # up and down again by the switches: the buffer crosses a link once
    assert timed("all-reduce", 8, 8, fabric=switched) == pytest.approx(24e-6 + B / UP)
    assert timed("all-reduce", 4, 4, fabric=switched) == pytest.approx(16e-6 + 1.5 * B / UP)
    # a tree: twice the buffer inside, its half up and down a NIC of eight between two nodes
    tree = timed("all-reduce", 16, 8, algorithm="tree", up=FREE)
    assert tree <= timed("all-reduce", 16, 8, algorithm="ring", up=FREE)
    inside = timed("all-reduce", 16, 8, algorithm="tree", out=FREE)
    assert inside == pytest.approx(10e-6 + 16e-6 + 2 * B / UP)
    capped = replace(LINK, tree_channel_bytes_per_s=(20e9, 10e9))
    for nodes, channel in ((2, 20e9), (4, 10e9)):
        slow = timed(
            "all-reduce",
            8 * nodes,
            8,
            fabric=FabricCalibration(capped, LINK, 0.5),
            algorithm="tree",
        )
        assert slow == pytest.approx(2 * B / (channel * 0.5 * 8))
    small = FabricCalibration(replace(LINK, ops={"ring": PLAIN, "custom": PLAIN}), LINK)
    two = timed("all-reduce", 8, 8, fabric=small, algorithm="custom")
    assert two == pytest.approx(17e-6 + 14 / 8 * B / UP)  # two shots; one would send seven buffers
    pair = timed("all-reduce", 2, 2, fabric=small, algorithm="custom")
    assert pair == pytest.approx(11e-6 + B / UP)
    few = FabricCalibration(replace(small.inner, custom_ranks=4), LINK)
    ring = timed("all-reduce", 8, 8, fabric=few, algorithm="custom")
    assert ring == pytest.approx(24e-6 + 14 / 8 * B / UP)


def test_links_that_are_shared_meshed_bridged_or_slow():
    shared = FabricCalibration(replace(LINK, shared_bytes_per_s=UP), LINK)
    assert timed("all-gather", 8, 8, fabric=shared) == pytest.approx(17e-6 + 8 * 7 / 8 * B / UP)
    mesh = FabricCalibration(replace(LINK, mesh_ranks=8), LINK)
    assert timed("all-gather", 2, 2, fabric=mesh) == pytest.approx(11e-6 + 7 * B / 2 / UP)
    assert timed("all-gather", 8, 8, fabric=mesh) == pytest.approx(timed("all-gather", 8, 8))
    bridge = FabricCalibration(LINK, LINK, bridge=LINK, bridge_bytes_per_s=2 * UP)
    assert timed("all-gather", 2, 2, fabric=bridge) == pytest.approx(11e-6 + B / 2 / (2 * UP))
    assert timed("all-gather", 4, 4, fabric=bridge) == pytest.approx(13e-6 + 3 / 4 * B / UP)
    lossy = replace(PLAIN, eff_frac=0.8, small_group_loss=0.5)
    some = FabricCalibration(LinkCalibration("x", {"ring": lossy}), LINK)
    assert timed("all-gather", 2, 2, fabric=some) == pytest.approx(
        11e-6 + B / 2 / (UP * 0.8 * 0.75)
    )
    slow = slowed_link(LINK, 0.5, 3.0)
    half = timed("all-gather", 8, 8, fabric=FabricCalibration(slow, LINK))
    assert half == pytest.approx(3 * 17e-6 + 2 * 7 / 8 * B / UP)
    assert slowed_link(LINK, 1.0, 1.0) is LINK
    for name in ("nvls", "all-to-all", "moe-combine", "ring"):
        assert LINK.op(name) is PLAIN


# --- levels --------------------------------------------------------------------------------------

POD = (Level("node", 8, 450e9), Level("leaf", 256, 50e9), Level("spine", None, 25e9))


def test_levels_by_hand():
    """1,024 ranks: 8 in a node, 32 nodes at 400 GB/s, 4 leafs at 256 x 25 GB/s."""
    times = {t.name: t for t in level_times("all-gather", B, 1024, POD, hop_s=1e-6)}
    assert times["node"].time_s == pytest.approx(7 / 8 * B / 450e9 + 7e-6)
    assert times["leaf"].time_s == pytest.approx(31 / 32 * B / (8 * 50e9) + 31e-6)
    assert times["spine"].time_s == pytest.approx(3 / 4 * B / (256 * 25e9) + 3e-6)
    assert times["spine"].bandwidth_bytes_per_s == pytest.approx(256 * 25e9 * 4 / 3)
    assert [(s.n_children, s.gpus_below) for s in spans(100, POD)] == [(8, 1), (13, 8), (1, 100)]
    two = {t.name: t for t in level_times("all-gather", B, 64, POD, inner=16)}
    assert set(two) == {"leaf"} and two["leaf"].n_children == 4
    assert two["leaf"].time_s == pytest.approx(3 / 4 * B / (16 * 50e9))
    for n, want in ((2, 450e9), (16, 50e9), (1024, 25e9)):
        (one,) = level_times("send-recv", B, n, POD, hop_s=1e-6)
        assert one.time_s == pytest.approx(B / want + 1e-6)
    assert level_times("send-recv", B, 1, POD) == ()
    sharp = (replace(POD[0], reduces=True), *POD[1:])
    used = [t.algorithm for t in level_times("all-reduce", B, 1024, sharp, "sharp")]
    assert used == ["sharp", "ring", "ring"]
    with pytest.raises(ValueError, match="1 to 8 GPUs, got 9"):
        level_times("all-gather", B, 8, POD, inner=9)
    with pytest.raises(ValueError, match="joins at most 256 GPUs, got 257"):
        level_times("all-gather", B, 257, POD[:2])
    with pytest.raises(ValueError, match="no link"):
        level_times("all-gather", B, 2, ())


def test_rounded_times_of_the_book():
    """GPU chapter: B / 450 GB/s inside, B / 400 GB/s a node beyond, shared by sixteen shards."""
    over = (450e9, 400e9)
    assert approximate_hierarchical_time_s("all-gather", B, *over) == pytest.approx(B / 400e9)
    assert approximate_hierarchical_time_s("all-reduce", B, *over) == pytest.approx(2 * B / 400e9)
    assert approximate_hierarchical_time_s("all-gather", B, *over, inner=16) == pytest.approx(
        B / 400e9 / 2
    )
    fast = approximate_hierarchical_time_s("all-gather", B, 100e9, 4000e9, inner=2)
    assert fast == pytest.approx(B / 100e9 / 2)


def test_all_to_all_by_level():
    """A rank holds 1/n of the array: inside 7 parts of 16 at 450, out 8 of 16 at 50 GB/s."""
    inside, out = level_all_to_all_times_s(B, 16, POD[:2])
    assert inside == pytest.approx(B / 16 * 7 / 16 / 450e9)
    assert out == pytest.approx(B / 16 * 8 / 16 / 50e9)
    top = level_all_to_all_times_s(B, 16, POD[:2], top_k=4)
    assert top == pytest.approx((inside / 4, out / 4))
    once = level_all_to_all_times_s(B, 16, POD[:2], top_k=1, once_per_node=True)[1]
    assert once == pytest.approx(out * (1 / 2) * 2 / 16)  # one of two nodes, of sixteen ranks
    assert reached_frac(4, 9) == 1.0 and reached_frac(4, None) == 1.0
    assert reached_frac(4, 2, "with-replacement") == pytest.approx(7 / 16)
    # two of eight experts on four ranks: 1 - C(6,2)/C(8,2)
    assert reached_frac(4, 2, "without-replacement", 8) == pytest.approx(1 - 15 / 28)
    assert reached_frac(2, 5, "without-replacement", 8) == 1.0
    for bad in ((4, 0), (4, 2, "without-replacement", 1), (4, 2, "some")):
        with pytest.raises(ValueError, match="top_k|n_experts|kind"):
            reached_frac(*bad)
    assert torus_bisection_time_s(B, (4, 8), 100e9) == pytest.approx(B * 8 / (8 * 32 * 100e9))
    assert torus_bisection_time_s(B, (1,), 100e9) == 0.0
    with pytest.raises(ValueError, match="n_ranks"):
        torus_bisection_time_s(B, (0, 4), 100e9)


def test_a_collective_is_its_slowest_level_and_all_its_hops():
    found = ideal_collective("all-gather", B, 1024, POD, hop_s=1e-6)
    assert found.latency_s == pytest.approx((7 + 31 + 3) * 1e-6) and found.steps == 41
    assert found.bandwidth_s == pytest.approx(31 / 32 * B / 400e9)
    assert found.time_s == found.latency_s + found.bandwidth_s and found.binding_level == "leaf"
    assert found.algbw_bytes_per_s == pytest.approx(B / found.time_s)
    assert found.busbw_bytes_per_s == pytest.approx(B * 1023 / 1024 / found.time_s)
    assert found.approximate_s == pytest.approx(B / 400e9)
    shards = ideal_collective("all-gather", B, 1024, POD, inner=4)
    assert shards.n_ranks == 256 and shards.nccl_size_bytes == pytest.approx(B / 4)
    apart = ideal_collective("all-to-all", B, 16, POD[:2], hop_s=1e-6)
    assert (apart.steps, apart.latency_s) == (1, 1e-6)
    assert apart.nccl_size_bytes == pytest.approx(B / 16)
    assert apart.bandwidth_s == pytest.approx(B / 16 / 2 / 50e9)
    assert apart.approximate_s == pytest.approx(B / 2 / 400e9)
    routed = ideal_collective("all-to-all", B, 16, POD[:2], routing=Routing(4))
    assert routed.bandwidth_s == pytest.approx(apart.bandwidth_s / 4)
    pod = ideal_collective("all-to-all", B, 64, POD, torus=Torus((4, 4, 4), 90e9))
    assert pod.time_s == pytest.approx(B * 4 / (8 * 64 * 90e9)) and pod.binding_level == "torus"
    slice_s = ideal_collective("all-to-all", B, 32, POD, torus=Torus((4, 4, 4), 90e9)).time_s
    assert slice_s == pytest.approx(B * 4 / (8 * 32 * 90e9))  # 4 x 4 x 2
    alone = ideal_collective("all-gather", B, 1, POD)
    assert (alone.time_s, alone.approximate_s, alone.binding_level) == (0.0, 0.0, "")
    with pytest.raises(ValueError, match="inner axis"):
        ideal_collective("all-to-all", B, 16, POD, inner=2)
    spread = ideal_collective("broadcast", B, 16, POD)
    assert spread.approximate_s == pytest.approx(B / 400e9)
    assert ideal_collective("broadcast", B, 8, POD).approximate_s == pytest.approx(B / 450e9)


def test_sizes_of_a_sweep():
    assert sweep_sizes(1.0, 8.0, 2.0) == (1.0, 2.0, 4.0, 8.0)
    assert sweep_sizes(5.0, 5.0) == (5.0,)


@given(st.integers(1, 64), st.integers(1, 16))
def test_switches_send_what_they_receive(nodes, gpus):
    """An all-gather: every GPU ends with the array; what goes up comes in above."""
    t = all_gather_traffic(B, nodes, gpus)
    n = nodes * gpus
    assert t.node_out_gpus_bytes * nodes == pytest.approx(n * B * (n - 1) / n)
    assert t.top_in_bytes == pytest.approx(nodes * t.node_out_above_bytes)
    assert t.top_out_bytes == pytest.approx(nodes * t.node_in_above_bytes)
    assert t.node_in_bytes == t.node_in_gpus_bytes + t.node_in_above_bytes
    assert t.node_in_gpus_bytes * nodes == pytest.approx(B)
    assert t.node_out_bytes == t.node_out_above_bytes + t.node_out_gpus_bytes
    one = in_switch_all_reduce_traffic(B, gpus)
    assert one.in_bytes == pytest.approx(gpus * B) == pytest.approx(one.out_bytes)
    assert one.reduced_out_bytes == pytest.approx(B) == pytest.approx(one.residual_in_bytes)


# --- terms ---------------------------------------------------------------------------------------

NAMES = {"exp": math.exp, "sqrt": math.sqrt, "max": max, "min": min}


def evaluated(term):
    """Check that every formula gives its value; return how many there were."""
    assert term.value == pytest.approx(eval(term.formula, NAMES, term.inputs), rel=1e-9), term.name
    return 1 + sum(evaluated(child) for child in term.children)


REAL = OpCalibration(
    table=PlaneTable(LogAxis(20, 5, 3), LogAxis(0, 2, 3), tuple(i / 20 for i in range(9)))
)
USUAL = LinkCalibration("usual", {"ring": REAL, "all-reduce": REAL, "custom": GENERAL_CUSTOM_OP})
LINKS = {
    "usual": FabricCalibration(USUAL, LINK),
    "nvls": FabricCalibration(replace(USUAL, ops=USUAL.ops | {"nvls": REAL}), USUAL),
    "mesh": FabricCalibration(replace(USUAL, mesh_ranks=16, shared_bytes_per_s=UP), USUAL),
    "tree": FabricCalibration(replace(USUAL, tree_channel_bytes_per_s=(2e9, 1e9)), USUAL),
    "bridge": FabricCalibration(USUAL, USUAL, bridge=USUAL, bridge_bytes_per_s=2 * UP),
}


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize(
    ("op", "n", "n_in", "algorithm", "frac"),
    [
        ("all-gather", 8, 8, "auto", 1.0),
        ("reduce-scatter", 32, 8, "auto", 1.0),
        ("all-to-all", 16, 8, "auto", 1.0),
        ("moe-dispatch", 16, 8, "auto", 0.5),
        ("broadcast", 16, 8, "auto", 1.0),
        ("send-recv", 2, 1, "auto", 1.0),
        ("all-reduce", 2, 2, "auto", 1.0),
        ("all-reduce", 8, 8, "auto", 1.0),
        ("all-reduce", 16, 8, "auto", 1.0),
        ("all-reduce", 16, 8, "tree", 1.0),
        ("all-reduce", 16, 8, "ring", 1.0),
        ("all-reduce", 8, 8, "nvls", 1.0),
        ("all-reduce", 8, 8, "custom", 1.0),
        ("all-reduce", 2048, 2048, "custom", 1.0),
    ],
)
def test_terms_are_what_was_computed(links, op, n, n_in, algorithm, frac):
    for size in (0.5, 1e5, B):
        group = RankGroup(op, size, n, n_in, LINKS[links], UP, OUT, algorithm, frac, "toy")
        term = collective_term(group)
        assert evaluated(term) >= 4
        assert term.value == group_time_s(group)
        inside = n_in == n
        assert ("correction" in term.inputs) == (inside and size > 1 and algorithm != "custom")
        ways = [way.name for way in term.children]
        if op != "all-reduce":
            assert ways == ["algorithm_s"]
        else:
            switch = links == "nvls" and n_in >= 8
            auto, custom = algorithm == "auto", algorithm == "custom"
            assert ways == [
                *["ring_s"] * (algorithm in ("auto", "ring", "custom")),
                *["in_switch_s"]
                * (algorithm == "nvls" or (switch and (auto or algorithm == "custom"))),
                *["tree_s"] * (algorithm == "tree" or (auto and not inside and not switch)),
                *["one_shot_s", "two_shot_s"] * (custom and n <= 1024),
            ]


def test_terms_of_one_link():
    group = RankGroup("all-gather", B, 8, 8, FABRIC, 0.0, 0.0, "auto", 1.0, "toy")
    with pytest.raises(ValueError, match="scale-up"):
        collective_term(group)
    away = group._replace(n_in=1, out=OUT)  # no link inside is needed
    assert evaluated(collective_term(away)) > 3


# --- factors, levels, trees ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "algorithm", "n", "factor", "hops", "many", "bus"),
    [
        ("all-gather", "ring", 4, 3 / 4, 3, 1.0, 3 / 4),
        ("reduce-scatter", "ring", 4, 3 / 4, 3, 1.0, 3 / 4),
        ("all-reduce", "ring", 4, 6 / 4, 6, 2.0, 6 / 4),
        ("all-reduce", "tree", 2, 1.0, 2, 2.0, 1.0),
        ("all-reduce", "tree", 6, 2.0, 6, 2.0, 10 / 6),
        ("all-reduce", "sharp", 4, 1.0, 2, 1.0, 6 / 4),
        ("all-reduce", "halving-doubling", 6, 10 / 6, 6, 2.0, 10 / 6),
        ("broadcast", "ring", 6, 1.0, 3, 1.0, 1.0),
        ("send-recv", "ring", 6, 1.0, 1, 1.0, 1.0),
    ],
)
def test_factors_of_a_collective(op, algorithm, n, factor, hops, many, bus):
    assert traffic_factor(op, n, algorithm) == pytest.approx(factor)
    assert latency_steps(op, n, algorithm) == hops
    assert approximate_time_s(op, 8.0, 2.0, algorithm) == 4.0 * many
    assert busbw_factor(op, n) == pytest.approx(bus)
    assert traffic_factor(op, 1, algorithm) == 0.0 == latency_steps(op, 1, algorithm)
    assert latency_steps("all-to-all", n) == 1 and busbw_factor("all-to-all", 4) == 3 / 4


def test_what_factors_refuse():
    for call, word in (
        (lambda: check_ranks(0), "n_ranks"),
        (lambda: check_ranks(1, 0.0), "bandwidth"),
        (lambda: check_ranks(1, 1.0, -1.0), "bytes"),
        (lambda: traffic_factor("gossip", 2), "unknown"),
        (lambda: traffic_factor("all-reduce", 2, "gossip"), "algorithm"),
    ):
        with pytest.raises(ValueError, match=word):
            call()
    check_ranks(1, 0.5, 0.0)
    assert bandwidths_bytes_per_s("all-to-all", 8.0, 4, 2.0) == (1.0, 0.75)
    assert bandwidths_bytes_per_s("all-reduce", 8.0, 4, 2.0) == (4.0, 6.0)
    assert bandwidths_bytes_per_s("all-reduce", 8.0, 4, 0.0) == (0.0, 0.0)


def test_hops_over_the_network_have_their_own_time():
    """A ring of 16 over two nodes crosses 2 x 15/16 times a pass; a tree once up and down."""
    slow = LinkCalibration("slow", {"ring": replace(PLAIN, hop_s=1e-3)})
    apart = FabricCalibration(LINK, slow)
    for op, how, far in (
        ("all-gather", "auto", 15 / 8),
        ("all-reduce", "ring", 30 / 8),
        ("all-reduce", "tree", 2),
        ("all-to-all", "auto", 1),
        ("broadcast", "auto", 1),
        ("send-recv", "auto", 1),
    ):
        more = timed(op, 16, 8, fabric=apart, algorithm=how) - timed(op, 16, 8, algorithm=how)
        assert more == pytest.approx(far * (1e-3 - 1e-6), rel=1e-6)
        assert timed(op, 8, 8, fabric=apart, algorithm=how) == timed(op, 8, 8, algorithm=how)
    four = timed("all-to-all", 8, 2, fabric=apart) - timed("all-to-all", 8, 2)
    assert four == pytest.approx(2 * (1e-3 - 1e-6), rel=1e-6)


def test_switches_reduce_where_they_can_and_nobody_asked_for_another_way():
    nvls = FabricCalibration(LinkCalibration("nvls", {"ring": PLAIN, "nvls": PLAIN}), LINK)
    for algorithm, ranks, fabric, want in (
        ("auto", 8, nvls, True),
        ("custom", 8, nvls, True),
        ("ring", 8, nvls, False),
        ("tree", 8, nvls, False),
        ("auto", 8, FABRIC, False),
        ("auto", 2, nvls, False),
        ("nvls", 8, FABRIC, True),
    ):
        x = RankGroup("all-reduce", B, ranks, ranks, fabric, UP, OUT, algorithm)
        assert x.in_switch is want, (algorithm, ranks)


def test_tokens_that_go_to_every_rank_are_sent_once_each():
    """Without duplicates to leave out nothing is fanned out again inside the other node."""
    assert traffic_of("all-to-all", B, 16, 8) == exchange_traffic(B, 16, 8)
    half = traffic_of("all-to-all", B, 16, 8, 0.5)
    assert half.outer_bytes == exchange_traffic(B, 16, 8).outer_bytes / 2
    assert half.inner_bytes - exchange_traffic(B, 16, 8).inner_bytes == B / 2 * 7 / 8


def test_small_figures_are_no_exceptions():
    """Rates and bytes below one are as good as others."""
    half = group_time_s(RankGroup("all-gather", 0.5, 2, 2, FABRIC, 0.5))
    assert half == pytest.approx(11e-6 + 0.5)
    assert group_time_s(RankGroup("all-gather", 0.5, 2, 1, FABRIC, 0.0, 0.5)) > 0.5
    assert 0.0 < group_time_s(RankGroup("all-gather", 0.0, 2, 2, FABRIC, 1.0)) <= 11e-6
    assert bound_s("all-gather", 1.0, 2, 2, 0.5, 0.0) == 1.0
    capped = FabricCalibration(replace(LINK, tree_channel_bytes_per_s=(0.5, 0.25)), LINK)
    assert tree_channels_s(1.0, 4.0, 2.0, capped) == 2.0
    assert tree_channels_s(1.0, 6.0, 2.0, capped) == 4.0
    for n, n_in, fabric in ((4.0, 4.0, capped), (4.0, 1.0, capped), (4.0, 2.0, FABRIC)):
        assert tree_channels_s(1.0, n, n_in, fabric) == 0.0
    for bad in ((0, 1), (2, 0), (2, 3)):
        with pytest.raises(ValueError, match="bad group"):
            group_time_s(RankGroup("all-gather", 1.0, *bad, FABRIC, 1.0, 1.0))
    with pytest.raises(ValueError, match="unknown collective"):
        timed("gossip", 2, 2)
    with pytest.raises(ValueError, match="unknown algorithm"):
        timed("all-reduce", 2, 2, algorithm="gossip")


@pytest.mark.parametrize(
    ("top_k", "nodes", "limit", "met"),
    [(1, 4, None, 1.0), (2, 4, None, 1.75), (2, 4, 2, 1.5), (3, 1, None, 1.0), (2, 4, 8, 1.75)],
)
def test_nodes_of_a_tokens_experts(top_k, nodes, limit, met):
    assert destination_nodes(top_k, nodes, limit) == pytest.approx(met)
    assert deduplicated_frac(top_k, nodes, limit) == pytest.approx(met / top_k)


def test_interval_of_a_collective():
    inner = replace(PLAIN, low_frac=0.9, high_frac=1.1)
    outer = replace(PLAIN, low_frac=0.5, high_frac=2.0)
    custom = replace(PLAIN, low_frac=0.8, high_frac=1.2)
    links = FabricCalibration(
        LinkCalibration("i", {"ring": inner, "custom": custom}),
        LinkCalibration("o", {"ring": outer}),
    )
    assert collective_interval_s(2.0, "all-gather", 8, 8, links) == (1.8, 2.2)
    assert collective_interval_s(2.0, "all-reduce", 16, 8, links) == (1.0, 4.0)
    assert collective_interval_s(2.0, "all-reduce", 8, 8, links, "custom") == (1.6, 2.4)


def cluster(**changed):
    fields = {
        "scaleup_domain_gpus": 8,
        "gpus_per_node": 8,
        "scaleup_bytes_per_s": 450e9,
        "gpu": SimpleNamespace(scaleup_bytes_per_s=900e9),
        "egress_bytes_per_s_per_gpu": 50e9,
        "in_switch_reduction_scaleup": True,
        "in_switch_reduction_scaleout": False,
        "levels": (SimpleNamespace(name="leaf", gpus=32, oversubscription=2.0),),
        "n_scaleup_switches": 4,
    }
    return SimpleNamespace(**(fields | changed))


def test_levels_of_a_cluster():
    node, leaf = Level("node", 8, 450e9, True), Level("leaf", 32, 25e9)
    assert network_levels(cluster()) == (node, leaf)
    assert network_levels(cluster(scaleup_bytes_per_s=None))[0].bytes_per_s_per_gpu == 900e9
    assert network_levels(cluster(levels=())) == (node, Level("network", None, 50e9))
    assert network_levels(cluster(egress_bytes_per_s_per_gpu=None)) == (node,)
    for alone in (
        {"scaleup_domain_gpus": 1},
        {"scaleup_bytes_per_s": None, "gpu": SimpleNamespace(scaleup_bytes_per_s=None)},
    ):
        assert network_levels(cluster(**alone)) == (Level("node", 1, 50e9), leaf)


def test_bandwidth_of_every_level():
    """20 GPUs: three nodes of a leaf; 8/7 of NVLink, 3/2 of a node's 8 x 25 GB/s."""
    report = network_report(cluster(), 20)
    node, leaf = report.levels
    assert (report.n_gpus, report.n_nodes, report.n_scaleup_switches) == (20, 3, 12)
    assert (node.n_children, node.gpus_below, node.gpus_under) == (8, 1, 8)
    assert (leaf.n_children, leaf.gpus_below, leaf.gpus_under) == (3, 8, 20)
    assert node.collective_bytes_per_s == pytest.approx(450e9 * 8 / 7)
    assert leaf.collective_bytes_per_s == pytest.approx(200e9 * 3 / 2)
    assert (report.slowest_level, report.collective_bytes_per_s) == (
        "leaf",
        leaf.collective_bytes_per_s,
    )
    assert (leaf.bytes_per_s_per_gpu, leaf.bytes_per_s_per_node) == (25e9, 200e9)
    assert (leaf.child_bytes_per_s, leaf.total_bytes_per_s) == (200e9, 600e9)
    assert (node.bisection_bytes_per_s, leaf.bisection_bytes_per_s) == (8 * 450e9, 20 * 25e9)
    one = network_report(cluster(n_scaleup_switches=None), 1)
    assert (one.collective_bytes_per_s, one.slowest_level) == (None, "")
    assert one.n_scaleup_switches is None
    half = network_report(cluster(), 4)  # the leaf joins one node: no traffic
    assert half.levels[1].collective_bytes_per_s is None and half.slowest_level == "node"
    apart = {"scaleup_domain_gpus": 1, "egress_bytes_per_s_per_gpu": None}
    assert network_report(cluster(**apart), 4).levels == ()


def test_both_directions_between_two_halves():
    assert bisection_bytes_per_s(5, 10.0) == 40.0


def test_slices_of_a_torus():
    """Nearly cubic: 30 chips of a larger torus lie in 4 x 4 x 2, the bytes cut across 4."""

    def time_s(n, dims, size=B):
        return ideal_collective("all-to-all", size, n, POD, torus=Torus(dims, 90e9), hop_s=1e-6)

    assert time_s(30, (8, 8, 8)).bandwidth_s == pytest.approx(B * 4 / (8 * 32 * 90e9))
    assert time_s(27, (8, 8, 8)).bandwidth_s == pytest.approx(B * 3 / (8 * 27 * 90e9))
    assert time_s(10, (8, 8)).bandwidth_s == pytest.approx(B * 4 / (8 * 12 * 90e9))
    assert time_s(6, (8,)).bandwidth_s == pytest.approx(B * 6 / (8 * 6 * 90e9))
    whole = time_s(64, (8, 8))
    assert whole.levels[0].bandwidth_bytes_per_s == pytest.approx(8 * 64 * 90e9 / 8)
    assert whole.time_s == pytest.approx(whole.bandwidth_s + 1e-6)
    assert time_s(64, (8, 8), 0.0).levels[0].bandwidth_bytes_per_s == 0.0
    inside, out = ideal_collective("all-to-all", B, 16, POD[:2], hop_s=1e-6).levels
    assert inside.bandwidth_bytes_per_s == pytest.approx(16 * 16 / 7 * 450e9)
    assert out.time_s == pytest.approx(B / out.bandwidth_bytes_per_s + 1e-6)
    silent = ideal_collective("all-to-all", 0.0, 16, POD[:2]).levels
    assert [level.bandwidth_bytes_per_s for level in silent] == [0.0, 0.0]


# --- the documents' rounded form -----------------------------------------------------------------


def test_rounded_times_of_one_node_and_of_several():
    """400 GB/s in a node of 8 and 50 beyond: B/W, 2 B/W for an all-reduce, sharded by the inner."""
    pod = (Level("node", 8, 400e9), Level("leaf", 256, 50e9), Level("spine", None, 25e9))
    for inner in (1, 2):
        one = ideal_collective("all-reduce", 8e9, 8, pod, inner=inner)
        assert one.approximate_s == pytest.approx(2 * 8e9 / inner / 400e9)
    inside = ideal_collective("all-to-all", 8e9, 8, pod, hop_s=1.0)
    assert inside.approximate_s == pytest.approx(8e9 / 400e9 / 8)  # B / (n W)
    apart = ideal_collective("all-to-all", 8e9, 32, pod, hop_s=1.0)
    assert apart.approximate_s == pytest.approx(8e9 / (4 * 50e9 * 8))  # of four nodes
    for found in (inside, apart):  # all pairs start together: one hop
        assert found.steps == 1 and found.time_s == pytest.approx(1.0 + found.bandwidth_s)
    far = ideal_collective("send-recv", 8e9, 16, pod)
    assert far.approximate_s == pytest.approx(8e9 / 50e9)
