"""Traffic of a service: lengths of prompts and answers, moments of arrival.

Exponential gaps and other laws by inversion: Knuth 1997, The Art of Computer Programming, volume 2,
section 3.4.1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import fsum
from typing import Any

from gpuscale.core.records import dataclass, field

MOST_TOKENS = 100_000_000
"""Longest length that is drawn: a wide log-normal has no end of its own."""


MOST_EXPONENT, MOST_LOG = 50.0, 300.0
"""Exponents of a length beyond which it is longer than any context, and e^x still a double."""

MOST_SIGMAS, MOST_MEANS = 3.09, 6.9
"""99.9th percentile of a normal distribution in its deviations, of an exponential in its means."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of a number of tokens, at least 1.

    `kind` says what the two numbers are: ``fixed`` (value, -), ``lognormal`` (mean, sigma of the
    logarithm), ``exp`` (mean, -), ``uniform`` (lowest, highest), ``sampled`` (`values` in order,
    repeated).
    """

    kind: str
    a: float = 1.0
    b: float = 0.0
    values: tuple[int, ...] = ()
    mean: float = field(init=False, repr=False, compare=False)  # tokens
    cv2: float = field(init=False, repr=False, compare=False)  # variance over the mean's square

    def __post_init__(self) -> None:
        """Keep the moments: they are asked for at every pass.

        >>> Lengths("uniform", 100, 200).mean, Lengths("exp", 500).cv2
        (150.0, 1.0)
        """
        mean, cv2 = self._moments()
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "cv2", cv2)

    def __str__(self) -> str:
        """Distribution as it is typed.

        >>> str(Lengths("fixed", 2048)), str(Lengths("lognormal", 2048, 0.7))
        ('2048', 'lognormal:2048,0.7')
        """
        if self.kind == "sampled":
            return f"sampled, mean {self.mean:.0f}"
        if self.kind == "fixed":
            return f"{self.a:g}"
        both = f",{self.b:g}" if self.kind in ("lognormal", "uniform") else ""
        return f"{self.kind}:{self.a:g}{both}"

    def _moments(self) -> tuple[float, float]:
        """Mean, and the variance over its square."""
        if self.kind == "sampled":
            mean = fsum(self.values) / len(self.values)
            return mean, fsum((v - mean) ** 2 for v in self.values) / len(self.values) / mean**2
        if self.kind == "uniform":
            mean = (self.a + self.b) / 2.0
            return mean, (self.b - self.a) ** 2 / 12.0 / mean**2
        if self.kind == "lognormal":
            return float(self.a), math.expm1(min(MOST_EXPONENT, self.b * self.b))
        return float(self.a), 1.0 if self.kind == "exp" else 0.0

    @property
    def most(self) -> float:
        """Longest length; of a distribution without an end the 99.9th percentile. [1]."""
        if self.kind == "sampled":
            return float(max(self.values))
        if self.kind == "lognormal":
            return min(
                float(MOST_TOKENS),
                self.a * math.exp(min(MOST_EXPONENT, (MOST_SIGMAS - self.b / 2.0) * self.b)),
            )
        if self.kind == "exp":
            return MOST_MEANS * self.a
        return float(max(self.a, self.b))


CHAT = (Lengths("lognormal", 217.0, 1.0), Lengths("lognormal", 202.0, 0.9))
"""Prompts and answers of chat data (ShareGPT) as public benchmarks filter it: 217,393 and 201,847
tokens of 1,000 requests (vLLM, `vllm bench serve`); spreads: arXiv:2309.06180, figure 11."""

LOOSE_FRAC = 0.05
"""Half width of what is called one length in a closed loop: answers end apart, so that requests
which started in one pass do not stay together for ever."""


def loosened(lengths: Lengths) -> Lengths:
    """Spread a fixed length by `LOOSE_FRAC`; other distributions are spread enough.

    >>> str(loosened(Lengths("fixed", 100))), str(loosened(Lengths("exp", 100)))
    ('uniform:95,105', 'exp:100')
    """
    if lengths.kind != "fixed":
        return lengths
    a = lengths.a
    return Lengths("uniform", max(1.0, (1.0 - LOOSE_FRAC) * a), (1.0 + LOOSE_FRAC) * a)


def draw(lengths: Lengths, n: int, rng: random.Random) -> list[int]:
    """Draw `n` lengths, whole and at least 1, one from each n-th part of the distribution.

    Stratified, so that a few thousand requests already have the distribution's own percentiles.

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
    shares = [(i + rng.random()) / n for i in range(n)]
    rng.shuffle(shares)
    quantile = _quantile(lengths)
    return [min(MOST_TOKENS, max(1, round(quantile(share)))) for share in shares]


