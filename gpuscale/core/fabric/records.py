"""What a network design is made of: ports, tiers, groups of links, the design itself."""

from __future__ import annotations

from gpuscale.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ports:
    """A switch at the speeds used: host ports at one speed, uplinks at another or the same."""

    down: int  # ports at the host links' speed, if all were host ports
    up: int  # ports at the uplinks' speed, if all were uplinks
    down_bytes_per_s: float  # of one host link, one direction
    up_bytes_per_s: float  # of one uplink, one direction

    def __post_init__(self) -> None:
        """Refuse a switch without ports or a link without bandwidth."""
        if min(self.down, self.up) < 2:
            raise ValueError(f"a switch needs at least 2 ports, got {min(self.down, self.up)}")
        if min(self.down_bytes_per_s, self.up_bytes_per_s) <= 0:
            raise ValueError("a link needs a bandwidth above 0")


def equal_ports(radix: int, link_bytes_per_s: float = 50e9) -> Ports:
    """Switch whose ports all have one speed."""
    return Ports(radix, radix, link_bytes_per_s, link_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Hosts:
    """What is to be joined."""

    n_nodes: int
    nics_per_node: int  # rails
    gpus_per_node: int
    ports_per_nic: int = 1  # one link each; spread over planes or over the two ToRs of a pair

    @property
    def n_gpus(self) -> int:
        """GPUs of all nodes. [1]."""
        return self.n_nodes * self.gpus_per_node

    @property
    def n_links(self) -> int:
        """Links from hosts into the network, all planes. [1]."""
        return self.n_nodes * self.nics_per_node * self.ports_per_nic


@dataclass(frozen=True, slots=True)
class Wish:
    """What a Clos network should be like; see `core.fabric.clos.design`."""

    topology: str = "rail-optimised"  # fat-tree, rail-optimised, rail-only
    oversubscription: tuple[float, ...] = ()  # down over up, leaf first; missing tiers: 1
    tiers: int | None = None  # None: as few as reach
    planes: int = 1  # separate networks over which the ports of a NIC are spread
    dual_tor: bool = False  # the ports of a NIC end on two leafs of one network
    zones: int = 1  # separate copies, joined by `zone_switches`
    zone_switches: int = 0
    rack_links: int | None = None  # host links that a leaf takes at most (top of rack)
    manager_links: int = 0  # host ports that the fabric manager takes
    links_per_cable: int = 1  # 2: twin-port cables carry two links


@dataclass(frozen=True, slots=True)
class Tier:
    """Switches of one tier, all planes, rails and zones together."""

    name: str
    n_switches: int
    ports_down: int  # of one switch, as built
    ports_up: int
    oversubscription: float  # bandwidth down over bandwidth up; 1 at the top


@dataclass(frozen=True, slots=True)
class Links:
    """Links between two tiers, all planes, rails and zones together."""

    lower: str
    upper: str
    n_links: int
    bytes_per_s: float  # of one link, one direction
    n_cables: int
    optical: bool = True  # else copper


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bandwidth that a GPU has across one level, and across the whole network's middle."""

    level: str
    n_gpus: int  # GPUs under one unit of this level
    bytes_per_s_per_gpu: float  # one direction
    bytes_per_s: float  # between two halves of the unit, one direction


@dataclass(frozen=True, slots=True)
class Design:
    """A designed network."""

    topology: str
    n_gpus: int
    n_nodes: int
    n_host_links: int
    n_tiers: int
    n_networks: int  # independent networks: planes x rails x zones
    tiers: tuple[Tier, ...]
    links: tuple[Links, ...]
    bisection: tuple[Bisection, ...]
    n_extra_switches: int = 0  # join the zones, or switch circuits (OCS)
    n_manager_links: int = 0
    reach_gpus: int | None = None  # most that this many tiers of these switches join
    even: bool = True  # every switch of a tier has the same links to the tier above
    parameters: tuple[tuple[str, int], ...] = ()  # of the topology, as p, a, h, g

    @property
    def n_switches(self) -> int:
        """Switches of all tiers. [1]."""
        return sum(t.n_switches for t in self.tiers) + self.n_extra_switches

    @property
    def n_links(self) -> int:
        """Links of all groups. [1]."""
        return sum(g.n_links for g in self.links)

    @property
    def n_cables(self) -> int:
        """Cables of all groups. [1]."""
        return sum(g.n_cables for g in self.links)

    def switches(self, tier: str) -> int:
        """Switches of one tier, 0 where there is none. [1]."""
        return sum(t.n_switches for t in self.tiers if t.name == tier)

    def group(self, lower: str, upper: str | None = None) -> int:
        """Links out of a tier upwards. [1]."""
        return sum(g.n_links for g in self.links if g.lower == lower and upper in (None, g.upper))
