"""Summary of a training plan."""

from __future__ import annotations

from gpuscale.answers.plan.blocks import days
from gpuscale.answers.plan.case import PlanCase
from gpuscale.answers.plan.idle import Idle
from gpuscale.answers.plan.maturities import maturity_words, step_text
from gpuscale.answers.plan.request import Request
from gpuscale.answers.plan.text import degrees, details, number, percent, seconds
from gpuscale.answers.summary import (
    FILED,
    bottleneck,
    cost_points,
    memory_point,
    span,
    taken_points,
    tone_of,
)
from gpuscale.core.plan.records import PlanResult
from gpuscale.core.quantity import format_time
from gpuscale.core.words import STEP_PARTS, gb
from gpuscale.render.document import Point


def plan_summary(case: PlanCase, request: Request, r: PlanResult, idle: Idle | None) -> list[Point]:
    """Verdict, layout, time, memory, money, bottleneck, what helps, what was taken, what next."""
    tone = tone_of(r.fits, r.peak_bytes, r.capacity_bytes, r.memory_interval_factor_80)
    o, width = r.passed_over, r.memory_interval_factor_80
    passed = percent(o.gain_frac) if o else ""
    ends = r.peak_bytes / width, r.peak_bytes * width
    points = [
        Point("verdict", verdict(case, r), tone=tone),
        *([Point("idle", line)] if idle and (line := idle.line(case, r.tokens_per_s)) else []),
        Point("layout" if r.fits else "closest", degrees(r.layout), details(r.layout)),
        *([Point("passed over", degrees(o.layout), f"{passed} faster by the model")] if o else []),
        *_time_points(r),
        memory_point(r.peak_bytes, r.capacity_bytes, ends, tone),
        *(cost_points(r.bill) if r.fits else []),
        *([bottleneck(r.step.expected.parts(), STEP_PARTS, r.step_s)] if r.fits else []),
        *_help_points(r),
        *taken_points(r.taken),
    ]
    return [*points, FILED] if r.fits else points


def verdict(case: PlanCase, r: PlanResult) -> str:
    """Say in one sentence whether it fits and what it takes."""
    where = (
        f"{case.loaded.model.name} on {case.n_gpus:,} {case.loaded.gpu.name} ({case.cluster.name})"
    )
    if not r.fits:
        return (
            f"{where}: nothing fits; the closest needs {gb(r.peak_bytes)} of "
            f"{gb(r.capacity_bytes)} a GPU."
        )
    if r.headroom_bytes < 0.0:
        less = f"if its memory is {gb(-r.headroom_bytes)} less than expected"
        return f"{where} fits {less}; a step takes {step_text(r)}, MFU {percent(r.mfu)}."
    near = "may not fit" if r.peak_bytes * r.memory_interval_factor_80 > r.capacity_bytes else ""
    run = [] if r.run is None or r.outlook is None else [days(r.outlook.expected_s)]
    run += [point.value for point in cost_points(r.bill)[:1] if run]
    takes = f": {' and '.join(run)}" if run else ""
    return f"{where} {near or 'fits'}{takes}; a step takes {step_text(r)}, MFU {percent(r.mfu)}."


def _time_points(r: PlanResult) -> list[Point]:
    """Step as another would have it, and the whole run."""
    if not r.fits:
        return []
    note = f"{maturity_words(r)}; roofline {seconds(r.roofline_s)}"
    found = [Point("step", seconds(r.step_s), note)]
    if r.run is not None and r.outlook is not None:
        o = r.outlook
        low_s, high_s = o.low_s * r.step_low_s / r.step_s, o.high_s * r.step_high_s / r.step_s
        note = f"(80 %: {span(days(low_s), days(high_s))}) for {number(r.run.tokens)} tokens"
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
