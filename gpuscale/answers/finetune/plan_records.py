"""What a plan of fine-tuning says, as data."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.finetune.memory import FinetuneMemory
from gpuscale.core.finetune.remedy import Remedy
from gpuscale.core.layout import Layout
from gpuscale.core.run.bill import Bill
from gpuscale.core.step.records import Breakdown


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run the job."""

    gpu: str
    cluster: str
    n_gpus: int
    software: str
    zero_stage: int
    micro_batch_size: int
    global_batch_size: int
    recompute: str
    offload: tuple[str, ...]
    fits: bool
    peak_bytes: float
    capacity_bytes: float
    step_s: float
    tokens_per_s: float  # without padding
    run_s: float  # of all tokens
    usd_per_gpu_hour: float | None
    price_origin: str
    cost_usd: float | None
    host_bytes_per_node: float


@dataclass(frozen=True, slots=True)
class Against:
    """A kind of GPU against the slowest of those asked for, each at its best."""

    gpu: str
    n_gpus: int
    against: str
    against_gpus: int
    speed_ratio: float  # tokens per second over those of the other
    cost_ratio: float | None  # money of the run over the other's; None where a price is not known


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """The chosen way, the others, and what would help where none fits."""

    fits: bool
    fits_probability: float
    tokens: float
    chosen: Option
    n_gpus: int
    layout: Layout
    step_s: float
    step_low_s: float  # 80 % interval
    step_high_s: float
    tokens_per_s: float
    peak_bytes: float
    capacity_bytes: float
    memory_interval_factor_80: float
    run_s: float
    cost_usd: float | None
    bill: Bill  # money, energy and carbon of the run
    expected: FinetuneMemory
    breakdown: Breakdown
    unpack_s: float
    offload_s: float
    options: tuple[Option, ...]
    against: tuple[Against, ...]  # several kinds of GPUs: the ratios
    remedies: tuple[Remedy, ...]
    taken: tuple[str, ...]  # what nobody said, and the option that says it
    passed_over: Option | None  # faster, where memory is no more than expected
    passed_over_fits_probability: float | None
