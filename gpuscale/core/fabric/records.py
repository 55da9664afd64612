"""What a network design is made of: ports, tiers, groups of links, the design, a fault's losses."""

from __future__ import annotations

from gpuscale.core.records import dataclass


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


@dataclass(frozen=True, slots=True)
class Loss:
    """One failure: who is touched, and what they lose."""

    part: str
    n_gpus: int  # GPUs that lose bandwidth
    bandwidth_frac: float  # of those GPUs' network bandwidth that is lost
    bisection_frac: float  # of the whole network's bandwidth at its top
    n_gpus_cut: int  # GPUs without any network left: the job stops
    note: str = ""


def losses(made: Design, hosts: Hosts, gpus_per_rack: int | None = None) -> tuple[Loss, ...]:
    """Effect of single failures on a Clos network.

    A NIC serves ``gpus_per_node / nics_per_node`` GPUs. A GPU with a second link (planes, dual
    ToR) keeps the rest; with one link, traffic can only leave through another GPU's NIC of its
    node.

    `made`: a Clos network. `hosts`: as designed. `gpus_per_rack`: GPUs of a rack; a node if not
    given [1].

    >>> from gpuscale.core.fabric.clos import design
    >>> from gpuscale.core.fabric.records import Hosts, Wish, equal_ports
    >>> hosts = Hosts(128, 8, 8)
    >>> [(x.part, x.n_gpus) for x in losses(design(hosts, equal_ports(64), Wish()), hosts)]
    [('host link', 1), ('leaf', 32), ('spine', 1024), ('rack', 8)]
    """
    links = hosts.ports_per_nic
    per_nic = max(1, hosts.gpus_per_node // hosts.nics_per_node)
    own = max(1, hosts.nics_per_node // hosts.gpus_per_node)  # NICs of a GPU
    part = 1 / (links * own)
    together = own if made.topology == "fat-tree" else 1  # that end on one leaf
    alone = part == 1.0
    note = "single link: the GPU's traffic must leave through its neighbours" if alone else ""
    found = [Loss("host link", per_nic, part, 1 / made.n_host_links, per_nic * alone, note)]
    if made.tiers:
        leaf = made.tiers[0]
        apart = hosts.nics_per_node if made.topology == "rail-optimised" else 1
        n_links = min(leaf.ports_down, -(-made.n_host_links // (made.n_networks * apart)))
        gpus = min(made.n_gpus, n_links * per_nic // together)
        note = "one rail of its unit" if made.topology != "fat-tree" else ""
        share, lost = together * part, n_links / made.n_host_links
        found.append(Loss("leaf", gpus, share, lost, gpus * (share == 1.0), note))
    for tier in made.tiers[1:]:
        frac = 1 / tier.n_switches
        found.append(Loss(tier.name, made.n_gpus, frac, frac, 0, "traffic goes round it"))
    rack = min(made.n_gpus, gpus_per_rack or hosts.gpus_per_node)
    found.append(Loss("rack", rack, 1.0, rack / made.n_gpus, rack, "power or cooling of a rack"))
    return tuple(found)
