"""A training plan: its summary, one case in full, or a scan over several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuscale.answers import summary
from gpuscale.answers.money import age_warnings
from gpuscale.answers.progress import Progress
from gpuscale.answers.saved import command_of, saved_job, startable
from gpuscale.answers.summary import changed
from gpuscale.answers.training import plan_blocks as blocks
from gpuscale.answers.training import plan_case, plan_request
from gpuscale.answers.training.plan_answer import inputs_of, plan_result, said_job, used_job
from gpuscale.answers.training.plan_idle import Idle, of_at_most
from gpuscale.answers.training.plan_text import (
    counts_text,
    days,
    degrees,
    details,
    maturity_words,
    number,
    passed_text,
    seconds,
    step_text,
    taken,
    terms_of,
)
from gpuscale.core.plan.records import Estimate, PlanResult, estimate
from gpuscale.core.plan.sensitivity import find_remedies, most_headroom, sensitivity
from gpuscale.core.quantity import format_time
from gpuscale.core.records import replace
from gpuscale.core.search.results import FAMILY_CUTOFF, SearchResult
from gpuscale.core.search.space import default_space
from gpuscale.core.verdict import said
from gpuscale.core.words import STEP_PARTS, gb
from gpuscale.render.document import Block, Document, Point, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.plan import Plan
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.step.replay import StepTimeline


def plan_summary(
    case: plan_case.PlanCase, request: plan_request.Request, r: PlanResult, idle: Idle | None
) -> list[Point]:
    """Verdict, layout, time, memory, money, bottleneck, what helps, what was taken, what next."""
    tone = summary.chance_tone(r.fits_probability) if r.fits else "bad"
    o, width = r.passed_over, r.memory_interval_factor_80
    ends = r.peak_bytes / width, r.peak_bytes * width
    points = [
        Point("verdict", verdict(case, r), tone=tone),
        *([Point("idle", line)] if idle and (line := idle.line(case, r.tokens_per_s)) else []),
        Point("layout" if r.fits else "closest", degrees(r.layout), details(r.layout)),
        *([Point("passed over", degrees(o.layout), passed_text(o, r.layout))] if o else []),
        *_bolder_points(r),
        *_time_points(r),
        summary.memory_point(r.peak_bytes, r.capacity_bytes, ends, tone),
        *summary.asked_for(r.decides),
        *(summary.cost_points(r.bill) if r.fits else []),
        *([summary.bottleneck(r.step.expected.parts(), STEP_PARTS, r.step_s)] if r.fits else []),
        *_help_points(r),
        *summary.taken_points(r.taken),
    ]
    return [*points, summary.FILED] if r.fits else points


def verdict(case: plan_case.PlanCase, r: PlanResult) -> str:
    """Say in one sentence whether it fits and what it takes."""
    where = (
        f"{case.loaded.model.name} on {case.n_gpus:,} {case.loaded.gpu.name} ({case.cluster.name})"
    )
    if not r.fits:
        return (
            f"{where}: nothing fits; the closest needs {gb(r.peak_bytes)} of "
            f"{gb(r.capacity_bytes)} a GPU."
        )
    step = f"a step takes {step_text(r)}, MFU {blocks.of_peak(r, r.mfu)}"
    if r.headroom_bytes < 0.0:
        less = f"if its memory is {gb(-r.headroom_bytes)} less than expected"
        return f"{where} fits {less}; {step}."
    run = [] if r.run is None or r.outlook is None else [days(r.outlook.expected_s)]
    run += [point.value for point in summary.cost_points(r.bill)[:1] if run]
    takes = f": {' and '.join(run)}" if run else ""
    return f"{where} {said(r.fits_probability)}{takes}; {step}."


def _bolder_points(r: PlanResult) -> list[Point]:
    """Name the layout that fits less surely, where it gains on all that fit."""
    b, known = r.bolder, r.passed_over or r
    if b is None or known.step_s < b.step_s * summary.WORTH_SAYING:
        return []
    what = f"{degrees(b.layout)}, {details(b.layout)}"
    return [summary.bolder_point(what, r.step_s / b.step_s, b.peak_bytes, b.fits_probability)]


def _time_points(r: PlanResult) -> list[Point]:
    """Step as another would have it, and the whole run."""
    if not r.fits:
        return []
    note = f"{maturity_words(r)}; roofline {seconds(r.roofline_s)}"
    found = [Point("step", seconds(r.step_s), note)]
    if r.run is not None and r.outlook is not None:
        o = r.outlook
        low_s, high_s = o.low_s * r.step_low_s / r.step_s, o.high_s * r.step_high_s / r.step_s
        note = (
            f"(80 %: {summary.span(days(low_s), days(high_s))}) for {number(r.run.tokens)} tokens"
        )
        found.append(Point("run", days(o.expected_s), note))
    return found


def _help_points(r: PlanResult) -> list[Point]:
    """Say what would make it fit, or faster."""
    if not r.fits:
        found = [
            f"{m.change}" + (f" ({gb(m.peak_bytes)})" if m.peak_bytes is not None else "")
            for m in r.remedies[:3]
        ]
        return [Point("would fit", "; ".join(found))] if found else []
    best = sorted(r.sensitivity, key=lambda e: -e.gain_frac)
    words = [f"{e.figure} {e.change}: {100 * e.gain_frac:.0f} % faster" for e in best[:2]]
    if r.outlook is not None and r.outlook.helps:
        lever = r.outlook.helps[0]
        words[1:] = [f"{lever.lever}: {format_time(lever.saved_s, 3)} less"]
    return [Point("would help", "; ".join(words))] if words else []


HEADROOM_NOTE = (
    "Objective memory-headroom: the most memory left of all layouts at most 5 % slower than the "
    "fastest."
)


def training_plan(asked: Plan) -> Document:
    """Answer a training question."""
    request = plan_request.read_request(asked)
    many = request.n_cases > 1 or request.conditions.any or asked.scaling
    if many or request.asked.objective in ("fewest-gpus",):
        from gpuscale.answers.training.plan_scan import scan_plan

        return scan_plan(request)
    return single_plan(request)


def single_plan(request: plan_request.Request) -> Document:
    """One case in full."""
    asked = request.asked
    loaded = plan_case.load_case(request, request.asked.clusters[0])
    (n_gpus,) = plan_request.sizes_of(request, loaded.cluster)
    (seq_len,) = plan_request.seq_len_of(request, loaded.model)
    (batch,) = plan_request.batches_of(request, loaded.model, seq_len)
    progress = Progress()

    def make(n: int) -> plan_case.PlanCase:
        return plan_case.make_case(
            loaded, request, n, seq_len, plan_request.suited(request, batch, seq_len, n)
        )

    if asked.show_job:
        return _job_document(make(n_gpus), request)

    def solved(case: plan_case.PlanCase) -> tuple[plan_case.PlanCase, SearchResult]:
        result = plan_case.solve(case, asked.alternatives, progress)
        if result.best is None and request.asked.fit is None and not result.interrupted:
            case = plan_case.less_safe(case)
            result = plan_case.solve(case, asked.alternatives, progress)
        return case, result

    case, result, idle = of_at_most(n_gpus, make, solved)
    progress.clear()
    layout = _by_objective(case, request, result)
    if layout is None:
        raise KeyboardInterrupt
    best = estimate(case.problem, layout)
    sections = _sections(case, request, best, result)
    record = plan_result(case, request, best, result, n_next=asked.alternatives, **sections)
    return document_of(case, request, record, best, result, idle)


def _sections(
    case: plan_case.PlanCase, request: plan_request.Request, best: Estimate, result: SearchResult
) -> dict[str, Any]:
    """Sections that look further; an interruption leaves out what is not done."""
    found: dict[str, Any] = {}
    problem, done = case.problem, result.interrupted
    if best.fits:
        found["sensitivity"] = tuple(sensitivity(problem, best.layout))
    try:
        if not best.fits and not done:
            domain = problem.hardware.scaleup_domain_gpus
            free = default_space(problem.facts, domain, case.precision)
            free = replace(free, precision=case.space.precision)
            kept = plan_case.kept_by(case.loaded.specs["software"])
            found["remedies"] = find_remedies(problem, free, request.pin_texts, best, **kept)
    except KeyboardInterrupt:
        result.interrupted = True
    return found


def _by_objective(
    case: plan_case.PlanCase, request: plan_request.Request, result: SearchResult
) -> Layout | None:
    """Layout that the objective picks; of one case all but memory mean the fastest."""
    headroom = request.asked.objective == "memory-headroom" and not result.interrupted
    if headroom and result.fastest is not None:
        return most_headroom(case.problem, case.space, result.fastest).layout
    return plan_case.best_or_closest(case, result)


def _job_document(case: plan_case.PlanCase, request: plan_request.Request) -> Document:
    found = said_job(used_job(case, request), request)
    return Document(
        "plan",
        inputs_of(case, request),
        found,
        [Text(found.job_toml.rstrip())],
        warnings=(*case.loaded.warnings, *case.left_out),
    )


def batch_line(case: plan_case.PlanCase, r: PlanResult, settings: tuple[str, ...] = ()) -> str:
    """Say what batch is planned, and what it means per GPU."""
    asked, planned = r.asked_batch_tokens, r.batch_tokens
    facts = case.problem.facts
    precision = r.layout.precision
    if len(case.space.precision) > 1:
        precision += f" (fastest of {', '.join(case.space.precision)})"
    rounded = "" if asked == planned else f", {100 * (planned / asked - 1):+.1f} % on the tokens"
    return (
        f"Batch {number(asked)} tokens ({case.batch.origin}): {facts.global_batch_size:,} "
        f"sequences of {facts.seq_len:,}{rounded}. {r.tokens_per_gpu:,.1f} tokens per GPU, "
        f"{r.tokens_per_dp_rank:,.1f} per DP rank. {precision}, software "
        f"{', '.join((case.loaded.specs['software'].name, *settings))}."
    )


def document_of(
    case: plan_case.PlanCase,
    request: plan_request.Request,
    r: PlanResult,
    best: Estimate,
    result: SearchResult,
    idle: Idle | None = None,
) -> Document:
    """Lay the answer out."""
    figures: list[Block] = [
        Text(verdict(case, r)),
        blocks.answer_facts(r, best, case.problem.hardware.site_factor != 1.0),
        Text(batch_line(case, r, taken(case.problem, request, r.layout).words)),
    ]
    if idle is not None and (line := idle.line(case, r.tokens_per_s)):
        figures.insert(1, Text(line))
    others: list[Block] = [blocks.alternatives_table(r)] if r.alternatives else []
    if slow := ", ".join(r.slow_families):
        others.append(Text(f"Fit, but take more than {FAMILY_CUTOFF:g}x as long: {slow}."))
    headroom = request.asked.objective == "memory-headroom" and r.fits
    others += [Text(HEADROOM_NOTE)] if headroom else []
    details: dict[str, list[Block]] = {
        "figures": figures,
        "memory": [blocks.memory_bars(best)],
        "remedies": [blocks.remedies_table(r)] if r.remedies else [],
        "step": [blocks.step_table(r.step)],
        "limits": [blocks.limits_table(r.limits, r.step)] if r.limits else [],
        "alternatives": others,
        "help": [blocks.sensitivity_table(r)] if r.sensitivity else [],
        "search": [Text(counts_text(r.counts, result.interrupted)), *changed(case.loaded)],
    }
    return Document.layered(
        "plan",
        inputs_of(case, request),
        r,
        plan_summary(case, request, r, idle),
        details,
        warnings=(
            *case.loaded.warnings,
            *case.left_out,
            *(["--tokens is less than one batch"] if r.run and r.run.n_steps < 1.0 else ()),
            *(age_warnings(r.bill.rate) if r.bill else ()),
        ),
        answered_no=not r.fits,
        terms=terms_of(case, request, best),
        csv_table=blocks.layouts_table(r),
        interrupted=result.interrupted,
        pictures=_pictures(case, r),
        timeline=lambda: timeline_of(case.problem, r.layout),
        **startable(lambda: _job(case, request, r)),
    )


def _job(case: plan_case.PlanCase, request: plan_request.Request, r: PlanResult) -> dict[str, Any]:
    """Keep the chosen layout as a whole job."""
    from gpuscale.launch.dialects.write import estimate_lines

    return saved_job(
        case.loaded,
        r.layout,
        stage_layers=r.stage_layers,
        settings=taken(case.problem, request, r.layout).said,
        gradients_bytes=case.problem.memory_parameters.gradients_bytes,
        command=command_of(request.asked),
        estimate=estimate_lines(r.layout, r.peak_bytes, (r.step_s, r.step_low_s, r.step_high_s)),
    )


def _pictures(case: plan_case.PlanCase, r: PlanResult) -> Callable[[], list[Any]]:
    """Pictures that need more than the record: memory of every stage, the step in time."""

    def draw() -> list[Any]:
        from gpuscale.render.picture_step import memory_over_time, stage_memory, step_gantts

        problem, lay = case.problem, r.layout
        usable, line = r.capacity_bytes, timeline_of(problem, lay)
        about = f"{case.loaded.model.name} on {case.n_gpus:,} {case.loaded.gpu.name}"
        charts = [stage_memory(problem, lay, usable), *step_gantts(line, about)]
        return [*charts, memory_over_time(line, usable)]

    return draw


def timeline_of(problem: Problem, layout: Layout) -> StepTimeline:
    """Lay the step of a layout out in time."""
    from gpuscale.core.step.timeline import timeline

    return timeline(
        problem.model,
        problem.hardware,
        problem.software,
        layout,
        problem.memory_facts,
        problem.memory_parameters,
    )
