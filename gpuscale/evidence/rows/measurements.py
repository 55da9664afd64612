"""Published measurements (CSV) to jobs: one training run or layout per row, as `plan` takes it.

Rows come from many sources, so nothing here raises on the content of a row: a row that does not say
its job carries the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuscale.core.layout import Layout
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.hardware import asked_gpu, measured_cluster
from gpuscale.evidence.rows.models import model_of
from gpuscale.evidence.rows.settings import (
    blocks_again,
    changes_of,
    family_of,
    recompute_of,
    settings_of,
    shard_group_of,
    zero_stage_of,
)
from gpuscale.evidence.rows.words import Row, meaning, number, whole
from gpuscale.io.settle import settle
from gpuscale.io.software import load_software
from gpuscale.specs.cluster import ClusterSpec
from gpuscale.specs.model import ModelSpec

OF_A_JOB = {  # column of a row -> field of `Layout`
    "seq_len": "seq_len",
    "global_batch": "global_batch_size",
    "tp": "tp",
    "pp": "pp",
}
"""What a row must say of its job; `plan` would choose it."""

DEGREES = {n: n for n in ("cp", "vpp", "ep", "etp")} | {"micro_batch": "micro_batch_size"}
"""Columns that are 1 where a row leaves them blank, as `memory` takes them -> field of `Layout`."""

GRID = {"framework": "nanotron", "sequence_parallel": "yes", "attention": "full (flash)"}
"""Facts that hold for every row of `layouts.csv`: the grid of the Ultra-Scale Playbook."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One measured run or layout, ready to be predicted."""

    id: str
    source: str
    gpu: str  # as printed
    n_gpus: int = 0
    software: str = ""  # preset name of the family
    model: ModelSpec | None = None
    hardware: ClusterSpec | None = None
    layout: Layout | None = None
    settings: JobSettings = NO_SETTINGS
    changes: Mapping[str, object] = field(default_factory=dict)  # as --set software.KEY=VALUE
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    memory_bytes: float | None = None
    memory_kind: str = ""  # "allocated", "reserved", "nvidia-smi", "printed"
    full_spec: str = ""
    quality: str = ""
    superseded: bool = False
    dup_group: str = ""
    classes: Mapping[str, str] = field(default_factory=dict)
    open_recompute: bool = False  # not printed: the least that fits
    reason: str = ""  # why the row cannot be modelled

    @property
    def options(self) -> dict[str, object]:
        """Fields of `Software` and `MemoryParameters` that differ from the family's."""
        return {**self.settings.options, **self.changes}


def training_run(row: Row, index: int = 0) -> TrainingRun:
    """Read one row of `training_runs.csv` or `layouts.csv`; never raises on its content."""
    is_layout = "grad_accumulation" in row and "framework" not in row
    if is_layout:
        printed = row.get("precision") or "bf16 (fp32 grad accumulation)"
        row = {**GRID, "precision": printed, **{k: v for k, v in row.items() if v}}
    told = TrainingRun(
        id=row.get("id") or f"{row.get('group', 'row')}-{index}",
        source=row.get("source") or row.get("group", ""),
        gpu=row.get("gpu", ""),
        n_gpus=whole(row.get("n_gpus"), 10**7) or 0,
        software=family_of(row),
        **_measured(row),
    )
    try:
        return _with_job(told, row, is_layout)
    except GpuscaleError as error:
        return replace(told, reason=error.message)
    except (ValueError, KeyError, ArithmeticError, AttributeError, TypeError) as error:
        text = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        return replace(told, reason=f"row not understood: {text}")


