"""Terms of a plan of pre-training: its headline numbers as arithmetic over their parts."""

from __future__ import annotations

from gpuscale.answers.lifetime import conditions_of
from gpuscale.answers.money import stops_per_s
from gpuscale.answers.plan.case import PlanCase, prospect_of
from gpuscale.answers.plan.request import Request
from gpuscale.answers.run_terms import BilledTime, bill_terms, outlook_terms
from gpuscale.core.memory.terms import stage_terms, usable_term
from gpuscale.core.plan.estimate import Estimate
from gpuscale.core.records import Term, term_of, total_of
from gpuscale.core.step.terms import part_terms
from gpuscale.core.words import MEMORY_PARTS


def terms_of(case: PlanCase, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Explain step, roofline, MFU, throughput, memory, run and bill of a layout."""
    return (*layout_terms(case, best), *_run(case, request, best))


def layout_terms(case: PlanCase, best: Estimate) -> tuple[Term, ...]:
    """Explain a step of a layout and its memory."""
    step, p, held = best.step, case.problem, best.memory
    hw = p.hardware
    memory = {name: getattr(held, name) for name in MEMORY_PARTS}
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
        total_of(
            "peak_bytes",
            best.peak_bytes,
            "bytes",
            memory,
            "memory of the fullest GPU (core/memory)",
            children=stage_terms(p.memory_facts, best.layout, p.memory_parameters, held),
        ),
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
