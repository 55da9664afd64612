"""One mixer in serving: projections, the core on prompt tokens, the core on decoding sequences.

Latents: DeepSeek-V2 (arXiv:2405.04434), section 2.1.2; fused attention: Dao 2023
(arXiv:2307.08691).
"""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.kv_cache import STATE_BYTES_PER_ELEMENT
from gpuscale.core.serving.products import product_s

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.core.serving.records import Batch, Replica, ServingSite

STATE_FLOP_PER_ELEMENT = 6.0
"""Read, correct and write of a recurrent state, per token and element."""

PEAK_TOKENS = 64.0
"""Prompt tokens for which a recurrent core keeps its state on the chip."""


def projections_s(
    mixer: AnyMixer, hidden: int, batch: Batch, replica: Replica, site: ServingSite
) -> float:
    """Time of a mixer's matrix products on the tokens of one attention rank.

    MLA: prompts expand the latent, decoding absorbs it (DeepSeek-V2, section 2.1.2): per head
    (rank x nope) and (rank x v), as one product of all heads in bf16.
    """
    fmt, ranks, time_s = replica.attention_format, replica.dp_attention, 0.0
    for p in mixer.work(hidden, replica.tp).products:
        tokens = (batch.prompt_tokens if p.absorbed else batch.tokens) / ranks
        if tokens > 0.0:
            time_s += product_s(site, tokens, p.n, p.k, fmt)
        if p.absorbed and batch.sequences > 0.0:
            time_s += product_s(site, batch.decode_tokens / ranks, p.n, p.k, "bf16")
    return time_s


def prefill_core_s(mixer: AnyMixer, batch: Batch, replica: Replica, site: ServingSite) -> float:
    """Time of the core on prompt tokens: fused attention, or a recurrence in chunks."""
    tokens = batch.prompt_tokens / replica.dp_attention
    if tokens <= 0.0:
        return 0.0
    peak, k = site.peaks["bf16"], site.kernels
    per_key = mixer.flop_per_key(False) / replica.tp
    if not per_key:
        state = mixer.cache().state_elements / replica.tp
        flop = STATE_FLOP_PER_ELEMENT * tokens * state
        moved = STATE_BYTES_PER_ELEMENT * 2.0 * state * max(1.0, tokens / PEAK_TOKENS)
        return flop / (peak * k.decode_flop_eff) + moved / (
            site.hbm_bytes_per_s * k.decode_attention_eff
        )
    keys = mixer.met_keys(batch.prompt_context)
    flop = tokens * keys * per_key
    eff = k.prefill_attention_eff * keys / (keys + k.prefill_ramp_tokens)
    return flop / (peak * eff) if flop > 0.0 else 0.0


def decode_core_s(mixer: AnyMixer, batch: Batch, replica: Replica, site: ServingSite) -> float:
    """Time of the core on decoding sequences: cache and state read once, and its multiplications.

    The two overlap: the root of the sum of their squares.
    """
    sequences = batch.sequences / replica.dp_attention
    if sequences <= 0.0:
        return 0.0
    k = site.kernels
    read = sequences * cache_read_bytes(mixer, batch.context, replica)
    time_s = read / (site.hbm_bytes_per_s * k.decode_attention_eff)
    flop = sequences * batch.tokens_each * decode_core_flop(mixer, batch.context) / replica.tp
    return hypot(time_s, flop / (site.peaks["bf16"] * k.decode_flop_eff))


def decode_core_flop(mixer: AnyMixer, context: float) -> float:
    """FLOP of one decoding sequence in the core of one layer, absorbed form of MLA."""
    recurrence = STATE_FLOP_PER_ELEMENT * mixer.cache().state_elements
    return mixer.met_keys(context) * mixer.flop_per_key(True) + recurrence


def cache_read_bytes(mixer: AnyMixer, context: float, replica: Replica) -> float:
    """Cache that one GPU reads to decode a token of one sequence in one layer. [byte]."""
    cache = mixer.cache()
    element = element_bytes(replica.kv_format)
    elements = cache.elements_per_token * mixer.read_tokens(context)
    elements += cache.window_elements_per_token * min(context, cache.window_tokens)
    state = 2.0 * (
        cache.state_elements * STATE_BYTES_PER_ELEMENT + cache.conv_elements * element
    )  # read and written
    return elements * element / mixer.cache_shards(replica.tp) + state / replica.tp
