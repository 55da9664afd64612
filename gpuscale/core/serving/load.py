"""A replica under load: a closed loop, as many sequences as fit, one static batch.

Sequences, rate and time are tied by Little's law (J. D. C. Little, Operations Research 9(3), 1961).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.serving.forward import layer_time_s, pass_time
from gpuscale.core.serving.memory import cache_bytes_per_sequence, cache_room
from gpuscale.core.serving.records import Batch, PassTime, Replica, ServingLoad

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Requests, ServingSite
    from gpuscale.specs.model import ModelSpec

ROUNDS = 16
"""Most fixed-point rounds of the closed loop; it contracts by half in each."""

TOLERANCE = 2e-3
"""Relative change of a request's time at which the rounds end."""


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


@dataclass(frozen=True, slots=True)
class Steady:
    """Steady state of a closed loop."""

    ttft_s: float
    tpot_s: float
    decoding: float
    decode: DecodeStep


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


def steady_state(
    model: ModelSpec, replica: Replica, site: ServingSite, load: Requests, concurrency: float
) -> Steady:
    """Find TTFT and TPOT of `concurrency` requests in flight, each followed by the next.

    A request waits for the prompts before it, is read, then decodes `o - 1` tokens; meanwhile the
    others' prompts are read too:

        TTFT = request + decode/2 + read (own + waiting),  waiting = queue in flight + burst
        TPOT = decode + read * decoding (C - 1)/C (1 - burst_frac / 2) / (o - 1)

    `decoding = concurrency (1 - TTFT / (TTFT + (o - 1) TPOT))`, by Little's law. With pipeline
    stages a group of `concurrency / pp` sequences is in each stage at a time.
    """
    n, more = load.input_tokens, max(0.0, load.output_tokens - 1.0)
    context, soft = n + load.output_tokens / 2.0, site.software
    chunk = soft.chunk_tokens * replica.dp_attention
    decoding, waiting, busy = concurrency, 0.0, 0.0
    others, stalled = (concurrency - 1.0) / concurrency, 1.0 - 0.5 * soft.burst_frac
    ttft = tpot = 0.0
    decode = DecodeStep(PassTime(), 0.0, 1.0)
    for _ in range(ROUNDS):
        inside = max(1.0, decoding / replica.pp)
        decode = decode_step(model, replica, site, inside, context)
        prompts = max(1.0, min(1.0 + waiting, chunk / n))
        ranks = max(1.0, min(replica.dp_attention, prompts))
        n_passes = max(1.0, n * prompts / ranks / soft.chunk_tokens)
        along = inside if soft.mixed and concurrency > 1.0 else 0.0
        reading = prompt_pass(
            model, replica, site=site, tokens=n, prompts=prompts, decoding=along, context=context
        ).total_s
        taken = reading - n_passes * decode.parts.total_s if along else reading
        each = max(0.0, taken) / prompts / replica.pp  # stages read different prompts at a time
        reading += each * max(0.0, waiting - (prompts - 1.0))
        ttft_new = soft.request_s + 0.5 * decode.time_s + reading
        stall = each * decoding * others * stalled / more if more else 0.0
        tpot_new = decode.per_token_s + stall
        cycle = ttft_new + more * tpot_new
        queue = site.kernels.queue_factor * others * concurrency * min(1.0, reading / cycle)
        burst = soft.burst_frac * (concurrency - 1.0) / 2.0
        waiting = 0.5 * (waiting + min(concurrency - 1.0, queue + burst))
        decoding = 0.5 * (decoding + max(1.0, concurrency * more * tpot_new / cycle))
        ttft, tpot = ttft_new, tpot_new
        if abs(cycle - busy) < TOLERANCE * cycle:
            break
        busy = cycle
    return Steady(ttft, tpot, decoding, decode)


def closed_loop(
    model: ModelSpec, replica: Replica, site: ServingSite, load: Requests
) -> ServingLoad:
    """Compute times and throughput of a replica under a closed loop of requests.

    Parameters
    ----------
    model : ModelSpec
        The model.
    replica : Replica
        Layout and formats.
    site : ServingSite
        Hardware, software, calibration.
    load : Requests
        Mean lengths and concurrency; without a concurrency as many as fit are kept in flight.

    Returns
    -------
    ServingLoad
        TTFT includes waiting: for the memory (where not all fit) and for other prompts. Where not
        even one fits, the times are those of a GPU with enough memory and `fits` is false.

    Raises
    ------
    ValueError
        If a length or the concurrency is below 1.
    """
    if load.input_tokens < 1 or load.output_tokens < 1 or (load.concurrency or 1) < 1:
        raise ValueError("lengths and concurrency must be at least 1")
    o = load.output_tokens
    room = most_sequences(model, replica, site, load.input_tokens + o / 2.0)
    asked = load.concurrency if load.concurrency is not None else max(1.0, room)
    inside = max(1.0, min(asked, room)) if room >= 1.0 else asked
    steady = steady_state(model, replica, site, load, inside)
    stay = steady.ttft_s + (o - 1.0) * steady.tpot_s
    queue_s = (asked - inside) * stay / inside
    prefill = prompt_pass(model, replica, site, load.input_tokens, 1.0)
    return ServingLoad(
        ttft_s=steady.ttft_s + queue_s,
        tpot_s=steady.tpot_s,
        tokens_per_s=asked * o / (stay + queue_s),
        decoding_sequences=steady.decoding,
        concurrency=inside,
        decode_pass_s=steady.decode.time_s,
        prefill_s=prefill.total_s,
        fits=room >= 1.0,
        decode=steady.decode.parts,
        prefill=prefill,
    )


def static_batch(
    model: ModelSpec, replica: Replica, site: ServingSite, load: Requests
) -> ServingLoad:
    """One batch read at once, then decoded together to the end."""
    size, o = load.concurrency or 1.0, load.output_tokens
    context = load.input_tokens + o / 2.0
    prefill = prompt_pass(model, replica, site, load.input_tokens, size)
    decode = decode_step(model, replica, site, size, context)
    ttft = prefill.total_s
    total = ttft + (o - 1.0) * decode.per_token_s
    room = most_sequences(model, replica, site, load.input_tokens + o)
    return ServingLoad(
        ttft_s=ttft,
        tpot_s=decode.per_token_s,
        tokens_per_s=size * o / total,
        decoding_sequences=size,
        concurrency=size,
        decode_pass_s=decode.time_s,
        prefill_s=prefill.total_s,
        fits=room >= size,
        decode=decode.parts,
        prefill=prefill,
    )
