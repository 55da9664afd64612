"""One mixer in serving: projections, the core on prompt tokens, the core on decoding sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.kv_cache import STATE_BYTES_PER_ELEMENT, mixer_cache
from gpuscale.core.model.params import mixer_weights
from gpuscale.core.serving.products import product_s

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Batch, Replica, ServingSite
    from gpuscale.specs.model import AnyMixer, Attention, Mla

STATE_FLOP_PER_ELEMENT = 6.0
"""Read, correct and write of a recurrent state, per token and element."""

PEAK_TOKENS = 64.0
"""Prompt tokens for which a recurrent core keeps its state on the chip."""


def projections_s(
    mixer: AnyMixer, hidden: int, batch: Batch, replica: Replica, site: ServingSite
) -> float:
    """Time of a mixer's matrix products on the tokens of one attention rank."""
    tokens = batch.tokens / replica.dp_attention
    fmt, tp = replica.attention_format, replica.tp
    if mixer.kind == "attention":
        heads = mixer.n_heads / tp
        kv = 0.0 if mixer.reuses_kv else max(1.0, mixer.n_kv_heads / tp)
        dv = mixer.v_head_dim or mixer.head_dim
        query = heads * mixer.head_dim * (2 if mixer.output_gate else 1)
        keys = kv * mixer.head_dim * (1 if mixer.shared_kv else 2)
        return product_s(site, tokens, query + keys, hidden, fmt) + product_s(
            site, tokens, hidden, heads * dv, fmt
        )
    if mixer.kind == "mla":
        return mla_projections_s(mixer, hidden, batch, replica, site)
    width = mixer_weights(mixer, hidden)[0] / hidden / tp
    return product_s(site, tokens, width, hidden, fmt)


def mla_projections_s(
    mixer: Mla, hidden: int, batch: Batch, replica: Replica, site: ServingSite
) -> float:
    """MLA: prompts expand the latent, decoding absorbs it (DeepSeek-V2, section 2.1.2)."""
    fmt, heads = replica.attention_format, mixer.n_heads / replica.tp
    tokens, prompt = batch.tokens / replica.dp_attention, batch.prompt_tokens / replica.dp_attention
    decode = batch.sequences / replica.dp_attention
    qk = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
    down = (mixer.q_lora_rank or 0) + mixer.kv_lora_rank + mixer.qk_rope_head_dim
    time_s = product_s(site, tokens, down, hidden, fmt)
    time_s += product_s(site, tokens, heads * qk, mixer.q_lora_rank or hidden, fmt)
    time_s += product_s(site, tokens, hidden, heads * mixer.v_head_dim, fmt)
    both = mixer.qk_nope_head_dim + mixer.v_head_dim
    if prompt > 0.0:
        time_s += product_s(site, prompt, heads * both, mixer.kv_lora_rank, fmt)
    if decode > 0.0:  # per head (rank x nope) and (rank x v), as one product of all heads
        time_s += product_s(site, decode, heads * both, mixer.kv_lora_rank, "bf16")
    return time_s


def met_keys(mixer: AnyMixer, context: float) -> float:
    """Keys that a token meets in a context, by window and sparse selection."""
    if mixer.kind == "attention" and mixer.window_tokens:
        context = min(context, float(mixer.window_tokens))
    if mixer.kind in ("attention", "mla") and mixer.sparse_top_k_tokens:
        context = min(context, float(mixer.sparse_top_k_tokens))
    if mixer.kind == "compressed":
        far = context / mixer.compress_rate if mixer.compress_rate else 0.0
        context = min(context, float(mixer.window_tokens)) + far
    return context


def prefill_core_s(mixer: AnyMixer, batch: Batch, replica: Replica, site: ServingSite) -> float:
    """Time of the core on prompt tokens: fused attention, or a recurrence in chunks."""
    tokens = batch.prompt_tokens / replica.dp_attention
    if tokens <= 0.0 or mixer.kind == "none":
        return 0.0
    peak, k = site.peaks["bf16"], site.kernels
    heads = getattr(mixer, "n_heads", 0) / replica.tp
    if mixer.kind == "mla":
        width = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
    elif mixer.kind in ("attention", "compressed"):
        width = mixer.head_dim + (getattr(mixer, "v_head_dim", None) or mixer.head_dim)
    else:
        state = mixer_cache(mixer).state_elements / replica.tp
        flop = STATE_FLOP_PER_ELEMENT * tokens * state
        moved = STATE_BYTES_PER_ELEMENT * 2.0 * state * max(1.0, tokens / PEAK_TOKENS)
        return flop / (peak * k.decode_flop_eff) + moved / (
            site.hbm_bytes_per_s * k.decode_attention_eff
        )
    keys = met_keys(mixer, batch.prompt_context)
    flop = 2.0 * tokens * keys * heads * width
    eff = k.prefill_attention_eff * keys / (keys + k.prefill_ramp_tokens)
    return flop / (peak * eff) if flop > 0.0 else 0.0


def decode_core_s(mixer: AnyMixer, batch: Batch, replica: Replica, site: ServingSite) -> float:
    """Time of the core on decoding sequences: cache and state read once, or its multiplications."""
    sequences = batch.sequences / replica.dp_attention
    if sequences <= 0.0 or mixer.kind == "none":
        return 0.0
    k = site.kernels
    read = sequences * cache_read_bytes(mixer, batch.context, replica)
    time_s = read / (site.hbm_bytes_per_s * k.decode_attention_eff)
    flop = sequences * decode_core_flop(mixer, batch.context) / replica.tp
    return max(time_s, flop / (site.peaks["bf16"] * k.decode_flop_eff))


def decode_core_flop(mixer: AnyMixer, context: float) -> float:
    """FLOP of one decoding sequence in the core of one layer, absorbed form of MLA."""
    keys = met_keys(mixer, context)
    if mixer.kind == "mla":
        return 2.0 * keys * mixer.n_heads * (2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim)
    if mixer.kind == "attention":
        return 2.0 * keys * mixer.n_heads * (mixer.head_dim + (mixer.v_head_dim or mixer.head_dim))
    if mixer.kind == "compressed":
        return 4.0 * mixer.n_heads * mixer.head_dim * keys
    return STATE_FLOP_PER_ELEMENT * mixer_cache(mixer).state_elements


def cache_read_bytes(mixer: AnyMixer, context: float, replica: Replica) -> float:
    """Cache that one GPU reads to decode a token of one sequence in one layer. [byte]."""
    cache = mixer_cache(mixer)
    element = element_bytes(replica.kv_format)
    kept = min(context, cache.window_tokens)
    keys = context if mixer.kind == "compressed" else met_keys(mixer, context)
    elements = cache.elements_per_token * keys
    elements += cache.window_elements_per_token * kept
    state = 2.0 * (
        cache.state_elements * STATE_BYTES_PER_ELEMENT + cache.conv_elements * element
    )  # read and written
    return elements * element / cache_shards(mixer, replica.tp) + state / replica.tp


def cache_shards(mixer: AnyMixer, tp: int) -> float:
    """GPUs over which one sequence's cache of a layer splits; a latent is repeated."""
    if mixer.kind in ("mla", "compressed"):
        return 1.0
    return float(min(tp, _kv_heads(mixer))) if mixer.kind == "attention" else float(tp)


def _kv_heads(mixer: Attention) -> int:
    return mixer.n_kv_heads
