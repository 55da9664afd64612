"""Which layout, how many of it: candidates bounded by formula, the promising ones simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuscale.core.records import dataclass
from gpuscale.core.serving.capacity import (
    REQUESTS,
    Capacity,
    Limits,
    RateTrials,
    capacity,
    formula_bound,
)
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.percentiles import LoadResult
from gpuscale.core.serving.service import Service

SIMULATED = 20
"""Most candidates that are simulated."""

SHOWN = 4
"""Candidates that are simulated even where another is known to be better."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked; None is to be found."""

    limits: Limits
    rate_per_s: float | None = None
    n_gpus: int | None = None
    concurrency: int | None = None  # in flight
    burst: int | None = None  # requests that all come at once
    most_gpus: int = 4096  # where the number of GPUs is to be found
    n_requests: int | None = None  # of the closed loop in all; None: ten times those in flight


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica or a set of pools with what to call it."""

    label: str
    engine: str
    weights: str
    what: Service | PooledService
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """What a candidate can do."""

    candidate: Candidate
    copies: int  # replicas; 0 where it does not fit
    at_most_per_s: float  # all copies, within the limits
    load: LoadResult | None  # of one copy: at the rate asked for, or at the highest
    binding: str
    missed: tuple[str, ...]  # limits missed at the rate asked for

    @property
    def n_gpus(self) -> int:
        """GPUs of all copies."""
        return self.copies * self.candidate.what.n_gpus

    @property
    def meets(self) -> bool:
        """Whether the rate asked for is served within the limits."""
        return self.copies > 0 and not self.missed and self.at_most_per_s > 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidate and the others, best first."""

    found: tuple[FoundReplica, ...]  # simulated
    bounded: tuple[Candidate, ...]  # worse by formula alone
    no_room: tuple[Candidate, ...]

    @property
    def best(self) -> FoundReplica | None:
        """The best one."""
        return self.found[0] if self.found else None


def choose(
    candidates: Sequence[Candidate], wanted: Wanted, seed: int = 0, shown: int = SHOWN
) -> Choice:
    """Choose the best candidate.

    With GPUs given the best serves the highest rate within the limits; with a load alone it needs
    the fewest GPUs (or dollars an hour, where candidates have prices), then has the highest rate.
    A closed loop needs as many as let a request run for as long as it waits for room, or longer.
    A candidate is simulated unless the formula's bound says that it cannot be better than the best
    so far.

    `candidates`: everything that may be deployed. `wanted`: rate, GPUs, limits. `seed`: of the
    requests. `shown`: candidates that are simulated even where another is better. Returns: found,
    best first; those that cannot be better; those without room.
    """
    fitting = [c for c in candidates if c.what.fits and _copies_at_most(c, wanted) >= 1]
    fitting = [c for c in fitting if not c.what.context_lacks_bytes] or fitting
    lost = tuple(c for c in candidates if not c.what.fits)
    if wanted.concurrency is not None or wanted.burst is not None:
        return _of_a_loop(fitting, lost, wanted, seed)
    bounds = {id(c): formula_bound(c.what, wanted.limits) for c in fitting}
    order = sorted(fitting, key=lambda c: _best_case(c, bounds[id(c)], wanted))
    found: list[FoundReplica] = []
    left: list[Candidate] = []
    for c in order:
        best = min((_score(f, wanted) for f in found), default=None)
        worse = best is not None and _best_case(c, bounds[id(c)], wanted) > best
        enough = len(found) >= shown
        if (enough and (worse or _falls_short(c, found, wanted, seed))) or len(found) >= SIMULATED:
            left.append(c)
            continue
        found.append(_found(c, capacity(c.what, wanted.limits, seed), wanted))
    found.sort(key=lambda f: _score(f, wanted))
    return Choice(tuple(found), tuple(left), lost)


def _falls_short(c: Candidate, found: Sequence[FoundReplica], wanted: Wanted, seed: int) -> bool:
    """Whether copies of a candidate miss the limits at the best rate so far, all GPUs given."""
    best = max((f.at_most_per_s for f in found), default=0.0)
    if wanted.n_gpus is None or wanted.limits == Limits() or best <= 0.0:
        return False
    each = best / _copies_at_most(c, wanted)
    return RateTrials(c.what, wanted.limits, seed).spare(each, REQUESTS) < 0.0


def _copies_at_most(c: Candidate, wanted: Wanted) -> int:
    return (wanted.n_gpus or wanted.most_gpus) // c.what.n_gpus


def copies_needed(rate_per_s: float, each_per_s: float) -> float:
    """Count the copies that serve a rate; infinite where one serves nothing. [1].

    >>> copies_needed(10.0, 4.0), copies_needed(10.0, 0.0)
    (3, inf)
    """
    return math.ceil(rate_per_s / each_per_s - 1e-9) if each_per_s > 0.0 else math.inf


def _hourly(c: Candidate) -> float:
    """GPUs of a copy, in dollars an hour where prices are compared."""
    return c.what.n_gpus * (1.0 if c.usd_per_gpu_hour is None else c.usd_per_gpu_hour)


def _best_case(c: Candidate, bound_per_s: float, wanted: Wanted) -> tuple[float, float]:
    """Score of a candidate that does what its bound says; lower is better."""
    if wanted.n_gpus is None and wanted.rate_per_s is not None:
        return copies_needed(wanted.rate_per_s, bound_per_s) * _hourly(c), -math.inf
    return -bound_per_s * _copies_at_most(c, wanted), -math.inf


