"""Modules, power, price and the point-to-point cables of a designed network.

Prices and powers are inputs with their source; a part without one is named, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpuscale.core.fabric import TREES
from gpuscale.core.fabric.records import Design, Hosts, Wish
from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """A pluggable optical module."""

    name: str
    links: int  # links that one module carries: 2 in a twin-port cage
    power_w: float


@dataclass(frozen=True, slots=True)
class PartTotals:
    """What the parts of a network draw and cost; None where nothing is known."""

    switch: str = "switch"
    switch_usd: float | None = None
    switch_w: tuple[float, float] | None = None  # lowest and highest figure of the chassis
    link_usd: float | None = None  # optical link: fibre and the modules of both ends
    copper_usd: float | None = None
    switch_module: Module | None = None
    host_module: Module | None = None
    copper_w: float = 0.1  # passive copper cable, both ends


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the bill of materials."""

    item: str
    n: int
    power_w: float | None  # of all, at the middle of its range
    unit_usd: float | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class NetworkBill:
    """Bill of materials of a network."""

    items: tuple[Item, ...]
    power_low_w: float | None  # None: a part's power is not known
    power_high_w: float | None
    usd: float | None  # None: a part's price is not known
    unpriced: tuple[str, ...]
    unmeasured: tuple[str, ...]  # parts whose power is not known


def modules(made: Design, switch_links: int = 2, host_links: int = 1) -> tuple[int, int]:
    """Optical modules at switches and at hosts.

    A switch's modules carry `switch_links` links each, so a switch with an odd number of used
    ports needs one more than half.

    >>> from gpuscale.core.fabric.clos import design
    >>> from gpuscale.core.fabric.records import Hosts, Wish, equal_ports
    >>> modules(design(Hosts(64, 8, 8), equal_ports(64), Wish()))
    (768, 512)
    """
    ends = at_hosts = 0
    for group in made.links:
        if not group.optical:
            continue
        if group.lower == "host":
            at_hosts += math.ceil(group.n_links / host_links)
            ends += group.n_links
        else:
            ends += 2 * group.n_links
    return math.ceil(ends / switch_links), at_hosts


def bill(made: Design, parts: PartTotals) -> NetworkBill:
    """Bill of materials.

    `made`: the network. `parts`: prices and powers.

    >>> from gpuscale.core.fabric.clos import design
    >>> from gpuscale.core.fabric.records import Hosts, Wish, equal_ports
    >>> made = design(Hosts(65536, 1, 1), equal_ports(64), Wish("fat-tree"))
    >>> priced = PartTotals(switch_usd=83.0e3, link_usd=504.0)
    >>> hosts = sum(g.n_links for g in made.links if g.lower == "host")
    >>> round((bill(made, priced).usd - hosts * 504.0) / 1e6)  # switch links alone: DeepSeek 491
    491
    """
    optical = sum(g.n_links for g in made.links if g.optical)
    copper = sum(g.n_links for g in made.links if not g.optical)
    switch, host = parts.switch_module, parts.host_module
    at_switch, at_host = modules(made, switch.links if switch else 1, host.links if host else 1)
    chassis = parts.switch_w
    middle = None if chassis is None else sum(chassis) / 2
    rows: list[tuple[str, int, float | None, float | None]] = [
        (parts.switch, made.n_switches, middle, parts.switch_usd),
        ("optical link (fibre, both modules)", optical, 0.0, parts.link_usd),
        ("copper link", copper, parts.copper_w, parts.copper_usd),
    ]
    for kind, n, module in (("switch module", at_switch, switch), ("host module", at_host, host)):
        name, each_w = (f"{kind} {module.name}", module.power_w) if module else (kind, None)
        rows.append((name, n, each_w, 0.0))
    rows = [row for row in rows if row[1]]
    items = tuple(
        Item(name, n, watts and n * watts, unit, unit and n * unit) for name, n, watts, unit in rows
    )
    spread = made.n_switches * (chassis[1] - chassis[0]) / 2 if chassis else 0.0
    total = _sum([i.power_w for i in items])
    return NetworkBill(
        items,
        None if total is None else total - spread,
        None if total is None else total + spread,
        _sum([i.usd for i in items]),
        tuple(i.item for i in items if i.usd is None),
        tuple(i.item for i in items if i.power_w is None),
    )


def _sum(values: list[float | None]) -> float | None:
    """Sum; None where one of them is not known."""
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None


COLUMNS = ("a_device", "a_port", "b_device", "b_port", "length")
"""Columns of a list as CSV; A is the lower device."""


@dataclass(frozen=True, slots=True)
class Cable:
    """One link from the lower device A to the upper device B."""

    a_device: str
    a_port: str
    b_device: str
    b_port: str
    length: str  # rack: up to 3 m, copper; row: up to 50 m; hall: beyond


