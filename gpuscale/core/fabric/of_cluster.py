"""The network of a cluster: its hosts, its switch, its wish, and the design that they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.fabric.clos import design
from gpuscale.core.fabric.lattice import dragonfly, dragonfly_plus, torus, wraps
from gpuscale.core.fabric.records import TREES, Design, Hosts, Ports, Wish

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec

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
    wish = Wish(
        topology=net.topology,
        oversubscription=net.oversubscription,
        tiers=net.tiers,
        planes=cluster.network_planes,
        dual_tor=net.dual_tor,
        zones=net.zones,
        zone_switches=net.zone_switches,
        rack_links=rack,
        manager_links=net.manager_ports,
        links_per_cable=net.links_per_cable,
    )
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

    Raises ValueError as the designs of `core.fabric.clos` and `core.fabric.lattice`.
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
