"""A job on a machine: what it takes, the best way to run it, what would make it fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import product
from math import gcd
from typing import TYPE_CHECKING

from gpuscale.core.finetune.memory import FinetuneMemory, finetune_memory
from gpuscale.core.finetune.states import OPTIMIZERS
from gpuscale.core.finetune.step import FinetuneStep, finetune_step
from gpuscale.core.records import dataclass, made_of, replace
from gpuscale.core.run.time import padded_mean, token_mean
from gpuscale.core.search.space import divisors, powers_of_two

if TYPE_CHECKING:
    from gpuscale.core.finetune.method import Job
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.layout import Layout
    from gpuscale.core.memory.facts import ModelFacts
    from gpuscale.core.step.records import Hardware, Software
    from gpuscale.specs.model import ModelSpec

HOST_FACTOR = 1.5
"""Host memory over the bytes that are offloaded: pinned buffers and copies. Prior; verl's GRPO of
DeepSeek-V3 takes 1,500 GB a node for 1,006 GB of states (docs/perf/dpsk.md)."""

HOST_PROCESS_BYTES = 4e9
"""Host memory of one training process without offload: prior."""

USUAL_HOST_BYTES = 256e9
"""Host memory for each GPU where nothing was said of it: DGX A100 and H100 have 2 TB for eight."""

LONGEST = 2**24
"""Longest sequence tried."""


MOVED_WHOLE = ("parameters", "gradients", "optimizer")
"""What torch's FSDP moves with its parameters: the optimizer steps on the host
(torch/distributed/fsdp/api.py, CPUOffload)."""

MOST_MICRO_BATCH = 65_536
"""Largest micro-batch tried when looking for the largest that fits."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One job tried: memory of the fullest GPU, time of a step."""

    job: Job
    memory: FinetuneMemory
    step: FinetuneStep
    usable_bytes: float
    interval_factor_80: float
    host_short: bool = False  # what lies on the hosts does not fit them

    @property
    def fits(self) -> bool:
        """Whether it fits the GPU and the hosts, by its expected memory."""
        return self.memory.total_bytes <= self.usable_bytes and not self.host_short


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """A model, a GPU and a software family: what every job of one question shares."""

    model: ModelSpec
    facts: ModelFacts
    site: Callable[[Job], tuple[Hardware, Software, FinetuneParameters]]
    usable_bytes: float
    gpus_per_node: int
    mean_tokens: float | None = None  # of the data, where rows are padded or packed
    packed: bool = False
    grouped: bool = False  # batches are of rows of like length
    legal: Callable[[Job], bool] = lambda _: True  # what the framework can run
    end: int = 0  # of the memory interval, that must fit: 1 upper, 0 expected, -1 lower
    likely: Callable[[Trial], bool] = lambda _: True  # what of those that fit may be chosen
    host_bytes: float | None = None  # of a node; None: nothing was said of it

    def memory(self, job: Job) -> FinetuneMemory:
        """Peak memory of a job."""
        return finetune_memory(self.model, self.facts, job, self.site(job)[2])

    def moves(self, job: Job) -> bool:
        """Whether the framework can keep on the host what the job has there.

        That of torch's FSDP shards over several GPUs: on one there is no FSDP.
        """
        p = self.site(job)[2]
        parts = {"activations"} if p.offload_all and job.layout.n_gpus == 1 else job.offload
        moved = job.offload - {"activations"}
        torn = p.offload_whole and moved not in (set(), set(MOVED_WHOLE))
        return not torn and job.offload <= parts & frozenset(p.offloads)

    def fits(self, job: Job) -> bool:
        """Whether a job fits GPU and hosts, by the end of its memory interval that is asked for."""
        width = self.site(job)[2].interval_factor_80 ** self.end
        memory = self.memory(job)
        return memory.total_bytes * width <= self.usable_bytes and not self.host_short(job, memory)

    def host_short(self, job: Job, memory: FinetuneMemory) -> bool:
        """Whether what lies on the hosts does not fit them."""
        return self.host_bytes_per_node(job, memory) > self.host_room_bytes(job)

    def host_bytes_per_node(self, job: Job, memory: FinetuneMemory) -> float:
        """Host memory that a node needs: offloaded bytes with their copies, processes. [byte]."""
        local = min(self.gpus_per_node, job.layout.n_gpus)
        return local * (HOST_FACTOR * memory.host_bytes + HOST_PROCESS_BYTES)

    def host_room_bytes(self, job: Job) -> float:
        """Host memory of a node: as said, else what is usual for its GPUs. [byte]."""
        local = min(self.gpus_per_node, job.layout.n_gpus)
        return USUAL_HOST_BYTES * local if self.host_bytes is None else self.host_bytes

    def step(self, job: Job) -> FinetuneStep:
        """Time of a job's step, at the lengths that its rows are padded to or packed of."""
        layout = job.layout
        if self.mean_tokens is None or self.mean_tokens >= layout.seq_len:
            return finetune_step(self.model, job, *self.site(job))
        if self.packed:
            job = _apart(job, token_mean(self.mean_tokens, layout.seq_len))
            return finetune_step(self.model, job, *self.site(job))
        together = 1 if self.grouped else layout.micro_batch_size
        padded = padded_mean(self.mean_tokens, layout.seq_len, together)
        usual = replace(job, layout=replace(layout, seq_len=max(1, round(padded))))
        frac = min(1.0, self.mean_tokens / usual.layout.seq_len)
        return finetune_step(self.model, usual, *self.site(usual), useful_frac=frac)

    def trial(self, job: Job) -> Trial:
        """Memory and time of a job."""
        width, memory = self.site(job)[2].interval_factor_80, self.memory(job)
        step, short = self.step(job), self.host_short(job, memory)
        return Trial(job, memory, step, self.usable_bytes, width, short)


