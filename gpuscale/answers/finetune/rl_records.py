"""What an answer about RL says, as data."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.layout import Layout
from gpuscale.core.rl.estimate import RlEstimate
from gpuscale.core.run.bill import Bill


@dataclass(frozen=True, slots=True)
class Split:
    """A split of the GPUs between rollout and training."""

    train_gpus: int
    rollout_gpus: int
    step_s: float
    bound: str
    fits: bool


@dataclass(frozen=True, slots=True)
class RlAnswer:
    """A step of RL and its memory."""

    fits: bool
    fits_probability: float
    n_gpus: int
    layout: Layout  # of training
    step_s: float
    step_low_s: float  # 80 % interval
    step_high_s: float
    tokens_per_s: float
    samples_per_s: float
    bound: str
    peak_bytes: float
    capacity_bytes: float
    memory_interval_factor_80: float
    estimate: RlEstimate
    steps: int | None  # of the run
    run_s: float | None
    cost_usd: float | None
    bill: Bill | None  # of the run, or of a step where no steps are given; None for `memory`
    fewest_gpus: int | None  # None: not asked for, or no number holds it
    splits: tuple[Split, ...]
    taken: tuple[str, ...]  # what nobody said, and the option that says it
