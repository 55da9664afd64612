"""Activations kept for the backward pass: Korthikanti's formulas."""

from __future__ import annotations


def korthikanti_layer_bytes(
    seq_len: float,
    micro_batch_size: float,
    hidden_size: float,
    n_heads: float,
    tp: int = 1,
    *,
    sequence_parallel: bool = False,
    recompute: str = "none",
    flash: bool = False,
) -> float:
    """Activation bytes of one transformer layer and micro-batch, 16-bit [1]_.

    GPT layer: layer norms with bias, MHA, two-matrix MLP with ffn 4h, dropout masks of one byte.

    Parameters
    ----------
    seq_len, micro_batch_size, hidden_size, n_heads : float
        s [token], b [sequence], h [1], a [1].
    tp : int
        Tensor-parallel degree t. [1]
    sequence_parallel : bool
        Shard what TP leaves whole along the sequence.
    recompute : str
        ``none``; ``selective`` (attention core recomputed: the 5as/h term goes); ``full`` (only
        the layer's input kept: 2sbh, divided by t with sequence parallelism).
    flash : bool
        Flash attention never stores the 5as/h term.

    Returns
    -------
    float
        Bytes on one GPU. [byte]

    Raises
    ------
    ValueError
        If a size is not positive or `recompute` unknown.

    Examples
    --------
    >>> korthikanti_layer_bytes(2048, 1, 12288, 96)
    2868903936.0
    >>> korthikanti_layer_bytes(2048, 1, 12288, 96, 8, sequence_parallel=True)
    358612992.0
    >>> korthikanti_layer_bytes(2048, 1, 12288, 96, 8, sequence_parallel=True,
    ...                         recompute="selective")
    106954752.0
    >>> korthikanti_layer_bytes(2048, 1, 12288, 96, recompute="full")
    50331648.0

    References
    ----------
    .. [1] V. Korthikanti et al., Reducing activation recomputation in large transformer models,
       arXiv:2205.05198, table 2.
    """
    if min(seq_len, micro_batch_size, hidden_size, n_heads, tp) <= 0:
        raise ValueError("seq_len, micro_batch_size, hidden_size, n_heads and tp must be positive")
    tokens_by_width = float(seq_len * micro_batch_size * hidden_size)
    whole = tp if sequence_parallel else 1
    if recompute == "full":
        return 2 * tokens_by_width / whole
    if recompute not in ("none", "selective"):
        raise ValueError(f"recompute must be none, selective or full, got {recompute!r}")
    core = 0.0 if flash or recompute == "selective" else 5 * n_heads * seq_len / hidden_size
    return tokens_by_width * (10 / whole + 24 / tp + core / tp)


def layers_in_flight(n_layers: float, pp: int, vpp: int = 1, n_micro_batches: int = 10**9) -> float:
    """Layer activations that the first stage holds under 1F1B, in layers [1]_.

    ``L/p`` layers times ``min(p, m)`` micro-batches; interleaving multiplies the full-pipeline
    case by ``1 + (p-1)/(p v)``.

    >>> layers_in_flight(96, 8), round(layers_in_flight(96, 8, 2), 1)
    (96.0, 138.0)

    References
    ----------
    .. [1] Korthikanti et al. 2022, section 4.2.3.
    """
    if min(n_layers, pp, vpp, n_micro_batches) < 1:
        raise ValueError("n_layers, pp, vpp and n_micro_batches must be at least 1")
    if vpp == 1 or pp == 1:
        return n_layers / pp * min(pp, n_micro_batches)
    full = n_layers * (1 + (pp - 1) / (pp * vpp))
    return min(full, n_layers / pp * n_micro_batches)