def clos_cables(made: Design, hosts: Hosts, wish: Wish) -> Iterator[Cable]:
    """Links of a Clos network of up to three tiers.

    The links of a leaf go round the spines, so that every pair has as many as every other where the
    counts allow it; a spine of a full pod reaches the cores of its own index. Raises ValueError for
    more than three tiers, or a network that is no Clos.

    >>> from gpuscale.core.fabric.clos import design
    >>> from gpuscale.core.fabric.records import equal_ports
    >>> hosts = Hosts(64, 8, 8)
    >>> made = design(hosts, equal_ports(64), Wish())
    >>> rows = list(clos_cables(made, hosts, Wish()))
    >>> len(rows), rows[0].a_device, rows[0].b_device
    (1024, 'node-0001', 'leaf-001')
    """
    if made.topology not in TREES or made.n_tiers > 3:
        raise ValueError("a cable list is written for Clos networks of up to three tiers")
    for network in range(made.n_networks):
        yield from _network(made, hosts, wish, network)


def _network(made: Design, hosts: Hosts, wish: Wish, network: int) -> Iterator[Cable]:
    """One independent network: plane, rail (where apart) and zone are read off its number."""
    apart = made.topology == "rail-only"
    rails = hosts.nics_per_node
    plane, rest = divmod(network, made.n_networks // wish.planes)
    zone, rail = divmod(rest, rails) if apart else (rest, None)
    mark = "".join(
        f"{letter}{number + 1}-"
        for letter, number, many in (
            ("plane", plane, wish.planes),
            ("zone", zone, wish.zones),
            ("rail", rail or 0, rails if apart else 1),
        )
        if many > 1
    )
    counts = [t.n_switches // made.n_networks for t in made.tiers]
    used = [0] * counts[0]  # ports of each leaf that hosts take
    for node, nic, port, leaf in _host_links(made, hosts, wish, zone, rail, plane):
        used[leaf] += 1
        yield Cable(
            f"node-{node + 1:04d}",
            f"nic{nic + 1}" + (f"/{port + 1}" if hosts.ports_per_nic > 1 else ""),
            f"{mark}leaf-{leaf + 1:03d}",
            f"{used[leaf]}",
            "rack" if wish.rack_links else "row",
        )
    for tier in range(made.n_tiers - 1):
        yield from _uplinks(made, counts, mark, tier)


def _host_links(
    made: Design, hosts: Hosts, wish: Wish, zone: int, rail: int | None, plane: int
) -> Iterator[tuple[int, int, int, int]]:
    """(node, NIC, port of the NIC, leaf) of every host link of one network."""
    each = math.ceil(hosts.n_nodes / wish.zones)
    nodes = range(zone * each, min(hosts.n_nodes, (zone + 1) * each))
    nics = range(hosts.nics_per_node) if rail is None else (rail,)
    per_plane = hosts.ports_per_nic // wish.planes
    tors = per_plane if wish.dual_tor else 1
    own_leafs = made.topology == "rail-optimised"
    down = made.tiers[0].ports_down
    if made.n_tiers == 1:
        own_leafs = False
        down = hosts.n_links
    leafs_of = tors * (len(nics) if own_leafs else 1)  # of one unit
    for i, node in enumerate(nodes):
        for position, nic in enumerate(nics):
            for p in range(per_plane):
                tor = p if wish.dual_tor else 0
                link = i if own_leafs else i * len(nics) + position
                link = link if wish.dual_tor else link * per_plane + p
                group = (position if own_leafs else 0) * tors + tor
                leaf = link // down * leafs_of + group
                yield node, nic, plane * per_plane + p, leaf


def _uplinks(made: Design, counts: Sequence[int], mark: str, tier: int) -> Iterator[Cable]:
    """Links from one tier of switches to the next."""
    below, above = made.tiers[tier], made.tiers[tier + 1]
    taken = [0] * counts[tier + 1]
    for lower in range(counts[tier]):
        for j in range(below.ports_up):
            upper = _above(made, counts, tier, lower, j)
            taken[upper] += 1
            yield Cable(
                f"{mark}{below.name}-{lower + 1:03d}",
                f"{below.ports_down + j + 1}",
                f"{mark}{above.name}-{upper + 1:03d}",
                f"{taken[upper]}",
                "hall",
            )


def _above(made: Design, counts: Sequence[int], tier: int, lower: int, j: int) -> int:
    """Switch of the next tier to which link `j` of a switch goes."""
    up, uppers, three = made.tiers[tier].ports_up, counts[tier + 1], made.n_tiers > 2
    if tier == 0:
        pod, place = divmod(lower, made.tiers[1].ports_down if three else counts[0])
        pod_spines = up if three else uppers
        first = pod * pod_spines
        return first + (place * up + j) % max(1, min(pod_spines, uppers - first))
    pod_spines = made.tiers[0].ports_up
    own = uppers // pod_spines if made.even else 0  # cores of one index
    return (lower % pod_spines) * own + j % own if own else (lower * up + j) % uppers
