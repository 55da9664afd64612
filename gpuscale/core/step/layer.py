"""One layer of one micro-batch: operators, launch bound, exposed communication, recomputation.

Passes and exchanges of tensor and sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes, number_format
from gpuscale.core.layout import CONTEXT_KINDS, ContextShape
from gpuscale.core.records import NamedTuple
from gpuscale.core.step.attention import MixerTime, mixer_s
from gpuscale.core.step.moe import FfnTime, ffn_s
from gpuscale.core.step.operators import linear_s, multiplied_in, stream_s
from gpuscale.core.step.parallel_comm import all_to_all_s, gather_s
from gpuscale.core.step.records import Hardware, LayerTime, Shape, Software, exposed_s

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.specs.model import AnyFfn


class Comm(NamedTuple):
    """Communication of one layer in one direction. [s]."""

    tp_fwd_s: float = 0.0
    tp_bwd_s: float = 0.0
    cp_fwd_s: float = 0.0
    cp_bwd_s: float = 0.0
    ep_fwd_s: float = 0.0
    ep_bwd_s: float = 0.0


def layer_time(
    mixer: AnyMixer, ffn: AnyFfn, hidden_size: int, hw: Hardware, sw: Software, shape: Shape
) -> LayerTime:
    """Time of one layer, forward and backward, for one micro-batch of one rank.

    `hidden_size`: width of the residual stream [1]. `hw, sw`: figures and calibration; their ideal
    forms give the roofline. `shape`: what of the layout a layer sees; equal shapes give equal
    times, so memoise by it. Returns: seconds; the parts add to `fwd_s + bwd_s`.
    """
    parts = layer_parts(mixer, ffn, hidden_size, hw, sw, shape=shape)
    return assemble_layer(parts, hw, sw, shape)


class LayerParts(NamedTuple):
    """Mixer and FFN of a layer with their times, and what of the model they are put together by."""

    mix: MixerTime
    mlp: FfnTime
    has_mixer: bool
    ffn_kind: str
    top_k: int  # experts of a token; 0: not routed
    hidden_size: int

    @classmethod
    def of(
        cls, mixer: AnyMixer, ffn: AnyFfn, hidden_size: int, mix: MixerTime, mlp: FfnTime
    ) -> LayerParts:
        """Take a mixer and an FFN of a model, and the times found for them."""
        return cls(mix, mlp, mixer.kind != "none", ffn.kind, getattr(ffn, "top_k", 0), hidden_size)


def layer_parts(
    mixer: AnyMixer, ffn: AnyFfn, hidden_size: int, hw: Hardware, sw: Software, *, shape: Shape
) -> LayerParts:
    """Find the times of a layer's mixer and FFN, forward and backward."""
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    mix = mixer_s(mixer, hidden_size, hw, sw, tokens=tokens, shape=shape)
    mlp = ffn_s(ffn, hidden_size, hw, sw, tokens=tokens, shape=shape)
    return LayerParts.of(mixer, ffn, hidden_size, mix, mlp)


def assemble_layer(parts: LayerParts, hw: Hardware, sw: Software, shape: Shape) -> LayerTime:
    """Put the operators of a layer together: overlap, launch bound, recomputation."""
    return recomputing(bare_layer(parts, hw, sw, shape), parts, shape.recompute, hw, sw)


class BareLayer(NamedTuple):
    """A layer without recomputation, and what recomputation repeats of it."""

    time: LayerTime
    repeated_s: float  # forward pass that full recomputation repeats
    rest_s: float  # forward pass of norms, residuals, activations


def recomputing(
    bare: BareLayer, parts: LayerParts, recompute: str, hw: Hardware, sw: Software
) -> LayerTime:
    """Layer with its recomputation."""
    again = recompute_s(recompute, bare, parts, hw, sw)
    if not again:
        return bare.time
    return bare.time._replace(bwd_s=bare.time.bwd_s + again, recompute_s=again)


