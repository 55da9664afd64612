"""Gradient and weight exchange of data parallelism: DDP, ZeRO-1 to 3, FSDP, HSDP.

What each stage sends: ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, section 7); FSDP and its
hybrid groups: Zhao et al. 2023 (arXiv:2304.11277, section 3).
"""

from __future__ import annotations

from gpuscale.core.formats import is_narrow, number_format
from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import KindActivations, away_frac, held_bytes
from gpuscale.core.records import NamedTuple
from gpuscale.core.step.operators import stream_s
from gpuscale.core.step.parallel_comm import gather_s, split_group, strides
from gpuscale.core.step.records import Hardware, Software, StageTimes, exposed_s

FOUR_BITS = 4
"""Formats so narrow are gathered packed (Megatron-Core, `fp4_param_gather`)."""


class Shards(NamedTuple):
    """What one rank holds and with whom it shares it."""

    dense_params: float
    expert_params: float
    dense_ranks: int  # dp * cp
    expert_ranks: int  # dp * cp * tp / (ep * etp)
    dense_stride: int
    expert_stride: int
    shard_ranks: int  # of ZeRO-3; below dense_ranks: HSDP
    expert_shard_ranks: int  # of those with the same experts, in one group of HSDP


def buckets(sw: Software, params: float, ranks: int, n_layers: float) -> float:
    """Count the calls that gradients or weights of a rank go out in; of a layer without buckets.

    Megatron-Core makes buckets larger with the ranks, so that a ring's latency stays hidden
    (`distributed_data_parallel.py`: 40e6 parameters, at least 1e6 per rank). [1]

    >>> core = Software("core", bucket_params=40e6, bucket_params_per_rank=1e6)
    >>> buckets(core, 8e9, 8, 32), buckets(core, 8e9, 400, 32), buckets(Software("s"), 8e9, 8, 32)
    (200.0, 20.0, 32)
    """
    size = max(sw.bucket_params, sw.bucket_params_per_rank * ranks)
    return max(1.0, params / size if size else n_layers)


def _both(
    hw: Hardware,
    sw: Software,
    shards: Shards,
    bytes_per_param: float,
    n_layers: float,
    *,
    reduce_all: bool = False,
) -> float:
    """One collective for the dense and one for the expert weights of a rank, in buckets. [s]."""
    total = 0.0
    for params, ranks, stride in (
        (shards.dense_params, shards.dense_ranks, shards.dense_stride),
        (shards.expert_params, shards.expert_ranks, shards.expert_stride),
    ):
        n_bytes, calls = params * bytes_per_param, buckets(sw, params, ranks, n_layers)
        total += gather_s(hw, ranks, stride, n_bytes, reduce_all=reduce_all, calls=calls)
    return total


def exposed_frac(hw: Hardware, sw: Software, ranks: int, stride: int, overlap: bool) -> float:
    """Part of the overlapped exchange that stays visible: less where the network moves the bytes.

    Inside a domain the collective's kernels take compute units from the multiplies beside them;
    over a network the slower NIC needs few of them.
    """
    if not overlap:
        return 1.0
    crosses = split_group(hw, ranks, stride)[1] > 1
    return sw.dp_network_exposed_frac if crosses else sw.dp_exposed_frac


def dp_overlap_helps(sw: Software) -> bool:
    """Whether overlap never makes the exchange slower, wherever its ranks lie."""
    return max(sw.dp_exposed_frac, sw.dp_network_exposed_frac) <= 1.0


def gather_bytes(sw: Software, precision: str, zero_stage: int) -> float:
    """Bytes per parameter of the weight all-gather. [byte].

    Weights kept in a narrow format are gathered so; those of ZeRO-1 and 2 in MXFP8 in 16 bits
    through the gradient buffer, and quantised both ways where they arrive (Megatron-Core,
    `reuse_grad_buf_for_mxfp8_param_ag`).
    """
    if not (sw.low_precision_gather and is_narrow(precision)):
        return sw.parameter_gather_bytes
    form = number_format(precision)
    if form.block_scaled and zero_stage < 3 and form.bits > FOUR_BITS:
        return sw.parameter_gather_bytes
    return min(1.0, form.bytes)


