"""Cable lists: as many cables as designed, no port twice, even where the counts allow it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.fabric.bill import Cable, PartTotals, bill, clos_cables, modules
from gpuscale.core.fabric.check import check_cables
from gpuscale.core.fabric.clos import design
from gpuscale.core.fabric.of_cluster import dragonfly, torus
from gpuscale.core.fabric.records import Hosts, Wish, equal_ports, losses

CASES = [
    (Hosts(64, 8, 8), 64, Wish()),
    (Hosts(95, 8, 8), 64, Wish()),
    (Hosts(64, 8, 8, 2), 128, Wish(planes=2)),
    (Hosts(128, 4, 8), 64, Wish("fat-tree")),
    (Hosts(128, 8, 8), 64, Wish("rail-only")),
    (Hosts(40, 8, 8, 2), 64, Wish(dual_tor=True)),
    (Hosts(1600, 1, 8), 40, Wish("fat-tree", zones=2)),
    (Hosts(128, 8, 8), 16, Wish("fat-tree")),
    (Hosts(256, 8, 8), 64, Wish(oversubscription=(3,))),
]


def listed(hosts, radix, wish):
    made = design(hosts, equal_ports(radix), wish)
    return made, list(clos_cables(made, hosts, wish))


@pytest.mark.parametrize(("hosts", "radix", "wish"), CASES)
def test_designed_list_passes_its_own_check(hosts, radix, wish):
    made, rows = listed(hosts, radix, wish)
    report = check_cables(rows, radix)
    assert [f for f in report.findings if not f.ok] == []
    assert report.n_cables == sum(g.n_links for g in made.links)
    assert report.n_switches == made.n_switches
    assert report.n_hosts == hosts.n_nodes


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 120),
    st.integers(1, 8),
    st.sampled_from([8, 16, 32, 40, 64]),
    st.sampled_from(["fat-tree", "rail-optimised", "rail-only"]),
    st.sampled_from([(), (2.0,), (1.0, 3.0), (7.0,)]),
)
def test_any_design_respects_ports_and_counts(nodes, rails, radix, topology, over):
    hosts, wish = Hosts(nodes, rails, 8), Wish(topology, over)
    try:
        made = design(hosts, equal_ports(radix), wish)
    except ValueError:
        return
    if made.n_tiers > 3:
        return
    rows = list(clos_cables(made, hosts, wish))
    assert len(rows) == sum(g.n_links for g in made.links)
    ends = Counter((c.a_device, c.a_port) for c in rows)
    ends.update((c.b_device, c.b_port) for c in rows)
    assert max(ends.values()) == 1
    used = Counter(c.b_device for c in rows) + Counter(
        c.a_device for c in rows if not c.a_device.startswith("node")
    )
    assert max(used.values()) <= radix  # rivals put 200 cables on 144 ports
    assert len(used) == made.n_switches
    assert made.group("host") == hosts.n_links
    for tier in made.tiers[:-1]:
        assert tier.oversubscription <= max((*over, 1.0)) + 1e-9


def test_leaf_spine_cables_are_leafs_times_uplinks():
    """Not leafs x spines, and not a bandwidth: the errors of public planners."""
    made = design(Hosts(64, 8, 8), equal_ports(64), Wish())
    assert made.group("leaf") == 16 * 32
    assert made.n_switches == 24


@given(st.floats(1.0, 8.0), st.floats(1.0, 4.0))
@settings(max_examples=30, deadline=None)
def test_more_oversubscription_never_needs_more_uplinks(low, factor):
    hosts = Hosts(256, 8, 8)
    one = design(hosts, equal_ports(64), Wish(oversubscription=(low,), tiers=2))
    two = design(hosts, equal_ports(64), Wish(oversubscription=(low * factor,), tiers=2))
    assert two.group("leaf") <= one.group("leaf")
    assert two.bisection[-1].bytes_per_s_per_gpu <= one.bisection[-1].bytes_per_s_per_gpu * 1.0001


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: [*r, r[0]], "has 2 cables"),
        (lambda r: [c for c in r if c.b_device != "spine-001"], None),
        (lambda r: [c for c in r if not (c.a_device == "leaf-001" and c.b_port == "1")], "3, 4"),
        (lambda r: [c for c in r if c.a_device != "leaf-001"], "no uplink"),
        (lambda r: [c for c in r if c.a_port != "nic3"], "to"),
        (
            lambda r: [
                Cable(c.a_device, "nic2", c.b_device, c.b_port, "") if c == r[0] else c for c in r
            ],
            "leafs hold one rail",
        ),
    ],
)
def test_broken_list_is_told(change, words):
    _, rows = listed(Hosts(64, 8, 8), 64, Wish())
    bad = [f for f in check_cables(change(rows), 64).findings if not f.ok]
    assert bool(bad) == (words is not None)
    assert words is None or any(words in f.detail for f in bad)


def test_port_budget_is_held():
    _, rows = listed(Hosts(64, 8, 8), 64, Wish())
    assert any("of 48 ports" in f.detail for f in check_cables(rows, 48).findings if not f.ok)


def test_deepseek_table_prices():
    """arXiv:2505.09343 table 3: FT2 and FT3 give 83.0 k$ and 504 $; dragonfly within 2 %."""
    parts = PartTotals(switch_usd=83.0e3, link_usd=504.0)

    def switch_side(made):
        return bill(made, parts).usd - 504.0 * made.group("host")

    two = design(Hosts(2048, 1, 1), equal_ports(64), Wish("fat-tree"))
    fly = dragonfly(Hosts(261632, 1, 1), 64, 50e9, (16, 32, 16, 511))
    assert switch_side(two) / 1e6 == pytest.approx(9, rel=0.01)
    assert switch_side(fly) / 1e6 == pytest.approx(1522, rel=0.02)


def test_cost_sheet_node():
    """128 nodes: 310,000 + 50,000 + 48 x 36,000 / 128 + 20,480 = 393,980 $ a node."""
    made = design(Hosts(128, 8, 8), equal_ports(64), Wish("fat-tree"))
    total = bill(made, PartTotals(switch_usd=36_000, link_usd=1280)).usd
    assert 310_000 + 50_000 + total / 128 == 393_980


def test_unknown_price_and_power_are_named_not_guessed():
    made = design(Hosts(64, 8, 8), equal_ports(64), Wish())
    found = bill(made, PartTotals("QM9700", link_usd=1.0))
    assert found.usd is None and found.power_low_w is None
    assert found.unpriced == ("QM9700",)
    assert "QM9700" in found.unmeasured


def test_twin_modules_of_odd_ports():
    made = design(Hosts(3, 1, 1), equal_ports(64), Wish("fat-tree"))
    assert modules(made) == (2, 3)


def test_losses():
    twin = Hosts(64, 8, 8, 2)
    found = {x.part: x for x in losses(design(twin, equal_ports(128), Wish(planes=2)), twin)}
    assert found["host link"].bandwidth_frac == 0.5
    assert found["host link"].n_gpus_cut == 0
    assert found["spine"].bisection_frac == 1 / 8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: design(Hosts(8, 8, 8), equal_ports(0), Wish()), "at least 2 ports"),
        (
            lambda: design(Hosts(80, 8, 8), equal_ports(64), Wish(oversubscription=(0.5,))),
            "oversubscription must be at least 1",
        ),
        (lambda: design(Hosts(8, 8, 8), equal_ports(64), Wish(planes=2)), "cannot be spread"),
        (lambda: dragonfly(Hosts(10**7, 1, 1), 16, 1e9), "joins at most"),
        (lambda: torus((6, 6, 6), 1e9, cube=4), "do not divide"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()