def bare_layer(parts: LayerParts, hw: Hardware, sw: Software, shape: Shape) -> BareLayer:
    """Put the operators of a layer together: overlap and launch bound."""
    mix, mlp, has_mixer, ffn_kind, _, hidden = parts
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    n_parts = int(has_mixer) + int(ffn_kind != "none")
    rest_f, rest_b = elementwise_s(
        mix, mlp, n_parts=n_parts, hidden=hidden, hw=hw, sw=sw, shape=shape, tokens=tokens
    )
    linear_f = mix.linear_fwd_s + mlp.linear_fwd_s
    linear_b = mix.linear_bwd_s + mlp.linear_bwd_s
    gpu_f = linear_f + mix.core_fwd_s + rest_f + mlp.dispatch_fwd_s
    gpu_b = linear_b + mix.core_bwd_s + rest_b + mlp.dispatch_bwd_s
    comm = layer_comm(parts, hw, sw, shape, tokens)
    c_tp = sw.tp_exposed_frac if shape.overlap_tp else 1.0
    tp_f = exposed_s(linear_f, comm.tp_fwd_s, c_tp)
    tp_b = exposed_s(linear_b, comm.tp_bwd_s, c_tp)
    c_cp = sw.cp_exposed_frac if shape.rounds > 1 else 1.0  # others wait for the keys
    cp_f = exposed_s(mix.core_fwd_s, comm.cp_fwd_s, c_cp)
    cp_b = exposed_s(mix.core_bwd_s, comm.cp_bwd_s, c_cp)
    c_ep = ep_exposed_frac(hw, sw, shape)
    hidden_f = comm.tp_fwd_s - tp_f + comm.cp_fwd_s - cp_f  # beside compute that hides no more
    hidden_b = comm.tp_bwd_s - tp_b + comm.cp_bwd_s - cp_b
    ep_f = exposed_s(max(0.0, gpu_f - hidden_f), comm.ep_fwd_s, c_ep)
    ep_b = exposed_s(max(0.0, gpu_b - hidden_b), comm.ep_bwd_s, c_ep)
    host_f = host_s(hw, sw, shape.tp, ffn_kind == "moe", n_parts, shape.pp_crosses)
    host_f += expert_launch_s(hw, sw, mlp.local_experts, shape.precision)
    busy_f, busy_b = gpu_f + tp_f + cp_f + ep_f, gpu_b + tp_b + cp_b + ep_b
    extra_f, extra_b = _over(hw, busy_f, host_f), _over(hw, busy_b, hw.form.host_backward * host_f)
    fwd = busy_f + extra_f
    repeated = fwd
    if sw.recompute_stops_early and ffn_kind == "dense":
        n_reductions = n_parts * (2 if shape.sequence_parallel else 1)
        repeated -= mlp.last_fwd_s + tp_f / n_reductions
    time = LayerTime(
        fwd_s=fwd,
        bwd_s=busy_b + extra_b,
        matmul_s=linear_f + linear_b,
        attention_s=mix.core_fwd_s + mix.core_bwd_s,
        elementwise_s=rest_f + rest_b,
        moe_s=mlp.dispatch_fwd_s + mlp.dispatch_bwd_s,
        tp_comm_s=tp_f + tp_b,
        cp_comm_s=cp_f + cp_b,
        ep_comm_s=ep_f + ep_b,
        host_s=extra_f + extra_b,
    )
    return BareLayer(time, repeated, rest_f)


def ep_exposed_frac(hw: Hardware, sw: Software, shape: Shape) -> float:
    """Part of the experts' exchange that stays visible beside their layer. [1].

    Dispatchers of their own (DeepEP, Hybrid-EP) move a token in chunks, one hop behind the other,
    beside the permutation; router and experts wait for all of a plain all-to-all.
    """
    if sw.dualpipe:
        return hw.form.dualpipe_ep_frac
    frac = sw.ep_exposed_frac
    if not sw.deduplicated_all_to_all:
        frac = max(frac, hw.form.plain_ep_frac)
    return frac * (hw.form.overlapped_ep_frac if sw.overlap_ep else 1.0)


NODE_RANKS = 8
"""Tensor-parallel ranks up to which launches slow down: each layer waits for the last host."""


def _over(hw: Hardware, gpu_s: float, host_s: float) -> float:
    """Time that launching adds: soft maximum of both, less that of kernels and collectives."""
    if host_s <= 0.0:
        return 0.0
    p = hw.form.host_norm
    return float((gpu_s**p + host_s**p) ** (1.0 / p)) - gpu_s


