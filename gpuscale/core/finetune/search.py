"""The best way to run a fine-tuning job: counts of GPUs, sharding, micro-batch, recompute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from gpuscale.core.finetune.bench import sharded, with_micro_batch
from gpuscale.core.search.space import divisors, powers_of_two

if TYPE_CHECKING:
    from gpuscale.core.finetune.bench import Bench, Trial
    from gpuscale.core.finetune.job import Job
    from gpuscale.core.layout import Layout

MOST_SEQUENCES = 64
"""Largest micro-batch that is tried where none is given."""


@dataclass(frozen=True, slots=True)
class Space:
    """What may be chosen; a dimension with one value is pinned, one with None free."""

    zero_stages: tuple[int, ...]
    micro_batches: tuple[int, ...] | None = None
    recomputes: tuple[str, ...] = ("none", "full")
    offload: frozenset[str] = frozenset()


def micro_batches(layout: Layout) -> tuple[int, ...]:
    """Micro-batches worth trying: powers of two, and what divides the sequences of a rank.

    >>> from gpuscale.core.layout import Layout
    >>> micro_batches(Layout(2048, 12, dp=2))
    (1, 2, 3, 4, 6, 8, 16, 32, 64)
    """
    shares = divisors(-(-layout.global_batch_size // layout.dp))
    found = {*powers_of_two(MOST_SEQUENCES), *(b for b in shares if b <= MOST_SEQUENCES)}
    return tuple(sorted(found))


def candidates(job: Job, space: Space) -> Iterator[Job]:
    """Yield every job of a space on the job's GPUs, the batch of a step kept where it divides."""
    n, batch = job.layout.n_gpus, job.layout.global_batch_size
    for stage, recompute in product(space.zero_stages, space.recomputes):
        if n == 1 and stage != space.zero_stages[0] and not space.offload:
            continue  # nothing to shard
        at = sharded(job, n, stage)
        at = replace(at, layout=replace(at.layout, recompute=recompute)).on_host(space.offload)
        most = max(batch, at.layout.global_batch_size)
        for micro in space.micro_batches or micro_batches(at.layout):
            if micro > 1 and at.layout.dp * micro > most:
                break
            yield sharded(with_micro_batch(at, micro), n, stage)


def fastest(bench: Bench, job: Job, space: Space) -> Trial | None:
    """Return the job of a space that fits and takes the least time a token; None if none fits."""
    held = (j for j in candidates(job, space) if bench.fits(j) and bench.legal(j.layout))
    return max(map(bench.trial, held), key=lambda t: t.step.tokens_per_s, default=None)