def _with_job(told: TrainingRun, row: Row, is_layout: bool) -> TrainingRun:
    gpu = asked_gpu(row)
    if gpu is None:
        raise GpuscaleError("GPU not stated")
    model, cluster = model_of(row), measured_cluster(row, gpu)
    layout = _layout(told, row, model, is_layout)
    tokens = layout.global_batch_size * layout.seq_len
    rate, step = told.tokens_per_s_per_gpu, told.step_time_s
    if step is None and rate is not None:
        step = tokens / (rate * told.n_gpus)
    return replace(
        told,
        model=model,
        hardware=cluster,
        layout=layout,
        settings=settings_of(row, told.software, model, cluster, layout),
        changes=changes_of(row, told.software, layout),
        step_time_s=step,
        tokens_per_s_per_gpu=rate or (tokens / (step * told.n_gpus) if step else None),
        open_recompute=not row.get("recompute") and not is_layout,
        classes={
            "source": told.source,
            "dense_or_moe": "moe" if model.has_experts else "dense",
            "precision": layout.precision,
            "family": told.software,
            "architecture": cluster.gpu.architecture,
            "quality": told.quality,
            "full_spec": told.full_spec,
        },
    )


def _layout(told: TrainingRun, row: Row, model: ModelSpec, is_layout: bool) -> Layout:
    printed = {name: whole(row.get(column), 10**8) for column, name in OF_A_JOB.items()}
    said: dict[str, Any] = {name: value for name, value in printed.items() if value}
    again = whole(row.get("grad_accumulation"))
    degrees: dict[str, Any] = {
        name: whole(row.get(column), 10**6) or 1 for column, name in DEGREES.items()
    }
    if not model.has_experts:
        degrees |= {"ep": 1, "etp": 1}
    n_model = said.get("tp", 1) * said.get("pp", 1) * degrees["cp"]
    dp = max(1, told.n_gpus // n_model)
    if is_layout and again:
        said["global_batch_size"] = dp * degrees["micro_batch_size"] * again
    if blank := [column for column, name in OF_A_JOB.items() if name not in said]:
        raise GpuscaleError(f"{blank[0]} not printed: `plan` would choose it")
    if not told.n_gpus:
        raise GpuscaleError("number of GPUs not printed")
    zero = zero_stage_of(row.get("dp_sharding") or row.get("zero_stage", ""), told.software)
    recompute, n_recompute = recompute_of(row.get("recompute", ""), model.n_layers, said["pp"])
    if (blocks := blocks_again(row, told.software, model.n_layers)) is not None:
        recompute, n_recompute = "full", blocks
    parallel = row.get("sequence_parallel", "").lower()
    more: dict[str, Any] = {
        "dp": dp,
        "zero_stage": zero,
        "shard_group_size": shard_group_of(row, dp * degrees["cp"]),
        "sequence_parallel": parallel in ("yes", "true", "1") if parallel else None,
        "recompute": recompute,
        "recompute_layers": n_recompute,
        "schedule": meaning("schedule", row.get("pp_schedule", "")) or None,
        "precision": meaning("linears", row.get("precision", "")) or None,
        "overlap_tp": "vanilla tp" not in row.get("notes", "").lower(),
        "cp_kind": "ring" if "megatron" in told.software or is_layout else "all-gather",
    }
    return settle(said | degrees | more, load_software(told.software))


def _measured(row: Row) -> dict[str, Any]:
    value, text = number(row.get("memory_gb")), row.get("memory_kind", "").lower()
    # nanotron prints max_memory_allocated() / 1024**3 as "GB" (src/nanotron/logging)
    unit = 2.0**30 if "gib" in text or row.get("framework", "") == "nanotron" else 1e9
    kind = next((k for k in ("nvidia-smi", "allocated", "reserved") if k in text), "printed")
    if "max over ranks" in text and kind == "printed":
        kind = "reserved"
    return {
        "step_time_s": number(row.get("step_time_s")),
        "tokens_per_s_per_gpu": number(row.get("tokens_per_s_per_gpu")),
        "memory_bytes": value * unit if value else None,
        "memory_kind": kind if value else "",
        "full_spec": row.get("full_spec", ""),
        "quality": row.get("quality", ""),
        "superseded": row.get("superseded", "") == "yes",
        "dup_group": row.get("dup_group", ""),
    }
