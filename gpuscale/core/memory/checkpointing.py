"""Activation checkpointing: layer evaluations and activations held."""

from __future__ import annotations

import math


def _check(n_layers: int, n_checkpoints: int) -> None:
    if n_layers < 1:
        raise ValueError(f"n_layers must be at least 1, got {n_layers}")
    if not 1 <= n_checkpoints <= n_layers:
        raise ValueError(
            f"n_checkpoints must be between 1 and n_layers ({n_layers}), got {n_checkpoints}"
        )


def forward_evaluations(n_layers: int, mode: str = "none", n_checkpoints: int = 1) -> float:
    """Layer evaluations forward in one step, by checkpointing mode.

    Parameters
    ----------
    n_layers : int
        Layers N. [1]
    mode : str
        ``none``: every activation kept, N. ``full``: only the input kept, and each layer's
        backward restarts from it, N + N(N-1)/2. ``restart``: C checkpoints, each layer's backward
        restarts from its checkpoint, N + C n(n-1)/2 with n = N/C (the lecture notes).
        ``segment``: each segment recomputed once and kept, 2N (Chen et al. [1]_; errata E30).
    n_checkpoints : int
        Checkpoints C, for ``restart`` and ``segment``. [1]

    Returns
    -------
    float
        Layer evaluations. [1]

    Raises
    ------
    ValueError
        If a count is out of range or the mode unknown.

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


def best_checkpoints(n_layers: int) -> int:
    """Checkpoints that hold least with ``segment``: about sqrt(N), memory 2 sqrt(N). [1].

    >>> best_checkpoints(100)
    10
    """
    _check(n_layers, 1)
    root = math.isqrt(n_layers)
    return min((root, root + 1), key=lambda c: c + n_layers / c)


def step_cost_ratio(extra_forwards: float = 1.0, backward_over_forward: float = 2.0) -> float:
    """Compute of a step with recomputation over one without: 4/3 for one extra forward. [1].

    >>> round(step_cost_ratio(), 4)
    1.3333
    """
    return (1 + extra_forwards + backward_over_forward) / (1 + backward_over_forward)
