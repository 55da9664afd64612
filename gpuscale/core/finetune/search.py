"""The best way to run a fine-tuning job: counts of GPUs, sharding, micro-batch, recompute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.bench import Trial, sharded, with_micro_batch
from gpuscale.core.search.space import divisors, powers_of_two

if TYPE_CHECKING:
    from gpuscale.core.finetune.bench import Bench
    from gpuscale.core.finetune.job import Job
    from gpuscale.core.layout import Layout

MOST_SEQUENCES = 64
"""Largest micro-batch that is tried where none is given."""


@dataclass(frozen=True, slots=True)
class Space:
    """What may be chosen; a dimension with one value is pinned, one with None free."""

    n_gpus: tuple[int, ...]
    zero_stages: tuple[int, ...]
    micro_batches: tuple[int, ...] | None = None
    recomputes: tuple[str, ...] = ("none", "full")
    offloads: tuple[frozenset[str], ...] = (frozenset(),)


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
    """Yield every job of a space, the batch of a step kept where it divides."""
    for n in space.n_gpus:
        if n % (job.layout.tp * job.layout.pp * job.layout.cp):
            continue
        for stage in space.zero_stages:
            if n == 1 and stage != space.zero_stages[0] and not any(space.offloads):
                continue
            for recompute in space.recomputes:
                for moved in space.offloads:
                    at = sharded(job, n, stage)
                    at = replace(at, layout=replace(at.layout, recompute=recompute))
                    at = at.on_host(moved)
                    for micro in space.micro_batches or micro_batches(at.layout):
                        batch = at.layout.global_batch_size
                        if micro > 1 and at.layout.dp * micro > max(
                            batch, job.layout.global_batch_size
                        ):
                            break
                        yield sharded(with_micro_batch(at, micro), n, stage)


def best_by_count(bench: Bench, job: Job, space: Space) -> tuple[Trial, ...]:
    """Return the fastest job that fits for each number of GPUs, in time per token."""
    best: dict[int, Trial] = {}
    for tried in candidates(job, space):
        if not bench.fits(tried) or not bench.legal(tried.layout):
            continue
        trial = bench.trial(tried)
        n = tried.layout.n_gpus
        if n not in best or trial.step.tokens_per_s > best[n].step.tokens_per_s:
            best[n] = trial
    return tuple(best[n] for n in sorted(best))
