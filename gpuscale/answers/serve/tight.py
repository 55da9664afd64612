"""Settings of an engine: its own, or those that people use where memory is tight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.serve.case import ServeCase, candidates, case_of, wanted_of
from gpuscale.core.dataclasses import replace
from gpuscale.core.serving.choose import (
    SHOWN,
    Choice,
    FoundReplica,
    Wanted,
    choose,
    cramped,
    preferred,
)

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.core.serving.records import ServingSoftware


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
        memory = replace(
            site.software.memory,
            utilisation_frac=max(TIGHT_FRAC, site.software.memory.utilisation_frac),
            chunk_tokens=_tight_chunk(asked, site.software),
            sampler_sequences=min(float(TIGHT_SEQUENCES), site.software.memory.sampler_sequences),
        )
        soft = replace(
            site.software,
            memory=memory,
            chunk_tokens=memory.chunk_tokens,
            max_sequences=min(float(TIGHT_SEQUENCES), site.software.max_sequences),
        )
        sites[engine] = replace(site, software=soft)
    chunk = max(site.software.memory.chunk_tokens for site in sites.values())
    room = own.candidate.what.sequences_with_room if own else 0
    left = f"room for {room:,.0f} requests" if own else "no room"
    note = (
        f"the engine's own settings leave {left}: it takes {100 * TIGHT_FRAC:.0f} % of the memory,"
        f" {chunk:,.0f} tokens a pass and {asked.max_seqs or TIGHT_SEQUENCES} sequences"
    )
    return replace(case, sites=sites, notes=(*case.notes, note), tight=True)


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
