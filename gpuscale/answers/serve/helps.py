"""What holds a service back, and what would help most, by the formula of its layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.serve import case as cases
from gpuscale.answers.serve.records import PARTS, decode_pass
from gpuscale.core.dataclasses import replace
from gpuscale.core.serving.capacity import formula_bound
from gpuscale.core.serving.service import Service
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Point

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.case import ServeCase
    from gpuscale.core.serving.choose import FoundReplica

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
    in_flight = (asked.concurrency or asked.burst or 0) / max(1, best.copies)

    def rate(service: Service) -> float:
        if in_flight:
            return 1.0 / _request_s(service, min(in_flight, service.sequences_with_room))
        return formula_bound(service, case.limits)

    formats = [f for f in NARROWER.get(found.weights, ()) if f == "awq" or gpu.flop_per_s(f)]
    tried = {f"--weights {f}": replace(asked, weights=f, disagg=None) for f in formats}
    if what.replica.kv_format == "bf16":
        tried["--kv fp8"] = replace(asked, kv="fp8", disagg=None)
    gains = []
    for change, other in tried.items():
        try:
            all_of_them = cases.candidates(other, cases.case_of(other))
        except GpuscaleError:  # the engine has no such kernel
            continue
        same = next((c.what for c in all_of_them if c.label == found.label), None)
        if isinstance(same, Service) and same.fits and rate(what):
            gains.append((rate(same) / rate(what) - 1.0, change))
    told = sorted((g for g in gains if g[0] >= LEAST_GAIN_FRAC), reverse=True)[:2]
    more = "tokens/s" if in_flight else "requests/s"
    lines = "; ".join(f"{change}: {100 * gain:.0f} % more {more}" for gain, change in told)
    return points + [Point("would help", lines)] * bool(told)


def _request_s(service: Service, n: float) -> float:
    """Time of the replica that one of `n` requests takes: its prompt, its share of passes. [s]."""
    made = service.demand.outputs.mean / service.scheduler.tokens_per_pass
    return service.prompt_s(n) + made * service.pass_s(n) / n
