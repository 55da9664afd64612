"""Published measurements (CSV) to specs: one training run or layout per row, blanks filled.

Rows come from many sources, so nothing here raises on the content of a row: what is unknown is
filled with a stated assumption, and a row that cannot be modelled carries the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuscale.core.layout import Layout
from gpuscale.core.settings import DISPATCHERS
from gpuscale.core.step.dispatch import DUALPIPE_DISPATCH
from gpuscale.evidence.rows.hardware import measured_cluster
from gpuscale.evidence.rows.models import model_of
from gpuscale.evidence.rows.settings import (
    blocks_again,
    family_of,
    moe_kernel_generation,
    precision_of,
    recompute_of,
    schedule_of,
    shard_group_of,
    zero_stage_of,
)
from gpuscale.evidence.rows.words import Row, number, whole
from gpuscale.specs.cluster import ClusterSpec
from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One measured run or layout, ready to be predicted."""

    id: str
    source: str
    gpu: str  # as printed
    model: ModelSpec | None
    hardware: ClusterSpec | None
    layout: Layout | None
    n_gpus: int
    software: str  # preset name of the family
    options: Mapping[str, object] = field(default_factory=dict)  # settings of the software
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    memory_bytes: float | None = None
    memory_kind: str = ""  # "allocated", "reserved", "nvidia-smi", "printed"
    full_spec: str = ""
    quality: str = ""
    superseded: bool = False
    dup_group: str = ""
    classes: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()  # what the row leaves blank, and what was taken
    reason: str = ""  # why the row cannot be modelled


def training_run(row: Row, index: int = 0) -> TrainingRun:
    """Read one row of `training_runs.csv` or `layouts.csv`; never raises on its content."""
    try:
        return _training_run(row, index)
    except (ValueError, KeyError, ArithmeticError, AttributeError, TypeError) as error:
        text = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        return _unread(row, index, f"row not understood: {text}")


def _id(row: Row, index: int) -> str:
    return row.get("id") or f"{row.get('group', 'row')}-{index}"


def _unread(row: Row, index: int, reason: str) -> TrainingRun:
    """Run of which only the names and the reason are known."""
    names: dict[str, Any] = {key: row.get(key, "") for key in ("source", "gpu")}
    blank: dict[str, Any] = dict.fromkeys(("model", "hardware", "layout"))
    names |= {"id": _id(row, index), "software": family_of(row), "reason": reason}
    return TrainingRun(**names, **blank, n_gpus=0)


def _training_run(row: Row, index: int) -> TrainingRun:
    is_layout = "grad_accumulation" in row and "framework" not in row
    row = (
        {
            **row,
            "framework": "nanotron",
            "fabric": row.get("fabric", ""),
            "precision": row.get("precision") or "bf16 (fp32 grad accumulation)",
            "sequence_parallel": row.get("sequence_parallel") or "yes",
            "attention": "full (flash)",
        }
        if is_layout
        else dict(row)
    )
    family = family_of(row)
    model, model_note = model_of(row)
    facts = measured_cluster(row)
    assumed: list[str] = [model_note] if model_note else []
    if facts is None:
        model, model_note = None, f"unknown GPU `{row.get('gpu', '')[:40]}`"
    if model is None or facts is None:
        found = _unread(row, index, model_note or "architecture unknown")
        return replace(found, n_gpus=whole(row.get("n_gpus")) or 0, **_measured(row, None))
    notes = row.get("notes", "").lower()
    if re.search(r"mtp (layer|module)", notes) and "w/o mtp" not in notes:
        model = model.model_copy(update={"n_mtp_layers": 1})
    layout, n_gpus, more = _layout(row, model, facts, family)
    assumed += more
    return TrainingRun(
        id=_id(row, index),
        source=row.get("source") or row.get("group", ""),
        gpu=row.get("gpu", ""),
        model=model,
        hardware=facts,
        layout=layout,
        n_gpus=n_gpus,
        software=family,
        options=_options(row, family, model, layout),
        classes=_classes(row, model, facts, layout, family),
        assumed=tuple(assumed),
        **_measured(row, layout),
    )


