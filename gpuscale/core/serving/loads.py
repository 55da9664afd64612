"""Loads that a service is put under: at random, a closed loop, as many as have room, a burst."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

from gpuscale.core.records import dataclass
from gpuscale.core.serving.capacity import FIRST_REQUESTS
from gpuscale.core.serving.percentiles import WARM_UP_FRAC, LoadResult, summarise
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.tables import ContextRange
from gpuscale.core.serving.traffic import (
    Lengths,
    Traffic,
    closed_traffic,
    draw,
    loosened,
    open_traffic,
)

CLOSED_ROUNDS = 10
"""Requests of a closed loop over its concurrency, as public benchmarks take."""

MOST_CLOSED = 10_000
"""Requests of a closed loop at which fewer rounds are enough."""

FULL_ROUNDS = 5
"""Requests over those in flight, where the highest rate is wanted: the first round and the last
are not counted, so that whole rounds are even where answers of one length end together."""

FILLINGS = 20.0
"""Requests over those that decode at a time, from which on an empty start is no more than 2 % of a
mean; at 7 the pace is 5 % too good, below that answers do not end as fast as requests come."""

APART = 1.25
"""Ratio of the numbers of sequences at which the time of a token is tried."""

RENEWED_FRAC = 0.1
"""Least part of those that run when time begins that comes while one looks."""

LEAST_CONTEXT, LEAST_RANGE = 16.0, 64.0
"""Shortest context and span of contexts for which decode passes are tabulated. [token]"""


def rounds(concurrency: int) -> int:
    """Find the requests of a simulated closed loop over its concurrency.

    >>> rounds(64), rounds(4096)
    (10, 3)
    """
    return min(CLOSED_ROUNDS, max(3, MOST_CLOSED // max(1, concurrency)))


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a service, apart from how often."""

    inputs: Lengths
    outputs: Lengths
    prefix_frac: float = 0.0  # of a prompt whose cache is there already
    most_context: float = 0.0  # tokens that one request may have; 0: no promise
    cold: bool = False  # nobody warmed the server up: its first prompts load and tune kernels

    @property
    def mean_context(self) -> float:
        """Mean context of a decoding token: prompts, and answers weighted by their length. [1]."""
        return self.inputs.mean + 0.5 * self.outputs.mean * (1.0 + self.outputs.cv2)

    @property
    def longest_request(self) -> float:
        """Most tokens of one request: its longest prompt and its longest answer. [1]."""
        return self.inputs.most + self.outputs.most

    @property
    def contexts(self) -> ContextRange:
        """Contexts around which decode passes are tabulated."""
        low = max(LEAST_CONTEXT, 0.5 * self.inputs.mean)
        return ContextRange(low, max(low + LEAST_RANGE, self.inputs.mean + self.outputs.mean))


class UnderLoad(ABC):
    """What can be put under a load; the same load is simulated once."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._opened: dict[tuple[float, int, int], LoadResult] = {}

    @abstractmethod
    def simulated(self, traffic: Traffic) -> Simulated:
        """Simulate any traffic."""

    @property
    @abstractmethod
    def sequences_with_room(self) -> float:
        """Sequences of mean length that the cache holds. [1]."""

    @property
    def context_lacks_bytes(self) -> float:
        """Memory of a GPU that the longest context needs beyond the cache. [byte]."""
        return 0.0

    @property
    def most_inside(self) -> float:
        """Requests in flight of which none waits for another's end. [1]."""
        return self.sequences_with_room

    @property
    def mixes(self) -> bool:
        """Whether sequences whose prompts follow each other decode from the same pass on.

        Then answers of one length end in one pass, round after round.
        """
        return True

    @abstractmethod
    def inside(self, rate_per_s: float) -> float:
        """Sequences that decode at a time, by formula; at most those with room. [1]."""

    def open(self, rate_per_s: float, n: int, seed: int = 0) -> LoadResult:
        """Simulate `n` requests that come at random.

        A system that starts empty is full after as many requests as decode at a time, and shows
        its rate after several times as many. Where `n` is less, as many decode when time begins as
        do by Little's law at the pace that is found.
        """
        key = (rate_per_s, n, seed)
        if key not in self._opened:
            running = self._running(rate_per_s, n, seed)
            self._opened[key] = self._from(rate_per_s, n, seed, running)
        return self._opened[key]

    def _running(self, rate_per_s: float, n: int, seed: int) -> int:
        """Find how many decode when time begins: none where `n` fill the system often enough.

        Little's law asks for N = r o TPOT(N). The time of a token is nearly a straight line over N,
        so two short simulations give where it meets that; where it does not, the room is full.
        """
        low, room = self.inside(rate_per_s), self.sequences_with_room
        if low * FILLINGS <= n:
            return 0

        def stays(inside: float) -> float:
            load = self._from(rate_per_s, FIRST_REQUESTS, seed, round(inside))
            return rate_per_s * self.demand.outputs.mean * load.tpot.mean_s

        at_low = stays(low)
        high = min(room, max(at_low, APART * low)) if low < room else room / APART
        slope = (stays(high) - at_low) / (high - low)
        met = low + (at_low - low) / (1.0 - slope) if slope < 1.0 else room
        return round(min(room, max(1.0, met)))

    def _from(self, rate_per_s: float, n: int, seed: int, running: int) -> LoadResult:
        """Simulate requests that come at random, `n` or more, while some run already."""
        d, n = self.demand, max(n, round(RENEWED_FRAC * running))
        traffic = open_traffic(
            d.inputs,
            d.outputs,
            rate_per_s,
            n,
            seed=seed,
            prefix_frac=d.prefix_frac,
            running=running,
        )
        return summarise(self.simulated(traffic), warm_up_frac=WARM_UP_FRAC)

    def closed(self, concurrency: int, n: int | None = None, seed: int = 0) -> LoadResult:
        """Simulate a benchmark with `concurrency` requests in flight, all started at once."""
        d = self.demand
        outputs = loosened(d.outputs) if concurrency > 1 and self.mixes else d.outputs
        n, hit = n or rounds(concurrency) * concurrency, d.prefix_frac
        traffic = closed_traffic(d.inputs, outputs, concurrency, n, seed=seed, prefix_frac=hit)
        return summarise(self.simulated(traffic))

    def full(self, seed: int = 0) -> LoadResult:
        """Simulate as many requests in flight as have room, the first and the last not counted."""
        n, d = max(1, min(MOST_CLOSED, round(self.most_inside))), self.demand
        traffic = closed_traffic(
            d.inputs, loosened(d.outputs), n, FULL_ROUNDS * n, seed=seed, prefix_frac=d.prefix_frac
        )
        first = (2.0 * n - 0.5) / (FULL_ROUNDS * n)  # came when the first round had ended
        return summarise(self.simulated(traffic), warm_up_frac=first)

    def burst(self, n: int, seed: int = 0) -> LoadResult:
        """Simulate `n` requests that all come at once, to the last token."""
        rng, d = random.Random(f"sizes {seed}"), self.demand
        inputs, outputs = draw(d.inputs, n, rng), draw(d.outputs, n, rng)
        return summarise(
            self.simulated(Traffic(inputs, outputs, [0.0] * n, prefix_frac=d.prefix_frac))
        )
