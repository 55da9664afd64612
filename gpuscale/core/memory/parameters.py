"""Memory parameters of a framework family, and model states: bytes per parameter, how they shard.

Rajbhandari et al. 2019 (ZeRO, arXiv:1910.02054), section 3; Zhao et al. 2023 (FSDP,
arXiv:2304.11277), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Among, Factor, Fragmentation, Overhead, Within
from gpuscale.core.formats import is_narrow, number_format
from gpuscale.core.records import dataclass, field, fields

if TYPE_CHECKING:
    from gpuscale.specs.software import SoftwareSpec


LOSS_CHUNKS = 8
"""Parts of a sequence whose logits a chunked cross entropy holds one by one (torchtitan,
`components/loss.py`, `num_chunks`)."""

_HELD = {"eager": 1.0, "chunked": 1.0 / LOSS_CHUNKS, "fused": 0.0}


FP32_BYTES = 4.0
"""Of a number in fp32. [byte]."""


@dataclass(frozen=True, slots=True)
class FamilyMemory:
    """What a framework family keeps, the `[memory]` table of its preset; `sources` by field.

    States are bytes per parameter, activations bytes per element and token of one layer.
    """

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    weights_bytes: Factor = 2.0
    gradients_bytes: Factor = 4.0  # bf16 runs; 4: accumulated in fp32
    gradients_bytes_fp16: Factor = 2.0
    master_bytes: Factor = 4.0
    optimizer_bytes: Factor = 8.0
    step_bytes: Factor = 0.0  # fp32 gradient copies of the optimizer step, sharded with it
    sharded_weights_bytes: Factor = 2.0  # what a ZeRO-3 shard keeps (FSDP: fp32, no other master)
    unsharded_layers: Factor = 2.0  # ZeRO-3: layers gathered at once, weights and gradients
    hidden_bytes: Factor = 8.0  # norm inputs and outputs, residuals: per hidden element and layer
    attention_bytes: Factor = 2.0  # per element of q, k, v and attention output
    ffn_bytes: Factor = 2.0  # per element of the FFN (3F gated, 2F plain)
    expert_hidden_bytes: Factor = 2.0  # per hidden element of one routed token copy
    quantised_inputs: bool = False  # fp8 runs keep the inputs of linears in one byte
    paged_stash: Annotated[float, Within(1, 10)] = 1.0  # pages of experts in a whole graph
    scores_bytes: Factor = 5.0  # unfused attention, per head and pair of tokens
    live_layers: Factor = 1.0  # backward of one layer: gradients beside what it keeps, in layers
    gathered_tensors: Factor = 2.0  # sequence-parallel gathers alive, in T x H elements
    logits_bytes: Factor = 12.0  # per logit: bf16 and fp32 copies, softmax, gradient
    fused_logits_bytes: Factor = 6.0  # with fused or compiled cross entropy
    whole_logits_bytes: Factor = 0.0  # per logit, not split by TP
    fused_linear_ce: bool = False  # head and loss in chunks: no logits stored
    head_gradient_bytes: Factor = 0.0  # gradient of the head beside the main gradients
    selective_per_op: bool = False  # `selective` means per operator in this family (torchtitan)
    workspace_bytes: Overhead = 0.0  # library workspaces, inside the allocator
    fragmentation: Fragmentation = 1.06  # reserved over allocated
    context_bytes: Overhead = 1.5e9  # CUDA context and NCCL buffers, outside the allocator
    printed_kind: Annotated[str, Among(("allocated", "reserved", "nvidia-smi"))] = "reserved"
    printed_stage: Annotated[str, Among(("peak", "first", "last"))] = "peak"
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True, slots=True)
class MemoryParameters(FamilyMemory):
    """The same with the settings of a job; `IDEAL` has the bare formulas."""

    stage_split: str = "even"
    unfused_attention: bool = False
    fused_cross_entropy: bool = False
    loss: str = "eager"
    recompute_modules: tuple[str, ...] = ("core_attn",)
    offloaded_layers: int = 0
    expert_imbalance: float = 1.0
    overlap_ep: bool = False
    outer_shards: bool = False  # HSDP: the optimizer's states shared between the groups too
    narrow_weights: bool = False  # kept in the narrow format alone, without 16 bits
    fp8_orientations: float = 2.0  # copies that products in fp8 read: rows, and columns

    @property
    def held_logits_frac(self) -> float:
        """Share of the logits of a micro-batch that the loss holds at once. [1]."""
        return 0.0 if self.fused_linear_ce else _HELD[self.loss]

    def narrow_bytes(self, precision: str) -> float:
        """Bytes of one quantised weight of a linear, as it is kept over the micro-batches. [byte].

        Transformer Engine keeps rows for the forward and columns for the backward product; in fp8
        with one scale a tensor only where the products cannot read the other way, and caches
        the copies of 16-bit weights while gradients accumulate (`is_first_microbatch`).
        """
        if not self.quantised_inputs or not is_narrow(precision):
            return 0.0
        form = number_format(precision)
        return form.bytes * (2.0 if form.block_scaled else self.fp8_orientations)

    @property
    def saved_bytes(self) -> tuple[float, float, float]:
        """Of a parameter in a checkpoint: weights, master weights, optimizer states. [byte].

        Weights kept in fp32 (FSDP) are master weights too.
        """
        if self.sharded_weights_bytes >= FP32_BYTES:
            return self.sharded_weights_bytes, 0.0, self.optimizer_bytes
        return self.weights_bytes, self.master_bytes, self.optimizer_bytes


IDEAL = MemoryParameters(
    gradients_bytes=2.0,
    unsharded_layers=1.0,
    live_layers=0.0,
    gathered_tensors=0.0,
    logits_bytes=6.0,
    fused_logits_bytes=4.0,
    fragmentation=1.0,
    context_bytes=0.0,
)
"""The formulas alone: no gathers, workspaces, fragmentation or context."""


def _states_of(r: Recipe) -> dict[str, float]:
    """Bytes per parameter of a named recipe, in place of the family's. [byte]."""
    return {
        "weights_bytes": r.weights_bytes,
        "gradients_bytes": r.gradients_bytes,
        "gradients_bytes_fp16": r.gradients_bytes,
        "master_bytes": r.master_bytes,
        "optimizer_bytes": r.optimizer_bytes,
        "step_bytes": 0.0,
        "sharded_weights_bytes": r.weights_bytes,
    }


