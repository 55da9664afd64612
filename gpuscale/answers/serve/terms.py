"""Terms behind a serving answer: a decode pass and a prompt, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.run_terms import Held, bill_terms
from gpuscale.core.records import Term
from gpuscale.core.run.time import SECONDS_PER_HOUR
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.forward import pass_time
from gpuscale.core.serving.load import decode_step
from gpuscale.core.serving.records import Batch

if TYPE_CHECKING:
    from gpuscale.answers.serve.case import Case
    from gpuscale.answers.serve.records import ServeAnswer
    from gpuscale.core.serving.choose import Found
    from gpuscale.core.serving.percentiles import LoadResult
    from gpuscale.core.serving.records import PassTime
    from gpuscale.core.serving.service import Service

PARTS = {
    "linear_s": "projections and dense MLPs: products of their shapes, core/serving/products.py",
    "attention_s": "cache read once, or its multiplications; core/serving/mixers.py",
    "experts_s": "experts met, read once, rows filled up to tiles; core/serving/ffns.py",
    "communication_s": "all-reduces, exchange of experts, hops; core/serving/exchange.py",
    "small_s": "norms, rotary, routing, residuals; core/serving/forward.py",
    "head_s": "output head",
    "host_s": "scheduler beside the GPU, launches that it waits for",
}


def terms_of(case: Case, best: Found, r: ServeAnswer, load: LoadResult | None) -> tuple[Term, ...]:
    """Terms of the best layout."""
    what = best.candidate.what
    reads, decodes = (
        (what.prefill, what.decode) if isinstance(what, PooledService) else (what, what)
    )
    n = best.load.decoding_sequences if best.load else 1.0
    each = {"replicas": float(r.replicas), "gpus_per_replica": float(what.n_gpus)}
    terms = [
        Term("n_gpus", float(r.n_gpus), "count", " * ".join(each), each, f"layout {r.layout}"),
        _decode(decodes, max(1.0, n)),
        _prompt(reads),
    ]
    if load is not None:
        terms += _simulated(r, load)
    if r.output_tokens_per_s and r.usd_per_gpu_hour and r.usd_per_million_output_tokens:
        terms.append(
            Term(
                "usd_per_million_output_tokens",
                r.usd_per_million_output_tokens,
                "usd",
                "1e6 * n_gpus * usd_per_gpu_hour / (3600 * output_tokens_per_s)",
                {
                    "n_gpus": float(r.n_gpus),
                    "usd_per_gpu_hour": r.usd_per_gpu_hour,
                    "output_tokens_per_s": r.output_tokens_per_s,
                },
                "rented GPUs, all of them",
            )
        )
    if r.bill is not None:
        terms += bill_terms(r.bill, Held(SECONDS_PER_HOUR, float(r.n_gpus)))
    return tuple(terms)


def _simulated(r: ServeAnswer, load: LoadResult) -> list[Term]:
    """Figures of the simulation: no formula, but what was simulated."""
    how = (
        f"simulated: {load.n_requests:,} requests through the engine's scheduler, each pass timed "
        "as `decode_pass_per_token_s` and `prompt_s` are (core/serving/simulator.py)"
    )
    found = [
        Term(name, value, "s", source=f"{word}, {how}")
        for name, value, word in (
            ("ttft_mean_s", load.ttft.mean_s, "mean"),
            ("ttft_p95_s", load.ttft.p95_s, "95th percentile"),
            ("tpot_mean_s", load.tpot.mean_s, "mean"),
            ("tpot_p95_s", load.tpot.p95_s, "95th percentile"),
        )
    ]
    if r.at_most_per_s is not None:
        text = "simulated: the highest rate within the limits, by bisection, all replicas"
        found.append(Term("at_most_per_s", r.at_most_per_s, "", source=text))
    if r.output_tokens_per_s is not None:
        own = Term(
            "replica_tokens_per_s",
            load.output_tokens_per_s,
            "",
            source=f"output tokens of a replica, {how}",
        )
        found.append(
            Term(
                name="output_tokens_per_s",
                value=r.output_tokens_per_s,
                unit="",
                formula="replicas * replica_tokens_per_s",
                inputs={
                    "replicas": float(r.replicas),
                    "replica_tokens_per_s": load.output_tokens_per_s,
                },
                source="all replicas",
                children=(own,),
            )
        )
    return found


def _parts(parts: PassTime) -> tuple[Term, ...]:
    return tuple(
        Term(name, getattr(parts, name), "s", source=source) for name, source in PARTS.items()
    )


def pass_term(name: str, parts: PassTime, source: str) -> Term:
    """One pass as the sum of its parts."""
    return Term(
        name=name,
        value=parts.total_s,
        unit="s",
        formula=" + ".join(PARTS),
        inputs={part: getattr(parts, part) for part in PARTS},
        source=source,
        children=_parts(parts),
    )


def _decode(service: Service, sequences: float) -> Term:
    """Time per token without prompts: one pass over the mean number of sequences."""
    each = max(1.0, sequences / service.replica.pp)
    step = decode_step(
        service.model, service.replica, service.site, each, service.demand.mean_context
    )
    inputs = {name: getattr(step.parts, name) for name in PARTS}
    inputs |= {"draft_s": step.draft_s, "tokens_per_pass": step.tokens}
    total = " + ".join(PARTS)
    return Term(
        name="decode_pass_per_token_s",
        value=step.per_token_s,
        unit="s",
        formula=f"({total} + draft_s) / tokens_per_pass",
        inputs=inputs,
        source=f"{sequences:.1f} sequences of {service.demand.mean_context:,.0f} tokens",
        children=_parts(step.parts),
    )


def _prompt(service: Service) -> Term:
    """One prompt of mean length alone, in one pass."""
    tokens = max(1.0, service.demand.inputs.mean * (1.0 - service.demand.prefix_frac))
    keys = service.demand.inputs.mean - 0.5 * tokens
    batch = Batch(prompt_tokens=tokens, prompt_context=keys, prompts=1.0)
    parts = pass_time(service.model, service.replica, service.site, batch)
    return pass_term("prompt_s", parts, f"{tokens:,.0f} tokens, no other request")
