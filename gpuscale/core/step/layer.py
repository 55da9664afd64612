"""One layer of one micro-batch: operators, launch bound, exposed communication, recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.formats import number_format
from gpuscale.core.step.attention import MixerTime, mixer_s
from gpuscale.core.step.moe import FfnTime, ffn_s
from gpuscale.core.step.operators import linear_s, stream_s
from gpuscale.core.step.overlap import exposed_s
from gpuscale.core.step.parallel_comm import all_to_all_s, gather_s
from gpuscale.core.step.records import Hardware, LayerTime, Shape, Software

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.specs.model import AnyFfn

HOST_NORM = 4.0
"""Exponent of the soft maximum of GPU and CPU time; larger is sharper."""

HIDDEN_PASS_BYTES = 20.0
"""Bytes per token and width of the norms, residuals, dropouts of a layer; scaled by the family."""

UNSCALED_EXPERT_LAUNCH = 0.35
"""Launches of one expert without block scales, relative to mxfp8 and nvfp4."""

UNCOMPILED = 1.8
"""Memory-bound traffic of a family that usually compiles its layers, when it does not."""

OVERLAPPED_EP = 0.5
"""Share of the exposed all-to-all that remains when it runs beside another micro-batch."""

GRAPH_HOST = {"none": 1.0, "layer": 0.35, "full": 0.1}
"""Launch time that remains with CUDA graphs of a layer or of the whole iteration."""


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

    Parameters
    ----------
    mixer, ffn : spec
        Parts of the layer.
    hidden_size : int
        Width of the residual stream. [1]
    hw, sw : Hardware, Software
        Figures and calibration; their ideal forms give the roofline.
    shape : Shape
        What of the layout a layer sees; equal shapes give equal times, so memoise by it.

    Returns
    -------
    LayerTime
        Seconds; the parts add to `fwd_s + bwd_s`.
    """
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    mix = mixer_s(
        mixer,
        hidden_size,
        hw,
        sw,
        tokens=tokens,
        seq_len=shape.seq_len,
        tp=shape.tp,
        precision=shape.precision,
    )
    mlp = ffn_s(
        ffn,
        hidden_size,
        hw,
        sw,
        tokens=tokens,
        tp=shape.tp,
        ep=shape.ep,
        etp=shape.etp,
        precision=shape.precision,
    )
    return assemble_layer(
        mix,
        mlp,
        mixer.kind != "none",
        ffn.kind,
        hidden_size,
        hw,
        sw,
        shape,
        getattr(ffn, "top_k", 0),
    )


