"""Where memory is tight: settings that people use then, and what would fit where none has room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuscale.answers.serve.blocks import inputs_of
from gpuscale.answers.serve.case import ServeCase, candidates, case_of, wanted_of
from gpuscale.answers.serve.launch import settings_of
from gpuscale.core.formats import element_bytes
from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving.choose import (
    SHOWN,
    Candidate,
    Choice,
    FoundReplica,
    Wanted,
    choose,
    cramped,
    preferred,
)
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.layouts import checkpoint_formats, layout_text, replica_layouts
from gpuscale.core.serving.memory import CacheRoom, cache_bytes_per_sequence
from gpuscale.core.serving.records import Replica, ServingSoftware
from gpuscale.core.serving.service import Service
from gpuscale.core.words import gb
from gpuscale.render.document import Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve


def _tight_chunk(asked: Serve, soft: ServingSoftware) -> float:
    """Tokens of a smaller pass, where a prompt may be read in several and nobody set it."""
    if asked.chunk or (soft.whole_prompts and not soft.mixed):
        return soft.memory.chunk_tokens
    return min(float(TIGHT_CHUNK), soft.memory.chunk_tokens)


TIGHT_FRAC = 0.95
TIGHT_CHUNK = 2048
TIGHT_SEQUENCES = 64
"""Settings that people use where the engine's own leave no room for the cache."""


def tightened(asked: Serve, case: ServeCase, own: FoundReplica | None = None) -> ServeCase:
    """Give engines more of the memory and smaller passes, and say so.

    `own`: the best with their own settings, if there is one.
    """
    sites = {}
    for engine, site in case.sites.items():
        soft, few = site.software, float(TIGHT_SEQUENCES)
        memory = replace(
            soft.memory,
            utilisation_frac=max(TIGHT_FRAC, soft.memory.utilisation_frac),
            chunk_tokens=_tight_chunk(asked, soft),
            sampler_sequences=min(few, soft.memory.sampler_sequences),
        )
        few = min(few, soft.max_sequences)
        soft = replace(soft, memory=memory, chunk_tokens=memory.chunk_tokens, max_sequences=few)
        sites[engine] = replace(site, software=soft)
    chunk = max(site.software.memory.chunk_tokens for site in sites.values())
    room = own.candidate.what.sequences_with_room if own else 0
    left = f"room for {room:,.0f} requests" if own else "no room"
    note = (
        f"the engine's own settings leave {left}: it takes {100 * TIGHT_FRAC:.0f} % of the memory,"
        f" {chunk:,.0f} tokens a pass and {asked.max_seqs or TIGHT_SEQUENCES} sequences"
    )
    return replace(case, sites=sites, notes=(*case.notes, note), own_sites=case.sites)


def settled(asked: Serve, shown: int = SHOWN) -> tuple[ServeCase, Wanted, Choice]:
    """Choose what is deployed, with the engine's own settings or those that people use.

    The latter are tried where the engine's own leave no room, or less than the load needs: the
    better of both by what is asked for. Nothing that was set by hand is changed.
    """
    case = case_of(asked)
    found = candidates(asked, case)
    wanted = wanted_of(asked, case, found)
    own = choose(found, wanted, asked.seed, shown)
    by_hand = asked.memory_frac or asked.context
    if by_hand or (own.best and not cramped(own.best, wanted, TIGHT_SEQUENCES)):
        return case, wanted, own
    tight = tightened(asked, case, own.best)
    found = candidates(asked, tight)
    wanted = wanted if own.best else wanted_of(asked, tight, found)
    other = choose(found, wanted, asked.seed, shown)
    if own.best and (
        not other.best or preferred(own.best, wanted) <= preferred(other.best, wanted)
    ):
        return case, wanted, own
    return tight, wanted, other


SMALLER = ("fp8", "int4-g128", "q4_k_m", "q3_k_m")
"""Formats tried where the one asked for does not fit, widest first."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Nothing fits. [byte]."""

    meets: bool
    fits: bool
    engine: str
    weights: str
    label: str  # its layout in words
    layout: Replica
    peak_bytes: float  # of a GPU, the longest request in its cache
    capacity_bytes: float
    n_gpus: int
    kv_tokens: float
    memory: CacheRoom
    missing_bytes: float
    smallest_format: str | None  # that fits the same GPUs
    fewest_gpus: int | None  # of the same format
    tighter: str  # settings of the engine with which it fits; empty where none do


