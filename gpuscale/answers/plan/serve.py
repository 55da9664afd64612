"""Serving plans: the layout rule, memory, prefill and decode times of a replica."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gpuscale.answers.changed import changed
from gpuscale.answers.legal import refuse_serving
from gpuscale.answers.memory.common import part_bars, served_parts, weight_format
from gpuscale.answers.plan.text import number, seconds
from gpuscale.answers.values import whole
from gpuscale.core.memory.fit import usable_bytes
from gpuscale.core.records import Term
from gpuscale.core.serving.ideal import instances, serving_layout
from gpuscale.core.serving.replica import (
    FewestServing,
    ServingJob,
    ServingMemory,
    fewest_serving,
    model_weight_bytes,
    replica_memory,
)
from gpuscale.core.serving.roofline import ServingTimes, serving_times
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Block, Column, Document, Facts, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.plan import Plan
    from gpuscale.core.serving.load import ExpectedTimes
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.gpu import GpuSpec
    from gpuscale.specs.model import ModelSpec

T = TypeVar("T")

"""Bits of a published checkpoint's weights -> format."""

DEFAULT_CONTEXT = 8192.0


@dataclass(frozen=True, slots=True)
class ExpectedServing:
    """Calibrated times of a replica."""

    framework: str
    prefill_s: float  # one prompt as long as the context, communication counted
    decode_s: float  # one token of every sequence
    decode_low_s: float  # 80 % interval
    decode_high_s: float
    tokens_per_s: float  # of the replica, decoding only


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """A serving replica: layout, memory, times."""

    fits: bool
    n_gpus: int  # of one replica
    tp: int
    pp: int
    n_replicas: int
    weights: str
    kv: str
    context_tokens: float
    concurrency: int
    all_weights_bytes: float
    hbm_bytes: float
    memory: ServingMemory
    times: ServingTimes  # roofline
    expected: ExpectedServing | None
    fewest: FewestServing | None


def serving_plan(asked: Plan) -> Document:
    """Answer a serving question."""
    from gpuscale.answers.plan.serve_terms import serving_plan_terms
    from gpuscale.io.inputs import load_inputs
    from gpuscale.io.serving import load_framework

    if asked.model is None:
        raise GpuscaleError("give a model", "for example `gpuscale plan llama3-70b --serve`")
    loaded = load_inputs(
        asked,
        cluster=_one(asked.clusters, "--cluster"),
        model=asked.model,
        catalogue=asked.catalogue or "vendor",
        wires=asked.wires,
    )
    job = _job(asked, loaded.model)
    hbm = loaded.gpu.hbm_bytes
    engine = load_framework("vllm", hbm, loaded.gpu.architecture).memory
    device = usable_bytes(hbm, loaded.gpu.usable_hbm_bytes)
    fewest = fewest_serving(loaded.model, job, device, loaded.cluster.gpus_per_node, engine=engine)
    tp, pp, replicas = _degrees(asked, loaded, fewest)
    memory = replica_memory(loaded.model, job, tp, pp, device, engine=engine)
    times = serving_times(
        loaded.model, job, tp, pp, loaded.gpu.hbm_bytes_per_s, _rate(loaded.gpu, job.weights)
    )
    expected = expected_times_of(loaded, job, tp, pp)
    plan = ServingPlan(
        fits=memory.fits,
        n_gpus=tp * pp,
        tp=tp,
        pp=pp,
        n_replicas=replicas,
        weights=job.weights,
        kv=job.kv,
        context_tokens=job.context_tokens,
        concurrency=job.concurrency,
        all_weights_bytes=model_weight_bytes(loaded.model, job.weights),
        hbm_bytes=loaded.gpu.hbm_bytes,
        memory=memory,
        times=times,
        expected=_expected(loaded, expected),
        fewest=fewest,
    )
    terms = serving_plan_terms(loaded, job, engine, plan, _rate(loaded.gpu, job.weights), expected)
    return _document(asked, loaded, plan, terms)


def expected_times_of(loaded: Loaded, job: ServingJob, tp: int, pp: int) -> ExpectedTimes | None:
    """Return the calibrated times; none where the formats or links are not covered."""
    from gpuscale.core.serving.load import expected_times
    from gpuscale.io.serving import serving_site

    try:
        site = serving_site(loaded.cluster, "vllm")
        return expected_times(loaded.model, job, tp, pp, site)
    except (ValueError, KeyError):
        return None


def _expected(loaded: Loaded, times: ExpectedTimes | None) -> ExpectedServing | None:
    from gpuscale.io.serving import serving_intervals

    if times is None:
        return None
    kind = "moe" if any(f.kind == "moe" for f in loaded.model.ffns.values()) else "dense"
    factor = math.exp(serving_intervals()[f"closed/{kind}/tpot_ms"])
    return ExpectedServing(
        "vllm",
        times.prefill_s,
        times.decode_s,
        times.decode_s / factor,
        times.decode_s * factor,
        times.tokens_per_s,
    )


def _times_table(r: ServingPlan) -> Table:
    """Prefill, decode and throughput: roofline beside expected."""
    t, e = r.times, r.expected
    columns = [
        Column("quantity", "replica", right=False),
        Column("roofline", "roofline"),
        Column("expected", "expected"),
        Column("note", "", right=False),
    ]
    decode = (
        f"a token of every sequence; {t.decode_bound}-bound, {gb(t.decode_read_bytes)} read, "
        f"{100 * t.weights_read_frac:.0f} % of the weights"
    )
    prefill = f"of {r.context_tokens:,.0f} tokens on {r.tp} GPUs of a stage"
    rates = f"{number(t.tokens_per_s)} tokens/s", e and f"{number(e.tokens_per_s)} tokens/s"
    rows = [
        ["prefill", seconds(t.prefill_s), e and seconds(e.prefill_s), prefill],
        ["decode", seconds(t.decode_s), e and seconds(e.decode_s), decode],
        ["throughput", *rates, "decoding only"],
    ]
    return Table(columns, rows)


