"""Summary of a serving answer; what an engine does by itself, how new a model is to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.answers.ask import fields_of
from gpuscale.answers.saved import unsaid
from gpuscale.answers.serve import reading
from gpuscale.answers.serve.blocks import figure, ms
from gpuscale.answers.summary import asked_for, taken_points
from gpuscale.core.serving.layouts import n_experts
from gpuscale.core.words import gb
from gpuscale.render.document import Point

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.case import ServeCase
    from gpuscale.answers.serve.records import ServeAnswer, Served
    from gpuscale.core.serving.choose import FoundReplica
    from gpuscale.core.serving.maturity import EngineMaturity


def engine_text(case: ServeCase, engine: str) -> str:
    """``vLLM 0.12 (2025-12-03)``; without a version as of the newest release that is known."""
    from gpuscale.io.serving import engine_day

    version = case.versions.get(engine, "")
    day = "" if version == "nightly" else engine_day(engine, version)
    title = reading.TITLES.get(engine, reading.SHOWN.get(engine, engine))
    if not version:
        return f"{title} as of {day}" if day else title
    return f"{title} {version}" + (f" ({day})" if day and day != version else "")


def habits_line(case: ServeCase, engine: str) -> str:
    """Say which settings a version brings, and what of them costs time."""
    site = case.sites[engine]
    soft, memory = site.software, site.software.memory
    parts = [
        f"{100 * memory.utilisation_frac:.0f} % of the memory",
        f"{soft.chunk_tokens:,.0f} prompt tokens a pass",
        f"{soft.max_sequences:,.0f} sequences",
    ]
    if soft.serial_host:
        parts.append(f"the host works between passes, {1e3 * soft.host_s:.1f} ms each")
    parts += [f"{value} {word}" for word, value in kernels_named(case, engine)]
    return f"{engine_text(case, engine)} by itself: {', '.join(parts)}."


NAMED = {
    "attention_backend": "attention",
    "expert_backend": "experts",
    "graph_sequences": "sequences in graphs",
}
"""Habits that are told without a number of their own -> what they are of."""


def kernels_named(case: ServeCase, engine: str) -> list[tuple[str, object]]:
    """Kernels that a version takes on the GPU, as (of what, name)."""
    from gpuscale.io.serving import engine_habits

    version, gpu = case.versions.get(engine, ""), case.loaded.gpu
    known = "" if version == "nightly" else version
    facts = {"family": case.model.family, "format": case.weights[0]}
    found = engine_habits(engine, known, gpu.hbm_bytes, gpu.architecture, **facts)
    told = [name for name in NAMED if name in found]
    if not n_experts(case.model):
        told = [name for name in told if name != "expert_backend"]
    return [(NAMED[name], found[name].value) for name in told]


def age_text(case: ServeCase, engine: str) -> str:
    """Say how new the architecture is to the engine; nothing where it is settled."""
    age: EngineMaturity | None = case.ages.get(engine)
    if age is None or not age.new:
        return ""
    named = engine_text(case, engine)
    if not age.released:
        return f"as it comes: {named} has no measured architecture like it"
    months = age.months or 0.0
    if age.stage == "new":
        since = f"{months:.1f} months old in {named}"
    elif months < 0.0:
        since = f"released {age.released}, after {named}"
    else:
        since = f"in {named} on the days of its release, {age.released}"
    return f"as it comes: this architecture is {since}, newer than what is measured there"


def serve_summary(
    asked: Serve, case: ServeCase, best: FoundReplica, said: str, r: ServeAnswer
) -> list[Point]:
    """Verdict, layout, latencies with their intervals, throughput, memory, money, what next."""
    from gpuscale.answers.serve.helps import helps

    layout = f"{r.replicas} x {r.label}" if r.replicas > 1 else r.label
    ranks = "; DPA: ranks of data-parallel attention, each with its own requests"
    ranks *= "DPA" in layout
    points: list[Point] = [
        Point("verdict", said, tone="good" if r.meets else "bad"),
        Point("layout", layout, f"{r.engine}, weights {r.weights}, cache {r.kv}{ranks}"),
    ]
    for name in ("ttft", "tpot"):
        keys = ("mean", "p50", "p95", "low", "high")
        mean, p50, p95, low, high = (ms(getattr(r, f"{name}_{key}_s")) for key in keys)
        if mean != "-":
            note = f"mean (80 %: {low} to {high} ms), p50 {p50}, p95 {p95} ms"
            points.append(Point(name.upper(), f"{mean} ms", note))
    if r.output_tokens_per_s is not None:
        note = f"{figure(r.tokens_per_s_per_gpu)} a GPU, {figure(r.tokens_per_s_per_user)} a user"
        points.append(Point("throughput", f"{figure(r.output_tokens_per_s)} tokens/s", note))
    points.append(_memory(r))
    if r.usd_per_million_output_tokens is not None:
        price = f"at {r.usd_per_gpu_hour:.4g} USD per GPU-hour" if r.usd_per_gpu_hour else ""
        cost = f"{r.usd_per_million_output_tokens:.3g} USD per million output tokens"
        points.append(Point("cost", cost, price))
    points += [*asked_for(r.decides), *helps(asked, case, best), *taken_points(r.taken)]
    if r.launch:
        line = r.launch[0]
        shown = (line, "") if len(line) < LONGEST else ("--show launch", "the line that starts it")
        points.append(Point("next", *shown))
    return points


LONGEST = 110
"""Characters of a line that starts it, in a summary; longer ones are under --show launch."""


def _memory(r: ServeAnswer) -> Point:
    m = r.memory
    many = "s" * (round(r.sequences_with_room) != 1)
    room = f"{r.sequences_with_room:,.0f} sequence{many}"
    cache = f"{gb(max(0.0, m.cache_bytes))} of cache"
    cache += f" ({r.kv_tokens:,.0f} tokens)" if 0 < r.kv_tokens < math.inf else ""
    note = f"of weights, {cache}, of {gb(m.usable_bytes)}: {room}"
    return Point("memory", gb(m.weights_bytes), note)


def taken_of(asked: Serve, r: Served, gather_passes: int) -> tuple[str, ...]:
    """List what nobody said, and the options that say it."""
    field = fields_of(type(asked))["output_len"][0]
    usual = asked.output_len == field.read(field.default, field.label)
    waiting = (
        f"prompts wait up to {gather_passes} passes until each attention rank has one "
        "(attention_dp_config; with --ttft they do not)"
    )
    whose = "as llama-server -hf takes them" if r.weights == "q4_k_m" else "as published"
    found = unsaid(
        (asked.cluster or asked.gpu, asked.where, "--cluster, --gpu"),
        (asked.engine, r.engine, "--engine"),
        (asked.weights, f"weights {r.weights}, {whose}", "--weights"),
        (asked.input, f"prompts of {asked.prompts.mean:,.0f} tokens", "--input"),
        (not usual, "answers of 256 tokens", "--output-len"),
    )
    return found + ((waiting,) if gather_passes else ())
