"""Answers of `plan`: what a person gets as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuscale.core.layout import Layout, Settled
from gpuscale.core.limits.board import LimitRow
from gpuscale.core.memory.stages import StageMemory
from gpuscale.core.plan.estimate import Run
from gpuscale.core.run.bill import Bill
from gpuscale.core.run.checkpoint import SaveTime
from gpuscale.core.run.goodput import Outlook
from gpuscale.core.search.results import Counts
from gpuscale.core.step.records import StepResult


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