def _one(values: Sequence[T], flag: str) -> T:
    """Only value of an option that a training plan may scan."""
    if len(values) > 1:
        raise GpuscaleError(f"{flag}: a serving plan takes one", "scan with --sweep")
    return values[0]


def _job(asked: Plan, model: ModelSpec) -> ServingJob:
    """Read formats, context and concurrency; weights as published unless told otherwise."""
    if asked.weights and asked.precision:
        raise GpuscaleError("give --weights or --precision, not both, with --serve")
    return ServingJob(
        weights=weight_format(
            asked.weights or asked.precision, "--weights", model.published_format
        ),
        kv=weight_format(asked.kv, "--kv"),
        context_tokens=asked.context or DEFAULT_CONTEXT,
        concurrency=asked.concurrency or 1,
    )


def _rate(gpu: GpuSpec, weights: str) -> float:
    """Matrix rate of the products: in the weights' format where the GPU has it, else 16 bits."""
    rate = gpu.flop_per_s(weights) if weights in ("fp8", "mxfp8", "nvfp4", "mxfp4") else None
    rate = rate or gpu.bf16_flop_per_s or gpu.fp16_flop_per_s or gpu.fp32_flop_per_s
    if rate is None:
        raise GpuscaleError(f"{gpu.name} has no matrix rate")
    return rate


def _degrees(asked: Plan, loaded: Loaded, fewest: FewestServing | None) -> tuple[int, int, int]:
    """(tp, pp, replicas): as pinned, else TP in a node and PP over nodes."""
    node = loaded.cluster.gpus_per_node
    n = _one(asked.gpus, "--gpus") if asked.gpus else None
    tp = whole(asked.tp, "--tp", most=1e4) if asked.tp else None
    pp = whole(asked.pp, "--pp", most=1e4) if asked.pp else None
    if tp or pp:
        tp, pp = tp or (min(n // (pp or 1), node) if n else node), pp or 1
        n = n or tp * pp
        if n % (tp * pp):
            raise GpuscaleError(f"--gpus {n} is no multiple of tp*pp = {tp * pp}")
        replicas = instances(n, tp * pp)
    elif n is not None:
        try:
            tp, pp = serving_layout(n, node)
        except ValueError as error:
            raise GpuscaleError(str(error), "give --tp and --pp") from None
        replicas = 1
    elif fewest is not None:
        tp, pp, replicas = fewest.tp, fewest.pp, 1
    else:
        tp, pp, replicas = node, 1, 1
    refuse_serving(loaded.model, tp, pp)
    return tp, pp, replicas


def _facts(r: ServingPlan) -> list[tuple[str, str, str]]:
    """Sequences, weights, the smallest replica, and what several do together."""
    m, f = r.memory, r.fewest
    rows = [
        (
            "concurrency",
            f"{m.max_concurrency:,}",
            f"sequences fit, {r.concurrency:,} wanted; {gb(m.kv_bytes_per_sequence_per_gpu)} of "
            "cache a sequence and GPU",
        ),
        ("weights", gb(r.all_weights_bytes), "all GPUs together, embedding and head in bf16"),
    ]
    if f is not None:
        nodes = f"{f.n_nodes} node{'s' * (f.n_nodes > 1)}"
        rows.append(("smallest replica", f"{f.n_gpus:,} GPUs", f"TP {f.tp} x PP {f.pp}, {nodes}"))
    if r.n_replicas > 1:
        each, word = (r.expected, "expected") if r.expected else (r.times, "at most")
        total = number(r.n_replicas * each.tokens_per_s)
        rows.append(("replicas", f"{r.n_replicas:,}", f"{total} tokens/s together, {word}"))
    return rows


def _document(asked: Plan, loaded: Loaded, r: ServingPlan, terms: tuple[Term, ...]) -> Document:
    m, name = r.memory, loaded.model.name
    left = m.usable_bytes - m.total_bytes
    fit = f"{gb(left)} left" if m.fits else f"does not fit by {gb(-left)}"
    head = (
        f"{name} served on {r.n_gpus:,} {loaded.gpu.name}: TP {r.tp} x PP {r.pp}, "
        f"weights {r.weights}, KV {r.kv}, {r.concurrency:,} sequences of {r.context_tokens:,.0f}: "
        f"{gb(m.total_bytes)} a GPU, {fit}."
    )
    blocks: list[Block] = [
        Text(head),
        _times_table(r),
        Facts(_facts(r)),
        part_bars(served_parts(m), m.usable_bytes, title="Memory per GPU"),
    ]
    if r.expected:
        low, high = seconds(r.expected.decode_low_s), seconds(r.expected.decode_high_s)
        blocks.append(
            Text(
                f"expected: {r.expected.framework}, calibrated on published runs; 80 % interval of "
                f"decode {low} to {high}; prefill under load is far less certain"
            )
        )
    n = r.n_gpus * r.n_replicas
    asked_so = f"gpuscale serve {name} --gpus {n} --concurrency {r.concurrency}"
    blocks.append(Text(f"under a load, within limits: `{asked_so}`"))
    inputs = {
        "model": name,
        "cluster": loaded.cluster.name,
        "gpu": loaded.gpu.name,
        "catalogue": asked.catalogue or "vendor",
        "serve": True,
        "n_gpus": r.n_gpus,
        "changed": list(loaded.changes),
    }
    return Document(
        "plan",
        inputs,
        r,
        [*blocks, *changed(loaded)],
        warnings=loaded.warnings,
        answered_no=not r.fits,
        terms=terms,
    )
