"""The serving answer as a document."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpuscale.answers.money import bill_of
from gpuscale.answers.saved import told
from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve import measured
from gpuscale.answers.serve.blocks import details_of, head, inputs_of
from gpuscale.answers.serve.case import ServeCase
from gpuscale.answers.serve.helps import version_decides
from gpuscale.answers.serve.launch import as_it_comes, benchmark_line, launch_lines
from gpuscale.answers.serve.no_room import settled
from gpuscale.answers.serve.records import PoolLine, ServeAnswer, Served, ServeRow, terms_of
from gpuscale.answers.serve.summary import age_text, habits_line, serve_summary, taken_of
from gpuscale.core.records import fields, replace
from gpuscale.core.run.bill import Bill, usd_per_million_tokens
from gpuscale.core.run.time import SECONDS_PER_HOUR
from gpuscale.core.serving.choose import Candidate, Choice, FoundReplica, Wanted, choose
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.layouts import layout_text
from gpuscale.core.serving.percentiles import Latency, LoadResult
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve

ROWS = 6
"""Layouts in the table."""


def serve_document(asked: Serve) -> Document:
    """Answer a serving question."""
    kinds = ("rate", "concurrency", "burst", "trace", "day")
    loads = [n for n in kinds if getattr(asked, n) is not None]
    if len(loads) > 1 and set(loads) not in ({"rate", "trace"}, {"rate", "day"}):
        raise GpuscaleError(
            f"give one kind of load, not --{loads[0]} and --{loads[1]}",
            "--rate at random, --concurrency a closed loop, --burst all at once, --trace a file",
        )
    if asked.trace is not None or asked.day is not None:
        from gpuscale.answers.serve.trace import day_document, trace_document

        return trace_document(asked) if asked.trace is not None else day_document(asked)
    if asked.pareto:
        from gpuscale.answers.serve.pareto import pareto_document

        return pareto_document(asked)
    if "," in asked.where:
        return _several(asked)
    case, wanted, choice = settled(asked)
    if not choice.found and choice.no_room:
        from gpuscale.answers.serve.no_room import no_room_document

        return no_room_document(asked, case, choice.no_room)
    return _document(asked, case, wanted, choice)


def _several(asked: Serve) -> Document:
    """Compare kinds of GPUs: the fewest, or the cheapest where the objective is cost."""
    names = filter(None, (part.strip() for part in asked.where.split(",")))
    one = {name: replace(asked, cluster=name, gpu=None) for name in names}
    known = {name: cases.case_of(a) for name, a in one.items()}
    found, owner = [], {}
    for name, case in known.items():
        usd = measured.price_of(asked, case).usd_per_gpu_hour if asked.objective == "cost" else None
        if asked.objective == "cost" and usd is None:
            raise GpuscaleError(f"no price of {case.loaded.gpu.name} is known", "give --price")
        mine = cases.candidates(one[name], case)
        for c in mine if asked.gpus or _loaded(asked) else _smallest(mine):
            label = f"{case.loaded.gpu.name}: {c.label}"
            found.append(replace(c, label=label, usd_per_gpu_hour=usd))
            owner[label] = case
    case = next(iter(known.values()))
    wanted = replace(cases.wanted_of(asked, case, found), n_gpus=asked.gpus)
    if all(not c.what.fits for c in found):
        from gpuscale.answers.serve.no_room import no_room_document

        return no_room_document(asked, case, found)
    choice = choose(found, wanted, asked.seed)
    best = choice.best
    return _document(asked, owner[best.candidate.label] if best else case, wanted, choice)


def _loaded(asked: Serve) -> bool:
    return bool(asked.rate or asked.concurrency or asked.burst)


def _smallest(mine: list[Candidate]) -> list[Candidate]:
    """Candidates of as few GPUs of a kind as hold the model; all where none does."""
    fewest = min((c.what.n_gpus for c in mine if c.what.fits), default=0)
    return [c for c in mine if c.what.n_gpus == fewest] or mine


def _document(asked: Serve, case: ServeCase, wanted: Wanted, choice: Choice) -> Document:
    price = measured.price_of(asked, case)
    if choice.best is None:
        raise GpuscaleError("no replica is as small as the GPUs given", "give more with --gpus")
    best = measured.confirmed(choice.best, wanted)
    choice = replace(choice, found=(best, *choice.found[1:]))
    rows: list[ServeRow] = []
    shown: LoadResult | None = None
    for found in choice.found[:ROWS]:
        n = measured.FINAL_REQUESTS if found is best else 3_000
        row, load = measured.row_of(found, wanted, price, case.loaded.gpu.tdp_w, n)
        rows.append(row)
        shown = load if found is best else shown
    result = _answer(asked, case, wanted, choice, (best, rows, shown, price))
    said = head(case, wanted, choice, result)
    if edge := measured.at_the_edge(case, best.candidate.what):
        result = replace(result, fits=False, meets=False)
        said = f"{edge} {said}"
    elif own := as_it_comes(asked, case, best):
        bare = not (asked.input or _loaded(asked) or asked.ttft or asked.tpot)
        said = f"{own} {said}" if bare else f"{said} {own}"
        if bare:  # what is asked is whether it runs as it comes
            result = replace(result, fits=False, meets=False)
    points = serve_summary(asked, case, best, said, result)
    return Document.layered(
        "serve",
        inputs_of(asked, case),
        result,
        points,
        details_of(points, case, wanted, choice, result, price),
        warnings=(*case.loaded.warnings, *case.notes),
        answered_no=not result.meets,
        terms=terms_of(case, best, result, shown),
        pictures=lambda: load_charts(case, best, wanted) if best.copies else [],
    )


def _bill(asked: Serve, case: ServeCase, row: ServeRow, usd: float | None) -> Bill | None:
    """Bill of an hour at the rate of the best layout; none where nothing is served."""
    if not row.n_gpus or row.total_tokens_per_s is None:
        return None
    tokens = row.total_tokens_per_s * SECONDS_PER_HOUR
    cluster, hour = case.loaded.cluster, SECONDS_PER_HOUR
    return bill_of(asked, cluster, hour, row.n_gpus, given=usd, tokens=tokens)


def _times_s(name: str, found: Latency | None, width: float) -> dict[str, Any]:
    """Mean, percentiles and 80 % interval of a latency, as the answer names them. [s]."""
    keys = ("mean", "p50", "p95", "p99", "low", "high")
    if found is None:
        return {f"{name}_{key}_s": None for key in keys}
    low, high = found.mean_s / math.exp(width), found.mean_s * math.exp(width)
    values = (found.mean_s, found.p50_s, found.p95_s, found.p99_s, low, high)
    return {f"{name}_{key}_s": value for key, value in zip(keys, values, strict=True)}


def _answer(
    asked: Serve,
    case: ServeCase,
    wanted: Wanted,
    choice: Choice,
    shown: tuple[FoundReplica, list[ServeRow], LoadResult | None, measured.Price],
) -> ServeAnswer:
    best, rows, load, price = shown
    what, row = best.candidate.what, rows[0]
    service = what.decode if isinstance(what, PooledService) else what
    replica = None if isinstance(what, PooledService) else service.replica
    alone = None if isinstance(what, PooledService) or asked.only else service.closed(1, 1)
    gathers = bool(replica and replica.dp_attention > 1) * service.site.software.gather_passes
    ttft_width, tpot_width = measured.widths(case, best, wanted)
    limited = wanted.limits.ttft is not None or wanted.limits.tpot is not None
    closed = wanted.concurrency is not None or wanted.burst is not None
    meets = row.verdict == "meets" if limited else best.copies > 0 and load is not None
    return ServeAnswer(
        meets=meets,
        fits=True,
        engine_settings=habits_line(case, case.engine_of(row.engine)),
        as_it_comes=age_text(case, case.engine_of(row.engine)),
        **{f.name: getattr(row, f.name) for f in fields(Served)},
        layout=replica,
        peak_bytes=service.room.peak_bytes,
        capacity_bytes=service.room.usable_bytes,
        decides=version_decides(asked, case, best),
        taken=taken_of(asked, row, gathers),
        said_by=told(asked),
        gather_passes=gathers,
        kv=service.replica.kv_format,
        rate_per_s=wanted.rate_per_s,
        binding=best.binding,
        **_times_s("ttft", row.ttft, ttft_width),
        **_times_s("tpot", row.tpot, tpot_width),
        end_to_end_mean_s=load.end_to_end.mean_s if load else None,
        alone_ttft_s=alone.ttft.mean_s if alone else None,
        alone_tpot_s=alone.tpot.mean_s if alone else None,
        ttft_error_frac=load.ttft_error_frac if load else None,
        tpot_error_frac=load.tpot_error_frac if load else None,
        time_s=load.time_s if load and wanted.rate_per_s is None and closed else None,
        usd_per_gpu_hour=price.usd_per_gpu_hour,
        bill=_bill(asked, case, row, measured.given_price(asked)),
        kv_tokens=measured.kv_tokens(service),
        sequences_with_room=service.sequences_with_room,
        n_requests=load.n_requests if load else 0,
        n_preempted=load.n_preempted if load else 0,
        memory=service.room,
        pools=_pool_lines(what, row, price.usd_per_gpu_hour),
        rows=tuple(rows),
        no_room=tuple(c.label for c in choice.no_room),
        launch=launch_lines(asked, case, best),
        benchmark=benchmark_line(asked, case, best),
    )


def _pool_lines(what: Any, row: ServeRow, usd: float | None) -> tuple[PoolLine, ...]:
    """Pools with what each could take; none of an aggregated service."""
    if not isinstance(what, PooledService):
        return ()
    lines = []
    rate = row.requests_per_s or row.at_most_per_s or 0.0
    for role, workers, service in (
        ("prefill", what.n_prefill, what.prefill),
        ("decode", what.n_decode, what.decode),
    ):
        most = workers * service.most_rate()
        idle = max(0.0, 1.0 - rate / max(1, row.replicas) / most) if most > 0.0 else 0.0
        gpus = workers * service.n_gpus
        each = service.demand.inputs if role == "prefill" else service.demand.outputs
        made = most * each.mean
        alone = usd_per_million_tokens(usd, gpus, made) if usd and made else None
        lines.append(
            PoolLine(
                role=role,
                workers=workers,
                label=layout_text(service.replica),
                n_gpus=gpus,
                at_most_per_s=most,
                idle_frac=idle,
                tokens_per_s_per_gpu=made / gpus,
                usd_per_million_tokens=alone,
            )
        )
    return tuple(lines)


SHARES = (0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Of the highest rate, at which the load is simulated for a picture."""

