"""Figures of a service that several parts of its answer show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.answers.serve.records import MemoryLine

if TYPE_CHECKING:
    from gpuscale.answers.serve.case import Case
    from gpuscale.core.serving.service import Service


def kv_tokens(service: Service) -> float:
    """Tokens that the cache of one attention rank holds, as engines print it. [1]."""
    from gpuscale.core.memory.engine import cache_bytes_per_sequence

    tokens = service.demand.mean_context
    each = cache_bytes_per_sequence(service.model, service.replica, tokens)
    return max(0.0, service.room.cache_bytes) / each * tokens if each > 0.0 else math.inf


def memory_line(service: Service) -> MemoryLine:
    """Memory of one GPU."""
    room = service.room
    return MemoryLine(
        room.weights_bytes,
        room.activations_bytes,
        room.overhead_bytes,
        room.cache_bytes,
        room.usable_bytes,
    )


def widths(case: Case) -> tuple[float, float]:
    """Half widths of ln(TTFT) and ln(TPOT) that hold 80 % of the measured rows of the kind."""
    from gpuscale.core.serving.layouts import n_experts
    from gpuscale.io.serving import serving_intervals

    known = serving_intervals()
    kind = "moe" if n_experts(case.model) else "dense"
    found = []
    for quantity in ("ttft_ms", "tpot_ms"):
        width = known.get(f"closed/{kind}/{quantity}", known["unknown"])
        if not case.measured:
            width = max(width, known["unseen-architecture"])
        found.append(width)
    return found[0], found[1]
