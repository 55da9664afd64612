"""Workers that read prompts and workers that decode, as one service under load.

Zhong et al. 2024 (DistServe, arXiv:2401.09670), sections 3 and 4.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.serving.memory import cache_bytes_per_sequence
from gpuscale.core.serving.percentiles import WARM_UP_FRAC, LoadResult, summarise
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.service import Demand, Service, Tuning
from gpuscale.core.serving.traffic import Lengths, Traffic, draw

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

ONE_TOKEN = Lengths("fixed", 1)


HALVINGS = 40
"""Halvings of the rate: a millionth of a millionth of it."""


def prefill_worker(
    model: ModelSpec, replica: Replica, site: ServingSite, demand: Demand, tuning: Tuning
) -> Service:
    """Worker that reads prompts and sends their cache away with the first token."""
    alone = replace(replica, drafts=None)
    return Service(model, alone, site, replace(demand, outputs=ONE_TOKEN), tuning)


def decode_worker(
    model: ModelSpec, replica: Replica, site: ServingSite, demand: Demand, tuning: Tuning
) -> Service:
    """Worker whose prompts come with their cache."""
    return Service(model, replica, site, demand, tuning, prefilled=True)


def transfer_s(prefill: Service, decode: Service, n_gpus: int) -> float:
    """Time by which the cache of a mean prompt comes later than its first token. [s].

    Layers are sent while the next ones are read, so one layer's cache is left: its bytes on a GPU
    over the link between the pools, the scale-up one where all GPUs are in one domain.
    """
    site = prefill.site
    held = cache_bytes_per_sequence(prefill.model, prefill.replica, prefill.demand.inputs.mean)
    link = site.scaleup_bytes_per_s if n_gpus <= site.domain else site.scaleout_bytes_per_s
    return held / prefill.model.n_layers / link


LEAST_SIMULATED, MOST_SIMULATED = 3_000, 300_000
"""Requests of a simulated closed loop: three rounds of those in flight, so that it settles."""


class PooledService:
    """`n_prefill` workers that read and `n_decode` that decode.

    A prompt waits for and is read by one of the first, its cache is sent, it waits for a place in
    one of the second and gets its first token there one pass later. Requests are given to workers
    at random, so one worker of each kind stands for all.
    """

    def __init__(self, prefill: Service, n_prefill: int, decode: Service, n_decode: int) -> None:
        self.prefill, self.n_prefill = prefill, n_prefill
        self.decode, self.n_decode = decode, n_decode
        self.n_gpus = n_prefill * prefill.n_gpus + n_decode * decode.n_gpus
        self.transfer_s = transfer_s(prefill, decode, self.n_gpus)

    @property
    def fits(self) -> bool:
        """Whether both kinds of workers have room."""
        return self.prefill.fits and self.decode.fits

    @property
    def sequences_with_room(self) -> float:
        """Sequences of mean length that the caches of the decode workers hold."""
        return self.n_decode * self.decode.sequences_with_room

    def most_rate(self, ttft_s: float = math.inf, tpot_s: float = math.inf) -> float:
        """Highest rate at which the formula's means stay within limits. [1/s]."""
        after = self.transfer_s + self.decode.pass_s(1.0)
        first = self.n_prefill * self.prefill.most_rate(max(0.0, ttft_s - after))
        return min(first, self.n_decode * self.decode.most_rate(math.inf, tpot_s))

    def open(self, rate_per_s: float, n: int, seed: int = 0) -> LoadResult:
        """Simulate `n` requests that come at random."""
        return summarise(self.came(rate_per_s, n, seed), warm_up_frac=WARM_UP_FRAC)

    def came(self, rate_per_s: float, n: int, seed: int = 0) -> Simulated:
        """Moments of `n` requests that come at random."""
        read = self.prefill.came(rate_per_s / self.n_prefill, n, seed)
        made = self.decode.came(rate_per_s / self.n_decode, n, seed)
        arrivals = [i * 1.0 / rate_per_s for i in range(n)]
        first, end = [], []
        more = self.transfer_s + self.decode.pass_s(1.0) - self.decode.scheduler.request_s
        for i, arrival in enumerate(arrivals):
            wait = made.first_s[i] - made.arrival_s[i]
            after = arrival + read.end_s[i] - read.arrival_s[i] + wait + more
            first.append(after)
            end.append(after + made.end_s[i] - made.first_s[i])
        return Simulated(
            arrival_s=arrivals,
            first_s=first,
            end_s=end,
            inputs=list(read.inputs),
            outputs=list(made.outputs),
            n_preempted=made.n_preempted,
            n_refused=read.n_refused + made.n_refused,
            n_passes=made.n_passes,
            busy_s=made.busy_s,
            sequence_s=made.sequence_s * self.n_decode,
            most_sequences=made.most_sequences,
        )

    def burst(self, n: int, seed: int = 0) -> LoadResult:
        """Simulate `n` requests that all come at once, each worker its share."""
        demand = self.decode.demand
        rng = random.Random(f"sizes {seed}")
        inputs, outputs = draw(demand.inputs, n, rng), draw(demand.outputs, n, rng)
        first, end = [0.0] * n, [0.0] * n
        for worker in range(self.n_prefill):
            mine = range(worker, n, self.n_prefill)
            if mine:
                read = self.prefill.simulated(
                    Traffic([inputs[i] for i in mine], [1] * len(mine), [0.0] * len(mine))
                )
                for at, i in enumerate(mine):
                    first[i] = read.end_s[at] + self.transfer_s
        order = sorted(range(n), key=first.__getitem__)
        made_runs = []
        for worker in range(self.n_decode):
            part = order[worker :: self.n_decode]
            if part:
                made = self.decode.simulated(
                    Traffic(
                        [inputs[i] for i in part],
                        [outputs[i] for i in part],
                        [first[i] for i in part],
                    )
                )
                made_runs.append(made)
                step, request = self.decode.pass_s(1.0), self.decode.scheduler.request_s
                for at, i in enumerate(part):
                    first[i] = made.first_s[at] - request + step
                    end[i] = made.end_s[at] - request + step
        return summarise(
            Simulated(
                [0.0] * n,
                first,
                end,
                inputs,
                outputs,
                sum(m.n_preempted for m in made_runs),
                busy_s=max(m.busy_s for m in made_runs),
                sequence_s=sum(m.sequence_s for m in made_runs),
                most_sequences=max(m.most_sequences for m in made_runs),
            )
        )

    def closed(self, concurrency: int, n: int | None = None, seed: int = 0) -> LoadResult:
        """Load of `concurrency` requests in flight: the rate at which as many are inside (Little).

        The rate is found by the formula, its latencies by simulation.
        """
        low, high = 0.0, self.most_rate()
        more = self.decode.demand.outputs.mean - 1.0
        for _ in range(HALVINGS):
            rate = 0.5 * (low + high)
            read = self.prefill.steady(rate / self.n_prefill)
            made = self.decode.steady(rate / self.n_decode)
            inside = rate * (read.ttft_s + self.transfer_s + (more + 1.0) * made.tpot_s)
            low, high = (low, rate) if inside > concurrency else (rate, high)
        rounds = min(MOST_SIMULATED, max(LEAST_SIMULATED, 3 * concurrency))
        return self.open(0.5 * (low + high), n or rounds, seed)
