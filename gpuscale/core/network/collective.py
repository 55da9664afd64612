"""Ideal collectives on one level: alpha-beta model with the exact (n-1)/n forms.

"How to Scale Your Model", GPU chapter, section "Collectives inside a node"; bus bandwidth as
nccl-tests defines it (nccl-tests/doc/PERFORMANCE.md).

Which bytes an operation counts (`array_bytes`): all-gather the gathered result; reduce-scatter
the full input of one rank; all-reduce, broadcast, send-recv the buffer of one rank. All-to-all is
in `core.all_to_all`.
"""

from __future__ import annotations

import math

from gpuscale.core.network.algorithms import ALGORITHMS

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
    says (`core.network.algorithms`). Raises ValueError if `op` or `algorithm` is not known, or
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
