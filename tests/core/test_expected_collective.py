import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.network.calibration import (
    GENERAL_FABRIC,
    FabricCalibration,
    collective_interval_s,
)
from gpuscale.core.network.expected import (
    OPS,
    RankGroup,
    bound_s,
    deduplicated_frac,
    destination_nodes,
    group_time_s,
)
from gpuscale.core.network.hierarchy import Level, hierarchical_time_s
from gpuscale.io.calibration import load_fabric, load_link, network_class
from gpuscale.io.hardware import load_cluster
from gpuscale.io.presets import preset_names

H100 = FabricCalibration(load_link("nvlink4"), load_link("infiniband"))
SIZE = st.floats(1, 1e12)
RANKS = st.integers(0, 12).map(lambda p: 2**p)


def h100(op, size, n, up=450e9, out=50e9, **kw):
    return group_time_s(RankGroup(op, size, n, min(n, 8), H100, up, out, **kw))


@given(st.sampled_from(OPS), SIZE, RANKS)
def test_never_faster_than_the_bytes_that_must_move(op, size, n):
    t = h100(op, size, n)
    assert t >= 0 and (t == 0) == (n == 1)
    if op in ("all-gather", "reduce-scatter") and n > 1:
        assert t >= size * (min(n, 8) - 1) / min(n, 8) / 450e9
    if op == "all-reduce" and n > 1:
        assert t >= size / 450e9


@given(st.sampled_from(OPS), SIZE, RANKS, st.floats(1, 4))
def test_more_bandwidth_is_never_slower(op, size, n, more):
    base = h100(op, size, n)
    assert h100(op, size, n, up=450e9 * more) <= base * (1 + 1e-9)
    assert h100(op, size, n, out=50e9 * more) <= base * (1 + 1e-9)


@given(st.sampled_from(OPS), st.floats(1e3, 1e11), RANKS, st.floats(1.2, 4))
def test_more_bytes_on_the_network_take_longer(op, size, n, more):
    if n > 8:
        assert h100(op, size * more, n) > h100(op, size, n)


def test_a_ring_gathers_more_slowly_over_more_ranks():
    times = [h100("all-gather", 2**20, n) for n in (8, 16, 64, 256, 1024)]
    assert times == sorted(times)


def test_ranks_of_a_node_share_the_work_of_the_network():
    one_per_node = group_time_s(RankGroup("all-reduce", 2**30, 16, 1, H100, 450e9, 50e9))
    eight_per_node = group_time_s(RankGroup("all-reduce", 2**30, 16, 8, H100, 450e9, 50e9))
    assert 4 < one_per_node / eight_per_node < 16


# measured: gpuscale/data/validation/collectives.csv
@pytest.mark.parametrize(
    ("op", "size", "n", "measured_us", "rel"),
    [
        ("all-reduce", 2**10, 8, 15.6, 0.15),  # aiconfigurator, NCCL 2.29.2, H100
        ("all-gather", 2**29, 8, 1401.5, 0.10),
        ("all-to-all", 2**26, 4, 192.3, 0.10),
        ("all-reduce", 2**33, 16, 34448.4, 0.10),  # dstack, 2 nodes H100, IB NDR
        ("all-reduce", 2**33, 96, 43980.0, 0.10),  # coreweave, 12 nodes H100
        ("moe-dispatch", 7.439e6, 64, 173.0, 0.2),  # DeepEP, H800, 64 ranks
    ],
)
def test_published_times(op, size, n, measured_us, rel):
    assert h100(op, size, n) * 1e6 == pytest.approx(measured_us, rel=rel)


def test_custom_kernel_is_for_small_messages():
    small = h100("all-reduce", 4096, 8), h100("all-reduce", 4096, 8, algorithm="custom")
    large = h100("all-reduce", 2**28, 8), h100("all-reduce", 2**28, 8, algorithm="custom")
    assert small[1] < 0.4 * small[0]
    assert large[1] == pytest.approx(large[0], rel=0.1)


def test_deduplication_sends_a_token_once_to_each_node():
    assert destination_nodes(8, 1) == 1.0
    assert destination_nodes(8, 1e9) == pytest.approx(8.0, rel=1e-6)
    assert destination_nodes(8, 32, limit=4) < 4.0
    assert deduplicated_frac(8, 4) == pytest.approx(4 * (1 - 0.75**8) / 8)


