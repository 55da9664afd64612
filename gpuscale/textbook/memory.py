"""Memory: formulas that only the documents ask for."""

from __future__ import annotations

from gpuscale.core.memory.states import Recipe, check_zero, sharded_states


def _check(n_layers: int, n_checkpoints: int) -> None:
    if n_layers < 1:
        raise ValueError(f"n_layers must be at least 1, got {n_layers}")
    if not 1 <= n_checkpoints <= n_layers:
        raise ValueError(
            f"n_checkpoints must be between 1 and n_layers ({n_layers}), got {n_checkpoints}"
        )


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


def forward_evaluations(n_layers: int, mode: str = "none", n_checkpoints: int = 1) -> float:
    """Layer evaluations forward in one step, by checkpointing mode.

    `n_layers`: layers N [1]. `mode`: ``none``: every activation kept, N. ``full``: only the input
    kept, and each layer's backward restarts from it, N + N(N-1)/2. ``restart``: C checkpoints, each
    layer's backward restarts from its checkpoint, N + C n(n-1)/2 with n = N/C (the lecture notes).
    ``segment``: each segment recomputed once and kept, 2N (Chen et al. [1]_; errata E30).
    `n_checkpoints`: checkpoints C, for ``restart`` and ``segment`` [1]. Returns: layer evaluations
    [1]. Raises ValueError if a count is out of range or the mode unknown.

    Examples
    --------
    >>> [forward_evaluations(100, m, 10) for m in ("none", "full", "restart", "segment")]
    [100.0, 5050.0, 550.0, 200.0]

    References
    ----------
    .. [1] T. Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174.
    """
    _check(n_layers, n_checkpoints)
    if mode == "none":
        return float(n_layers)
    if mode == "full":
        return n_layers + n_layers * (n_layers - 1) / 2
    if mode == "restart":
        n = n_layers / n_checkpoints
        return n_layers + n_checkpoints * (n * (n - 1) / 2)
    if mode == "segment":
        return 2.0 * n_layers
    raise ValueError(f"mode must be none, full, restart or segment, got {mode!r}")


def activations_held(n_layers: int, mode: str = "none", n_checkpoints: int = 1) -> float:
    """Layer activations held at the peak, same modes as `forward_evaluations`. [1].

    >>> [activations_held(100, m, 10) for m in ("none", "full", "restart", "segment")]
    [100.0, 1.0, 10.0, 20.0]
    """
    _check(n_layers, n_checkpoints)
    held = {
        "none": float(n_layers),
        "full": 1.0,
        "restart": float(n_checkpoints),
        "segment": n_checkpoints + n_layers / n_checkpoints,
    }
    if mode not in held:
        raise ValueError(f"mode must be none, full, restart or segment, got {mode!r}")
    return held[mode]


def step_cost_ratio(extra_forwards: float = 1.0, backward_over_forward: float = 2.0) -> float:
    """Compute of a step with recomputation over one without: 4/3 for one extra forward. [1].

    >>> round(step_cost_ratio(), 4)
    1.3333
    """
    return (1 + extra_forwards + backward_over_forward) / (1 + backward_over_forward)


def zero_saving_bytes(n_params: float, recipe: Recipe, zero_stage: int, n_shards: int) -> float:
    """Bytes per GPU that a ZeRO stage saves against plain data parallelism. [byte].

    >>> from gpuscale.core.memory.states import RECIPES
    >>> zero_saving_bytes(7.5e9, RECIPES["mixed-adam-nomaster"], 1, 64) / 1e9
    59.0625
    """
    plain = sharded_states(n_params, recipe)
    return plain.total_bytes - sharded_states(n_params, recipe, zero_stage, n_shards).total_bytes


def zero_traffic_ratio(zero_stage: int) -> float:
    """Gradient and parameter traffic of a ZeRO stage over plain data parallelism. [1].

    Stages 1 and 2 replace the all-reduce by a reduce-scatter and an all-gather of the same
    volume; stage 3 gathers the parameters twice (forward, backward): 3/2 (ZeRO, section 7).
    """
    check_zero(zero_stage, 1)
    return 1.5 if zero_stage == 3 else 1.0


def hsdp_traffic_bytes(
    n_params: float, group_size: int, n_groups: int, bytes_per_param: float = 2.0
) -> tuple[float, float]:
    """Bytes sent by one GPU per step under HSDP: inside its shard group, and across groups.

    Inside: two all-gathers and one reduce-scatter of the whole model; across: a ring all-reduce
    of a 1/`group_size` shard.

    >>> hsdp_traffic_bytes(7e9, 8, 16)
    (36750000000.0, 3281250000.0)
    """
    check_zero(3, group_size)
    check_zero(3, n_groups)
    model_bytes = n_params * bytes_per_param
    inside = 3 * (group_size - 1) / group_size * model_bytes
    across = 2 * (n_groups - 1) / n_groups * model_bytes / group_size
    return inside, across


def offload_time_s(moved_bytes: float, link_bytes_per_s: float) -> float:
    """Time to move offloaded states over the host link, one direction, not overlapped. [s].

    >>> offload_time_s(8e9, 32e9)  # 8 bytes per parameter of a 1B model, PCIe 4.0 x16
    0.25
    """
    if link_bytes_per_s <= 0:
        raise ValueError(f"link_bytes_per_s must be positive, got {link_bytes_per_s}")
    return moved_bytes / link_bytes_per_s