def _quantile(lengths: Lengths) -> Callable[[float], float]:
    """Inverse of the distribution function."""
    a, b = lengths.a, lengths.b
    if lengths.kind == "uniform":
        low, high = max(1, round(a)), max(1, round(b))
        return lambda share: low - 0.5 + share * (high - low + 1)
    if lengths.kind == "exp":
        return lambda share: -a * math.log1p(-share)
    from statistics import NormalDist

    normal = NormalDist(math.log(a) - 0.5 * b * b, b) if b else None
    if normal is None:
        return lambda share: a
    return lambda share: math.exp(min(MOST_LOG, normal.inv_cdf(max(share, 1e-12))))


def poisson_arrivals(rate_per_s: float, n: int, rng: random.Random) -> list[float]:
    """Draw the moments of `n` independent arrivals, of which `n` come in a time of `n / rate`.

    Independent arrivals whose number in a time is known are uniform in it, in order; so the rate is
    exact, and two rates with the same seed see the same random numbers. Raises ValueError if the
    rate is not above 0.

    >>> one, two = (poisson_arrivals(r, 2, random.Random(1)) for r in (1.0, 2.0))
    >>> one[1] == 2.0 * two[1]
    True
    """
    if not rate_per_s > 0.0:
        raise ValueError(f"rate_per_s must be above 0, got {rate_per_s}")
    span_s = n / rate_per_s
    return [span_s * share for share in sorted(rng.random() for _ in range(n))]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests to simulate: lengths, and when they come.

    With `concurrency` each request waits for one of the first `concurrency` to end (closed loop);
    else `arrivals_s` has their moments, in order. The first `running` decode when time begins:
    their `inputs` are the context that they have, their `outputs` what is to come, and the last
    arrival ends the time that is looked at.
    """

    inputs: Sequence[int]
    outputs: Sequence[int]
    arrivals_s: Sequence[float] = ()
    concurrency: int = 0
    prefix_frac: float = 0.0  # of each prompt whose cache is already there
    hits: Sequence[int] = ()  # tokens of each prompt whose cache is already there, where known
    running: int = 0

    @property
    def ends_s(self) -> float:
        """When nobody looks any more: with those that run when time begins, the last arrival."""
        return self.arrivals_s[-1] if self.running else math.inf

    def check(self) -> None:
        """Raise ValueError where it is no load: empty, not in order, lengths below 1."""
        n = len(self.inputs)
        if n == 0 or len(self.outputs) != n:
            raise ValueError("a traffic needs as many answers as prompts, and at least one")
        if min(self.inputs) < 1 or min(self.outputs) < 1:
            raise ValueError("lengths must be at least 1")
        if not self.concurrency and len(self.arrivals_s) != n:
            raise ValueError("an open load needs one arrival for every request")
        if any(a > b for a, b in zip(self.arrivals_s, self.arrivals_s[1:], strict=False)):
            raise ValueError("arrivals must be in order")
        if len(self.hits) not in (0, n) or any(
            not 0 <= h < i for h, i in zip(self.hits, self.inputs, strict=False)
        ):
            raise ValueError("hits must be those of each prompt, at least 0 and below its length")
        if not 0.0 <= self.prefix_frac < 1.0:
            raise ValueError(f"prefix_frac must be in [0, 1), got {self.prefix_frac}")


@lru_cache(maxsize=16)
def _sizes(
    inputs: Lengths, outputs: Lengths, n: int, seed: int
) -> tuple[list[int], list[int], tuple[Any, ...]]:
    """Draw prompts and answers, the same at every rate; with the state of what draws further."""
    rng = random.Random(f"sizes {seed}")
    return draw(inputs, n, rng), draw(outputs, n, rng), rng.getstate()


def open_traffic(
    inputs: Lengths,
    outputs: Lengths,
    rate_per_s: float,
    n: int,
    *,
    seed: int = 0,
    prefix_frac: float = 0.0,
    running: int = 0,
) -> Traffic:
    """`n` requests that come at random at a rate; the same seed gives the same requests.

    `running` more decode when time begins: a long answer is met more often than a short one, and
    anywhere in it (residual life of a renewal process, Kleinrock, Queueing Systems I, section 5.2).
    """
    prompts, answers, state = _sizes(inputs, outputs, n, seed)
    arrivals = poisson_arrivals(rate_per_s, n, random.Random(f"times {seed}"))
    if not running:
        return Traffic(prompts, answers, arrivals, prefix_frac=prefix_frac)
    sizes = random.Random()
    sizes.setstate(state)
    met = sizes.choices(answers, weights=answers, k=running)
    left = [max(2, math.ceil(o * sizes.random())) for o in met]
    read = draw(inputs, running, sizes)
    return Traffic(
        [i + o - more for i, o, more in zip(read, met, left, strict=True)] + prompts,
        left + answers,
        [0.0] * running + arrivals,
        prefix_frac=prefix_frac,
        hits=[int(prefix_frac * i) for i in (*read, *prompts)],
        running=running,
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
    sizes = random.Random(f"sizes {seed}")
    return Traffic(
        draw(inputs, n, sizes),
        draw(outputs, n, sizes),
        concurrency=max(1, concurrency),
        prefix_frac=prefix_frac,
    )