def _layout(
    row: Row, model: ModelSpec, facts: ClusterSpec, family: str
) -> tuple[Layout, int, list[str]]:
    assumed: list[str] = []
    tp, pp, cp = (whole(row.get(k), 100_000) for k in ("tp", "pp", "cp"))
    dp_printed, ep, etp = (whole(row.get(k), 10**6) for k in ("dp", "ep", "etp"))
    n_gpus = whole(row.get("n_gpus"), 10**7)
    if n_gpus is None:
        n_gpus = (tp or 1) * (pp or 1) * (cp or 1) * (dp_printed or facts.gpus_per_node)
        assumed.append(f"n_gpus {n_gpus}")
    cp = cp or 1
    zero = zero_stage_of(row.get("dp_sharding") or row.get("zero_stage", ""), family)
    if tp is None or pp is None:
        chosen = _degrees(row, facts, n_gpus, zero, tp, pp)
        assumed.append(f"tp {chosen[0]}, pp {chosen[1]}")
        tp, pp = chosen
    dp = max(1, n_gpus // (tp * pp * cp))
    seq = whole(row.get("seq_len"), 10**8)
    if seq is None:
        seq = 4096
        assumed.append("seq_len 4096")
    micro, batch = _batch(row, assumed, seq=seq, dp=dp, pp=pp, n_gpus=n_gpus, zero=zero)
    recompute_text = row.get("recompute", "")
    recompute, n_recompute, _ = recompute_of(recompute_text, model.n_layers, pp)
    again = blocks_again(row, family, model.n_layers)
    if again is not None:
        recompute, n_recompute = "full", again
    if not recompute_text and "grad_accumulation" not in row:
        recompute = _usual_recompute(row, family)
        assumed.append(f"recompute {recompute}")
    is_moe = any(g.ffn.kind == "moe" for g in model.layer_groups)
    layout = Layout(
        seq_len=seq,
        global_batch_size=batch,
        micro_batch_size=micro,
        tp=tp,
        cp=cp,
        pp=pp,
        dp=dp,
        ep=(ep or 1) if is_moe else 1,
        etp=(etp or 1) if is_moe else 1,
        vpp=whole(row.get("vpp"), 1000) or 1,
        zero_stage=zero,
        shard_group_size=shard_group_of(row, dp * cp),
        sequence_parallel=tp > 1 and _sequence_parallel(row, family),
        recompute=recompute,
        recompute_layers=n_recompute,
        schedule=schedule_of(row),
        precision=precision_of(row.get("precision", "")),
        overlap_tp="vanilla tp" not in row.get("notes", "").lower(),
        cp_kind="ring" if "megatron" in family or family == "nanotron" else "all-gather",
    )
    return layout, n_gpus, assumed


def _batch(
    row: Row, assumed: list[str], *, seq: int, dp: int, pp: int, n_gpus: int, zero: int
) -> tuple[int, int]:
    """Micro-batch and global batch; what is not printed is assumed, and said."""
    micro = whole(row.get("micro_batch"), 10**6)
    batch = whole(row.get("global_batch"), 10**8)
    if micro is None:
        limit = max(1, (batch or dp) // dp)
        micro = min(1 if seq >= 4096 or zero < 3 else 4, limit)
        assumed.append(f"micro_batch_size {micro}")
    if batch is None:
        rate, step = number(row.get("tokens_per_s_per_gpu")), number(row.get("step_time_s"))
        if rate and step:
            batch = max(1, round(rate * step * n_gpus / seq))
            assumed.append(f"global_batch_size {batch} from rate and time")
            if "micro_batch_size 1" in assumed:
                micro = max(1, min(8, batch // dp))
        else:
            accumulation = 1 if zero == 3 and pp == 1 else max(8, 4 * pp)
            batch = dp * micro * (whole(row.get("grad_accumulation")) or accumulation)
            assumed.append(f"global_batch_size {batch}")
    return micro, batch


def _sequence_parallel(row: Row, family: str) -> bool:
    text = row.get("sequence_parallel", "").lower()
    usual = family not in ("megatron-deepspeed", "megatron-lm-2021", "fsdp", "jax")
    return text in ("yes", "true", "1") or (not text and usual)


def _usual_recompute(row: Row, family: str) -> str:
    if family in ("megatron-deepspeed", "jax", "fsdp") or "zero3" in family:
        return "full"
    if family in ("torchtitan",):
        return "per-op"
    if family == "megatron-lm-2021":
        return "full" if "2021" in row.get("framework", "") else "selective"
    return "none"


def _degrees(
    row: Row, facts: ClusterSpec, n_gpus: int, zero: int, tp: int | None, pp: int | None
) -> tuple[int, int]:
    """Smallest tensor, then pipeline degree whose states (18 B per parameter) fill 60 % at most."""
    params = number(row.get("n_params")) or 7e9
    sharded = zero >= 3
    target = params * 18.0 / (0.6 * facts.gpu.hbm_bytes)
    if sharded:
        return tp or 1, pp or 1
    best_tp = tp or 1
    while tp is None and best_tp < min(8, facts.gpus_per_node, n_gpus) and best_tp < target:
        best_tp *= 2
    best_pp = pp or 1
    while pp is None and best_tp * best_pp < min(target, n_gpus) and best_pp < 64:
        best_pp *= 2
    while best_tp * best_pp > n_gpus and best_pp > 1:
        best_pp //= 2
    return max(1, min(best_tp, n_gpus)), max(1, best_pp)


def _options(row: Row, family: str, model: ModelSpec, layout: Layout) -> dict[str, object]:
    notes, precision = row.get("notes", "").lower(), row.get("precision", "").lower()
    attention = row.get("attention", "").lower()
    options: dict[str, object] = {}
    if "cuda graph" in notes:
        options["cuda_graphs"] = "full" if "full_iteration" in notes else "layer"
    if "tokendrop" in notes:  # experts padded to a capacity: static shapes, NCCL's all-to-all
        options |= {"cuda_graphs": "full", **DISPATCHERS["alltoall"]}
    if "gpt-oss" in model.name.lower():  # scripts/performance/configs/gpt_oss: no flex dispatcher
        options |= DISPATCHERS["alltoall"]
    if "all-to-all overlap" in notes:
        options["overlap_ep"] = True
    if family == "megatron-bridge" and row.get("dp_sharding", "").startswith("HSDP"):
        options["outer_shards"] = True  # perf_recipes/nemotronh/common.py: outer_dp_sharding
    if layout.schedule == "dualpipe":
        options.update(DUALPIPE_DISPATCH)
    generation = moe_kernel_generation(notes, row.get("framework", ""))
    if generation == "2026b" and options.get("cuda_graphs") == "layer":
        generation = "2026a"  # the newer ones come with graphs of the whole iteration
    if generation or family == "megatron-core":  # published runs are tuned
        options["moe_kernels"] = generation or "2025"
    if "unfused" in attention:
        options["attention"] = "unfused"
    elif "flash" in attention:
        options["attention"] = "flash"
    if family == "torchtitan" and not re.search(r"2026|0\.[3-9]", row.get("framework", "")):
        options["loss"] = "eager"
    if "llm foundry" in row.get("framework", "").lower():
        options["flash_generation"] = "1"  # submit_benchmarks.py, --attn_impl: triton
    if "fp32 grad" in precision:
        options["gradient_bytes"] = 4.0
    elif precision.startswith(("fp16", "bf16 (pure)")):
        options["gradient_bytes"] = 2.0
    if "fused cross" in notes:
        options["fused_cross_entropy"] = True
    if family == "megatron-deepspeed" and layout.zero_stage == 0:
        options["scatter_gather"] = True  # Megatron's pipeline, not DeepSpeed's engine
    plain = family == "torchtitan" and precision_of(precision) == "bf16"
    if "eager" in notes or (plain and "compile" not in notes):  # torchtitan's default is eager
        options["compiled"] = False
    _, _, modules = recompute_of(row.get("recompute", ""), model.n_layers, layout.pp)
    if modules:
        options["recompute_modules"] = modules
    match = re.search(r"cpu activation offload of (\d+) layers", notes)
    if match:
        options["offload_layers"] = int(match[1])
    return options


def _measured(row: Row, layout: Layout | None) -> dict[str, Any]:
    step = number(row.get("step_time_s"))
    rate = number(row.get("tokens_per_s_per_gpu"))
    if layout is not None:
        tokens = layout.global_batch_size * layout.seq_len
        n_gpus = whole(row.get("n_gpus")) or layout.n_gpus
        if step is None and rate is not None:
            step = tokens / (rate * n_gpus)
        elif rate is None and step is not None:
            rate = tokens / (step * n_gpus)
    memory, kind = _memory(row)
    return {
        "step_time_s": step,
        "tokens_per_s_per_gpu": rate,
        "memory_bytes": memory,
        "memory_kind": kind,
        "full_spec": row.get("full_spec", ""),
        "quality": row.get("quality", ""),
        "superseded": row.get("superseded", "") == "yes",
        "dup_group": row.get("dup_group", ""),
    }


def _memory(row: Row) -> tuple[float | None, str]:
    value = number(row.get("memory_gb"))
    text = row.get("memory_kind", "").lower()
    if value is None:
        return None, ""
    # nanotron prints max_memory_allocated() / 1024**3 as "GB" (src/nanotron/logging)
    unit = 2.0**30 if "gib" in text or row.get("framework", "") == "nanotron" else 1e9
    kind = next((k for k in ("nvidia-smi", "allocated", "reserved") if k in text), "printed")
    if "max over ranks" in text and kind == "printed":
        kind = "reserved"
    return value * unit, kind


def _classes(
    row: Row, model: ModelSpec, facts: ClusterSpec, layout: Layout, family: str
) -> dict[str, str]:
    moe = any(g.ffn.kind == "moe" for g in model.layer_groups)
    return {
        "source": row.get("source") or row.get("group", ""),
        "dense_or_moe": "moe" if moe else "dense",
        "precision": layout.precision,
        "family": family,
        "architecture": facts.gpu.architecture,
        "quality": row.get("quality", ""),
        "full_spec": row.get("full_spec", ""),
    }
