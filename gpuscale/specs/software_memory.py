"""What a training framework family keeps in GPU memory: a few physical parameters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuscale.specs.fields import Spec

Factor = Annotated[float, Field(ge=0, le=1000)]
Overhead = Annotated[float, Field(ge=0, le=1e12)]


class SoftwareMemory(Spec):
    """Memory parameters of one family; `sources` says which are read and which fitted.

    States are bytes per parameter, activations bytes per element and token of one layer.
    """

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
    paged_stash: Annotated[float, Field(ge=1, le=10)] = 1.0  # pages of experts in a whole graph
    scores_bytes: Factor = 5.0  # unfused attention, per head and pair of tokens
    per_op_frac: Factor = 0.5  # kept by per-operator recomputation
    live_layers: Factor = 1.0  # backward of one layer: gradients beside what it keeps, in layers
    gathered_tensors: Factor = 2.0  # sequence-parallel gathers alive, in T x H elements
    logits_bytes: Factor = 12.0  # per logit: bf16 and fp32 copies, softmax, gradient
    fused_logits_bytes: Factor = 6.0  # with fused cross entropy
    head_gradient_bytes: Factor = 0.0  # gradient of the head beside the main gradients
    selective_per_op: bool = False  # `selective` means per operator in this family (torchtitan)
    whole_logits_bytes: Factor = 0.0  # per logit, not split by TP
    fused_linear_ce: bool = False  # head and loss in chunks: no logits stored
    workspace_bytes: Overhead = 0.0  # library workspaces, inside the allocator
    fragmentation: Annotated[float, Field(ge=1, le=3)] = 1.06  # reserved over allocated
    context_bytes: Overhead = 1.5e9  # CUDA context and NCCL buffers, outside the allocator
    printed_kind: Literal["allocated", "reserved", "nvidia-smi"] = "reserved"
    printed_stage: Literal["peak", "first", "last"] = "peak"
    sources: dict[str, str] = Field(default_factory=dict)
