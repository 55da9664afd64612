"""Disaggregated serving: a pool of workers that read prompts, and one that decodes.

Zhong et al. 2024 (DistServe, arXiv:2401.09670), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.serving.load import decode_step, most_sequences, prompt_pass
from gpuscale.core.serving.memory import cache_bytes_per_sequence
from gpuscale.core.serving.records import ServingLoad

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, Requests, ServingSite
    from gpuscale.specs.model import ModelSpec

ROUNDS = 40
SHARPNESS = 8.0
"""Exponent with which the rates that the two pools allow meet: a closed loop of many requests is
bound by the slower one, softly near their crossing."""


TOLERANCE = 1e-3
"""Relative change of the decoding sequences at which the rounds end."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal workers of one kind."""

    replica: Replica
    workers: int

    @property
    def n_gpus(self) -> int:
        """GPUs of the pool."""
        return self.workers * self.replica.n_gpus


@dataclass(frozen=True, slots=True)
class Pools:
    """A prefill pool and a decode pool."""

    prefill: Pool
    decode: Pool

    @property
    def n_gpus(self) -> int:
        """GPUs of both."""
        return self.prefill.n_gpus + self.decode.n_gpus


@dataclass(frozen=True, slots=True)
class PrefillPool:
    """What a prefill pool does."""

    alone_s: float  # a prompt that meets no other
    prompts_per_s: float  # at most, all workers
    tokens_per_s: float


def prefill_pool(
    model: ModelSpec, pool: Pool, site: ServingSite, input_tokens: float
) -> PrefillPool:
    """Time of one prompt and the rate of a pool that only reads prompts, full chunks a rank."""
    alone = prompt_pass(model, pool.replica, site, input_tokens, 1.0).total_s
    ranks = pool.replica.dp_attention
    each = max(1.0, site.software.chunk_tokens // input_tokens) * ranks
    together = prompt_pass(model, pool.replica, site, input_tokens, each).total_s
    rate = pool.workers * max(each / together, 1.0 / alone) * pool.replica.pp
    return PrefillPool(alone, rate, rate * input_tokens)


def transfer_s(model: ModelSpec, pools: Pools, site: ServingSite, input_tokens: float) -> float:
    """Time by which the cache of a prompt arrives later than its first token. [s].

    Layers are sent while the next ones are read, so about one layer's cache is left:
    ``bytes_of_a_layer / link`` of the GPUs that hold it.
    """
    each = cache_bytes_per_sequence(model, pools.prefill.replica, input_tokens) / model.n_layers
    inside = pools.n_gpus <= site.domain
    link = site.scaleup_bytes_per_s if inside else site.scaleout_bytes_per_s
    return each / link


def disaggregated_loop(
    model: ModelSpec, pools: Pools, site: ServingSite, load: Requests
) -> ServingLoad:
    """Compute times and throughput of a prefill and a decode pool under a closed loop.

    A request is read, its cache sent, then decoded without the interference of prompts. The rate is
    what both pools allow: ``1/m`` prompts a second of the first, ``C / (TTFT + (o-1) TPOT)`` of the
    loop; where the first binds, requests queue before it.

    Parameters
    ----------
    model : ModelSpec
        The model.
    pools : Pools
        Layouts and workers.
    site : ServingSite
        Hardware, software, calibration.
    load : Requests
        Mean lengths and concurrency of all pools together.

    Raises
    ------
    ValueError
        If a length is below 1.
    """
    n, o = load.input_tokens, load.output_tokens
    if n < 1 or o < 1:
        raise ValueError("lengths must be at least 1")
    more, context = max(0.0, o - 1.0), n + o / 2.0
    soft = site.software
    first = prefill_pool(model, pools.prefill, site, n)
    workers = pools.decode.workers
    room = most_sequences(model, pools.decode.replica, site, context)
    asked = load.concurrency if load.concurrency is not None else room * workers
    sent = transfer_s(model, pools, site, n)
    fits = room >= 1.0
    room = room if fits else asked / workers
    decoding = min(asked / workers, room)
    rate = ttft = 0.0
    for _ in range(ROUNDS):
        step = decode_step(model, pools.decode.replica, site, max(1.0, decoding), context)
        alone = soft.request_s + first.alone_s + sent + step.time_s
        stay = alone + more * step.per_token_s
        free = asked / stay
        held = room * workers / max(1e-9, more * step.per_token_s)
        rate = (free**-SHARPNESS + first.prompts_per_s**-SHARPNESS + held**-SHARPNESS) ** (
            -1.0 / SHARPNESS
        )
        ttft = asked / rate - more * step.per_token_s
        wanted = max(min(1.0, asked / workers), rate * more * step.per_token_s / workers)
        if abs(wanted - decoding) < TOLERANCE * decoding:
            break
        decoding = 0.5 * (decoding + wanted)
    prefill = prompt_pass(model, pools.prefill.replica, site, n, 1.0)
    return ServingLoad(
        ttft_s=ttft,
        tpot_s=step.per_token_s,
        tokens_per_s=rate * o,
        decoding_sequences=decoding * workers,
        concurrency=asked,
        decode_pass_s=step.time_s,
        prefill_s=first.alone_s,
        fits=fits,
        decode=step.parts,
        prefill=prefill,
    )
