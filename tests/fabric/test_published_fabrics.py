"""Switches, cables and planes of published networks, exactly; rows with citations in the CSV."""

import csv
from pathlib import Path

import pytest

from gpuscale.core.fabric.clos import (
    design,
    leaf_split,
    nvlink_domain,
    switches_by_ports,
    tree_reach,
)
from gpuscale.core.fabric.of_cluster import dragonfly, torus
from gpuscale.core.fabric.records import Hosts, Ports, Wish, equal_ports

FILE = Path(__file__).parent.parent / "data" / "published" / "fabrics.csv"
with FILE.open(encoding="utf-8") as lines:
    ROWS = {row["case_id"]: row for row in csv.DictReader(lines)}

HDR, NDR, XDR = 25e9, 50e9, 100e9
K64, K40, K144 = equal_ports(64, NDR), equal_ports(40, HDR), equal_ports(144, XDR)
K128 = equal_ports(128, NDR)
UFM = Wish(manager_links=4)
TWIN = Wish(planes=2, links_per_cable=2)


def superpod(nodes, ports, wish, per_nic=1):
    return design(Hosts(nodes, 8, 8, per_nic), ports, wish)


DESIGNS = {
    "nv-h100-su1": lambda: superpod(31, K64, UFM),
    "nv-h100-su3": lambda: superpod(95, K64, UFM),
    "nv-b200-su2": lambda: superpod(64, K64, Wish()),
    "nv-b200-su8": lambda: superpod(256, K64, Wish()),
    "nv-b200-su16": lambda: superpod(512, K64, Wish()),
    "nv-b200-su64": lambda: superpod(2048, K64, Wish()),
    "nv-b300eth-su1": lambda: superpod(64, K128, TWIN, 2),
    "nv-b300eth-su4": lambda: superpod(256, K128, TWIN, 2),
    "nv-b300eth-su16": lambda: superpod(1024, K128, TWIN, 2),
    "nv-b300xdr-su1": lambda: superpod(72, K144, Wish()),
    "nv-b300xdr-su4": lambda: superpod(288, K144, Wish()),
    "nv-b300xdr-su18": lambda: superpod(1296, K144, Wish()),
    "meta-24k-pod": lambda: superpod(384, K64, Wish("fat-tree", rack_links=16)),
    "megascale-tor-group": lambda: design(
        Hosts(64, 8, 8), Ports(128, 64, 25e9, 50e9), Wish(tiers=2)
    ),
    "hpn-segment": lambda: design(
        Hosts(128, 8, 8, 2),
        Ports(256, 128, 25e9, 50e9),
        Wish(planes=2, oversubscription=(17 / 15,)),
    ),
    "ds-ft2": lambda: design(Hosts(2048, 1, 1), K64, Wish("fat-tree")),
    "ds-ft3": lambda: design(Hosts(65536, 1, 1), K64, Wish("fat-tree")),
    "ds-dragonfly": lambda: dragonfly(Hosts(261632, 1, 1), 64, NDR, (16, 32, 16, 511)),
    "ff2": lambda: design(Hosts(1600, 1, 8), K40, Wish("fat-tree", zones=2, zone_switches=2)),
    "ff2-dgx": lambda: design(Hosts(1320, 8, 8), K40, Wish("fat-tree")),
    "h100cost-64n": lambda: superpod(64, K64, Wish("rail-only")),
    "h100cost-128n": lambda: superpod(128, K64, Wish("fat-tree")),
    "h100cost-512n": lambda: superpod(512, K64, Wish("rail-only")),
    "h100cost-2048n": lambda: superpod(2048, K64, Wish("rail-only")),
    "h100cost-4096n": lambda: superpod(4096, K64, Wish("fat-tree")),
    "tpu-v4-pod": lambda: torus((16, 16, 16), 45e9, cube=4),
    "tpu-v6e-pod": lambda: torus((16, 16), 90e9, chips_per_node=8),
    "nv-gb200-su1": lambda: design(Hosts(144, 4, 4), K64, Wish(topology="rail-optimised")),
}
NO_COUNTS = {
    "meta-24k-cluster": "only the oversubscription is printed; tested below",
    "hpn-scale-1": "reach of a tier; tested below",
    "hpn-scale-3": "reach of a tier; tested below",
    "th6-2tier": "reach of two tiers; tested below",
    "h100cost-13107n": "beyond one three-tier tree of 64 ports; the sheet counts ports; below",
    "rail-only": "a range of savings; tested below",
    "colossus-100k": "tiers only; tested below",
    "meta-rsc-p1": "radix and switches not printed",
}


