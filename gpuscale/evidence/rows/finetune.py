"""Rows of a table of fine-tuning runs: names, formats and layouts to one job each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.job import Job
from gpuscale.core.finetune.method import ALL, Method, canonical, check
from gpuscale.core.finetune.optimizers import IN_BACKWARD, optimizer
from gpuscale.core.layout import Layout
from gpuscale.core.run.lengths import padded_mean
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.measurements import number, whole
from gpuscale.io.presets import find_preset

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec

Row = Mapping[str, str]

FAMILIES = (  # words in `software` and `parallel` -> family preset; the first match
    (r"unsloth", "unsloth"),
    (r"litgpt|lit-gpt", "litgpt"),
    (r"torchtune|torchao", "torchtune"),
    (r"fsdp_qlora", "fsdp-qlora"),
    (r"axolotl", "axolotl"),
    (r"prime-rl", "prime-rl"),
    (r"automodel", "nemo-automodel"),
    (r"deepspeed|zero ?[123]|xtuner", "hf-deepspeed"),
    (r"nemo|megatron|ngc|nvidia release|mxnet|llmboost|rocm|tp\d+ pp\d+|tp1\)", "megatron-bridge"),
    (r"\bfsdp", "hf-fsdp"),
    (r"llama-factory", "llama-factory"),
    (r"hf|peft|hugging|trainer|swift|pytorch 2", "hf-peft"),
)

BASES = (  # words in `base_precision` -> base
    (r"double|torchao|gpt-oss", "nf4"),
    (r"nf4|4-bit", "nf4-nodq"),
    (r"int4", "int4-g128"),
    (r"int8|8-bit", "int8"),
    (r"^fp8|fp8_params|or fp8", "fp8"),
)

OPTIMIZERS = (  # words in `optimizer` -> optimizer
    (r"q-?galore|galore.*8", "galore-8bit"),
    (r"galore", "galore"),
    (r"4.?bit", "adamw-4bit"),
    (r"paged.*8", "paged-adamw-8bit"),
    (r"paged", "paged-adamw"),
    (r"8.?bit", "adamw-8bit"),
    (r"muon", "muon"),
    (r"adafactor", "adafactor"),
    (r"lion", "lion"),
    (r"sgd", "sgd"),
    (r"bf16|parameter dtype", "adamw-bf16"),
    (r"", "adamw"),
)

GPUS = (  # words in `gpu` -> GPU preset
    (r"gb200", "gb200"),
    (r"b200", "b200-sxm"),
    (r"h200", "h200-sxm"),
    (r"h800", "h800-sxm"),
    (r"h20\b", "h20-sxm-96gb"),
    (r"h100.*pcie", "h100-pcie"),
    (r"h100", "h100-sxm"),
    (r"a100.*40", "a100-sxm-40gb"),
    (r"a100|a800|80gb class", "a100-sxm-80gb"),
    (r"a10g", "a10g"),
    (r"a10\b", "a10"),
    (r"a40\b", "a40"),
    (r"a6000|a5000|a4000", ""),
    (r"l40s", "l40s"),
    (r"\bl4\b", "l4"),
    (r"\bt4\b", "t4"),
    (r"v100.*16", "v100-sxm2-16gb"),
    (r"v100", "v100-sxm2-32gb"),
    (r"mi3\d\dx?", ""),
    (r"gaudi.?2", "gaudi2"),
    (r"gaudi.?3", "gaudi3"),
    (r"(3090|4090|5090|4080|5080|5070|4070|4060|3080|3060|pro 6000|6000 ada)", ""),
)

UNKNOWN_GPU = ("not stated", "24-40gb class", "any with")


@dataclass(frozen=True, slots=True)
class FinetuneRow:
    """One fine-tuning run, ready to be predicted."""

    id: str
    model: ModelSpec
    cluster: ClusterSpec
    gpu_known: bool
    software: SoftwareSpec
    job: Job  # its longest sequences: memory
    timed: Job | None  # at its usual lengths: time; None where the row does not tell them
    memory_bytes: float | None
    memory_kind: str
    out_of_memory: bool
    step_s: float | None
    classes: Mapping[str, str]
    assumed: tuple[str, ...] = ()


def _first(table: tuple[tuple[str, str], ...], text: str, default: str) -> str:
    return next((name for pattern, name in table if re.search(pattern, text)), default)


def family_of(row: Row) -> str:
    """Software family of a row.

    >>> family_of({"software": "HF Trainer 2023 + PEFT", "parallel": "zero3"})
    'hf-deepspeed'
    """
    text = f"{row.get('software', '')} {row.get('parallel', '')}".lower()
    return _first(FAMILIES, text, "hf-peft")


def gpu_of(text: str) -> tuple[str, bool]:
    """(GPU preset, whether the row names it).

    >>> gpu_of("RTX 3090 (280 W)"), gpu_of("any with 24 GB")
    (('rtx-3090', True), ('a100-sxm-80gb', False))
    """
    lowered = text.lower()
    if any(word in lowered for word in UNKNOWN_GPU):
        return "a100-sxm-80gb", False
    for pattern, name in GPUS:
        found = re.search(pattern, lowered)
        if found and name:
            return name, True
        if found:
            bare = re.sub(r"\([^)]*\)|nvidia|geforce|instinct", "", lowered).strip()
            path = find_preset("gpu", bare) or find_preset("gpu", found[0])
            if path is not None:
                return path.stem, True
    return "a100-sxm-80gb", False


def method_of(row: Row) -> Method | str:
    """Read the method of a row, or why it cannot be computed."""
    text = row.get("method", "").lower()
    kind = re.sub(r"^rl trainer ", "", text)
    if kind.startswith(("grpo", "dapo", "ppo", "rloo")):
        return "RL: phases of a step are not predicted from this file"
    if kind not in ("lora", "qlora", "dora", "full", "lora (pissa)"):
        return f"method `{text[:40]}` is not modelled"
    if kind == "full":
        return Method("full")
    base = _first(BASES, row.get("base_precision", "").lower(), "bf16")
    targets, embeddings = targets_of(row.get("targets", ""))
    rank = whole(row.get("rank")) or 8
    return Method("dora" if kind == "dora" else "lora", rank, targets, base, embeddings)


def targets_of(text: str) -> tuple[tuple[str, ...], bool]:
    """(targets, whether embedding and head are trained in full too).

    >>> targets_of("all linear + wte,lm_head trained in full")
    (('all-linear',), True)
    >>> targets_of("q_proj,v_proj"), targets_of("query+key+value+projection+mlp+head")
    ((('q', 'v'), False), (('q', 'k', 'v', 'o', 'mlp'), False))
    """
    lowered = re.sub(r"\(.*?default.*?\)|_default|of that release", "", text.lower())
    embeddings = "lm_head" in lowered
    if "qkv" in lowered:
        more = ("o",) if "proj" in lowered else ()
        return ("qkv", *more), embeddings
    if lowered.startswith("all") or not lowered.strip():
        return ((ALL,) if lowered.strip() else ("q", "v")), embeddings
    names = [canonical(t) for t in re.split(r"[,+]", lowered) if t.strip(" ()")]
    known = tuple(dict.fromkeys(n.strip("()") for n in names if n not in ("head", "lm_head")))
    return known, embeddings


def layout_of(row: Row, family: SoftwareSpec) -> Layout | str:
    """Layout of a row, or why it cannot be computed."""
    text = row.get("parallel", "").lower()
    n = whole(row.get("n_gpus")) or 1
    if "pipeline (" in text or "device_map" in text or "pipeline 2" in text:
        return "layers spread over cards that work in turn are not modelled"
    degree = {k: int(v) for k, v in re.findall(r"\b(tp|pp|cp|ep)(\d+)", text)}
    sequence = re.search(r"sequence parallel (\d+)", text)
    if sequence:
        degree["cp"] = int(sequence[1])
    tp, pp, cp = (degree.get(k, 1) for k in ("tp", "pp", "cp"))
    if n % (tp * pp * cp):
        return f"{n} GPUs are no multiple of tp*pp*cp = {tp * pp * cp}"
    dp = n // (tp * pp * cp)
    stage = 0 if family.finetune is None else family.finetune.zero_stage
    found = re.search(r"zero ?([123])", text)
    if found:
        stage = int(found[1])
    elif "fsdp" in text:
        stage = 3
    elif "ddp" in text or n == 1:
        stage = 0
    seq = whole(row.get("seq_len"))
    if seq is None:
        return "sequence length not printed"
    micro = whole(row.get("micro_batch")) or 1
    accumulate = whole(row.get("grad_accumulation")) or 1
    checkpointing = row.get("checkpointing", "").lower()
    habit = family.finetune.recompute if family.finetune else "full"
    recompute = {"f": "full", "n": "none"}.get(checkpointing[:1], habit)
    if checkpointing.startswith("not"):
        recompute = habit
    offload = row.get("offload", "").lower()
    precision = row.get("compute_precision", "").lower()
    return Layout(
        seq_len=seq,
        global_batch_size=micro * accumulate * dp,
        micro_batch_size=micro,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=degree.get("ep", 1),
        dp=dp,
        zero_stage=stage,
        sequence_parallel=tp > 1 and family.sequence_parallel,
        recompute=recompute,
        precision=precision[:4].strip() if precision[:3] in ("fp8", "fp1") else "bf16",
        cp_kind="ulysses" if sequence else "all-gather",
        offload_optimizer="optimizer" in offload,
        offload_activations="activations" in offload or "offloaded" in checkpointing,
    )


def memory_of(row: Row, family: SoftwareSpec) -> tuple[float | None, str, bool]:
    """(bytes, way of counting, out of memory) of a row's peak."""
    text = row.get("memory_kind", "")
    value = number(row.get("peak_memory_gb"))
    lowered = text.lower()
    if "capacity" in lowered:
        return None, "capacity", False
    unit = 2**30 if "GiB" in text or "/1024" in text else 1e9
    habit = family.finetune.printed_kind if family.finetune else "reserved"
    kind = "allocated" if re.search(r"alloc|active", lowered) else habit
    if "reserved" in lowered:
        kind = "reserved"
    if "oom" in lowered:
        return None, kind, True
    return (value * unit if value else None), kind, False


