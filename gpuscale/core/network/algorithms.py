"""Algorithms of an all-reduce, one row each; a row with a column left out cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

from gpuscale.core.dataclasses import dataclass


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
