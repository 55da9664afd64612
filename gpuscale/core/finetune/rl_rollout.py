"""Time of a rollout: prompts read, then decoded with a batch that falls as responses end.

Continuous batching as in Orca (Yu et al. 2022, OSDI); the tail of long responses as measured for
HybridFlow (Sheng et al. 2024, arXiv:2409.19256). Lengths are exponential about their mean, cut at
the maximum; the longest of n by order statistics (Renyi 1953; David and Nagaraja, Order Statistics,
2003, section 2.5, doi:10.1002/0471722162).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.dataclasses import dataclass, replace
from gpuscale.core.numeric import reached
from gpuscale.core.serving.forward import decode_step, most_sequences, prompt_pass

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

ALL_LONGEST_FRAC = 0.98
"""Mean over maximum from which every response is taken as long as the maximum."""

WIDEST = 100.0
"""Scale of the longest believed tail, over the maximum: it is flat by then."""


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

    >>> r = responses(1000.0, 8000.0)
    >>> round(r.scale_tokens or 0), round(r.longest(512))
    (1000, 6818)
    """
    if not 0 < mean_tokens <= max_tokens:
        raise ValueError(f"mean {mean_tokens:g} must be above 0 and up to {max_tokens:g}")
    if mean_tokens > ALL_LONGEST_FRAC * max_tokens:
        return Responses(mean_tokens, max_tokens, None)
    logs = math.log(mean_tokens), math.log(WIDEST * max_tokens)
    found = reached(
        lambda at: -math.exp(at) * math.expm1(-max_tokens / math.exp(at)), mean_tokens, *logs
    )
    return Responses(mean_tokens, max_tokens, math.exp(found))


GRID = 24
"""Points of the decode at which the batch is looked at."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout on one replica of the engine."""

    time_s: float
    prefill_s: float
    full_s: float  # with as many sequences as fit
    tail_s: float  # falling, to the longest response
    sequences: float  # at once, at most
    tokens: float  # generated
    fits: bool

    def shared(self, n_steps: int) -> Rollout:
        """Give each of `n_steps` steps its share of responses generated together."""
        names = ("time_s", "prefill_s", "full_s", "tail_s", "tokens")
        return replace(self, **{name: getattr(self, name) / n_steps for name in names})


def rollout(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    lengths: Responses,
    *,
    n_sequences: float,
    prompt_tokens: float,
    n_prompts: float,
) -> Rollout:
    """Time of `n_sequences` responses on one replica.

    `model`: the policy. `replica, site`: layout and formats of the engine, its hardware and
    calibration. `lengths`: of responses. `prompt_tokens`: mean of a prompt [token]. `n_prompts`:
    distinct ones, as those of a group share their prefix [1]. Returns: seconds. While more wait
    than fit, as many as fit are decoded; then the batch falls with the survival of the lengths, to
    the longest of what is left.
    """
    room = most_sequences(model, replica, site, prompt_tokens + lengths.mean_tokens)
    inside = min(n_sequences, max(1.0, room))
    prefill = prompt_pass(model, replica, site, prompt_tokens, max(1.0, n_prompts)).total_s
    context = prompt_tokens + lengths.under_way_tokens
    each = decode_step(model, replica, site, max(1.0, inside / replica.pp), context)
    full = max(0.0, n_sequences - inside) * lengths.mean_tokens * each.per_token_s / inside
    longest = lengths.longest(n_sequences)
    tail, step = 0.0, longest / GRID
    for i in range(GRID):
        at = (i + 0.5) * step
        left = max(1.0, inside * lengths.alive(at))
        one = decode_step(model, replica, site, max(1.0, left / replica.pp), prompt_tokens + at)
        tail += step * one.per_token_s
    return Rollout(
        time_s=prefill + full + tail,
        prefill_s=prefill,
        full_s=full,
        tail_s=tail,
        sequences=inside,
        tokens=n_sequences * lengths.mean_tokens,
        fits=room >= 1.0,
    )


def generate(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    lengths: Responses,
    *,
    n_sequences: float,
    prompt_tokens: float,
    token_s: float,
    at_once: int = 0,
) -> Rollout:
    """Time of `n_sequences` responses of one GPU by the training model itself.

    `model, replica, site, lengths, prompt_tokens`: as for `rollout`; the replica is one GPU.
    `token_s`: least time of one token of a batch, launches or weights gathered for it [s].
    `at_once`: sequences of a batch; 0: all [1]. Returns: seconds. Batches follow one another, each
    as long as its longest response; nothing joins a batch on its way.
    """
    inside = min(n_sequences, float(at_once or n_sequences))
    rounds = math.ceil(n_sequences / inside)
    longest = lengths.longest(inside)
    prefill = prompt_pass(model, replica, site, prompt_tokens, max(1.0, inside)).total_s
    step = decode_step(model, replica, site, inside, prompt_tokens + longest / 2.0).per_token_s
    each = longest * max(step, token_s)
    return Rollout(
        time_s=rounds * (prefill + each),
        prefill_s=rounds * prefill,
        full_s=rounds * each,
        tail_s=0.0,
        sequences=inside,
        tokens=n_sequences * lengths.mean_tokens,
        fits=True,
    )
