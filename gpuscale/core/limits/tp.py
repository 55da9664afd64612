"""Tensor parallelism: gathering activations against the MLP's forward arithmetic.

"How to Scale Your Model", GPU chapter, "Tensor parallelism". The limit covers the MLP alone;
attention adds FLOPs for the same kind of traffic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def tp_math_s(
    batch_tokens: float,
    hidden_size: float,
    ffn_hidden_size: float,
    tp: float,
    flop_per_s: float,
    n_matrices: int = 2,
) -> float:
    """Forward arithmetic of one MLP on each of `tp` GPUs: 4 B D F / (Y C) for two matrices. [s].

    `batch_tokens` are the tokens of one tensor-parallel group.

    >>> round(tp_math_s(4096, 8192, 28672, 8, 990e12) * 1e6, 2)  # us
    485.9
    """
    return 2 * n_matrices * batch_tokens * hidden_size * ffn_hidden_size / (tp * flop_per_s)


def tp_comm_s(
    batch_tokens: float, hidden_size: float, collective_bytes_per_s: float, tp: float | None = None
) -> float:
    """All-gather and reduce-scatter of the activations: 4 B D / W, exact times (Y-1)/Y. [s].

    >>> round(tp_comm_s(4096, 8192, 450e9) * 1e6, 2)  # us
    298.26
    """
    part = 1.0 if tp is None else (tp - 1) / tp
    return part * 4 * batch_tokens * hidden_size / collective_bytes_per_s


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
