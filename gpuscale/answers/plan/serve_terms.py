"""Terms of a serving plan: roofline and expected times, memory and what fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.serve.terms import pass_term
from gpuscale.core.memory.terms import usable_term
from gpuscale.core.records import Term
from gpuscale.core.serving.memory_terms import serving_terms
from gpuscale.core.serving.replica import replica_of

if TYPE_CHECKING:
    from gpuscale.answers.plan.serve import ServingPlan
    from gpuscale.core.serving.load import ExpectedTimes
    from gpuscale.core.serving.memory import EngineMemory
    from gpuscale.core.serving.replica import ServingJob
    from gpuscale.io.inputs import Loaded


def serving_plan_terms(
    loaded: Loaded,
    job: ServingJob,
    engine: EngineMemory,
    r: ServingPlan,
    rate_flop_per_s: float,
    expected: ExpectedTimes | None,
) -> tuple[Term, ...]:
    """Explain the times of a replica and its memory."""
    rate = {"tp": float(r.tp), "flop_per_s": rate_flop_per_s}
    terms = [
        Term(
            "decode_s",
            r.times.decode_s,
            "s",
            "max(read_bytes / (tp * hbm_bytes_per_s), flop / (tp * flop_per_s))",
            {
                "read_bytes": r.times.decode_read_bytes,
                "hbm_bytes_per_s": loaded.gpu.hbm_bytes_per_s,
                "flop": r.times.decode_flop,
            }
            | rate,
            "roofline: FSDP and deployment notes, decoding",
        ),
        Term(
            "prefill_s",
            r.times.prefill_s,
            "s",
            "flop / (tp * flop_per_s)",
            {"flop": r.times.prefill_flop} | rate,
            "roofline: FSDP and deployment notes, prefill; errata E10",
        ),
    ]
    if expected is not None:
        decode = f"{r.concurrency:,} sequences of {r.context_tokens:,.0f} tokens"
        terms += [
            pass_term("expected_decode_s", expected.decode, f"expected: {decode}"),
            pass_term("expected_prefill_s", expected.prefill, "expected: one prompt alone"),
            Term(
                "expected_tokens_per_s",
                expected.tokens_per_s,
                "",
                "concurrency / expected_decode_s",
                {
                    "concurrency": float(max(1, r.concurrency)),
                    "expected_decode_s": expected.decode_s,
                },
                "a token of every sequence a pass",
            ),
        ]
    replica = replica_of(loaded.model, job, r.tp, r.pp)
    terms += serving_terms(loaded.model, replica, engine, r.memory)
    usable = usable_term(loaded.gpu.usable_hbm_bytes, r.hbm_bytes, r.memory.usable_bytes)
    return (*terms, usable)
