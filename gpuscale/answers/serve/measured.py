"""From what the search found to what is shown: rates, money, energy, verdicts, intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.answers.money import rate_of
from gpuscale.answers.serve.case import ServeCase
from gpuscale.answers.serve.records import ServeRow
from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.bill import usd_per_million_tokens
from gpuscale.core.serving.capacity import REQUESTS, Limits, keeps_up
from gpuscale.core.serving.choose import FoundReplica, Wanted, at_rate
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.layouts import n_experts
from gpuscale.core.serving.memory import cache_bytes_per_sequence
from gpuscale.core.serving.percentiles import LoadResult
from gpuscale.core.serving.power import energy_per_token_j, gpu_power_w, use_frac
from gpuscale.core.serving.service import Service
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve

SHARED_MEMORY = math.sqrt(2.0)
"""Width of a GPU that shares its memory with the host over another one's that was not measured:
two things are unknown, as uncertain each, its kernels and who else uses the bandwidth."""


def kv_tokens(service: Service) -> float:
    """Tokens that the cache of one attention rank holds, as engines print it. [1].

    They count requests of the longest length: states and windows, which do not grow with it, weigh
    little there.
    """
    demand = service.demand
    tokens = demand.most_context or max(demand.mean_context, service.model.max_position or 0.0)
    each = cache_bytes_per_sequence(service.model, service.replica, tokens)
    return max(0.0, service.room.cache_bytes) / each * tokens if each > 0.0 else math.inf


def at_the_edge(case: ServeCase, what: Service | PooledService) -> str:
    """Say where the longest context promised is beyond the cache, within the estimate's error."""
    if isinstance(what, PooledService) or not what.context_lacks_bytes:
        return ""
    return (
        f"{case.model.name} probably does not start: the engine refuses where its cache, estimated "
        f"at {kv_tokens(what):,.0f} tokens, holds less than --context "
        f"({what.demand.most_context:,.0f}), which is within the error; a larger --memory-frac "
        "helps. Where it starts:"
    )


def itself(case: ServeCase, engine: str) -> bool:
    """Whether an engine was measured itself, in no older version, on such a GPU."""
    from gpuscale.io.serving import measured

    version, architecture = case.versions.get(engine, ""), case.loaded.gpu.architecture
    return engine not in case.borrowed and measured(engine, version, architecture)


def widths(case: ServeCase, found: FoundReplica, wanted: Wanted) -> tuple[float, float]:
    """Half widths of ln(TTFT) and ln(TPOT) that hold 80 % of the measured rows of the kind."""
    from gpuscale.io.serving import serving_intervals

    known = serving_intervals()
    what = found.candidate.what
    pooled = isinstance(what, PooledService)
    decode = what.decode if isinstance(what, PooledService) else what
    local = wanted.concurrency == 1 and decode.site.software.name == "llamacpp"
    kind = "pools" if pooled else "one" if local else "closed"
    engine = decode.site.software.name
    age = case.ages.get(engine)
    shared = case.loaded.gpu.memory_kind.startswith("LPDDR")
    drafts = "+new" if age and age.new else "+drafts" if decode.replica.drafts else ""
    shape = "moe" if n_experts(case.model) else "dense"
    out = []
    for quantity in ("ttft_ms", "tpot_ms"):
        names = (f"{kind}{drafts}/{shape}/{quantity}", f"closed{drafts}/{shape}/{quantity}")
        width = next((known[name] for name in names if name in known), known["unknown"])
        if shared or not itself(case, engine):
            unseen = known[f"unseen/{quantity}"] * (SHARED_MEMORY if shared else 1.0)
            width = max(width, unseen)
        out.append(width)
    return out[0], out[1]


FINAL_REQUESTS = 10_000
"""Requests of the simulation of the best layout."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a GPU-hour, and where it is from."""

    usd_per_gpu_hour: float | None
    origin: str


def given_price(asked: Serve) -> float | None:
    """Price of a GPU-hour as given: of one, or of all that are given. [USD/h]."""
    if asked.price_total is None:
        return asked.price
    if asked.price is not None or not asked.gpus:
        raise GpuscaleError(
            "--price-total is of all GPUs given with --gpus, instead of --price",
            "as --gpus 2 --price-total '2.84 USD/h'",
        )
    return asked.price_total / asked.gpus


