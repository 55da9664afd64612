"""What makes a job fit: changes in order, each with the memory it saves and the time it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.bench import Trial, sharded, with_micro_batch, with_seq_len
from gpuscale.core.finetune.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from gpuscale.core.finetune.bench import Bench
    from gpuscale.core.finetune.job import Job

SAVES_LITTLE = 0.02
"""Share of the card below which a change is not worth a line."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change on top of those before it."""

    name: str
    words: str
    saved_bytes: float
    total_bytes: float  # after it
    step_s: float  # after it
    lost_s: float  # per step; below 0: it gains time
    fits: bool


def _loss(job: Job) -> Job:
    return replace(job, loss="fused")


def _checkpoint(job: Job) -> Job:
    return replace(job, layout=replace(job.layout, recompute="full"))


def _offload_activations(job: Job) -> Job:
    layout = replace(job.layout, recompute="full", offload_activations=True)
    return replace(job, layout=layout, offload=job.offload | {"activations"})


def _one_sequence(job: Job) -> Job:
    return with_micro_batch(job, 1)


def _shard(job: Job) -> Job:
    return replace(job, layout=replace(job.layout, zero_stage=3))


def _eight_bit(job: Job) -> Job:
    name = "adamw-8bit" + ("+in-backward" if job.optimizer.in_backward else "")
    found = OPTIMIZERS[name.removesuffix("+in-backward")]
    return replace(job, optimizer=replace(found, in_backward=job.optimizer.in_backward))


def _narrower(job: Job) -> Job:
    if not job.method.adapts:
        return replace(job, method=replace(job.method, kind="lora", frozen_layers=0))
    return replace(job, method=replace(job.method, base="nf4")) if not job.method.quantised else job


def _offload_optimizer(job: Job) -> Job:
    layout = replace(job.layout, offload_optimizer=True)
    return replace(job, layout=layout, offload=job.offload | {"optimizer", "gradients"})


def _offload_parameters(job: Job) -> Job:
    layout = replace(job.layout, zero_stage=3)
    return replace(job, layout=layout, offload=job.offload | {"parameters"})


def _half_length(job: Job) -> Job:
    return with_seq_len(job, max(1, job.layout.seq_len // 2))


def _twice_the_gpus(job: Job) -> Job:
    return sharded(job, 2 * job.layout.n_gpus, 3)


CHANGES: tuple[tuple[str, str, Callable[[Job], Job]], ...] = (
    ("loss", "fused cross entropy (Liger, cut-CE): --loss fused", _loss),
    ("recompute", "activation checkpointing: --recompute full", _checkpoint),
    ("micro-batch", "one sequence at a time: --micro-batch 1", _one_sequence),
    ("shard", "shard over the GPUs (ZeRO-3, FSDP): --zero 3", _shard),
    (
        "offload activations",
        "layer inputs to the host: --offload activations",
        _offload_activations,
    ),
    ("optimizer", "8-bit optimizer states: --optimizer adamw-8bit", _eight_bit),
    ("method", "", _narrower),
    ("offload optimizer", "optimizer on the host: --offload optimizer", _offload_optimizer),
    ("offload parameters", "weights on the host too: --offload parameters", _offload_parameters),
    ("length", "half the sequence length", _half_length),
    ("gpus", "twice the GPUs, sharded", _twice_the_gpus),
)
"""Changes in the order in which they are usually tried: what costs least first."""


SHARDS = ("shard", "offload parameters", "gpus")
"""Changes that shard the base."""


def _words(name: str, words: str, job: Job) -> str:
    if name != "method":
        return words
    if job.method.adapts:
        return "base weights in 4 bits: --method qlora"
    return "adapters instead of all weights: --method lora"


def enough(bench: Bench, trial: Trial) -> Remedy | None:
    """Return the first change that makes a job fit alone; None where none does."""
    for name, words, change in CHANGES:
        if name == "length" or (name in SHARDS and not trial.job.method.shardable):
            continue
        made = change(trial.job)
        if made == trial.job or not bench.legal(made.layout):
            continue
        if bench.memory(made).total_bytes <= bench.usable_bytes:
            tried = bench.trial(made)
            said = _words(name, words, trial.job).partition(": ")[2] or words
            return _remedy(name, said, trial, tried)
    return None


def _remedy(name: str, words: str, at: Trial, tried: Trial) -> Remedy:
    return Remedy(
        name=name,
        words=words,
        saved_bytes=at.memory.total_bytes - tried.memory.total_bytes,
        total_bytes=tried.memory.total_bytes,
        step_s=tried.step.step_s,
        lost_s=tried.step.step_s - at.step.step_s,
        fits=tried.fits,
    )


def remedies(bench: Bench, trial: Trial) -> tuple[Remedy, ...]:
    """Return changes, each on top of those before, until the job fits or none is left.

    `bench`: model, GPU and software. `trial`: the job as asked. Returns: empty where it fits
    already. A change that saves next to nothing is left out.
    """
    found: list[Remedy] = []
    at = trial
    for _ in range(2):  # a full method may become adapters, and these get a 4-bit base
        for name, words, change in CHANGES:
            if at.fits:
                return tuple(found)
            if name in SHARDS and not at.job.method.shardable:
                continue
            if name in ("length", "gpus") and len(found) and found[-1].name == name:
                continue
            made = change(at.job)
            if made == at.job or not bench.legal(made.layout):
                continue
            tried = bench.trial(made)
            saved = at.memory.total_bytes - tried.memory.total_bytes
            if saved < SAVES_LITTLE * bench.usable_bytes:
                continue
            found.append(_remedy(name, _words(name, words, at.job), at, tried))
            at = tried
    return tuple(found)
