"""Data parallelism and FSDP: the gradient of a layer against its backward pass.

"How to Scale Your Model", GPU chapter, "Data parallelism"; FSDP has the same limit in each pass
(forward all-gather 4DF against 4BDF, backward 8DF against 8BDF).
"""

from __future__ import annotations


def dp_math_s(
    batch_tokens: float,
    hidden_size: float,
    ffn_hidden_size: float,
    n_gpus: float,
    flop_per_s: float,
    top_k: float = 1,
    n_matrices: int = 2,
) -> float:
    """Backward arithmetic of one layer's MLP on each GPU. [s].

    ``2 FLOP * 2 (dX, dW) * n_matrices * k * B D F / (X C)``: 8 B D F / (X C) for two matrices.

    `batch_tokens`: global batch [token]. `hidden_size, ffn_hidden_size`: D and F (of one expert)
    [1]. `n_gpus`: X, all GPUs that share the batch's arithmetic [1]. `flop_per_s`: peak of one GPU,
    dense [FLOP/s]. `top_k`: experts per token [1]. `n_matrices`: weight matrices of the MLP: 2,
    gated 3 [1].

    >>> round(dp_math_s(4e6, 8192, 28672, 4096, 990e12) * 1e3, 4)  # ms
    1.8535
    """
    work = 4 * n_matrices * top_k * batch_tokens * hidden_size * ffn_hidden_size
    return work / (n_gpus * flop_per_s)


def dp_comm_s(
    hidden_size: float,
    ffn_hidden_size: float,
    collective_bytes_per_s: float,
    n_experts: float = 1,
    n_matrices: int = 2,
    n_nodes: int | None = None,
) -> float:
    """Reduce-scatter and all-gather of one layer's MLP gradient. [s].

    ``2 bytes * 2 (RS, AG) * n_matrices * E D F / W``: 8 E D F / W; over few nodes times
    ``(X-1)/X``.

    >>> round(dp_comm_s(8192, 28672, 400e9) * 1e3, 4)  # ms
    4.6976
    """
    few = 1.0 if n_nodes is None else (n_nodes - 1) / n_nodes
    moved = 4 * n_matrices * n_experts * hidden_size * ffn_hidden_size
    return few * moved / collective_bytes_per_s


def dp_min_tokens_per_gpu(
    flop_per_s: float,
    collective_bytes_per_s: float,
    n_experts: float = 1,
    top_k: float = 1,
    n_nodes: int | None = None,
    nodes_spanned: float = 1,
) -> float:
    """Tokens per GPU from which data parallelism is compute-bound. [token].

    ``(E/k) * C/W``; over X nodes times (X-1)/X; divided by the nodes that one model replica spans
    (their links carry the gradient together).

    `flop_per_s, collective_bytes_per_s`: C of one GPU, W of the collective [FLOP/s], [byte/s].
    `n_experts, top_k`: E and k of a mixture of experts [1]. `n_nodes`: nodes (X) the batch is split
    over, for the exact form; None for many [1]. `nodes_spanned`: nodes of one replica (TP, PP, EP
    inside) [1].

    >>> dp_min_tokens_per_gpu(990e12, 400e9), dp_min_tokens_per_gpu(990e12, 400e9, 128, 4)
    (2475.0, 79200.0)
    >>> dp_min_tokens_per_gpu(990e12, 400e9, n_nodes=2)
    1237.5
    >>> dp_min_tokens_per_gpu(990e12, 400e9, nodes_spanned=8)
    309.375
    """
    few = 1.0 if n_nodes is None else (n_nodes - 1) / n_nodes
    alpha = flop_per_s / collective_bytes_per_s
    return n_experts / top_k * alpha * few / nodes_spanned


def dp_limit_levels(
    flop_per_s: float,
    gpu_egress_bytes_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
    n_nodes: int = 1,
) -> tuple[float, float]:
    """Exact limits of the two levels, (inside the node, over the nodes); the larger one binds.

    ``C/W_gpu (D-1)/D`` and ``C/W_node (X-1)/X``.

    >>> dp_limit_levels(990e12, 450e9, 400e9, 8, 2)
    (1925.0, 1237.5)
    """
    inside = flop_per_s / gpu_egress_bytes_per_s * (node_gpus - 1) / node_gpus
    over = flop_per_s / node_egress_bytes_per_s * (n_nodes - 1) / n_nodes
    return inside, over
