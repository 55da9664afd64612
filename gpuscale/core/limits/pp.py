"""Ideal pipeline schedules: bubbles, length, hops. Equal stages, no communication exposed.

GPipe (Huang et al. 2018); Megatron-LM (Narayanan et al. 2021), section 2.2.
"""

from __future__ import annotations

HOPS_PER_MICRO_BATCH = 1.5
"""(m + p - 2) / m with p about m/2 (How to Scale Your Model, GPU chapter, pipelining)."""


def bubble_over_ideal(n_stages: int, n_micro_batches: int, vpp: int = 1) -> float:
    """Idle time over the time of the useful work: ``(p-1) / (v m)`` [1]_.

    `n_stages, n_micro_batches`: p and m [1]. `vpp`: interleaved model chunks per GPU, v [1].
    Returns: may exceed 1. The share of the whole step is `bubble_frac` [1].

    References
    ----------
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
