"""An accelerator as its data sheet describes it, and a cluster of nodes of one kind of it."""

from __future__ import annotations

from typing import Annotated, Literal

from gpuscale.core.bounds import Among, NonNegativeInt, PositiveInt, Watts, Within
from gpuscale.core.fabric import TOPOLOGIES
from gpuscale.core.formats import FORMATS
from gpuscale.core.records import field
from gpuscale.specs.fields import Bytes, BytesPerS, FlopPerS, Hertz, Name, Spec, UsdPerHour


class GpuSpec(Spec):
    """One accelerator; rates are dense, bandwidths one direction, `None` means not offered."""

    name: Name
    title: str = ""
    vendor: str = ""
    architecture: str  # lower case: volta, ampere, hopper, blackwell, cdna3, tpu-v5p, ...
    year: int | None = None
    n_compute_units: PositiveInt | None = None  # SM, CU, TensorCore ...
    compute_unit_kind: str = "SM"
    boost_clock_hz: Hertz | None = None
    fp32_flop_per_s: FlopPerS | None = None  # vector units, FMA counted as 2
    tf32_flop_per_s: FlopPerS | None = None
    bf16_flop_per_s: FlopPerS | None = None
    fp16_flop_per_s: FlopPerS | None = None
    fp8_flop_per_s: FlopPerS | None = None
    fp4_flop_per_s: FlopPerS | None = None
    int8_flop_per_s: FlopPerS | None = None  # OP/s
    register_file_bytes_per_unit: Bytes | None = None
    smem_bytes_per_unit: Bytes | None = None
    l1_smem_combined_bytes_per_unit: Bytes | None = None
    l2_bytes: Bytes | None = None
    last_level_cache_bytes: Bytes | None = None
    hbm_bytes: Bytes
    usable_hbm_bytes: Bytes | None = None  # for a process, where not the usual 98.9 %
    memory_sizes: tuple[Bytes, ...] = ()  # that this chip is sold with, where there are several
    hbm_bytes_per_s: BytesPerS
    memory_kind: str = "HBM"
    scaleup_link: str = ""
    scaleup_bytes_per_s: BytesPerS | None = None  # egress of one GPU into the scale-up domain
    scaleup_p2p_bytes_per_s: BytesPerS | None = None  # to one peer; less than egress in a mesh
    scaleup_domain_gpus: PositiveInt = 1
    scaleup_topology: str = ""
    pcie_gen: int | None = None
    pcie_bytes_per_s: BytesPerS | None = None
    c2c_bytes_per_s: BytesPerS | None = None  # NVLink-C2C of a superchip, one direction
    # cards of one machine on PCIe: by peer access, or through the host's memory where it is barred
    peer: Literal["p2p", "host"] = "p2p"
    bridged: bool = False  # pairs of cards are joined by an NVLink bridge
    peer_bytes_per_s: BytesPerS | None = None  # card to card, where it is not the slot's rate
    bridge_bytes_per_s: BytesPerS | None = None  # of an NVLink bridge, where one is sold
    tdp_w: Watts | None = None
    usual_cluster: str = ""  # preset of the node that this GPU usually sits in
    notes: str = ""
    sources: dict[str, str] = field(default_factory=dict)  # field name -> source

    def __post_init__(self) -> None:
        """Refuse a bridge that nobody sells."""
        if self.bridged and self.bridge is None:
            raise ValueError(f"no NVLink bridge of {self.name} is known (bridge_bytes_per_s)")

    def of_size(self, hbm_bytes: float) -> GpuSpec:
        """Give the chip another memory, of which a process has the same share."""
        share = hbm_bytes / self.hbm_bytes
        usable = share * self.usable_hbm_bytes if self.usable_hbm_bytes else None
        return self.model_copy(update={"hbm_bytes": hbm_bytes, "usable_hbm_bytes": usable})

    @property
    def process_bytes(self) -> float:
        """Memory that a process can have. [byte]."""
        from gpuscale.core.memory.fit import usable_bytes

        return usable_bytes(self.hbm_bytes, self.usable_hbm_bytes)

    @property
    def bridge(self) -> tuple[str, float] | None:
        """Link and bandwidth, one direction, of an NVLink bridge of two cards. [byte/s]."""
        if self.bridge_bytes_per_s:
            return "NVLink 3", self.bridge_bytes_per_s
        if "bridge" in self.scaleup_link and self.scaleup_bytes_per_s:
            return self.scaleup_link, self.scaleup_bytes_per_s
        return None

    def flop_per_s(self, dtype: str) -> float | None:
        """Dense peak rate of a number format (bf16, fp16, fp8, mxfp8, nvfp4, tf32, fp32, int8)."""
        field = FORMATS[dtype].rate if dtype in FORMATS else dtype
        value: float | None = getattr(self, f"{field}_flop_per_s", None)
        return value


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
