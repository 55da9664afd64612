"""The answer for a traffic trace: replicas over time, and the whole trace simulated at the peak."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.progress import Progress
from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve.blocks import figure, inputs_of, limits_text, ms
from gpuscale.answers.serve.launch import launch_lines
from gpuscale.answers.serve.measured import price_of
from gpuscale.core.serving.choose import Found, Wanted, choose
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.percentiles import Latency, LoadResult, summarise
from gpuscale.core.serving.scaling import Scaled, windows_of
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.service import Service
from gpuscale.core.serving.simulator import simulate
from gpuscale.core.serving.traffic import Lengths, Traffic
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Column, Document, Facts, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.io.traces import Trace

SAMPLE = 3_000
"""Requests of a trace that stand for its lengths."""

MOST_WINDOWS = 288
SHOWN_WINDOWS = 24
LEAST_WIDTH_S = 60.0


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
    window_s: float
    windows: tuple[WindowRow, ...]
    launch: tuple[str, ...]


def trace_document(asked: Serve) -> Document:
    """Answer for a trace."""
    from gpuscale.io.traces import read_trace

    trace = read_trace(asked.trace or "-")
    case = cases.case_of(asked)
    every = max(1, len(trace.inputs) // SAMPLE)
    demand = replace(
        case.demand,
        inputs=Lengths("sampled", values=tuple(trace.inputs[::every])),
        outputs=Lengths("sampled", values=tuple(trace.outputs[::every])),
        prefix_frac=asked.prefix_hit or trace.prefix_frac,
    )
    case = replace(case, demand=demand, notes=(*case.notes, *trace.notes))
    width = max(LEAST_WIDTH_S, trace.arrivals_s[-1] / MOST_WINDOWS)
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
    load = whole_trace(best.candidate.what, trace, copies, demand.prefix_frac)
    missed = case.limits.missed(load)
    result = _answer(asked, case, best, scaled, (trace, load, copies, not missed))
    return Document(
        "serve",
        inputs_of(asked, case),
        result,
        _blocks(case, result, missed),
        warnings=(*case.loaded.warnings, *case.notes),
        answered_no=bool(missed),
        csv_table=_table(result.windows),
    )


def whole_trace(service: Service, trace: Trace, copies: int, prefix_frac: float) -> LoadResult:
    """Simulate every request, given to the replicas in turn."""
    n = len(trace.inputs)
    merged = Simulated([0.0] * n, [math.nan] * n, [math.nan] * n, list(trace.inputs), [1] * n)
    progress, done = Progress(), 0
    for copy in range(copies):
        mine = slice(copy, n, copies)
        traffic = Traffic(
            trace.inputs[mine], trace.outputs[mine], trace.arrivals_s[mine], 0, prefix_frac
        )
        if not traffic.inputs:
            continue
        base = done
        one = simulate(
            service.table,
            service.scheduler,
            traffic,
            lambda k, base=base: progress((base + k) / n),  # type: ignore[misc]
        )
        done += len(traffic.inputs)
        merged.arrival_s[mine], merged.outputs[mine] = one.arrival_s, one.outputs
        merged.first_s[mine], merged.end_s[mine] = one.first_s, one.end_s
        merged.n_preempted += one.n_preempted
        merged.n_refused += one.n_refused
        merged.busy_s += one.busy_s
        merged.sequence_s += one.sequence_s
        merged.most_sequences = max(merged.most_sequences, one.most_sequences)
    progress.clear()
    return summarise(merged)


def _answer(
    asked: Serve,
    case: cases.Case,
    best: Found,
    scaled: Scaled,
    simulated: tuple[Trace, LoadResult, int, bool],
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