def finetune_row(row: Row, index: int) -> FinetuneRow | str:
    """One run of a file, or why it cannot be computed."""
    from gpuscale.io.hardware import load_cluster
    from gpuscale.io.models import load_model
    from gpuscale.io.software import load_software

    method = method_of(row)
    if isinstance(method, str):
        return method
    try:
        model = load_model(row.get("model", "")).spec
    except GpuscaleError:
        return f"unknown model `{row.get('model', '')[:40]}`"
    software = load_software(family_of(row))
    layout = layout_of(row, software)
    if isinstance(layout, str):
        return layout
    try:
        check(model, method)
    except ValueError as error:
        return str(error)
    text = row.get("optimizer", "").lower()
    suffix = IN_BACKWARD if "in backward" in text else ""
    opt = optimizer(_first(OPTIMIZERS, text, "adamw") + suffix)
    fused = row.get("fused_ce", "").lower()
    habit = software.finetune.loss if software.finetune else "eager"
    loss = "chunked" if "chunk" in fused else {"no": "eager", "": habit}.get(fused, "fused")
    moved = {o for o in ("parameters", "optimizer") if o in row.get("offload", "").lower()}
    job = Job(
        method=method,
        optimizer=opt,
        layout=layout,
        loss=loss,
        offload=frozenset(moved),
        attention=_attention(row, software),
        compiled=_compiled(row, software),
    )
    printed = row.get("gpu", "")
    gpu, known = gpu_of(printed)
    if not known and printed and not any(word in printed.lower() for word in UNKNOWN_GPU):
        return f"unknown GPU `{printed[:40]}`"
    measured, kind, oom = memory_of(row, software)
    return FinetuneRow(
        id=row.get("id") or f"row-{index}",
        model=model,
        cluster=_cluster(load_cluster(gpu), row.get("gpu", "")),
        gpu_known=known,
        software=software,
        job=job,
        timed=_timed(job, row),
        memory_bytes=measured,
        memory_kind=kind,
        out_of_memory=oom,
        step_s=_step_s(row, layout),
        classes=_classes(row, software, method),
    )


