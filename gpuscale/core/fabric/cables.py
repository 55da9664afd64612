"""The point-to-point cable list of a design: which port of which device goes where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.core.fabric.records import TREES, Design, Hosts, Wish

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
    if made.n_tiers > 1:
        yield from _leaf_links(made, counts, mark)
    if made.n_tiers > 2:
        yield from _spine_links(made, counts, mark)


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


def _leaf_links(made: Design, counts: Sequence[int], mark: str) -> Iterator[Cable]:
    leafs, spines = counts[0], counts[1]
    up = made.tiers[0].ports_up
    pod_leafs = made.tiers[1].ports_down if made.n_tiers > 2 else leafs
    pod_spines = up if made.n_tiers > 2 else spines
    taken = [0] * spines
    for leaf in range(leafs):
        pod, place = divmod(leaf, pod_leafs)
        first = pod * pod_spines
        n = max(1, min(pod_spines, spines - first))
        for j in range(up):
            spine = first + (place * up + j) % n
            taken[spine] += 1
            yield Cable(
                f"{mark}leaf-{leaf + 1:03d}",
                f"{made.tiers[0].ports_down + j + 1}",
                f"{mark}spine-{spine + 1:03d}",
                f"{taken[spine]}",
                "hall",
            )


def _spine_links(made: Design, counts: Sequence[int], mark: str) -> Iterator[Cable]:
    spines, cores = counts[1], counts[2]
    up, pod_spines = made.tiers[1].ports_up, made.tiers[0].ports_up
    own = cores // pod_spines if made.even else 0  # cores of one index
    taken = [0] * cores
    for spine in range(spines):
        for j in range(up):
            core = (spine % pod_spines) * own + j % own if own else (spine * up + j) % cores
            taken[core] += 1
            yield Cable(
                f"{mark}spine-{spine + 1:03d}",
                f"{made.tiers[1].ports_down + j + 1}",
                f"{mark}core-{core + 1:03d}",
                f"{taken[core]}",
                "hall",
            )
