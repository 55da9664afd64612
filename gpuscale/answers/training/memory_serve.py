"""The serving answer of `gpuscale memory --serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscale.answers.layout import refuse_serving
from gpuscale.answers.saved import command_of, told, unsaid
from gpuscale.answers.serve.case import usual_engine
from gpuscale.answers.serve.reading import own_format, weight_format
from gpuscale.answers.summary import (
    chance_tone,
    changed,
    largest_parts,
    memory_point,
    part_bars,
    part_table,
    taken_points,
)
from gpuscale.core.formats import weight_bytes
from gpuscale.core.memory.fit import usable_term
from gpuscale.core.model.layer_shape import kv_cache_bytes
from gpuscale.core.quantity import format_time
from gpuscale.core.records import Term, asdict, dataclass, replace, term_of
from gpuscale.core.serving.memory import serving_terms
from gpuscale.core.serving.records import Replica
from gpuscale.core.serving.replica import (
    FewestServing,
    ServingJob,
    ServingMemory,
    ServingTimes,
    fewest_serving,
    model_weight_bytes,
    replica_memory,
    replica_of,
    serving_times,
)
from gpuscale.core.verdict import EVEN, said
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.io.serving import load_framework
from gpuscale.io.step import one_peak
from gpuscale.render.document import Block, Document, Facts, Point, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory
    from gpuscale.specs.hardware import GpuSpec
    from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """Memory of one GPU of a replica. [byte]."""

    fits: bool
    fits_probability: float
    layout: Replica
    n_gpus: int
    taken: tuple[str, ...]  # what nobody said, and the option that says it
    said_by: Mapping[str, str]  # value -> the option that says it; others are defaults
    peak_bytes: float
    capacity_bytes: float
    all_weights_bytes: float
    kv_bytes_per_token: float
    kv_bytes_per_sequence: float
    context_tokens: float
    per_gpu: ServingMemory
    hbm_bytes: float
    fewest: FewestServing | None
    times: ServingTimes  # roofline


def serving_document(asked: Memory) -> Document:
    """Answer a serving question."""
    loaded = load_inputs(
        asked, cluster=asked.where, model=asked.model, catalogue=asked.catalogue, wires=asked.wires
    )
    job = _job(asked, loaded.model, loaded.gpu.vendor)
    tp, pp, n = asked.tp, asked.pp, asked.gpus
    if n is not None and n != tp * pp:
        if (tp, pp) != (1, 1):
            raise GpuscaleError(f"--gpus {n} is not tp*pp = {tp * pp}")
        tp = min(n, loaded.cluster.gpus_per_node)
        pp = n // tp
        if tp * pp != n:
            raise GpuscaleError(f"--gpus {n} is no whole number of nodes; give --tp and --pp")
    refuse_serving(loaded.model, tp, pp)
    gpu, split_kv = loaded.gpu, asked.dp_attention
    device = gpu.process_bytes
    usual = usual_engine((job.weights,), gpu.vendor)
    engine = load_framework(usual, gpu.hbm_bytes, gpu.architecture).memory
    if asked.memory_frac:
        engine = replace(engine, utilisation_frac=asked.memory_frac)
    m = replica_memory(loaded.model, job, tp, pp, device, split_kv=split_kv, engine=engine)
    node = loaded.cluster.gpus_per_node
    rate = _rate(gpu, job.weights)
    times = serving_times(loaded.model, job, tp, pp, gpu.hbm_bytes_per_s, rate)
    replica = replica_of(loaded.model, job, tp, pp, split_kv=split_kv)
    terms = (
        *_time_terms(times, tp, rate, gpu.hbm_bytes_per_s),
        *serving_terms(loaded.model, replica, engine, m),
        usable_term(gpu.usable_hbm_bytes, gpu.hbm_bytes, device),
    )
    cache = kv_cache_bytes(loaded.model, job.context_tokens, weight_bytes(1.0, job.kv))
    chance = one_peak(m.total_bytes, m.usable_bytes, served=True)
    result = ServingAnswer(
        fits=chance >= sum(EVEN) / 2,
        fits_probability=chance,
        n_gpus=tp * pp,
        layout=replica,
        taken=_taken(asked, loaded, job, usual, engine.utilisation_frac),
        said_by=told(asked),
        peak_bytes=m.total_bytes,
        capacity_bytes=m.usable_bytes,
        all_weights_bytes=model_weight_bytes(loaded.model, job.weights),
        kv_bytes_per_token=m.kv_bytes_per_token_all_gpus,
        kv_bytes_per_sequence=cache,
        context_tokens=job.context_tokens,
        per_gpu=m,
        hbm_bytes=gpu.hbm_bytes,
        fewest=fewest_serving(loaded.model, job, device, node, split_kv=split_kv, engine=engine),
        times=times,
    )
    return _laid_out(asked, loaded, result, job, terms)


def _rate(gpu: GpuSpec, weights: str) -> float:
    """Matrix rate of the products: in the weights' format where the GPU has it, else 16 bits."""
    rate = gpu.flop_per_s(weights) if weights in ("fp8", "mxfp8", "nvfp4", "mxfp4") else None
    rate = rate or gpu.bf16_flop_per_s or gpu.fp16_flop_per_s or gpu.fp32_flop_per_s
    if rate is None:
        raise GpuscaleError(f"{gpu.name} has no matrix rate")
    return rate


