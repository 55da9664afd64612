"""The normal distribution, as intervals and probabilities take it (https://dlmf.nist.gov/7.2)."""

from math import erf, sqrt

Z80 = 1.2815515655446004
"""Standard deviations on either side that hold 80 % of it."""


def below(z: float) -> float:
    """Share of it below so many standard deviations. [1].

    >>> round(below(Z80), 6)
    0.9
    """
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))
