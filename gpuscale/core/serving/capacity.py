"""The highest rate at which a service keeps its limits, and the formula that brackets it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from gpuscale.core.records import dataclass
from gpuscale.core.serving.percentiles import NOTHING, LoadResult

FIRST_REQUESTS = 400
"""Requests of the simulation without load."""

REQUESTS = 3_000
"""Requests of a simulation that decides."""

PRECISION = 0.015
"""Part of a limit, or width of the bracket, at which the search for the highest rate ends."""

MOST_TRIALS = 12

OFFERED_FRAC = 0.95
"""Least share of the requests that a system without a growing queue answers while they come; the
rest is chance, about the square root of those inside."""

SLACK = 1.15
"""By how much the highest rate of the formula's means may lie below that of the percentiles."""

LOW_FRAC = 1e-3
"""Rate, relative to the highest stable one, that stands for a service without load."""

BEYOND = 1.3
"""First upper end of the bracket, over the formula's highest rate."""

FIRST_SHARE = 0.6
"""Where in the bracket the first rate is tried while no limit is near."""

LEAST_SHARE = 0.05
"""Least part of the bracket that a trial cuts off at either end."""


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """Most that a statistic of a latency may be. [s]."""

    statistic: str
    at_most_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What the users are promised."""

    ttft: LatencyLimit | None = None
    tpot: LatencyLimit | None = None

    def uses(self, load: LoadResult) -> tuple[tuple[str, float], ...]:
        """(name, value over limit) of every limit, most used first."""
        found = [
            (name, of.at(limit.statistic) / limit.at_most_s)
            for name, limit, of in (("TTFT", self.ttft, load.ttft), ("TPOT", self.tpot, load.tpot))
            if limit is not None
        ]
        return tuple(sorted(found, key=lambda one: -one[1]))

    def use(self, load: LoadResult) -> float:
        """Largest value over limit; above 1 one is missed, 0 without limits."""
        return max((share for _, share in self.uses(load)), default=0.0)

    def missed(self, load: LoadResult) -> tuple[str, ...]:
        """Names of the limits that are missed."""
        return tuple(name for name, share in self.uses(load) if share > 1.0)


class RatedService(Protocol):
    """What can be put under a rate: a replica, or pools."""

    def open(self, rate_per_s: float, n: int, seed: int = 0) -> LoadResult:
        """Simulate `n` requests at a rate."""

    def full(self, seed: int = 0) -> LoadResult:
        """Simulate as many requests in flight as have room."""

    def most_rate(self, ttft_s: float = ..., tpot_s: float = ...) -> float:
        """Highest rate by formula."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Highest rate of one copy under limits; 0 where they are missed without any load."""

    rate_per_s: float
    load: LoadResult  # at that rate; without load where the rate is 0
    binding: str  # "TTFT", "TPOT", or "throughput" where the queue grows before a limit is met


def keeps_up(load: LoadResult, rate_per_s: float) -> bool:
    """Whether requests are answered as fast as they come."""
    return load.requests_per_s >= OFFERED_FRAC * rate_per_s


def formula_bound(service: RatedService, limits: Limits) -> float:
    """Rate above which no limit can be kept: that of the means, with some slack. [1/s].

    A percentile from the 90th on is above the mean; a median may be below it, and is then not used.
    """
    ttft_s = tpot_s = math.inf
    if limits.ttft is not None and limits.ttft.statistic != "p50":
        ttft_s = limits.ttft.at_most_s
    if limits.tpot is not None and limits.tpot.statistic != "p50":
        tpot_s = limits.tpot.at_most_s
    bound = service.most_rate(ttft_s, tpot_s)
    return SLACK * bound if bound else LOW_FRAC * service.most_rate()


def capacity(service: RatedService, limits: Limits, seed: int = 0) -> Capacity:
    """Find the highest rate of one copy that keeps the limits.

    Latencies grow like ``1 / (1 - r / r_most)``, so the inverse of the largest use of a limit is
    nearly a straight line over the rate r: the next rate to try is where the line through the
    bracket's ends crosses 1. All rates see the same random numbers.

    `service`: a replica or pools. `limits`: without any, the rate is that of as many requests in
    flight as have room. `seed`: of the requests.
    """
    top = formula_bound(service, limits)
    if top <= 0.0:
        return Capacity(0.0, NOTHING, "cache")
    if limits == Limits():
        load = service.full(seed)
        return Capacity(load.requests_per_s, load, "throughput")
    trial = RateTrials(service, limits, seed)
    idle = LOW_FRAC * top
    low, low_spare = idle, trial.spare(idle, FIRST_REQUESTS)
    if low_spare < 0.0:
        low_spare = trial.spare(idle, REQUESTS)
    if low_spare < 0.0:
        return Capacity(0.0, trial.load, trial.binding)
    kept, used = trial.load, trial.binding
    high, high_spare = BEYOND * top, -1.0
    for _ in range(MOST_TRIALS):
        share = low_spare / (low_spare - high_spare) if low_spare < 1.0 else FIRST_SHARE
        rate = low + min(1.0 - LEAST_SHARE, max(LEAST_SHARE, share)) * (high - low)
        spare = trial.spare(rate, REQUESTS)
        if spare >= 0.0:
            low, low_spare, kept, used = rate, spare, trial.load, trial.binding
        else:
            high, high_spare = rate, max(-1.0, spare)
        if 0.0 <= spare < PRECISION or high < (1.0 + PRECISION) * low:
            break
    return Capacity(low, kept, used)


