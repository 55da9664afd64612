"""Latencies of a simulated load: mean, percentiles, and how far chance moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuscale.core.records import dataclass
from gpuscale.core.serving.scheduler import Simulated

BATCHES = 10
"""Batches in order of arrival whose spread gives the sampling error."""

WARM_UP_FRAC = 0.1
"""Of the requests of an open load that are not counted: the system starts empty."""

SEEN_FRAC = 1.0 / 16.0
"""Least part of a mean answer over which the time of a token is looked at."""

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Percentiles of a latency that are kept."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Distribution of a latency over requests. [s]."""

    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float

    def at(self, statistic: str) -> float:
        """Value of ``mean`` or of a percentile, ``p50`` to ``p99``. [s]."""
        value: float = getattr(self, f"{statistic}_s")
        return value


STATISTICS = ("mean", "p50", "p90", "p95", "p99")
"""What a limit can be put on."""

_NONE = Latency(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one replica delivers under a load; nothing without requests. Names are JSON keys."""

    ttft: Latency = _NONE
    tpot: Latency = _NONE
    end_to_end: Latency = _NONE
    requests_per_s: float = 0.0
    input_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    tokens_per_s_per_user: float = 0.0  # of a request in the middle
    decoding_sequences: float = 0.0  # mean while busy
    busy_frac: float = 0.0
    most_sequences: int = 0  # running at a time
    n_requests: int = 0  # counted
    n_preempted: int = 0
    n_refused: int = 0  # longer than the cache
    ttft_error_frac: float = 0.0  # of p95, one standard error
    tpot_error_frac: float = 0.0
    time_s: float = 0.0  # from the first arrival to the last token


NOTHING = LoadResult()
"""Of a service without room for one request."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Value below which a share of sorted values lies, linear between two of them.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def latency(values: Sequence[float]) -> Latency:
    """Distribution of some latencies; zeros where there are none."""
    if not values:
        return _NONE
    ordered = sorted(values)
    shares = (percentile(ordered, share) for share in SHARES.values())
    return Latency(math.fsum(ordered) / len(ordered), *shares)


def batch_error_frac(values: Sequence[float], share: float, n_batches: int = BATCHES) -> float:
    """Find the standard error of a percentile, as a fraction of it, from consecutive batches.

    Requests in a queue follow each other's waiting, so the batches are in order of arrival (batch
    means, A. Law, Simulation Modeling and Analysis, section 9.5). 0 for fewer than two a batch.
    """
    size = len(values) // n_batches
    if size < 2:
        return 0.0
    found = [percentile(sorted(values[i * size : (i + 1) * size]), share) for i in range(n_batches)]
    mean = math.fsum(found) / n_batches
    spread = math.fsum((f - mean) ** 2 for f in found) / (n_batches - 1)
    return math.sqrt(spread / n_batches) / mean if mean > 0.0 else 0.0


def summarise(run: Simulated, *, warm_up_frac: float = 0.0) -> LoadResult:
    """Sum a simulation up.

    `run`: from `simulate`. `warm_up_frac`: share of the first requests that is left out,
    `WARM_UP_FRAC` of an open load [1]. Of requests that run when time begins what they decode
    counts, and few that come end in time: what is read is then the rate, and the answers' mean time
    to a token that of a whole request.
    """
    before = run.n_running
    skipped = before + int(warm_up_frac * (len(run.arrival_s) - before))
    known = run.first_s if before else run.end_s
    kept = [i for i in range(skipped, len(run.arrival_s)) if known[i] == known[i]]
    ended, least = kept, 1.0
    if before:
        ended = [i for i, end in enumerate(run.end_s) if end == end]
        mean = sum(run.outputs[before:]) / (len(run.outputs) - before)
        least = min(SEEN_FRAC * mean, max((0.5 * run.outputs[i] for i in ended), default=1.0))
    ttft = [run.first_s[i] - run.arrival_s[i] for i in kept]
    tpot = [
        (run.end_s[i] - run.first_s[i]) / (run.outputs[i] - 1)
        for i in ended
        if run.outputs[i] > least
    ]
    of_tpot = latency(tpot)
    whole = (
        [t + of_tpot.mean_s * (run.outputs[i] - 1) for i, t in zip(kept, ttft, strict=True)]
        if before
        else [run.end_s[i] - run.arrival_s[i] for i in kept]
    )
    counted, time_s, span_s = _answered(run, skipped)
    per_s = 1.0 / span_s if span_s > 0.0 else 0.0
    return LoadResult(
        ttft=latency(ttft),
        tpot=of_tpot,
        end_to_end=latency(whole),
        requests_per_s=len(counted) * per_s,
        input_tokens_per_s=sum(run.inputs[i] for i in counted) * per_s,
        output_tokens_per_s=sum(run.outputs[i] for i in counted) * per_s,
        tokens_per_s_per_user=1.0 / of_tpot.p50_s if of_tpot.p50_s > 0.0 else 0.0,
        decoding_sequences=run.sequence_s / run.busy_s if run.busy_s > 0.0 else 0.0,
        busy_frac=min(1.0, run.busy_s / time_s) if time_s > 0.0 else 0.0,
        most_sequences=run.most_sequences,
        n_requests=len(kept),
        n_preempted=run.n_preempted,
        n_refused=run.n_refused,
        ttft_error_frac=batch_error_frac(ttft, SHARES["p95"]),
        tpot_error_frac=batch_error_frac(tpot, SHARES["p95"]),
        time_s=time_s,
    )


def _answered(run: Simulated, skipped: int) -> tuple[list[int], float, float]:
    """Find the requests whose end counts for the rate, the time of all, and that of those.

    Of an open load those that end between the first arrival that is counted and the last arrival:
    what comes after is the emptying of a system that would go on. Where requests run when time
    begins, those that are read then.
    """
    early = [math.nan] * skipped
    at = early + run.first_s[skipped:] if run.n_running else run.end_s
    done = [i for i, end in enumerate(at) if end == end]
    time_s = max((at[i] for i in done), default=0.0) - run.arrival_s[0]
    if not skipped or not done:
        return done, time_s if done else 0.0, time_s if done else 0.0
    first, last = run.arrival_s[skipped], run.arrival_s[-1]
    return [i for i in done if first < at[i] <= last], time_s, last - first
