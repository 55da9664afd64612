"""Tokens a second of a user against tokens a second of a GPU, aggregated beside disaggregated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve.blocks import figure, inputs_of, ms
from gpuscale.answers.serve.measured import at_the_edge
from gpuscale.core.records import dataclass
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.matching import (
    ServingPoint,
    aggregated_points,
    disaggregated_points,
    frontier,
    workers,
)
from gpuscale.core.serving.service import Service
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class ParetoAnswer:
    """Points that no other beats, fastest user first; and all points."""

    frontier: tuple[ServingPoint, ...]
    points: tuple[ServingPoint, ...]


def pareto_document(asked: Serve) -> Document:
    """Answer with the frontier."""
    case = cases.case_of(asked)
    candidates = cases.candidates(asked, case)
    services: dict[tuple[str, str], list[Service]] = {}
    most = INFINITE if asked.gpus is None else asked.gpus
    fitting = [c for c in candidates if c.what.fits and c.what.n_gpus <= most]
    held = [c for c in fitting if not c.what.context_lacks_bytes]
    for c in held or fitting:
        if isinstance(c.what, PooledService):
            raise GpuscaleError("--pareto searches the pools itself", "leave --disagg out, or auto")
        services.setdefault((c.engine, c.weights), []).append(c.what)
    if not services:
        from gpuscale.answers.serve.no_room import no_room_document

        return no_room_document(asked, case, candidates)
    edge = "" if held else at_the_edge(case, fitting[0].what)
    points: list[ServingPoint] = []
    for (engine, weights), replicas in services.items():
        for service in replicas:
            points += aggregated_points(service, engine, weights)
        if engine == "llama.cpp" or (asked.gpus or 2) < 2:
            continue
        reads, makes = cases.pool_workers(case, replicas)
        found = workers(reads, INFINITE, INFINITE)
        if found:
            for decode in makes:
                points += disaggregated_points(found[0], decode, engine, weights)
    best = frontier(points)
    table = _table(best)
    return Document(
        "serve",
        inputs_of(asked, case),
        ParetoAnswer(tuple(best), tuple(points)),
        [
            *([Text(edge)] if edge else []),
            Text(
                f"{case.model.name} on {case.loaded.gpu.name}: speed of a user against that of a "
                f"GPU, {len(best)} of {len(points)} points that no other beats."
            ),
            table,
        ],
        warnings=(*case.loaded.warnings, *case.notes),
        answered_no=bool(edge),
        csv_table=_table(points),
        pictures=lambda: [_chart(case, points)],
    )


def _table(points: Any) -> Table:
    several = len({(p.engine, p.weights) for p in points}) > 1
    columns = [
        Column("tokens_per_s_per_user", "tok/s/user", figure),
        Column("tokens_per_s_per_gpu", "tok/s/GPU", figure),
        Column("kind", "kind", right=False),
        Column("layout", "layout", right=False),
        Column("concurrency", "in flight", lambda v: f"{v:,}"),
        Column("ttft_s", "TTFT ms", ms),
        Column("tpot_s", "TPOT ms", ms),
    ]
    if several:
        columns += [Column("engine", "engine", right=False), Column("weights", "", right=False)]
    return Table.of(columns, points)


def _chart(case: cases.ServeCase, points: list[ServingPoint]) -> Any:
    """Both kinds as lines of their own frontiers."""
    from gpuscale.render.chart import Axis, Lines, Series

    series = []
    for kind in ("aggregated", "disaggregated"):
        mine = frontier([p for p in points if p.kind == kind])
        if mine:
            line = [
                (p.tokens_per_s_per_user, p.tokens_per_s_per_gpu, p.layout) for p in reversed(mine)
            ]
            series.append(Series(kind, line))
    return Lines(
        key="pareto",
        title=f"{case.model.name} on {case.loaded.gpu.name}",
        x=Axis("tokens/s of a user"),
        y=Axis("output tokens/s of a GPU"),
        series=series,
    )
