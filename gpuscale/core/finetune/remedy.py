"""What makes a job fit: changes in order, each with the memory it saves and the time it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.bench import Trial, sharded, with_micro_batch, with_seq_len
from gpuscale.core.finetune.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from gpuscale.core.finetune.bench import Bench
    from gpuscale.core.finetune.method import Job

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


CHANGES = {
    "loss": "fused cross entropy (Liger, cut-CE): --loss fused",
    "recompute": "activation checkpointing: --recompute full",
    "micro-batch": "one sequence at a time: --micro-batch 1",
    "shard": "shard over the GPUs (ZeRO-3, FSDP): --zero 3",
    "offload activations": "layer inputs to the host: --offload activations",
    "optimizer": "8-bit optimizer states: --optimizer adamw-8bit",
    "method": "adapters instead of all weights: --method lora",
    "offload optimizer": "optimizer on the host: --offload optimizer",
    "offload parameters": "weights on the host too: --offload parameters",
    "length": "half the sequence length",
    "gpus": "twice the GPUs, sharded",
}
"""Changes in the order in which they are usually tried: what costs least first."""

FOUR_BITS = "base weights in 4 bits: --method qlora"
"""What `method` changes of a job that trains adapters already."""

SHARDS = ("shard", "offload parameters", "gpus")
"""Changes that shard the base."""


def _changed(job: Job, name: str) -> Job:
    """Job with a change, the same where it has it."""
    layout, method = job.layout, job.method
    checkpointed = replace(job, layout=replace(layout, recompute="full"))
    parted = replace(job, layout=replace(layout, zero_stage=3))
    lighter = replace(method, kind="lora", frozen_layers=0)
    if method.adapts:
        lighter = method if method.quantised else replace(method, base="nf4")
    eight = replace(OPTIMIZERS["adamw-8bit"], in_backward=job.optimizer.in_backward)
    return {
        "loss": replace(job, loss="fused"),
        "recompute": checkpointed,
        "micro-batch": with_micro_batch(job, 1),
        "shard": parted,
        "offload activations": checkpointed.on_host(job.offload | {"activations"}),
        "optimizer": replace(job, optimizer=eight),
        "method": replace(job, method=lighter),
        "offload optimizer": job.on_host(job.offload | {"optimizer", "gradients"}),
        "offload parameters": parted.on_host(job.offload | {"parameters"}),
        "length": with_seq_len(job, max(1, layout.seq_len // 2)),
        "gpus": sharded(job, 2 * layout.n_gpus, 3),
    }[name]


def _tried(bench: Bench, at: Trial, name: str) -> tuple[Remedy, Trial] | None:
    """Return a change and the job with it; None where there is nothing to change, or no way to."""
    if name in SHARDS and not at.job.method.shardable:
        return None
    made = _changed(at.job, name)
    if made == at.job or not bench.legal(made.layout) or not bench.moves(made):
        return None
    tried = bench.trial(made)
    remedy = Remedy(
        name=name,
        words=FOUR_BITS if name == "method" and at.job.method.adapts else CHANGES[name],
        saved_bytes=at.memory.total_bytes - tried.memory.total_bytes,
        total_bytes=tried.memory.total_bytes,
        step_s=tried.step.step_s,
        lost_s=tried.step.step_s - at.step.step_s,
        fits=tried.fits,
    )
    return remedy, tried


def enough(bench: Bench, trial: Trial) -> Remedy | None:
    """Return the first change that makes a job fit alone; None where none does."""
    for name in CHANGES:
        found = _tried(bench, trial, name) if name != "length" else None
        if found and found[0].fits:
            words = found[0].words
            return replace(found[0], words=words.partition(": ")[2] or words)
    return None


def remedies(bench: Bench, trial: Trial) -> tuple[Remedy, ...]:
    """Return changes, each on top of those before, until the job fits or none is left.

    `bench`: model, GPU and software. `trial`: the job as asked. Returns: empty where it fits
    already. A change that saves next to nothing is left out.
    """
    found: list[Remedy] = []
    at = trial
    for name in (*CHANGES, *CHANGES):  # a full method becomes adapters, and these get 4 bits
        if at.fits:
            break
        if found and found[-1].name == name and name in ("length", "gpus"):
            continue
        change = _tried(bench, at, name)
        if change and change[0].saved_bytes >= SAVES_LITTLE * bench.usable_bytes:
            found.append(change[0])
            at = change[1]
    return tuple(found)
