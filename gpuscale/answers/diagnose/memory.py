"""Out of memory: what the card held, what was asked for, and what would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.diagnose.records import OutOfMemory, PeakPart

if TYPE_CHECKING:
    from gpuscale.answers.diagnose.case import RunCase


def out_of_memory(case: RunCase) -> OutOfMemory | None:
    """Put together what the message says; None where no memory ran out in a log."""
    n = case.log_number
    if case.log_text("oom") is None and case.log_text("start_refused") is None:
        return None
    total, allocated = n("gpu_memory"), n("oom_allocated")
    spare, free, asked = n("oom_reserved_unallocated"), n("oom_free"), n("oom_request")
    if spare is None and (reserved := n("oom_reserved")) is not None and allocated is not None:
        spare = max(0.0, reserved - allocated)
    rest = 0.0
    if total is not None and allocated is not None and free is not None:
        rest = total - allocated - (spare or 0.0) - free
    needed, room = n("kv_needed"), n("kv_memory")
    held = {
        "allocated by PyTorch": allocated,
        "reserved, not allocated": spare,
        "outside PyTorch (context, NCCL, other processes)": rest if rest > 0 else None,
        "free": free,
        "cache of one longest request": needed,
        "room for the cache": room if case.log_text("start_refused") else None,
    }
    parts = tuple(PeakPart(part, value) for part, value in held.items() if value is not None)
    short = max(0.0, asked - free) if asked is not None and free is not None else None
    if short is None and needed is not None and room is not None:
        short = max(0.0, needed - room)
    return OutOfMemory(parts, asked, short, spare, _changes(case, asked, spare, total))


REFUSED = {
    "graphs": "--max-num-seqs 64: the sampler is warmed up with as many requests",
    "not-free": "free the GPU of other processes; a lower --gpu-memory-utilization",
}
"""What an engine refused for, if not for its cache -> the smallest change."""


def _changes(
    case: RunCase, asked: float | None, spare: float | None, total: float | None
) -> tuple[str, ...]:
    """Smallest changes first."""
    found = []
    if asked and spare and spare > asked:
        found.append("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: as much is reserved")
    if why := case.log_text("start_refused"):
        most = case.log_number("most_model_len")
        length = f"--max-model-len {most:.0f}" if most else "--max-model-len"
        cache = f"{length}; --kv-cache-dtype fp8; more GPUs (--tensor-parallel-size)"
        return (*found, REFUSED.get(why, cache))
    if case.kind == "serving":
        found.append("--gpu-memory-utilization 0.85; --max-num-seqs 64; --enforce-eager")
        return tuple(found)
    recompute = case.settings.get("recompute", "").lower()
    if recompute not in ("full", "true"):
        found.append("gradient checkpointing on (recompute full)")
    micro = case.number("micro_batch")
    if micro is None or micro > 1:
        half = f"{max(1, int(micro // 2))}" if micro else "half"
        found.append(f"micro-batch {half}, twice the accumulation")
    if asked and total and asked > 0.03 * total:
        found.append("fused or chunked cross entropy, if the block is tokens x vocabulary")
    if (case.gpus or 1) > 1 and case.number("zero") not in (3.0,):
        found.append("a higher ZeRO stage (FSDP)")
    found.append("8-bit optimizer or adapters")
    return tuple(found)
