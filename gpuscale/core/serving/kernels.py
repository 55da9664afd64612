"""Kernels of one layer in serving: products, the mixer's cores, dense MLPs and experts.

Weights narrower than the products: Frantar et al. 2024 (Marlin, arXiv:2408.11743), section 3;
latents: DeepSeek-V2 (arXiv:2405.04434), section 2.1.2; fused attention: Dao 2023
(arXiv:2307.08691); grouped products: Gale et al. 2022 (MegaBlocks, arXiv:2211.15841).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, hypot, log, log2, sqrt
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.expected import ProductRows, expected_elementwise_time_s, product_time_s
from gpuscale.core.model.layer_shape import STATE_BYTES_PER_ELEMENT
from gpuscale.core.model.params import experts_met_frac

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.core.serving.records import Batch, Replica, ServingSite
    from gpuscale.specs.model import AnyFfn, MoeFfn

GRID = 32
"""Steps per doubling to which token counts and sizes are rounded, so that products repeat."""

SCALED = ("nvfp4", "mxfp4", "mxfp8")
"""Formats whose scales the matrix units apply themselves (PTX, `tcgen05.mma`, block scaling;
CDNA 4, scaled MFMA); fp8 in blocks of 128 is summed on the vector units."""

WIDENED = ("mxfp4", "int4")
"""Formats with a rate whose weights serving frameworks still widen to bf16."""


def rounded(tokens: float) -> float:
    """Token count to 1 %: whole up to 32, above on a grid of `GRID` steps per doubling.

    >>> rounded(0.2), rounded(3.14), rounded(8191.0), round(rounded(1000.0))
    (1.0, 3.0, 8192.0, 1002)
    """
    if tokens <= GRID:
        return max(1.0, float(round(tokens)))
    return float(2.0 ** (round(GRID * log2(tokens)) / GRID))


def multiplied_in(site: ServingSite, fmt: str) -> str:
    """Format in which weights of `fmt` are multiplied: itself, or what the GPU offers.

    Blackwell multiplies mxfp4 weights by mxfp8 activations (gpt-oss); other narrow weights, and
    formats that a GPU lacks, are widened to bf16.
    """
    if fmt == "fp4" and "nvfp4" in site.peaks:
        return "nvfp4"
    if fmt == "mxfp4" and "nvfp4" in site.peaks and "mxfp8" in site.peaks:
        return "mxfp8"
    return "bf16" if fmt in WIDENED or fmt not in site.peaks else fmt


def widened_peak(site: ServingSite, peak: float) -> float:
    """Rate of products whose weights are unpacked on the way, of a 16-bit one of `peak`. [FLOP/s].

    In 16 bits, or in 8-bit integers with activations rounded to blocks of them, the faster.
    """
    integer = site.software.integer_rate * site.vector_flop_per_s
    return max(peak * site.kernels.widened_compute_eff, integer)


def product_s(site: ServingSite, m: float, n: float, k: float, fmt: str) -> float:
    """Time of (m, k) @ (k, n) with weights in `fmt`; 0 for no output.

    A format that the GPU does not multiply is multiplied in bf16, its weights read as stored.
    Activations in fp8 blocks are quantised by a kernel of their own; other formats within another.
    Widening weights on the way costs part of the 16-bit product's rate and bandwidth; on the vector
    units few rows are multiplied as stored, after a small kernel that quantises them.
    """
    if n <= 0.0 or k <= 0.0:
        return 0.0
    m, n, k = rounded(m), max(1.0, n), max(1.0, k)
    dtype = multiplied_in(site, fmt)
    peak, hbm, soft = site.peaks[dtype], site.hbm_bytes_per_s, site.software
    widened = dtype != fmt and dtype in ("bf16", "fp16")
    few, extra = m <= soft.vector_rows, 0.0
    if widened and few:
        extra = site.kernels.small_kernel_s * soft.small_factor
    elif widened:
        peak = widened_peak(site, peak)
        hbm *= site.kernels.widened_memory_eff
    if soft.vector_rate > 0.0:
        peak = min(peak, soft.vector_rate * site.vector_flop_per_s)
    key = (m, n, k, fmt, peak, hbm, soft.vector_rows, extra)
    found = site.memo.get(key)
    if found is not None:
        return found
    rows = ProductRows(n, k, element_bytes(dtype), peak, hbm, site.n_units or 1)
    rows = rows._replace(
        l2_bytes=site.l2_bytes or 0.0,
        include_quant=dtype == "fp8-block",
        weight_bytes=None if dtype == fmt else element_bytes(fmt),
    )
    time_s = product_time_s(m, rows, dtype, site.arch)
    if few:
        moved = element_bytes(fmt) * n * k + 2.0 * m * (n + k)
        time_s = min(time_s, expected_elementwise_time_s(moved, 0.0, site.arch, hbm)) + extra
    site.memo[key] = time_s
    return time_s


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


def mlp_s(
    site: ServingSite, tokens: float, width: float, hidden: float, gated: bool, fmt: str
) -> float:
    """Two products of a dense MLP of `width` on one GPU."""
    if width <= 0.0:
        return 0.0
    return product_s(site, tokens, (2.0 if gated else 1.0) * width, hidden, fmt) + product_s(
        site, tokens, hidden, width, fmt
    )


def ffn_s(
    ffn: AnyFfn, hidden: int, tokens: float, local: float, replica: Replica, site: ServingSite
) -> tuple[float, float]:
    """(dense products, expert products) of one FFN. [s].

    `tokens` of all ranks meet the routed experts; dense and shared MLPs work on the `local` ones
    of their attention rank, split over its `tp` GPUs.
    """
    if ffn.kind == "none":
        return 0.0, 0.0
    n, fmt = replica.tp, replica.ffn_format
    if ffn.kind == "dense":
        return mlp_s(site, local, ffn.ffn_hidden_size / n, hidden, ffn.gated, fmt), 0.0
    beside = ffn.shared_ffn_hidden_size + ffn.dense_ffn_hidden_size
    dense = mlp_s(site, local, beside / n, hidden, ffn.gated, fmt)
    dense += product_s(site, local, ffn.n_experts, hidden, "bf16")
    if ffn.latent_size:
        dense += 2.0 * product_s(site, local, ffn.latent_size / n, hidden, fmt)
    return dense, experts_s(ffn, hidden, tokens, replica, site)


def busiest(mean_rows: float, n_ranks: float) -> float:
    """Rows of the busiest of `n_ranks` under random routing: ``mean + sqrt(2 mean ln n)``.

    >>> busiest(100.0, 1)
    100.0
    """
    return mean_rows + (sqrt(2.0 * mean_rows * log(n_ranks)) if n_ranks > 1.0 else 0.0)


def experts_s(
    ffn: MoeFfn, hidden: int, tokens: float, replica: Replica, site: ServingSite
) -> float:
    """Products grouped by expert on the busiest GPU.

    Tokens of a batch choose alike: n of them meet as many experts as ``n^(1-a)`` independent ones.
    The weights of every expert that is met are read once, ``met * weights / (W_hbm eff)``; its rows
    run at ``r / (r + r0)`` of the rate of `grouped_s`, r rows an expert: ``2 (rows + r0 met)
    weights / rate``; the longer of the two, softly. Many ranks hold copies of the experts that are
    chosen most.
    """
    k = site.kernels
    ep = min(replica.ep, replica.group, ffn.n_experts)
    local = ffn.n_experts / ep
    mean = tokens * min(ffn.top_k, ffn.n_experts) / ep
    skew = k.expert_skew * (BALANCED if ep >= BALANCED_FROM else 1.0)
    rows = busiest(mean, ep) + skew * mean * (1.0 - 1.0 / ep)
    alike = tokens ** (1.0 - k.routing_alike)
    met = max(1.0, local * experts_met_frac(ffn.n_experts, ffn.top_k, alike))
    met = min(local, rows, busiest(met, ep))
    width = ffn.latent_size or hidden
    inner = ffn.expert_ffn_hidden_size * ep / replica.group
    into = (2.0 if ffn.gated else 1.0) * width * inner
    moved = rows * (k.routed_passes * width + 3.0 * inner) * 2.0  # gather, activation, scatter
    shapes = ((into, width), (width * inner, inner))
    return grouped_s(site, rows, max(1.0, met), shapes, replica.ffn_format) + moved / (
        site.hbm_bytes_per_s * k.grouped_memory_eff
    )


def grouped_s(
    site: ServingSite, rows: float, met: float, shapes: Sequence[tuple[float, float]], fmt: str
) -> float:
    """Time of products of `rows` rows spread over `met` experts. [s].

    `shapes` are (weights of an expert, inner width k) of each product. Beside the matrix units the
    vector units load, scale and store: ``1 / (0.9 C) + 1 / (ratio C_vector)``; they start and end
    the loop over k of a tile, which costs them as much as `grouped_ramp_depth` of it.
    """
    k = site.kernels
    dtype = multiplied_in(site, fmt)
    widened = dtype != fmt and dtype in ("bf16", "fp16")
    peak = widened_peak(site, site.peaks[dtype]) if widened else site.peaks[dtype]
    expert_weights = fsum(weights for weights, _ in shapes)
    read = met * expert_weights * element_bytes(fmt)
    streamed = k.grouped_memory_eff * (k.widened_memory_eff if widened else 1.0)
    memory_s = read / (site.hbm_bytes_per_s * streamed)
    beside_weights, tiled = expert_weights, 2.0 * rows
    if rows > site.software.vector_rows * met:  # else without tiles, on the vector units
        beside_weights = fsum(w * (1.0 + k.grouped_ramp_depth / inner) for w, inner in shapes)
        tiled = 2.0 * (rows + k.grouped_ramp_rows * site.software.ramp_factor * met)
    beside = k.grouped_vector_ratio * site.software.vector_factor * site.vector_flop_per_s
    beside /= k.scaled_vector_share if dtype in SCALED else 1.0
    compute_s = tiled * (expert_weights / (peak * MATRIX_EFF) + beside_weights / beside)
    blended = float((memory_s**BLEND + compute_s**BLEND) ** (1.0 / BLEND))
    return site.software.grouped_factor * blended


BALANCED_FROM = 16
"""Ranks from which published deployments keep copies of the experts that are chosen most
(DeepSeek-V3, section 3.4; SGLang's and vLLM's guides to wide expert parallelism)."""

BALANCED = 0.25
"""Of the skew that such copies leave: balancing made the prefill of 32 GPUs 1.49 times as fast
(lmsys.org, 2025-05-05, large-scale EP)."""

MATRIX_EFF = 0.9
"""Of the peak that the matrix units reach where nothing else holds them up: FlashMLA on H20, whose
vector units are as fast as H100's and whose matrix units are a seventh (github.com/deepseek-ai)."""

BLEND = 2.0
"""Exponent with which memory and compute time of grouped products add."""