def _time_terms(
    t: ServingTimes, tp: int, flop_per_s: float, hbm_bytes_per_s: float
) -> tuple[Term, ...]:
    """Explain the roofline of prefill and decode."""
    decode = "max(decode_read_bytes / (tp * hbm_bytes_per_s), decode_flop / (tp * flop_per_s))"
    given = {"tp": float(tp), "flop_per_s": flop_per_s, "hbm_bytes_per_s": hbm_bytes_per_s}
    source = "roofline: FSDP and deployment notes"
    prefill = "prefill_flop / (tp * flop_per_s)"
    return (
        term_of("decode_s", "s", decode, f"{source}, decoding", t, **given),
        term_of("prefill_s", "s", prefill, f"{source}, prefill; errata E10", t, **given),
    )


def _job(asked: Memory, model: ModelSpec, vendor: str) -> ServingJob:
    usual = own_format(model.published_format, ("llamacpp",) if vendor == "Apple" else ())
    return ServingJob(
        weights=weight_format(asked.weights, "--weights", usual),
        kv=weight_format(asked.kv, "--kv"),
        context_tokens=asked.context or 8192.0,
        concurrency=asked.concurrency or 1,
    )


def _taken(asked: Memory, at: Loaded, job: ServingJob, name: str, share: float) -> tuple[str, ...]:
    """List what nobody said."""
    return unsaid(
        (asked.cluster or asked.gpu, at.cluster.name, "--cluster"),
        (asked.weights, f"weights {job.weights}", "--weights"),
        (asked.kv, f"cache {job.kv}", "--kv"),
        (asked.context, f"context {job.context_tokens:,.0f}", "--context"),
        (None, f"{name} as it comes", "serve --engine"),
        (asked.memory_frac, f"{100 * share:.0f} % of the memory", "--memory-frac"),
    )


def _laid_out(
    asked: Memory, loaded: Loaded, r: ServingAnswer, job: ServingJob, terms: tuple[Term, ...]
) -> Document:
    """Lay the answer out."""
    head = (
        f"{loaded.model.name} served on {r.n_gpus:,} {loaded.gpu.name}: TP {r.layout.tp}, "
        f"PP {r.layout.pp}, weights {job.weights}, KV {job.kv}, context {job.context_tokens:,.0f}, "
        f"{job.concurrency:,} sequence" + ("s" if job.concurrency > 1 else "")
    )
    degrees = {"tp": r.layout.tp, "pp": r.layout.pp, "dp_attention": asked.dp_attention}
    inputs = loaded.inputs(catalogue=asked.catalogue, **degrees, **asdict(job))
    m, rows = r.per_gpu, served_parts(r.per_gpu)
    table = part_table(rows, m.total_bytes, "expected")
    facts = _facts(m, r, job)
    enough = r.fewest.n_gpus if r.fewest and not r.fits else None
    load = command_of(asked, "serve", ("layout",) if enough else (), gpus=enough or asked.gpus)
    details: dict[str, list[Block]] = {
        "memory": [Text(head), table, part_bars(rows, m.usable_bytes)],
        "figures": [Facts(facts)],
        "fewest": [Text(f"{_smallest(r.fewest)}; times under a load: `{load}`"), *changed(loaded)],
    }
    verdict, tone = said(r.fits_probability).removeprefix("is "), chance_tone(r.fits_probability)
    summary = [
        Point("verdict", f"{head}: {verdict}.", tone=tone),
        memory_point(m.total_bytes, m.usable_bytes, None, tone),
        largest_parts(rows),
        *(Point(*row) for row in facts if row[0] == "concurrency"),
        Point("smallest", _smallest(r.fewest).removeprefix("smallest replica: ")),
        *taken_points(r.taken),
        Point("next", load, "latency and price under a load"),
    ]
    return Document.layered(
        "memory",
        inputs,
        r,
        summary,
        details,
        warnings=loaded.warnings,
        answered_no=not r.fits,
        terms=terms,
        csv_table=table,
    )


def _facts(m: ServingMemory, result: ServingAnswer, job: ServingJob) -> list[tuple[str, str, str]]:
    """Verdict, weights, KV cache and concurrency."""
    left, t = m.usable_bytes - m.total_bytes, result.times
    spare = f"{gb(left)} left" if left >= 0 else f"{gb(-left)} too much"
    held = f"{gb(m.total_bytes)} of {gb(m.usable_bytes)} usable ({gb(result.hbm_bytes)} HBM)"
    kept = f"{job.context_tokens:,.0f} tokens, all GPUs together"
    passes = f"a token of every sequence, {t.decode_bound}-bound; a prompt that long "
    return [
        ("verdict", said(result.fits_probability).removeprefix("is "), f"{held}, {spare}"),
        ("weights", gb(result.all_weights_bytes), f"{job.weights}, embedding and head in bf16"),
        ("KV per token", f"{result.kv_bytes_per_token:,.0f} B", f"{job.kv}, all GPUs together"),
        ("KV per sequence", gb(result.kv_bytes_per_sequence), kept),
        ("concurrency", f"{m.max_concurrency:,}", f"sequences fit; {m.concurrency:,} wanted"),
        ("roofline", format_time(t.decode_s, 3), passes + format_time(t.prefill_s, 3)),
    ]


def _smallest(fewest: FewestServing | None) -> str:
    if fewest is None:
        return "smallest replica: none found up to 4,096 GPUs"
    return (
        f"smallest replica: {fewest.n_gpus:,} GPUs ({fewest.n_nodes} "
        f"node{'s' if fewest.n_nodes > 1 else ''}), TP {fewest.tp}, PP {fewest.pp}"
    )


def served_parts(m: ServingMemory) -> list[tuple[str, float]]:
    """Memory of a served GPU by part."""
    return [
        ("weights", m.weights_bytes),
        ("KV cache", m.kv_cache_bytes),
        ("activations", m.activations_bytes),
        ("context, NCCL, reserve", m.overhead_bytes),
    ]