def host_s(
    hw: Hardware, sw: Software, tp: int, is_moe: bool, n_parts: int = 2, pp_crosses: bool = False
) -> float:
    """CPU time to launch one layer forward. [s].

    `pp_crosses`: the pipeline spans nodes, which slows the launches of some engines with every
    tensor-parallel rank (`Software.pipeline_launch_s`).
    """
    time = sw.host_layer_s * hw.form.host_frac(sw.cuda_graphs) * n_parts / 2.0
    share = (min(tp, NODE_RANKS) - 1) / (NODE_RANKS - 1)
    time *= (1.0 + sw.host_tp_factor * share) * (hw.form.host_moe if is_moe else 1.0)
    if pp_crosses and tp > 1:
        time = max(time, sw.pipeline_launch_s * tp * n_parts / 2.0)
    return time


def expert_launch_s(hw: Hardware, sw: Software, local_experts: float, precision: str) -> float:
    """CPU time of the kernels that are launched expert by expert: multiplies, casts. [s]."""
    if not local_experts or not sw.launches_experts:
        return 0.0
    casts = 1.0 if number_format(precision).block_scaled else hw.form.unscaled_expert_frac
    graphs = hw.form.expert_host_frac(sw.cuda_graphs)
    return hw.expert_launch_s * local_experts * casts * graphs * sw.dispatch_factor


def elementwise_s(
    mix: MixerTime,
    mlp: FfnTime,
    n_parts: int,
    hidden: int,
    hw: Hardware,
    sw: Software,
    shape: Shape,
    tokens: float,
) -> tuple[float, float]:
    """(forward, backward) time of norms, residuals, rope, activations. [s]."""
    own = tokens / shape.tp if shape.sequence_parallel else tokens
    traffic = own * hidden * hw.form.hidden_pass_bytes * n_parts / 2.0
    traffic += tokens * (mix.width_bytes + mlp.width_bytes)
    factor = sw.elementwise_factor * (1.0 if sw.compiled else hw.form.uncompiled_factor)
    launches = hw.form.elementwise_launches * n_parts
    time = factor * stream_s(hw, traffic) + launches * hw.kernel_floor_s
    return time, hw.form.elementwise_backward * time


def layer_comm(parts: LayerParts, hw: Hardware, sw: Software, shape: Shape, tokens: float) -> Comm:
    """Time the collectives of one layer, before overlap.

    Tensor parallelism: one all-reduce of (b s / c) h per part and direction; sequence parallelism
    makes it an all-gather and a reduce-scatter, and gathers once more in the backward pass
    (Korthikanti et al. 2022, section 4.2.2); what is gathered goes into a product, and some
    families quantise it first: `gathered_bytes`. Expert layers without expert tensor parallelism
    take the sequence-split tokens and need none. Order of ranks: tp, cp, dp; experts: etp, ep.
    """
    mix, mlp, has_mixer, ffn_kind, top_k, hidden = parts
    tp_f = tp_b = cp_f = cp_b = ep_f = ep_b = 0.0
    if shape.tp > 1:
        n = int(has_mixer) + int(ffn_kind == "dense")
        n_bytes = tokens * hidden * 2.0
        if shape.sequence_parallel:
            one = gather_s(hw, shape.tp, shape.tp_stride, n_bytes)
            n_bytes = tokens * hidden * gathered_bytes(hw, sw, shape.precision)
            gather = gather_s(hw, shape.tp, shape.tp_stride, n_bytes)
            tp_f, tp_b = n * (gather + one), n * (2 * gather + one)
        else:
            one = gather_s(hw, shape.tp, shape.tp_stride, n_bytes, reduce_all=True)
            tp_f = tp_b = n * one
    if shape.cp > 1 and mix.kv_bytes:
        cp_f = _context_comm(mix, hidden, hw, shape, tokens)
        cp_b = 2.0 * cp_f
    if ffn_kind == "moe":
        if shape.etp > 1:
            one = gather_s(hw, shape.etp, 1, mlp.dispatched_bytes * shape.etp)
            tp_f, tp_b = tp_f + 2 * one, tp_b + 2 * one
        if shape.ep > 1:
            copies = top_k if sw.deduplicated_all_to_all else 0
            one = all_to_all_s(
                hw,
                shape.ep,
                stride=shape.ep_stride,
                n_bytes=mlp.dispatched_bytes,
                copies=copies,
                max_domains=mlp.route_domains,
                dispatch_frac=sw.dispatch_frac if sw.rdma_dispatch else None,
            )
            ep_f = ep_b = 2.0 * one
    return Comm(tp_f, tp_b, cp_f, cp_b, ep_f, ep_b)