def price_of(asked: Serve, case: ServeCase) -> Price:
    """Price as given, of the cluster's preset, or of dated offers."""
    rate = rate_of(case.loaded.cluster, given_price(asked), asked.spot)
    if rate is None:
        return Price(None, "")
    origin = ", ".join(filter(None, (rate.kind, rate.origin, rate.as_of)))
    return Price(rate.usd_per_gpu_hour, origin)


def confirmed(found: FoundReplica, wanted: Wanted) -> FoundReplica:
    """Hold the choice against the larger simulation; where the number is open, add what lacks."""
    rate = wanted.rate_per_s
    if rate is None or not found.meets:
        return found
    for _ in range(4):
        load = at_rate(found, rate, FINAL_REQUESTS)
        use = wanted.limits.use(load)
        if use <= 1.0 and keeps_up(load, rate / found.copies):
            break
        if wanted.n_gpus is not None:
            return replace(found, at_most_per_s=min(found.at_most_per_s, rate / max(use, 1.0)))
        each = found.at_most_per_s / found.copies
        found = replace(found, copies=found.copies + 1, at_most_per_s=each * (found.copies + 1))
    return found


def load_shown(found: FoundReplica, wanted: Wanted, n: int) -> LoadResult | None:
    """Load of one copy at the rate asked for; None where its queue would grow without end."""
    if wanted.concurrency is not None or wanted.rate_per_s is None:
        return found.load if found.copies else None
    if not found.copies or (not found.meets and wanted.limits == Limits()):
        return None
    load = at_rate(found, wanted.rate_per_s, n)
    return load if keeps_up(load, wanted.rate_per_s / found.copies) else None


def verdict(found: FoundReplica, wanted: Wanted, load: LoadResult | None) -> str:
    """Say in a word what a layout does with the load."""
    if found.copies == 0:
        return "no room"
    limits = wanted.limits
    if load is None:
        return "too slow"
    missed = limits.missed(load)
    if missed:
        return "misses " + " and ".join(missed)
    if limits.ttft is None and limits.tpot is None:
        return f"bound by {found.binding}" if wanted.rate_per_s is None else "keeps up"
    return "meets" if found.meets else f"misses {found.binding}"


def power_of(found: FoundReplica, load: LoadResult, tdp_w: float) -> float:
    """Power of one GPU under a load; of pools that of a decode worker. [W]."""
    from gpuscale.io.serving import load_power

    what = found.candidate.what
    service = what.decode if isinstance(what, PooledService) else what
    context = service.demand.mean_context
    use = use_frac(service.model, service.replica, service.site, load, context)
    return gpu_power_w(tdp_w, use, load_power(), load.busy_frac)


def row_of(
    found: FoundReplica, wanted: Wanted, price: Price, tdp_w: float | None, n: int = REQUESTS
) -> tuple[ServeRow, LoadResult | None]:
    """One row, and the load behind it."""
    c, load = found.candidate, load_shown(found, wanted, n)
    gpus = max(1, found.n_gpus)
    out = total = per_gpu = usd_out = usd_all = joule = None
    if load is not None:
        out = load.output_tokens_per_s * found.copies
        total = out + load.input_tokens_per_s * found.copies
        per_gpu = out / gpus
        usd = c.usd_per_gpu_hour or price.usd_per_gpu_hour
        if usd and out > 0.0:
            usd_out = usd_per_million_tokens(usd, gpus, out)
            usd_all = usd_per_million_tokens(usd, gpus, total)
        if tdp_w is not None and out > 0.0:
            joule = energy_per_token_j(gpus, power_of(found, load, tdp_w), out)
    closed = wanted.concurrency is not None
    row = ServeRow(
        engine=c.engine,
        weights=c.weights,
        label=c.label,
        replicas=found.copies,
        n_gpus=found.n_gpus,
        at_most_per_s=None if closed or not found.copies else found.at_most_per_s,
        ttft=load.ttft if load else None,
        tpot=load.tpot if load else None,
        requests_per_s=load.requests_per_s * found.copies if load else None,
        output_tokens_per_s=out,
        total_tokens_per_s=total,
        tokens_per_s_per_user=load.tokens_per_s_per_user if load else None,
        tokens_per_s_per_gpu=per_gpu,
        usd_per_million_output_tokens=usd_out,
        usd_per_million_tokens=usd_all,
        j_per_output_token=joule,
        verdict=verdict(found, wanted, load),
    )
    return row, load
