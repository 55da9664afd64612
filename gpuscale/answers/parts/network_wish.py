"""From what is asked to the cluster that is designed: options laid over its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.values import quantity, shape
from gpuscale.core.fabric.bill import Module, PartTotals
from gpuscale.core.quantity import format_si
from gpuscale.errors import GpuscaleError
from gpuscale.io.run import load_link_price, load_module, load_switch
from gpuscale.specs.hardware import ClusterSpec, NetworkLevel

if TYPE_CHECKING:
    from gpuscale.answers.parts.asked import Network
    from gpuscale.specs.run import SwitchSpec

STRUCTURE = ("topology", "oversubscription", "tiers", "planes", "dual_tor", "rack", "zones")
"""Options after which the levels of the cluster's file no longer hold."""

AS_ASKED = "topology tiers zones zone_switches manager_ports ports_per_nic switch".split()
"""Options that a cluster's file has by the same name."""

HOSTS = "hosts"
"""Name of a cluster of hosts with one port each, of which nothing else is known."""


def of_hosts(spec: ClusterSpec) -> ClusterSpec:
    """Cluster of hosts with one port each, as fast as one NIC was."""
    nics = spec.nics_per_node or spec.gpus_per_node
    egress = spec.node_egress_bytes_per_s
    blank = ("n_gpus", "n_nodes", "n_leaf_switches", "n_spine_switches", "n_core_switches")
    change: dict[str, object] = {
        "name": HOSTS,
        "gpus_per_node": 1,
        "scaleup_domain_gpus": 1,
        "n_scaleup_switches": None,
        "nics_per_node": 1,
        "node_egress_bytes_per_s": egress and egress / nics,
        "levels": (),
        **dict.fromkeys(blank),
    }
    return spec.model_copy(update=change)


def counted(spec: ClusterSpec) -> str:
    """Name what is counted at the ports of a network."""
    return "hosts" if spec.name == HOSTS else "GPUs"


def wished(asked: Network, spec: ClusterSpec) -> tuple[ClusterSpec, SwitchSpec | None]:
    """Cluster with the options laid over it, and its switch where one is named."""
    name = asked.switch or ("" if asked.radix else spec.network.switch)
    switch = load_switch(name) if name else None
    net = {name: getattr(asked, name) for name in AS_ASKED} | {
        "oversubscription": _ratios(asked.oversubscription),
        "dual_tor": asked.dual_tor or None,
        "uplink_bytes_per_s": asked.uplink,
        "rack_gpus": asked.rack,
        "top_of_rack": True if asked.rack else None,
        "shape": shape(asked.shape) if asked.shape is not None else None,
    }
    change: dict[str, object] = {
        "network": spec.network.model_copy(update={k: v for k, v in net.items() if v is not None}),
        "nics_per_node": asked.nics or spec.nics_per_node,
        "gpus_per_node": asked.gpus_per_node or spec.gpus_per_node,
        "network_planes": asked.planes or spec.network_planes,
        "switch_radix": asked.radix or spec.switch_radix,
    }
    spec = _linked(asked, spec, spec.model_copy(update=change), switch)
    if switch is not None and not asked.radix and spec.network.topology != "torus":
        spec = spec.model_copy(update={"switch_radix": _ports(switch, spec)})
    return spec, switch


