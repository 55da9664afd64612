"""An accelerator as its data sheet describes it."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from gpuscale.core.bounds import PositiveInt, Watts
from gpuscale.core.formats import FORMATS
from gpuscale.specs.fields import Bytes, BytesPerS, FlopPerS, Hertz, Name, Spec


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