REQUESTS = 1_500


def load_charts(case: ServeCase, found: FoundReplica, wanted: Wanted) -> list[Any]:
    """TTFT and TPOT of the best layout, p50 and p95, over its rate or over its users."""
    from gpuscale.core.serving.matching import loops
    from gpuscale.render.chart import Axis, Lines, Mark, Series

    what, closed = found.candidate.what, wanted.concurrency is not None
    if closed:
        users = loops(max(what.sequences_with_room, wanted.concurrency or 1))
        runs = [(float(n * found.copies), what.closed(n, 4 * n)) for n in users]
    else:
        most = found.at_most_per_s
        runs = [(s * most, what.open(s * most / found.copies, REQUESTS)) for s in SHARES]
    over = Axis("requests in flight", log=True) if closed else Axis("requests/s")
    asked = wanted.concurrency if closed else wanted.rate_per_s
    charts = []
    for name, limit in (("ttft", wanted.limits.ttft), ("tpot", wanted.limits.tpot)):
        marks = [Mark("x", float(asked), "asked for")] if asked else []
        if limit is not None:
            marks.append(Mark("y", limit.at_most_s, f"limit of {limit.statistic}"))
        series = [Series(s, _line(runs, name, s)) for s in ("p50", "p95")]
        title = f"{name.upper()} of {case.model.name}, {found.copies} x ({found.candidate.label})"
        charts.append(Lines(name, title, over, Axis(name.upper(), "s", log=True), series, marks))
    return charts


def _line(
    runs: list[tuple[float, LoadResult]], name: str, statistic: str
) -> list[tuple[float, float, str]]:
    points = [(at, getattr(load, name).at(statistic), "") for at, load in runs]
    return [point for point in points if point[1] > 0.0]