def _linked(
    asked: Network, old: ClusterSpec, spec: ClusterSpec, switch: SwitchSpec | None
) -> ClusterSpec:
    """Egress of a node: as many links as it has now, of the speed asked for or as before."""
    per_node = _links_per_node(spec)
    link = asked.link
    if link is None and asked.cluster is None and switch is not None:
        link = switch.native_bytes_per_s  # a wish names no NIC: that of the switch
    if (
        link is None
        and old.node_egress_bytes_per_s is not None
        and (asked.nics or asked.ports_per_nic)
    ):
        old_nics, nics = (s.nics_per_node or s.gpus_per_node for s in (old, spec))
        link = old.node_egress_bytes_per_s / old_nics / (per_node // nics)
    if link is None:
        return spec
    return spec.model_copy(update={"node_egress_bytes_per_s": per_node * link})


def _links_per_node(spec: ClusterSpec) -> int:
    """Links of a node into the network, of all its NICs."""
    per_nic = spec.network.ports_per_nic or spec.network_planes * (1 + spec.network.dual_tor)
    return (spec.nics_per_node or spec.gpus_per_node) * per_nic


def _ports(switch: SwitchSpec, spec: ClusterSpec) -> int:
    """Ports of a switch at the speed of the uplinks."""
    if spec.node_egress_bytes_per_s is None:
        return spec.switch_radix
    link = spec.network.uplink_bytes_per_s or spec.node_egress_bytes_per_s / _links_per_node(spec)
    ports = switch.ports_at(link)
    if ports is None:
        speeds = ", ".join(f"{8 * switch.cage_bytes_per_s / n / 1e9:g}" for n in switch.splits)
        raise GpuscaleError(
            f"switch {switch.name}: no port of {format_si(link, 'bytes_per_s')} "
            f"({8 * link / 1e9:g} Gb/s)",
            f"its ports have {speeds} Gb/s; --link changes the speed, --radix the ports",
        )
    return ports


def _ratios(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    found = []
    for part in text.replace(":1", "").split(","):
        value = quantity(part, "count", "--oversubscription", most=1000)
        if value < 1:
            raise GpuscaleError(
                f"--oversubscription must be at least 1, got {value:g}",
                "it is the bandwidth down over the bandwidth up: 1 is full bisection, 7 a seventh",
            )
        found.append(value)
    return tuple(found)


def levels_of(asked: Network, spec: ClusterSpec, bisection: Any) -> ClusterSpec:
    """Cluster whose levels are those of the design, where the wish changes them."""
    if not any(getattr(asked, name) for name in STRUCTURE) or spec.network.topology == "torus":
        return spec
    egress = spec.egress_bytes_per_s_per_gpu
    if egress is None or not bisection:
        return spec
    domain = spec.scaleup_domain_gpus
    levels: list[NetworkLevel] = []
    for n, level in enumerate(bisection):
        top = n == len(bisection) - 1
        above = levels[-1].gpus if levels else domain
        if not top and not (above or 0) < level.n_gpus < bisection[-1].n_gpus:
            continue
        ratio = max(1.0, egress / level.bytes_per_s_per_gpu)
        levels.append(
            NetworkLevel(
                name=level.level, gpus=None if top else level.n_gpus, oversubscription=ratio
            )
        )
    return spec.model_copy(update={"levels": tuple(levels)})


def parts_of(asked: Network, switch: SwitchSpec | None, link_bytes_per_s: float) -> PartTotals:
    """Prices and powers: as asked, else of the switch's file and the tables of parts."""

    def usd(text: str | None, label: str) -> float | None:
        if text is None:
            return None
        if text.strip(" .0123456789_eE") == "":
            raise GpuscaleError(f"{label} {text}: a price needs its unit", f"{label} '{text} USD'")
        return quantity(text, "usd", label, most=1e12, zero=True)

    link = load_link_price(link_bytes_per_s)
    chassis = None
    if asked.switch_power is not None:
        chassis = (asked.switch_power, asked.switch_power)
    elif switch is not None and switch.chassis_low_w and switch.chassis_high_w:
        chassis = (switch.chassis_low_w, switch.chassis_high_w)
    price = usd(asked.switch_price, "--switch-price")
    of_link = usd(asked.link_price, "--link-price")
    return PartTotals(
        switch=f"switch {switch.name}" if switch else "switch",
        switch_usd=price if price is not None else (switch.price_usd if switch else None),
        switch_w=chassis,
        link_usd=of_link if of_link is not None else (link.price_usd if link else None),
        switch_module=_module(switch.switch_module if switch else "", link_bytes_per_s),
        host_module=_module(switch.host_module if switch else "", link_bytes_per_s),
    )


def _module(name: str, link_bytes_per_s: float) -> Module | None:
    """Take the module at the links' speed; one of another speed says nothing."""
    row = load_module(name)
    if row is None or abs(row.link_bytes_per_s / link_bytes_per_s - 1) > 1e-6:
        return None
    return Module(name, row.links, row.power_w)
