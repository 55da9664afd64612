"""What holds a service back, and what would help most, by the formula of its layout."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve.case import ServeCase
from gpuscale.answers.serve.measured import kv_tokens
from gpuscale.answers.serve.no_room import tightened
from gpuscale.answers.serve.records import PARTS, decode_pass
from gpuscale.core.records import replace
from gpuscale.core.serving.capacity import formula_bound
from gpuscale.core.serving.choose import FoundReplica
from gpuscale.core.serving.service import Service
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Point

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve

NARROWER = {"bf16": ("fp8", "awq", "nvfp4"), "fp16": ("fp8", "awq"), "fp8": ("nvfp4",)}
"""Formats of weights -> narrower ones that are tried; 4-bit integers are multiplied in 16 bits."""

LEAST_GAIN_FRAC = 0.03


def helps(asked: Serve, case: ServeCase, best: FoundReplica) -> list[Point]:
    """Say what takes most of the time, and which formats raise the rate within the limits most.

    Of requests in flight that are given: their throughput.
    """
    found, gpu, what = best.candidate, case.loaded.gpu, best.candidate.what
    if not isinstance(what, Service) or asked.only:
        return []
    n = max(1.0, best.load.decoding_sequences if best.load else 1.0)
    parts, reads = decode_pass(what, n).parts, what.prompt_s(n) / _request_s(what, n)
    name = max(PARTS, key=lambda part: float(getattr(parts, part)))
    share = f"{100 * getattr(parts, name) / parts.total_s:.0f} % of a decode pass"
    note = f"{share}; prompts {100 * reads:.0f} % of the time"
    said = ("prompts", f"{100 * reads:.0f} % of the time")
    points = [Point("bottleneck", *(said if reads > 0.5 else (PARTS[name].split(":")[0], note)))]
    if "," in asked.where:
        return points
    formats = [f for f in NARROWER.get(found.weights, ()) if f == "awq" or gpu.flop_per_s(f)]
    tried = {f"--weights {f}": replace(asked, weights=f, disagg=None) for f in formats}
    if what.replica.kv_format == "bf16":
        tried["--kv fp8"] = replace(asked, kv="fp8", disagg=None)
    inside, r = case.loaded.cluster.scaleup_domain_gpus, what.replica
    if r.tp > inside:
        stages = r.tp // inside
        split = replace(asked, tp=inside, pp=stages, ep=None, disagg=None)
        tried[f"--tp {inside} --pp {stages}"] = split
    gains, now = [], _rate(asked, case, what, best.copies)
    for change, other in tried.items():
        same = _same_layout(asked, other, case, best)
        if same and now:
            gains.append((_rate(asked, case, same, best.copies) / now - 1.0, change))
    told = sorted((g for g in gains if g[0] >= LEAST_GAIN_FRAC), reverse=True)[:2]
    more = "tokens/s" if asked.concurrency or asked.burst else "requests/s"
    lines = "; ".join(f"{change}: {100 * gain:.0f} % more {more}" for gain, change in told)
    return points + [Point("would help", lines)] * bool(told)


VERSION_MATTERS = 1.3
"""Factor of cache or rate from which an engine's version is asked for: of a mixture's interval."""

LEAST_RATE = 0.1
"""Rate over today's below which a version keeps no limits: bounds by formula are as far off."""


def version_decides(asked: Serve, case: ServeCase, best: FoundReplica) -> str:
    """Say what an engine of two years ago makes of the layout; empty where it does alike."""
    from gpuscale.io.serving import older_engine

    what, engine = best.candidate.what, case.engine_of(best.candidate.engine)
    old = "" if case.versions.get(engine) else older_engine(case.model, engine)
    told = best.meets and not asked.only and "," not in asked.where
    if not old or not told or not isinstance(what, Service):
        return ""
    other = replace(asked, engine=f"{engine}:{old}", weights=best.candidate.weights, disagg=None)
    then = _same_layout(asked, other, case, best)
    named = f"--engine: that of today is taken; {engine}:{old}"
    if not then:
        return f"{named} does not start so"
    now = _rate(asked, case, what, best.copies)
    rate = _rate(asked, case, then, best.copies) / now if now else 1.0
    tokens = kv_tokens(then)
    if max(abs(math.log(m)) for m in (rate, tokens / kv_tokens(what))) < math.log(VERSION_MATTERS):
        return ""
    if rate < LEAST_RATE:
        return f"{named} hardly keeps the limits"
    return f"{named} serves {rate:.2f} times the rate, with {tokens:,.0f} tokens of cache"


def _same_layout(asked: Serve, other: Serve, case: ServeCase, best: FoundReplica) -> Service | None:
    """Layout of a changed question, by the better settings where its own are tight; or None."""
    with suppress(GpuscaleError):
        own = cases.case_of(other)
        ways = (own, tightened(other, own)) if case.own_sites else (own,)
        found = [c for way in ways for c in cases.candidates(other, way)]
        same = best.candidate.label
        alike = (c.what for c in found if c.what.fits and (cases.by_hand(other) or c.label == same))
        layouts = [what for what in alike if isinstance(what, Service)]
        return max(layouts, key=lambda s: _rate(asked, case, s, best.copies), default=None)
    return None


def _rate(asked: Serve, case: ServeCase, service: Service, copies: int) -> float:
    """Rate of a replica within the limits, or with those in flight. [1/s]."""
    if in_flight := (asked.concurrency or asked.burst or 0) / max(1, copies):
        return 1.0 / _request_s(service, min(in_flight, service.sequences_with_room))
    return formula_bound(service, case.limits)


def _request_s(service: Service, n: float) -> float:
    """Time of the replica that one of `n` requests takes: its prompt, its share of passes. [s]."""
    made = service.demand.outputs.mean / service.scheduler.tokens_per_pass
    return service.prompt_s(n) + made * service.pass_s(n) / n