def replicated_s(
    hw: Hardware, sw: Software, shards: Shards, layout: Layout, stages: StageTimes
) -> float:
    """Exposed exchange once per step for ZeRO stages 0 to 2 (Rajbhandari et al. 2020).

    Windows: the passes of `window_passes` on the heaviest stage. Gradients go out behind the
    backward pass, or after it (nanotron, `make_ddp`); the next step's weights come in behind its
    forward pass where the family overlaps them (Megatron-Core, `overlap_param_gather`), else with
    the gradients. Stage 2 reduces those of the other micro-batches too: `reduced_s`. [s].
    """
    c = exposed_frac(hw, sw, shards.dense_ranks, shards.dense_stride, layout.overlap_dp)
    passes, zero_stage = window_passes(layout), layout.zero_stage
    forward_s, backward_s = stages.fwd_s * passes, stages.bwd_s * passes
    whole = zero_stage == 0 or sw.zero1_all_reduce
    grads = _both(hw, sw, shards, sw.gradient_bytes, stages.n_layers, reduce_all=whole)
    if zero_stage == 0:
        return exposed_s(backward_s, grads, c)
    width = gather_bytes(sw, layout.precision, zero_stage)
    weights = _both(hw, sw, shards, width, stages.n_layers)
    if sw.zero1_all_reduce:
        return grads + sw.gather_unoverlapped_frac * weights
    if sw.overlap_gather:
        return exposed_s(backward_s, grads, c) + exposed_s(forward_s, weights, c)
    return exposed_s(backward_s, grads + weights, c)


def reduced_s(
    hw: Hardware, sw: Software, shards: Shards, layout: Layout, stages: StageTimes
) -> float:
    """Exposed reduction of the gradients of ONE micro-batch under ZeRO-2. [s].

    Gradients are kept as shards, so every backward pass reduces its own (DeepSpeed,
    `stage_1_and_2.py`: `reduce_independent_p_g_buckets_and_remove_grads`; ZeRO, section 7.2).
    """
    c = exposed_frac(hw, sw, shards.dense_ranks, shards.dense_stride, layout.overlap_dp)
    grads = _both(hw, sw, shards, sw.gradient_bytes, stages.n_layers)
    return exposed_s(stages.bwd_s, grads, c)


def sharded_s(
    hw: Hardware, sw: Software, shards: Shards, layout: Layout, stages: StageTimes
) -> float:
    """Exposed exchange of ONE micro-batch with sharded weights (ZeRO-3, FSDP).

    The passes of the stage are its windows; each layer is a call of its own. [s].
    """
    n, stride = shards.shard_ranks, shards.dense_stride
    if n <= 1:
        return 0.0
    c = exposed_frac(hw, sw, n, stride, layout.overlap_dp)
    params, layers = shards.dense_params, max(1.0, stages.n_layers)
    calls = max(1.0, stages.n_layers * sw.gathers_per_layer)
    weight_bytes = params * gather_bytes(sw, layout.precision, 3)
    gather = gather_s(hw, n, stride, weight_bytes, calls=calls)
    reduce = gather_s(hw, n, stride, params * sw.gradient_bytes, calls=calls)
    size, stride = 2.0 * shards.expert_params, shards.expert_stride
    more = gather_s(hw, shards.expert_shard_ranks, stride, size, calls=layers)
    gather, reduce = gather + more, reduce + more
    return exposed_s(stages.fwd_s, gather, c) + exposed_s(stages.bwd_s, gather + reduce, c)


def hybrid_s(
    hw: Hardware, sw: Software, shards: Shards, layout: Layout, stages: StageTimes
) -> float:
    """All-reduce of the gradient shards between the shard groups of HSDP, once per step. [s].

    Groups that share the optimizer's states (Megatron-FSDP, `outer_dp_sharding_strategy` optim)
    scatter the gradients and gather the new weights instead, as ZeRO-1 does.

    Ranks with the same experts lie `expert_stride` apart: a shard group that holds one of them has
    whole experts (Megatron-FSDP, groups of `num_distributed_optimizer_instances`), gathers
    nothing for them, and sums their gradients with the other groups.
    """
    n, e = shards.shard_ranks, shards.expert_shard_ranks
    between = shards._replace(
        dense_params=shards.dense_params / n,
        expert_params=shards.expert_params / e,
        dense_ranks=shards.dense_ranks // n,
        expert_ranks=shards.expert_ranks // e,
        dense_stride=shards.dense_stride * n,
        expert_stride=shards.expert_stride * e,
    )
    replicas, stride = between.dense_ranks, between.dense_stride
    if replicas <= 1:
        return 0.0
    c, n_layers = exposed_frac(hw, sw, replicas, stride, layout.overlap_dp), stages.n_layers
    grads = _both(hw, sw, between, sw.gradient_bytes, n_layers, reduce_all=not sw.outer_shards)
    exposed = exposed_s(stages.bwd_s, grads, c)
    if sw.outer_shards:
        weights = _both(hw, sw, between, gather_bytes(sw, layout.precision, 3), n_layers)
        exposed += exposed_s(stages.fwd_s, weights, c)
    return exposed


