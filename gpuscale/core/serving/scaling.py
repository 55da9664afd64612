"""Replicas over time: what a traffic needs, window by window, and what it costs to be late."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a traffic."""

    start_s: float
    rate_per_s: float
    needed: int  # replicas that its rate needs
    planned: int  # up already: the most that is needed until others could be


@dataclass(frozen=True, slots=True)
class Scaled:
    """Replicas of a traffic, three ways to keep them."""

    windows: tuple[Window, ...]
    width_s: float
    peak: int  # replicas, if their number never changes
    mean: float  # if it follows the traffic, planned ahead by the time to start one
    fixed_replica_s: float
    planned_replica_s: float
    late_frac: float  # of the requests that meet too few replicas, if they are started on demand
    n_starts: int  # of replicas after the first window, planned ahead


def windows_of(
    arrivals_s: Sequence[float], each_per_s: float, lag_s: float, width_s: float
) -> Scaled:
    """Cut a traffic into windows and count replicas.

    `arrivals_s`: moments of the requests, in order. [s] `each_per_s`: rate that one replica keeps
    within its limits. [1/s] `lag_s`: time to start a replica. [s] `width_s`: width of a window. [s]
    Raises ValueError if there is no request, or a replica serves nothing.

    >>> scaled = windows_of([0.1 * i for i in range(100)] + [20.0, 30.0], 2.0, 10.0, 10.0)
    >>> [w.needed for w in scaled.windows], scaled.peak
    ([5, 0, 1, 1], 5)
    """
    if not arrivals_s or each_per_s <= 0.0 or width_s <= 0.0 or lag_s < 0.0:
        raise ValueError("a traffic, a rate of a replica above 0 and a width above 0 are wanted")
    start = arrivals_s[0]
    counts = [0] * (int((arrivals_s[-1] - start) / width_s) + 1)
    for at in arrivals_s:
        counts[min(len(counts) - 1, int((at - start) / width_s))] += 1
    return scaled_of(counts, each_per_s, lag_s, width_s, start)


def scaled_of(
    counts: Sequence[float], each_per_s: float, lag_s: float, width_s: float, start_s: float = 0.0
) -> Scaled:
    """Count the replicas of a traffic by its requests in each window.

    >>> day = scaled_of([3600.0, 14400.0, 7200.0], 1.0, 300.0, 3600.0)
    >>> [w.planned for w in day.windows], day.peak, day.n_starts
    ([4, 4, 2], 4, 0)
    """
    n = len(counts)
    needed = [math.ceil(count / width_s / each_per_s - 1e-9) for count in counts]
    lag = math.ceil(lag_s / width_s)
    planned = [max(needed[i : i + lag + 1]) for i in range(n)]
    soon = min(1.0, lag_s / width_s) if lag_s else 1.0  # share of a window until replicas are up
    late = 0.0
    for i, count in enumerate(counts):
        up = needed[max(0, i - lag)]
        late += soon * max(0, int(count) - int(up * each_per_s * width_s))
    return Scaled(
        windows=tuple(
            Window(start_s + i * width_s, counts[i] / width_s, needed[i], planned[i])
            for i in range(n)
        ),
        width_s=width_s,
        peak=max(needed),
        mean=math.fsum(planned) / n,
        fixed_replica_s=max(needed) * n * width_s,
        planned_replica_s=math.fsum(
            n * width_s + (up - n) * min(lag_s, width_s)
            for n, up in zip(needed, planned, strict=True)
        ),
        late_frac=late / sum(counts),
        n_starts=sum(max(0, b - a) for a, b in zip(planned, planned[1:], strict=False)),
    )
