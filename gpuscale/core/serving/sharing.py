"""Several services on one pool of GPUs: which share a GPU, where replicas stand, room to grow.

Processes on one GPU take turns, a time slice each, and share its memory (NVIDIA, Multi-Process
Service, section 1.1.2; vLLM, `gpu_memory_utilization` is of each instance).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving.capacity import REQUESTS, Limits, keeps_up
from gpuscale.core.serving.extras import Extras
from gpuscale.core.serving.memory import cache_bytes_per_sequence
from gpuscale.core.serving.percentiles import LoadResult
from gpuscale.core.serving.service import Service

ROUNDS = 6
"""Most rounds in which processes slow each other down until their loads are steady."""

STEADY = 0.01
"""Change of a slowdown at which they are."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A replica on a GPU, its load and limits; beside others its share of the memory."""

    service: Service
    rate_per_s: float
    limits: Limits
    memory_frac: float = 0.0
    slowdown: float = 1.0  # of its passes, by the others

    def load(self, seed: int) -> LoadResult | None:
        """Simulate it; None where it has no room, does not keep up or misses a limit."""
        found = self.service.open(self.rate_per_s, REQUESTS, seed) if self.service.fits else None
        held = found and keeps_up(found, self.rate_per_s) and not self.limits.missed(found)
        return found if held else None

    def beside(self, memory_frac: float, slowdown: float) -> Tenant:
        """Give it a share of the memory, and longer passes."""
        s = self.service
        memory = replace(s.site.software.memory, utilisation_frac=memory_frac)
        site = replace(s.site, software=replace(s.site.software, memory=memory))
        extras = replace(s.tuning.extras or Extras(), slowdown=slowdown)
        one = Service(s.model, s.replica, site, s.demand, replace(s.tuning, extras=extras))
        return replace(self, service=one, memory_frac=memory_frac, slowdown=slowdown)


def memory_fracs(tenants: Sequence[Tenant]) -> list[float]:
    """Share of the memory for each, in whole percent; none where the weights alone are too much.

    What is left beside weights and overheads goes to caches, by what the requests inside need.
    """
    kept, needs, frac, device = list[float](), list[float](), 1.0, math.inf
    for s, rate in ((t.service, t.rate_per_s) for t in tenants):
        own = s.site.software.memory.utilisation_frac
        kept.append(own * s.room.usable_bytes - s.room.cache_bytes)
        each = cache_bytes_per_sequence(s.model, s.replica, s.demand.mean_context)
        needs.append((1.0 + s.inside(rate)) * each)
        frac, device = min(frac, own), min(device, s.room.usable_bytes)
    free = (frac * device - sum(kept)) / sum(needs)
    parts = [(k + free * n) / device for k, n in zip(kept, needs, strict=True)]
    return [math.floor(100.0 * part) / 100.0 for part in parts] if free > 0.0 else []


def shared(tenants: Sequence[Tenant], seed: int = 0) -> list[Tenant]:
    """Put replicas on one GPU; none where one has no room or misses what it promises.

    While another has work each has half of the time: a pass takes ``1 + sum of the others' busy
    shares`` times as long, which are longer for it, until both are steady.
    """
    fracs, slow = memory_fracs(tenants), [1.0] * len(tenants)
    for _ in range(ROUNDS if fracs else 0):
        made = [t.beside(f, s) for t, f, s in zip(tenants, fracs, slow, strict=True)]
        loads = [load for one in made if (load := one.load(seed))]
        if len(loads) < len(made):
            break
        busy = math.fsum(load.busy_frac for load in loads)
        before, slow = slow, [1.0 + busy - load.busy_frac for load in loads]
        if all(abs(new - old) < STEADY for new, old in zip(slow, before, strict=True)):
            return made
    return []


def placed(sizes: Sequence[int], n_gpus: int, domain: int) -> list[int]:
    """First GPU of each replica, the largest first; none where they do not fit.

    A replica stands inside a domain of fast links, or on whole ones.

    >>> placed([1, 4, 2], 8, 8), placed([4, 4, 2], 8, 8), placed([8, 2, 16], 32, 8)
    ([6, 0, 4], [], [16, 24, 0])
    """
    at, found = 0, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if domain - at % domain < min(sizes[i], domain):
            at += domain - at % domain
        found[i], at = at, at + sizes[i]
    return found if at <= n_gpus else []


def grown(services: Sequence[tuple[float, float, int]], n_gpus: int) -> float:
    """Find the factor by which all rates may grow together on some GPUs; 0 where they are too few.

    Each service is (its rate, that of one replica, GPUs of a replica): the one that is at its end
    first gets the next replica.

    >>> grown([(2.0, 3.0, 4), (20.0, 40.0, 1)], 8), grown([(2.0, 1.0, 4), (1.0, 1.0, 1)], 8)
    (1.5, 0.5)
    """
    copies, found = [1] * len(services), 0.0
    while sum(n * s[2] for n, s in zip(copies, services, strict=True)) <= n_gpus:
        reached = [n * each / rate for n, (rate, each, _) in zip(copies, services, strict=True)]
        found = min(reached)
        copies[reached.index(found)] += 1
    return found
