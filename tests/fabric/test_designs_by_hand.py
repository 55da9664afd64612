"""Whole designs written out: every count, rate and cable of small networks."""

import pytest

from gpuscale.core.fabric.bill import Cable, PartTotals, bill
from gpuscale.core.fabric.check import check_cables
from gpuscale.core.fabric.clos import design, leaf_split, nvlink_domain, spread, tree
from gpuscale.core.fabric.of_cluster import (
    balanced_dragonfly,
    dragonfly,
    dragonfly_plus,
    plan_of,
    torus,
)
from gpuscale.core.fabric.records import (
    Bisection,
    Design,
    Hosts,
    Links,
    Ports,
    Tier,
    Wish,
    equal_ports,
)
from gpuscale.io.hardware import load_cluster

K64, K16 = equal_ports(64), equal_ports(16)

CLOS = [  # hosts, switch, wish, the design
    (  # 25 GB/s down and half of it up, at 50 GB/s: 84 and 21 ports; 21 links to 3 spines
        Hosts(64, 4, 8, 2),
        Ports(128, 64, 25e9, 50e9),
        Wish(oversubscription=(2.0,), planes=2, links_per_cable=2, manager_links=3),
        Design(
            "rail-optimised", 512, 64, 512, 2, 2,
            (Tier("leaf", 8, 84, 21, 2.0), Tier("spine", 6, 28, 0, 1.0)),
            (Links("host", "leaf", 515, 25e9, 258), Links("leaf", "spine", 168, 50e9, 84)),
            (Bisection("leaf", 512, 25e9, 6.4e12), Bisection("spine", 512, 12.5e9, 3.2e12)),
            n_manager_links=3, reach_gpus=84 * 64 // 4 * 8,
        ),
    ),
    (  # two zones of 40 links: 5 leafs, 40 / 12 spines, 16 links to a core each
        Hosts(40, 2, 4),
        K16,
        Wish("fat-tree", (1.0, 3.0), tiers=3, zones=2, zone_switches=5),
        Design(
            "fat-tree", 160, 40, 80, 3, 2,
            (Tier("leaf", 10, 8, 8, 1.0), Tier("spine", 8, 12, 4, 3.0),
             Tier("core", 2, 16, 0, 1.0)),
            (Links("host", "leaf", 80, 50e9, 80), Links("leaf", "spine", 80, 50e9, 80),
             Links("spine", "core", 32, 50e9, 32)),
            # a leaf has 8 links of half a GPU; a spine's 96 links are more than a zone's 80 GPUs
            (Bisection("leaf", 16, 25e9, 200e9), Bisection("spine", 80, 25e9, 1e12),
             Bisection("core", 160, 25e9 / 3, 80 * 25e9 / 3)),
            n_extra_switches=5, reach_gpus=8 * 12 * 16 // 2 * 4 * 2, even=False,
        ),
    ),
    (  # a network of each rail, one switch
        Hosts(16, 8, 8), K64, Wish("rail-only"),
        Design(
            "rail-only", 128, 16, 128, 1, 8, (Tier("leaf", 8, 16, 0, 1.0),),
            (Links("host", "leaf", 128, 50e9, 128),), (Bisection("leaf", 128, 50e9, 3.2e12),),
            reach_gpus=512,
        ),
    ),
    (  # both ports of a NIC on two leafs: eight groups of 40 links, two leafs each
        Hosts(40, 4, 8, 2), K64, Wish(dual_tor=True),
        Design(
            "rail-optimised", 320, 40, 320, 2, 1,
            (Tier("leaf", 16, 32, 32, 1.0), Tier("spine", 8, 64, 0, 1.0)),
            (Links("host", "leaf", 320, 50e9, 320), Links("leaf", "spine", 512, 50e9, 512)),
            (Bisection("leaf", 256, 50e9, 6.4e12), Bisection("spine", 320, 50e9, 8e12)),
            reach_gpus=32 * 64 // 8 * 8,
        ),
    ),
    (  # four copper links of a rack; 4 x 16 are too few for two tiers, pods of 32 are full
        Hosts(64, 2, 8), K16, Wish("fat-tree", rack_links=4),
        Design(
            "fat-tree", 512, 64, 128, 3, 1,
            (Tier("leaf", 32, 4, 4, 1.0), Tier("spine", 16, 8, 8, 1.0),
             Tier("core", 8, 16, 0, 1.0)),
            (Links("host", "leaf", 128, 50e9, 128, False), Links("leaf", "spine", 128, 50e9, 128),
             Links("spine", "core", 128, 50e9, 128)),
            (Bisection("leaf", 16, 12.5e9, 100e9), Bisection("spine", 128, 12.5e9, 800e9),
             Bisection("core", 512, 12.5e9, 3.2e12)),
            reach_gpus=4 * 8 * 16 // 2 * 8,
        ),
    ),
    (  # two planes of one rail: a unit is the leafs of all rails
        Hosts(64, 2, 2, 4), K16, Wish("rail-only", planes=2),
        Design(
            "rail-only", 128, 64, 512, 2, 4,
            (Tier("leaf", 64, 8, 8, 1.0), Tier("spine", 32, 16, 0, 1.0)),
            (Links("host", "leaf", 512, 50e9, 512), Links("leaf", "spine", 512, 50e9, 512)),
            (Bisection("leaf", 8, 200e9, 800e9), Bisection("spine", 128, 200e9, 12.8e12)),
            reach_gpus=8 * 16 // 2 * 2,
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("hosts", "ports", "wish", "want"), CLOS)
def test_clos_written_out(hosts, ports, wish, want):
    assert design(hosts, ports, wish) == want


def test_a_leaf_of_less_than_a_gpu_has_one():
    """Four NICs a GPU, a leaf of two links."""
    made = design(Hosts(8, 4, 1), K16, Wish("fat-tree", rack_links=2))
    assert made.bisection[0].n_gpus == 1


REFUSED = [
    (Wish("fat-tree", tiers=0), "tiers must be 1 to 5, got 0"),
    (Wish("fat-tree", tiers=6), "tiers must be 1 to 5, got 6"),
    (Wish("fat-tree", tiers=1), "1 tier of 16-port switches join at most 16 links, got 17"),
    (Wish("fat-tree", tiers=1, rack_links=4), "join at most 4 links, got 17"),
    (Wish("fat-tree", rack_links=0), "rack_links must be at least 1, got 0"),
    (Wish("fat-tree", planes=2), "1 ports of a NIC cannot be spread over 2 planes"),
    (Wish("fat-tree", (0.5,)), "oversubscription must be at least 1, got 0.5"),
]


@pytest.mark.parametrize(("wish", "words"), REFUSED)
def test_wishes_that_cannot_be(wish, words):
    with pytest.raises(ValueError, match=words):
        design(Hosts(17, 1, 1), K16, wish)


def test_the_most_tiers_reach_no_further():
    two = equal_ports(2)
    with pytest.raises(ValueError, match="5 tiers of 2-port switches join at most 2 links, got 3"):
        tree([3], two)
    assert tree([2], two).switches == (1,)
    assert tree([2], two, tiers=5).switches == (2, 2, 2, 2, 1)
    assert tree([17], K16, least_tiers=1).switches == (3, 2)
    assert tree([16], K16, least_tiers=2).switches == (2, 1)
    with pytest.raises(ValueError, match="2 links, got 3"):
        tree([3], two, tiers=2)
    assert Ports(2, 2, 0.5, 0.5).up == 2


def test_ports_of_spines():
    split = leaf_split(Ports(10, 10, 1e9, 1e9))
    assert (split.down, split.up) == (5, 5)
    assert [spread(n, 32) for n in (1, 31, 32, 33)] == [1, 32, 32, None]


LATTICES = [
    (  # three groups of two switches, one link between each two; ten links of twenty GPUs
        lambda: dragonfly(Hosts(5, 1, 4, 2), 4, 1e9, (2, 2, 1, 3)),
        Design(
            "dragonfly", 20, 5, 10, 2, 1, (Tier("switch", 6, 2, 2, 2.0),),
            (Links("host", "switch", 10, 1e9, 10), Links("switch", "group", 3, 1e9, 3),
             Links("group", "group", 3, 1e9, 3)),
            # a group has four links, of eight GPUs; one group and two: two links
            (Bisection("group", 8, 0.5e9, 2e9), Bisection("network", 20, 0.2e9, 2e9)),
            reach_gpus=24, parameters=(("p", 2), ("a", 2), ("h", 1), ("g", 3)),
        ),
    ),
    (  # two links of one node are fewer than the network's middle
        lambda: dragonfly(Hosts(1, 1, 4, 2), 4, 1e9, (2, 2, 1, 3)),
        Design(
            "dragonfly", 4, 1, 2, 2, 1, (Tier("switch", 6, 2, 2, 2.0),),
            (Links("host", "switch", 2, 1e9, 2), Links("switch", "group", 3, 1e9, 3),
             Links("group", "group", 3, 1e9, 3)),
            (Bisection("group", 4, 0.5e9, 2e9), Bisection("network", 4, 0.5e9, 1e9)),
            reach_gpus=24, parameters=(("p", 2), ("a", 2), ("h", 1), ("g", 3)),
        ),
    ),
    (  # groups of two leafs and two spines, four links between two groups
        lambda: dragonfly_plus(Hosts(3, 1, 4, 2), 4, 1e9),
        Design(
            "dragonfly+", 12, 3, 6, 2, 1,
            (Tier("leaf", 4, 2, 2, 1.0), Tier("spine", 4, 2, 2, 1.0)),
            (Links("host", "leaf", 6, 1e9, 6), Links("leaf", "spine", 8, 1e9, 8),
             Links("spine", "spine", 4, 1e9, 4)),
            (Bisection("group", 8, 0.5e9, 2e9), Bisection("network", 12, 0.5e9, 3e9)),
            reach_gpus=5 * 4 * 2, parameters=(("k", 4), ("g", 2)),
        ),
    ),
    (  # one link between two groups of one host each
        lambda: dragonfly_plus(Hosts(2, 1, 1), 2, 1e9),
        Design(
            "dragonfly+", 2, 2, 2, 2, 1,
            (Tier("leaf", 2, 1, 1, 1.0), Tier("spine", 2, 1, 1, 1.0)),
            (Links("host", "leaf", 2, 1e9, 2), Links("leaf", "spine", 2, 1e9, 2),
             Links("spine", "spine", 1, 1e9, 1)),
            (Bisection("group", 1, 1e9, 0.5e9), Bisection("network", 2, 1e9, 1e9)),
            reach_gpus=2, parameters=(("k", 2), ("g", 2)),
        ),
    ),
    (  # rings of two, lines of three
        lambda: torus((2, 3), 1e9, (True, False)),
        Design(
            "torus", 6, 2, 0, 0, 1, (), (Links("chip", "chip", 10, 1e9, 10, False),),
            (Bisection("torus", 6, 2 / 3 * 1e9, 2e9),), parameters=(("axis 1", 2), ("axis 2", 3)),
        ),
    ),
    (  # cubes of 2: of 48 links the 24 of the faces are two cables and a circuit switch
        lambda: torus((2, 2, 4), 1e9, cube=2, chips_per_node=8),
        Design(
            "torus", 16, 2, 0, 0, 1, (),
            (Links("chip", "chip", 24, 1e9, 24, False),
             Links("chip", "circuit switch", 24, 1e9, 48)),
            (Bisection("torus", 16, 1e9, 8e9),), n_extra_switches=12,
            parameters=(("axis 1", 2), ("axis 2", 2), ("axis 3", 4)),
        ),
    ),
    (
        lambda: nvlink_domain(8, 18, 25e9, 64, 4),
        Design(
            "nvlink", 8, 1, 144, 1, 1, (Tier("NVLink switch", 4, 36, 0, 1.0),),
            (Links("GPU", "NVLink switch", 144, 25e9, 144, False),),
            (Bisection("domain", 8, 450e9, 1.8e12),),
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made", "want"), LATTICES)
def test_lattice_written_out(made, want):
    assert made() == want


def test_the_smallest_lattices():
    assert balanced_dragonfly(6, 3) == (1, 2, 1, 3)  # (2 x 1 + 1) groups of two
    for n, radix in ((7, 3), (1, 2)):
        with pytest.raises(ValueError, match="joins at most"):
            balanced_dragonfly(n, radix)
    assert balanced_dragonfly(1, 3) == (1, 2, 1, 1)
    for shape in ((4, 4), (4, 4, 6)):
        with pytest.raises(ValueError, match="blocks of 4 do not divide"):
            torus(shape, 1e9, cube=4)


def test_a_bill_without_switches_or_modules():
    """192 copper links of a torus of 0.1 W; 128 host links and 128 up, one end a module each."""
    cube = bill(torus((4, 4, 4), 1e9), PartTotals(copper_usd=2.0))
    assert cube.power_low_w == cube.power_high_w == pytest.approx(19.2)
    assert cube.usd == 384.0
    bare = bill(design(Hosts(128, 1, 1), K64, Wish("fat-tree")), PartTotals())
    assert {i.item: i.n for i in bare.items} == {
        "switch": 6, "optical link (fibre, both modules)": 256,
        "switch module": 128 + 2 * 128, "host module": 128,
    }  # fmt: skip
    assert bare.usd is None and bare.power_low_w is None
    assert bare.unpriced == ("switch", "optical link (fibre, both modules)")
    assert bare.unmeasured == ("switch", "switch module", "host module")


def test_the_worst_loss_of_a_list():
    """One host of two links and one of one; leafs of two and one, spines of two and one."""
    ends = (("h1", "l1"), ("h1", "l2"), ("h2", "l1"), ("l1", "s1"), ("l2", "s1"), ("l2", "s2"))
    found = check_cables([Cable(a, str(i), b, str(i), "") for i, (a, b) in enumerate(ends)])
    assert (found.link_loss_frac, found.leaf_loss_frac) == (1.0, 2 / 3)
    assert found.spine_loss_frac == 2 / 3 and found.worst_oversubscription == 2.0
    assert {f.check for f in found.findings if not f.ok} == {"links per host", "rail purity"}


def test_a_plan_divides_the_egress_of_a_node():
    """SuperPOD B300: eight NICs of 800 Gb/s on two planes; 64 ports at 800 are 128 at 400 Gb/s."""
    cluster = load_cluster("superpod-b300-eth-1su")
    made = plan_of(cluster, 512)
    assert made.hosts == Hosts(64, 8, 8, 2)
    assert made.ports.down_bytes_per_s == pytest.approx(50e9)
    assert made.wish.rack_links is None
    assert plan_of(cluster, 513).hosts.n_nodes == 65
    racks = cluster.model_copy(
        update={"network": cluster.network.model_copy(update={"rack_gpus": 16})}
    )
    assert plan_of(racks, 512).wish.rack_links is None
    top = racks.model_copy(
        update={"network": racks.network.model_copy(update={"top_of_rack": True})}
    )
    assert plan_of(top, 512).wish.rack_links == 32  # two nodes of eight NICs of two ports
    none = top.model_copy(update={"network": top.network.model_copy(update={"rack_gpus": None})})
    assert plan_of(none, 512).wish.rack_links is None


def test_a_pod_without_its_shape_or_rate_is_not_designed():
    """TPU v4 (Jouppi et al. 2023): six links of 45 GB/s, cubes of 4 x 4 x 4, 4 chips a host."""
    pod = load_cluster("pod-tpu-v4")
    made = plan_of(pod, 64)
    assert made is not None and made.shape == (4, 4, 4) and made.hosts.n_nodes == 16
    assert (made.ports.up, made.ports.up_bytes_per_s) == (6, 45e9)
    shapeless = pod.network.model_copy(update={"shape": None})
    for less in ({"network": shapeless}, {"scaleup_bytes_per_s": None}):
        assert plan_of(pod.model_copy(update=less), 64) is None
