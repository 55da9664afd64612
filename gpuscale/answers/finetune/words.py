"""What the fine-tuning answers say in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.answers.finetune.case import Case
    from gpuscale.core.finetune.job import Job
    from gpuscale.core.finetune.memory import FinetuneMemory

PARTS = (
    ("base weights", "base_bytes"),
    ("adapters, gradients", "adapter_bytes"),
    ("gradients", "gradients_bytes"),
    ("optimizer", "optimizer_bytes"),
    ("kept activations", "kept_bytes"),
    ("layer at work", "working_bytes"),
    ("logits and loss", "logits_bytes"),
    ("gathered, unpacked", "gathered_bytes"),
    ("workspaces", "workspace_bytes"),
    ("fragmentation", "fragmentation_bytes"),
    ("context", "context_bytes"),
)
"""Parts of the memory in words, and their fields."""


def method_words(job: Job) -> str:
    """Say what is trained in a few words.

    >>> from gpuscale.core.finetune.method import Method
    >>> from types import SimpleNamespace
    >>> method_words(SimpleNamespace(method=Method(rank=8, base="nf4", targets=("q", "v"))))
    'QLoRA rank 8 on q, v over nf4'
    """
    m = job.method
    if m.kind == "full":
        less = f", lowest {m.frozen_layers} layers frozen" if m.frozen_layers else ""
        less = less or (", embeddings frozen" if m.embeddings_frozen else "")
        return f"full training{less}"
    name = {"lora": "QLoRA" if m.quantised else "LoRA", "dora": "DoRA"}[m.kind]
    more = ", embedding and head in full" if m.train_embeddings else ""
    return f"{name} rank {m.rank} on {', '.join(m.targets)} over {m.base}{more}"


def layout_words(job: Job) -> str:
    """Say how the job is laid out."""
    at = job.layout
    degrees = [f"{n} {v}" for n, v in (("TP", at.tp), ("PP", at.pp), ("CP", at.cp)) if v > 1]
    if at.ep > 1:
        degrees.append(f"EP {at.ep}")
    if at.dp > 1:
        how = {0: "replicas", 1: "ZeRO 1", 2: "ZeRO 2", 3: "sharded (ZeRO 3)"}[at.zero_stage]
        degrees.append(f"DP {at.dp} {how}")
    moved = ", ".join(sorted(job.offload))
    return ", ".join(
        [
            *degrees,
            f"micro-batch {at.micro_batch_size} x {at.seq_len:,} tokens",
            f"recompute {at.recompute}",
            f"{job.loss} loss",
            job.optimizer.name + (" in backward" if job.optimizer.in_backward else ""),
            *([f"offload {moved}"] if moved else []),
        ]
    )


def head_text(case: Case, job: Job) -> str:
    """First lines of an answer: what, where, how."""
    n = job.layout.n_gpus
    gpu = case.loaded.gpu.name
    where = f"{n} {gpu}" if n > 1 else f"one {gpu}"
    return (
        f"{case.loaded.model.name} on {where}, {case.software.name}: {method_words(job)}\n"
        f"{layout_words(job)}"
    )


def part_rows(memory: FinetuneMemory) -> list[tuple[str, float]]:
    """(part, bytes) of what there is."""
    return [(label, v) for label, key in PARTS if (v := getattr(memory, key)) > 0]


def time_text(seconds: float) -> str:
    """Time in a unit that people use.

    >>> time_text(0.25), time_text(5400), time_text(3e5)
    ('0.250 s', '1.50 h', '3.5 days')
    """
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds:.3f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.2f} h"
    return f"{seconds / 86400:.1f} days"
