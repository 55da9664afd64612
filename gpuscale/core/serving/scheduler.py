"""What a simulated engine is given, and what it tells: pass times, limits, moments of requests.

Iteration-level scheduling: Yu et al. 2022 (Orca, OSDI), section 3.
"""

from __future__ import annotations

import math
from typing import Protocol

from gpuscale.core.records import dataclass


class StepTimes(Protocol):
    """Times of passes, all that the simulator knows of a model and its hardware."""

    def decode(self, n: int) -> tuple[float, float]:
        """Time of a decode pass of `n` sequences without context [s], and of a token of it [s]."""

    def prompt(self, tokens: int, keys: float, n: int, prompts: int) -> float:
        """Time that `tokens` prompt tokens add to a pass of `n` sequences; the pass if n is 0. [s].

        `keys` is the mean number of keys that one of them meets, `prompts` those that are read.
        """


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What an engine's scheduler may put into a pass."""

    token_budget: int = 8192  # prompt tokens and decoded ones of one pass
    max_sequences: int = 256  # running at a time
    cache_tokens: float = math.inf  # room of the cache, whole replica
    sequence_tokens: float = 0.0  # cache of a sequence beside its tokens: half a block, states
    mixed: bool = True  # prompt tokens share a pass with decoding
    splits: bool = True  # a pass reads part of a prompt that would have room alone
    ranks: int = 1  # attention ranks, each with its share of the budget
    reserve_output: bool = False  # a request is let in when its whole answer has room
    tokens_per_pass: float = 1.0  # decoded per sequence: more than 1 with drafts
    pace_spread: float = 0.0  # of the logarithm of these, from request to request
    stages: int = 1  # pipeline stages: as many prompts are read at a time
    request_s: float = 0.0  # of a request outside the engine: HTTP, tokeniser
    intake_s: float = 0.0  # of one after another at the server's door
    prefilled: bool = False  # prompts come with their cache: the decode pool of two
    poll_passes: int = 0  # decode passes between two looks at the prompts that came
    poll_prompts: float = math.inf  # of them with which nobody waits for the next look
    cold_s: float = 0.0  # more for each of the prompts that a closed loop starts with
    compiled_s: float = 0.0  # more for its first pass with more prompts than so many
    compiled_prompts: int = 1

    def __post_init__(self) -> None:
        """Refuse limits that let nothing through."""
        if min(self.token_budget, self.max_sequences, self.stages) < 1:
            raise ValueError("token_budget, max_sequences and stages must be at least 1")
        if not self.tokens_per_pass >= 1.0:
            raise ValueError(f"tokens_per_pass must be at least 1, got {self.tokens_per_pass}")


@dataclass(slots=True)
class Simulated:
    """What happened, one entry a request in order of arrival. [s]."""

    arrival_s: list[float]
    first_s: list[float]  # first token; NaN where the request can never fit
    end_s: list[float]
    inputs: list[int]
    outputs: list[int]
    n_preempted: int = 0
    n_refused: int = 0
    n_passes: int = 0
    busy_s: float = 0.0  # passes, all together
    sequence_s: float = 0.0  # integral of the decoding sequences over the time
    most_sequences: int = 0
    n_running: int = 0  # the first requests, which decode when time begins


def passes_until(gap_s: float, one_s: float, more_s: float) -> int:
    """Fewest passes that last `gap_s`, the first of `one_s`, k of them ``k (one + more (k-1))``.

    >>> passes_until(3.5, 1.0, 0.0), passes_until(0.1, 1.0, 0.5), passes_until(4.5, 1.0, 0.5)
    (4, 1, 3)
    """
    if gap_s <= one_s:
        return 1
    if more_s * gap_s < 1e-9 * one_s * one_s:
        return math.ceil(gap_s / one_s)
    b = one_s - more_s
    return max(1, math.ceil((math.sqrt(b * b + 4.0 * more_s * gap_s) - b) / (2.0 * more_s)))
