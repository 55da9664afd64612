"""Passes of a replica under load: decoding with its drafts, prompts in chunks, what has room.

Iteration-level scheduling: Yu et al. 2022 (Orca, OSDI), section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.serving.forward import layer_time_s, pass_time
from gpuscale.core.serving.memory import cache_bytes_per_sequence, cache_room
from gpuscale.core.serving.records import Batch, PassTime, Replica

if TYPE_CHECKING:
    from gpuscale.core.serving.records import ServingSite
    from gpuscale.specs.model import ModelSpec


def most_sequences(model: ModelSpec, replica: Replica, site: ServingSite, tokens: float) -> float:
    """Sequences of `tokens` tokens whose cache fits beside the weights, whole replica. [1]."""
    room = cache_room(model, replica, site.software.memory, site.hbm_bytes).cache_bytes
    each = cache_bytes_per_sequence(model, replica, tokens)
    most = room / each if each > 0.0 else math.inf
    most = min(most, site.software.max_sequences * replica.pp)
    return max(0.0, most) * replica.dp_attention


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One pass over decoding sequences, and the tokens that each gets of it."""

    parts: PassTime
    draft_s: float  # proposing, 0 without drafts
    tokens: float  # 1, and the drafts accepted

    @property
    def time_s(self) -> float:
        """Of the pass and the drafts."""
        return self.parts.total_s + self.draft_s

    @property
    def per_token_s(self) -> float:
        """Time per token of a sequence: ``(T(b (n+1)) + T_draft) / (1 + a)``."""
        return self.time_s / self.tokens


def decode_step(
    model: ModelSpec, replica: Replica, site: ServingSite, sequences: float, context: float
) -> DecodeStep:
    """One decode pass of `sequences` sequences, with the replica's drafts (Leviathan 2023).

    A draft costs one layer like the model's last (its prediction layer, or an EAGLE head) and the
    output head, one after another.
    """
    drafts = replica.drafts
    if drafts is None or drafts.n_tokens < 1:
        batch = Batch(sequences=sequences, context=context)
        return DecodeStep(pass_time(model, replica, site, batch), 0.0, 1.0)
    batch = Batch(sequences=sequences, context=context, tokens_each=drafts.n_tokens + 1.0)
    parts = pass_time(model, replica, site, batch)
    one = layer_time_s(model, replica, site, Batch(sequences=sequences, context=context))
    return DecodeStep(parts, drafts.n_tokens * one, 1.0 + drafts.accepted)


def prompt_pass(
    model: ModelSpec,
    replica: Replica,
    site: ServingSite,
    tokens: float,
    prompts: float,
    decoding: float = 0.0,
    context: float = 0.0,
) -> PassTime:
    """Time of the passes that read `prompts` prompts at a time, decoding along if asked.

    A prompt longer than the chunk takes several passes, returned as their sum; `host_s` too. Each
    attention rank reads prompts of its own, one chunk a pass.
    """
    ranks = max(1.0, min(replica.dp_attention, prompts))
    n_passes = max(1.0, tokens * prompts / ranks / site.software.chunk_tokens)
    each = replica.drafts.n_tokens + 1.0 if replica.drafts else 1.0
    batch = Batch(
        tokens * prompts / n_passes,
        tokens / 2.0,
        prompts / n_passes,
        decoding,
        context,
        tokens_each=each,
        prompt_ranks=ranks,
    )
    one = pass_time(model, replica, site, batch)
    return (
        PassTime(*(n_passes * getattr(one, name) for name in PassTime.__slots__))
        if n_passes > 1.0
        else one
    )
