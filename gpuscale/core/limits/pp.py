"""Pipeline parallelism: activations from stage to stage.

"How to Scale Your Model", GPU chapter, "Pipeline parallelism". `batch_tokens` are the tokens of
ONE pipeline replica (global batch / DP); the total is the forward pass, backward doubles it.
"""

from __future__ import annotations


def pp_hop_s(
    batch_tokens: float, hidden_size: float, n_micro_batches: int, egress_bytes_per_s: float
) -> float:
    """One micro-batch's activations to the next stage: ``2 B D / (W m)``. [s].

    Examples
    --------
    >>> round(pp_hop_s(4e6, 8192, 16, 400e9), 5)
    0.01024
    """
    return 2 * batch_tokens * hidden_size / (egress_bytes_per_s * n_micro_batches)


def pp_hops(n_micro_batches: int, n_stages: int) -> int:
    """Hops one after the other: ``m + p - 2``.

    Examples
    --------
    >>> pp_hops(16, 8)
    22
    """
    return n_micro_batches + n_stages - 2


def pp_comm_s(
    batch_tokens: float,
    hidden_size: float,
    n_micro_batches: int,
    n_stages: int,
    egress_bytes_per_s: float,
) -> float:
    """Communication of a forward pass, not overlapped: hop times hops; 0 for one stage. [s].

    Examples
    --------
    >>> round(pp_comm_s(4e6, 8192, 16, 8, 400e9), 5)
    0.22528
    """
    if n_stages < 2:
        return 0.0
    hop_s = pp_hop_s(batch_tokens, hidden_size, n_micro_batches, egress_bytes_per_s)
    return hop_s * pp_hops(n_micro_batches, n_stages)


def pp_per_layer_s(
    batch_tokens: float, hidden_size: float, n_layers: float, egress_bytes_per_s: float
) -> float:
    """Rule of thumb per layer: ``1.5 * 2 B D / (W L)``. [s].

    Examples
    --------
    >>> round(pp_per_layer_s(4e6, 8192, 80, 400e9), 6)
    0.003072
    """
    return 1.5 * 2 * batch_tokens * hidden_size / (egress_bytes_per_s * n_layers)