def _score(f: FoundReplica, wanted: Wanted) -> tuple[float, float]:
    """Score of what was found; lower is better."""
    if wanted.n_gpus is None and (wanted.rate_per_s or wanted.concurrency or wanted.burst):
        if not f.meets:
            return math.inf, -f.at_most_per_s
        return f.copies * _hourly(f.candidate), -f.at_most_per_s
    return -f.at_most_per_s, float(f.n_gpus)


def _found(c: Candidate, one: Capacity, wanted: Wanted) -> FoundReplica:
    """Count the copies, and hold the rate asked for against the limits."""
    rate, most = wanted.rate_per_s, _copies_at_most(c, wanted)
    copies = most
    if wanted.n_gpus is None:
        needed = copies_needed(rate, one.rate_per_s) if rate is not None else 1
        copies = int(min(needed, most))
    at_most = copies * one.rate_per_s
    missed: tuple[str, ...] = ()
    if one.rate_per_s <= 0.0 or (rate is not None and at_most < rate * (1.0 - 1e-9)):
        missed = wanted.limits.missed(one.load) or (one.binding,)
    return FoundReplica(c, copies, at_most, one.load, one.binding, missed)


def _of_a_loop(
    fitting: Sequence[Candidate], lost: tuple[Candidate, ...], wanted: Wanted, seed: int
) -> Choice:
    """Choose for a closed loop or a burst: by rate on GPUs given, else the fewest that serve it."""
    if wanted.n_gpus is not None:
        together = _together(wanted)
        loops = [
            _looped(c, min(_copies_at_most(c, wanted), together), wanted, seed) for c in fitting
        ]
        return Choice(tuple(sorted(loops, key=_loop_order)), (), lost)
    least = [(_copies_with_room(c, wanted), c) for c in fitting]
    found: list[FoundReplica] = []
    left: list[Candidate] = []
    for copies, c in sorted(least, key=lambda offer: offer[0] * _hourly(offer[1])):
        best = min((_score(f, wanted)[0] for f in found), default=math.inf)
        if len(found) >= SIMULATED or (len(found) >= SHOWN and copies * _hourly(c) > best):
            left.append(c)
            continue
        found.append(_loop_within(c, copies, wanted, seed))
    found.sort(key=lambda f: _score(f, wanted))
    return Choice(tuple(found), tuple(left), lost)


def _together(wanted: Wanted) -> int:
    return wanted.concurrency or wanted.burst or 1


def _copies_with_room(c: Candidate, wanted: Wanted) -> int:
    """Count the copies on which half of a closed loop or more runs, and the rest waits. [1].

    By Little's law a request then waits no longer for room than it runs. A burst waits in any
    case: one copy.
    """
    if wanted.concurrency is None:
        return 1
    room = max(1.0, c.what.sequences_with_room)
    return min(math.ceil(wanted.concurrency / (2.0 * room)), max(1, _copies_at_most(c, wanted)))


def _loop_within(c: Candidate, least: int, wanted: Wanted, seed: int) -> FoundReplica:
    """Simulate the fewest copies, `least` or more, on which a loop or burst is within the limits.

    Fewer requests for each copy are never slower, so the number is bisected. Where a request alone
    on a copy misses a limit, none helps: the fewest are returned as missing it.
    """
    fewest = _looped(c, least, wanted, seed)
    most = min(_together(wanted), _copies_at_most(c, wanted))
    if fewest.meets or most <= least:
        return fewest
    met = _looped(c, most, wanted, seed)
    if not met.meets:
        return fewest
    while met.copies - least > 1:
        middle = _looped(c, (least + met.copies) // 2, wanted, seed)
        if middle.meets:
            met = middle
        else:
            least = middle.copies
    return met


def _looped(c: Candidate, copies: int, wanted: Wanted, seed: int) -> FoundReplica:
    """Simulate a closed loop or a burst, shared by the copies."""
    each = max(1, round(_together(wanted) / copies))
    n = None if wanted.n_requests is None else max(each, round(wanted.n_requests / copies))
    load = c.what.closed(each, n, seed) if wanted.concurrency else c.what.burst(each, seed)
    uses = wanted.limits.uses(load)
    rate = load.requests_per_s * copies
    return FoundReplica(
        c, copies, rate, load, uses[0][0] if uses else "the load", wanted.limits.missed(load)
    )


def preferred(f: FoundReplica, wanted: Wanted) -> tuple[float, ...]:
    """Order by which the best is chosen, lower first."""
    loop = (wanted.concurrency or wanted.burst) and wanted.n_gpus is not None
    return _loop_order(f) if loop else _score(f, wanted)


def cramped(f: FoundReplica, wanted: Wanted, most: float) -> bool:
    """Whether the cache of a copy holds fewer than its requests in flight, and than `most`."""
    each = math.ceil(_together(wanted) / max(1, f.copies))
    loop = wanted.concurrency or wanted.burst
    return f.candidate.what.sequences_with_room < (min(most, each) if loop else most)


def _loop_order(f: FoundReplica) -> tuple[bool, float, int]:
    """Those within the limits first, then by throughput of the GPUs given, then the fewest."""
    return not f.meets, -f.at_most_per_s, f.n_gpus


def at_rate(f: FoundReplica, rate_per_s: float, n: int, seed: int = 0) -> LoadResult:
    """Simulate one copy of a choice at its share of a rate."""
    return f.candidate.what.open(rate_per_s / f.copies, n, seed)
