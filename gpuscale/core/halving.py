"""Where a quantity that grows with another reaches a value (Burden and Faires, section 2.1)."""

from collections.abc import Callable

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
