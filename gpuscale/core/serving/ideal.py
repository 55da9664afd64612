"""Ideal inference arithmetic: prefill and decode FLOP, decode time, batching, quantisation.

Pope et al. 2022 (arXiv:2211.05102), section 2.
"""

from __future__ import annotations


def prefill_flop(
    n_params: float, seq_len: float, hidden_size: float, n_layers: float, causal: bool = False
) -> float:
    """FLOP to read a prompt: ``2 P s + 4 s^2 h L``, the second term halved by a causal kernel.

    `n_params`: parameters; of a mixture of experts the active ones. [1] `seq_len`: tokens of the
    prompt, s. [1] `hidden_size`: width of the attention (heads x head size), h. [1] `n_layers`:
    layers, L. [1] `causal`: whether the kernel skips the masked half. Returns one sequence. [FLOP]

    >>> prefill_flop(70e9, 4096, 8192, 80)
    617420465111040.0
    """
    attention = 4 * seq_len**2 * hidden_size * n_layers
    return 2 * n_params * seq_len + (attention / 2 if causal else attention)


def decode_flop(n_params: float, context: float, hidden_size: float, n_layers: float) -> float:
    """FLOP of one token with a KV cache of `context` tokens: ``2 P + 4 s h L``. [FLOP].

    >>> decode_flop(70e9, 4096, 8192, 80)
    150737418240.0
    """
    return 2 * n_params + 4 * context * hidden_size * n_layers


def decode_time_s(
    read_bytes: float,
    flop: float,
    tp: float,
    hbm_bytes_per_s: float,
    flop_per_s: float,
    communication_s: float = 0.0,
) -> float:
    """Time of one decode step.

    ``max(read_bytes / (tp W_hbm), flop / (tp C)) + communication``

    `read_bytes`: weights touched and KV cache of the whole batch. [byte] `flop`: FLOP of the whole
    batch. [FLOP] `tp`: GPUs that share both. [1] `hbm_bytes_per_s`, `flop_per_s`: peaks of one GPU.
    [byte/s], [FLOP/s] `communication_s`: all-reduces of tensor parallelism and hops of the
    pipeline, exposed. [s] Returns time per token of every sequence. [s]

    >>> round(1e3 * decode_time_s(140e9, 140e9, 8, 3.35e12, 990e12), 3)  # ms, memory-bound
    5.224
    """
    if min(tp, hbm_bytes_per_s, flop_per_s) <= 0:
        raise ValueError("tp and the peak rates must be positive")
    return max(read_bytes / (tp * hbm_bytes_per_s), flop / (tp * flop_per_s)) + communication_s


def serving_layout(n_gpus: int, gpus_per_node: int) -> tuple[int, int]:
    """TP and PP of one service instance: TP inside a node, PP across nodes.

    >>> serving_layout(16, 8), serving_layout(4, 8)
    ((8, 2), (4, 1))

    References
    ----------
    vLLM documentation, "Distributed inference and serving".
    """
    if n_gpus < 1 or gpus_per_node < 1:
        raise ValueError("n_gpus and gpus_per_node must be at least 1")
    tp = min(n_gpus, gpus_per_node)
    if n_gpus % tp:
        raise ValueError(f"{n_gpus} GPUs do not fill nodes of {gpus_per_node}")
    return tp, n_gpus // tp
