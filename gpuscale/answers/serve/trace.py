"""The answer for a traffic trace: replicas over time, and the whole trace simulated at the peak."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve.blocks import figure, inputs_of, limits_text, ms
from gpuscale.answers.serve.launch import launch_lines
from gpuscale.answers.serve.measured import at_the_edge, price_of
from gpuscale.answers.serve.replay import timed_by, whole_trace, width_of
from gpuscale.core.records import dataclass, made_of, replace
from gpuscale.core.serving.capacity import REQUESTS
from gpuscale.core.serving.choose import FoundReplica, Wanted, choose
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.percentiles import Latency, LoadResult
from gpuscale.core.serving.scaling import Scaled, scaled_of, windows_of
from gpuscale.core.serving.service import Service
from gpuscale.core.serving.traffic import Lengths
from gpuscale.errors import GpuscaleError
from gpuscale.io.traces import DAY_S, read_day, read_trace
from gpuscale.render.document import Column, Document, Facts, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve

SAMPLE = 3_000
"""Requests of a trace that stand for its lengths."""

SHOWN_WINDOWS = 24
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
    label: str  # its layout in words
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
    n_starts: int  # of replicas, planned ahead
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
    best = _best(asked, case, peak)
    if isinstance(best, Document):
        return best
    service, each = best.candidate.what, best.at_most_per_s / best.copies
    assert isinstance(service, Service)
    scaled = windows_of(trace.arrivals_s, each, asked.scale_lag, width)
    copies = scaled.peak if asked.gpus is None else best.copies
    load, hit = whole_trace(service, trace, copies, demand.prefix_frac)
    for _ in range(MORE_COPIES if asked.gpus is None else 0):
        if not case.limits.missed(load):
            break
        copies = math.ceil(1.2 * copies)
        load, hit = whole_trace(service, trace, copies, demand.prefix_frac)
    missed = case.limits.missed(load)
    if not missed and copies < scaled.peak and load.ttft.p99_s > scaled.width_s:
        missed = ("the traffic, its queue grows",)
    span = trace.arrivals_s[-1], len(trace.inputs)
    return _document(asked, case, best, scaled, Played(*span, load, copies, missed, hit))


def day_document(asked: Serve) -> Document:
    """Answer for a day's curve: its busiest part simulated, the others by their rate."""
    rates = read_day(asked.day or "", asked.rate)
    case, width = cases.case_of(asked), DAY_S / len(rates)
    best = _best(asked, case, max(rates))
    if isinstance(best, Document):
        return best
    each = best.at_most_per_s / best.copies
    scaled = scaled_of([rate * width for rate in rates], each, asked.scale_lag, width)
    copies = scaled.peak if asked.gpus is None else best.copies
    load = best.candidate.what.open(max(rates) / copies, REQUESTS, asked.seed)
    missed = () if copies >= scaled.peak else best.missed
    played = Played(DAY_S, round(sum(rates) * width), load, copies, missed, asked.prefix_hit)
    return _document(asked, case, best, scaled, played)


@dataclass(frozen=True, slots=True)
class Played:
    """What a traffic meets on its replicas."""

    duration_s: float
    n_requests: int
    load: LoadResult
    copies: int
    missed: tuple[str, ...]
    hit_frac: float


def _best(asked: Serve, case: cases.ServeCase, peak_per_s: float) -> FoundReplica | Document:
    """Layout for the busiest part of a traffic, or the answer that none has room."""
    found = cases.candidates(asked, case)
    if asked.trace and any(isinstance(c.what, PooledService) for c in found):
        raise GpuscaleError("--trace takes replicas, no pools", "give --rate with --disagg")
    if all(not c.what.fits for c in found):
        from gpuscale.answers.serve.no_room import no_room_document

        return no_room_document(asked, case, found)
    best = choose(found, Wanted(case.limits, peak_per_s, asked.gpus), asked.seed).best
    if best is None or best.at_most_per_s <= 0.0:
        raise GpuscaleError(
            f"no layout keeps {limits_text(Wanted(case.limits)) or 'up'} even without load",
            "see `gpuscale serve` with --rate for the fastest that is possible",
        )
    return best


def _document(
    asked: Serve, case: cases.ServeCase, best: FoundReplica, scaled: Scaled, played: Played
) -> Document:
    edge = at_the_edge(case, best.candidate.what)
    result = _answer(asked, case, best, scaled, played, starts=not edge)
    return Document(
        "serve",
        inputs_of(asked, case),
        result,
        [*([Text(edge)] if edge else []), *_blocks(case, result, played.missed)],
        warnings=(*case.loaded.warnings, *case.notes),
        answered_no=not result.meets,
        csv_table=_table(result.windows),
        pictures=lambda: [_chart(case, result)],
    )


