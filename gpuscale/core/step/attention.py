"""Mixers: projections and cores of softmax, latent, linear and state space attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.model.flops import attention_flop
from gpuscale.core.model.params import mixer_weights
from gpuscale.core.step.operators import linear_s, stream_s
from gpuscale.core.step.records import Hardware, Software

if TYPE_CHECKING:
    from gpuscale.specs.model import AnyMixer, Attention, GatedDelta, Mamba2, Mla

SCAN_CHUNK_TOKENS = 256  # chunk of the state space and gated delta kernels


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

    Examples
    --------
    >>> mean_context_tokens(4096, None), mean_context_tokens(4096, 1024)
    (2048.0, 896.0)
    """
    if window_tokens is None or window_tokens >= seq_len:
        return seq_len / 2.0
    return window_tokens * (1.0 - window_tokens / (2.0 * seq_len))


def flash_core_s(
    hw: Hardware, sw: Software, tokens: float, context: float, heads: float, dqk: int, dv: int
) -> tuple[float, float]:
    """(forward, backward) time of a fused causal attention core; backward is 2.5 times the FLOPs.

    Efficiency rises with the context and with the head dimension up to 128 (FlashAttention-2,
    arXiv:2307.08691, section 4). `context` is the mean number of keys of a query.
    """
    flop = 2.0 * tokens * context * heads * (dqk + dv)
    eff = hw.attention_eff
    if hw.attention_ramp_tokens:
        eff *= sw.flash_factor * 2.0 * context / (2.0 * context + hw.attention_ramp_tokens)
        eff *= min(1.0, dv / 128.0) ** 0.35
    forward = flop / (hw.bf16_flop_per_s * eff)
    backward = 2.5 * forward / hw.attention_backward_eff
    return forward + hw.kernel_floor_s, backward + hw.kernel_floor_s


def unfused_core_s(
    hw: Hardware, tokens: float, seq_len: float, heads: float, head_dim: int
) -> tuple[float, float]:
    """(forward, backward) time of an unfused core: the full square in memory (2019-22 stacks)."""
    rate = hw.bf16_flop_per_s * hw.gemm_bf16_eff * hw.unfused_gemm_eff
    rate *= head_dim / (head_dim + hw.unfused_head_ramp)
    if head_dim % 64:
        rate *= hw.head_misaligned_eff
    if head_dim % 8:
        rate *= hw.head_odd_eff
    multiply = 4.0 * tokens * seq_len * heads * head_dim / rate
    traffic = stream_s(hw, tokens * seq_len * heads * 2.0 * hw.unfused_passes)
    return multiply + traffic + 4 * hw.kernel_floor_s, 2 * multiply + 1.5 * traffic


def attention_s(
    mixer: Attention,
    hidden: int,
    hw: Hardware,
    sw: Software,
    *,
    tokens: float,
    seq_len: int,
    tp: int,
    precision: str,
) -> MixerTime:
    """Softmax attention with grouped heads, one direction each; `tokens` after CP."""
    heads, d = mixer.n_heads / tp, mixer.head_dim
    dv = mixer.v_head_dim or d
    kv = max(1.0, mixer.n_kv_heads / tp)
    q_width = heads * d * (2 if mixer.output_gate else 1)
    kv_width = kv * (d if mixer.shared_kv else d + dv)
    f1, b1 = linear_s(hw, tokens, q_width + kv_width, hidden, precision)
    f2, b2 = linear_s(hw, tokens, hidden, heads * dv, precision)
    context = mean_context_tokens(seq_len, mixer.window_tokens)
    if mixer.sparse_top_k_tokens:
        context = min(context, float(mixer.sparse_top_k_tokens))
    if sw.attention == "unfused" and mixer.window_tokens is None:
        core = unfused_core_s(hw, tokens, seq_len, heads, d)
    else:
        core = flash_core_s(hw, sw, tokens, context, heads, d, dv)
    return MixerTime(
        f1 + f2, b1 + b2, *core, 0.0, 4.0 * (heads * d + kv * (d + dv)), 2.0 * kv * (d + dv)
    )


def mla_s(
    mixer: Mla,
    hidden: int,
    hw: Hardware,
    sw: Software,
    *,
    tokens: float,
    seq_len: int,
    tp: int,
    precision: str,
) -> MixerTime:
    """Multi-head latent attention, training form: latents expanded (DeepSeek-V2, section 2.1)."""
    heads = mixer.n_heads / tp
    dqk, dv = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim, mixer.v_head_dim
    q_rank, kv_rank = mixer.q_lora_rank or 0, mixer.kv_lora_rank
    down = q_rank + kv_rank + mixer.qk_rope_head_dim
    parts = [
        linear_s(hw, tokens, down, hidden, precision),
        linear_s(hw, tokens, heads * dqk, q_rank or hidden, precision),
        linear_s(hw, tokens, heads * (mixer.qk_nope_head_dim + dv), kv_rank, precision),
        linear_s(hw, tokens, hidden, heads * dv, precision),
    ]
    context = mean_context_tokens(seq_len, None)
    index = 0.0
    if mixer.sparse_top_k_tokens:
        index = 2.0 * tokens * context * mixer.index_n_heads * mixer.index_head_dim
        context = min(context, float(mixer.sparse_top_k_tokens))
    fwd, bwd = flash_core_s(hw, sw, tokens, context, heads, dqk, dv)
    index_s = index / (hw.bf16_flop_per_s * hw.attention_eff)
    return MixerTime(
        sum(f for f, _ in parts),
        sum(b for _, b in parts),
        fwd + index_s,
        bwd + index_s,
        parts[1][0] + parts[2][0],
        4.0 * heads * (2 * dqk + dv),
        2.0 * heads * (dqk + dv),
    )


