"""What a serving question answers: field names are the JSON keys; the terms behind it."""

from __future__ import annotations

from collections.abc import Mapping

from gpuscale.answers.run_terms import BilledTime, bill_terms
from gpuscale.answers.serve.case import ServeCase
from gpuscale.core.records import Term, dataclass, term_of
from gpuscale.core.run.bill import Bill
from gpuscale.core.run.time import SECONDS_PER_HOUR
from gpuscale.core.serving.choose import FoundReplica
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.forward import DecodeStep, decode_step, pass_time
from gpuscale.core.serving.memory import CacheRoom
from gpuscale.core.serving.percentiles import Latency, LoadResult
from gpuscale.core.serving.records import Batch, PassTime, Replica
from gpuscale.core.serving.service import Service


@dataclass(frozen=True, slots=True)
class Served:
    """What a layout gives under the load that is shown."""

    engine: str
    weights: str
    label: str  # its layout in words
    replicas: int
    n_gpus: int
    at_most_per_s: float | None  # requests within the limits, all replicas
    requests_per_s: float | None
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    tokens_per_s_per_user: float | None
    tokens_per_s_per_gpu: float | None  # output
    usd_per_million_output_tokens: float | None
    usd_per_million_tokens: float | None  # prompts counted too
    j_per_output_token: float | None


@dataclass(frozen=True, slots=True)
class ServeRow(Served):
    """One layout of the table."""

    ttft: Latency | None  # None where the queue would grow without end
    tpot: Latency | None
    verdict: str


@dataclass(frozen=True, slots=True)
class PoolLine:
    """One pool of a disaggregated service."""

    role: str
    workers: int
    label: str  # its layout in words
    n_gpus: int
    at_most_per_s: float  # requests that all workers could take
    idle_frac: float  # at the rate shown
    tokens_per_s_per_gpu: float  # prompt tokens read, or tokens made, at most
    usd_per_million_tokens: float | None  # of those, this pool alone


@dataclass(frozen=True, slots=True)
class ServeAnswer(Served):
    """The answer: the best layout, its latencies, and the others."""

    meets: bool
    fits: bool
    layout: Replica | None  # of a replica; pools are in `pools`
    peak_bytes: float  # of a GPU, its cache full
    capacity_bytes: float
    decides: str  # what the version of the engine makes of it, where nobody said one
    taken: tuple[str, ...]  # what nobody said, and the option that says it
    said_by: Mapping[str, str]  # value -> the option that says it; others are defaults
    kv: str
    gather_passes: int  # that a prompt waits at most until each attention rank has one
    engine_settings: str  # version of the engine, and what it does by itself
    as_it_comes: str  # how new the architecture is to that version; empty where it is settled
    rate_per_s: float | None  # asked for
    binding: str
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    ttft_low_s: float | None  # 80 % interval of the mean
    ttft_high_s: float | None
    tpot_mean_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    tpot_p99_s: float | None
    tpot_low_s: float | None
    tpot_high_s: float | None
    end_to_end_mean_s: float | None
    alone_ttft_s: float | None  # of a request that meets no other
    alone_tpot_s: float | None
    ttft_error_frac: float | None  # of the 95th percentile, one standard error of the simulation
    tpot_error_frac: float | None
    time_s: float | None  # of all requests of a closed loop or burst
    usd_per_gpu_hour: float | None
    bill: Bill | None  # of an hour at this rate
    kv_tokens: float  # that the cache of one attention rank holds
    sequences_with_room: float
    n_requests: int
    n_preempted: int
    memory: CacheRoom
    pools: tuple[PoolLine, ...]
    rows: tuple[ServeRow, ...]
    no_room: tuple[str, ...]
    launch: tuple[str, ...]
    benchmark: str


PARTS = {
    "linear_s": "projections and dense MLPs: products of their shapes, core/serving/kernels.py",
    "attention_s": "attention: cache read once, or its multiplications; core/serving/kernels.py",
    "experts_s": "experts: those met, read once, rows filled up to tiles; core/serving/kernels.py",
    "communication_s": "communication: all-reduces, exchanges, hops; core/serving/exchange.py",
    "small_s": "norms and the like: rotary, routing, residuals; core/serving/forward.py",
    "head_s": "output head",
    "host_s": "host: scheduler beside the GPU, launches that it waits for",
}