def _chart(case: cases.ServeCase, r: TraceAnswer) -> Any:
    """Rate of the traffic beside what the replicas take, window by window."""
    from gpuscale.render.chart import Axis, Lines, Series

    ends = [(w, t) for w in r.windows for t in (w.start_s, w.start_s + r.window_s)]
    kinds = (
        ("requests/s", [(t, w.rate_per_s, "") for w, t in ends]),
        ("replicas planned take", [(t, w.replicas * r.at_most_per_s, "") for w, t in ends]),
        (
            "replicas at the peak take",
            [(t, r.replicas_peak * r.at_most_per_s, "") for _, t in ends],
        ),
    )
    return Lines(
        key="traffic",
        title=f"{case.model.name} on {case.loaded.gpu.name}: traffic and replicas",
        x=Axis("time", "s"),
        y=Axis("requests/s"),
        series=[Series(name, points, markers=False) for name, points in kinds],
    )


def _answer(
    asked: Serve,
    case: cases.ServeCase,
    best: FoundReplica,
    scaled: Scaled,
    played: Played,
    *,
    starts: bool,
) -> TraceAnswer:
    load, copies = played.load, played.copies
    gpus = best.candidate.what.n_gpus
    price = price_of(asked, case).usd_per_gpu_hour
    fixed = copies * gpus * scaled.width_s * len(scaled.windows) / 3600.0
    planned = min(scaled.planned_replica_s * gpus / 3600.0, fixed)
    return made_of(
        TraceAnswer,
        best.candidate,
        scaled,
        played,
        load,
        meets=starts and not played.missed,
        mean_rate_per_s=played.n_requests / max(played.duration_s, scaled.width_s),
        peak_rate_per_s=max(w.rate_per_s for w in scaled.windows),
        at_most_per_s=best.at_most_per_s / best.copies,
        replicas_peak=copies,
        replicas_mean=scaled.mean,
        n_gpus=copies * gpus,
        gpu_hours_fixed=fixed,
        gpu_hours_scaled=planned,
        usd_fixed=None if price is None else price * fixed,
        usd_scaled=None if price is None else price * planned,
        prefix_hit_frac=played.hit_frac,
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


def _times(found: Latency) -> str:
    return f"{ms(found.p50_s)}/{ms(found.p95_s)}/{ms(found.p99_s)} ms"


def _blocks(case: cases.ServeCase, r: TraceAnswer, missed: tuple[str, ...]) -> list[Any]:
    """Sentence, facts, and windows as a table (CSV has all of them)."""
    limits = limits_text(Wanted(case.limits))
    kept = f", within {limits}" if limits else ""
    if missed:
        kept = f", misses {' and '.join(missed)}"
    step = max(1, math.ceil(len(r.windows) / SHOWN_WINDOWS))
    money = "" if r.usd_fixed is None else f", {r.usd_fixed:,.0f} USD"
    less = "" if r.usd_scaled is None else f", {r.usd_scaled:,.0f} USD"
    fixed, ahead = (f"{figure(h)} GPU-hours" for h in (r.gpu_hours_fixed, r.gpu_hours_scaled))
    over = f"{figure(r.mean_rate_per_s)}/s mean over {figure(r.duration_s)} s, "
    over += f"{figure(r.peak_rate_per_s)}/s in the busiest window"
    most = f"{r.label}, at most{' within ' + limits if limits else ''}"
    hit = f"{100 * r.prefix_hit_frac:.0f} % of the prompt tokens"
    late = "requests that meet too few replicas"
    facts = [
        ("requests", f"{r.n_requests:,}", over),
        ("one replica", f"{figure(r.at_most_per_s)}/s", most),
        ("TTFT p50/p95/p99", _times(r.ttft), "as simulated"),
        *([("prefix cache", hit, "found in it")] if r.prefix_hit_frac else ()),
        ("TPOT p50/p95/p99", _times(r.tpot), ""),
        ("always the peak", fixed, f"{r.replicas_peak} replicas{money}"),
        ("scaled ahead", ahead, f"{r.replicas_mean:.1f} replicas mean, {r.n_starts} starts{less}"),
        ("scaled on demand", f"{100 * r.late_frac:.1f} % late", late),
    ]
    return [
        Text(
            f"{case.model.name}, {r.weights} on {case.loaded.gpu.name}, {r.engine}: "
            f"{r.replicas_peak} x ({r.label}), {r.n_gpus:,} GPUs at the peak{kept}."
        ),
        Facts(facts),
        _table(r.windows[::step]),
        Text("\n".join(r.launch)),
    ]
