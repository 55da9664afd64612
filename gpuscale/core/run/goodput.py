"""What failures, saves, restarts and slow machines leave of a run's time.

.. [1] J. Daly, FGCS 22(3), 2006, doi:10.1016/j.future.2004.11.016: exponential failures.
.. [2] A. Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research
   Clusters", HPCA 2025, arXiv:2410.21680: effective training time ratio to first order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.checkpoint import exact_interval_s, mtbf_s

MOST_SAVES = 1000.0
"""Saves between two failures where a save costs nothing: not made all the time (form)."""

OVERFLOW = 700.0
"""Exponent beyond which e^x is no double; a run that fails so often makes no headway."""


def effective_frac(interval_s: float, blocking_s: float, recovery_s: float, mtbf_s: float) -> float:
    """Get useful over elapsed time with exponential failures, exactly [1]_.

    ``tau / (M e^(R/M) (e^((tau + d)/M) - 1))``

    `interval_s`: work between two checkpoints, tau [s]. `blocking_s`: wait for one checkpoint, d
    [s]. `recovery_s`: from a failure until work goes on: detect, diagnose, replace, start, load, R
    [s]. `mtbf_s`: mean time between failures, M [s]. Returns: 0 to 1; 0 where a failure always
    comes first [1].

    >>> round(effective_frac(20 * 60, 20, 600, 2.78 * 3600), 3)
    0.871
    """
    if math.isinf(mtbf_s):
        return interval_s / (interval_s + blocking_s)
    if (recovery_s + interval_s + blocking_s) / mtbf_s > OVERFLOW:
        return 0.0
    loop = math.expm1((interval_s + blocking_s) / mtbf_s)
    return interval_s / (mtbf_s * math.exp(recovery_s / mtbf_s) * loop)


def first_order_frac(
    interval_s: float, blocking_s: float, recovery_s: float, mtbf_s: float
) -> float:
    """Get useful over elapsed time to first order [2]_, for failures that are rare.

    ``(1 - (R + tau/2)/M) / (1 + d/tau)``; parts from the exact form where tau + R > M/5. [1].

    >>> round(first_order_frac(20 * 60, 20, 600, 2.78 * 3600), 3)
    0.866
    """
    lost = (recovery_s + interval_s / 2) / mtbf_s
    return max(0.0, 1 - lost) / (1 + blocking_s / interval_s)


@dataclass(frozen=True, slots=True)
class RunConditions:
    """What a run meets."""

    n_gpus: int
    per_node_day: float  # stops per 8-GPU machine and day
    recovery_s: float  # detect, diagnose, replace, start
    load_s: float  # read the checkpoint
    blocking_s: float  # of a save
    write_s: float  # until a save is safe: no shorter interval
    interval_s: float | None = None  # fixed by hand; None: the best
    other_per_s: float = 0.0  # further stops of the job
    straggler_frac: float = 0.0  # of the time, lost to slow machines
    debug_frac: float = 0.0  # of the time: hangs seen late, debugging, restarts by hand

    @property
    def mtbf_s(self) -> float:
        """Mean time between stops of the job. [s]."""
        return mtbf_s(self.n_gpus, self.per_node_day, self.other_per_s)

    @property
    def restart_s(self) -> float:
        """From a failure until work goes on. [s]."""
        return self.recovery_s + self.load_s


@dataclass(frozen=True, slots=True)
class Goodput:
    """What is left of the time, and where the rest goes; the fractions add up to 1."""

    goodput_frac: float
    mtbf_s: float
    interval_s: float
    saving_frac: float  # waiting for saves
    rework_frac: float  # work done again after a failure
    recovery_frac: float  # detecting, restarting, loading
    straggler_frac: float
    debug_frac: float  # hangs, debugging, restarts by hand


def goodput(met: RunConditions) -> Goodput:
    """Part of the elapsed time that is useful training.

    `met`: failures, recovery, saves; without a fixed interval the best one, at least the time that
    a save takes to be safe.

    >>> llama3 = RunConditions(16384, 4.21e-3, 600, 60, 1.0, 10.0)
    >>> found = goodput(llama3)
    >>> round(found.goodput_frac, 3), round(found.interval_s / 60, 1)
    (0.923, 2.3)
    """
    mean, restart = met.mtbf_s, met.restart_s
    if math.isinf(mean):
        ettr, interval = 1.0, met.interval_s or math.inf
        if met.interval_s:
            ettr = effective_frac(interval, met.blocking_s, restart, mean)
        saving, recovering, rework = 1 - ettr, 0.0, 0.0
    else:
        best = exact_interval_s(met.blocking_s, mean) or mean / MOST_SAVES
        interval = met.interval_s or max(best, met.write_s)
        ettr = effective_frac(interval, met.blocking_s, restart, mean)
        saving = ettr * met.blocking_s / interval
        recovering = min(1 - ettr - saving, restart / mean)
        rework = 1 - ettr - saving - recovering
    rest = (1 - met.straggler_frac) * (1 - met.debug_frac)
    return Goodput(
        goodput_frac=ettr * rest,
        mtbf_s=mean,
        interval_s=interval,
        saving_frac=saving * (1 - met.debug_frac),
        rework_frac=rework * (1 - met.debug_frac),
        recovery_frac=recovering * (1 - met.debug_frac),
        straggler_frac=ettr * met.straggler_frac * (1 - met.debug_frac),
        debug_frac=met.debug_frac,
    )


@dataclass(frozen=True, slots=True)
class Help:
    """One lever halved, and the time that it saves."""

    lever: str
    goodput_frac: float
    saved_s: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """How long a run takes with failures: the ideal, the expected, and the range."""

    ideal_s: float
    expected_s: float
    low_s: float
    high_s: float
    goodput: Goodput
    goodput_low_frac: float
    goodput_high_frac: float
    n_interruptions: float
    n_interruptions_low: float
    n_interruptions_high: float
    helps: tuple[Help, ...]  # what would help most, first


LEVERS: dict[str, Callable[[RunConditions], RunConditions]] = {
    "half the failures": lambda met: replace(
        met, per_node_day=met.per_node_day / 2, other_per_s=met.other_per_s / 2
    ),
    "half the time to recover": lambda met: replace(
        met, recovery_s=met.recovery_s / 2, load_s=met.load_s / 2
    ),
    "half the wait for a save": lambda met: replace(met, blocking_s=met.blocking_s / 2),
    "no slow machines": lambda met: replace(met, straggler_frac=0.0),
    "half the debugging": lambda met: replace(met, debug_frac=met.debug_frac / 2),
}
"""What can be changed about a run."""


def outlook(
    ideal_s: float, met: RunConditions, best: RunConditions, worst: RunConditions
) -> Outlook:
    """Time of a run with failures, and its range.

    `ideal_s`: time without any failure [s]. `met`: as expected. `best, worst`: ends of the range,
    as published fleets and chronicles have them.

    >>> llama3 = RunConditions(16384, 4.21e-3, 600, 60, 1.0, 10.0)
    >>> few, many = (replace(llama3, per_node_day=rate) for rate in (1.6e-3, 8.5e-3))
    >>> run = outlook(54 * 86400, llama3, few, many)
    >>> [round(s / 86400, 1) for s in (run.low_s, run.expected_s, run.high_s)]
    [55.9, 58.5, 62.9]
    >>> run.helps[0].lever
    'half the failures'
    """
    low, middle, high = (goodput(each) for each in (best, met, worst))
    times = [
        ideal_s / g.goodput_frac if g.goodput_frac > 0 else math.inf for g in (low, middle, high)
    ]
    helps = []
    for lever, change in LEVERS.items():
        changed = goodput(change(met))
        saved = times[1] - ideal_s / changed.goodput_frac if changed.goodput_frac else 0.0
        if saved > 0:
            helps.append(Help(lever, changed.goodput_frac, saved))
    counts = [t / g.mtbf_s for t, g in zip(times, (low, middle, high), strict=True)]
    return Outlook(
        ideal_s=ideal_s,
        expected_s=times[1],
        low_s=times[0],
        high_s=times[2],
        goodput=middle,
        goodput_low_frac=high.goodput_frac,
        goodput_high_frac=low.goodput_frac,
        n_interruptions=counts[1],
        n_interruptions_low=counts[0],
        n_interruptions_high=counts[2],
        helps=tuple(sorted(helps, key=lambda h: -h.saved_s)),
    )
