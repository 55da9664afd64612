"""Published measurements (CSV) to jobs: one training run or layout per row, as `plan` takes it.

Rows come from many sources, so nothing here raises on the content of a row: a row that does not say
its job carries the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuscale.core.layout import Layout
from gpuscale.core.records import dataclass, field, replace
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows_named import (
    Row,
    asked_gpu,
    meaning,
    measured_cluster,
    model_of,
    number,
    whole,
)
from gpuscale.io.jobs import LeastDegrees, settled
from gpuscale.io.software import load_software, settle
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.model import ModelSpec


def family_of(row: Row) -> str:
    """Software preset nearest to the framework named in a row; `megatron-core` if none is."""
    text = row.get("framework", "").lower()
    source = f"{row.get('source', '')} {row.get('citation', '')}".lower()
    notes = row.get("notes", "").lower()
    if "overlap off" in notes and ("megatron" in text or "nemo" in text):
        return "megatron-no-overlap"
    name = meaning("framework", text) or "megatron-core"
    if name == "megatron-core" and "mlperf" in source:
        return "mlperf-submission"
    old_gpu = re.search(r"a100|v100", row.get("gpu", "").lower())
    if name == "megatron-core" and old_gpu and re.fullmatch(r"megatron-lm", text.strip()):
        return "megatron-lm-2021"
    return name


def zero_stage_of(text: str, family: str) -> int:
    """ZeRO stage of a `dp_sharding` or `zero_stage` cell; the family's habit when blank."""
    if (stage := meaning("sharding", text.strip())) is not None:
        return int(stage)
    if family in ("fsdp", "torchtitan", "jax", "deepspeed-zero3"):
        return 3
    return 0 if family == "megatron-lm-2021" else 1


def recompute_of(text: str, n_layers: int, pp: int) -> tuple[str, int | None]:
    """(recompute, layers of a stage that are recomputed) of a `recompute` cell."""
    found = meaning("recomputed", text) or "none"
    every_other = "every other" in text.lower()
    return found, max(1, n_layers // (2 * pp)) if every_other else None


def modules_of(text: str) -> tuple[str, ...] | None:
    """Modules that a `recompute` cell of selective recomputation names.

    >>> modules_of("selective: layernorm, moe_act"), modules_of("full")
    (('layernorm', 'moe_act'), None)
    """
    if meaning("recomputed", text) != "selective":
        return None
    found = [m for m, words in MODULE_WORDS.items() if re.search(words, text.lower())]
    return tuple(found) or ("core_attn",)


MODULE_WORDS = {
    "mla_up_proj": r"mla.?up",
    "layernorm": r"norm",
    "moe_act": r"moe_act",
    "mlp": r"\bmlp\b",
    "moe": r"\bmoe\b",
    "core_attn": r"core_attn|attention",
}


def settings_of(
    row: Row, family: str, model: ModelSpec, cluster: ClusterSpec, layout: Layout
) -> JobSettings:
    """Read the settings that a row states; the others are those that `plan` takes.

    The job is one of those that the software's parameters are fitted to: tuned, for most.
    """
    notes, spec = row.get("notes", "").lower(), load_software(family)
    framework = row.get("framework", "").lower()
    graphs = meaning("graphs", notes)
    kernels = moe_kernel_generation(notes, framework)
    if kernels == "2026b" and graphs == "layer":
        kernels = "2026a"  # the newer ones come with graphs of the whole iteration
    attention = meaning("trained_attention", f"{framework}; {row.get('attention', '')}")
    if attention == "flash":  # the generation that the software has
        attention = "flash2" if spec.attention == "unfused" else None
    loss = meaning("trained_loss", notes)
    if family == "torchtitan" and not re.search(r"2026|0\.[3-9]", framework):
        loss = loss or "eager"
    offloaded = re.search(r"cpu activation offload of (\d+) layers", notes)
    said = JobSettings(
        maturity=spec.fitted_on,
        cuda_graphs=graphs,
        dispatcher=meaning("exchange", f"{notes}; {model.name}") if model.has_experts else None,
        overlap_ep="all-to-all overlap" in notes or None,
        moe_kernels=kernels or None if model.has_experts else None,
        recompute_modules=modules_of(row.get("recompute", "")),
        offload_layers=int(offloaded[1]) if offloaded else None,
        gradients=meaning("gradients", row.get("precision", "")),
        attention=attention,
        loss=loss,
    )
    return settled(said, spec, model, cluster, LeastDegrees.of(layout))


def changes_of(row: Row, family: str, layout: Layout) -> dict[str, object]:
    """Read what a row states of its software that no option says: `--set software.KEY=VALUE`."""
    notes, precision = row.get("notes", "").lower(), meaning("linears", row.get("precision", ""))
    plain = family == "torchtitan" and precision == "bf16"
    changes: dict[str, object] = {}
    if family == "megatron-bridge" and row.get("dp_sharding", "").startswith("HSDP"):
        changes["outer_shards"] = True  # perf_recipes/nemotronh/common.py: outer_dp_sharding
    if family == "megatron-deepspeed" and layout.zero_stage == 0:
        changes["scatter_gather"] = True  # Megatron's pipeline, not DeepSpeed's engine
    if family == "torchtitan" and re.search(r"2024-?\d\d|performance\.md", row.get("citation", "")):
        changes["compiled_loss"] = False  # since pytorch/torchtitan#1033, 2025-03-30
    if "eager" in notes or (plain and "compile" not in notes):  # torchtitan's default is eager
        changes["compiled"] = False
    return changes


def blocks_again(row: Row, family: str, n_layers: int) -> int | None:
    """Blocks that are recomputed whole where FSDP's `selective` means every k-th of them.

    fms-fsdp prints model and hardware FLOP: a forward pass more is a third more (its
    docs/configurations.md, `selective_checkpointing`). None: not so, or not printed.

    >>> row = {"recompute": "selective", "mfu": "0.38", "hfu": "0.47"}
    >>> blocks_again(row, "fsdp", 80), blocks_again(row, "megatron-core", 80)
    (57, None)
    """
    if family != "fsdp" or row.get("recompute", "").strip().lower() != "selective":
        return None
    try:
        more = float(row.get("hfu", "")) / float(row.get("mfu", "")) - 1.0
    except (ValueError, ZeroDivisionError):
        return None
    return min(n_layers, max(0, round(3.0 * more * n_layers)))


def moe_kernel_generation(notes: str, framework: str = "") -> str:
    """MoE kernel generation of the container or version that a row names; "" if none is."""
    match = re.search(r"container (\d\d)\.(\d\d)", notes)
    if match is None:
        year = re.search(r"nemo\D{0,3}(2\d)\b|nemo (dev)|core r?0\.([0-9]|10)\b", framework.lower())
        if year is None or year[1] and int(year[1]) > 25:
            return ""
        return "2025" if year[1] == "25" else "2024"
    release = int(match[1]) * 100 + int(match[2])
    return "2025" if release < 2600 else "2026a" if release < 2606 else "2026b"


def shard_group_of(row: Row, n_ranks: int) -> int | None:
    """Read the ranks of one ZeRO-3 shard group; None: all data-parallel ranks."""
    text = row.get("dp_sharding", "").lower()
    match = re.search(r"then fsdp=(\d+) x dp", text)
    if match and n_ranks > 256:
        return min(n_ranks, int(match[1]))
    match = re.search(r"(?:hsdp|shard)\D{0,12}(\d+)", text)
    return min(n_ranks, max(1, int(match[1]))) if match else None


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