def terms_of(
    case: ServeCase, best: FoundReplica, r: ServeAnswer, load: LoadResult | None
) -> tuple[Term, ...]:
    """Terms of the best layout."""
    what = best.candidate.what
    reads, decodes = (
        (what.prefill, what.decode) if isinstance(what, PooledService) else (what, what)
    )
    n, source = best.load.decoding_sequences if best.load else 1.0, f"layout {r.label}"
    each = {"gpus_per_replica": float(what.n_gpus)}
    terms = [
        term_of("n_gpus", "count", "replicas * gpus_per_replica", source, r, **each),
        _decode(decodes, max(1.0, n)),
        _prompt(reads),
    ]
    if load is not None:
        terms += _simulated(r, load)
    if r.output_tokens_per_s and r.usd_per_gpu_hour and r.usd_per_million_output_tokens:
        formula = "1e6 * n_gpus * usd_per_gpu_hour / (3600 * output_tokens_per_s)"
        source = "rented GPUs, all of them"
        terms.append(term_of("usd_per_million_output_tokens", "usd", formula, source, r))
    if r.bill is not None:
        terms += bill_terms(r.bill, BilledTime(SECONDS_PER_HOUR, float(r.n_gpus)))
    return tuple(terms)


def _simulated(r: ServeAnswer, load: LoadResult) -> list[Term]:
    """Figures of the simulation: no formula, but what was simulated."""
    how = (
        f"simulated: {load.n_requests:,} requests through the engine's scheduler, each pass timed "
        "as `decode_pass_per_token_s` and `prompt_s` are (core/serving/simulator.py)"
    )
    statistics = {"mean": "mean", "p95": "95th percentile"}
    found = [
        Term(f"{name}_{key}_s", of.at(key), "s", source=f"{word}, {how}")
        for name, of in (("ttft", load.ttft), ("tpot", load.tpot))
        for key, word in statistics.items()
    ]
    if r.at_most_per_s is not None:
        text = "simulated: the highest rate within the limits, by bisection, all replicas"
        found.append(Term("at_most_per_s", r.at_most_per_s, "", source=text))
    if r.output_tokens_per_s is not None:
        source = f"output tokens of a replica, {how}"
        own = Term("replica_tokens_per_s", load.output_tokens_per_s, "", source=source)
        formula = "replicas * replica_tokens_per_s"
        found.append(term_of("output_tokens_per_s", "", formula, "all replicas", own, r))
    return found


def pass_term(
    name: str, parts: PassTime, source: str, formula: str = " + ".join(PARTS), **more: float
) -> Term:
    """One pass as the sum of its parts."""
    children = (Term(n, getattr(parts, n), "s", source=text) for n, text in PARTS.items())
    return term_of(name, "s", formula, source, *children, **{name: parts.total_s, **more})


def decode_pass(service: Service, sequences: float) -> DecodeStep:
    """One pass over a number of sequences at their mean context."""
    each = max(1.0, sequences / service.replica.pp)
    context = service.demand.mean_context
    return decode_step(service.model, service.replica, service.site, each, context)


def _decode(service: Service, sequences: float) -> Term:
    """Time per token without prompts: one pass over the mean number of sequences."""
    step, context = decode_pass(service, sequences), service.demand.mean_context
    return pass_term(
        "decode_pass_per_token_s",
        step.parts,
        f"{sequences:.1f} sequences of {context:,.0f} tokens",
        f"({' + '.join(PARTS)} + draft_s) / tokens_per_pass",
        draft_s=step.draft_s,
        tokens_per_pass=step.tokens,
        decode_pass_per_token_s=step.per_token_s,
    )


def _prompt(service: Service) -> Term:
    """One prompt of mean length alone, in one pass."""
    tokens = max(1.0, service.demand.inputs.mean * (1.0 - service.demand.prefix_frac))
    keys = service.demand.inputs.mean - 0.5 * tokens
    batch = Batch(prompt_tokens=tokens, prompt_context=keys, prompts=1.0)
    parts = pass_time(service.model, service.replica, service.site, batch)
    return pass_term("prompt_s", parts, f"{tokens:,.0f} tokens, no other request")
