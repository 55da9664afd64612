"""What a fine-tuning framework keeps and costs: the physical parameters of a software family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from gpuscale.core.bounds import (
    STRICT,
    Among,
    Factor,
    Fraction,
    Fragmentation,
    Overhead,
    Share,
    Spread,
    Within,
    ZeroStage,
)
from gpuscale.core.records import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class FinetuneParameters:
    """Parameters of one family, the `[finetune]` table of its preset; `IDEAL`: bare formulas.

    Bytes are per parameter for weights and states, per element and token for activations, per
    logit for the loss.
    """

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    # what is stored
    frozen_bytes: Factor = 2.0  # an unquantised frozen weight
    edge_bytes: Factor = 2.0  # embedding, head, norms beside a quantised base
    adapter_weights_bytes: Factor = 4.0
    adapter_gradients_bytes: Factor = 4.0
    adapter_moment_bytes: Factor = 4.0
    full_weights_bytes: Factor = 2.0
    full_gradients_bytes: Factor = 2.0
    full_master_bytes: Factor = 0.0
    full_moment_bytes: Factor = 2.0
    saved_module_bytes: Factor = 11.0  # embedding and head trained beside adapters: all of it
    step_bytes: Factor = 0.0  # of an optimizer's temporary, per trained parameter
    step_gradients_bytes: Factor = 0.0  # of the gradient a sharded step reads, in place of its own
    sharded_fragmentation: Fragmentation = 1.0  # ZeRO-3: reserved over allocated
    step_group_params: Overhead = 0.0  # ZeRO-3: parameters that are stepped at once; 0: all
    reduce_bucket_bytes: Overhead = 0.0  # ZeRO-1 and 2: buffers that gradients are reduced in
    autocast: bool = False  # fp32 weights are multiplied as 16-bit copies, cast once a step
    replica_buckets: bool = False  # replicas reduce copies of their gradients (PyTorch DDP)
    # forward and backward
    hidden_bytes: Factor = 2.0  # per hidden element and sublayer: the input of a norm
    norm_bytes: Factor = 4.0  # the same, fp32 copies of unfused norms
    adapter_input_bytes: Factor = 4.0
    adapter_casts: bool = False  # each adapted map keeps an input of its own
    packed_input_bytes: Factor = 0.0  # input of a frozen, quantised map, where its kernel keeps it
    fused_loss_norms: bool = False  # what fuses the loss fuses norms too (Liger)
    kept_factor: Factor = 1.0  # of a layer's elements, when nothing is recomputed
    working_factor: Factor = 1.4  # a layer's backward, in layers without recomputation
    logits_eager_bytes: Factor = 10.0
    pair_logit_bytes: Factor = 0.0  # more at DPO: log-softmax kept, the reference's beside it
    logits_chunked_bytes: Factor = 4.0
    logits_fused_bytes: Factor = 0.1
    scores_bytes: Factor = 6.0  # attention that is not fused, per head and pair of tokens
    gathered_layers: Factor = 2.0  # sharded weights: layers gathered at once
    most_gathered_params: Overhead = 0.0  # that are gathered at once, or one layer's; 0: no limit
    root_gathered: bool = False  # embedding and head stay gathered (FSDP 1, ZeRO-3)
    dequantised_copies: Factor = 1.0  # of the largest map
    # around it
    fragmentation: Fragmentation = 1.05  # reserved over allocated
    overhead_bytes: Overhead = 0.0  # workspaces, inside the allocator
    context_bytes: Overhead = 0.5e9  # outside it
    fp16_copy: bool = True  # fp16 training makes the fp32 copy of the logits that bf16 does
    loading_factor: Factor = 0.0  # peak of loading a sharded model over its weights
    offload_gradients: bool = True  # they go to the host with the optimizer (ZeRO-Offload)
    printed_kind: Annotated[str, Among(("allocated", "reserved", "nvidia-smi"))] = "reserved"
    interval_factor_80: Spread = 1.25  # on the total, holds 80 % of measured peaks
    # habits
    loss: Annotated[str, Among(("eager", "chunked", "fused"))] = "eager"
    recompute: Annotated[str, Among(("none", "selective", "full"))] = "full"
    compiled: bool = False
    zero_stage: ZeroStage = 0
    offload_inputs: bool = False  # checkpointing keeps the layers' inputs on the host
    offloads: tuple[str, ...] = ("optimizer", "activations", "parameters", "gradients")
    offload_all: bool = False  # offloaded parameters take gradients and states along (torch FSDP)
    offload_whole: bool = False  # and these do not go without them
    optimizer: str = "adamw"
    seq_len: Annotated[int, Within(0, 2**30)] = 0  # 0: none
    rank: Annotated[int, Within(1, 65536)] = 16
    adapted_layers: Annotated[int, Within(0, 65536)] = 0  # from the last down; 0: all
    micro_batch: Annotated[int, Within(1, 65536)] = 1
    packs_batch: bool = False  # packed rows are of the samples of a batch, which counts these
    targets: tuple[str, ...] = ("all-linear",)
    sharded: str = ""  # preset whose figures hold under ZeRO or FSDP; "": its own
    quantised: str = ""  # the same where the sharded base is quantised
    replicas: str = ""  # the same where nothing is sharded over several GPUs
    # time
    host_update_bytes_per_s: Overhead = 0.0  # of an optimizer on the CPU, one GPU's; 0: the host's
    dequantise_eff_frac: Fraction = 0.75  # of the memory bandwidth: nf4, fp8, int8 of bitsandbytes
    dequantise_gptq_frac: Fraction = 0.08  # the same of GPTQ's and AWQ's kernels
    attention_long_gain: Factor = 0.14  # attention rate gained on very long sequences
    adapter_passes: Factor = 3.0  # memory passes over an adapter's inputs and outputs
    expert_imbalance: Annotated[float, Within(1, 100)] = 1.0  # tokens of the busiest rank over mean
    expert_launch_s: Share = 0.0  # CPU time of one expert and pass, where they run one by one
    expert_gather_s: Share = 0.0  # the same of gathering one expert alone, sharded
    adapter_launch_s: Share = 0.0  # CPU time of one adapted map and pass
    merged_launch_s: Share = 0.0  # the same of stacked weights that adapters are added to
    step_interval_factor_80: Spread = 1.4
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)


WEIGHTS = {"fp32": 4.0, "bf16": 2.0}
"""Format of trained weights -> bytes of each, of its gradient and of its moments."""


def kept_in(p: FinetuneParameters, weights: str, *, full: bool) -> FinetuneParameters:
    """Parameters of a job whose weights are loaded in a format; an engine's master stays fp32."""
    each = WEIGHTS[weights]
    if not full:
        return replace(p, frozen_bytes=each)
    if p.full_master_bytes:
        return p
    names = ("full_weights_bytes", "full_gradients_bytes", "full_moment_bytes")
    more: dict[str, Any] = dict.fromkeys(names, each)
    if p.step_bytes:  # of a foreach optimizer
        more["step_bytes"] = each
    return replace(p, **more)


IDEAL = FinetuneParameters(
    adapter_weights_bytes=2.0,
    adapter_gradients_bytes=2.0,
    adapter_moment_bytes=2.0,
    saved_module_bytes=8.0,
    norm_bytes=0.0,
    adapter_input_bytes=2.0,
    working_factor=1.0,
    logits_eager_bytes=6.0,
    logits_chunked_bytes=2.0,
    logits_fused_bytes=0.0,
    gathered_layers=1.0,
    fragmentation=1.0,
    context_bytes=0.0,
    interval_factor_80=1.0,
    dequantise_eff_frac=1.0,
    dequantise_gptq_frac=1.0,
    attention_long_gain=0.0,
    adapter_passes=1.0,
)
"""The formulas alone."""
