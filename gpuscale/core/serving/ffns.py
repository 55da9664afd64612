"""One FFN in serving: dense MLPs, and experts of which a small batch meets only some.

Grouped products: Gale et al. 2022 (MegaBlocks, arXiv:2211.15841).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.params import experts_met_frac
from gpuscale.core.serving.products import multiplied_in, product_s, widened_peak

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import AnyFfn, MoeFfn


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
    expert_weights = sum(weights for weights, _ in shapes)
    read = met * expert_weights * element_bytes(fmt)
    streamed = k.grouped_memory_eff * (k.widened_memory_eff if widened else 1.0)
    memory_s = read / (site.hbm_bytes_per_s * streamed)
    beside_weights, tiled = expert_weights, 2.0 * rows
    if rows > site.software.vector_rows * met:  # else without tiles, on the vector units
        beside_weights = sum(w * (1.0 + k.grouped_ramp_depth / inner) for w, inner in shapes)
        tiled = 2.0 * (rows + k.grouped_ramp_rows * site.software.ramp_factor * met)
    beside = k.grouped_vector_ratio * site.software.vector_factor * site.vector_flop_per_s
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
