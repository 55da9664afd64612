"""A cluster: nodes of one kind of GPU, a scale-up domain, the network levels above, its network."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from gpuscale.core.bounds import Among, NonNegativeInt, PositiveInt, Watts, Within
from gpuscale.core.fabric import TOPOLOGIES
from gpuscale.specs.fields import BytesPerS, Name, Spec, UsdPerHour
from gpuscale.specs.gpu import GpuSpec

Oversubscription = Annotated[float, Within(1, 1000)]


class NetworkSpec(Spec):
    """How a cluster is wired; what is left out is designed."""

    topology: Annotated[str, Among(TOPOLOGIES)] = "rail-optimised"
    switch: str = ""  # preset name; else `switch_radix` ports
    tiers: PositiveInt | None = None
    oversubscription: tuple[Oversubscription, ...] = ()  # of each tier from the leaf up
    ports_per_nic: PositiveInt | None = None
    dual_tor: bool = False  # the ports of a NIC end on the two leafs of a pair
    uplink_bytes_per_s: BytesPerS | None = None  # of a link between switches; as the hosts'
    rack_gpus: PositiveInt | None = None  # GPUs of a rack, all behind leafs in the rack
    top_of_rack: bool = False  # leafs stand in the racks and take one rack each
    zones: PositiveInt = 1
    zone_switches: NonNegativeInt = 0
    manager_ports: NonNegativeInt = 0
    links_per_cable: PositiveInt = 1
    shape: tuple[PositiveInt, ...] = ()  # torus: chips along each axis of the whole pod
    wrap_every: PositiveInt = 1  # an axis is closed where it is a multiple of this
    cube: PositiveInt | None = None  # side of the blocks joined by circuit switches


class NetworkLevel(Spec):
    """One switch level above the scale-up domain (leaf, spine, core)."""

    name: Name
    gpus: PositiveInt | None = None  # GPUs under one unit of this level; None: all that there are
    # node egress over the share of it that reaches beyond the level below (1: non-blocking)
    oversubscription: Oversubscription = 1.0


class ClusterSpec(Spec):
    """A kind of cluster; how many GPUs are used is the job's matter, `n_gpus` only the limit."""

    name: Name
    title: str = ""
    provider: str = ""
    kind: Literal["node", "rack", "fabric", "cloud-instance", "cluster", "tpu-pod"] = "node"
    gpu: GpuSpec  # in TOML: the name of a GPU preset, or a table
    gpus_per_node: PositiveInt
    scaleup_domain_gpus: PositiveInt  # NVLink domain, 72 in an NVL72 rack
    scaleup_bytes_per_s: BytesPerS | None = None  # egress of one GPU, one direction
    scaleup_class: str = "nvlink"  # calibration: nvlink, pcie, amd-if, roce, ici, neuronlink
    node_egress_bytes_per_s: BytesPerS | None = None  # of one node (gpus_per_node), one direction
    nics_per_node: PositiveInt | None = None
    fabric: str = ""  # as the vendor calls it
    fabric_class: str = "infiniband"  # calibration: infiniband, roce, efa, omni-path, tcpx, ...
    levels: tuple[NetworkLevel, ...] = ()  # above the scale-up domain; empty: one flat level
    switch_radix: PositiveInt = 64
    network_planes: PositiveInt = 1  # separate networks over which each NIC's ports are spread
    n_scaleup_switches: NonNegativeInt | None = None  # NVSwitch chips of one scale-up domain
    in_switch_reduction_scaleup: bool = False  # NVLS
    in_switch_reduction_scaleout: bool = False  # SHARP
    topology: str = ""  # in words; `network` is what is computed with
    network: NetworkSpec = NetworkSpec()
    n_nodes: PositiveInt | None = None
    n_gpus: PositiveInt | None = None
    n_leaf_switches: NonNegativeInt | None = None
    n_spine_switches: NonNegativeInt | None = None
    n_core_switches: NonNegativeInt | None = None
    node_power_w: Watts | None = None
    price_usd_per_gpu_hour: UsdPerHour | None = None
    price_kind: str = ""
    price_date: str = ""
    notes: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse levels that do not grow."""
        sizes = [level.gpus for level in self.levels]
        known = [size for size in sizes if size is not None]
        if None in sizes[:-1] or any(a >= b for a, b in zip(known, known[1:], strict=False)):
            raise ValueError("levels: each must hold more GPUs than the one before it")

    @property
    def egress_bytes_per_s_per_gpu(self) -> float | None:
        """Scale-out bandwidth share of one GPU, one direction. [byte/s]."""
        if self.node_egress_bytes_per_s is None:
            return None
        return self.node_egress_bytes_per_s / self.gpus_per_node
