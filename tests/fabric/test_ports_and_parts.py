"""Ports of cable lists are filled without gaps; bills, losses and lattices computed by hand."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.fabric.bill import Cable, Module, PartTotals, bill, clos_cables, modules
from gpuscale.core.fabric.check import check_cables
from gpuscale.core.fabric.clos import design, leaf_split, nvlink_domain, tree
from gpuscale.core.fabric.of_cluster import (
    NetworkPlan,
    balanced_dragonfly,
    design_of,
    dragonfly,
    dragonfly_plus,
    plan_of,
    slice_shape,
    torus,
    torus_bisection_links,
    torus_links,
)
from gpuscale.core.fabric.records import Hosts, Ports, Wish, equal_ports, losses
from gpuscale.io.hardware import load_cluster

K64 = equal_ports(64)

# hosts, ports of a switch, wish, marks of the networks, lengths of host links
LISTED = [
    (Hosts(64, 8, 8), 64, Wish(), {""}, "row"),
    (Hosts(33, 4, 8), 32, Wish("fat-tree"), {""}, "row"),
    (Hosts(8, 2, 8), 64, Wish("fat-tree"), {""}, "row"),
    (Hosts(64, 2, 8), 16, Wish("fat-tree", rack_links=4), {""}, "rack"),
    (Hosts(20, 2, 8, 2), 64, Wish(planes=2), {"plane1-", "plane2-"}, "row"),
    (Hosts(40, 4, 8, 2), 64, Wish(dual_tor=True), {""}, "row"),
    (Hosts(36, 1, 8, 4), 32, Wish("fat-tree", planes=2), {"plane1-", "plane2-"}, "row"),
    (Hosts(50, 2, 8), 16, Wish("rail-only"), {"rail1-", "rail2-"}, "row"),
    (Hosts(41, 1, 8), 16, Wish("fat-tree", zones=2), {"zone1-", "zone2-"}, "row"),
    (
        Hosts(40, 2, 8, 2),
        32,
        Wish("rail-only", planes=2, zones=2),
        {f"plane{p}-zone{z}-rail{r}-" for p in (1, 2) for z in (1, 2) for r in (1, 2)},
        "row",
    ),
    (Hosts(64, 8, 8), 16, Wish("fat-tree"), {""}, "row"),
]


def numbered(n, form):
    return {form.format(i) for i in range(1, n + 1)}


@pytest.mark.parametrize(("hosts", "radix", "wish", "marks", "length"), LISTED)
def test_devices_and_ports_are_numbered_without_gaps(hosts, radix, wish, marks, length):
    made = design(hosts, equal_ports(radix), wish)
    rows = list(clos_cables(made, hosts, wish))
    lower, upper = defaultdict(set), defaultdict(set)
    for c in rows:
        lower[c.a_device].add(c.a_port)
        upper[c.b_device].add(c.b_port)
    assert {d for d in lower if d.startswith("node-")} == numbered(hosts.n_nodes, "node-{:04d}")
    if hosts.ports_per_nic > 1:
        every = {f"nic{n}/{p}" for n in range(1, hosts.nics_per_node + 1)
                 for p in range(1, hosts.ports_per_nic + 1)}  # fmt: skip
    else:
        every = numbered(hosts.nics_per_node, "nic{}")
    assert all(ports == every for d, ports in lower.items() if d.startswith("node-"))
    for tier in made.tiers:
        each = tier.n_switches // made.n_networks
        names = set().union(*(numbered(each, f"{m}{tier.name}-{{:03d}}") for m in marks))
        assert names == {d for d in upper if d.split("-")[-2] == tier.name}
        for name in names:
            assert upper[name] == numbered(len(upper[name]), "{}")  # links from below, from port 1
            assert len(upper[name]) <= (tier.ports_down if tier.ports_up else radix)
            above = range(tier.ports_down + 1, tier.ports_down + tier.ports_up + 1)
            assert lower.get(name, set()) == set(map(str, above))
    assert {c.length for c in rows if c.a_device.startswith("node-")} == {length}
    assert {c.length for c in rows if not c.a_device.startswith("node-")} <= {"hall"}


def test_rails_pairs_and_planes_end_where_they_should():
    """Rails on leafs of their own, both ports of a pair on two leafs, planes apart by port."""
    rails = list(clos_cables(design(Hosts(40, 4, 8), K64, Wish()), Hosts(40, 4, 8), Wish()))
    of = defaultdict(set)
    for c in rails[: 40 * 4]:
        of[c.b_device].add(c.a_port)
    assert all(len(nics) == 1 for nics in of.values())
    pair, wish = Hosts(40, 4, 8, 2), Wish(dual_tor=True)
    ends = defaultdict(set)
    for c in clos_cables(design(pair, K64, wish), pair, wish):
        if c.a_device.startswith("node-"):
            ends[c.a_device, c.a_port.split("/")[0]].add(c.b_device)
    assert {len(leafs) for leafs in ends.values()} == {2}
    twin, wish = Hosts(40, 4, 8, 2), Wish(planes=2)
    for c in clos_cables(design(twin, K64, wish), twin, wish):
        if c.a_device.startswith("node-"):
            assert c.b_device.startswith("plane" + c.a_port.split("/")[1])


FULL = [  # nodes, oversubscription, leafs, spines and cores, spines of a pod
    (64, (), [64, 64, 32], 8),
    (96, (3.0,), [64, 32, 16], 4),
]


@pytest.mark.parametrize(("nodes", "over", "switches", "index"), FULL)
def test_a_core_meets_the_spines_of_one_index_of_every_pod(nodes, over, switches, index):
    """Al-Fares et al. 2008, section 2.2.1: where pods are full, each core has a link to each."""
    hosts, wish = Hosts(nodes, 8, 8), Wish("fat-tree", over)
    made = design(hosts, equal_ports(16), wish)
    assert made.even and [t.n_switches for t in made.tiers] == switches
    pods = defaultdict(Counter)
    for c in clos_cables(made, hosts, wish):
        if c.b_device.startswith("core"):
            spine = int(c.a_device[-3:]) - 1
            pods[c.b_device][divmod(spine, index)] += 1
    for core in pods.values():
        assert {pod for pod, _ in core} == set(range(8))
        assert len({index for _, index in core}) == 1
        assert set(core.values()) == {2}


def test_pods_are_even_only_where_they_are_full():
    assert design(Hosts(512, 8, 8), K64, Wish()).even  # SuperPOD B200, 16 SU
    assert not design(Hosts(65, 8, 8), equal_ports(16), Wish("fat-tree")).even
    assert not design(Hosts(72, 8, 8), equal_ports(16), Wish("fat-tree")).even  # 9 pods, 36 cores


def test_a_list_of_four_tiers_or_of_no_tree_is_refused():
    hosts = Hosts(256, 1, 1)
    made = design(hosts, equal_ports(8), Wish("fat-tree"))
    assert made.n_tiers == 4  # 4 x 4 x 8 links are three tiers' most
    with pytest.raises(ValueError, match="up to three tiers"):
        next(clos_cables(made, hosts, Wish("fat-tree")))
    with pytest.raises(ValueError, match="up to three tiers"):
        next(clos_cables(dragonfly(hosts, 16, 1e9), hosts, Wish()))


def test_every_tier_under_another_is_linked_by_name():
    made = design(Hosts(256, 1, 1), equal_ports(8), Wish("fat-tree"))
    tiers = [t.name for t in made.tiers]
    assert [(g.lower, g.upper) for g in made.links] == list(
        zip(["host", *tiers], tiers, strict=False)
    )
    assert [g.n_links for g in made.links] == [256] * 4


@given(st.integers(4, 128), st.integers(1, 4), st.floats(1.0, 9.0))
def test_ports_of_a_leaf_are_divided_as_well_as_they_can(radix, fast, over):
    """The most that leave uplinks enough; one more would not."""
    ports = Ports(radix * fast, radix, 25e9, 25e9 * fast)

    def legal(down):
        up = next(n for n in range(radix + 2) if n * fast * over >= down * (1 - 1e-12))
        return down + up * fast <= radix * fast

    try:
        split = leaf_split(ports, over)
    except ValueError:
        assert not legal(1)
        return
    assert legal(split.down)
    assert split.down + 1 > ports.down or not legal(split.down + 1)


def test_racks_take_what_they_hold():
    """400G hosts under 800G uplinks: 16 links of a rack need 8 up, 4 at 2 to 1."""
    ports = Ports(128, 64, 50e9, 100e9)
    for over, links_up in (((), 8), ((2.0,), 4)):
        made = tree([256], ports, over, rack_links=16)
        assert made.switches[0] == 16
        assert made.links_up == (16 * links_up,)


def test_hosts_of_a_cluster_as_its_data_sheet_says():
    """DGX H100: eight 400 Gb/s ports; DGX A100 of the SuperPOD: eight of 200 Gb/s."""
    h100, a100 = (plan_of(load_cluster(name), 64) for name in ("dgx-h100", "dgx-a100"))
    assert (h100.hosts, h100.ports.down_bytes_per_s) == (Hosts(8, 8, 8), 50e9)
    assert (a100.hosts, a100.ports.down_bytes_per_s) == (Hosts(8, 8, 8), 25e9)
    rack = plan_of(load_cluster("meta-24k"), 24576)
    assert rack.wish.rack_links == 16  # two servers of eight GPUs a rack


def test_slices_are_boxes_of_the_pod_nearest_a_cube():
    """Google Cloud, TPU v5p and v5e: 4x4x8 of 128 chips, 4x8 of 32."""
    assert slice_shape(128, (16, 20, 28), 4) == (4, 4, 8)
    assert slice_shape(32, (16, 16)) == (4, 8)
    assert slice_shape(8, (16, 20, 28), 4) == (2, 2, 2)
    assert slice_shape(144, (16, 16, 16), 4) == (3, 4, 12)  # 6 is neither below 4 nor a multiple
    assert slice_shape(32, (2, 16)) == (2, 16)
    with pytest.raises(ValueError, match="no box of 34 chips fits a pod of 16x16"):
        slice_shape(34, (16, 16))


# bills


def test_bill_by_hand():
    """Two leafs under one spine: 64 host links, 64 up, 3 switches of 1.0 to 1.6 kW."""
    made = design(Hosts(64, 1, 1), K64, Wish("fat-tree", tiers=2))
    assert made.n_switches == 3
    parts = PartTotals(
        "QM9700", 30_000.0, (1000.0, 1600.0), 500.0, None, Module("OSFP", 2, 17.0),
        Module("OSFP-flat", 1, 8.0),
    )  # fmt: skip
    found = bill(made, parts)
    twin, flat = (64 + 2 * 64) // 2, 64
    assert modules(made, 2, 1) == (twin, flat)
    middle = 3 * 1300.0 + twin * 17.0 + flat * 8.0
    assert found.power_low_w == pytest.approx(middle - 900)
    assert found.power_high_w == pytest.approx(middle + 900)
    assert found.usd == 3 * 30_000 + 128 * 500
    assert found.unpriced == () == found.unmeasured
    assert {i.item: (i.n, i.power_w, i.usd) for i in found.items} == {
        "QM9700": (3, 3900.0, 90_000.0),
        "optical link (fibre, both modules)": (128, 0.0, 64_000.0),
        "switch module OSFP": (twin, twin * 17.0, 0.0),
        "host module OSFP-flat": (flat, flat * 8.0, 0.0),
    }


def test_copper_in_the_rack_has_no_module():
    made = design(Hosts(64, 1, 1), K64, Wish("fat-tree", rack_links=16))
    parts = PartTotals(copper_usd=50.0, switch_module=Module("m", 1, 10.0))
    found = {i.item: i for i in bill(made, parts).items}
    assert found["copper link"].usd == 64 * 50.0
    assert found["copper link"].power_w == pytest.approx(6.4)
    assert found["switch module m"].n == 2 * 64
    assert not any("host module" in name for name in found)
    assert modules(made, 1, 1) == (128, 0)


# what a failure takes


def taken(hosts, wish, radix=64, **more):
    made = design(hosts, equal_ports(radix), wish)
    return {x.part: x for x in losses(made, hosts, **more)}


def test_losses_by_hand():
    one = taken(Hosts(128, 8, 8), Wish(), gpus_per_rack=32)
    leaf, spine, rack, link = one["leaf"], one["spine"], one["rack"], one["host link"]
    assert (link.n_gpus, link.bandwidth_frac, link.n_gpus_cut) == (1, 1.0, 1)
    assert link.bisection_frac == 1 / 1024 and link.note
    assert (leaf.n_gpus, leaf.bandwidth_frac, leaf.n_gpus_cut) == (32, 1.0, 32)
    assert leaf.bisection_frac == 1 / 32 and "rail" in leaf.note
    assert (spine.n_gpus, spine.bandwidth_frac, spine.bisection_frac) == (1024, 1 / 16, 1 / 16)
    assert spine.n_gpus_cut == 0
    assert (rack.n_gpus, rack.bandwidth_frac, rack.n_gpus_cut) == (32, 1.0, 32)
    assert rack.bisection_frac == 1 / 32
    assert taken(Hosts(128, 8, 8), Wish("fat-tree"))["leaf"].note == ""


def test_a_shared_nic_and_two_planes_share_the_loss():
    half = taken(Hosts(16, 4, 8), Wish("fat-tree"))  # two GPUs a NIC
    assert (half["host link"].n_gpus, half["host link"].n_gpus_cut) == (2, 2)
    assert half["leaf"].n_gpus == 128 == half["leaf"].n_gpus_cut
    assert half["host link"].bandwidth_frac == 1.0
    twin = taken(Hosts(64, 8, 8, 2), Wish(planes=2), 128)
    assert twin["leaf"].n_gpus_cut == 0 and twin["leaf"].bandwidth_frac == 0.5
    assert twin["host link"].note == ""
    assert twin["host link"].bisection_frac == 1 / 1024
    two = taken(Hosts(16, 16, 8), Wish())["host link"], taken(Hosts(16, 16, 8), Wish())["leaf"]
    assert all((x.bandwidth_frac, x.n_gpus_cut) == (0.5, 0) for x in two)  # two NICs a GPU
    assert two[1].n_gpus == 16  # a leaf of one rail, sixteen nodes
    both = taken(Hosts(16, 16, 8), Wish("fat-tree"))["leaf"]  # 32 links of two nodes' GPUs
    assert (both.n_gpus, both.bandwidth_frac, both.n_gpus_cut) == (16, 1.0, 16)
    rails = taken(Hosts(128, 8, 8), Wish("rail-only"))  # eight networks of four leafs, two spines
    assert rails["spine"].bisection_frac == pytest.approx(1 / 16)
    assert taken(Hosts(2, 8, 8), Wish("fat-tree"), gpus_per_rack=64)["rack"].n_gpus == 16


# cable lists that were given


def tiny(*links):
    ends = Counter()
    rows = []
    for a, b in links:
        ends.update((a, b))
        rows.append(Cable(a, str(ends[a]), b, str(ends[b]), ""))
    return rows


def test_report_of_a_small_list():
    """Three hosts on two leafs (2 and 1), each leaf with one link to each of two spines."""
    rows = tiny(
        ("h1", "l1"), ("h2", "l1"), ("h3", "l2"),
        ("l1", "s1"), ("l1", "s2"), ("l2", "s1"), ("l2", "s2"), ("l2", "s2"),
    )  # fmt: skip
    report = check_cables(rows, 4)
    assert (report.n_cables, report.n_hosts, report.n_switches) == (8, 3, 4)
    assert report.tiers == (("tier 1", 2), ("tier 2", 2))
    assert report.n_planes == 1
    assert report.worst_oversubscription == 1.0
    assert report.link_loss_frac == 1.0
    assert report.leaf_loss_frac == pytest.approx(2 / 3)
    assert report.spine_loss_frac == pytest.approx(3 / 5)
    details = {f.check: (f.ok, f.detail) for f in report.findings}
    assert not report.ok
    assert details.pop("even spread") == (False, "l2 has 1 to 2 links to the switches above it")
    assert details["one cable per port"] == (True, "16 ports")
    assert details["port budget"][0] and "uses 4 of 4 ports" in details["port budget"][1]
    assert details["bisection"] == (True, "l1: 2 host links over 2 uplinks")
    assert details["host links per leaf"] == (True, "1 to 2")
    assert details["links per host"] == (True, "1")
    assert details["planes"] == (True, "1 network")
    assert all(ok for ok, _ in details.values())
    good = check_cables(rows[:-1])
    assert good.ok and len(good.findings) == len(report.findings) - 1


def test_planes_share_all_hosts_and_zones_none():
    planes = check_cables(tiny(("h1", "p"), ("h2", "p"), ("h1", "q"), ("h2", "q")))
    assert planes.ok and planes.n_planes == 2 and planes.link_loss_frac == 0.5
    assert planes.spine_loss_frac is None and planes.worst_oversubscription is None
    zones = check_cables(tiny(("h1", "p"), ("h2", "p"), ("h3", "q"), ("h4", "q")))
    assert zones.ok and zones.n_planes == 2
    assert any("2 networks over 2 sets of hosts" in f.detail for f in zones.findings)
    mixed = check_cables(tiny(("h1", "p"), ("h2", "p"), ("h1", "q"), ("h3", "q")))
    assert {"links per host", "planes"} <= {f.check for f in mixed.findings if not f.ok}


def test_no_list_and_a_ring_are_refused():
    with pytest.raises(ValueError, match="no cable"):
        check_cables([])
    with pytest.raises(ValueError, match="no host"):
        check_cables(tiny(("a", "b"), ("b", "a")))


# networks that are no trees


def test_dragonfly_bandwidth_by_hand():
    """72 hosts in nine groups: 20 of 36 global links between four groups and five."""
    made = dragonfly(Hosts(72, 1, 1), 7, 25e9, (2, 4, 2, 9))
    group, network = made.bisection
    assert (group.n_gpus, group.bytes_per_s) == (8, 4 * 25e9)
    assert network.bytes_per_s == 20 * 25e9
    assert network.bytes_per_s_per_gpu == pytest.approx(2 * 20 / 72 * 25e9)
    assert made.tiers[0].oversubscription == 1.0
    alone = dragonfly(Hosts(8, 1, 1), 7, 25e9, (2, 4, 2, 1))
    assert alone.bisection[1].bytes_per_s == 3 * 25e9  # half of the six links inside
    assert [g.n_links for g in alone.links] == [8, 6]
    with pytest.raises(ValueError, match="= 7 is more than 6 ports"):
        dragonfly(Hosts(72, 1, 1), 6, 25e9, (2, 4, 2, 9))
    with pytest.raises(ValueError, match=r"at most a\*h \+ 1 = 9"):
        dragonfly(Hosts(72, 1, 1), 7, 25e9, (2, 4, 2, 10))
    with pytest.raises(ValueError, match="73 host links do not fit 72"):
        dragonfly(Hosts(73, 1, 1), 7, 25e9, (2, 4, 2, 9))
    with pytest.raises(ValueError, match="at least one host"):
        dragonfly(Hosts(1, 1, 1), 7, 25e9, (0, 4, 2, 9))
    assert balanced_dragonfly(72, 7) == (2, 4, 2, 9)
    with pytest.raises(ValueError, match="at most 72 hosts, got 73"):
        balanced_dragonfly(73, 7)


def test_dragonfly_plus_by_hand():
    """Shpiner et al. 2017: of 4-port switches groups of 4 hosts, at most five of them."""
    made = dragonfly_plus(Hosts(20, 1, 1), 4, 10e9)
    assert [t.n_switches for t in made.tiers] == [10, 10]
    assert [g.n_links for g in made.links] == [20, 20, 10]
    assert made.reach_gpus == 20
    group, network = made.bisection
    assert (group.n_gpus, group.bytes_per_s) == (4, 2 * 10e9)
    assert network.bytes_per_s == 6 * 10e9  # two groups and three, one link a pair
    assert network.bytes_per_s_per_gpu == pytest.approx(6e9)
    one = dragonfly_plus(Hosts(3, 1, 1), 4, 10e9)
    assert [g.n_links for g in one.links] == [3, 4] and one.bisection[1].bytes_per_s == 15e9
    assert one.bisection[0].n_gpus == 3
    two = dragonfly_plus(Hosts(8, 1, 1), 4, 10e9)
    assert two.links[-1].n_links == 4 and two.bisection[1].bytes_per_s == 40e9
    with pytest.raises(ValueError, match="at most .* = 5"):
        dragonfly_plus(Hosts(21, 1, 1), 4, 10e9)
    with pytest.raises(ValueError, match="at least 2 ports"):
        dragonfly_plus(Hosts(1, 1, 1), 1, 10e9)


def test_torus_by_hand():
    """TPU v4, arXiv:2304.01433: 64 chips of a cube, 96 optical links, 6 x 16 of its faces."""
    cube = torus((4, 4, 4), 45e9, cube=4)
    assert [(g.n_links, g.n_cables, g.optical) for g in cube.links] == [
        (144, 144, False),
        (48, 96, True),
    ]
    assert (cube.n_switches, cube.n_nodes) == (48, 16)
    assert cube.bisection[0].bytes_per_s_per_gpu == 2 * 32 * 45e9 / 64
    half = torus((4, 4, 8), 45e9, (False, True, True), cube=4)
    assert half.links[1].n_links == 2 * 32
    assert torus((1, 4, 1), 1e9, (True,) * 3).links[0].n_links == 4
    assert torus_bisection_links((8, 4), (True, False)) == 8
    assert torus_bisection_links((8, 4), (False, True)) == 4
    assert torus_bisection_links((1, 1), (True, True)) == 0
    assert torus_links((2, 2), (True, False)) == 4 + 2


def test_a_shape_has_the_numbers_of_its_topology():
    hosts, ports = Hosts(72, 1, 1), Ports(16, 16, 25e9, 25e9)

    def made(kind, *shape):
        return dict(design_of(NetworkPlan(hosts, ports, Wish(kind), shape)).parameters)

    assert made("dragonfly", 2, 4, 2, 9) == {"p": 2, "a": 4, "h": 2, "g": 9}
    assert made("dragonfly+", 3)["g"] == 3
    for kind, shape, words in (
        ("dragonfly", (2, 4, 2), "dragonfly is p,a,h,g"),
        ("dragonfly+", (3, 3), r"dragonfly\+ is g"),
    ):
        with pytest.raises(ValueError, match=words):
            made(kind, *shape)


def test_nvlink_domain_by_hand():
    """DGX H100: 8 x 18 links of 25 GB/s on four switches, 36 links each."""
    box = nvlink_domain(8, 18, 25e9, 64, 4)
    assert (box.n_switches, box.tiers[0].ports_down, box.n_host_links) == (4, 36, 144)
    assert box.bisection[0].bytes_per_s == 4 * 450e9
    assert not box.links[0].optical
    assert nvlink_domain(1, 1, 25e9, 64).n_switches == 1


def test_full_bisection_is_the_same_at_every_tier():
    """Hosts at 200G under uplinks at 400G: what goes down a leaf goes up."""
    made = design(Hosts(640, 8, 8), Ports(128, 64, 25e9, 50e9), Wish("fat-tree"))
    assert made.n_tiers == 3
    assert [b.bytes_per_s_per_gpu for b in made.bisection] == [25e9] * 3
    assert made.bisection[-1].bytes_per_s == 5120 / 2 * 25e9
    for ports in ((1, 64, 1.0, 1.0), (64, 64, 0.0, 1.0), (64, 64, 1.0, 0.0)):
        with pytest.raises(ValueError, match="at least 2 ports|bandwidth above 0"):
            Ports(*ports)


def test_slices_of_a_tpu_pod():
    """Google Cloud, TPU v5p: cubes of 64 chips on circuit switches; a smaller slice is a mesh."""
    pod = load_cluster("tpu-v5p-pod")
    cubes, part = plan_of(pod, 128), plan_of(pod, 8)
    assert (cubes.shape, cubes.wrapped, cubes.cube) == ((4, 4, 8), (True,) * 3, 4)
    assert (part.shape, part.wrapped, part.cube) == ((2, 2, 2), (False,) * 3, None)
    assert cubes.ports.down == 6 and cubes.hosts.n_nodes == 32
    assert dict(design_of(cubes).parameters) == {"axis 1": 4, "axis 2": 4, "axis 3": 8}
    assert design_of(part).n_switches == 0