def _apart(job: Job, length: float) -> Job:
    """Return the job with its packed rows taken apart: as many tokens, attended within examples."""
    layout = job.layout
    each = max(1, round(layout.seq_len / length))
    apart = replace(
        layout,
        seq_len=max(1, layout.seq_len // each),
        micro_batch_size=each * layout.micro_batch_size,
        global_batch_size=each * layout.global_batch_size,
    )
    return replace(job, layout=apart)


def with_seq_len(job: Job, seq_len: int) -> Job:
    """Return the same job at another longest sequence."""
    return replace(job, layout=replace(job.layout, seq_len=seq_len))


def with_micro_batch(job: Job, micro_batch: int) -> Job:
    """Return the same job at another micro-batch, the batch of a step not below one per rank."""
    layout = job.layout
    batch = max(layout.global_batch_size, layout.dp * micro_batch)
    at = replace(layout, micro_batch_size=micro_batch, global_batch_size=batch)
    return replace(job, layout=at)


def longest_seq_len(bench: Bench, job: Job, step: int = 64) -> int:
    """Longest sequence that fits, in multiples of `step`; 0 if none does. [token]."""
    return step * _largest(lambda n: bench.fits(with_seq_len(job, n * step)), LONGEST // step)


def largest_micro_batch(bench: Bench, job: Job) -> int:
    """Largest micro-batch that fits; 0 if not even one sequence does. [1]."""
    return _largest(lambda n: bench.fits(with_micro_batch(job, n)), MOST_MICRO_BATCH)


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """Largest n up to `most` that holds, memory growing with n; 0 if 1 does not."""
    return bisect_left(range(1, most + 1), True, key=lambda n: not holds(n))


def sharded(job: Job, n_gpus: int, zero_stage: int | None = None) -> Job:
    """Return the same job on another number of GPUs, the rest data-parallel.

    The batch of a step grows to one micro-batch a rank where it was smaller.
    """
    layout = job.layout
    dp = max(1, n_gpus // (layout.tp * layout.pp * layout.cp))
    batch = max(layout.global_batch_size, dp * layout.micro_batch_size)
    batch = -(-batch // (dp * layout.micro_batch_size)) * dp * layout.micro_batch_size
    stage = layout.zero_stage if zero_stage is None else zero_stage
    return replace(job, layout=replace(layout, dp=dp, zero_stage=stage, global_batch_size=batch))


def counts_of_gpus(gpus_per_node: int, most: int = 1024) -> Iterator[int]:
    """Yield numbers of GPUs worth trying: every one of a machine, then whole machines.

    >>> list(counts_of_gpus(4, 12))
    [1, 2, 3, 4, 8, 12]
    """
    yield from range(1, min(gpus_per_node, most) + 1)
    yield from range(2 * gpus_per_node, most + 1, gpus_per_node)


def fewest_gpus(bench: Bench, job: Job, most: int = 1024) -> Job | None:
    """Job on the smallest number of GPUs that fits, sharded over them; None if none does."""
    for n in counts_of_gpus(bench.gpus_per_node, most):
        if n % (job.layout.tp * job.layout.pp * job.layout.cp):
            continue
        for stage in dict.fromkeys((job.layout.zero_stage, 3)[: 1 + job.method.shardable]):
            tried = sharded(job, n, stage)
            if bench.fits(tried) and bench.legal(tried):
                return tried
    return None


MOST_SEQUENCES = 64
"""Largest micro-batch that is tried where none is given."""


@dataclass(frozen=True, slots=True)
class BenchSpace:
    """What may be chosen; a dimension with one value is pinned, one with None free."""

    zero_stages: tuple[int, ...]
    micro_batches: tuple[int, ...] | None = None
    recomputes: tuple[str, ...] = ("none", "full")
    offload: frozenset[str] = frozenset()
    splits: tuple[tuple[int, int], ...] = ()  # (tp, ep) in place of the job's own


def micro_batches(layout: Layout) -> tuple[int, ...]:
    """Micro-batches worth trying: powers of two, and what divides the sequences of a rank.

    >>> from gpuscale.core.layout import Layout
    >>> micro_batches(Layout(2048, 12, dp=2))
    (1, 2, 3, 4, 6, 8, 16, 32, 64)
    """
    shares = divisors(-(-layout.global_batch_size // layout.dp))
    found = {*powers_of_two(MOST_SEQUENCES), *(b for b in shares if b <= MOST_SEQUENCES)}
    return tuple(sorted(found))


def candidates(job: Job, space: BenchSpace) -> Iterator[Job]:
    """Yield every job of a space on the job's GPUs, the batch of a step kept where it divides."""
    own, batch, n = job.layout, job.layout.global_batch_size, job.layout.n_gpus
    split = (replace(own, tp=tp, ep=ep, sequence_parallel=tp > 1) for tp, ep in space.splits)
    bases = [replace(job, layout=layout) for layout in split] or [job]
    for base, stage, recompute in product(bases, space.zero_stages, space.recomputes):
        if n == 1 and stage != space.zero_stages[0] and not space.offload:
            continue  # nothing to shard
        at = sharded(base, n, stage)
        at = replace(at, layout=replace(at.layout, recompute=recompute)).on_host(space.offload)
        most = max(batch, at.layout.global_batch_size)
        for micro in space.micro_batches or micro_batches(at.layout):
            if micro > 1 and at.layout.dp * micro > most:
                break
            yield sharded(with_micro_batch(at, micro), n, stage)


def fastest(bench: Bench, job: Job, space: BenchSpace) -> Trial | None:
    """Return the job of a space that fits and takes the least time a token; None if none fits."""
    held = (j for j in candidates(job, space) if bench.fits(j) and bench.legal(j))
    tried = sorted(map(bench.trial, held), key=lambda t: -t.step.tokens_per_s)
    return next(filter(bench.likely, tried), None)


def closest(bench: Bench, job: Job, space: BenchSpace) -> Trial:
    """Return the legal job of least memory, those that the hosts hold first; else the job."""
    legal = ((j, bench.memory(j)) for j in candidates(job, space) if bench.legal(j))
    least = min(legal, key=lambda one: (bench.host_short(*one), one[1].total_bytes), default=(job,))
    return bench.trial(least[0])


SAVES_LITTLE = 0.02
"""Share of the card below which a change is not worth a line."""


@dataclass(frozen=True, slots=True)
class BenchChange:
    """One change on top of those before it."""

    name: str
    words: str
    saved_bytes: float
    total_bytes: float  # after it
    step_s: float  # after it
    lost_s: float  # per step; below 0: it gains time
    fits: bool
    fits_probability: float | None = None  # with it alone


CHANGES = {
    "attention": "fused attention in place of whole scores: --attention flash2",
    "loss": "fused cross entropy (Liger, cut-CE): --loss fused",
    "recompute": "activation checkpointing: --recompute full",
    "micro-batch": "one sequence at a time: --micro-batch 1",
    "shard": "shard over the GPUs (ZeRO-3, FSDP): --zero 3",
    "offload activations": "layer inputs to the host: --offload activations",
    "sequence": "each sequence split over a node's GPUs: --cp {}",
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


def _changed(job: Job, name: str, gpus_per_node: int) -> Job:
    """Job with a change, the same where it has it."""
    layout, method = job.layout, job.method
    checkpointed = replace(job, layout=replace(layout, recompute="full"))
    parted = replace(job, layout=replace(layout, zero_stage=3))
    lighter = replace(method, kind="lora", frozen_layers=0)
    if method.adapts:
        lighter = method if method.quantised else replace(method, base="nf4")
    eight = replace(OPTIMIZERS["adamw-8bit"], in_backward=job.optimizer.in_backward)
    split = replace(layout, cp=layout.cp * gcd(layout.dp, gpus_per_node))
    return {
        "attention": replace(job, attention=job.attention.replace("eager", "flash2")),
        "loss": replace(job, loss="fused"),
        "recompute": checkpointed,
        "micro-batch": with_micro_batch(job, 1),
        "shard": parted,
        "offload activations": checkpointed.on_host(job.offload | {"activations"}),
        "sequence": sharded(replace(job, layout=split), layout.n_gpus),
        "optimizer": replace(job, optimizer=eight),
        "method": replace(job, method=lighter),
        "offload optimizer": job.on_host(job.offload | {"optimizer", "gradients"}),
        "offload parameters": parted.on_host(job.offload | {"parameters"}),
        "length": with_seq_len(job, max(1, layout.seq_len // 2)),
        "gpus": sharded(job, 2 * layout.n_gpus, 3),
    }[name]


def changed(bench: Bench, job: Job, name: str) -> Job | None:
    """Return a job with a change; None where there is nothing to change, or no way to."""
    if name in SHARDS and not job.method.shardable:
        return None
    if name == "attention" and job.attention == "eager" and not bench.model.fuses_attention:
        return None
    made = _changed(job, name, bench.gpus_per_node)
    if name == "offload parameters" and bench.site(made)[2].offload_whole:
        made = made.on_host(made.offload | set(MOVED_WHOLE))
    return made if made != job and bench.legal(made) and bench.moves(made) else None


def change_words(job: Job, name: str, *, short: bool = False) -> str:
    """Say a change of a job; `short`: its options alone, where it has some."""
    words = FOUR_BITS if name == "method" and job.method.adapts else CHANGES[name]
    return (short and words.partition(": ")[2]) or words


def tried_with(bench: Bench, at: Trial, name: str) -> tuple[BenchChange, Trial] | None:
    """Return a change of a job and the job with it; None where there is none."""
    if (made := changed(bench, at.job, name)) is None:
        return None
    tried = bench.trial(made)
    remedy = made_of(
        BenchChange,
        *(tried, tried.memory, tried.step),
        name=name,
        words=change_words(at.job, name).format(made.layout.cp),
        saved_bytes=at.memory.total_bytes - tried.memory.total_bytes,
        lost_s=tried.step.step_s - at.step.step_s,
    )
    return remedy, tried


def worth_a_line(bench: Bench, at: Trial, then: Trial) -> bool:
    """Whether a change is worth a line: it frees what is short, GPU or host."""
    if at.host_short and at.memory.total_bytes <= at.usable_bytes:
        return then.memory.host_bytes < at.memory.host_bytes
    saved = at.memory.total_bytes - then.memory.total_bytes
    return saved >= SAVES_LITTLE * bench.usable_bytes


def remedies(bench: Bench, trial: Trial) -> tuple[BenchChange, ...]:
    """Return changes, each on top of those before, until the job fits or none is left.

    `bench`: model, GPU and software. `trial`: the job as asked. Returns: empty where it fits
    already. A change that saves next to nothing is left out.
    """
    found: list[BenchChange] = []
    at = trial
    for name in (*CHANGES, *CHANGES):  # a full method becomes adapters, and these get 4 bits
        if at.fits:
            break
        if found and found[-1].name == name and name in ("length", "gpus"):
            continue
        change = tried_with(bench, at, name)
        if change and worth_a_line(bench, at, change[1]):
            found.append(change[0])
            at = change[1]
    return tuple(found)
