"""Workers that read prompts and workers that decode, as one service under load.

Zhong et al. 2024 (DistServe, arXiv:2401.09670), sections 3 and 4.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from gpuscale.core.records import replace
from gpuscale.core.serving.loads import Demand, UnderLoad
from gpuscale.core.serving.memory import cache_bytes_per_sequence
from gpuscale.core.serving.scheduler import Simulated
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.simulator import SimulatedEngine
from gpuscale.core.serving.traffic import Lengths, Traffic

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

ONE_TOKEN = Lengths("fixed", 1)


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

    Workers agree on the cache's place and look for its end between their passes (`handover_s`).
    Layers are sent while the next ones are read, so one layer's cache is left: its bytes on a GPU
    over the link between the pools, the scale-up one where all GPUs are in one domain.
    """
    site = prefill.site
    held = cache_bytes_per_sequence(prefill.model, prefill.replica, prefill.demand.inputs.mean)
    link = site.scaleup_bytes_per_s if n_gpus <= site.domain else site.scaleout_bytes_per_s
    return site.software.handover_s + held / prefill.model.n_layers / link


class PooledService(UnderLoad):
    """`n_prefill` workers that read and `n_decode` that decode.

    A prompt waits for and is read by one of the first, its cache is sent, it waits for a place in
    one of the second and gets its first token there one pass later. Workers take turns, whatever
    they have (Dynamo, `--router-mode round-robin`, and trtllm-serve by default).
    """

    def __init__(self, prefill: Service, n_prefill: int, decode: Service, n_decode: int) -> None:
        super().__init__(decode.demand)
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

    @property
    def most_inside(self) -> float:
        """Those that have room, or that the prefill pool keeps busy at its rate (Little). [1]."""
        rate = self.most_rate()
        made = self.decode.steady(rate / self.n_decode)
        if not made.stable:  # the decode pool binds
            return self.sequences_with_room
        stay_s = self.transfer_s + self.demand.outputs.mean * made.tpot_s
        stay_s += 2.0 * self.prefill.prompt_s(0.0)
        return min(self.sequences_with_room, 1.0 + rate * stay_s)

    def inside(self, rate_per_s: float) -> float:
        """Sequences that decode at a time, by formula; at most those with room. [1]."""
        return self.n_decode * self.decode.inside(rate_per_s / self.n_decode)

    def most_rate(self, ttft_s: float = math.inf, tpot_s: float = math.inf) -> float:
        """Highest rate at which the formula's means stay within limits. [1/s]."""
        after = self.transfer_s + self.decode.pass_s(1.0)
        first = self.n_prefill * self.prefill.most_rate(max(0.0, ttft_s - after))
        return min(first, self.n_decode * self.decode.most_rate(math.inf, tpot_s))

    def simulated(self, traffic: Traffic) -> Simulated:
        """Simulate any traffic through both pools."""
        shared = Traffic([], [], [], prefix_frac=traffic.prefix_frac)
        read, made = (
            [Worker(SimulatedEngine(one.table, one.scheduler, shared)) for _ in range(n)]
            for one, n in ((self.prefill, self.n_prefill), (self.decode, self.n_decode))
        )
        return _Chain(read, made, traffic, self.transfer_s, self.decode.pass_s(1.0)).run()


class Worker:
    """An engine, and which requests it was given."""

    __slots__ = ("engine", "given")

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine, self.given = engine, list[int]()


class _Chain:
    """Two pools in step: always the worker moves that is furthest behind in time."""

    def __init__(
        self,
        read: list[Worker],
        made: list[Worker],
        traffic: Traffic,
        transfer_s: float,
        after_s: float,
    ) -> None:
        self.pools, self.traffic = (read, made), traffic
        self.transfer_s, self.after_s = transfer_s, after_s
        self.between_s = (
            read[0].engine.s.request_s + transfer_s if traffic.concurrency else math.inf
        )
        n = len(traffic.inputs)
        arrivals = list(traffic.arrivals_s) or [0.0] * min(n, traffic.concurrency)
        nan = [math.nan] * n
        self.out = Simulated(arrivals, nan, list(nan), list(traffic.inputs), list(traffic.outputs))
        self.out.n_running = traffic.running
        # time, pool, request; those that run when time begins are read
        self.coming = [(at, int(i < traffic.running), i) for i, at in enumerate(arrivals)]
        self.coming.sort()
        self.left, self.turns = n, [0, 0]
        self.moves_s = [math.inf] * (len(read) + len(made))
        self.ends_s = [math.inf] * len(made)  # when each decode worker has its next answer

    def run(self) -> Simulated:
        """Run to the last request."""
        read, made = self.pools
        n_read, coming, ends_s = len(read), self.coming, self.traffic.ends_s
        workers = [*read, *made]
        while self.left:
            moves = self.moves_s  # when each worker can do something
            next_s = min(moves)
            if next_s >= ends_s and (not coming or coming[0][0] >= ends_s):
                break
            if coming and coming[0][0] <= next_s:
                self._enter(*heappop(coming))
                continue
            at = moves.index(next_s)
            first, last = workers[at], at >= n_read
            engine = first.engine
            if last:
                sooner = min(moves[:n_read]) + self.transfer_s
                # an answer elsewhere lets the next request come, which is read first
                ends = self.ends_s
                ends[at - n_read] = math.inf
                others = min(ends)
                engine.horizon_s = min(
                    sooner, others + self.between_s, coming[0][0] if coming else math.inf
                )
            engine.step()
            moves[at] = engine.next_s
            if last:
                self.ends_s[at - n_read] = engine.ends_s
            if engine.ended:
                for i in engine.ended:
                    self._leave(first, i, last=last)
                engine.ended.clear()
        out = self.out
        for w in made:
            for i, first_s in zip(w.given, w.engine.out.first_s, strict=True):
                out.first_s[i] = first_s + self.after_s  # also of those whose end nobody sees
            out.n_preempted += w.engine.out.n_preempted
            out.busy_s += w.engine.out.busy_s / len(made)
            out.sequence_s += w.engine.out.sequence_s
            out.most_sequences = max(out.most_sequences, w.engine.out.most_sequences)
        return out

    def _enter(self, at_s: float, pool: int, i: int) -> None:
        """Give a request to the worker of a pool whose turn it is."""
        at = self.turns[pool] % len(self.pools[pool])
        self.turns[pool] += 1
        worker = self.pools[pool][at]
        worker.given.append(i)
        worker.engine.add(self.out.inputs[i], self.out.outputs[i] if pool else 1, at_s)
        self.moves_s[at + pool * len(self.pools[0])] = worker.engine.next_s

    def _leave(self, worker: Worker, at: int, *, last: bool) -> None:
        """Send a read prompt on; note the times of an answered request, and let the next come."""
        i, found, out = worker.given[at], worker.engine.out, self.out
        end_s = found.end_s[at]
        refused = end_s != end_s
        if not last and not refused:
            heappush(self.coming, (end_s + self.transfer_s, 1, i))
            return
        if refused:
            out.n_refused += 1
            end_s = worker.engine.now
        else:
            out.first_s[i], out.end_s[i] = found.first_s[at] + self.after_s, end_s + self.after_s
        self.left -= 1
        following = len(out.arrival_s)
        if self.traffic.concurrency and following < len(out.inputs):
            out.arrival_s.append(end_s + self.after_s)
            heappush(self.coming, (end_s + self.after_s, 0, following))
