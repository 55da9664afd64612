"""Choosing a parallelism by the documents' rooflines: have, need, verdict."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.limits.ep import ep_min_ffn
from gpuscale.core.limits.tp import tp_limit, tp_max


def data_parallel_ranks(n_gpus: int, tp: int = 1, pp: int = 1, cp: int = 1) -> int:
    """Replicas of a model on `n_gpus`. [1].

    Examples
    --------
    >>> data_parallel_ranks(4096, tp=8), data_parallel_ranks(4096, tp=8, pp=8)
    (512, 64)
    """
    width = tp * pp * cp
    if width < 1 or n_gpus % width:
        raise ValueError(f"{n_gpus} GPUs do not divide by tp*pp*cp = {width}")
    return n_gpus // width


def tokens_each(batch_tokens: float, n_shares: float) -> float:
    """Tokens of one GPU, or of one replica, depending on what is counted. [token].

    Limits of data parallelism hold per GPU: never compare tokens per replica with them
    (errata E1).

    Examples
    --------
    >>> tokens_each(4e6, 4096), tokens_each(4e6, 512)
    (976.5625, 7812.5)
    """
    if n_shares <= 0:
        raise ValueError(f"n_shares must be positive, got {n_shares}")
    return batch_tokens / n_shares


@dataclass(frozen=True, slots=True)
class Requirement:
    """What there is against what the roofline needs."""

    have: float
    need: float

    @property
    def bound(self) -> str:
        """``compute`` if there is enough, else ``communication``."""
        return "compute" if self.have >= self.need else "communication"

    @property
    def ratio(self) -> float:
        """Communication time over arithmetic: need over have. [1]."""
        return self.need / self.have


def binding_level(inside_limit: float, over_limit: float) -> str:
    """Level whose limit is the larger one: ``node`` (scale-up) or ``network``.

    Examples
    --------
    >>> binding_level(2500, 625)
    'node'
    """
    return "node" if inside_limit >= over_limit else "network"


def moe_strategy(
    expert_ffn_hidden_size: float,
    top_k: float,
    flop_per_s: float,
    gpu_egress_bytes_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
    max_nodes: int = 64,
) -> str:
    """Parallelism of a large mixture of experts whose degrees all clear their rooflines.

    TP up to its limit inside a node; EP over as many nodes as its limit allows, else inside one
    node, else none; the rest PP with ZeRO-1 data parallelism.

    Parameters
    ----------
    expert_ffn_hidden_size : float
        F of one expert. [1]
    top_k : float
        Experts per token. [1]
    flop_per_s : float
        Dense peak of one GPU. [FLOP/s]
    gpu_egress_bytes_per_s, node_egress_bytes_per_s : float
        Out of one GPU, out of one node; one direction. [byte/s]
    node_gpus, max_nodes : int
        GPUs of a node; nodes up to which EP is tried. [1]

    Examples
    --------
    >>> moe_strategy(2048, 4, 990e12, 450e9, 400e9)
    'EP 8 inside a node + PP + ZeRO-1 DP'
    >>> moe_strategy(8192, 8, 990e12, 450e9, 400e9)
    'TP 2 + EP 32 over 4 nodes + PP + ZeRO-1 DP'
    """
    f = expert_ffn_hidden_size
    tp = tp_max(tp_limit(f, flop_per_s, gpu_egress_bytes_per_s), node_gpus)
    parts = [f"TP {tp}"] if tp > 1 else []
    fitting = [
        n
        for n in range(2, max_nodes + 1)
        if f > ep_min_ffn(n * node_gpus, top_k, flop_per_s, node_egress_bytes_per_s, node_gpus)
    ]
    if f > ep_min_ffn(node_gpus, top_k, flop_per_s, gpu_egress_bytes_per_s, node_gpus=1):
        nodes = max(fitting, default=1)
        where = "inside a node" if nodes == 1 else f"over {nodes} nodes"
        parts.append(f"EP {nodes * node_gpus} {where}")
    return " + ".join([*parts, "PP", "ZeRO-1 DP"])
