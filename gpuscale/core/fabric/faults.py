"""What one failed link, leaf, spine, core or rack takes away."""

from __future__ import annotations

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.fabric.records import Design, Hosts


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