def test_one_copy_per_node_saves_on_the_network_only():
    def t(op, n, **kw):
        return h100(op, 1e9, n, **kw)

    frac = deduplicated_frac(8, 8)
    assert 0.9 * frac < t("moe-dispatch", 64, network_frac=frac) / t("moe-dispatch", 64) < 1.0
    assert t("moe-dispatch", 8, network_frac=frac) <= t("moe-dispatch", 8) * (1 + 1e-12)
    assert deduplicated_frac(1, 8) == pytest.approx(1.0)


def test_part_of_a_full_mesh_uses_part_of_the_links():
    mi300x = FabricCalibration(load_link("amd-if"), load_link("roce"))
    two, eight = (group_time_s(RankGroup("all-gather", 2**30, n, n, mi300x, 448e9)) for n in (2, 8))
    assert two > 2**29 / 64e9 > eight


def test_every_cluster_preset_has_a_fabric():
    for name in preset_names("cluster"):
        cluster = load_cluster(name)
        t = group_time_s(
            RankGroup(
                "all-reduce",
                1e8,
                64,
                min(64, cluster.scaleup_domain_gpus),
                load_fabric(cluster),
                cluster.scaleup_bytes_per_s or 50e9,
                cluster.egress_bytes_per_s_per_gpu or 50e9,
            )
        )
        assert 1e-4 < t < 1.0, name


def test_generations_of_efa_and_unknown_networks():
    assert network_class("efa", 6.25e9, 8) == "efa-v1"
    assert network_class("efa", 50e9, 8) == "efa"
    assert network_class("carrier-pigeon", 50e9, 8) == "general-network"


def test_interval_surrounds_the_time():
    low, high = collective_interval_s(1.0, "all-reduce", 16, 8, H100)
    assert 0.2 < low <= 1.0 <= high < 5.0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="unknown collective"):
        h100("gossip", 1e6, 8)
    with pytest.raises(ValueError, match="unknown algorithm"):
        h100("all-reduce", 1e6, 8, algorithm="magic")
    with pytest.raises(ValueError, match="bad group"):
        group_time_s(RankGroup("all-reduce", 1e6, 4, 8, GENERAL_FABRIC, 1e9, 1e9))
    with pytest.raises(ValueError, match="network_frac"):
        h100("all-to-all", 1e6, 16, network_frac=0.0)
    with pytest.raises(ValueError, match="scale-out"):
        group_time_s(RankGroup("all-reduce", 1e6, 16, 8, GENERAL_FABRIC, 1e9))


def test_one_evaluation_is_cheap():
    start = time.process_time()
    for i in range(2000):
        h100("all-reduce", 1e6 + i, 64)
    assert (time.process_time() - start) / 2000 < 100e-6


@given(
    st.sampled_from(["all-gather", "reduce-scatter", "all-reduce"]),
    st.integers(0, 3).map(lambda i: 2**i),
    st.integers(0, 6).map(lambda i: 2**i),
    st.booleans(),
)
def test_the_bound_is_the_hierarchical_roofline(op, n_in, n_out, in_switch):
    if n_in * n_out == 1:
        return
    in_switch = in_switch and op == "all-reduce"
    levels = (Level("node", n_in, 450e9, True), Level("network", None, 50e9))
    algorithm = "sharp" if in_switch else "ring"
    want = hierarchical_time_s(op, 1e9, n_in * n_out, levels, algorithm)
    got = bound_s(op, 1e9, n_in * n_out, n_in, 450e9, 50e9, in_switch=in_switch)
    assert got == pytest.approx(want, rel=1e-9) or (n_in == 2 and in_switch)


PUBLISHED = [  # GPU, nodes, NICs of a node, one NIC in bit/s, bus bandwidth, tolerance, source
    ("nvlink3", 300e9, 2, 8, 200e9, 192e9, 0.08, "DGX A100: NVIDIA/nccl issue 812"),
    ("nvlink3", 300e9, 2, 4, 200e9, 96e9, 0.05, "peak of four HDR: NVIDIA/nccl-tests issue 175"),
    ("nvlink3", 300e9, 2, 4, 100e9, 78e9, 0.12, "more than its 50 GB/s out: aws-samples, p4d"),
    ("nvlink4", 450e9, 2, 8, 400e9, 480e9, 0.08, "more than its 400 GB/s out: dstack, Nebius"),
    ("nvlink4", 450e9, 4, 8, 400e9, 370e9, 0.10, "below it: GTC 2024 in NVIDIA/nccl issue 1649"),
]


