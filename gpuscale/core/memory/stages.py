"""Peak memory of a pipeline stage by part, and the micro-batches that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one GPU of a pipeline stage at its peak, by part. [byte]."""

    SHOWN: ClassVar[tuple[str, ...]] = ("total_bytes",)  # properties that answers hold too

    stage: int
    n_layers: int
    params: float
    in_flight_micro_batches: float
    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    logits_bytes: float
    working_bytes: float  # live layer, gathers, unsharded buffers, workspaces
    fragmentation_bytes: float
    context_bytes: float

    @property
    def states_bytes(self) -> float:
        """Weights, gradients, master weights and optimizer. [byte]."""
        return self.weights_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def allocated_bytes(self) -> float:
        """What the framework's allocator has handed out. [byte]."""
        return self.states_bytes + self.activations_bytes + self.logits_bytes + self.working_bytes

    @property
    def reserved_bytes(self) -> float:
        """Allocated and fragmentation: what the allocator holds. [byte]."""
        return self.allocated_bytes + self.fragmentation_bytes

    @property
    def total_bytes(self) -> float:
        """Reserved and context: what the device shows (nvidia-smi). [byte]."""
        return self.reserved_bytes + self.context_bytes

    def kind_bytes(self, kind: str) -> float:
        """Bytes in one way of counting: allocated, reserved or nvidia-smi. [byte]."""
        by_kind = {
            "allocated": self.allocated_bytes,
            "reserved": self.reserved_bytes,
            "nvidia-smi": self.total_bytes,
        }
        if kind not in by_kind:
            raise ValueError(f"memory kind must be one of {', '.join(by_kind)}, got {kind!r}")
        return by_kind[kind]


def in_flight(schedule: str, stage: int, pp: int, vpp: int, n_micro_batches: int) -> float:
    """Micro-batches whose activations a stage holds at once, in units of the whole stage [1]_ [2]_.

    1F1B: ``min(m, p - i)`` on stage i from 0. Interleaved (`vpp` > 1): ``2 (p - i - 1) +
    (v - 1) p + 1`` chunks of 1/v stage. Zero-bubble H1: as the first stage of 1F1B, everywhere.
    DualPipe: p + 1. GPipe: all m.

    >>> [in_flight("1f1b", i, 4, 1, 8) for i in range(4)]
    [4.0, 3.0, 2.0, 1.0]
    >>> in_flight("interleaved", 0, 4, 2, 8), in_flight("gpipe", 0, 4, 1, 8)
    (5.5, 8.0)

    References
    ----------
    .. [1] Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Korthikanti et al. 2022, 4.2.3.
    .. [2] Qi et al. 2023, arXiv:2401.10241; DeepSeek-V3 Technical Report, table 2.
    """
    m = n_micro_batches
    if pp == 1 and schedule != "gpipe":
        return 1.0
    if schedule == "gpipe":
        return float(m)
    if schedule == "dualpipe":
        return float(min(m, pp + 1))
    if schedule == "zb-h1":
        return float(min(m, pp))
    if vpp > 1:
        return min(m * vpp, 2 * (pp - stage - 1) + (vpp - 1) * pp + 1) / vpp
    return float(min(m, pp - stage))
