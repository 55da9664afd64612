"""Bytes through the switches of a collective.

"How to Scale Your Model", GPU chapter, quiz 4; the node switch's ingress there omits what comes
from above, B (M-1)/M, so that the total is B.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllGatherTraffic:
    """Bytes in and out of one node's switch and of the top switch."""

    node_in_gpus_bytes: float
    node_in_above_bytes: float
    node_in_bytes: float
    node_out_above_bytes: float
    node_out_gpus_bytes: float
    node_out_bytes: float
    top_in_bytes: float
    top_out_bytes: float


def all_gather_traffic(array_bytes: float, n_nodes: int, gpus_per_node: int) -> AllGatherTraffic:
    """Switch traffic of an all-gather over M nodes of N GPUs.

    Each GPU sends its B/(M N) up once; the switches copy it. The node switch sends B/M up and
    everything but its own shard, B - B/(M N), to each of its N GPUs.

    `array_bytes`: the gathered array, B [byte]. `n_nodes, gpus_per_node`: M and N [1].

    >>> t = all_gather_traffic(1e9, 32, 8)
    >>> t.node_in_bytes, t.node_out_above_bytes, t.node_out_gpus_bytes, t.top_out_bytes
    (1000000000.0, 31250000.0, 7968750000.0, 31000000000.0)
    """
    b, m, n = array_bytes, n_nodes, gpus_per_node
    up = b / m if m > 1 else 0.0
    above = b * (m - 1) / m
    to_gpus = n * (b - b / (m * n))
    return AllGatherTraffic(
        node_in_gpus_bytes=b / m,
        node_in_above_bytes=above,
        node_in_bytes=b / m + above,
        node_out_above_bytes=up,
        node_out_gpus_bytes=to_gpus,
        node_out_bytes=up + to_gpus,
        top_in_bytes=b if m > 1 else 0.0,
        top_out_bytes=b * (m - 1),
    )


@dataclass(frozen=True, slots=True)
class InSwitchAllReduceTraffic:
    """Bytes of the four steps of an in-switch all-reduce in one node."""

    send_shards_in_bytes: float  # each GPU sends the parts of the others, B (N-1)/N
    reduced_out_bytes: float  # the switch returns the partial sum of its own shard, B/N
    residual_in_bytes: float  # each GPU adds its own part and sends it back, B/N
    multicast_out_bytes: float  # the switch sends the other N-1 shards to each GPU
    in_bytes: float
    out_bytes: float


def in_switch_all_reduce_traffic(array_bytes: float, n_gpus: int) -> InSwitchAllReduceTraffic:
    """Switch traffic of an in-switch (SHARP) all-reduce among the GPUs of a node.

    >>> t = in_switch_all_reduce_traffic(1e9, 8)
    >>> t.send_shards_in_bytes, t.in_bytes, t.out_bytes
    (7000000000.0, 8000000000.0, 8000000000.0)
    """
    b, n = array_bytes, n_gpus
    others = n * (b * (n - 1) / n)
    own = n * (b / n)
    return InSwitchAllReduceTraffic(others, own, own, others, others + own, own + others)
