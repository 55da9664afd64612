"""The proposed layout as jobs of other maturities run it; its headline numbers as terms."""

from __future__ import annotations

from gpuscale.answers.lifetime import conditions_of
from gpuscale.answers.money import stops_per_s
from gpuscale.answers.run_terms import BilledTime, bill_terms, outlook_terms
from gpuscale.answers.summary import span
from gpuscale.answers.training.plan_case import PlanCase, prospect_of
from gpuscale.answers.training.plan_request import Request
from gpuscale.answers.training.plan_text import days, seconds
from gpuscale.core.dataclasses import Term, replace, term_of, total_of
from gpuscale.core.layout import Layout
from gpuscale.core.memory.fit import peak_term, usable_term
from gpuscale.core.plan.records import ByMaturity, Estimate, PlanResult, Run, estimate
from gpuscale.core.quantity import format_si
from gpuscale.core.run.time import SECONDS_PER_DAY
from gpuscale.core.search.problem import Problem
from gpuscale.core.settings import MATURITY_WORDS, JobSettings
from gpuscale.core.step.moe import unable
from gpuscale.core.step.terms import part_terms
from gpuscale.io.jobs import LeastDegrees, job_problem, step_interval


def by_maturity(
    case: PlanCase, request: Request, best: Estimate, run: Run | None
) -> dict[str, ByMaturity | None]:
    """Time the layout tuned and as it comes; None where it does not fit or a site measured."""
    said = best.fits and case.problem.hardware.site_factor == 1.0
    return {
        key: _of(case, request, best, run, name) if said else None
        for key, name in (("tuned", "tuned"), ("as_it_comes", "as-it-comes"))
    }


def _of(case: PlanCase, request: Request, best: Estimate, run: Run | None, name: str) -> ByMaturity:
    problem, software = case.problem, case.loaded.specs["software"].name
    if name != problem.software.maturity.name:
        wanted = replace(request.asked.job_settings, maturity=name)
        degrees = LeastDegrees.of(best.layout)
        problem = job_problem(case.loaded, problem.facts, wanted, case.precision, degrees)
    step = estimate(problem, best.layout).step
    times = step.expected_s / best.step_s
    low, high = step_interval(step, problem, software, best.layout)
    return ByMaturity(
        maturity=name,
        step_s=step.expected_s,
        step_low_s=low,
        step_high_s=high,
        days=None if run is None else run.expected_days * times,
        usd=None if run is None or run.usd is None else run.usd * times,
        settings=taken(problem, request, best.layout).words,
    )


def taken(problem: Problem, request: Request, layout: Layout | None = None) -> JobSettings:
    """Leave out of settings what says nothing of the layout, unless it was said."""
    said, settled = request.asked.job_settings, problem.facts.settings
    found = replace(settled, maturity=said.maturity, balance=said.balance)
    if layout is None or layout.recompute != "selective":
        found = replace(found, recompute_modules=said.recompute_modules)
    if layout is None:
        return found
    took = unable(problem.software, layout.recompute, layout.pp, layout.vpp)
    if took.overlap_ep and layout.ep > 1 and found.overlap_ep is None:
        found = replace(found, overlap_ep=True)
    if took.cuda_graphs == "layer" and found.cuda_graphs is None:
        found = replace(found, cuda_graphs="layer")
    return found


def step_text(r: PlanResult) -> str:
    """Say the step with its interval, and what it is for the other maturities."""
    if r.tuned is None and r.maturity != "measured":
        return seconds(r.step_s)
    others = [
        f"{seconds(m.step_s)} {'if ' * (m.maturity == 'tuned')}{MATURITY_WORDS[m.maturity]}"
        for m in others_of(r)
    ]
    within = "; ".join([span(seconds(r.step_low_s), seconds(r.step_high_s)), *others])
    by = f" {MATURITY_WORDS['measured']}" if r.maturity == "measured" else ""
    return f"{seconds(r.step_s)}{by} ({within})"


def maturity_words(r: PlanResult) -> str:
    """Say of which maturity a step is."""
    if r.tuned_probability is None:
        return MATURITY_WORDS[r.maturity]
    return f"{100 * r.tuned_probability:.0f} % likely a tuned job (--maturity)"


def run_of(m: ByMaturity) -> str:
    """Length and price of the run at the end of a line; empty where none is known."""
    if m.days is None:
        return ""
    usd = "" if m.usd is None else f" and {format_si(m.usd, 'usd')}"
    return f", {days(m.days * SECONDS_PER_DAY)}{usd}"


def others_of(r: PlanResult) -> list[ByMaturity]:
    """List the maturities beside that of the job."""
    return [m for m in (r.tuned, r.as_it_comes) if m is not None and m.maturity != r.maturity]


def terms_of(case: PlanCase, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Explain step, roofline, MFU, throughput, memory, run and bill of a layout."""
    return (*layout_terms(case, best), *_run(case, request, best))


def layout_terms(case: PlanCase, best: Estimate) -> tuple[Term, ...]:
    """Explain a step of a layout and its memory."""
    step, p = best.step, case.problem
    hw = p.hardware
    return (
        total_of(
            "step_s",
            step.expected_s,
            "s",
            step.expected.parts(),
            "expected: calibrated step model (core/step)",
            children=part_terms(p.model, hw, p.software, best.layout, step.expected),
        ),
        total_of(
            "roofline_s",
            step.roofline.total_s,
            "s",
            step.roofline.parts(),
            "roofline: the same formulas with peak rates, no latency, perfect overlap",
        ),
        term_of(
            "mfu",
            "frac",
            "model_flop / (n_gpus * peak_flop_per_s * step_s)",
            "model FLOP without recomputation over 16-bit peak (PaLM, appendix B)",
            step,
            peak_flop_per_s=hw.bf16_flop_per_s,
            step_s=step.expected_s,
        ),
        term_of(
            "tokens_per_s", "", "batch_tokens / step_s", "tokens of a step", step, *(case, best)
        ),
        peak_term(p.memory_facts, best.layout, p.memory_parameters, best.memory),
        usable_term(case.loaded.gpu.usable_hbm_bytes, hw.hbm_bytes, best.capacity_bytes),
    )


def _run(case: PlanCase, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Time, failures and bill of all tokens; nothing where no number of tokens is known."""
    ahead, asked = prospect_of(case, request, best), request.asked
    if ahead is None:
        return ()
    ideal_s = ahead.run.time_s
    formula, source = "tokens / batch_tokens * step_s", "without failures"
    ideal = term_of("ideal_s", "s", formula, source, ahead.run, *(case, best), ideal_s=ideal_s)
    met = conditions_of(asked, case.n_gpus, ahead.checkpoint, stops_per_s(asked))
    held = BilledTime(
        ahead.outlook.expected_s, case.n_gpus, 1 - ahead.outlook.goodput.recovery_frac
    )
    return (ideal, *outlook_terms(ahead.outlook, met), *bill_terms(ahead.bill, held))
