"""The normal distribution (https://dlmf.nist.gov/7.2); where what grows reaches a value.

The latter by halving: Burden and Faires, section 2.1.
"""

from collections.abc import Callable
from math import erf, sqrt

Z80 = 1.2815515655446004
"""Standard deviations on either side that hold 80 % of it."""


def below(z: float) -> float:
    """Share of it below so many standard deviations. [1].

    >>> round(below(Z80), 6)
    0.9
    """
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))


HALVINGS = 40
"""To a millionth of a millionth of where it began."""


def reached(rising: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Least argument between two at which `rising` has come to `value`; `high` if at none.

    >>> round(reached(lambda x: x * x, 2.0, 0.0, 2.0), 6)
    1.414214
    """
    for _ in range(HALVINGS):
        x = 0.5 * (low + high)
        low, high = (x, high) if rising(x) < value else (low, x)
    return high
