"""Answers of `plan`: one layout evaluated, the run that it makes, what a person gets as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.layout import Layout, Settled
from gpuscale.core.limits.board import LimitRow
from gpuscale.core.memory.facts import StageMemory
from gpuscale.core.memory.peak import peak_stage, stage_memories
from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.bill import Bill
from gpuscale.core.run.checkpoint import SaveTime
from gpuscale.core.run.goodput import Outlook
from gpuscale.core.run.time import SECONDS_PER_DAY, gpu_hours, rental_usd
from gpuscale.core.search.results import Counts, family
from gpuscale.core.step.records import StepResult
from gpuscale.core.step.step import step_time

if TYPE_CHECKING:
    from gpuscale.core.search.problem import Problem


@dataclass(frozen=True, slots=True)
class Estimate:
    """A layout with its step time and the memory of its fullest GPU."""

    layout: Layout
    family: str
    step: StepResult
    memory: StageMemory  # of the fullest stage
    stage_layers: tuple[int, ...]  # layers of each pipeline stage
    peak_bytes: float
    capacity_bytes: float  # what a process can have of the device
    fits: bool
    room_bytes: float  # what is offered as fitting, with the margin asked for

    @property
    def step_s(self) -> float:
        """Expected time of a step. [s]."""
        return self.step.expected_s

    @property
    def headroom_bytes(self) -> float:
        """Memory left on the fullest GPU; negative where it does not fit. [byte]."""
        return self.capacity_bytes - self.peak_bytes


def estimate(problem: Problem, layout: Layout) -> Estimate:
    """Evaluate one layout by the models that the search uses.

    `problem`: job, cluster, software. `layout`: any layout; the rules of `core.rules` are not
    checked here.
    """
    stages = stage_memories(problem.memory_facts, layout, problem.memory_parameters)
    fullest = peak_stage(stages)
    return Estimate(
        layout=layout,
        family=family(
            layout.tp, layout.pp, layout.cp, layout.ep, layout.zero_stage, layout.shard_group_size
        ),
        step=step_time(problem.model, problem.hardware, problem.software, layout),
        memory=fullest,
        stage_layers=tuple(s.n_layers for s in stages),
        peak_bytes=fullest.total_bytes,
        capacity_bytes=problem.capacity_bytes,
        fits=fullest.total_bytes <= max(problem.capacity_bytes, problem.room_bytes),
        room_bytes=problem.room_bytes,
    )


def host_bytes_per_node(problem: Problem, layout: Layout) -> float:
    """Bound what an optimizer that is moved takes of the memory of a node's host. [byte].

    What the GPUs of the fullest stage hold less; a framework may keep copies beside it.
    """
    whole = replace(layout, offload_optimizer=False)
    held, left = (
        stage_memories(problem.memory_facts, x, problem.memory_parameters) for x in (whole, layout)
    )
    moved = max(a.states_bytes - b.states_bytes for a, b in zip(held, left, strict=True))
    return moved * min(problem.hardware.gpus_per_node, layout.n_gpus)


@dataclass(frozen=True, slots=True)
class Run:
    """What training on a number of tokens takes; the ideal has no failures."""

    tokens: float
    n_steps: float
    time_s: float  # ideal
    days: float  # ideal
    gpu_hours: float  # of the expected time
    usd_per_gpu_hour: float | None = None
    usd: float | None = None  # of the expected time
    expected_s: float = 0.0
    expected_days: float = 0.0
    low_days: float = 0.0  # range by published failure rates
    high_days: float = 0.0
    goodput_frac: float = 1.0


def run_of(
    step_s: float,
    step_tokens: float,
    n_gpus: int,
    tokens: float,
    usd_per_gpu_hour: float | None = None,
    outlook: Outlook | None = None,
) -> Run:
    """Time, GPU-hours and price of a run.

    `step_s`: time of a step [s]. `step_tokens`: tokens of a step [1]. `n_gpus`: GPUs [1]. `tokens`:
    tokens of the whole run [1]. `usd_per_gpu_hour`: price [USD/h]. `outlook`: of the ideal time
    with failures; without it nothing fails.

    >>> run = run_of(2.0, 4e6, 1024, 1e12, 2.0)
    >>> run.n_steps, round(run.days, 2), round(run.gpu_hours), round(run.usd)
    (250000.0, 5.79, 142222, 284444)
    """
    n_steps = tokens / step_tokens
    time_s = n_steps * step_s
    times = (time_s,) * 3
    if outlook is not None:
        times = (outlook.expected_s, outlook.low_s, outlook.high_s)
    expected = times[0]
    usd = None if usd_per_gpu_hour is None else rental_usd(n_gpus, expected, usd_per_gpu_hour)
    return Run(
        tokens=tokens,
        n_steps=n_steps,
        time_s=time_s,
        days=time_s / SECONDS_PER_DAY,
        gpu_hours=gpu_hours(n_gpus, expected),
        usd_per_gpu_hour=usd_per_gpu_hour,
        usd=usd,
        expected_s=expected,
        expected_days=expected / SECONDS_PER_DAY,
        low_days=times[1] / SECONDS_PER_DAY,
        high_days=times[2] / SECONDS_PER_DAY,
        goodput_frac=outlook.goodput.goodput_frac if outlook else 1.0,
    )


TOLERANCE = 0.05
"""How far a batch that is given in tokens may be rounded, so that many layouts divide it."""


def sequences_for(
    batch_tokens: float,
    seq_len: int,
    tolerance: float = TOLERANCE,
    n_gpus: int = 1,
    micro_batch: int = 1,
) -> int:
    """Sequences of a batch given in tokens, rounded so that many layouts divide it.

    An exact multiple is kept where the GPUs' powers of two divide it. Otherwise the nearest
    multiple of the largest power of two that changes the batch by at most `tolerance`: batches of
    real runs are highly divisible, and half a million tokens are 256 sequences of 2,048.

    `batch_tokens`: tokens of one step [1]. `seq_len`: tokens of a sequence [1]. `tolerance`:
    largest relative change [1]. `n_gpus`: GPUs that share the batch: where an odd number of ranks
    is in them, a batch that it divides too, if one is within the tolerance [1]. `micro_batch`:
    sequences of a micro-batch that the batch must be a multiple of [1]. Returns: at least 1.

    >>> sequences_for(4e6, 8192), sequences_for(16e6, 8192), sequences_for(62914560, 4096)
    (512, 2048, 15360)
    >>> sequences_for(1e3, 8192), sequences_for(4e6, 8192, n_gpus=1000)
    (1, 500)
    >>> sequences_for(4e6, 1024, n_gpus=8, micro_batch=44), sequences_for(512e3, 2048, n_gpus=8)
    (3872, 256)
    """
    exact = batch_tokens / seq_len
    if exact <= micro_batch:
        return micro_batch
    even = n_gpus & -n_gpus
    for unit in (n_gpus // even * micro_batch, micro_batch):
        shared = unit * _divisible(exact / unit, tolerance, even)
        if abs(shared / exact - 1.0) <= tolerance:
            return shared
    return micro_batch * max(1, round(exact / micro_batch))


def _divisible(exact: float, tolerance: float, even: int) -> int:
    """Nearest multiple of the largest power of two that is within the tolerance."""
    if exact % even == 0:
        return int(exact)
    step = 1 << int(exact).bit_length()
    while step > 1:
        nearest = max(1, round(exact / step)) * step
        if abs(nearest / exact - 1.0) <= tolerance:
            return nearest
        step //= 2
    return max(1, round(exact))


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another layout, and why it is not the one chosen."""

    kind: str  # "passed over" | "best of family" | "next best" | "does not fit"
    family: str
    layout: Layout
    step_s: float
    mfu: float
    peak_bytes: float
    fits: bool
    slower_frac: float  # expected time over the best's, less 1
    why: str


