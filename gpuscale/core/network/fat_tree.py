"""The full-bisection fat tree of the book, as the network design of `core.fabric` makes it.

"How to Scale Your Model", GPU chapter, section "Networking", quizzes 2 and 3. All bandwidths are
one direction.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.fabric.clos import tree
from gpuscale.core.fabric.records import equal_ports


def bisection_bytes_per_s(n_gpus: int, gpu_egress_bytes_per_s: float) -> float:
    """Bandwidth between two halves of a node, both directions added. [byte/s]."""
    return 2 * (n_gpus // 2) * gpu_egress_bytes_per_s


@dataclass(frozen=True, slots=True)
class FatTree:
    """A full-bisection network of equal switches, rail-optimised like a SuperPOD."""

    n_gpus: int  # ports at the bottom
    n_tiers: int  # 1 leaf only, 2 leaf and spine, 3 leaf, spine and core
    n_leaf_switches: int
    n_spine_switches: int
    n_core_switches: int
    uplinks_per_leaf: int
    links_per_leaf_spine_pair: float
    leaf_down_bytes_per_s: float  # of one leaf switch
    spine_bytes_per_s: float  # of all spine switches
    n_leaf_spine_links: int = 0
    n_spine_core_links: int = 0

    @property
    def n_switches(self) -> int:
        """Switches of all tiers."""
        return self.n_leaf_switches + self.n_spine_switches + self.n_core_switches


def fat_tree(n_gpus: int, radix: int = 64, port_bytes_per_s: float = 50e9) -> FatTree:
    """Switches for `n_gpus` ports with full bisection bandwidth.

    Half of a leaf's ports go down, half up, spread evenly over the spines: their number divides
    the uplinks, so 24 leafs of 64 ports get 16 spines rather than 12. Two tiers reach
    ``radix^2 / 2`` GPUs; beyond that the spines too have half of their ports up, and core
    switches join them, to ``radix^3 / 4``.

    `n_gpus`: network ports at the bottom, one per GPU [1]. `radix`: ports of a switch [1].
    `port_bytes_per_s`: of one port, one direction [byte/s]. Raises ValueError if a third tier is
    not enough, or the radix is below 2.

    References
    ----------
    NVIDIA DGX SuperPOD H100 reference architecture, network tables (whose counts leave one node's
    ports to the fabric manager).

    >>> [(t.n_leaf_switches, t.n_spine_switches, t.n_core_switches)
    ...  for t in map(fat_tree, (1024, 2048, 4096))]
    [(32, 16, 0), (64, 32, 0), (128, 128, 64)]
    """
    if n_gpus < 1 or radix < 2:
        raise ValueError("a fat tree needs at least 1 GPU and switches of 2 ports")
    if n_gpus > max(radix, fat_tree_reach(radix)):
        raise ValueError(
            f"three tiers of {radix}-port switches join at most {fat_tree_reach(radix)} GPUs, "
            f"got {n_gpus}"
        )
    made = tree([n_gpus], equal_ports(radix, port_bytes_per_s))
    leafs, spines, cores = (*made.switches, 0, 0)[:3]
    tiers, up = len(made.switches), made.splits[0].up if made.splits else 0
    return FatTree(
        n_gpus=n_gpus,
        n_tiers=tiers,
        n_leaf_switches=leafs,
        n_spine_switches=spines,
        n_core_switches=cores,
        uplinks_per_leaf=up,
        links_per_leaf_spine_pair=up / spines if tiers == 2 else float(tiers == 3),
        leaf_down_bytes_per_s=(made.splits[0].down if made.splits else radix) * port_bytes_per_s,
        spine_bytes_per_s=spines * radix * port_bytes_per_s,
        n_leaf_spine_links=made.links_up[0] if tiers > 1 else 0,
        n_spine_core_links=made.links_up[1] if tiers > 2 else 0,
    )


def fat_tree_reach(radix: int) -> int:
    """Ports that three tiers of switches join. [1]."""
    return radix * (radix // 2) ** 2
