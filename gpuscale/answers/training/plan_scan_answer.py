"""The answer of a scan: the choice, the table, and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscale.answers.summary import chance_tone, changed
from gpuscale.answers.training.plan_answer import said_job
from gpuscale.answers.training.plan_blocks import LAYOUT, MEMORY, MFU, STEP
from gpuscale.answers.training.plan_text import (
    degrees,
    details,
    left_text,
    number,
    percent,
    seconds,
    short,
    terms_of,
)
from gpuscale.core.plan.records import ScanRow, estimate
from gpuscale.core.plan.scan import excess
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, asdict, dataclass
from gpuscale.core.verdict import said
from gpuscale.core.words import gb
from gpuscale.io.step import one_peak
from gpuscale.render.document import Bars, Block, Column, Document, Facts, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.plan_request import Request
    from gpuscale.answers.training.plan_scan import PlanScan

GAPS_NOTE = "Not every number of GPUs was tried: one that was left out might do too."


@dataclass(frozen=True, slots=True)
class ScanAnswer:
    """Best layout of every case, and the case that is chosen."""

    chosen: ScanRow | None
    meets: bool
    rows: tuple[ScanRow, ...]
    job: dict[str, object]
    job_toml: str


def wanted(request: Request) -> str:
    """Conditions in words; empty if there are none."""
    c = request.conditions
    parts = []
    if c.deadline_s is not None:
        parts.append(f"{c.deadline_s / 86400:,.4g} days")
    if c.budget_usd is not None:
        parts.append(format_si(c.budget_usd, "usd", 3))
    if c.mfu_at_least is not None:
        parts.append(f"MFU at least {percent(c.mfu_at_least)}")
    if c.max_step_s is not None:
        parts.append(f"a step of at most {seconds(c.max_step_s)}")
    return ", ".join(parts)


def _tone(r: ScanRow) -> str:
    """Tone of a case: good, near or bad, as of its plan alone."""
    return chance_tone(_chance(r)) if r.fits else "bad"


def _chance(r: ScanRow) -> float:
    return one_peak(r.peak_bytes, r.capacity_bytes, r.memory_interval_factor_80)


def headline(scan: PlanScan, rows: Sequence[ScanRow], chosen: ScanRow | None) -> str:
    """Answer in one sentence."""
    request, model = scan.request, scan.cases[0].loaded.model.name
    conditions = wanted(request)
    if chosen is None:
        last = min(rows, key=lambda r: (excess(r, request.conditions), -r.tokens_per_s))
        need = f" meets {conditions}" if conditions else " fits"
        gpus = f"{last.n_gpus:,} GPU{'s' if last.n_gpus > 1 else ''}"
        nearest = "" if len(rows) == 1 else f"the nearest of {len(rows)}, "
        return f"{model}: nothing tried{need}; {nearest}{gpus} of {last.cluster}: {last.why_not}."
    near = f" {said(_chance(chosen))}" if _tone(chosen) == "near" else ""
    what = {
        "tokens-per-dollar": "the most tokens per dollar",
        "memory-headroom": "the most memory left",
        "fewest-gpus": f"the fewest GPUs that {'may fit' if near else 'fit'}",
    }.get(request.asked.objective, "the fastest")
    if request.size_wanted in ("fewest", "most") and request.asked.objective == "step-time":
        what = f"the {request.size_wanted} GPUs"
    if scan.gaps and request.size_wanted == "fewest" and what.startswith("the fewest"):
        what = "the fewest GPUs tried"  # fewer between them may do
    goal = f" for {conditions}" if conditions else ""
    days = [f"{chosen.days:,.1f} days"] if chosen.days is not None else []
    cost = [format_si(chosen.usd, "usd", 3)] if chosen.usd is not None else []
    takes = f"{' and '.join(days + cost)}, " if days or cost else ""
    return (
        f"{model} on {chosen.n_gpus:,} GPUs of {chosen.cluster}{near}: {takes}{what}{goal} of "
        f"{len(rows)} cases; {degrees(chosen.layout)}, a step takes {seconds(chosen.step_s)}, MFU "
        f"{percent(chosen.mfu)}."
    )


def scan_table(rows: Sequence[ScanRow]) -> Table:
    """Every case; columns that say nothing are left out."""
    columns = [
        Column("cluster", "cluster", right=False),
        Column("n_gpus", "GPUs", lambda v: f"{v:,}"),
        Column("seq_len", "seq", lambda v: f"{v:,}"),
        Column("global_batch_size", "batch", lambda v: f"{v:,}"),
        *(LAYOUT, STEP, MFU),
        Column("tokens_per_s", "tokens/s", lambda v: number(v, 3)),
        MEMORY,
        Column("days", "days", lambda v: f"{v:,.1f}"),
        Column("gpu_hours", "GPU-hours", lambda v: number(v, 3)),
        Column("usd", "cost", lambda v: format_si(v, "usd", 3)),
        Column("scaling_efficiency", "efficiency", percent),
        Column("pareto", "Pareto", lambda v: "*" if v else "", right=False),
        Column("why_not", "not because", right=False),
    ]
    same = ("cluster", "seq_len", "global_batch_size")
    if len({r.n_gpus for r in rows}) == 1:
        columns = [c for c in columns if c.key != "scaling_efficiency"]
    shown = [
        c
        for c in columns
        if len(rows) == 1 or not (c.key in same and len({getattr(r, c.key) for r in rows}) == 1)
        if any(getattr(r, c.key) not in (None, "", False) for r in rows)
    ]
    values = [
        [short(r.layout) if c.key == "layout" else getattr(r, c.key) for c in shown] for r in rows
    ]
    return Table(shown, values, "Best layout of each case (*: none is both faster and cheaper)")


def picture(rows: Sequence[ScanRow], scaling: str | None) -> Bars:
    """Throughput of each case, or its efficiency when scaling is asked for."""
    fitting = [r for r in rows if r.fits]
    many = len({r.cluster for r in fitting}) > 1
    varied = [
        name
        for name in ("n_gpus", "seq_len", "global_batch_size")
        if len({getattr(r, name) for r in fitting}) > 1
    ] or ["n_gpus"]
    words = {"n_gpus": "GPUs", "seq_len": "tokens", "global_batch_size": "sequences"}

    def label(r: ScanRow) -> str:
        text = ", ".join(f"{getattr(r, name):,} {words[name]}" for name in varied)
        return f"{r.cluster}: {text}" if many else text

    if scaling is not None:
        bars = [
            (label(r), r.scaling_efficiency or 0.0, percent(r.scaling_efficiency or 0.0))
            for r in fitting
        ]
        return Bars(bars, 1.0, "full width: 100 %", f"{scaling.capitalize()} scaling, efficiency")
    bars = [(label(r), r.tokens_per_s, f"{number(r.tokens_per_s, 3)} tokens/s") for r in fitting]
    return Bars(bars, title="Throughput")


def chosen_facts(chosen: ScanRow) -> Facts:
    """Tell the chosen case in full."""
    left = left_text(chosen.capacity_bytes - chosen.peak_bytes, chosen.fits)
    room = f"of {gb(chosen.capacity_bytes)} usable, {left}"
    rows = [
        ("layout", degrees(chosen.layout), details(chosen.layout)),
        ("step, expected", seconds(chosen.step_s), f"roofline {seconds(chosen.roofline_s)}"),
        ("memory per GPU", gb(chosen.peak_bytes), room),
    ]
    return Facts(rows)


def scan_inputs(scan: PlanScan) -> dict[str, object]:
    """List what was computed with."""
    request = scan.request
    return {
        "model": scan.cases[0].loaded.model.name,
        "clusters": list(request.asked.clusters),
        "gpus": list(request.asked.gpus),
        "catalogue": request.asked.catalogue,
        "tokens": request.asked.tokens or scan.cases[0].loaded.model.training_tokens,
        "software": request.software,
        "precision": list(scan.cases[0].space.precision),
        "objective": request.asked.objective,
        "conditions": asdict(request.conditions),
        "scaling": scan.request.asked.scaling,
        "pins": dict(request.asked.pinned),
        "changed": list(scan.cases[0].loaded.changes),
    }


def scan_summary(head: str, rows: Sequence[ScanRow], chosen: ScanRow | None) -> list[Point]:
    """Verdict, the chosen case, and a line for each of some cases."""
    points = [Point("verdict", head, tone=_tone(chosen) if chosen else "bad")]
    if chosen is not None:
        points.append(Point("layout", degrees(chosen.layout), details(chosen.layout)))
    many = len({r.cluster for r in rows}) > 1
    shown = rows if len(rows) <= SHOWN_CASES else [r for r in rows if r.meets][:SHOWN_CASES]
    for r in shown:
        where = f"{r.cluster}, " if many else ""
        days = f", {r.days:,.1f} days" if r.days is not None else ""
        cost = f", {format_si(r.usd, 'usd', 3)}" if r.usd is not None else ""
        told = f"{where}{seconds(r.step_s)} a step, MFU {percent(r.mfu)}{days}{cost}"
        tone = "" if r.fits else "bad"
        note = "" if r.fits else r.why_not
        points.append(Point(f"{r.n_gpus:,} GPUs", told if r.fits else note, tone=tone))
    if len(shown) < len(rows):
        points.append(Point("others", f"{len(rows) - len(shown)} more cases", "--show cases"))
    return points


SHOWN_CASES = 8
"""Cases of a scan that its summary lists."""


def scan_document(scan: PlanScan, rows: Sequence[ScanRow], at: int | None) -> Document:
    """Lay the answer out; `at`: which row is chosen."""
    chosen = None if at is None else rows[at]
    terms: tuple[Term, ...] = ()
    if at is not None:
        case = scan.cases[at]
        terms = terms_of(case, scan.request, estimate(case.problem, rows[at].layout))
    asked = [case.batch.asked_tokens for case in scan.cases]  # what is planned suits the size
    order = sorted(
        range(len(rows)), key=lambda i: (rows[i].cluster, rows[i].seq_len, asked[i], rows[i].n_gpus)
    )
    rows = [rows[i] for i in order]
    first = scan.cases[0]
    declared = sum(r.counts.declared for r in rows)
    evaluated = sum(r.counts.evaluated for r in rows)
    said = headline(scan, rows, chosen)
    table = scan_table(rows)
    several = sum(r.fits for r in rows) > 1 and not scan.request.conditions.any
    drawn = [picture(rows, scan.request.asked.scaling)] if several else []
    notes = f"{first.batch.origin} batch; " if len(rows) == 1 else ""
    stopped = "; interrupted, the cases so far" if scan.interrupted else ""
    searched = Text(
        f"{notes}{declared:,} layouts in {len(rows)} spaces, {evaluated:,} evaluated; "
        f"{', '.join(first.space.precision)}, software {scan.request.software}{stopped}"
    )
    details: dict[str, list[Block]] = {
        "figures": [Text(said), *([chosen_facts(chosen)] if chosen is not None else [])],
        "cases": [table, *drawn],
        "search": [searched, *([Text(GAPS_NOTE)] if scan.gaps else []), *changed(first.loaded)],
    }
    usual = {
        "model": scan.request.asked.model,
        "cluster": ",".join(scan.request.asked.clusters),
        "precision": ",".join(first.space.precision),
        "software": scan.request.software,
        "objective": scan.request.asked.objective,
    }
    job = said_job({**usual, **scan.request.job}, scan.request)
    result = ScanAnswer(chosen, chosen is not None, tuple(rows), job.job, job.job_toml)
    left_out = tuple(dict.fromkeys(line for case in scan.cases for line in case.left_out))
    return Document.layered(
        "plan",
        scan_inputs(scan),
        result,
        scan_summary(said, rows, chosen),
        details,
        warnings=(*first.loaded.warnings, *left_out, *scan.skipped),
        answered_no=chosen is None,
        terms=terms,
        csv_table=table,
        interrupted=scan.interrupted,
    )