@dataclass(frozen=True, slots=True)
class Effect:
    """The step with one thing changed."""

    figure: str
    change: str
    expected_s: float  # for as many tokens as the step now has
    roofline_s: float
    gain_frac: float  # of the expected time saved per token


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes a job fit."""

    change: str
    layout: Layout | None  # None: memory alone was looked at
    step_s: float | None
    peak_bytes: float | None
    n_gpus: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A faster layout than the one chosen, and what speaks against it."""

    layout: Layout
    step_s: float
    gain_frac: float  # of the chosen one's step
    risks: tuple[str, ...]  # what an expert avoids in it
    peak_bytes: float
    fits_probability: float


@dataclass(frozen=True, slots=True)
class ByMaturity:
    """The same layout, tuned or as it comes."""

    maturity: str
    step_s: float
    step_low_s: float  # 80 % interval of the expected time
    step_high_s: float
    days: float | None  # of the run, with failures
    usd: float | None
    settings: tuple[str, ...]  # in words


@dataclass(frozen=True, slots=True)
class PlanResult(Settled):
    """The chosen layout (or, if nothing fits, the one that came closest) and all about it."""

    n_gpus: int
    stage_layers: tuple[int, ...]  # of each pipeline stage
    family: str
    fits_probability: float  # of the layout as it is, all said: as `launch-check` of its file
    step_s: float
    roofline_s: float
    step_low_s: float  # 80 % interval of the expected time
    step_high_s: float
    passed_over: PassedOver | None  # the fastest that fits as surely; None: it is the chosen one
    bolder: PassedOver | None  # the fastest that fits if its memory is as expected, if it is faster
    maturity: str  # of the times above: tuned, as-it-comes, script; unsaid: by the next
    tuned_probability: float | None  # by what is said of the job; None: its maturity is said
    tuned: ByMaturity | None  # None: does not fit, or steps of the own site were measured
    as_it_comes: ByMaturity | None
    mfu: float
    hfu: float
    model_flop_per_s_per_gpu: float  # of the model's own FLOP, attention counted causal
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    batch_tokens: float  # of the step as planned
    asked_batch_tokens: float
    tokens_per_gpu: float  # of the batch asked for
    tokens_per_dp_rank: float
    hbm_bytes: float
    headroom_bytes: float
    run: Run | None
    outlook: Outlook | None  # of the run, with failures
    bill: Bill | None
    checkpoint: SaveTime | None
    step: StepResult
    memory: StageMemory
    limits: tuple[LimitRow, ...]
    alternatives: tuple[Alternative, ...]
    slow_families: tuple[str, ...]  # with layouts that fit, none near the best
    sensitivity: tuple[Effect, ...]
    remedies: tuple[Remedy, ...]
    counts: Counts
    decides: str  # the setting that nobody said and that decides most
    job: dict[str, Any]
    job_toml: str


@dataclass(frozen=True, slots=True)
class ScanRow:
    """The best layout of one case of a scan."""

    cluster: str
    n_gpus: int
    seq_len: int
    global_batch_size: int
    fits: bool
    meets: bool
    layout: Layout
    step_s: float
    roofline_s: float
    mfu: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    peak_bytes: float
    capacity_bytes: float
    ideal_days: float | None
    days: float | None  # expected, with failures
    gpu_hours: float | None
    usd: float | None
    tokens_per_usd: float | None
    scaling_efficiency: float | None
    pareto: bool  # no other row is both faster and cheaper (in GPUs, or USD)
    why_not: str
    counts: Counts
    memory_interval_factor_80: float = 1.0