def no_room_document(asked: Serve, case: ServeCase, found: Sequence[Candidate]) -> Document:
    """Say how many bytes are missing by part, the format and the GPUs that would do."""
    from gpuscale.answers.serve.measured import kv_tokens

    best, service = max(
        ((c, s) for c in found for s in services(c) if not s.fits),
        key=lambda one: one[1].room.cache_bytes,
    )
    label = best.label
    if isinstance(best.what, PooledService):
        role = "prefill" if service is best.what.prefill else "decode"
        label = f"a worker of the {role} pool, {layout_text(service.replica)}"
    memory = service.room
    needed = _one_sequence_bytes(service)
    result = NoRoom(
        meets=False,
        fits=False,
        engine=best.engine,
        weights=best.weights,
        label=label,
        layout=service.replica,
        peak_bytes=memory.usable_bytes - memory.cache_bytes + needed,
        capacity_bytes=memory.usable_bytes,
        n_gpus=service.n_gpus,
        kv_tokens=max(0.0, kv_tokens(service)),
        memory=memory,
        missing_bytes=needed - memory.cache_bytes,
        smallest_format=_smaller_format(case, service),
        fewest_gpus=_fewest(case, service),
        tighter=_tighter(asked, case, service),
    )
    rows = [
        ("weights", memory.weights_bytes),
        ("activations, sampler", memory.activations_bytes),
        ("kept from the engine", memory.overhead_bytes),
        ("cache of the longest request", needed),
    ]
    columns = (Column("part", "per GPU", right=False), Column("bytes", "bytes", gb))
    total = math.fsum(value for _, value in rows)
    table = Table(columns, [*rows, ("total", total), ("device", memory.usable_bytes)])
    blocks: list[Any] = [Text(_verdict(case, result)), table]
    if hints := _hints(result):
        blocks.append(Text("; ".join(hints) + "."))
    return Document(
        "serve",
        inputs_of(asked, case),
        result,
        blocks,
        warnings=(*case.loaded.warnings, *case.notes),
        answered_no=True,
    )


def _verdict(case: ServeCase, r: NoRoom) -> str:
    why = "the cache that is left holds less than the longest context."
    if r.missing_bytes > 0:
        why = f"{gb(r.missing_bytes)} a GPU too much."
    gpus = f"{r.n_gpus} {case.loaded.gpu.name} ({r.label})"
    return f"{case.model.name}, {r.weights}, does not fit on {gpus}: {why}"


def _hints(r: NoRoom) -> list[str]:
    """Say what would fit."""
    hints = {
        f"the cache left holds {r.kv_tokens:,.0f} tokens: so long a --context would fit": (
            r.kv_tokens >= 1.0
        ),
        f"the engine by itself refuses; with {r.tighter} it fits": r.tighter,
        f"--weights {r.smallest_format} fits": r.smallest_format,
        f"{r.fewest_gpus} GPUs hold {r.weights}": r.fewest_gpus,
    }
    return [hint for hint, holds in hints.items() if holds]


def services(c: Candidate) -> tuple[Service, ...]:
    """Replicas of a candidate: one, or a worker of each pool."""
    if isinstance(c.what, PooledService):
        return (c.what.prefill, c.what.decode)
    return (c.what,)


def _one_sequence_bytes(service: Service) -> float:
    promised = max(service.demand.mean_context, service.demand.most_context)
    return cache_bytes_per_sequence(service.model, service.replica, promised)


def _smaller_format(case: ServeCase, service: Service) -> str | None:
    """Widest format that fits the same layout."""
    now = element_bytes(service.replica.ffn_format)
    for name in SMALLER:
        kv = case.cache_format(service.site.software.name, name)
        formats = checkpoint_formats(case.model, name, kv)
        ffn, attention = formats.ffn_format, formats.attention_format
        one = replace(service.replica, ffn_format=ffn, attention_format=attention)
        if element_bytes(name) < now and Service(case.model, one, service.site, case.demand).fits:
            return name
    return None


def _tighter(asked: Serve, case: ServeCase, service: Service) -> str:
    """Name settings that leave more for the cache than the engine's own, if they are enough."""
    if asked.memory_frac or case.own_sites:
        return ""
    site = tightened(asked, case).sites[service.site.software.name]
    one = Service(case.model, service.replica, site, case.demand, service.tuning)
    return settings_of(asked, one) if one.fits else ""


def _fewest(case: ServeCase, service: Service) -> int | None:
    """Fewest GPUs that hold the same format; ranks of attention stay as wide as they are."""
    domain, own = case.loaded.cluster.scaleup_domain_gpus, service.replica
    for most in sorted({2**n for n in range(13)} | set(range(8, 128, 8))):
        for replica in replica_layouts(
            case.model, service.replica, most, (domain, domain), service.site.software.name
        ):
            alike = own.dp_attention == 1 or (replica.dp_attention > 1 and replica.tp == own.tp)
            one = Service(case.model, replica, service.site, case.demand)
            if replica.n_gpus == most and alike and one.fits:
                return most
    return None