def test_every_published_row_is_designed_or_named():
    assert set(DESIGNS) | set(NO_COUNTS) == set(ROWS)


@pytest.mark.parametrize("case", DESIGNS)
def test_published_network_is_designed_exactly(case):
    row, made = ROWS[case], DESIGNS[case]()
    cables = {g.lower: g.n_cables for g in made.links}
    between = sum(g.n_links for g in made.links if g.lower != "host")
    found = {
        "leaf": made.switches("leaf"),
        "spine": made.switches("spine"),
        "core": made.switches("core"),
        "switches": made.n_switches,
        "host_cables": cables.get("host"),
        "leaf_spine_cables": between if case.startswith("ds-") else cables.get("leaf"),
        "spine_core_cables": cables.get("spine"),
        "nodes": made.n_nodes,
        "gpus": made.n_gpus,
    }
    # Fire-Flyer's tree has 10,560 ports for 10,000 GPUs, its zones 1,600 for 1,250 nodes;
    # the XDR table prints 9,216 GPUs beside 10,368 cables of 1,296 nodes of 8
    # the rows of DeepSeek print switch-to-switch links alone
    skip = {"ff2": ("nodes", "gpus"), "ff2-dgx": ("gpus",), "nv-b300xdr-su18": ("gpus",)}.get(
        case, ()
    )
    for column, value in found.items():
        if row[column] and column not in skip:
            assert value == int(row[column]), (column, row["source"])
    if row["planes"] and case != "hpn-segment" and made.topology != "rail-only":
        assert made.n_networks == int(row["planes"]) * (2 if case == "ff2" else 1)


def test_fire_flyer_tiers_are_of_two_zones_of_800_ports():
    made = DESIGNS["ff2"]()
    assert (made.switches("leaf"), made.switches("spine")) == (80, 40)
    assert made.reach_gpus == 2 * 800 * 8


def test_megascale_and_hpn_leafs():
    assert DESIGNS["megascale-tor-group"]().group("leaf") == 256
    split = leaf_split(Ports(256, 128, 25e9, 50e9), 17 / 15)
    assert (split.down, split.up) == (136, 60)  # 136 x 200G + 60 x 400G = 51.2 Tb/s


def test_cost_sheet_counts_ports_beyond_one_tree():
    """13,107 nodes: the sheet prints ceil(5 N / 64); whole switches of eight rails are 8,200."""
    assert switches_by_ports(13107 * 8, 64, 3) == int(ROWS["h100cost-13107n"]["switches"])
    with pytest.raises(ValueError, match="join at most"):
        design(Hosts(13107, 8, 8), K64, Wish("fat-tree", tiers=3))
    assert superpod(13107, K64, Wish("rail-only")).n_switches == 8200


def test_reach_of_published_ladders():
    hpn = leaf_split(equal_ports(128, NDR))
    assert hpn.down == 64  # 51.2T: 64 GPUs of 400G under a leaf
    assert tree_reach([leaf_split(equal_ports(128, NDR))], 128) == 8192  # dual plane: 8K
    assert tree_reach([leaf_split(equal_ports(512, HDR))], 512) == 131072  # Tomahawk 6 at 200G
    with pytest.raises(ValueError, match="join at most"):
        design(Hosts(12500, 8, 8), K64, Wish("fat-tree", tiers=2))  # Colossus needs three


def test_meta_cluster_share_across_pods():
    wish = Wish("fat-tree", oversubscription=(1.0, 7.0), rack_links=16)
    made = design(Hosts(3072, 8, 8), K64, wish)
    assert made.bisection[-1].bytes_per_s_per_gpu * 8 / 1e9 == pytest.approx(400 / 7)
    assert made.switches("leaf") == 8 * 192


def test_scale_up_domains():
    rack = nvlink_domain(72, 18, 50e9, 72)
    assert rack.n_switches == 18  # 9 trays of 2 chips
    assert 2 * rack.bisection[0].bytes_per_s_per_gpu == 1.8e12  # vendors add both directions


def test_tpu_pods():
    v4, v6e = DESIGNS["tpu-v4-pod"](), DESIGNS["tpu-v6e-pod"]()
    assert v4.bisection[0].bytes_per_s == 512 * 45e9
    assert 2 * sum(g.n_links for g in v6e.links) == 1024  # ICI ports of the pod
    unwrapped = torus((16, 16), 90e9, (False, False))
    assert 2 * unwrapped.bisection[0].bytes_per_s == v6e.bisection[0].bytes_per_s