def gathered_bytes(hw: Hardware, sw: Software, precision: str) -> float:
    """Bytes per element of what sequence parallelism gathers: of 16 bits, or as it is multiplied.

    Transformer Engine casts the input of a column-parallel product, and the gradient of a
    row-parallel one, before it gathers them (`gather_along_first_dim` with a quantizer, and its
    user buffers); what it scatters is reduced in 16 bits. [byte]
    """
    return element_bytes(multiplied_in(hw, precision)) if sw.quantised_tp_gather else 2.0


def _context_comm(mix: MixerTime, hidden: int, hw: Hardware, shape: Shape, tokens: float) -> float:
    """Exchanges of context parallelism in the forward pass, by the kind's own row. [s]."""
    inside = max(1, hw.scaleup_domain_gpus // shape.cp_stride)
    kv_bytes = mix.kv_bytes
    split = ContextShape(shape.cp, shape.tp, min(shape.cp, inside), tokens, hidden, kv_bytes)
    total = 0.0
    for op, ranks, apart, n_bytes in CONTEXT_KINDS[shape.cp_kind].exchanges(split):
        stride = shape.cp_stride * apart
        exchange_s = gather_s if op == "gather" else all_to_all_s
        total += exchange_s(hw, ranks, stride, n_bytes)
    return total


def recompute_s(
    recompute: str, bare: BareLayer, parts: LayerParts, hw: Hardware, sw: Software
) -> float:
    """Time that recomputation adds to the backward pass of one layer. [s].

    Full repeats the forward pass with its collectives, in PyTorch up to the last input that the
    backward pass needs (`torch.utils.checkpoint`, early stop); selective repeats the named modules,
    by default the attention core (Korthikanti et al. 2022, section 5; `mlp` means the dense one);
    per-op repeats the cheap operators and about a third of the multiplies (torchtitan's policy), of
    experts all.
    """
    mix, mlp, rest_s, is_moe = parts.mix, parts.mlp, bare.rest_s, parts.ffn_kind == "moe"
    if recompute == "full":
        return bare.repeated_s
    if recompute == "per-op":
        frac = hw.form.per_op_recompute_frac
        ffn_s = mlp.linear_fwd_s * (1.0 if is_moe else frac)
        return frac * mix.linear_fwd_s + ffn_s + rest_s
    if recompute != "selective":
        return 0.0
    cost = {
        "core_attn": mix.core_fwd_s,
        "attn_proj": mix.linear_fwd_s / 4,  # one of q, k, v and output
        "mla_up_proj": mix.up_projection_s,
        "layernorm": hw.form.norm_recompute_frac * rest_s,
        "mlp_act": 0.0 if is_moe else hw.form.act_recompute_frac * rest_s,
        "moe_act": hw.form.act_recompute_frac * rest_s if is_moe else 0.0,
        "mlp": 0.0 if is_moe else mlp.linear_fwd_s,
        "moe": mlp.linear_fwd_s + mlp.dispatch_fwd_s if is_moe else 0.0,
    }
    return math.fsum(cost.get(name, 0.0) for name in sw.recompute_modules)


def head_time(
    hidden_size: int, vocab_size: int, hw: Hardware, sw: Software, shape: Shape
) -> LayerTime:
    """LM head and cross-entropy of one micro-batch, in 16 bits, split over `tp`."""
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    fwd, bwd = linear_s(hw, tokens, vocab_size / shape.tp, hidden_size, "bf16")
    frac = hw.form.loss_frac(sw.compiled and sw.compiled_loss, sw.fused_cross_entropy)
    passes = hw.cross_entropy_passes * frac
    loss = stream_s(hw, tokens * vocab_size / shape.tp * 4.0 * passes)
    comm = 0.0
    if shape.tp > 1:
        one = gather_s(hw, shape.tp, shape.tp_stride, tokens * hidden_size * 2.0, reduce_all=True)
        comm = one * (sw.tp_exposed_frac if shape.overlap_tp else 1.0)
    return LayerTime(
        fwd_s=fwd + loss / 2.0,
        bwd_s=bwd + loss / 2.0 + comm,
        matmul_s=fwd + bwd,
        elementwise_s=loss,
        tp_comm_s=comm,
    )
