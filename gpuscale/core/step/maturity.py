"""How far a job was tuned: on top of what the terms of a step charge, a median and a width each."""

from __future__ import annotations

from dataclasses import dataclass

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
}


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

    def interval_s(self, low_s: float, expected_s: float, high_s: float) -> tuple[float, float]:
        """Interval of a class widened to that of the maturity. [s].

        >>> from math import log
        >>> Maturity("script", 1.2, log(2.0), log(4.0)).interval_s(0.6, 1.0, 1.5)
        (0.5, 4.0)
        """
        from math import exp

        return (
            min(low_s, expected_s / exp(self.faster)),
            max(high_s, expected_s * exp(self.slower)),
        )


TUNED = Maturity()
"""As the published recipes that the parameters are fitted to."""
