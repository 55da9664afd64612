"""Mixers: projections and cores of softmax, latent, linear and state space attention."""

from __future__ import annotations

import math

from gpuscale.core.model.mixers import AnyMixer
from gpuscale.core.model.mixers.kind import Scan, Softmax
from gpuscale.core.records import NamedTuple
from gpuscale.core.step.operators import linear_s, stream_s
from gpuscale.core.step.records import Hardware, Shape, Software

FULL_HEAD = 128.0
"""Width of a head from which fused kernels fill their tiles (FlashAttention-2, section 4.1)."""

HEAD_ALIGNMENT = 64
"""Width that the rows of a tile are aligned to; others are padded."""

VECTOR_ELEMENTS = 8
"""16-bit elements of one 16-byte load: other widths fall back to slower kernels (NVIDIA's guide to
matrix multiplication, "Tensor Core requirements")."""


class MixerTime(NamedTuple):
    """Seconds of one mixer and the sizes that its communication needs."""

    linear_fwd_s: float = 0.0
    linear_bwd_s: float = 0.0
    core_fwd_s: float = 0.0
    core_bwd_s: float = 0.0
    up_projection_s: float = 0.0  # MLA: what recomputing the up-projections costs
    width_bytes: float = 0.0  # activation bytes of one token through memory-bound passes
    kv_bytes: float = 0.0  # keys and values of one token


def mean_context_tokens(seq_len: float, window_tokens: float | None) -> float:
    """Keys that a causal query attends to on average.

    >>> mean_context_tokens(4096, None), mean_context_tokens(4096, 1024)
    (2048.0, 896.0)
    """
    if window_tokens is None or window_tokens >= seq_len:
        return seq_len / 2.0
    return window_tokens * (1.0 - window_tokens / (2.0 * seq_len))


def flash_core_s(
    core: Softmax, hw: Hardware, sw: Software, tokens: float, context: float, rounds: int = 1
) -> tuple[float, float]:
    """(forward, backward) time of a fused causal attention core.

    Efficiency rises with the context and with the head dimension up to 128 (FlashAttention-2,
    arXiv:2307.08691, section 4). `context` is the mean number of keys of a query. A ring meets
    the keys in `rounds` kernels, one block of them each, and merges their outputs in fp32 (Ring
    Attention, arXiv:2310.01889, section 3).
    """
    heads, dqk, dv = core.heads, core.qk, core.v
    flop = 2.0 * tokens * context * heads * (dqk + dv)
    eff = hw.attention_eff
    if hw.attention_ramp_tokens:
        block = 2.0 * context / rounds
        eff *= sw.flash_factor * block / (block + hw.attention_ramp_tokens)
        eff *= min(1.0, dv / FULL_HEAD) ** hw.form.head_dim_exponent
    merged = (rounds - 1) * tokens * heads * hw.form.ring_merge_bytes
    forward = flop / (hw.bf16_flop_per_s * eff)
    backward = hw.form.flash_backward_flop * forward / hw.attention_backward_eff
    forward += stream_s(hw, merged * dv) + rounds * hw.kernel_floor_s
    return forward, backward + stream_s(hw, merged * dqk) + rounds * hw.kernel_floor_s


def unfused_core_s(
    hw: Hardware, tokens: float, seq_len: float, heads: float, head_dim: int, compiled: bool = True
) -> tuple[float, float]:
    """(forward, backward) time of an unfused core: the full square in memory (2019-22 stacks).

    Scale, mask and softmax are one kernel by hand or by a compiler, else one each, in 32 bits.
    """
    rate = hw.bf16_flop_per_s * hw.unfused_gemm_eff
    rate *= head_dim / (head_dim + hw.unfused_head_ramp)
    if head_dim % HEAD_ALIGNMENT:
        rate *= hw.head_misaligned_eff
    if head_dim % VECTOR_ELEMENTS:
        rate *= hw.head_odd_eff
    multiply = 4.0 * tokens * seq_len * heads * head_dim / rate
    passes = hw.unfused_passes if compiled else max(hw.form.eager_passes, hw.unfused_passes)
    traffic = stream_s(hw, tokens * seq_len * heads * 2.0 * passes)
    launch = hw.form.unfused_launches * hw.kernel_floor_s
    return (multiply + traffic + launch, 2 * multiply + hw.form.unfused_backward_traffic * traffic)


def _scan_s(
    hw: Hardware, tokens: float, flop_per_token: float, bytes_per_token: float
) -> tuple[float, float]:
    """(forward, backward) of a chunked scan: state space duality, arXiv:2405.21060, section 6."""
    rate = hw.bf16_flop_per_s * hw.attention_eff * hw.scan_eff
    forward = tokens * flop_per_token / rate + stream_s(
        hw, hw.form.scan_passes * tokens * bytes_per_token
    )
    launch = hw.form.scan_launches * hw.kernel_floor_s
    return forward + launch, hw.form.flash_backward_flop * forward + launch


def softmax_s(
    core: Softmax, hw: Hardware, sw: Software, tokens: float, seq_len: int, rounds: int = 1
) -> tuple[float, float]:
    """(forward, backward) time of a softmax core, fused or not, with its indexer."""
    if core.whole and sw.attention == "unfused":
        return unfused_core_s(hw, tokens, seq_len, core.heads, core.qk, sw.compiled)
    context = mean_context_tokens(seq_len, core.window_tokens)
    index_s = 0.0
    if core.top_k_tokens:
        index = tokens * context * core.index_flop_per_key
        index_s = index / (hw.bf16_flop_per_s * hw.attention_eff)
        context = min(context, float(core.top_k_tokens))
    fwd, bwd = flash_core_s(core, hw, sw, tokens, context, rounds)
    return fwd + index_s, bwd + index_s


def mixer_s(
    mixer: AnyMixer, hidden: int, hw: Hardware, sw: Software, *, tokens: float, shape: Shape
) -> MixerTime:
    """Time of any mixer for `tokens` tokens (after CP) of one tensor-parallel rank."""
    tp, seq_len = shape.tp, shape.seq_len
    work = mixer.work(hidden, tp)
    if work.core is None:
        return MixerTime()
    times = [linear_s(hw, tokens, p.n, p.k, shape.precision) for p in work.products]
    if isinstance(work.core, Softmax):
        core = softmax_s(work.core, hw, sw, tokens, seq_len, shape.rounds)
    elif isinstance(work.core, Scan):
        core = _scan_s(hw, tokens, work.core.flop_per_token, work.core.bytes_per_token)
    else:
        rate = hw.bf16_flop_per_s * hw.attention_eff * hw.scan_eff
        forward = tokens * mixer.flop(seq_len) / tp / rate + hw.kernel_floor_s
        core = forward, hw.form.flash_backward_flop * forward / hw.attention_backward_eff
    up_s = math.fsum(f for p, (f, _) in zip(work.products, times, strict=True) if p.from_latent)
    return MixerTime(
        math.fsum(f for f, _ in times),
        math.fsum(b for _, b in times),
        *core,
        up_s,
        4.0 * work.streamed,
        2.0 * work.exchanged,
    )