def fp8_orientations(architecture: str) -> float:
    """Count the copies of an fp8 weight with one scale: Blackwell multiplies any layout. [1].

    Transformer Engine, `nvte_is_non_tn_fp8_gemm_supported`.
    """
    return 1.0 if architecture in ("blackwell", "blackwell-ultra") else 2.0


def parameters_of(
    software: SoftwareSpec, options: Mapping[str, object] | None = None, architecture: str = ""
) -> MemoryParameters:
    """Make the flat record of a framework family and a run's settings.

    `software`: the family: its `memory` table, attention kernel, cross entropy, stage split.
    `options`: ``attention`` ("unfused"), ``fused_cross_entropy``, ``loss``, ``recipe``,
    ``gradient_bytes``, ``moment_bytes``, ``recompute_modules``, ``offload_layers``,
    ``expert_imbalance``, ``low_precision_gather``, ``cuda_graphs``, ``overlap_ep``,
    ``outer_shards``; others are of no concern here.
    `architecture`: of the GPU; decides the copies of weights in fp8.
    """
    given = dict(options or {})
    values = {f.name: getattr(software.memory, f.name) for f in fields(FamilyMemory)}
    if (recipe := given.get("recipe")) is not None:
        values |= _states_of(RECIPES[str(recipe)])
    gradient = given.get("gradient_bytes")
    if isinstance(gradient, (int, float)):
        values["gradients_bytes"] = (
            float(gradient) if gradient < 4 else max(float(gradient), values["gradients_bytes"])
        )
    moments = given.get("moment_bytes")
    if isinstance(moments, (int, float)):
        values["optimizer_bytes"] = float(moments)
    modules: Any = given.get("recompute_modules", ("core_attn",))
    # a graph of the iteration has static shapes: what experts keep lies in pages set aside before
    stash = software.memory.paged_stash if given.get("cuda_graphs") == "full" else 1.0
    return MemoryParameters(
        **values,
        stage_split=software.stage_split,
        unfused_attention=given.get("attention", software.attention_on(architecture)) == "unfused",
        fused_cross_entropy=bool(given.get("fused_cross_entropy", software.fused_cross_entropy))
        or (software.compiled and software.compiled_loss),
        loss=str(given.get("loss", software.loss)),
        recompute_modules=tuple(modules),
        offloaded_layers=int(str(given.get("offload_layers", 0))),
        expert_imbalance=max(stash, float(str(given.get("expert_imbalance", 1.0)))),
        overlap_ep=bool(given.get("overlap_ep")),
        outer_shards=bool(given.get("outer_shards", software.outer_shards)),
        narrow_weights=bool(given.get("low_precision_gather", software.low_precision_gather)),
        fp8_orientations=fp8_orientations(architecture),
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter of one way to train."""

    name: str
    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float
    source: str

    @property
    def bytes_per_param(self) -> float:
        """All states of one parameter, unsharded. [byte]."""
        return self.weights_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def k_bytes(self) -> float:
        """The ZeRO paper's K: master weights and optimizer states. [byte]."""
        return self.master_bytes + self.optimizer_bytes


_ZERO = "ZeRO (Rajbhandari et al. 2019), section 3.1"
_QA = "multi-GPU Q&A, ZeRO section"
_MEGATRON = "Megatron-LM distributed optimizer, bf16 parameters"
_BOOK = "How to Scale Your Model, GPU chapter, Quiz 5 Q2"
_8BIT = "Dettmers et al. 2022, 8-bit optimizers: one byte per Adam moment"
_V3 = "DeepSeek-V3 Technical Report, section 3.3.2"

_ROWS = (
    Recipe("mixed-adam", 2, 2, 4, 8, f"{_ZERO}: K = 12"),
    Recipe("mixed-adam-nomaster", 2, 2, 0, 8, f"{_QA}: no fp32 master weights, K = 8"),
    Recipe("mixed-adam-fp32-grads", 2, 4, 4, 8, f"{_MEGATRON}: fp32 gradients"),
    Recipe("book-min", 2, 0, 0, 8, f"{_BOOK}: weights and Adam alone"),
    Recipe("fp32-adam", 4, 4, 0, 8, "FSDP and deployment notes: everything in fp32"),
    Recipe("bf16-adam", 2, 2, 0, 4, "pure bf16 training, Adam moments in bf16"),
    Recipe("adam-8bit", 2, 2, 0, 2, f"{_8BIT}; pure bf16 weights"),
    Recipe("mixed-adam-8bit", 2, 2, 4, 2, f"{_8BIT}; fp32 master weights"),
    Recipe("deepseek-v3", 2, 4, 4, 4, f"{_V3}: bf16 moments"),
    Recipe("sgd", 2, 2, 0, 0, "plain SGD without momentum, pure bf16 weights"),
    Recipe("mixed-sgd", 2, 2, 4, 0, "plain SGD without momentum, fp32 master weights"),
)

RECIPES: dict[str, Recipe] = {r.name: r for r in _ROWS}
"""Named recipes; the default of the documents' formulas is `mixed-adam`."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Model states of one GPU by part. [byte]."""

    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of the parts. [byte]."""
        return self.weights_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes


def check_zero(zero_stage: int, n_shards: int) -> None:
    """Refuse a ZeRO stage other than 0 to 3, or fewer than one shard."""
    if zero_stage not in (0, 1, 2, 3):
        raise ValueError(f"zero_stage must be 0, 1, 2 or 3, got {zero_stage}")
    if n_shards < 1:
        raise ValueError(f"n_shards must be at least 1, got {n_shards}")


def sharded_states(
    n_params: float, recipe: Recipe, zero_stage: int = 0, n_shards: int = 1
) -> StateBytes:
    """Model states of one GPU under ZeRO [1]_ or FSDP.

    Stage 0 shards nothing, 1 master weights and optimizer, 2 gradients too, 3 weights too
    (FSDP). HSDP is stage 3 with `n_shards` the size of one shard group.

    `n_params`: parameters that this GPU's data-parallel group shares, after TP, PP and EP [1].
    `recipe`: bytes per parameter of each part. `zero_stage`: 0, 1, 2 or 3 [1]. `n_shards`: GPUs
    that share the states [1]. Returns: bytes on one GPU [byte]. Raises ValueError if `zero_stage`
    or `n_shards` is out of range.

    .. [1] S. Rajbhandari et al., ZeRO, SC20, arXiv:1910.02054, figure 1.

    >>> for stage in range(4):
    ...     print(sharded_states(7.5e9, RECIPES["mixed-adam"], stage, 64).total_bytes / 1e9)
    120.0
    31.40625
    16.640625
    1.875
    """
    check_zero(zero_stage, n_shards)
    optimizer_shards = n_shards if zero_stage >= 1 else 1
    gradient_shards = n_shards if zero_stage >= 2 else 1
    weight_shards = n_shards if zero_stage >= 3 else 1
    return StateBytes(
        weights_bytes=n_params * recipe.weights_bytes / weight_shards,
        gradients_bytes=n_params * recipe.gradients_bytes / gradient_shards,
        master_bytes=n_params * recipe.master_bytes / optimizer_shards,
        optimizer_bytes=n_params * recipe.optimizer_bytes / optimizer_shards,
    )


def gpus_to_hold(total_bytes: float, usable_bytes_per_gpu: float) -> int:
    """Smallest number of GPUs whose memory adds up to `total_bytes`, at least one. [1].

    >>> gpus_to_hold(700e9, 80e9), gpus_to_hold(1342e9, 80e9), gpus_to_hold(1342e9, 80 * 2**30)
    (9, 17, 16)
    """
    if usable_bytes_per_gpu <= 0:
        raise ValueError(f"usable_bytes_per_gpu must be positive, got {usable_bytes_per_gpu}")
    return max(1, math.ceil(total_bytes / usable_bytes_per_gpu))


def nodes_to_hold(n_gpus: int, gpus_per_node: int) -> int:
    """Whole nodes that hold `n_gpus`. [1]."""
    if gpus_per_node < 1:
        raise ValueError(f"gpus_per_node must be at least 1, got {gpus_per_node}")
    return math.ceil(n_gpus / gpus_per_node)
