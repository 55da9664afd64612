"""Ideal inference arithmetic: prefill and decode FLOP, decode time, batching, quantisation."""

from __future__ import annotations

from collections.abc import Sequence

from gpuscale.core.formats import element_bytes


def prefill_flop(
    n_params: float, seq_len: float, hidden_size: float, n_layers: float, causal: bool = False
) -> float:
    """FLOP to read a prompt: ``2 P s + 4 s^2 h L``, the second term halved by a causal kernel.

    Parameters
    ----------
    n_params : float
        Parameters; of a mixture of experts the active ones. [1]
    seq_len : float
        Tokens of the prompt, s. [1]
    hidden_size : float
        Width of the attention (heads x head size), h. [1]
    n_layers : float
        Layers, L. [1]
    causal : bool
        Whether the kernel skips the masked half.

    Returns
    -------
    float
        One sequence. [FLOP]

    Examples
    --------
    >>> prefill_flop(70e9, 4096, 8192, 80)
    617420465111040.0
    """
    attention = 4 * seq_len**2 * hidden_size * n_layers
    return 2 * n_params * seq_len + (attention / 2 if causal else attention)


def decode_flop(n_params: float, context: float, hidden_size: float, n_layers: float) -> float:
    """FLOP of one token with a KV cache of `context` tokens: ``2 P + 4 s h L``. [FLOP].

    Examples
    --------
    >>> decode_flop(70e9, 4096, 8192, 80)
    150737418240.0
    """
    return 2 * n_params + 4 * context * hidden_size * n_layers


def attention_crossover(hidden_size: float, causal: bool = False) -> float:
    """Sequence length from which attention costs more FLOP than the linear layers: ``6 h``.

    From ``4 s h = 24 h^2`` per token and layer (MHA, ffn 4h); a causal kernel doubles it. [1]

    Examples
    --------
    >>> attention_crossover(8192), attention_crossover(8192, causal=True)
    (49152, 98304)
    """
    return (12 if causal else 6) * hidden_size


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

    Parameters
    ----------
    read_bytes : float
        Weights touched and KV cache of the whole batch. [byte]
    flop : float
        FLOP of the whole batch. [FLOP]
    tp : float
        GPUs that share both. [1]
    hbm_bytes_per_s, flop_per_s : float
        Peaks of one GPU. [byte/s], [FLOP/s]
    communication_s : float
        All-reduces of tensor parallelism and hops of the pipeline, exposed. [s]

    Returns
    -------
    float
        Time per token of every sequence. [s]

    Examples
    --------
    >>> round(1e3 * decode_time_s(140e9, 140e9, 8, 3.35e12, 990e12), 3)  # ms, memory-bound
    5.224
    """
    if min(tp, hbm_bytes_per_s, flop_per_s) <= 0:
        raise ValueError("tp and the peak rates must be positive")
    return max(read_bytes / (tp * hbm_bytes_per_s), flop / (tp * flop_per_s)) + communication_s


def static_batching_efficiency(output_lengths: Sequence[float]) -> float:
    """Find the useful share of a static batch, which runs until its longest sequence ends. [1].

    Examples
    --------
    >>> static_batching_efficiency([100, 200, 400, 800])
    0.46875
    """
    if not output_lengths or min(output_lengths) <= 0:
        raise ValueError("output lengths must be positive, and at least one")
    return sum(output_lengths) / len(output_lengths) / max(output_lengths)


def byte_ratio(from_dtype: str, to_dtype: str) -> float:
    """Divide bytes per element before by those after a change of number format. [1].

    Examples
    --------
    >>> byte_ratio("fp16", "int4")
    4.0
    """
    return element_bytes(from_dtype) / element_bytes(to_dtype)


def quantised_speed_up(
    from_dtype: str, to_dtype: str, from_flop_per_s: float, to_flop_per_s: float
) -> float:
    """Largest speed-up by quantisation that holds for prefill and for decode. [1].

    Decode gains at most the ratio of bytes, prefill that of the rates; the lower of the two.

    Examples
    --------
    >>> quantised_speed_up("fp16", "int8", 312e12, 624e12)
    2.0
    """
    if from_flop_per_s <= 0:
        raise ValueError(f"from_flop_per_s must be positive, got {from_flop_per_s}")
    return min(byte_ratio(from_dtype, to_dtype), to_flop_per_s / from_flop_per_s)


def with_overhead_bytes(weights_bytes: float, overhead_frac: float) -> float:
    """Weights and a fraction of them for KV cache and buffers. [byte].

    Examples
    --------
    >>> round(with_overhead_bytes(1342e9, 0.34) / 1e9, 2)
    1798.28
    """
    return weights_bytes * (1 + overhead_frac)


def instances(n_gpus: int, gpus_per_instance: int) -> int:
    """Independent copies of a service on `n_gpus`. [1].

    Examples
    --------
    >>> instances(8, 4)
    2
    """
    if gpus_per_instance < 1:
        raise ValueError(f"gpus_per_instance must be at least 1, got {gpus_per_instance}")
    return n_gpus // gpus_per_instance


def serving_layout(n_gpus: int, gpus_per_node: int) -> tuple[int, int]:
    """TP and PP of one service instance: TP inside a node, PP across nodes.

    Examples
    --------
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


def cards_at_equal_price(
    job_flop: float,
    one_flop_per_s: float,
    two_flop_per_s: float,
    communication_s: float,
    fits_one: bool = True,
) -> int:
    """One card, or two of half the price each: the number with the shorter time.

    ``T1 = job / C1``, ``T2 = job / (2 C2) + communication``

    Parameters
    ----------
    job_flop : float
        Work. [FLOP]
    one_flop_per_s, two_flop_per_s : float
        Rate of the single card, and of each of the two. [FLOP/s]
    communication_s : float
        What the two exchange, exposed. [s]
    fits_one : bool
        Whether the job fits the memory of the single card.

    Returns
    -------
    int
        1 or 2; 1 if the times are equal. [1]

    Examples
    --------
    >>> cards_at_equal_price(1e15, 2e14, 1e14, 0.01)
    1
    """
    if not fits_one:
        return 2
    one_s = job_flop / one_flop_per_s
    return 1 if one_s <= job_flop / (2 * two_flop_per_s) + communication_s else 2
