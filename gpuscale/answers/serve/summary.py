"""Summary of a serving answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.ask import fields_of
from gpuscale.answers.serve.blocks import figure, ms
from gpuscale.core.words import gb
from gpuscale.render.document import Point

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.records import ServeAnswer


def serve_summary(asked: Serve, said: str, r: ServeAnswer) -> list[Point]:
    """Verdict, layout, latencies with their intervals, throughput, memory, money, what next."""
    layout = f"{r.replicas} x {r.layout}" if r.replicas > 1 else r.layout
    points = [
        Point("verdict", said, tone="good" if r.meets else "bad"),
        Point("layout", layout, f"{r.engine}, weights {r.weights}, cache {r.kv}"),
    ]
    for name in ("ttft", "tpot"):
        mean, p50, p95, low, high = (
            getattr(r, f"{name}_{key}_s") for key in ("mean", "p50", "p95", "low", "high")
        )
        if mean is not None:
            note = f"mean (80 %: {ms(low)} to {ms(high)} ms), p50 {ms(p50)}, p95 {ms(p95)} ms"
            points.append(Point(name.upper(), f"{ms(mean)} ms", note))
    if r.output_tokens_per_s is not None:
        note = f"{figure(r.tokens_per_s_per_gpu)} a GPU, {figure(r.tokens_per_s_per_user)} a user"
        points.append(Point("throughput", f"{figure(r.output_tokens_per_s)} tokens/s", note))
    if r.at_most_per_s is not None:
        bound = f"bound by {r.binding}" if r.binding else ""
        points.append(Point("at most", f"{figure(r.at_most_per_s)} requests/s", bound))
    points.append(_memory(r))
    if r.usd_per_million_output_tokens is not None:
        price = f"at {r.usd_per_gpu_hour:.4g} USD per GPU-hour" if r.usd_per_gpu_hour else ""
        cost = f"{r.usd_per_million_output_tokens:.3g} USD per million output tokens"
        points.append(Point("cost", cost, price))
    found = taken(asked, r)
    points += [Point("taken", "; ".join(found))] if found else []
    points += [Point("next", line) for line in r.launch[:1] if len(line) < LONGEST]
    return points


LONGEST = 250
"""Characters of a line that starts it, in a summary; longer ones are under --show launch."""


def _memory(r: ServeAnswer) -> Point:
    m = r.memory
    room = f"{r.kv_tokens:,.0f} tokens of cache, {r.sequences_with_room:,.0f} sequences"
    note = f"of weights, {gb(max(0.0, m.cache_bytes))} of cache, of {gb(m.usable_bytes)}: {room}"
    return Point("memory", gb(m.weights_bytes), note)


def taken(asked: Serve, r: ServeAnswer) -> list[str]:
    """List what nobody said, and the options that say it."""
    found = []
    if not (asked.cluster or asked.gpu):
        found.append(f"{asked.where} (--cluster, --gpu)")
    if not asked.engine:
        found.append(f"{r.engine} (--engine)")
    if not asked.weights:
        found.append(f"weights {r.weights}, as published (--weights)")
    if asked.input is None:
        found.append(f"prompts of {asked.prompts.mean:,.0f} tokens (--input)")
    field = fields_of(type(asked))["output_len"][0]
    if asked.output_len == field.read(field.default, field.label):
        found.append("answers of 256 tokens (--output-len)")
    return found
