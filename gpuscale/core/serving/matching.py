"""Prefill and decode pools matched by rate; speed of a user against speed of a GPU.

Zhong et al. 2024 (DistServe, arXiv:2401.09670), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from gpuscale.core.records import dataclass
from gpuscale.core.serving.capacity import Limits
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.layouts import layout_text
from gpuscale.core.serving.service import Service

KEPT = 3
"""Layouts of each pool that are combined, by their rate a GPU."""

SPARE = 1.05
"""Rate that pools are matched for, over the one asked for: the formula's mean is no percentile."""

MOST_WORKERS = 512

BUSY_FRAC = 0.7
"""Use of a prefill worker at which its first token is shown: below the knee of the queue."""

MOST_DOUBLINGS = 13
"""Concurrencies of the frontier: 1 to 4,096, doubled."""

LEAST_REQUESTS = 24
"""Requests of a closed loop of the frontier, at least; four rounds where that is more."""


@dataclass(frozen=True, slots=True)
class RatedWorker:
    """One worker and the rate that it keeps within its limit."""

    service: Service
    rate_per_s: float

    @property
    def per_gpu(self) -> float:
        """Rate of a GPU. [1/s]."""
        return self.rate_per_s / self.service.n_gpus


def workers(services: Sequence[Service], ttft_s: float, tpot_s: float) -> list[RatedWorker]:
    """Workers by their rate a GPU within limits of the formula's means, best first."""
    found = [RatedWorker(s, s.most_rate(ttft_s, tpot_s)) for s in services if s.fits]
    kept = [w for w in found if w.rate_per_s > 0.0]
    return sorted(kept, key=lambda w: (-w.per_gpu, w.service.n_gpus))


def matched(
    prefills: Sequence[Service],
    decodes: Sequence[Service],
    limits: Limits,
    n_gpus: int | None,
    rate_per_s: float | None,
) -> list[PooledService]:
    """Pools in whole workers: the most that fit the GPUs, or the fewest for a rate.

    The layouts of the two pools are searched apart: the first for prompts within the limit of
    TTFT, the second for tokens within that of TPOT.

    `prefills`, `decodes`: workers of every layout. `limits`: of TTFT and TPOT. `n_gpus`: GPUs of
    both pools together. [1] `rate_per_s`: rate that is asked for; either this or `n_gpus`. [1/s]
    """
    ttft_s = limits.ttft.at_most_s if limits.ttft else math.inf
    tpot_s = limits.tpot.at_most_s if limits.tpot else math.inf
    first = workers(prefills, ttft_s, math.inf)[:KEPT]
    second = workers(decodes, math.inf, tpot_s)[:KEPT]
    found: list[tuple[float, PooledService]] = []
    for read in first:
        for made in second:
            for n_read, n_made in _counts(read, made, n_gpus, rate_per_s):
                rate = min(n_read * read.rate_per_s, n_made * made.rate_per_s)
                pools = PooledService(read.service, n_read, made.service, n_made)
                found.append((rate / pools.n_gpus, pools))
    found.sort(key=lambda one: -one[0])
    return [pools for _, pools in found[:KEPT]]


def _counts(
    read: RatedWorker, made: RatedWorker, n_gpus: int | None, rate_per_s: float | None
) -> list[tuple[int, int]]:
    """Numbers of workers worth trying."""
    if n_gpus is None:
        if rate_per_s is None:
            return []
        wanted = SPARE * rate_per_s
        both = math.ceil(wanted / read.rate_per_s), math.ceil(wanted / made.rate_per_s)
        return [both] if max(both) <= MOST_WORKERS else []
    best: tuple[float, int, int] | None = None
    for n_made in range(1, min(MOST_WORKERS, n_gpus // made.service.n_gpus) + 1):
        n_read = (n_gpus - n_made * made.service.n_gpus) // read.service.n_gpus
        if n_read < 1:
            break
        rate = min(n_read * read.rate_per_s, n_made * made.rate_per_s)
        enough = max(1, math.ceil(rate / read.rate_per_s - 1e-9))
        if best is None or rate > best[0]:
            best = (rate, enough, n_made)
    return [best[1:]] if best else []


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """One way to serve: speed of a user and of a GPU."""

    kind: str  # aggregated, disaggregated
    layout: str
    engine: str
    weights: str
    concurrency: int  # of a replica, or of a decode worker
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float  # output
    ttft_s: float  # mean
    tpot_s: float


def loops(most: float) -> list[int]:
    """Concurrencies 1, 2, 4 ... up to what has room.

    >>> loops(20)
    [1, 2, 4, 8, 16]
    """
    return [2**i for i in range(MOST_DOUBLINGS) if 2**i <= max(1.0, most)]


def aggregated_points(service: Service, engine: str, weights: str) -> list[ServingPoint]:
    """Simulate closed loops of a replica."""
    label, found = layout_text(service.replica), list[ServingPoint]()
    point = partial(ServingPoint, "aggregated", label, engine, weights)
    for c in loops(service.sequences_with_room):
        load = service.closed(c, max(LEAST_REQUESTS, 4 * c))
        if load.tpot.mean_s <= 0.0:
            continue
        per_gpu, tpot_s = load.output_tokens_per_s / service.n_gpus, load.tpot.mean_s
        found.append(point(c, 1.0 / tpot_s, per_gpu, load.ttft.mean_s, tpot_s))
    return found


def disaggregated_points(
    prefill: RatedWorker, decode: Service, engine: str, weights: str
) -> list[ServingPoint]:
    """Decode workers beside as much of a prefill worker as their rate needs."""
    more, found = max(1.0, decode.demand.outputs.mean - 1.0), list[ServingPoint]()
    read, gives = prefill.service, decode.scheduler.tokens_per_pass
    label = f"{layout_text(read.replica)} read, {layout_text(decode.replica)} decode"
    point = partial(ServingPoint, "disaggregated", label, engine, weights)
    for c in loops(decode.sequences_with_room):
        tpot_s = decode.pass_s(c) / gives
        rate = c / (more * tpot_s)
        gpus = decode.n_gpus + rate / prefill.per_gpu
        steady = read.steady(BUSY_FRAC * prefill.rate_per_s)
        per_gpu = rate * decode.demand.outputs.mean / gpus
        found.append(point(c, 1.0 / tpot_s, per_gpu, steady.ttft_s + tpot_s, tpot_s))
    return found


def frontier(points: Sequence[ServingPoint]) -> list[ServingPoint]:
    """Points that no other beats in both speeds, fastest user first.

    >>> p = [ServingPoint("", "", "", "", 1, u, g, 0.0, 0.0) for u, g in ((9, 1), (5, 5), (4, 4))]
    >>> [x.tokens_per_s_per_user for x in frontier(p)]
    [9, 5]
    """
    kept: list[ServingPoint] = []
    best = 0.0
    for one in sorted(points, key=lambda p: (-p.tokens_per_s_per_user, -p.tokens_per_s_per_gpu)):
        if one.tokens_per_s_per_gpu > best:
            kept.append(one)
            best = one.tokens_per_s_per_gpu
    return kept