@pytest.mark.parametrize(
    ("link", "up", "nodes", "nics", "bits", "want", "rel", "source"), PUBLISHED
)
def test_bus_bandwidth_over_nodes_is_what_is_published(
    link, up, nodes, nics, bits, want, rel, source
):
    outer = network_class("efa" if bits == 100e9 else "infiniband", nics * bits / 64, 8)
    fabric = FabricCalibration(load_link(link), load_link(outer), nics / 8)
    n, size = 8 * nodes, 2.0**33
    time_s = group_time_s(RankGroup("all-reduce", size, n, 8, fabric, up, nics * bits / 8 / 8))
    assert 2 * (n - 1) / n * size / time_s == pytest.approx(want, rel=rel), source


CARDS = [  # card, pairs on a bridge, cards, bus bandwidth, tolerance, source
    ("rtx-5090", False, 8, 28e9, 0.1, "NVIDIA/nccl issue 1639"),
    ("rtx-5090", False, 4, 35e9, 0.1, "NVIDIA/nccl issue 1639"),
    ("rtx-pro-6000-server", False, 7, 41.5e9, 0.1, "rtx6kpro, pcie-bandwidth.md"),
    ("a100-pcie-80gb", False, 3, 20e9, 0.1, "NVIDIA/nccl-tests issue 178"),
    ("a100-pcie-80gb", True, 2, 208e9, 0.1, "NVIDIA/nccl-tests issue 178"),
]


@pytest.mark.parametrize(("card", "bridged", "n", "want", "rel", "source"), CARDS)
def test_bus_bandwidth_of_cards_is_what_is_published(card, bridged, n, want, rel, source):
    cluster = load_cluster(card)
    if bridged:
        gpu = cluster.gpu.model_copy(update={"bridged": True})
        cluster = cluster.model_copy(update={"gpu": gpu})
    size, rate = 2.0**33, cluster.scaleup_bytes_per_s
    time_s = group_time_s(
        RankGroup("all-reduce", size, n=n, n_in=n, fabric=load_fabric(cluster), up=rate)
    )
    assert 2 * (n - 1) / n * size / time_s == pytest.approx(want, rel=rel), source


def test_serving_kernels_need_peer_access():
    host, own = load_fabric(load_cluster("rtx-4090")), load_fabric(load_cluster("l40s"))
    for fabric, n, faster in ((host, 2, False), (own, 2, True), (own, 4, False)):
        auto, custom = (
            group_time_s(
                RankGroup(
                    "all-reduce", 16384.0, n=n, n_in=n, fabric=fabric, up=31e9, algorithm=algorithm
                )
            )
            for algorithm in ("auto", "custom")
        )
        assert (custom < 0.9 * auto) == faster


@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-a100", "dgx-b200", "mi300x-8"])
@pytest.mark.parametrize("n_gpus", [8, 16, 64, 256])
def test_a_step_exchanges_experts_as_collective_says(cluster, n_gpus):
    """One rate of an all-to-all: links as fast as alone, the time of `collective`, to the digit.

    What a step finds of the links is the shares of its own (`presets/train`), never another form.
    """
    from dataclasses import replace

    import gpuscale
    from gpuscale.core.step.parallel_comm import all_to_all_s
    from gpuscale.io.hardware import load_cluster
    from gpuscale.io.step import step_hardware

    found = step_hardware(load_cluster(cluster))
    alone = replace(
        found,
        scaleup_frac=1.0,
        scaleout_frac=1.0,
        scaleup_latency_factor=1.0,
        scaleout_latency_factor=1.0,
        all_to_all_frac=1.0,
    )
    for size in (1e6, 64e6, 1e9):
        asked = gpuscale.collective("all-to-all", cluster, bytes=size, gpus=n_gpus, per_gpu=True)
        said = asked.result.expected.time_s
        assert all_to_all_s(alone, n_gpus, 1, size) == pytest.approx(said, rel=1e-9)
        shares = (found.scaleup_frac, found.scaleout_frac)
        slowest = 1.0 / (min(*shares, 1.0) * found.all_to_all_frac)
        latency = max(found.scaleup_latency_factor, found.scaleout_latency_factor, 1.0)
        assert all_to_all_s(found, n_gpus, 1, size) <= said * max(slowest, latency) * 1.000001