def gated_delta_s(
    mixer: GatedDelta, hidden: int, hw: Hardware, *, tokens: float, tp: int, precision: str
) -> MixerTime:
    """Gated delta rule in chunks: projections, intra-chunk products, state updates."""
    key, value = mixer.n_k_heads * mixer.k_head_dim / tp, mixer.n_v_heads * mixer.v_head_dim / tp
    f1, b1 = linear_s(hw, tokens, 2 * key + 2 * value, hidden, precision)
    f2, b2 = linear_s(hw, tokens, hidden, value, precision)
    per_token = 2.0 * 64 * (2 * key + 2 * value) + 6.0 * value * mixer.k_head_dim
    core = _scan_s(hw, tokens, per_token, 2.0 * (2 * key + 2 * value))
    return MixerTime(f1 + f2, b1 + b2, *core, 0.0, 4.0 * (2 * key + 2 * value), 0.0)


def mamba2_s(
    mixer: Mamba2, hidden: int, hw: Hardware, *, tokens: float, tp: int, precision: str
) -> MixerTime:
    """Mamba-2 block: state space duality in chunks (arXiv:2405.21060, section 6)."""
    inner, groups = mixer.n_heads * mixer.head_dim / tp, max(1.0, mixer.n_groups / tp)
    state = groups * mixer.state_size
    f1, b1 = linear_s(hw, tokens, 2 * inner + 2 * state + mixer.n_heads / tp, hidden, precision)
    f2, b2 = linear_s(hw, tokens, hidden, inner, precision)
    per_token = SCAN_CHUNK_TOKENS * (state + inner) + 4.0 * inner * mixer.state_size
    core = _scan_s(hw, tokens, per_token, 2.0 * (3 * inner + 2 * state))
    return MixerTime(f1 + f2, b1 + b2, *core, 0.0, 4.0 * (2 * inner + 2 * state), 0.0)


def _scan_s(
    hw: Hardware, tokens: float, flop_per_token: float, bytes_per_token: float
) -> tuple[float, float]:
    rate = hw.bf16_flop_per_s * hw.attention_eff * hw.scan_eff
    forward = tokens * flop_per_token / rate + stream_s(hw, 3.0 * tokens * bytes_per_token)
    return forward + 3 * hw.kernel_floor_s, 2.5 * forward + 3 * hw.kernel_floor_s


def mixer_s(
    mixer: AnyMixer,
    hidden: int,
    hw: Hardware,
    sw: Software,
    *,
    tokens: float,
    seq_len: int,
    tp: int,
    precision: str,
) -> MixerTime:
    """Time of any mixer for `tokens` tokens of one tensor-parallel rank."""
    if mixer.kind == "attention":
        return attention_s(
            mixer, hidden, hw, sw, tokens=tokens, seq_len=seq_len, tp=tp, precision=precision
        )
    if mixer.kind == "mla":
        return mla_s(
            mixer, hidden, hw, sw, tokens=tokens, seq_len=seq_len, tp=tp, precision=precision
        )
    if mixer.kind == "gated-delta":
        return gated_delta_s(mixer, hidden, hw, tokens=tokens, tp=tp, precision=precision)
    if mixer.kind == "mamba2":
        return mamba2_s(mixer, hidden, hw, tokens=tokens, tp=tp, precision=precision)
    if mixer.kind == "none":
        return MixerTime()
    return other_mixer_s(
        mixer, hidden, hw, tokens=tokens, seq_len=seq_len, tp=tp, precision=precision
    )


def other_mixer_s(
    mixer: AnyMixer,
    hidden: int,
    hw: Hardware,
    *,
    tokens: float,
    seq_len: int,
    tp: int,
    precision: str,
) -> MixerTime:
    """Mixers without an own formula: weights as one multiply, the other FLOP as a core."""
    width = mixer_weights(mixer, hidden)[0] / hidden / tp
    fwd, bwd = linear_s(hw, tokens, width, hidden, precision)
    rate = hw.bf16_flop_per_s * hw.attention_eff * hw.scan_eff
    core = tokens * attention_flop(mixer, seq_len) / tp / rate + hw.kernel_floor_s
    return MixerTime(fwd, bwd, core, 2.5 * core / hw.attention_backward_eff, 0.0, 4.0 * width, 0.0)
