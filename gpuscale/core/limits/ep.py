"""Expert parallelism: sending tokens to their experts against the experts' arithmetic.

"How to Scale Your Model", GPU chapter, "Expert parallelism". Balanced routing is assumed.
"""

from __future__ import annotations


def ep_math_s(
    batch_tokens: float,
    top_k: float,
    hidden_size: float,
    ffn_hidden_size: float,
    ep: float,
    flop_per_s: float,
    n_matrices: int = 2,
    shared_ffn_hidden_size: float = 0.0,
) -> float:
    """Forward arithmetic of the experts on each GPU: 4 B k D F / (Z C) for two matrices. [s].

    Shared experts add theirs without adding communication. `batch_tokens` are the tokens of one
    expert-parallel group, all its GPUs together.

    >>> round(ep_math_s(1e6, 8, 7168, 2048, 64, 990e12) * 1e3, 4)  # ms
    7.4142
    """
    width = top_k * ffn_hidden_size + shared_ffn_hidden_size
    return 2 * n_matrices * batch_tokens * hidden_size * width / (ep * flop_per_s)


def _crossing(ep: float, top_k: float, node_gpus: int, max_nodes: int | None) -> float:
    """Share of the tokens that leave each group of `node_gpus`, once per destination group."""
    groups = ep / node_gpus
    reached = min(top_k / groups, 1.0)
    if max_nodes is not None:
        reached = min(reached, max_nodes / groups)
    return (ep - node_gpus) / ep * reached


def ep_comm_s(
    batch_tokens: float,
    hidden_size: float,
    ep: float,
    top_k: float,
    egress_bytes_per_s: float,
    node_gpus: int = 8,
    dispatch_bytes: float = 2.0,
    combine_bytes: float = 2.0,
    max_nodes: int | None = None,
) -> float:
    """Dispatch and combine of the tokens, once per destination node. [s].

    ``(2+2) B D (Z-D)/(Z W_node) min(D k / Z, 1)``. With `node_gpus` 1 and the egress of one GPU
    it is the all-to-all inside a node.

    `batch_tokens`: tokens of the expert-parallel group [token]. `hidden_size`: D [1]. `ep, top_k`:
    Z and k [1]. `egress_bytes_per_s`: out of one node (of `node_gpus` GPUs) [byte/s]. `node_gpus`:
    GPUs of a node; inside a node: 1 [1]. `dispatch_bytes, combine_bytes`: bytes per element there
    and back (fp8 dispatch: 1) [byte]. `max_nodes`: nodes that a router sends a token to at most
    [1].

    >>> round(ep_comm_s(1e6, 7168, 64, 8, 400e9) * 1e3, 4)  # ms
    62.72
    """
    if ep <= node_gpus:
        return 0.0
    width = (dispatch_bytes + combine_bytes) * hidden_size
    share = _crossing(ep, top_k, node_gpus, max_nodes)
    return batch_tokens * width * share / egress_bytes_per_s


def ep_min_ffn(
    ep: float,
    top_k: float,
    flop_per_s: float,
    egress_bytes_per_s: float,
    node_gpus: int = 8,
    dispatch_bytes: float = 2.0,
    combine_bytes: float = 2.0,
    max_nodes: int | None = None,
    n_matrices: int = 2,
) -> float:
    """Expert width F from which expert parallelism is compute-bound. [1].

    ``C/W (Z-D)/k min(D k / Z, 1)``; parameters as in `ep_comm_s`. 0 within one node of the given
    size.

    >>> ep_min_ffn(16, 4, 990e12, 400e9), ep_min_ffn(64, 8, 990e12, 400e9)
    (4950.0, 17325.0)
    >>> ep_min_ffn(8, 4, 990e12, 450e9, node_gpus=1)  # inside a node
    1925.0
    >>> ep_min_ffn(64, 8, 990e12, 400e9, max_nodes=4, dispatch_bytes=1)
    6496.875
    """
    if ep <= node_gpus:
        return 0.0
    per_width = (dispatch_bytes + combine_bytes) / (2 * n_matrices)
    share = _crossing(ep, top_k, node_gpus, max_nodes)
    return flop_per_s / egress_bytes_per_s * per_width * share * ep / top_k


def ep_large_min_ffn(
    flop_per_s: float, node_egress_bytes_per_s: float, node_gpus: int = 8, ep: float | None = None
) -> float:
    """Expert width for expert parallelism of any size: ``D C/W_node``, exact times (Z-D)/Z. [1].

    >>> ep_large_min_ffn(990e12, 400e9), ep_large_min_ffn(990e12, 400e9, ep=256)
    (19800.0, 19181.25)
    """
    part = 1.0 if ep is None else max(0.0, (ep - node_gpus) / ep)
    return node_gpus * flop_per_s / node_egress_bytes_per_s * part


def ep_max_scaleout(
    ffn_hidden_size: float,
    top_k: float,
    flop_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
) -> float:
    """Largest degree that stays compute-bound while k >= Z/D: ``D + F k W_node / C``. [1].

    >>> round(ep_max_scaleout(2048, 8, 990e12, 400e9), 4)
    14.6198
    """
    return node_gpus + ffn_hidden_size * top_k * node_egress_bytes_per_s / flop_per_s