def shards_of(layout: Layout, stages: StageTimes, domain_gpus: int) -> Shards:
    """Return the data-parallel groups of a rank that holds the weights of the widest stage."""
    ranks = layout.dp * layout.cp
    expert_ranks = max(1, ranks * layout.tp // (layout.ep * layout.etp))
    shard = min(ranks, layout.shard_group_size or ranks)
    at = strides(layout, domain_gpus)
    return Shards(
        dense_params=stages.dense_params,
        expert_params=stages.expert_params,
        dense_ranks=ranks,
        expert_ranks=expert_ranks,
        dense_stride=at.dense,
        expert_stride=at.expert,
        shard_ranks=shard,
        expert_shard_ranks=max(1, shard * layout.tp // (layout.ep * layout.etp)),
    )


def window_passes(layout: Layout) -> float:
    """Count the passes of a micro-batch that the exchange of a step has beside it. [1].

    The gradients of a chunk of layers go out once its last micro-batch is through. An interleaved
    pipeline takes its last `pp` micro-batches chunk by chunk, so all chunks but the last one have
    the passes of the others for that; the weights of the next step come in likewise (Megatron-Core,
    `schedules.py`: `is_last_microbatch_for_model_chunk`, `grad_sync_func`, `param_sync_func`).

    >>> from gpuscale.core.layout import Layout
    >>> [window_passes(Layout(64, 64, pp=4, vpp=v)) for v in (1, 2, 4)]
    [1.0, 2.5, 3.25]
    """
    group = min(layout.pp, layout.n_micro_batches)
    return (1.0 + (layout.vpp - 1) * group) / layout.vpp


def exchanges_s(
    hw: Hardware, sw: Software, layout: Layout, shards: Shards, stages: StageTimes
) -> tuple[float, float]:
    """Exposed data-parallel communication of each micro-batch, and once per step. [s]."""
    if layout.zero_stage == 3:
        each = sharded_s(hw, sw, shards, layout, stages)
        return each, hybrid_s(hw, sw, shards, layout, stages)
    once = replicated_s(hw, sw, shards, layout, stages)
    if layout.zero_stage < 2 or layout.pp > 1:  # a pipeline accumulates whole gradients
        return 0.0, once
    each = reduced_s(hw, sw, shards, layout, stages)
    return each, once - each


def offloads(sw: Software, layout: Layout) -> bool:
    """Whether activations of some layers wait on the host."""
    return layout.offload_activations or sw.offload_layers > 0


def copies_s(
    hw: Hardware,
    sw: Software,
    layout: Layout,
    layers: tuple[tuple[int, int], ...],
    acts: tuple[KindActivations, ...],
    *,
    forward_s: float,
    backward_s: float,
) -> tuple[float, float]:
    """Exposed copies of one micro-batch of a stage: (out in the forward pass, back in the other).

    The offloaded layers are spread over the stage and copied on a stream of their own, so that a
    whole pass hides them (Transformer Engine, `cpu_offload.py`: groups of layers wait for their
    copies at even intervals). [s].
    """
    n_layers = sum(n for _, n in layers)
    away = away_frac(n_layers, layout, sw.offload_layers)
    copy_s = away * held_bytes(layers, n_layers, acts, layout) / hw.host_link_bytes_per_s
    c = 0.0 if hw.arch is None else hw.form.activations_exposed_frac  # the roofline hides all
    return exposed_s(forward_s, copy_s, c), exposed_s(backward_s, copy_s, c)


FP32_MOMENTS = 8.0
"""Bytes of two moments in 32 bits, per parameter."""


def optimizer_s(
    hw: Hardware, sw: Software, shards: Shards, zero_stage: int, offload: bool = False
) -> float:
    """Time of the Adam update of one rank: its share of the states, read and written. [s].

    Offloaded states stay on the CPU (ZeRO-Offload, arXiv:2101.06840): gradients go out and weights
    come back over the host link, and the CPU updates them in its own memory. Narrower moments
    are read and written in fewer bytes.
    """
    touched = hw.optimizer_bytes_per_param - 2.0 * (FP32_MOMENTS - sw.moment_bytes)
    dense, expert = shards.dense_params, shards.expert_params
    if zero_stage >= 1:
        n, e = shards.dense_ranks, shards.expert_ranks
        if zero_stage == 3 and not sw.outer_shards:
            n, e = shards.shard_ranks, shards.expert_shard_ranks
        dense, expert = dense / n, expert / e
    if offload:
        update = touched / hw.form.host_memory_bytes_per_s
        return (dense + expert) * (hw.form.host_optimizer_bytes / hw.host_link_bytes_per_s + update)
    return stream_s(hw, (dense + expert) * touched)
