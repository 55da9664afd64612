"""Peak memory of a pipeline stage by part, and the micro-batches that it holds."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.core.dataclasses import dataclass


class Counted:
    """Memory of a GPU in the three ways of counting it; what it is made of is its own."""

    __slots__ = ()
    fragmentation_bytes: float
    context_bytes: float

    @property
    def allocated_bytes(self) -> float:
        """What tensors and workspaces take. [byte]."""
        raise NotImplementedError

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


@dataclass(frozen=True, slots=True)
class StageMemory(Counted):
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
