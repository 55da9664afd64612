"""The answer for a traffic trace: replicas over time, and the whole trace simulated at the peak."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from gpuscale.answers.progress import Progress
from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve.blocks import figure, inputs_of, limits_text, ms
from gpuscale.answers.serve.launch import launch_lines
from gpuscale.answers.serve.measured import price_of
from gpuscale.core.serving.choose import Found, Wanted, choose
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.percentiles import Latency, LoadResult, summarise
from gpuscale.core.serving.prefixes import block_hits, session_hits
from gpuscale.core.serving.scaling import Scaled, windows_of
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.service import Service
from gpuscale.core.serving.simulator import simulate
from gpuscale.core.serving.traffic import Lengths, Traffic, poisson_arrivals
from gpuscale.errors import GpuscaleError
from gpuscale.io.traces import MOONCAKE_BLOCK
from gpuscale.render.document import Column, Document, Facts, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.io.traces import Trace

T = TypeVar("T")

SAMPLE = 3_000
"""Requests of a trace that stand for its lengths."""

MOST_WINDOWS = 288
SHOWN_WINDOWS = 24
LEAST_WIDTH_S = 60.0
MORE_COPIES = 6
"""Times that a number of replicas is raised where the whole trace misses the limits."""


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One window of the traffic."""

    start_s: float
    rate_per_s: float
    replicas: int  # planned ahead
    n_gpus: int


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """Replicas of a traffic over time."""

    meets: bool
    engine: str
    weights: str
    layout: str
    n_requests: int
    duration_s: float
    mean_rate_per_s: float
    peak_rate_per_s: float
    at_most_per_s: float  # of one replica
    replicas_peak: int
    replicas_mean: float
    n_gpus: int  # at the peak
    gpu_hours_fixed: float
    gpu_hours_scaled: float
    usd_fixed: float | None
    usd_scaled: float | None
    late_frac: float
    ttft: Latency
    tpot: Latency
    n_preempted: int
    n_refused: int
    prefix_hit_frac: float  # of the prompt tokens, found in the cache
    window_s: float
    windows: tuple[WindowRow, ...]
    launch: tuple[str, ...]


