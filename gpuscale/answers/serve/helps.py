"""What holds a service back, and what would help most, by the formula of its layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.answers.serve import case as cases
from gpuscale.core.serving.capacity import formula_bound
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.forward import decode_step
from gpuscale.core.serving.service import Service
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Point

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.case import ServeCase
    from gpuscale.core.serving.choose import FoundReplica

PARTS = {
    "linear_s": "projections and dense MLPs",
    "attention_s": "attention",
    "experts_s": "experts",
    "communication_s": "communication",
    "small_s": "norms and residuals",
    "head_s": "output head",
    "host_s": "host",
}

NARROWER = {"bf16": ("fp8", "awq", "nvfp4"), "fp16": ("fp8", "awq"), "fp8": ("nvfp4",)}
"""Formats of weights -> narrower ones that are tried."""

MULTIPLIED = ("fp8", "nvfp4")
"""Formats that are proposed only where the GPU multiplies them."""

LEAST_GAIN_FRAC = 0.03


def held_back(best: FoundReplica) -> list[Point]:
    """Name the largest part of a decode pass, or prompts where they take more of the time."""
    what = best.candidate.what
    service = what.decode if isinstance(what, PooledService) else what
    n = max(1.0, best.load.decoding_sequences if best.load else 1.0)
    each = max(1.0, n / service.replica.pp)
    context = service.demand.mean_context
    parts = decode_step(service.model, service.replica, service.site, each, context).parts
    largest = max(PARTS, key=lambda name: float(getattr(parts, name)))
    share = getattr(parts, largest) / parts.total_s
    said = f"{100 * share:.0f} % of a decode pass of {each:,.0f} sequence{'s' * (each >= 1.5)}"
    if isinstance(what, PooledService) or service.replica.pp > 1:
        return [Point("bottleneck", PARTS[largest], said)]
    reads = service.prompt_s(n) / _request_s(service, n)
    note = f"{said}; prompts take {100 * reads:.0f} % of the time"
    if reads > 0.5:
        return [Point("bottleneck", "prompts", f"{100 * reads:.0f} % of the time")]
    return [Point("bottleneck", PARTS[largest], note)]


def _request_s(service: Service, n: float) -> float:
    """Time of the replica that one of `n` requests takes: its prompt, its share of passes."""
    made = service.demand.outputs.mean / service.scheduler.tokens_per_pass
    return service.prompt_s(n) + made * service.pass_s(n) / n


def would_help(asked: Serve, case: ServeCase, best: FoundReplica) -> list[Point]:
    """Find formats that raise the rate of the same layout within the limits, by formula.

    Of requests in flight that are given: their throughput.
    """
    found, gpu = best.candidate, case.loaded.gpu
    if isinstance(found.what, PooledService) or "," in asked.where or asked.only:
        return []
    in_flight = (asked.concurrency or asked.burst or 0) / max(1, best.copies)

    def rate(service: Service) -> float:
        if in_flight:
            return 1.0 / _request_s(service, min(in_flight, service.sequences_with_room))
        return formula_bound(service, case.limits)

    before, asked = rate(found.what), replace(asked, disagg=None)
    tried = {
        f"--weights {name}": replace(asked, weights=name)
        for name in NARROWER.get(found.weights, ())
        if name not in MULTIPLIED or gpu.flop_per_s(name)
    }
    if found.what.replica.kv_format == "bf16":
        tried["--kv fp8"] = replace(asked, kv="fp8")
    gains: dict[str, float] = {}
    for change, other in tried.items():
        try:
            all_of_them = cases.candidates(other, cases.case_of(other))
        except GpuscaleError:  # the engine has no such kernel
            continue
        same = [
            c.what
            for c in all_of_them
            if (c.label, c.engine) == (found.label, found.engine) and isinstance(c.what, Service)
        ]
        if before and same and same[0].fits:
            gains[change] = rate(same[0]) / before - 1.0
    order = sorted((c for c in gains if gains[c] >= LEAST_GAIN_FRAC), key=lambda c: -gains[c])
    of = "tokens/s" if in_flight else "requests/s"
    said = "; ".join(f"{change}: {100 * gains[change]:.0f} % more {of}" for change in order[:2])
    return [Point("would help", said, "(formula)")] if said else []
