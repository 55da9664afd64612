"""Replicas over time: what a traffic needs, window by window, and what it costs to be late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


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


def windows_of(
    arrivals_s: Sequence[float], each_per_s: float, lag_s: float, width_s: float
) -> Scaled:
    """Cut a traffic into windows and count replicas.

    Parameters
    ----------
    arrivals_s : sequence of float
        Moments of the requests, in order. [s]
    each_per_s : float
        Rate that one replica keeps within its limits. [1/s]
    lag_s : float
        Time to start a replica. [s]
    width_s : float
        Width of a window. [s]

    Raises
    ------
    ValueError
        If there is no request, or a replica serves nothing.

    Examples
    --------
    >>> scaled = windows_of([0.1 * i for i in range(100)] + [20.0, 30.0], 2.0, 10.0, 10.0)
    >>> [w.needed for w in scaled.windows], scaled.peak
    ([5, 0, 1, 1], 5)
    """
    if not arrivals_s or each_per_s <= 0.0 or width_s <= 0.0 or lag_s < 0.0:
        raise ValueError("a traffic, a rate of a replica above 0 and a width above 0 are wanted")
    start = arrivals_s[0]
    n = int((arrivals_s[-1] - start) / width_s) + 1
    counts = [0] * n
    for at in arrivals_s:
        counts[min(n - 1, int((at - start) / width_s))] += 1
    needed = [math.ceil(count / width_s / each_per_s - 1e-9) for count in counts]
    lag = math.ceil(lag_s / width_s)
    planned = [max(needed[i : i + lag + 1]) for i in range(n)]
    late = 0
    for i, count in enumerate(counts):
        up = (
            max(needed[max(0, i - lag) : i - lag + 1], default=needed[0]) if i >= lag else needed[0]
        )
        late += max(0, count - int(up * each_per_s * width_s))
    return Scaled(
        windows=tuple(
            Window(start + i * width_s, counts[i] / width_s, needed[i], planned[i])
            for i in range(n)
        ),
        width_s=width_s,
        peak=max(needed),
        mean=sum(planned) / n,
        fixed_replica_s=max(needed) * n * width_s,
        planned_replica_s=sum(planned) * width_s,
        late_frac=late / len(arrivals_s),
    )
