"""Lengths of responses: an exponential distribution about its mean, cut at the maximum.

The longest of n: order statistics of the exponential (Renyi 1953; David and Nagaraja, Order
Statistics, 2003, section 2.5, doi:10.1002/0471722162).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALL_LONGEST_FRAC = 0.98
"""Mean over maximum from which every response is taken as long as the maximum."""

WIDEST = 100.0
"""Scale of the longest believed tail, over the maximum: it is flat by then."""

HALVINGS = 60
"""Halvings of a bisection: beyond the digits of a double."""


@dataclass(frozen=True, slots=True)
class Responses:
    """Response lengths of a rollout. [token]."""

    mean_tokens: float
    max_tokens: float
    scale_tokens: float | None  # of the exponential; None where every response has the maximum

    def alive(self, tokens: float) -> float:
        """Share of the responses that are longer than `tokens`. [1]."""
        if tokens >= self.max_tokens:
            return 0.0
        return 1.0 if self.scale_tokens is None else math.exp(-tokens / self.scale_tokens)

    @property
    def under_way_tokens(self) -> float:
        """Mean tokens so far of responses being generated, long ones being there longer. [token].

        ``integral of t alive(t) dt / mean`` from 0 to the maximum.

        >>> Responses(1000.0, 1000.0, None).under_way_tokens
        500.0
        >>> round(responses(1000.0, 1e5).under_way_tokens)
        1000
        """
        s, most = self.scale_tokens, self.max_tokens
        if s is None:
            return most / 2.0
        left = math.exp(-most / s)
        return (s - left * (s + most)) / (1.0 - left)

    def longest(self, n: float) -> float:
        """Length of the longest of `n` responses, where less than one is left. [token]."""
        if self.scale_tokens is None:
            return self.max_tokens
        if n <= 1:
            return self.mean_tokens
        return min(self.max_tokens, self.scale_tokens * (math.log(n) + EULER))


EULER = 0.5772156649
"""The longest of n exponential lengths is the mean times ln n + 0.577 (order statistics)."""


def responses(mean_tokens: float, max_tokens: float) -> Responses:
    """Fit the distribution to a mean and a maximum.

    ``mean = scale (1 - exp(-max / scale))``: what is longer than the maximum is cut there.

    Raises ValueError if the mean is not positive or above the maximum.

    Examples
    --------
    >>> r = responses(1000.0, 8000.0)
    >>> round(r.scale_tokens or 0), round(r.longest(512))
    (1000, 6818)
    """
    if not 0 < mean_tokens <= max_tokens:
        raise ValueError(f"mean {mean_tokens:g} must be above 0 and up to {max_tokens:g}")
    if mean_tokens > ALL_LONGEST_FRAC * max_tokens:
        return Responses(mean_tokens, max_tokens, None)
    low, high = mean_tokens, WIDEST * max_tokens
    for _ in range(HALVINGS):
        scale = math.sqrt(low * high)
        mean = scale * (1.0 - math.exp(-max_tokens / scale))
        low, high = (scale, high) if mean < mean_tokens else (low, scale)
    return Responses(mean_tokens, max_tokens, math.sqrt(low * high))
