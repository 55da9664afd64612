"""Terms of a plan of pre-training: its headline numbers as arithmetic over their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.lifetime import conditions_of
from gpuscale.answers.money import stops_per_s
from gpuscale.answers.plan.case import prospect_of
from gpuscale.answers.run_terms import Held, bill_terms, outlook_terms
from gpuscale.core.memory.terms import stage_terms, usable_term
from gpuscale.core.records import Term
from gpuscale.core.step.terms import part_terms
from gpuscale.core.words import MEMORY_PARTS

if TYPE_CHECKING:
    from gpuscale.answers.plan.case import Case
    from gpuscale.answers.plan.request import Request
    from gpuscale.core.plan.estimate import Estimate


def terms_of(case: Case, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Explain step, roofline, MFU, throughput, memory, run and bill of a layout."""
    return (*layout_terms(case, best), *_run(case, request, best))


def layout_terms(case: Case, best: Estimate) -> tuple[Term, ...]:
    """Explain a step of a layout and its memory."""
    step, problem = best.step, case.problem
    expected, ideal = step.expected.parts(), step.roofline.parts()
    calibrated = (problem.model, problem.hardware, problem.software)
    return (
        Term(
            name="step_s",
            value=step.expected_s,
            unit="s",
            formula=" + ".join(expected),
            inputs=expected,
            source="expected: calibrated step model (core/step)",
            children=part_terms(*calibrated, best.layout, step.expected),
        ),
        Term(
            "roofline_s",
            step.roofline.total_s,
            "s",
            " + ".join(ideal),
            ideal,
            "roofline: the same formulas with peak rates, no latency, perfect overlap",
        ),
        Term(
            "mfu",
            step.mfu,
            "frac",
            "model_flop / (n_gpus * peak_flop_per_s * step_s)",
            {
                "model_flop": step.model_flop,
                "n_gpus": float(step.n_gpus),
                "peak_flop_per_s": problem.hardware.bf16_flop_per_s,
                "step_s": step.expected_s,
            },
            "model FLOP without recomputation over 16-bit peak (PaLM, appendix B)",
        ),
        Term(
            "tokens_per_s",
            step.tokens_per_s,
            "",
            "batch_tokens / step_s",
            {"batch_tokens": case.batch_tokens, "step_s": step.expected_s},
            "tokens of a step",
        ),
        _peak(case, best),
        usable_term(
            case.loaded.gpu.usable_hbm_bytes, problem.hardware.hbm_bytes, best.capacity_bytes
        ),
    )


def _peak(case: Case, best: Estimate) -> Term:
    parts = {name: getattr(best.memory, name) for name in MEMORY_PARTS}
    p = case.problem
    return Term(
        name="peak_bytes",
        value=best.peak_bytes,
        unit="bytes",
        formula=" + ".join(parts),
        inputs=parts,
        source="memory of the fullest GPU (core/memory)",
        children=stage_terms(p.memory_facts, best.layout, p.memory_parameters, best.memory),
    )


def _run(case: Case, request: Request, best: Estimate) -> tuple[Term, ...]:
    """Time, failures and bill of all tokens; nothing where no number of tokens is known."""
    ahead, asked = prospect_of(case, request, best), request.asked
    if ahead is None:
        return ()
    inputs = {"tokens": ahead.run.tokens, "batch_tokens": case.batch_tokens, "step_s": best.step_s}
    formula = "tokens / batch_tokens * step_s"
    ideal = Term("ideal_s", ahead.run.time_s, "s", formula, inputs, "without failures")
    met = conditions_of(asked, case.n_gpus, ahead.checkpoint, stops_per_s(asked))
    held = Held(ahead.outlook.expected_s, case.n_gpus, 1 - ahead.outlook.goodput.recovery_frac)
    return (ideal, *outlook_terms(ahead.outlook, met), *bill_terms(ahead.bill, held))
