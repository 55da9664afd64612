"""Picture of a serving answer: latency against load, the limit and the load asked for drawn."""

from __future__ import annotations

from typing import Any

from gpuscale.answers.serve.case import ServeCase
from gpuscale.core.serving.choose import FoundReplica, Wanted
from gpuscale.core.serving.percentiles import LoadResult

SHARES = (0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Of the highest rate, at which the load is simulated for a picture."""

REQUESTS = 1_500


def load_charts(case: ServeCase, found: FoundReplica, wanted: Wanted) -> list[Any]:
    """TTFT and TPOT of the best layout, p50 and p95, over its rate or over its users."""
    from gpuscale.core.serving.matching import loops
    from gpuscale.render.pictures.chart import Axis, Lines, Mark, Series

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
