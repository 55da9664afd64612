"""A trace played on replicas: its arrivals, who takes which request, what the caches hold."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from gpuscale.answers.progress import Progress
from gpuscale.core.records import replace
from gpuscale.core.serving.percentiles import LoadResult, summarise
from gpuscale.core.serving.prefixes import block_hits, session_hits
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.simulator import simulate
from gpuscale.core.serving.traffic import Traffic, poisson_arrivals
from gpuscale.errors import GpuscaleError
from gpuscale.io.traces import MOONCAKE_BLOCK, Trace

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.core.serving.service import Service

T = TypeVar("T")

MOST_WINDOWS = 288
LEAST_WIDTH_S = 60.0


def timed_by(trace: Trace, asked: Serve) -> Trace:
    """Trace with arrivals: its own, or at random at the rate given."""
    if trace.timed and asked.rate is not None:
        raise GpuscaleError("the trace has its own times", "leave --rate out")
    if trace.timed:
        return trace
    if asked.rate is None:
        raise GpuscaleError(
            "the trace has no times: lengths alone", "give --rate beside it, as --rate 5/s"
        )
    rng = random.Random(f"times {asked.seed}")
    return replace(trace, arrivals_s=poisson_arrivals(asked.rate, len(trace.inputs), rng))


def width_of(arrivals_s: Sequence[float]) -> float:
    """Width of windows that a traffic fills, all of them: of about a minute, longer in long ones.

    >>> round(width_of([0.1 * i for i in range(300)]), 2), width_of([0.0, 3600.0]), width_of([5.0])
    (30.0, 60.0, 60.0)
    """
    span = arrivals_s[-1] - arrivals_s[0]
    if span <= 0.0:
        return LEAST_WIDTH_S
    target = max(LEAST_WIDTH_S, span / MOST_WINDOWS)
    # the last request ends a gap of its own: n requests take n mean gaps
    whole = span * len(arrivals_s) / (len(arrivals_s) - 1)
    return min(whole, target) if whole < target else span / max(1, round(span / target))


def picked(of: Sequence[T], mine: Sequence[int]) -> list[T]:
    """Values of some requests."""
    return [of[i] for i in mine]


def shares(trace: Trace, copies: int) -> list[list[int]]:
    """Give the requests to the replicas in turn, a chat always to the same."""
    n = len(trace.inputs)
    if not trace.sessions:
        return [list(range(copy, n, copies)) for copy in range(copies)]
    place: dict[str | None, int] = {}
    out: list[list[int]] = [[] for _ in range(copies)]
    for i, chat in enumerate(trace.sessions):
        out[i % copies if chat is None else place.setdefault(chat, len(place) % copies)].append(i)
    return out


def hits_of(service: Service, trace: Trace, mine: Sequence[int]) -> list[int]:
    """Prompt tokens found in the cache of one replica, from its requests and its room."""
    room, inputs = service.scheduler.cache_tokens, picked(trace.inputs, mine)
    if trace.blocks:
        return block_hits(picked(trace.blocks, mine), inputs, MOONCAKE_BLOCK, room)
    if trace.sessions:
        outputs = picked(trace.outputs, mine)
        return session_hits(picked(trace.sessions, mine), inputs, outputs, room)
    return []


def whole_trace(
    service: Service, trace: Trace, copies: int, prefix_frac: float
) -> tuple[LoadResult, float]:
    """Simulate every request, given to the replicas in turn; and the share of prompts cached.

    A chat stays on its replica.
    """
    n = len(trace.inputs)
    merged = Simulated([0.0] * n, [math.nan] * n, [math.nan] * n, list(trace.inputs), [1] * n)
    progress, done, cached = Progress(), 0, 0.0
    for mine in filter(None, shares(trace, copies)):
        hits, inputs = hits_of(service, trace, mine), picked(trace.inputs, mine)
        cached += sum(hits) if hits else prefix_frac * sum(inputs)
        arrivals = picked(trace.arrivals_s, mine)
        traffic = Traffic(inputs, picked(trace.outputs, mine), arrivals, 0, prefix_frac, hits)
        base = done
        one = simulate(
            service.table,
            service.scheduler,
            traffic,
            lambda k, base=base: progress((base + k) / n),  # type: ignore[misc]
        )
        done += len(mine)
        for k, i in enumerate(mine):
            merged.arrival_s[i], merged.outputs[i] = one.arrival_s[k], one.outputs[k]
            merged.first_s[i], merged.end_s[i] = one.first_s[k], one.end_s[k]
        merged.n_preempted += one.n_preempted
        merged.n_refused += one.n_refused
        merged.busy_s += one.busy_s
        merged.sequence_s += one.sequence_s
        merged.most_sequences = max(merged.most_sequences, one.most_sequences)
    progress.clear()
    return summarise(merged), cached / sum(trace.inputs)
