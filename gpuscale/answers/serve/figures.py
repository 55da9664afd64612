"""Figures of a service that several parts of its answer show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.answers.serve.case import Case
    from gpuscale.core.serving.choose import Found, Wanted
    from gpuscale.core.serving.service import Service


SHARED_MEMORY = math.sqrt(2.0)
"""Width of a GPU that shares its memory with the host over another one's that was not measured:
two things are unknown, as uncertain each, its kernels and who else uses the bandwidth."""


def kv_tokens(service: Service) -> float:
    """Tokens that the cache of one attention rank holds, as engines print it. [1].

    They count requests of the longest length: states and windows, which do not grow with it, weigh
    little there.
    """
    from gpuscale.core.serving.memory import cache_bytes_per_sequence

    demand = service.demand
    tokens = demand.most_context or max(demand.mean_context, service.model.max_position or 0.0)
    each = cache_bytes_per_sequence(service.model, service.replica, tokens)
    return max(0.0, service.room.cache_bytes) / each * tokens if each > 0.0 else math.inf


def widths(case: Case, found: Found, wanted: Wanted) -> tuple[float, float]:
    """Half widths of ln(TTFT) and ln(TPOT) that hold 80 % of the measured rows of the kind."""
    from gpuscale.core.serving.disaggregated import PooledService
    from gpuscale.core.serving.layouts import n_experts
    from gpuscale.io.serving import serving_intervals

    known = serving_intervals()
    what = found.candidate.what
    pooled = isinstance(what, PooledService)
    decode = what.decode if isinstance(what, PooledService) else what
    local = wanted.concurrency == 1 and decode.site.software.name == "llamacpp"
    kind = "pools" if pooled else "one" if local else "closed"
    age = case.ages.get(decode.site.software.name)
    drafts = "+new" if age and age.new else "+drafts" if decode.replica.drafts else ""
    shape = "moe" if n_experts(case.model) else "dense"
    out = []
    for quantity in ("ttft_ms", "tpot_ms"):
        names = (f"{kind}{drafts}/{shape}/{quantity}", f"closed{drafts}/{shape}/{quantity}")
        width = next((known[name] for name in names if name in known), known["unknown"])
        if not case.measured:
            shared = case.loaded.gpu.memory_kind.startswith("LPDDR")
            unseen = known["unseen-architecture"] * (SHARED_MEMORY if shared else 1.0)
            width = max(width, unseen)
        out.append(width)
    return out[0], out[1]
