"""Peak memory of each pipeline stage: blocks of few dimensions, and their assembly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from gpuscale.core.memory.split import split_layers

if TYPE_CHECKING:
    from gpuscale.core.memory.facts import ModelFacts


@dataclass(frozen=True, slots=True)
class StageParams:
    """Parameters of one stage on one GPU, and its kinds of layer."""

    dense_params: float  # layers without routed experts, embedding, head: sharded over dp*cp
    expert_params: float  # routed experts: sharded over the expert data-parallel ranks
    edge_params: float  # embedding and head, part of `dense_params`
    largest_layer_params: float
    layers: tuple[tuple[int, int], ...]  # (kind, count)
    n_layers: int
    has_head: bool


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


@lru_cache(maxsize=4096)
def stage_params(
    model: ModelFacts, rule: str, tp: int, pp: int, vpp: int, ep: int, etp: int
) -> tuple[StageParams, ...]:
    """Parameters of each stage on one GPU; with vpp > 1 the layers are dealt in chunks."""
    layer = model.kinds[model.sequence[-1]]
    chunks = pp * vpp if rule != "by-cost" else pp
    counts = split_layers(
        len(model.sequence),
        chunks,
        rule,
        layer_cost=layer.dense_params + layer.expert_params / layer.n_experts * layer.top_k,
        head_cost=float(model.vocab_size * model.hidden_size),
    )
    kinds: list[dict[int, int]] = [{} for _ in range(pp)]
    at = 0
    for chunk, count in enumerate(counts):
        for kind in model.sequence[at : at + count]:
            kinds[chunk % pp][kind] = kinds[chunk % pp].get(kind, 0) + 1
        at += count
    return tuple(
        _one_stage(model, tuple(sorted(k.items())), i, pp, tp, ep * etp)
        for i, k in enumerate(kinds)
    )


def _one_stage(
    model: ModelFacts, layers: tuple[tuple[int, int], ...], stage: int, pp: int, tp: int, split: int
) -> StageParams:
    first, last = stage == 0, stage == pp - 1
    edge = model.embedding_params if first else 0.0
    if last and not (model.tied and first):
        edge += model.head_params
    if last:
        edge += model.mtp_dense_params
    dense = sum(n * model.kinds[k].dense_params for k, n in layers)
    experts = sum(n * model.kinds[k].expert_params for k, n in layers)
    experts += model.mtp_expert_params if last else 0.0
    largest = max(
        (
            model.kinds[k].dense_params / tp + model.kinds[k].expert_params / split
            for k, _ in layers
        ),
        default=0.0,
    )
    return StageParams(
        dense_params=(dense + edge) / tp,
        expert_params=experts / split,
        edge_params=edge / tp,
        largest_layer_params=largest,
        layers=layers,
        n_layers=sum(n for _, n in layers),
        has_head=last,
    )


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