def assemble_layer(
    mix: MixerTime,
    mlp: FfnTime,
    has_mixer: bool,
    ffn_kind: str,
    hidden: int,
    hw: Hardware,
    sw: Software,
    shape: Shape,
    top_k: int,
) -> LayerTime:
    """Put the operators of a layer together: overlap, launch bound, recomputation."""
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    n_parts = int(has_mixer) + int(ffn_kind != "none")
    rest_f, rest_b = elementwise_s(mix, mlp, n_parts, hidden, hw, sw, shape, tokens)
    linear_f = mix.linear_fwd_s + mlp.linear_fwd_s
    linear_b = mix.linear_bwd_s + mlp.linear_bwd_s
    gpu_f = linear_f + mix.core_fwd_s + rest_f + mlp.dispatch_fwd_s
    gpu_b = linear_b + mix.core_bwd_s + rest_b + mlp.dispatch_bwd_s
    comm = layer_comm(mix, mlp, has_mixer, ffn_kind, hidden, hw, sw, shape, tokens, top_k)
    c_tp = sw.tp_exposed_frac if shape.overlap_tp else 1.0
    tp_f = exposed_s(linear_f, comm.tp_fwd_s, c_tp)
    tp_b = exposed_s(linear_b, comm.tp_bwd_s, c_tp)
    cp_f = exposed_s(mix.core_fwd_s, comm.cp_fwd_s, sw.cp_exposed_frac)
    cp_b = exposed_s(mix.core_bwd_s, comm.cp_bwd_s, sw.cp_exposed_frac)
    c_ep = sw.ep_exposed_frac * (OVERLAPPED_EP if sw.overlap_ep else 1.0)
    ep_f = exposed_s(gpu_f, comm.ep_fwd_s, c_ep)
    ep_b = exposed_s(gpu_b, comm.ep_bwd_s, c_ep)
    host_f = host_s(sw, shape.tp, ffn_kind == "moe", n_parts, shape.pp_crosses)
    host_f += expert_launch_s(hw, sw, mlp.local_experts, shape.precision)
    busy_f, busy_b = gpu_f + tp_f + cp_f + ep_f, gpu_b + tp_b + cp_b + ep_b
    extra_f, extra_b = _over(busy_f, host_f), _over(busy_b, 1.15 * host_f)
    fwd = busy_f + extra_f
    again = recompute_s(shape.recompute, sw, fwd, mix, mlp, rest_f, ffn_kind == "moe")
    bwd = busy_b + extra_b + again
    return LayerTime(
        fwd,
        bwd,
        linear_f + linear_b,
        mix.core_fwd_s + mix.core_bwd_s,
        rest_f + rest_b,
        mlp.dispatch_fwd_s + mlp.dispatch_bwd_s,
        tp_f + tp_b,
        cp_f + cp_b,
        ep_f + ep_b,
        again,
        extra_f + extra_b,
    )


def _over(gpu_s: float, host_s: float) -> float:
    """Time that launching adds: soft maximum of both, less that of kernels and collectives."""
    if host_s <= 0.0:
        return 0.0
    return float((gpu_s**HOST_NORM + host_s**HOST_NORM) ** (1.0 / HOST_NORM)) - gpu_s


def host_s(
    sw: Software, tp: int, is_moe: bool, n_parts: int = 2, pp_crosses: bool = False
) -> float:
    """CPU time to launch one layer forward. [s].

    `pp_crosses`: the pipeline spans nodes, which slows the launches of some engines with every
    tensor-parallel rank (`Software.pipeline_launch_s`).
    """
    time = sw.host_layer_s * GRAPH_HOST.get(sw.cuda_graphs, 1.0) * n_parts / 2.0
    time *= (1.0 + (sw.host_tp_factor if tp > 1 else 0.0)) * (1.8 if is_moe else 1.0)
    if pp_crosses and tp > 1:
        time = max(time, sw.pipeline_launch_s * tp * n_parts / 2.0)
    return time


def expert_launch_s(hw: Hardware, sw: Software, local_experts: float, precision: str) -> float:
    """CPU time of the kernels that are launched expert by expert: multiplies, casts. [s]."""
    if not local_experts:
        return 0.0
    casts = 1.0 if number_format(precision).block_scaled else UNSCALED_EXPERT_LAUNCH
    graphs = {"none": 1.0, "layer": 0.55, "full": 0.1}.get(sw.cuda_graphs, 1.0)
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
    traffic = own * hidden * HIDDEN_PASS_BYTES * n_parts / 2.0
    traffic += tokens * (mix.width_bytes + mlp.width_bytes)
    factor = sw.elementwise_factor * (1.0 if sw.compiled else UNCOMPILED)
    time = factor * stream_s(hw, traffic) + 3.0 * n_parts * hw.kernel_floor_s
    return time, 1.6 * time


