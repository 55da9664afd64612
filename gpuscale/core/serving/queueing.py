"""Closed formula of a replica under a steady load: brackets what the simulator decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 60
"""Most rounds of the fixed point."""

TOLERANCE = 1e-5
"""Relative change of the sequences at which it ends."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Mean latencies of a load that comes at random."""

    ttft_s: float
    tpot_s: float
    prompt_use: float  # rho: share of the time that prompts take; 1 or more has no steady state
    sequences: float  # decoding at a time

    @property
    def stable(self) -> bool:
        """Whether the queue is finite."""
        return self.ttft_s < math.inf


NO_END = Steady(math.inf, math.inf, 1.0, math.inf)


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
) -> Steady:
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

    References
    ----------
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
    return Steady(ttft_s, length_s / load.tokens_per_pass, rho, n)
