"""The network of a cluster: its hosts, its switch, its wish, and the design that they make.

First the networks that are no trees: dragonfly, dragonfly+, tori with optical circuit switches.

.. [1] J. Kim, W. Dally, S. Scott, D. Abts, "Technology-driven, highly-scalable dragonfly
   topology", ISCA 2008, doi:10.1109/ISCA.2008.19.
.. [2] A. Shpiner et al., "Dragonfly+", HiPINEB 2017, doi:10.1109/HiPINEB.2017.11.
.. [3] N. Jouppi et al., "TPU v4", ISCA 2023, arXiv:2304.01433, for tori of cubes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.core.fabric import TREES
from gpuscale.core.fabric.clos import design
from gpuscale.core.fabric.records import Bisection, Design, Hosts, Links, Ports, Tier, Wish
from gpuscale.core.records import dataclass, made_of

if TYPE_CHECKING:
    from gpuscale.specs.hardware import ClusterSpec


def balanced_dragonfly(n_hosts: int, radix: int) -> tuple[int, int, int, int]:
    """Hosts per switch, switches per group, global links per switch and groups, ``a = 2p = 2h``.

    Raises ValueError if the switches do not reach so many hosts.
    """
    p = (radix + 1) // 4
    a, h = 2 * p, p
    g = math.ceil(n_hosts / (a * p)) if p else 0
    if p < 1 or g > a * h + 1:
        raise ValueError(
            f"a balanced dragonfly of {radix}-port switches joins at most "
            f"{(a * h + 1) * a * p} hosts, got {n_hosts}"
        )
    return p, a, h, max(g, 1)


def dragonfly(
    hosts: Hosts,
    radix: int,
    link_bytes_per_s: float,
    shape: tuple[int, int, int, int] | None = None,
) -> Design:
    """Dragonfly: groups of fully joined switches, every two groups joined [1]_.

    ``g a`` switches; ``g a (a-1)/2`` links inside groups and ``g a h/2`` between them.

    `hosts`: nodes and their NICs. `radix`: ports of a switch [1]. `link_bytes_per_s`: of one link,
    one direction [byte/s]. `shape`: p hosts and h global links of a switch, a switches of a group,
    g groups; as (p, a, h, g). Raises ValueError if the switch has too few ports, the groups cannot
    all be joined, or hosts do not fit.

    >>> d = dragonfly(Hosts(261632, 1, 1), 64, 50e9, (16, 32, 16, 511))
    >>> d.n_switches, sum(g.n_links for g in d.links[1:])
    (16352, 384272)
    """
    p, a, h, g = shape or balanced_dragonfly(hosts.n_links, radix)
    if min(p, a, h, g) < 1:
        raise ValueError("a dragonfly needs at least one host, switch, global link and group")
    if p + (a - 1) + h > radix:
        raise ValueError(f"p + (a-1) + h = {p + a - 1 + h} is more than {radix} ports")
    if g > a * h + 1:
        raise ValueError(f"{g} groups cannot all be joined: at most a*h + 1 = {a * h + 1}")
    inside, between = g * a * (a - 1) // 2, g * a * h // 2 if g > 1 else 0
    middle = (g // 2) * math.ceil(g / 2) * (a * h / (g - 1)) if g > 1 else inside / 2
    return _switched(
        "dragonfly",
        hosts,
        link_bytes_per_s,
        (Tier("switch", g * a, p, a - 1 + h, p / h),),
        [("switch", "group", inside), ("group", "group", between)],
        ports=(g * a * p, (a * h + 1) * a * p),
        halves=(a * p, middle),
        parameters={"p": p, "a": a, "h": h, "g": g},
    )


def dragonfly_plus(
    hosts: Hosts, radix: int, link_bytes_per_s: float, groups: int | None = None
) -> Design:
    """Dragonfly+: groups are two-tier trees whose spines have half their ports global [2]_.

    A group has ``k/2`` leafs and ``k/2`` spines, ``(k/2)^2`` hosts; up to ``(k/2)^2 + 1`` groups.
    """
    half = radix // 2
    if half < 1:
        raise ValueError(f"a switch needs at least 2 ports, got {radix}")
    size = half * half
    g = groups or math.ceil(hosts.n_links / size)
    if not 1 <= g <= size + 1:
        raise ValueError(f"{g} groups cannot all be joined: at most (k/2)^2 + 1 = {size + 1}")
    between = g * size // 2 if g > 1 else 0
    middle = (g // 2) * math.ceil(g / 2) * size / (g - 1) if g > 1 else size / 2
    return _switched(
        "dragonfly+",
        hosts,
        link_bytes_per_s,
        (Tier("leaf", g * half, half, half, 1.0), Tier("spine", g * half, half, half, 1.0)),
        [("leaf", "spine", g * size), ("spine", "spine", between)],
        ports=(g * size, (size + 1) * size),
        halves=(size, middle),
        parameters={"k": radix, "g": g},
    )


def _switched(
    topology: str,
    hosts: Hosts,
    rate: float,
    tiers: tuple[Tier, ...],
    rows: Sequence[tuple[str, str, int]],
    *,
    ports: tuple[int, int],
    halves: tuple[int, float],
    parameters: Mapping[str, int],
) -> Design:
    """Design of switches that are joined directly, the hosts on the first tier.

    `rate`: of every link [byte/s]. `rows`: lower and upper end and number of links between
    switches. `ports`: host ports that there are, and could be. `halves`: host links of a group, and
    links between two halves of all.
    """
    if hosts.n_links > ports[0]:
        raise ValueError(f"{hosts.n_links} host links do not fit {ports[0]} host ports")
    each = hosts.n_links * rate / hosts.n_gpus
    group, middle = halves
    whole = min(hosts.n_links / 2, middle) * rate
    gpus = min(_gpus_of(hosts, group), hosts.n_gpus)
    bisection = (
        Bisection("group", gpus, each, group / 2 * rate),  # half of it to its other half
        Bisection("network", hosts.n_gpus, min(each, 2 * whole / hosts.n_gpus), whole),
    )
    rows = [("host", tiers[0].name, hosts.n_links), *rows]
    return Design(
        topology=topology,
        n_gpus=hosts.n_gpus,
        n_nodes=hosts.n_nodes,
        n_host_links=hosts.n_links,
        n_tiers=2,
        n_networks=1,
        tiers=tiers,
        links=tuple(Links(a, b, n, rate, n) for a, b, n in rows if n),
        bisection=bisection,
        reach_gpus=_gpus_of(hosts, ports[1]),
        parameters=tuple(parameters.items()),
    )


def wraps(size: int, every: int) -> bool:
    """Whether an axis of a TPU slice is closed to a ring: whole multiples of `every` chips.

    4 for v4 and v5p (cubes joined by circuit switches), 16 for v5e and v6e.
    """
    return size % every == 0


def torus_links(shape: Sequence[int], wrapped: Sequence[bool]) -> int:
    """Links of a torus or mesh; an axis of 2 has one link between its two, two if wrapped. [1]."""
    n = math.prod(shape)
    return sum(
        n // size * (size if closed else size - 1)
        for size, closed in zip(shape, wrapped, strict=True)
        if size > 1
    )


def torus_bisection_links(shape: Sequence[int], wrapped: Sequence[bool]) -> int:
    """Links cut by the cheapest halving across one axis. [1].

    ``2 n / max(axis)`` where that axis is wrapped, half of it where it is not.
    """
    n = math.prod(shape)
    cuts = [
        n // size * (2 if closed else 1)
        for size, closed in zip(shape, wrapped, strict=True)
        if size > 1
    ]
    return min(cuts, default=0)


def torus(
    shape: Sequence[int],
    link_bytes_per_s: float,
    wrapped: Sequence[bool] | None = None,
    chips_per_node: int = 4,
    cube: int | None = None,
) -> Design:
    """Torus or mesh of accelerators, each its own router.

    `shape`: chips along each axis [1]. `link_bytes_per_s`: of one link, one direction [byte/s].
    `wrapped`: axes closed to rings; all if not given. `chips_per_node`: chips of one host [1].
    `cube`: side of a block whose faces go to optical circuit switches: ``side^2`` pairs of opposite
    face links of each of the three axes share a switch, 48 for cubes of 4 [3]_.

    >>> pod = torus((16, 16, 16), 45e9, cube=4)
    >>> pod.n_switches, [g.n_links for g in pod.links], pod.bisection[0].bytes_per_s / 1e12
    (48, [9216, 3072], 23.04)
    """
    rings = wrapped if wrapped is not None else [True] * len(shape)
    closed = tuple(ring and size > 1 for ring, size in zip(rings, shape, strict=True))
    n = math.prod(shape)
    links = torus_links(shape, closed)
    cut = torus_bisection_links(shape, closed) * link_bytes_per_s
    n_switches, optical = 0, 0
    if cube:
        if len(shape) != 3 or any(size % cube for size in shape):
            raise ValueError(f"blocks of {cube} do not divide {tuple(shape)}")
        n_switches = 3 * cube * cube
        optical = n // cube * sum(closed)
    rows = [("chip", "chip", links - optical, False), ("chip", "circuit switch", optical, True)]
    return Design(
        topology="torus",
        n_gpus=n,
        n_nodes=math.ceil(n / chips_per_node),
        n_host_links=0,
        n_tiers=0,
        n_networks=1,
        tiers=(),
        links=tuple(  # a link through a circuit switch is two cables
            Links(a, b, m, link_bytes_per_s, m * (2 if o else 1), o) for a, b, m, o in rows if m
        ),
        bisection=(Bisection("torus", n, 2 * cut / n, cut),),
        n_extra_switches=n_switches,
        parameters=tuple((f"axis {i + 1}", size) for i, size in enumerate(shape)),
    )


def _gpus_of(hosts: Hosts, n_links: int) -> int:
    return n_links * hosts.n_gpus // hosts.n_links


SHAPES = {"dragonfly": "p,a,h,g", "dragonfly+": "g"}
"""Numbers that may be asked of a network that is no tree."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What a network is designed from."""

    hosts: Hosts
    ports: Ports
    wish: Wish
    shape: tuple[int, ...] = ()  # torus: axes; others: as in SHAPES
    wrapped: tuple[bool, ...] = ()
    cube: int | None = None