class RateTrials:
    """Rates tried on a service, and the last result."""

    def __init__(self, service: RatedService, limits: Limits, seed: int) -> None:
        self.service, self.limits, self.seed = service, limits, seed
        self.load = NOTHING

    def spare(self, rate_per_s: float, n: int) -> float:
        """Find what is left of the limits at a rate, ``1/use - 1``; negative: one is missed.

        Without limits, or well below them, 1; where the queue grows at most -0.5.
        """
        self.load = self.service.open(rate_per_s, n, self.seed)
        use = self.limits.use(self.load)
        spare = min(1.0, 1.0 / use - 1.0) if use > 0.0 else 1.0
        return spare if keeps_up(self.load, rate_per_s) else min(spare, -0.5)

    @property
    def binding(self) -> str:
        """What is used most at the last rate."""
        uses = self.limits.uses(self.load)
        return uses[0][0] if uses else "throughput"


ROUNDS = 60
"""Most rounds of the fixed point."""

TOLERANCE = 1e-5
"""Relative change of the sequences at which it ends."""


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """Mean latencies of a load that comes at random."""

    ttft_s: float
    tpot_s: float
    prompt_use: float  # rho: share of the time that prompts take; 1 or more has no steady state
    sequences: float  # decoding at a time

    @property
    def stable(self) -> bool:
        """Whether the queue is finite."""
        return self.ttft_s < math.inf


NO_END = SteadyLoad(math.inf, math.inf, 1.0, math.inf)


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Requests that come at random."""

    rate_per_s: float
    output_tokens: float
    prompt_cv2: float = 0.0  # squared coefficient of variation of the time to read a prompt
    prompt_passes: float = 1.0  # passes that a prompt is spread over, by the token budget
    request_s: float = 0.0  # of a request outside the engine
    tokens_per_pass: float = 1.0  # of a sequence: 1 without drafts
    most_sequences: float = math.inf  # that have room


def open_load(
    pass_s: Callable[[float], float], prompt_s: Callable[[float], float], load: OpenLoad
) -> SteadyLoad:
    """Steady state of prompts that are read along with decoding.

    With r the rate, T(n) a decode pass of n sequences, x(n) what a prompt adds to it, a pass takes
    in the mean L, and an arrival waits for the rest R of the one that it meets:

        rho = r x(n)    L = T(n) / (1 - rho)    TPOT = L / g    n = r (o - 1) TPOT
        R = L / 2 + r x^2 (1 + cv^2) / 2
        TTFT = request + R + passes T + x + 2 r x R

    the last term being the prompts that came in the same pass and are read before or with it. While
    nothing decodes a prompt meets others alone, ``TTFT = request + x(0) + r x(0)^2 (1 + cv^2) /
    (2 (1 - r x(0)))``; the two are weighted by the chance that something decodes.

    `pass_s`: T: number of sequences -> time of a decode pass [s]. `prompt_s`: x: number of
    sequences -> time that a prompt adds; of 0 the pass of one alone [s]. `load`: rate and mean
    lengths. Returns: `NO_END` where the load is more than the replica can take.

    Pollaczek-Khinchine formula; residual life of a renewal process and the compound Poisson
    variance of a pass (Kleinrock, Queueing Systems I, sections 5.2 and 5.6); Little's law for n.
    """
    more = max(0.0, load.output_tokens - 1.0)
    rate = load.rate_per_s
    n = rho = 0.0
    for _ in range(ROUNDS):
        rho = rate * prompt_s(n)
        if rho >= 1.0:
            return NO_END
        new = rate * more * pass_s(max(1.0, n)) / load.tokens_per_pass / (1.0 - rho)
        if new > load.most_sequences:
            return NO_END
        found = abs(new - n) <= TOLERANCE * max(1.0, n)
        n = new
        if found:
            break
    else:
        return NO_END  # n still grows: more than the replica can take
    added, decode_s = prompt_s(n), pass_s(max(1.0, n))
    length_s = decode_s / (1.0 - rho)
    busy = 1.0 - math.exp(-n)  # something decodes when a request comes
    rest_s = 0.5 * length_s + 0.5 * rate * added * added * (1.0 + load.prompt_cv2)
    along_s = rest_s + load.prompt_passes * decode_s + added + 2.0 * rate * added * rest_s
    alone_s = prompt_s(0.0)
    idle_frac = 1.0 - rate * alone_s  # above 0: the first round saw to it
    alone_s += 0.5 * rate * alone_s * alone_s * (1.0 + load.prompt_cv2) / idle_frac
    ttft_s = load.request_s + busy * along_s + (1.0 - busy) * alone_s
    return SteadyLoad(ttft_s, length_s / load.tokens_per_pass, rho, n)
