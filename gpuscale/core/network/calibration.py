"""What is calibrated of collectives: constants and corrections per class of link and operation.

Start-up and transfer are the alpha-beta form of Thakur et al. 2005 (IJHPCA 19(1), section 3), of
the protocols of NCCL (github.com/NVIDIA/nccl: LL and Simple) the faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Annotated, ClassVar

from gpuscale.core.bounds import STRICT, Fraction, Measured, NonNegativeInt, Seconds, Spread, Within
from gpuscale.core.kernel.calibration import PlaneTable
from gpuscale.core.records import dataclass, field, replace

Rate = Annotated[float, Measured("bytes_per_s")]

PROTOCOL_BLEND = 8.0
"""Exponent of the smooth minimum of two protocols (form)."""

SMALLEST_EFF = 0.1
"""Least share of a large group's efficiency that a small one reaches: a bound, met by none."""


@dataclass(frozen=True, slots=True)
class OpCalibration:
    """Constants of one kind of collective on one kind of link."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    base_s: Seconds = 5e-6  # start of the kernel, once
    hop_s: Seconds = 1.5e-6  # each step from rank to rank (network: each crossing)
    eff_frac: Fraction = 0.75  # of the data-sheet bandwidth, large sizes
    small_group_loss: Annotated[float, Within(0, 2)] = 0.4  # eff_frac (1 - it / n)
    ll_eff_frac: Fraction = 0.4  # bandwidth of the low-latency protocol over the bulk one
    bulk_factor: Annotated[float, Within(1, 1000)] = 2.5  # start-up, bulk over low-latency
    ramp_s: Seconds = 5e-6  # pipeline filling: adds sqrt(ramp * transfer time)
    table: PlaneTable | None = None  # log corrections over (size_bytes, n_ranks), one domain
    low_frac: Fraction = 0.7  # 80 % interval: measured / expected
    high_frac: Spread = 1.4
    n_rows: NonNegativeInt = 0  # measurements behind it
    source: str = ""

    __hash__ = object.__hash__  # by identity: keys of memos are records

    def transfer_s(self, moved_bytes: float, n: float, bytes_per_s: float) -> float:
        """Time of `moved_bytes` on one link at the efficiency of `n` ranks."""
        eff = self.eff_frac * max(SMALLEST_EFF, 1.0 - self.small_group_loss / n)
        return moved_bytes / (bytes_per_s * eff)

    def protocol_s(self, latency_s: float, transfer_s: float) -> float:
        """Faster of the low-latency and the bulk protocol, smoothly."""
        low = latency_s + transfer_s / self.ll_eff_frac
        bulk = latency_s * self.bulk_factor + transfer_s + sqrt(self.ramp_s * transfer_s)
        return soft_min(low, bulk)


@dataclass(frozen=True, slots=True)
class LinkCalibration:
    """One class of link (nvlink4, infiniband, efa ...), as presets/fabric/*.toml holds it."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    name: str
    ops: Mapping[str, OpCalibration] = field(default_factory=dict)
    source: str = ""
    nearest: str = ""  # class that has what is absent here
    notes: str = ""
    mesh_ranks: NonNegativeInt = 0  # full mesh: a smaller group uses only the links among it
    # most that one channel of a tree over nodes carries: between two nodes, between more; 0: no cap
    tree_channel_bytes_per_s: tuple[Rate, Rate] = (0.0, 0.0)
    shared_bytes_per_s: Rate = 0.0  # most that all ranks send together; 0: no such limit
    nic_eff_frac: Fraction = 1.0  # of a slot's rate, to a NIC
    custom_ranks: NonNegativeInt = 1024  # most for a serving library's own all-reduce

    __hash__ = object.__hash__

    def share_frac(self, n: float) -> float:
        """Share of a GPU's links that a group of `n` ranks can use."""
        return min(1.0, (n - 1.0) / (self.mesh_ranks - 1.0)) if self.mesh_ranks > 2 else 1.0

    def transfer_s(self, kind: str, moved_bytes: float, n: float, bytes_per_s: float) -> float:
        """Time in which each of `n` ranks sends `moved_bytes`."""
        if moved_bytes <= 0.0:
            return 0.0
        own_s = self.op(kind).transfer_s(moved_bytes, n, bytes_per_s * self.share_frac(n))
        shared = self.shared_bytes_per_s
        return max(own_s, n * moved_bytes / shared) if shared > 0.0 else own_s

    def op(self, name: str) -> OpCalibration:
        """Constants of one kind, of the nearest kind where it is not measured."""
        for key in (name, *NEAREST_OP.get(name, ()), "ring"):
            if key in self.ops:
                return self.ops[key]
            if key == "custom":
                return GENERAL_CUSTOM_OP
        return GENERAL_OP


@dataclass(frozen=True, slots=True)
class FabricCalibration:
    """Links of a cluster: inside the scale-up domain, and between domains."""

    inner: LinkCalibration
    outer: LinkCalibration
    nics_per_gpu: float = 1.0  # a tree over nodes has one channel a NIC
    bridge: LinkCalibration | None = None  # between the two GPUs of a pair
    bridge_bytes_per_s: float = 0.0

    __hash__ = object.__hash__


NEAREST_OP = {
    "ring": ("all-reduce",),
    "nvls": ("all-reduce",),
    "all-to-all": ("ring", "all-reduce"),
    "send-recv": ("ring", "all-reduce"),
    "moe-dispatch": ("all-to-all", "ring", "all-reduce"),
    "moe-combine": ("moe-dispatch", "all-to-all", "ring", "all-reduce"),
}
KIND = {"all-gather": "ring", "reduce-scatter": "ring", "broadcast": "ring"}
GENERAL_OP = OpCalibration()
GENERAL_CUSTOM_OP = OpCalibration(
    base_s=3e-6, hop_s=2e-7, eff_frac=0.65, small_group_loss=0.45, bulk_factor=6.5
)
GENERAL_NETWORK_OP = OpCalibration(
    hop_s=1e-5, eff_frac=0.95, small_group_loss=0.0, ll_eff_frac=0.15, ramp_s=3e-5
)
GENERAL_FABRIC = FabricCalibration(
    LinkCalibration("general"), LinkCalibration("general", {"ring": GENERAL_NETWORK_OP})
)


def soft_min(a: float, b: float, power: float = PROTOCOL_BLEND) -> float:
    """Smooth minimum of two times, at most 8 % below it."""
    low, high = (a, b) if a < b else (b, a)
    if low <= 0.0:
        return low
    return float(low * (1.0 + (low / high) ** power) ** (-1.0 / power))


def slowed_link(
    link: LinkCalibration, bandwidth_frac: float, latency_factor: float
) -> LinkCalibration:
    """Link at a share of its bandwidth and a multiple of its latencies, as a job finds it."""
    if bandwidth_frac == 1.0 == latency_factor:
        return link
    ops = {
        name: replace(
            op,
            eff_frac=op.eff_frac * bandwidth_frac,
            base_s=op.base_s * latency_factor,
            hop_s=op.hop_s * latency_factor,
        )
        for name, op in link.ops.items()
    }
    return replace(link, ops=ops)


def collective_interval_s(
    time_s: float,
    op: str,
    n_ranks: float,
    n_in_domain: float,
    fabric: FabricCalibration,
    algorithm: str = "auto",
) -> tuple[float, float]:
    """80 % interval of an expected collective time, from the validation of its class. [s]."""
    kind = "custom" if algorithm == "custom" else KIND.get(op, op)
    c = (fabric.inner if n_in_domain >= n_ranks else fabric.outer).op(kind)
    return time_s * c.low_frac, time_s * c.high_frac
