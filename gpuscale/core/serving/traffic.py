"""Traffic of a service: lengths of prompts and answers, moments of arrival."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

MOST_TOKENS = 100_000_000
"""Longest length that is drawn: a wide log-normal has no end of its own."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of a number of tokens, at least 1.

    `kind` says what the two numbers are: ``fixed`` (value, -), ``lognormal`` (median, sigma of the
    logarithm), ``exp`` (mean, -), ``uniform`` (lowest, highest), ``sampled`` (`values` in order,
    repeated).
    """

    kind: str
    a: float = 1.0
    b: float = 0.0
    values: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        """Mean number of tokens. [1].

        >>> Lengths("fixed", 7).mean, round(Lengths("lognormal", 2000, 0.7).mean)
        (7.0, 2555)
        """
        if self.kind == "sampled":
            return sum(self.values) / len(self.values)
        if self.kind == "lognormal":
            return self.a * math.exp(self.b * self.b / 2.0)
        return (self.a + self.b) / 2.0 if self.kind == "uniform" else float(self.a)

    @property
    def cv2(self) -> float:
        """Squared coefficient of variation: variance over the square of the mean. [1].

        >>> Lengths("fixed", 7).cv2, Lengths("exp", 500).cv2
        (0.0, 1.0)
        """
        if self.kind == "sampled":
            mean = self.mean
            return sum((v - mean) ** 2 for v in self.values) / len(self.values) / mean**2
        if self.kind == "lognormal":
            return math.expm1(min(50.0, self.b * self.b))
        if self.kind == "uniform":
            return (self.b - self.a) ** 2 / 12.0 / self.mean**2
        return 1.0 if self.kind == "exp" else 0.0

    @property
    def most(self) -> float:
        """Longest length; of a distribution without an end the 99.9th percentile. [1]."""
        if self.kind == "sampled":
            return float(max(self.values))
        if self.kind == "lognormal":
            return min(float(MOST_TOKENS), self.a * math.exp(3.09 * self.b))
        if self.kind == "exp":
            return 6.9 * self.a
        return float(max(self.a, self.b))


def draw(lengths: Lengths, n: int, rng: random.Random) -> list[int]:
    """Draw `n` lengths, whole and at least 1.

    Examples
    --------
    >>> draw(Lengths("fixed", 5), 3, random.Random(0))
    [5, 5, 5]
    >>> draw(Lengths("sampled", values=(1, 2)), 3, random.Random(0))
    [1, 2, 1]
    """
    if lengths.kind == "sampled":
        known = lengths.values
        return [known[i % len(known)] for i in range(n)]
    if lengths.kind == "fixed":
        return [max(1, round(lengths.a))] * n
    if lengths.kind == "uniform":
        low, high = max(1, round(lengths.a)), max(1, round(lengths.b))
        return [rng.randint(low, high) for _ in range(n)]
    if lengths.kind == "exp":
        mean = lengths.a
        drawn = (rng.expovariate(1.0) * mean for _ in range(n))
    else:
        mu, sigma = math.log(lengths.a), lengths.b
        drawn = (math.exp(min(300.0, rng.gauss(mu, sigma))) for _ in range(n))
    return [min(MOST_TOKENS, max(1, round(value))) for value in drawn]


def poisson_arrivals(rate_per_s: float, n: int, rng: random.Random) -> list[float]:
    """Draw the moments of `n` independent arrivals.

    The intervals are drawn for rate 1 and divided, so that two rates with the same seed see the
    same random numbers and a comparison of them is smooth.

    Raises
    ------
    ValueError
        If the rate is not above 0.

    Examples
    --------
    >>> one, two = (poisson_arrivals(r, 2, random.Random(1)) for r in (1.0, 2.0))
    >>> one[1] == 2.0 * two[1]
    True
    """
    if not rate_per_s > 0.0:
        raise ValueError(f"rate_per_s must be above 0, got {rate_per_s}")
    at, arrivals = 0.0, []
    for _ in range(n):
        at += rng.expovariate(1.0)
        arrivals.append(at / rate_per_s)
    return arrivals


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests to simulate: lengths, and when they come.

    With `concurrency` each request waits for one of the first `concurrency` to end (closed loop);
    else `arrivals_s` has their moments, in order.
    """

    inputs: Sequence[int]
    outputs: Sequence[int]
    arrivals_s: Sequence[float] = ()
    concurrency: int = 0
    prefix_frac: float = 0.0  # of each prompt whose cache is already there


def open_traffic(
    inputs: Lengths,
    outputs: Lengths,
    rate_per_s: float,
    n: int,
    *,
    seed: int = 0,
    prefix_frac: float = 0.0,
) -> Traffic:
    """`n` requests that come at random at a rate; the same seed gives the same requests."""
    sizes, times = random.Random(seed), random.Random(seed + 1)
    return Traffic(
        draw(inputs, n, sizes),
        draw(outputs, n, sizes),
        poisson_arrivals(rate_per_s, n, times),
        prefix_frac=prefix_frac,
    )


def closed_traffic(
    inputs: Lengths,
    outputs: Lengths,
    concurrency: int,
    n: int,
    *,
    seed: int = 0,
    prefix_frac: float = 0.0,
) -> Traffic:
    """`n` requests of a benchmark that keeps `concurrency` in flight."""
    sizes = random.Random(seed)
    return Traffic(
        draw(inputs, n, sizes),
        draw(outputs, n, sizes),
        concurrency=max(1, concurrency),
        prefix_frac=prefix_frac,
    )
