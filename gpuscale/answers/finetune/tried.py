"""What `plan --method` tries on a number of GPUs: sharding, micro-batch, recompute, offload."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from gpuscale.answers.finetune.words import short_of_host
from gpuscale.core.finetune.bench import host_bytes_per_node
from gpuscale.core.finetune.search import Space, fastest

if TYPE_CHECKING:
    from gpuscale.answers.finetune.case import Case
    from gpuscale.answers.plan import Plan
    from gpuscale.core.finetune.bench import Trial
    from gpuscale.core.finetune.job import Job


def _stages(asked: Plan, job: Job) -> tuple[tuple[int, ...], ...]:
    """ZeRO stages to choose from, in turn: beyond Megatron's own (1) only what does not fit."""
    habit = job.layout.zero_stage
    if asked.zero is not None or job.layout.n_gpus == 1 or not job.method.shardable:
        return ((habit,),)
    if habit == 1:
        return (1,), (3,)
    also = () if asked.offload is not None else (0, 1, 2)
    return (tuple(dict.fromkeys((habit, *also, 3))),)


def _space(asked: Plan, job: Job, stages: tuple[int, ...], offload: frozenset[str]) -> Space:
    layout = job.layout
    told = asked.recompute is not None or asked.recompute_layers is not None
    return Space(
        zero_stages=stages,
        micro_batches=None if asked.micro_batch is None else (layout.micro_batch_size,),
        recomputes=(layout.recompute,) if told else ("none", "full"),
        offload=offload,
    )


ENDS = {None: (1, 0), "safe": (1,), "expected": (0,), "tight": (-1,)}
"""Ends of the memory interval that must fit, in turn, by --fit."""

FALLBACKS = (
    frozenset({"optimizer", "gradients"}),
    frozenset({"parameters", "optimizer", "gradients"}),
    frozenset({"parameters", "optimizer", "gradients", "activations"}),
)
"""Offloads tried, in turn, where nothing fits without or more room may pay."""


WORTH_MOVING = 1.1
"""Speed over that without the host from which states are moved there though they need not be."""

WORTH_SAYING = 1.03
"""Speed over the chosen way's from which one that fits less surely is named beside it."""


def best_on(asked: Plan, case: Case) -> Trial | None:
    """Best way on the GPUs, offloading where it must or where the room that it makes pays."""
    job = case.job
    benches = [replace(case.bench, end=end) for end in ENDS[asked.fit]]
    tried = (
        fastest(bench, job, _space(asked, job, stages, job.offload))
        for bench, stages in product(benches, _stages(asked, job))
    )
    own = next((found for found in tried if found), None)
    pinned = asked.offload is not None or asked.zero not in (None, 3)
    if pinned or (own and (not asked.gpus or not _cramped(asked, own))):
        return own  # where the number of GPUs is free, more of them come before the host
    for bench in benches:
        known = [moved for moved in FALLBACKS if bench.moves(job.on_host(moved))]
        ways = (fastest(bench, job, _space(asked, job, (3,), moved)) for moved in known)
        if got := [t for t in ways if t and not _host_is_short(asked, case, t)]:
            best = max(got, key=lambda t: t.step.tokens_per_s)
            gain = best.step.tokens_per_s / own.step.tokens_per_s if own else WORTH_MOVING
            return best if gain >= WORTH_MOVING else own
    return own


USUAL_HOST_BYTES = 256e9
"""Host memory for each GPU where nothing was said of it: DGX A100 and H100 have 2 TB for eight."""


def bolder(asked: Plan, case: Case, chosen: Trial) -> Trial | None:
    """Fastest way whose memory fits if it is what is expected, where the safe one is slower."""
    if asked.fit is not None or not chosen.fits:
        return None
    found = best_on(replace(asked, fit="expected"), case)
    least = chosen.step.tokens_per_s * WORTH_SAYING
    return found if found and found.step.tokens_per_s > least else None


def _cramped(asked: Plan, trial: Trial) -> bool:
    """Whether more room might pay: for a larger micro-batch, or less recompute."""
    layout, told = trial.job.layout, asked.recompute is not None or asked.recompute_layers
    larger = asked.micro_batch is None and layout.n_micro_batches > 1
    return larger or (not told and layout.recompute != "none")


def _host_is_short(asked: Plan, case: Case, trial: Trial) -> bool:
    local = min(case.bench.gpus_per_node, trial.job.layout.n_gpus)
    has = asked.host_memory or USUAL_HOST_BYTES * local
    return bool(short_of_host(host_bytes_per_node(trial, case.bench.gpus_per_node), has))
