"""Limits of parallelism: formulas that only the documents ask for."""

from __future__ import annotations

from gpuscale.core.limits.pp import bubble_frac, check_counts


def ulysses_max_cp(n_heads: int, n_kv_heads: int, replicate_kv: bool = False) -> int:
    """Largest degree of Ulysses: KV heads, or all heads if K and V are replicated."""
    return n_heads if replicate_kv else n_kv_heads


def spanned_nodes_limit(
    flop_per_s: float, node_egress_bytes_per_s: float, nodes_spanned: float, n_replicas: float
) -> float:
    """Limit for replicas of several nodes, exact: ``C/(n W_node) (X-1)/X``. [token].

    Examples
    --------
    >>> round(spanned_nodes_limit(990e12, 400e9, 16, 128), 4)
    153.479
    """
    few = (n_replicas - 1) / n_replicas
    return flop_per_s / (nodes_spanned * node_egress_bytes_per_s) * few


def max_mfu(n_stages: int, n_micro_batches: int = 1, vpp: int = 1) -> float:
    """Largest MFU that the bubble leaves: 1/p without micro-batches. [1].

    Examples
    --------
    >>> max_mfu(8)
    0.125
    """
    return 1 - bubble_frac(n_stages, n_micro_batches, vpp)


def makespan(n_stages: int, n_micro_batches: int, forward_s: float, backward_s: float) -> float:
    """Length of a GPipe or 1F1B schedule: ``(m + p - 1) (t_f + t_b)``.

    `n_stages, n_micro_batches`: p and m [1]. `forward_s, backward_s`: one micro-batch through one
    stage, in any unit of time [s]. Returns: in the unit of the two times [s].

    Examples
    --------
    >>> makespan(3, 4, 1, 1)
    12
    """
    check_counts(n_stages, n_micro_batches)
    return (n_micro_batches + n_stages - 1) * (forward_s + backward_s)


def layers_per_stage(n_layers: int, n_stages: int) -> int:
    """Layers of the fullest stage when they are dealt out evenly. [1].

    Examples
    --------
    >>> layers_per_stage(12, 3), layers_per_stage(126, 16)
    (4, 8)
    """
    check_counts(n_stages, 1)
    return -(-n_layers // n_stages)