def _attention(row: Row, software: SoftwareSpec) -> str:
    text = row.get("attention_impl", "").lower()
    if text.startswith("eager"):
        return "eager"
    if re.search(r"flash-attention-2|sdpa|torch|xformers", text):
        return "flash2"
    habit = "flash2" if software.flash_generation == "2" else "best"
    return "best" if text else habit


def _compiled(row: Row, software: SoftwareSpec) -> bool:
    text = f"{row.get('software', '')} {row.get('note', '')}".lower()
    habit = bool(software.finetune and software.finetune.compiled)
    return habit or bool(re.search(r"torch\.compile|\+ compile", text))


def _cluster(cluster: ClusterSpec, printed: str) -> ClusterSpec:
    """Cluster with the power limit that a printed GPU name states."""
    watts = re.search(r"(\d{2,4}) ?w\b", printed.lower())
    if not watts:
        return cluster
    gpu = cluster.gpu.model_copy(update={"tdp_w": float(watts[1])})
    return cluster.model_copy(update={"gpu": gpu})


MANY = 16
"""Sequences of a batch of which one is nearly as long as the longest allowed."""


def _timed(job: Job, row: Row) -> Job | None:
    """Return the job at the lengths that it computes; None where the row does not tell them.

    Rows are padded to the longest of a micro-batch, but not where batches are made of sequences of
    like lengths (the PEFT comparison's buckets).
    """
    layout, mean = job.layout, number(row.get("mean_tokens"))
    varied = "variable" in row.get("packing", "").lower()
    if mean is None:
        return None if varied and layout.micro_batch_size < MANY else job
    if mean >= layout.seq_len:
        return job
    alike = row.get("software", "").startswith("PEFT main")
    length = padded_mean(mean, layout.seq_len, 1 if alike else layout.micro_batch_size)
    return replace(job, layout=replace(layout, seq_len=max(1, round(length))))


def _step_s(row: Row, layout: Layout) -> float | None:
    """Measured time of an optimizer step. [s]."""
    step = number(row.get("step_time_s"))
    if step:
        return step
    samples = number(row.get("samples_per_s"))
    if samples:
        return layout.global_batch_size / samples
    rate = number(row.get("tokens_per_s"))
    tokens = number(row.get("mean_tokens")) or layout.seq_len
    return layout.global_batch_size * tokens / rate if rate else None


def _classes(row: Row, software: SoftwareSpec, method: Method) -> dict[str, str]:
    kind = "qlora" if method.quantised and method.adapts else method.kind
    return {
        "method": kind,
        "family": software.name,
        "source": row.get("source", ""),
        "quality": row.get("quality", ""),
        "model": row.get("model", ""),
        "group": row.get("group", ""),
    }
