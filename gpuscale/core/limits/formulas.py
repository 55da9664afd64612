"""When the communication of a kind of parallelism outlasts its arithmetic, per layer and MLP.

"How to Scale Your Model", GPU chapter, "Rooflines for LLM scaling": 2-byte elements unless said
otherwise; `batch_tokens` is the global batch; `collective_bytes_per_s` is the bandwidth of the
collective: egress of one GPU inside a node, egress of one node across nodes. `n_matrices` are the
weight matrices of the MLP: 2, gated 3. Context parallelism: Ring Attention (Liu et al. 2023,
arXiv:2310.01889). Ideal pipelines of equal stages: GPipe (Huang et al. 2018); Megatron-LM
(Narayanan et al. 2021), section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def _beyond_one(n: float | None) -> float:
    """Share of an array that leaves one of n ranks; 1 for many."""
    return 1.0 if n is None else (n - 1) / n


# --- data parallelism and FSDP: the gradient of a layer against its backward pass ----------------


def dp_math_s(
    batch_tokens: float,
    hidden_size: float,
    ffn_hidden_size: float,
    n_gpus: float,
    flop_per_s: float,
    top_k: float = 1,
    n_matrices: int = 2,
) -> float:
    """Backward arithmetic of one layer's MLP on each of the GPUs that share the batch. [s].

    ``2 FLOP * 2 (dX, dW) * n_matrices * k * B D F / (X C)``: 8 B D F / (X C) for two matrices. F is
    the width of one expert where `top_k` are chosen; C the dense peak of one GPU.
    """
    work = 4 * n_matrices * top_k * batch_tokens * hidden_size * ffn_hidden_size
    return work / (n_gpus * flop_per_s)


def dp_comm_s(
    hidden_size: float,
    ffn_hidden_size: float,
    collective_bytes_per_s: float,
    n_experts: float = 1,
    n_matrices: int = 2,
    n_nodes: int | None = None,
) -> float:
    """Reduce-scatter and all-gather of one layer's MLP gradient. [s].

    ``2 bytes * 2 (RS, AG) * n_matrices * E D F / W``: 8 E D F / W; over few nodes times
    ``(X-1)/X``. FSDP moves as much in each pass.
    """
    moved = 4 * n_matrices * n_experts * hidden_size * ffn_hidden_size
    return _beyond_one(n_nodes) * moved / collective_bytes_per_s


def dp_min_tokens_per_gpu(
    flop_per_s: float,
    collective_bytes_per_s: float,
    n_experts: float = 1,
    top_k: float = 1,
    n_nodes: int | None = None,
    nodes_spanned: float = 1,
) -> float:
    """Tokens per GPU from which data parallelism is compute-bound. [token].

    ``(E/k) * C/W``; over X nodes times (X-1)/X (`n_nodes` None: many); divided by the nodes that
    one model replica spans, whose links carry the gradient together.

    >>> dp_min_tokens_per_gpu(990e12, 400e9), dp_min_tokens_per_gpu(990e12, 400e9, 128, 4)
    (2475.0, 79200.0)
    >>> dp_min_tokens_per_gpu(990e12, 400e9, nodes_spanned=8)
    309.375
    """
    alpha = flop_per_s / collective_bytes_per_s
    return n_experts / top_k * alpha * _beyond_one(n_nodes) / nodes_spanned


def dp_limit_levels(
    flop_per_s: float,
    gpu_egress_bytes_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
    n_nodes: int = 1,
) -> tuple[float, float]:
    """Exact limits of the two levels, (inside the node, over the nodes); the larger one binds.

    ``C/W_gpu (D-1)/D`` and ``C/W_node (X-1)/X``.

    >>> dp_limit_levels(990e12, 450e9, 400e9, 8, 2)
    (1925.0, 1237.5)
    """
    inside = flop_per_s / gpu_egress_bytes_per_s * (node_gpus - 1) / node_gpus
    return inside, flop_per_s / node_egress_bytes_per_s * (n_nodes - 1) / n_nodes


# --- tensor parallelism: activations gathered against the MLP's forward arithmetic ---------------


def tp_math_s(
    batch_tokens: float,
    hidden_size: float,
    ffn_hidden_size: float,
    tp: float,
    flop_per_s: float,
    n_matrices: int = 2,
) -> float:
    """Forward arithmetic of one MLP on each of `tp` GPUs: 4 B D F / (Y C) for two matrices. [s].

    `batch_tokens` are the tokens of one tensor-parallel group. Attention is left out.
    """
    return 2 * n_matrices * batch_tokens * hidden_size * ffn_hidden_size / (tp * flop_per_s)


def tp_comm_s(
    batch_tokens: float, hidden_size: float, collective_bytes_per_s: float, tp: float | None = None
) -> float:
    """All-gather and reduce-scatter of the activations: 4 B D / W, exact times (Y-1)/Y. [s]."""
    return _beyond_one(tp) * 4 * batch_tokens * hidden_size / collective_bytes_per_s


def tp_limit(
    ffn_hidden_size: float, flop_per_s: float, collective_bytes_per_s: float, n_matrices: int = 2
) -> float:
    """Degree below which tensor parallelism is compute-bound: ``F W / C`` (gated 1.5 times). [1].

    >>> round(tp_limit(28672, 990e12, 450e9), 4), round(tp_limit(28672, 990e12, 400e9), 4)
    (13.0327, 11.5846)
    """
    return n_matrices / 2 * ffn_hidden_size * collective_bytes_per_s / flop_per_s


def tp_max_spanning(
    ffn_hidden_size: float,
    flop_per_s: float,
    gpu_egress_bytes_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
) -> tuple[float, float]:
    """Limits for a group over several nodes: (by the links inside the nodes, by the network).

    ``F W_gpu / C * D/(D-1)`` and ``D + F W_node / C``; the smaller one binds.

    >>> [round(x, 2) for x in tp_max_spanning(28672, 990e12, 450e9, 400e9)]
    [14.89, 19.58]
    """
    inside = ffn_hidden_size * gpu_egress_bytes_per_s / flop_per_s * node_gpus
    inside = inside / (node_gpus - 1) if node_gpus > 1 else math.inf
    return inside, node_gpus + ffn_hidden_size * node_egress_bytes_per_s / flop_per_s


def tp_max(limit: float, node_gpus: int, divides: Sequence[int] = ()) -> int:
    """Largest degree up to `limit` that divides the node, and the sizes in `divides`.

    >>> tp_max(13.03, 8), tp_max(11.4688, 72), tp_max(11.4688, 72, (64, 28672))
    (8, 9, 8)
    """
    for degree in range(max(1, min(node_gpus, math.floor(limit))), 1, -1):
        if node_gpus % degree == 0 and all(d % degree == 0 for d in divides):
            return degree
    return 1


# --- expert parallelism: tokens sent to experts against the experts' arithmetic, evenly routed ---


def ep_math_s(
    batch_tokens: float,
    top_k: float,
    hidden_size: float,
    ffn_hidden_size: float,
    ep: float,
    flop_per_s: float,
    n_matrices: int = 2,
    shared_ffn_hidden_size: float = 0.0,
) -> float:
    """Forward arithmetic of the experts on each GPU: 4 B k D F / (Z C) for two matrices. [s].

    Shared experts add theirs without adding communication. `batch_tokens` are the tokens of one
    expert-parallel group, all its GPUs together.
    """
    width = top_k * ffn_hidden_size + shared_ffn_hidden_size
    return 2 * n_matrices * batch_tokens * hidden_size * width / (ep * flop_per_s)


def _crossing(ep: float, top_k: float, node_gpus: int, max_nodes: int | None) -> float:
    """Share of the tokens that leave each group of `node_gpus`, once per destination group."""
    groups = ep / node_gpus
    reached = min(top_k / groups, 1.0)
    if max_nodes is not None:
        reached = min(reached, max_nodes / groups)
    return (ep - node_gpus) / ep * reached


def ep_comm_s(
    batch_tokens: float,
    hidden_size: float,
    ep: float,
    top_k: float,
    egress_bytes_per_s: float,
    node_gpus: int = 8,
    dispatch_bytes: float = 2.0,
    combine_bytes: float = 2.0,
    max_nodes: int | None = None,
) -> float:
    """Dispatch and combine of the tokens, once per destination node. [s].

    ``(2+2) B D (Z-D)/(Z W_node) min(D k / Z, 1)`` with the egress of one node of `node_gpus`; with
    `node_gpus` 1 and the egress of one GPU it is the all-to-all inside a node. `dispatch_bytes,
    combine_bytes`: per element there and back (fp8 dispatch: 1). `max_nodes`: nodes that a router
    sends a token to at most [1].
    """
    if ep <= node_gpus:
        return 0.0
    width = (dispatch_bytes + combine_bytes) * hidden_size
    share = _crossing(ep, top_k, node_gpus, max_nodes)
    return batch_tokens * width * share / egress_bytes_per_s


def ep_min_ffn(
    ep: float,
    top_k: float,
    flop_per_s: float,
    egress_bytes_per_s: float,
    node_gpus: int = 8,
    dispatch_bytes: float = 2.0,
    combine_bytes: float = 2.0,
    max_nodes: int | None = None,
    n_matrices: int = 2,
) -> float:
    """Expert width F from which expert parallelism is compute-bound. [1].

    ``C/W (Z-D)/k min(D k / Z, 1)``; arguments as in `ep_comm_s`. 0 within one node of the given
    size.

    >>> ep_min_ffn(16, 4, 990e12, 400e9), ep_min_ffn(64, 8, 990e12, 400e9)
    (4950.0, 17325.0)
    >>> ep_min_ffn(8, 4, 990e12, 450e9, node_gpus=1)  # inside a node
    1925.0
    """
    if ep <= node_gpus:
        return 0.0
    per_width = (dispatch_bytes + combine_bytes) / (2 * n_matrices)
    share = _crossing(ep, top_k, node_gpus, max_nodes)
    return flop_per_s / egress_bytes_per_s * per_width * share * ep / top_k


def ep_large_min_ffn(
    flop_per_s: float, node_egress_bytes_per_s: float, node_gpus: int = 8
) -> float:
    """Expert width for expert parallelism of any size: ``D C/W_node``, exact times (Z-D)/Z. [1].

    >>> ep_large_min_ffn(990e12, 400e9)
    19800.0
    """
    return node_gpus * flop_per_s / node_egress_bytes_per_s


def ep_max_scaleout(
    ffn_hidden_size: float,
    top_k: float,
    flop_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
) -> float:
    """Largest degree that stays compute-bound while k >= Z/D: ``D + F k W_node / C``. [1].

    >>> round(ep_max_scaleout(2048, 8, 990e12, 400e9), 4)
    14.6198
    """
    return node_gpus + ffn_hidden_size * top_k * node_egress_bytes_per_s / flop_per_s


# --- context parallelism: keys and values passed round a ring against one block of attention -----


def ring_attention_times(
    tokens_per_gpu: float,
    width: float,
    kv_width: float,
    flop_per_s: float,
    egress_bytes_per_s: float,
    causal: bool = False,
) -> tuple[float, float]:
    """(math, communication) of one ring step: a block of queries on a block of K and V. [s].

    ``4 c^2 h / C`` (causal, balanced: half) against ``4 c h_kv / W`` for c tokens per GPU; `width,
    kv_width`: heads times head width of queries and of K (or V) [1].
    """
    work = 4 * tokens_per_gpu**2 * width / (2 if causal else 1)
    return work / flop_per_s, 4 * tokens_per_gpu * kv_width / egress_bytes_per_s


def ring_attention_min_tokens_per_gpu(
    flop_per_s: float, egress_bytes_per_s: float, kv_over_q_frac: float = 1.0, causal: bool = False
) -> float:
    """Tokens per GPU from which ring attention is compute-bound: ``C/W h_kv/h``, causal twice.

    >>> ring_attention_min_tokens_per_gpu(990e12, 450e9)
    2200.0
    """
    return flop_per_s / egress_bytes_per_s * kv_over_q_frac * (2 if causal else 1)


HOPS_PER_MICRO_BATCH = 1.5
"""(m + p - 2) / m with p about m/2 (How to Scale Your Model, GPU chapter, pipelining)."""


def bubble_over_ideal(n_stages: int, n_micro_batches: int, vpp: int = 1) -> float:
    """Idle time over the time of the useful work: ``(p-1) / (v m)`` [1]_.

    `n_stages, n_micro_batches`: p and m [1]. `vpp`: interleaved model chunks per GPU, v [1].
    Returns: may exceed 1. The share of the whole step is `bubble_frac` [1].

    .. [1] D. Narayanan et al., SC21, arXiv:2104.04473, section 2.2.

    >>> bubble_over_ideal(3, 4), bubble_over_ideal(8, 16, vpp=2)
    (0.5, 0.21875)
    """
    return (n_stages - 1) / (vpp * n_micro_batches)


def bubble_frac(n_stages: int, n_micro_batches: int, vpp: int = 1) -> float:
    """Share of the step that a GPU idles: ``(p-1) / (v m + p-1)``. [1].

    >>> round(bubble_frac(3, 4), 4), bubble_frac(8, 1)
    (0.3333, 0.875)
    """
    over_ideal = bubble_over_ideal(n_stages, n_micro_batches, vpp)
    return over_ideal / (1 + over_ideal)


def hops(n_stages: int, n_micro_batches: int) -> int:
    """Transfers in a row of one forward pass: ``m + p - 2``. [1]."""
    return n_micro_batches + n_stages - 2


def hop_time_s(
    n_tokens: float, hidden_size: float, n_micro_batches: int, link_bytes_per_s: float
) -> float:
    """Time to pass the activations of one micro-batch to the next stage: ``2 B D / (m W)``. [s].

    `n_tokens`: tokens of one pipeline replica and step [1]. `hidden_size`: model width [1].
    `n_micro_batches`: micro-batches [1]. `link_bytes_per_s`: what the sending stage owns of the
    network, one direction [byte/s].
    """
    return 2.0 * n_tokens * hidden_size / n_micro_batches / link_bytes_per_s


def forward_transfer_time_s(
    n_tokens: float,
    hidden_size: float,
    n_stages: int,
    n_micro_batches: int,
    link_bytes_per_s: float,
) -> float:
    """Transfers of one forward pass, none overlapped: hops x time of one. [s]."""
    one = hop_time_s(n_tokens, hidden_size, n_micro_batches, link_bytes_per_s)
    return hops(n_stages, n_micro_batches) * one


def transfer_time_per_layer_s(
    n_tokens: float, hidden_size: float, n_layers: float, link_bytes_per_s: float
) -> float:
    """Transfers of a forward pass spread over the layers. [s]."""
    return HOPS_PER_MICRO_BATCH * hop_time_s(n_tokens, hidden_size, 1, link_bytes_per_s) / n_layers