def layer_comm(
    mix: MixerTime,
    mlp: FfnTime,
    has_mixer: bool,
    ffn_kind: str,
    hidden: int,
    hw: Hardware,
    sw: Software,
    shape: Shape,
    tokens: float,
    top_k: int,
) -> Comm:
    """Time the collectives of one layer, before overlap.

    Tensor parallelism: one all-reduce of (b s / c) h per part and direction; sequence parallelism
    makes it an all-gather and a reduce-scatter, and gathers once more in the backward pass
    (Korthikanti et al. 2022, section 4.2.2). Expert layers without expert tensor parallelism take
    the sequence-split tokens and need none. Order of ranks: tp, cp, dp; experts: etp, ep.
    """
    tp_f = tp_b = cp_f = cp_b = ep_f = ep_b = 0.0
    if shape.tp > 1:
        n = int(has_mixer) + int(ffn_kind == "dense")
        n_bytes = tokens * hidden * 2.0
        if shape.sequence_parallel:
            one = gather_s(hw, shape.tp, shape.tp_stride, n_bytes)
            tp_f, tp_b = 2 * n * one, 3 * n * one
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
                shape.ep_stride,
                mlp.dispatched_bytes,
                copies,
                mlp.route_domains,
                sw.rdma_dispatch,
            )
            ep_f = ep_b = 2.0 * one
    return Comm(tp_f, tp_b, cp_f, cp_b, ep_f, ep_b)


def _context_comm(mix: MixerTime, hidden: int, hw: Hardware, shape: Shape, tokens: float) -> float:
    if shape.cp_kind == "ulysses":
        n_bytes = tokens / shape.tp * (2.0 * hidden * 2.0) + tokens * mix.kv_bytes
        return all_to_all_s(hw, shape.cp, shape.cp_stride, n_bytes)
    return gather_s(hw, shape.cp, shape.cp_stride, tokens * shape.cp * mix.kv_bytes)


def recompute_s(
    recompute: str,
    sw: Software,
    forward_s: float,
    mix: MixerTime,
    mlp: FfnTime,
    rest_s: float,
    is_moe: bool = False,
) -> float:
    """Time that recomputation adds to the backward pass of one layer. [s].

    Full repeats the forward pass with its collectives; selective repeats the named modules,
    by default the attention core (Korthikanti et al. 2022, section 5; `mlp` means the dense one);
    per-op repeats the cheap operators and about a third of the multiplies (torchtitan's policy).
    """
    if recompute == "full":
        return forward_s
    if recompute == "per-op":
        return 0.35 * (mix.linear_fwd_s + mlp.linear_fwd_s) + rest_s
    if recompute != "selective":
        return 0.0
    cost = {
        "core_attn": mix.core_fwd_s,
        "mla_up_proj": mix.up_projection_s,
        "layernorm": 0.3 * rest_s,
        "moe_act": 0.2 * rest_s if is_moe else 0.0,
        "mlp": 0.0 if is_moe else mlp.linear_fwd_s,
        "moe": mlp.linear_fwd_s + mlp.dispatch_fwd_s if is_moe else 0.0,
    }
    return sum(cost.get(name, 0.0) for name in sw.recompute_modules)


def head_time(
    hidden_size: int, vocab_size: int, hw: Hardware, sw: Software, shape: Shape
) -> LayerTime:
    """LM head and cross-entropy of one micro-batch, in 16 bits, split over `tp`."""
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    fwd, bwd = linear_s(hw, tokens, vocab_size / shape.tp, hidden_size, "bf16")
    passes = hw.cross_entropy_passes * (0.6 if sw.fused_cross_entropy else 1.0)
    loss = stream_s(hw, tokens * vocab_size / shape.tp * 4.0 * passes)
    comm = 0.0
    if shape.tp > 1:
        one = gather_s(hw, shape.tp, shape.tp_stride, tokens * hidden_size * 2.0, reduce_all=True)
        comm = one * (sw.tp_exposed_frac if shape.overlap_tp else 1.0)
    return LayerTime(
        fwd + loss / 2.0,
        bwd + loss / 2.0 + comm,
        fwd + bwd,
        0.0,
        loss,
        0.0,
        comm,
        0.0,
        0.0,
        0.0,
        0.0,
    )
