"""How far a job was tuned: on top of what the terms of a step charge, a median and a width each.

Two halves of a normal distribution (https://dlmf.nist.gov/7.2) in the ln of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, fsum, log

from gpuscale.core.dataclasses import NamedTuple, dataclass
from gpuscale.core.numeric import Z80, below, reached

MATURITIES = ("tuned", "as-it-comes", "script")
"""Somebody searched layout and kernels on this stack; a framework with its defaults and a sensible
layout; an own training loop."""

STACKS = ("fused", "eager", "ready")
"""What a framework's defaults leave to tune: fused or compiled layers, modules of PyTorch called
one by one, or nothing much: its defaults are the benchmark's."""

WORDS = {
    "tuned": "tuned",
    "as-it-comes": "as it comes",
    "script": "by an own script",
    "measured": "by the site's measured factor",  # which takes the place of a maturity's
    "unsaid": "of unsaid maturity",
}


class Way(NamedTuple):
    """Time of jobs over what the terms of a step give, in ln: median and reach of the 80 %."""

    median: float
    faster: float
    slower: float

    def share_below(self, x: float) -> float:
        """Share of the jobs below a value: half a normal distribution on either side. [1]."""
        reach = self.faster if x < self.median else self.slower
        return below(Z80 * (x - self.median) / max(reach, 1e-9))


FAR = 5.0
"""Ln of a factor beyond which no job lies."""


def mixed(tuned: Way, other: Way, tuned_share: float) -> Way:
    """Median and reach of jobs of which a share is tuned.

    >>> [round(x, 2) for x in mixed(Way(0.0, 0.2, 0.2), Way(0.6, 0.2, 0.7), 0.5)]
    [0.3, 0.43, 0.76]
    """

    def share_below(x: float) -> float:
        return tuned_share * tuned.share_below(x) + (1.0 - tuned_share) * other.share_below(x)

    low, median, high = (
        reached(share_below, share, -FAR, FAR) for share in (below(-Z80), 0.5, below(Z80))
    )
    return Way(median, median - low, high - median)


def tuned_probability(weights: Mapping[str, float], said: Iterable[str], n_gpus: int) -> float:
    """Probability that a job was tuned, by what is said of it and by its size. [1].

    `weights`: log odds of nothing said (``base``), of each of `said`, and of each doubling of the
    GPUs (``doubling``).

    >>> tuned_probability({"base": 0.0, "doubling": 0.0, "layout": log(3.0)}, ["layout"], 8)
    0.75
    """
    odds = weights["base"] + weights["doubling"] * log(n_gpus, 2)
    return 1.0 / (1.0 + exp(-odds - fsum(weights[name] for name in said)))


@dataclass(frozen=True, slots=True)
class Maturity:
    """Time of jobs of one maturity over what the terms of a step give, and its spread.

    The 80 % interval is from the median over ``exp(faster)`` to the median times ``exp(slower)``,
    where the class of the job is not wider already.
    """

    name: str = "tuned"
    factor: float = 1.0  # median
    faster: float = 0.0
    slower: float = 0.0
    tuned_probability: float | None = None  # where nobody said it

    def interval_s(self, low_s: float, expected_s: float, high_s: float) -> tuple[float, float]:
        """Interval of a class widened to that of the maturity. [s].

        >>> Maturity("script", 1.2, log(2.0), log(4.0)).interval_s(0.6, 1.0, 1.5)
        (0.5, 4.0)
        """
        return (
            min(low_s, expected_s / exp(self.faster)),
            max(high_s, expected_s * exp(self.slower)),
        )


TUNED = Maturity()
"""As the published recipes that the parameters are fitted to."""