def trace_document(asked: Serve) -> Document:
    """Answer for a trace."""
    from gpuscale.io.traces import read_trace

    trace = timed_by(read_trace(asked.trace or "-"), asked)
    case = cases.case_of(asked)
    every = max(1, len(trace.inputs) // SAMPLE)
    demand = replace(
        case.demand,
        inputs=Lengths("sampled", values=tuple(trace.inputs[::every])),
        outputs=Lengths("sampled", values=tuple(trace.outputs[::every])),
        prefix_frac=asked.prefix_hit or trace.prefix_frac,
    )
    case = replace(case, demand=demand, notes=(*case.notes, *trace.notes))
    width = width_of(trace.arrivals_s)
    peak = max(w.rate_per_s for w in windows_of(trace.arrivals_s, 1.0, 0.0, width).windows)
    found = cases.candidates(asked, case)
    if any(isinstance(c.what, PooledService) for c in found):
        raise GpuscaleError("--trace takes replicas, no pools", "give --rate with --disagg")
    if all(not c.what.fits for c in found):
        from gpuscale.answers.serve.no_room import no_room_document

        return no_room_document(asked, case, found)
    choice = choose(found, Wanted(case.limits, peak, asked.gpus), asked.seed)
    best = choice.best
    if best is None or best.at_most_per_s <= 0.0 or isinstance(best.candidate.what, PooledService):
        raise GpuscaleError(
            f"no layout keeps {limits_text(Wanted(case.limits)) or 'up'} even without load",
            "see `gpuscale serve` with --rate for the fastest that is possible",
        )
    scaled = windows_of(trace.arrivals_s, best.at_most_per_s / best.copies, asked.scale_lag, width)
    copies = scaled.peak if asked.gpus is None else best.copies
    load, hit = whole_trace(best.candidate.what, trace, copies, demand.prefix_frac)
    missed = case.limits.missed(load)
    for _ in range(MORE_COPIES if asked.gpus is None else 0):
        if not missed:
            break
        copies = math.ceil(1.2 * copies)
        load, hit = whole_trace(best.candidate.what, trace, copies, demand.prefix_frac)
        missed = case.limits.missed(load)
    result = _answer(asked, case, best, scaled, (trace, load, copies, not missed), hit)
    return Document(
        "serve",
        inputs_of(asked, case),
        result,
        _blocks(case, result, missed),
        warnings=(*case.loaded.warnings, *case.notes),
        answered_no=bool(missed),
        csv_table=_table(result.windows),
    )


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


def _answer(
    asked: Serve,
    case: cases.Case,
    best: Found,
    scaled: Scaled,
    simulated: tuple[Trace, LoadResult, int, bool],
    hit_frac: float,
) -> TraceAnswer:
    trace, load, copies, meets = simulated
    gpus = best.candidate.what.n_gpus
    price = price_of(asked, case).usd_per_gpu_hour
    fixed = copies * gpus * scaled.width_s * len(scaled.windows) / 3600.0
    planned = min(scaled.planned_replica_s * gpus / 3600.0, fixed)
    duration = trace.arrivals_s[-1]
    return TraceAnswer(
        meets=meets,
        engine=best.candidate.engine,
        weights=best.candidate.weights,
        layout=best.candidate.label,
        n_requests=len(trace.inputs),
        duration_s=duration,
        mean_rate_per_s=len(trace.inputs) / max(duration, scaled.width_s),
        peak_rate_per_s=max(w.rate_per_s for w in scaled.windows),
        at_most_per_s=best.at_most_per_s / best.copies,
        replicas_peak=copies,
        replicas_mean=scaled.mean,
        n_gpus=copies * gpus,
        gpu_hours_fixed=fixed,
        gpu_hours_scaled=planned,
        usd_fixed=None if price is None else price * fixed,
        usd_scaled=None if price is None else price * planned,
        late_frac=scaled.late_frac,
        ttft=load.ttft,
        tpot=load.tpot,
        n_preempted=load.n_preempted,
        n_refused=load.n_refused,
        prefix_hit_frac=hit_frac,
        window_s=scaled.width_s,
        windows=tuple(
            WindowRow(w.start_s, w.rate_per_s, w.planned, w.planned * gpus) for w in scaled.windows
        ),
        launch=launch_lines(asked, case, best),
    )


def _table(windows: tuple[WindowRow, ...]) -> Table:
    columns = (
        Column("start_s", "from s", lambda v: f"{v:,.0f}"),
        Column("rate_per_s", "requests/s", figure),
        Column("replicas", "replicas", lambda v: f"{v:,}"),
        Column("n_gpus", "GPUs", lambda v: f"{v:,}"),
    )
    return Table.of(columns, windows)


def _cached(hit_frac: float) -> list[tuple[str, str, str]]:
    """Say what of the prompts was found in the cache; nothing where nothing is shared."""
    if not hit_frac:
        return []
    return [("prefix cache", f"{100 * hit_frac:.0f} % of the prompt tokens", "found in it")]


def _blocks(case: cases.Case, r: TraceAnswer, missed: tuple[str, ...]) -> list[Any]:
    """Sentence, facts, and windows as a table (CSV has all of them)."""
    limits = limits_text(Wanted(case.limits))
    kept = (
        f", {'misses ' + ' and '.join(missed) if missed else 'within ' + limits}" if limits else ""
    )
    step = max(1, math.ceil(len(r.windows) / SHOWN_WINDOWS))
    money = "" if r.usd_fixed is None else f", {r.usd_fixed:,.0f} USD"
    less = "" if r.usd_scaled is None else f", {r.usd_scaled:,.0f} USD"
    facts = [
        (
            "requests",
            f"{r.n_requests:,}",
            f"{figure(r.mean_rate_per_s)}/s mean over "
            f"{figure(r.duration_s)} s, {figure(r.peak_rate_per_s)}/s in the busiest window",
        ),
        (
            "one replica",
            f"{figure(r.at_most_per_s)}/s",
            f"{r.layout}, at most{' within ' + limits if limits else ''}",
        ),
        (
            "TTFT p50/p95/p99",
            f"{ms(r.ttft.p50_s)}/{ms(r.ttft.p95_s)}/{ms(r.ttft.p99_s)} ms",
            "every request simulated",
        ),
        *_cached(r.prefix_hit_frac),
        ("TPOT p50/p95/p99", f"{ms(r.tpot.p50_s)}/{ms(r.tpot.p95_s)}/{ms(r.tpot.p99_s)} ms", ""),
        (
            "always the peak",
            f"{figure(r.gpu_hours_fixed)} GPU-hours",
            f"{r.replicas_peak} replicas{money}",
        ),
        (
            "scaled ahead",
            f"{figure(r.gpu_hours_scaled)} GPU-hours",
            f"{r.replicas_mean:.1f} replicas mean{less}",
        ),
        (
            "scaled on demand",
            f"{100 * r.late_frac:.1f} % late",
            "requests that meet too few replicas",
        ),
    ]
    return [
        Text(
            f"{case.model.name}, {r.weights} on {case.loaded.gpu.name}, {r.engine}: "
            f"{r.replicas_peak} x ({r.layout}), {r.n_gpus:,} GPUs at the peak{kept}."
        ),
        Facts(facts),
        _table(r.windows[::step]),
        Text("\n".join(r.launch)),
    ]