def slice_shape(n_chips: int, pod: Sequence[int], cube: int | None = None) -> tuple[int, ...]:
    """Axes of a slice of a torus pod, as near to a cube as its size allows.

    `n_chips`: chips of the slice [1]. `pod`: axes of the pod [1]. `cube`: axes beyond it are whole
    multiples of it. Raises ValueError if no box of that many chips fits into the pod.

    >>> slice_shape(512, (16, 16, 16), 4), slice_shape(128, (16, 16)), slice_shape(4096, (16,) * 3)
    ((8, 8, 8), (8, 16), (16, 16, 16))
    """
    longest = max(pod)

    def boxes(left: int, axes: int, least: int) -> list[tuple[int, ...]]:
        if axes == 1:
            return [(left,)] if least <= left <= longest else []
        return [
            (size, *rest)
            for size in range(least, min(left, longest) + 1)
            if left % size == 0
            for rest in boxes(left // size, axes - 1, size)
        ]

    found = [
        box
        for box in boxes(n_chips, len(pod), 1)
        if all(a <= b for a, b in zip(box, sorted(pod), strict=True))
        and (not cube or all(size % cube == 0 or size < cube for size in box))
    ]
    if not found:
        raise ValueError(f"no box of {n_chips} chips fits a pod of {'x'.join(map(str, pod))}")
    return min(found, key=lambda box: (max(box) / min(box), box))


def plan_of(cluster: ClusterSpec, n_gpus: int) -> NetworkPlan | None:
    """Hosts, ports and wish of a cluster; None where it has no network to design.

    `cluster`: its `network`, NICs, egress, planes and `switch_radix`. `n_gpus`: GPUs in use [1].
    Raises ValueError for counts below 1, or a slice that is no box.
    """
    net = cluster.network
    nodes = math.ceil(n_gpus / cluster.gpus_per_node)
    if net.topology == "torus":
        return _torus_plan(cluster, n_gpus)
    egress = cluster.node_egress_bytes_per_s
    if egress is None:
        return None
    nics = cluster.nics_per_node or cluster.gpus_per_node
    per_nic = net.ports_per_nic or cluster.network_planes * (2 if net.dual_tor else 1)
    link = egress / (nics * per_nic)
    up_ports, uplink = cluster.switch_radix, net.uplink_bytes_per_s or link
    ports = Ports(round(up_ports * uplink / link), up_ports, link, uplink)
    rack = None
    if net.top_of_rack and net.rack_gpus:
        rack = net.rack_gpus * nics * per_nic // cluster.gpus_per_node
    own = {"planes": cluster.network_planes, "rack_links": rack}
    wish = made_of(Wish, net, manager_links=net.manager_ports, **own)
    return NetworkPlan(Hosts(nodes, nics, cluster.gpus_per_node, per_nic), ports, wish, net.shape)


def _torus_plan(cluster: ClusterSpec, n_gpus: int) -> NetworkPlan | None:
    net, rate = cluster.network, cluster.scaleup_bytes_per_s
    if rate is None or not net.shape:
        return None
    shape = slice_shape(n_gpus, net.shape, net.cube)
    wrapped = tuple(wraps(size, net.wrap_every) for size in shape)
    cube = net.cube if net.cube and all(size % net.cube == 0 for size in shape) else None
    link = rate / (2 * len(shape))
    nodes = math.ceil(n_gpus / cluster.gpus_per_node)
    return NetworkPlan(
        Hosts(nodes, 1, cluster.gpus_per_node),
        Ports(2 * len(shape), 2 * len(shape), link, link),
        Wish(topology="torus"),
        shape,
        wrapped,
        cube,
    )


def design_of(plan: NetworkPlan) -> Design:
    """Design the network of a plan.

    Raises ValueError as the designs of `core.fabric.clos` and `core.fabric.of_cluster`.
    """
    kind, hosts, rate = plan.wish.topology, plan.hosts, plan.ports.down_bytes_per_s
    if kind in TREES:
        return design(hosts, plan.ports, plan.wish)
    known = SHAPES.get(kind)
    if known and plan.shape and len(plan.shape) != len(known.split(",")):
        raise ValueError(f"the shape of a {kind} is {known}")
    if kind == "dragonfly":
        shape = (plan.shape[0], plan.shape[1], plan.shape[2], plan.shape[3]) if plan.shape else None
        return dragonfly(hosts, plan.ports.up, rate, shape)
    if kind == "dragonfly+":
        return dragonfly_plus(hosts, plan.ports.up, rate, *plan.shape)
    return torus(plan.shape, rate, plan.wrapped, hosts.gpus_per_node, plan.cube)
