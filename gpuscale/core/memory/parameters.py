"""Memory parameters of a framework family and settings of a job, as the formulas take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from gpuscale.core.bounds import STRICT, Among, Factor, Fragmentation, Overhead, Within
from gpuscale.core.dataclasses import dataclass, field, fields
from gpuscale.core.formats import is_narrow, number_format
from gpuscale.core.memory.states import RECIPES, Recipe

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
