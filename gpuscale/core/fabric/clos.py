"""Clos networks: fat trees of any number of tiers, with rails, planes, zones; NVLink domains.

Counts follow the published reference tables: half of a leaf's ports go down (fewer up with
oversubscription), leafs are built for whole scalable units, and the links of a leaf are spread
evenly, so the number of spines divides them.

.. [1] M. Al-Fares, A. Loukissas, A. Vahdat, SIGCOMM 2008, doi:10.1145/1402958.1402967.
.. [2] NVIDIA DGX SuperPOD reference architectures H100, B200, B300: tables of switches and cables.
.. [3] NVIDIA, DGX H100/H200 and DGX GB Rack Scale Systems user guides: NVLink switches and links.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuscale.core.fabric.records import Bisection, Design, Hosts, Links, Ports, Tier, Wish
from gpuscale.core.records import dataclass

NAMES = ("leaf", "spine", "core", "super-core", "fifth-tier")
"""Tiers from the bottom."""

MOST_TIERS = len(NAMES)


@dataclass(frozen=True, slots=True)
class PortSplit:
    """How the ports of a switch are divided."""

    down: int
    up: int


@dataclass(frozen=True, slots=True)
class Tree:
    """One fat tree: switches per tier, links out of each tier, and the most links it joins."""

    switches: tuple[int, ...]
    splits: tuple[PortSplit, ...]  # of every tier but the top, as planned
    links_up: tuple[int, ...]  # of every tier but the top
    reach: int
    even: bool


def leaf_split(ports: Ports, oversubscription: float = 1.0) -> PortSplit:
    """Divide the ports of a switch: most host links with enough uplinks.

    The largest `down` with ``down/k_down + up/k_up <= 1`` and
    ``up = ceil(down * down_rate / (oversubscription * up_rate))``.

    `ports`: the switch at the two speeds. `oversubscription`: bandwidth down over bandwidth up, at
    least 1 [1]. Raises ValueError if the oversubscription is below 1 or no port would be left for
    hosts.

    >>> leaf_split(Ports(64, 64, 50e9, 50e9)), leaf_split(Ports(64, 64, 50e9, 50e9), 7)
    (PortSplit(down=32, up=32), PortSplit(down=56, up=8))
    >>> leaf_split(Ports(128, 64, 25e9, 50e9))  # 64 x 400G, hosts at 200G: MegaScale
    PortSplit(down=64, up=32)
    >>> leaf_split(Ports(256, 128, 25e9, 50e9), 17 / 15)  # 51.2T: Alibaba HPN
    PortSplit(down=136, up=60)
    """
    if not oversubscription >= 1.0:
        raise ValueError(f"oversubscription must be at least 1, got {oversubscription:g}")
    ratio = ports.down_bytes_per_s / (oversubscription * ports.up_bytes_per_s)
    for down in range(ports.down, 0, -1):
        up = math.ceil(down * ratio - 1e-9)
        if down * ports.up + up * ports.down <= ports.down * ports.up:
            return PortSplit(down, up)
    raise ValueError(f"a switch of {ports.down} ports has none left for hosts")


def spread(least: int, n_uplinks: int) -> int | None:
    """Smallest number of switches, at least `least`, over which the uplinks spread evenly.

    None where more switches than uplinks would be needed: another tier is.

    >>> spread(12, 32), spread(16, 72), spread(33, 32)
    (16, 18, None)
    """
    return next((n for n in range(least, n_uplinks + 1) if n_uplinks % n == 0), None)


def tree_reach(splits: Sequence[PortSplit], top_ports: int) -> int:
    """Host links that a tree of these splits under switches of `top_ports` can join. [1]."""
    return math.prod(s.down for s in splits) * top_ports


def tree(
    n_links_of: Sequence[int],
    ports: Ports,
    oversubscription: Sequence[float] = (),
    tiers: int | None = None,
    rack_links: int | None = None,
    least_tiers: int = 1,
) -> Tree:
    """One fat tree over groups of host links that each need leafs of their own.

    `n_links_of`: host links of each group (a rail); a leaf holds links of one group [1]. `ports`:
    the switch; tiers above the leaf have all ports at the uplinks' speed. `oversubscription`: of
    each tier from the leaf up; 1 where missing [1]. `tiers`: number of tiers; the fewest that reach
    if not given. `rack_links`: most host links of a leaf. `least_tiers`: where `tiers` is not
    given: two where both ToRs of a pair must meet above. Raises ValueError if the tiers do not
    reach, or five are not enough.

    >>> tree([96] * 8, Ports(64, 64, 50e9, 50e9)).switches
    (24, 16)
    >>> tree([4096], Ports(64, 64, 50e9, 50e9)).switches
    (128, 128, 64)
    """
    n_links = sum(n_links_of)
    reach = 0
    for n_tiers in (tiers,) if tiers else range(least_tiers, MOST_TIERS + 1):
        found = _tree_of(n_tiers, n_links_of, ports, oversubscription, rack_links)
        if found.switches:
            return found
        reach = found.reach
    raise ValueError(
        f"{tiers or MOST_TIERS} tier{'s' * ((tiers or MOST_TIERS) > 1)} of {ports.up}-port "
        f"switches join at most {reach} links, got {n_links}"
    )


def _tree_of(
    n_tiers: int,
    n_links_of: Sequence[int],
    ports: Ports,
    oversubscription: Sequence[float],
    rack_links: int | None,
) -> Tree:
    """Tree of exactly `n_tiers`; without switches where that does not reach."""
    n_links = sum(n_links_of)
    over = [*oversubscription, *[1.0] * n_tiers]
    if n_tiers == 1:
        most = min(ports.down, rack_links or ports.down)
        return Tree((1,) if n_links <= most else (), (), (), most, True)
    leaf = leaf_split(ports, over[0])
    if rack_links is not None and rack_links < leaf.down:
        ratio = ports.down_bytes_per_s / (over[0] * ports.up_bytes_per_s)
        leaf = PortSplit(rack_links, math.ceil(rack_links * ratio - 1e-9))
    middle = Ports(ports.up, ports.up, ports.up_bytes_per_s, ports.up_bytes_per_s)
    splits = [leaf, *[leaf_split(middle, over[i]) for i in range(1, n_tiers - 1)]]
    reach = tree_reach(splits, ports.up)
    counts = [sum(math.ceil(n / leaf.down) for n in n_links_of)]
    links = [counts[0] * leaf.up]
    for split in splits[1:]:
        counts.append(math.ceil(links[-1] / split.down))
        links.append(counts[-1] * split.up)
    least = math.ceil(links[-1] / ports.up)
    even = True
    if n_tiers == 2:
        top = spread(least, leaf.up) if counts[0] * leaf.down <= reach else None
        if top is None:
            return Tree((), tuple(splits), (), reach, True)
    else:
        if n_links > reach:
            return Tree((), tuple(splits), (), reach, True)
        top = least
        even = _whole_pods(counts, splits, top)
    return Tree((*counts, top), tuple(splits), tuple(links), reach, even)


def _whole_pods(counts: Sequence[int], splits: Sequence[PortSplit], top: int) -> bool:
    """Whether pods are full and the links of a spine spread evenly over cores of its index."""
    if counts[0] % splits[1].down or counts[1] % splits[0].up:
        return False
    own, left = divmod(top, splits[0].up)
    return not left and splits[1].up % own == 0


def design(hosts: Hosts, ports: Ports, wish: Wish) -> Design:
    """Design a Clos network.

    `hosts`: nodes and their NICs; with `planes` or `dual_tor` the ports of a NIC are divided.
    `ports`: the switch at the speeds of host links and uplinks. `wish`: ``fat-tree`` (leafs filled
    in order), ``rail-optimised`` (one tree, every rail of a unit on its own leaf), ``rail-only`` (a
    separate network per rail, as few tiers as reach: traffic across rails goes through the node).
    Raises ValueError for an oversubscription below 1, ports that do not divide, or too many hosts.

    >>> sheet = design(Hosts(95, 8, 8), Ports(64, 64, 50e9, 50e9), Wish(manager_links=4))
    >>> [t.n_switches for t in sheet.tiers], [g.n_links for g in sheet.links]
    ([24, 16], [764, 768])
    """
    groups = _groups(hosts, wish, _check(hosts, wish))
    apart = wish.topology == "rail-only"
    least = 1 + wish.dual_tor
    one = tree(groups, ports, wish.oversubscription, wish.tiers, wish.rack_links, least)
    n_networks = wish.planes * wish.zones * (hosts.nics_per_node if apart else 1)
    tiers = _tiers(one, ports, n_networks, groups)
    links = _links(one, ports, wish, hosts, n_networks)
    return Design(
        topology=wish.topology,
        n_gpus=hosts.n_gpus,
        n_nodes=hosts.n_nodes,
        n_host_links=hosts.n_links,
        n_tiers=len(one.switches),
        n_networks=n_networks,
        tiers=tiers,
        links=links,
        bisection=_bisection(one, hosts, ports, wish),
        n_extra_switches=wish.zone_switches,
        n_manager_links=wish.manager_links,
        reach_gpus=_reach(one, hosts, wish, apart),
        even=one.even,
    )


def _check(hosts: Hosts, wish: Wish) -> int:
    """Links that a NIC has into one network."""
    if hosts.ports_per_nic % wish.planes:
        raise ValueError(
            f"{hosts.ports_per_nic} ports of a NIC cannot be spread over {wish.planes} planes"
        )
    if wish.tiers is not None and not 1 <= wish.tiers <= MOST_TIERS:
        raise ValueError(f"tiers must be 1 to {MOST_TIERS}, got {wish.tiers}")
    if wish.rack_links is not None and wish.rack_links < 1:
        raise ValueError(f"rack_links must be at least 1, got {wish.rack_links}")
    return hosts.ports_per_nic // wish.planes


def _groups(hosts: Hosts, wish: Wish, per_nic: int) -> list[int]:
    """Host links of one network by what needs leafs of its own: rails, and the ToRs of a pair."""
    nodes = math.ceil(hosts.n_nodes / wish.zones)
    tors = per_nic if wish.dual_tor else 1
    links = nodes * per_nic // tors
    if wish.topology == "fat-tree":
        return [links * hosts.nics_per_node] * tors
    return [links] * (1 if wish.topology == "rail-only" else hosts.nics_per_node) * tors


def _tiers(one: Tree, ports: Ports, n_networks: int, groups: Sequence[int]) -> tuple[Tier, ...]:
    found = []
    for i, n in enumerate(one.switches):
        if i < len(one.splits):
            down, up = one.splits[i].down, one.splits[i].up
            rates = (ports.down_bytes_per_s if i == 0 else ports.up_bytes_per_s) * down
            over = rates / (up * ports.up_bytes_per_s)
        else:
            used = one.links_up[-1] if one.links_up else sum(groups)
            down, up, over = math.ceil(used / n), 0, 1.0
        found.append(Tier(NAMES[i], n * n_networks, down, up, over))
    return tuple(found)


def _links(one: Tree, ports: Ports, wish: Wish, hosts: Hosts, n_networks: int) -> tuple[Links, ...]:
    n_host = hosts.n_links + wish.manager_links
    cables = math.ceil(n_host / wish.links_per_cable)
    rate, optical = ports.down_bytes_per_s, wish.rack_links is None
    groups = [Links("host", NAMES[0], n_host, rate, cables, optical)]
    for i, n in enumerate(one.links_up):
        total = n * n_networks
        cables = math.ceil(total / wish.links_per_cable)
        groups.append(Links(NAMES[i], NAMES[i + 1], total, ports.up_bytes_per_s, cables))
    return tuple(groups)


def _bisection(one: Tree, hosts: Hosts, ports: Ports, wish: Wish) -> tuple[Bisection, ...]:
    """Bandwidth of a GPU beyond each tier: link rate over the oversubscriptions below it."""
    per_gpu = (
        hosts.nics_per_node * hosts.ports_per_nic * ports.down_bytes_per_s / hosts.gpus_per_node
    )
    found, size = [], 1
    zone_gpus = math.ceil(hosts.n_nodes / wish.zones) * hosts.gpus_per_node
    for i, split in enumerate(one.splits):
        size *= split.down
        gpus = min(zone_gpus, _unit_gpus(size, hosts, wish))
        found.append(Bisection(NAMES[i], gpus, per_gpu, gpus / 2 * per_gpu))
        down_rate = (ports.down_bytes_per_s if i == 0 else ports.up_bytes_per_s) * split.down
        per_gpu = min(per_gpu, per_gpu * split.up * ports.up_bytes_per_s / down_rate)
    top = Bisection(NAMES[len(found)], hosts.n_gpus, per_gpu, hosts.n_gpus / 2 * per_gpu)
    return (*found, top)


def _unit_gpus(n_links: int, hosts: Hosts, wish: Wish) -> int:
    """GPUs under one unit of a tier that takes `n_links` host links of a network."""
    per_nic = 1 if wish.dual_tor else hosts.ports_per_nic // wish.planes  # links on one leaf
    nics = n_links // per_nic
    if wish.topology == "fat-tree":
        return max(1, nics * hosts.gpus_per_node // hosts.nics_per_node)
    return nics * hosts.gpus_per_node  # a unit is the leafs of all rails together


def _reach(one: Tree, hosts: Hosts, wish: Wish, apart: bool) -> int:
    per_nic = hosts.ports_per_nic // wish.planes
    links_per_node = per_nic * (1 if apart else hosts.nics_per_node)
    return one.reach // links_per_node * hosts.gpus_per_node * wish.zones


def switches_by_ports(n_links: int, radix: int, n_tiers: int) -> int:
    """Least switches that have ports enough for a full-bisection tree, shared by all tiers. [1].

    ``(2 t - 1) N / k``, 5 N / k for three tiers: what cost sheets count with. Whole switches of
    each tier can be a few more.

    >>> switches_by_ports(32768, 64, 3), switches_by_ports(10560, 40, 3)
    (2560, 1320)
    """
    return math.ceil((2 * n_tiers - 1) * n_links / radix)


def nvlink_domain(
    n_gpus: int,
    links_per_gpu: int,
    link_bytes_per_s: float,
    ports_per_chip: int,
    n_chips: int | None = None,
) -> Design:
    """Scale-up domain of NVLink switches: ``G l / ports`` chips, every GPU joined to all of them.

    `n_gpus`: GPUs of the domain (G) [1]. `links_per_gpu`: NVLink links of a GPU (l) [1].
    `link_bytes_per_s`: of one link, one direction; vendors print both added [byte/s].
    `ports_per_chip`: ports of a switch chip that GPUs use [1]. `n_chips`: chips as built where more
    than are needed.
    """
    n_links = n_gpus * links_per_gpu
    chips = n_chips or math.ceil(n_links / ports_per_chip)
    rate = links_per_gpu * link_bytes_per_s
    return Design(
        topology="nvlink",
        n_gpus=n_gpus,
        n_nodes=1,
        n_host_links=n_links,
        n_tiers=1,
        n_networks=1,
        tiers=(Tier("NVLink switch", chips, math.ceil(n_links / chips), 0, 1.0),),
        links=(Links("GPU", "NVLink switch", n_links, link_bytes_per_s, n_links, False),),
        bisection=(Bisection("domain", n_gpus, rate, n_gpus / 2 * rate),),
    )
