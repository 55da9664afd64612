"""Algorithms of a collective, and its ideal time on one level: alpha-beta, exact (n-1)/n forms.

"How to Scale Your Model", GPU chapter, section "Collectives inside a node"; bus bandwidth as
nccl-tests defines it (nccl-tests/doc/PERFORMANCE.md).

Which bytes an operation counts (`array_bytes`): all-gather the gathered result; reduce-scatter
the full input of one rank; all-reduce, broadcast, send-recv the buffer of one rank. All-to-all is
in `core.network.ideal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import ceil, log2

from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What one algorithm costs between `n` ranks (at least 2) of one level."""

    name: str
    sent: Callable[[float], float]  # bytes that the busiest rank sends, per byte of the array
    sent_by_many: float  # the same for many ranks, as documents round it
    hops: Callable[[int], int]  # one after the other, that the last byte waits for
    in_switch: bool  # the switches of a level must reduce; where they do not, it is a ring
    measured_as: str | None  # measurements that calibrate it; None: there are none
    source: str


def _ring_sent(n: float) -> float:
    return 2 * (n - 1) / n


ALGORITHMS = {
    a.name: a
    for a in (
        Algorithm(
            name="ring",
            sent=_ring_sent,
            sent_by_many=2.0,
            hops=lambda n: 2 * (n - 1),
            in_switch=False,
            measured_as="ring",
            source="P. Patarasuk, X. Yuan, JPDC 69(2), 2009",
        ),
        Algorithm(  # half the buffer in each tree: up in both, down to two children in one of them
            name="tree",
            sent=lambda n: min(2.0, n / 2),  # of 2 ranks each is a leaf once
            sent_by_many=2.0,
            hops=lambda n: 2 * ceil(log2(n)),
            in_switch=False,
            measured_as="tree",
            source="P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009: two trees",
        ),
        Algorithm(  # B (n-1)/n to the switch, and then the reduced share B/n
            name="sharp",
            sent=lambda n: 1.0,
            sent_by_many=1.0,
            hops=lambda n: 2,
            in_switch=True,
            measured_as="nvls",
            source='"How to Scale Your Model", GPU chapter, "In network reductions"',
        ),
        Algorithm(  # recursive halving, then recursive doubling
            name="halving-doubling",
            sent=_ring_sent,
            sent_by_many=2.0,
            hops=lambda n: 2 * ceil(log2(n)),
            in_switch=False,
            measured_as=None,
            source="R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005, section 4.4",
        ),
    )
}


OPS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "send-recv")


def check_ranks(n_ranks: int, link_bytes_per_s: float = 1.0, array_bytes: float = 0.0) -> None:
    """Raise ValueError for fewer than one rank, a link without bandwidth or negative bytes."""
    if n_ranks < 1:
        raise ValueError(f"n_ranks must be at least 1, got {n_ranks}")
    if not link_bytes_per_s > 0:
        raise ValueError(f"bandwidth must be positive, got {link_bytes_per_s}")
    if array_bytes < 0:
        raise ValueError(f"bytes must not be negative, got {array_bytes}")


def traffic_factor(op: str, n_ranks: int, algorithm: str = "ring") -> float:
    """Bytes that the busiest rank sends, per byte of the array.

    All-gather and reduce-scatter (n-1)/n; broadcast and send-recv 1; all-reduce as its algorithm
    says (`ALGORITHMS`). Raises ValueError if `op` or `algorithm` is not known, or
    `n_ranks` < 1.

    >>> traffic_factor("all-reduce", 8), traffic_factor("all-reduce", 8, "sharp")
    (1.75, 1.0)
    """
    check_ranks(n_ranks)
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if n_ranks == 1:
        return 0.0
    if op in ("all-gather", "reduce-scatter"):
        return (n_ranks - 1) / n_ranks
    if op == "all-reduce":
        return ALGORITHMS[algorithm].sent(n_ranks)
    if op in ("broadcast", "send-recv"):
        return 1.0
    raise ValueError(f"unknown collective {op!r}; known: {', '.join(OPS)}")


def approximate_factor(op: str, algorithm: str = "ring") -> float:
    """`traffic_factor` for many ranks, as the documents round it: B/W, or 2B/W for all-reduce."""
    return ALGORITHMS[algorithm].sent_by_many if op == "all-reduce" else 1.0


def latency_steps(op: str, n_ranks: int, algorithm: str = "ring") -> int:
    """Hops one after the other that the last byte waits for.

    All-reduce as its algorithm says; ring n-1; broadcast the depth of a binary tree; all-to-all and
    send-recv 1, as all pairs start together.

    >>> latency_steps("all-reduce", 8), latency_steps("all-reduce", 8, "tree")
    (14, 6)
    """
    check_ranks(n_ranks)
    if n_ranks == 1:
        return 0
    if op in ("all-to-all", "send-recv"):
        return 1
    if op == "all-reduce":
        return ALGORITHMS[algorithm].hops(n_ranks)
    return math.ceil(math.log2(n_ranks)) if op == "broadcast" else n_ranks - 1


def approximate_time_s(
    op: str, array_bytes: float, link_bytes_per_s: float, algorithm: str = "ring"
) -> float:
    """Time as the documents round it: B/W, all-reduce 2B/W. [s]."""
    check_ranks(1, link_bytes_per_s, array_bytes)
    return approximate_factor(op, algorithm) * array_bytes / link_bytes_per_s


def busbw_factor(op: str, n_ranks: int) -> float:
    """Bus over algorithm bandwidth, as nccl-tests defines it.

    all-reduce 2 (n-1)/n; all-gather, reduce-scatter, all-to-all (n-1)/n; others 1.
    """
    if op == "all-reduce":
        return 2 * (n_ranks - 1) / n_ranks
    if op in ("all-gather", "reduce-scatter", "all-to-all"):
        return (n_ranks - 1) / n_ranks
    return 1.0


def nccl_size_bytes(op: str, array_bytes: float, n_ranks: int) -> float:
    """Size that nccl-tests prints for this array: its own per-rank buffer.

    All-to-all counts the send buffer of one rank, 1/n of the whole array; for the other
    operations it is the array itself.
    """
    return array_bytes / n_ranks if op == "all-to-all" else array_bytes


def bandwidths_bytes_per_s(
    op: str, array_bytes: float, n_ranks: int, time_s: float
) -> tuple[float, float]:
    """(algbw, busbw) of nccl-tests for a time. [byte/s]."""
    if time_s <= 0:
        return 0.0, 0.0
    algbw = nccl_size_bytes(op, array_bytes, n_ranks) / time_s
    return algbw, algbw * busbw_factor(op, n_ranks)


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
