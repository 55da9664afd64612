"""Context parallelism: ring attention and Ulysses.

Ring Attention (Liu et al. 2023, arXiv:2310.01889) and DeepSpeed-Ulysses (Jacobs et al. 2023,
arXiv:2309.14509); the ring's condition is the roofline of one block step.
"""

from __future__ import annotations


def ring_attention_times(
    tokens_per_gpu: float,
    width: float,
    kv_width: float,
    flop_per_s: float,
    egress_bytes_per_s: float,
    causal: bool = False,
) -> tuple[float, float]:
    """(math, communication) of one ring step: a block of queries on a block of K and V. [s].

    ``4 c^2 h / C`` (causal, balanced: half) against ``4 c h_kv / W`` for c tokens per GPU in
    2-byte elements.

    `tokens_per_gpu`: c, sequence over context-parallel degree [token]. `width, kv_width`: heads
    times head width of queries and of K (or V) [1]. `flop_per_s, egress_bytes_per_s`: of one GPU
    [FLOP/s], [byte/s]. `causal`: half of the blocks are masked.

    >>> math_s, comm_s = ring_attention_times(2200, 8192, 8192, 990e12, 450e9)
    >>> round(math_s / comm_s, 9)
    1.0
    """
    work = 4 * tokens_per_gpu**2 * width / (2 if causal else 1)
    return work / flop_per_s, 4 * tokens_per_gpu * kv_width / egress_bytes_per_s


def ring_attention_min_tokens_per_gpu(
    flop_per_s: float, egress_bytes_per_s: float, kv_over_q_frac: float = 1.0, causal: bool = False
) -> float:
    """Tokens per GPU from which ring attention is compute-bound: ``C/W h_kv/h``, causal twice.

    >>> ring_attention_min_tokens_per_gpu(990e12, 450e9)
    2200.0
    >>> ring_attention_min_tokens_per_gpu(990e12, 50e9)
    19800.0
    """
    return flop_per_s / egress_bytes_per_s * kv_over_q_frac * (2 if causal else 1)
