"""Out of memory: what the card held, what was asked for, and what would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from gpuscale.answers.diagnose.case import RunCase
from gpuscale.answers.diagnose.planner import REFUSED, report_of, tuning_job
from gpuscale.answers.diagnose.records import NamedCause, OutOfMemory, PeakPart
from gpuscale.core.words import gb
from gpuscale.io.run import load_table


class Fitting(NamedTuple):
    """What a peak is made of, and the change with which the job fits; empty where not known."""

    held: str = ""
    change: str = ""
    shares: Mapping[str, float] = MappingProxyType({})  # part -> share of the peak


def fitting(case: RunCase) -> Fitting:
    """Ask the planner of a job that ran out of memory."""
    if not _ran_out(case):
        return Fitting()
    with suppress(*REFUSED):
        r, _ = report_of(case) or (None, "")
        if r is not None and r.fits is False and r.best_peak_bytes and r.peak_bytes:
            lines = [line for line in r.diff if line[:3] not in ("---", "+++")]
            old, new = (" ".join(d[1:] for d in lines if d[:1] == s).split(" --") for s in "-+")
            words = " ".join(f"--{w.strip()}" for w in new[1:] if w not in old)
            fits = f"{words}: {gb(r.best_peak_bytes)} of {gb(r.capacity_bytes or 0.0)}"
            return Fitting(f"{gb(r.peak_bytes)} as told", fits if words else "")
        if case.kind in ("finetune", "rl") and (job := tuning_job(case)) is not None:
            answer: Any = job.answer()
            points, e = {p.key: p for p in answer.summary}, answer.result.expected
            held, fit = points.get("held by"), points.get("would fit")
            shares = {"logits_share": e.logits_bytes, "kept_share": e.kept_bytes}
            shares = {k: v / answer.result.peak_bytes for k, v in shares.items()}
            change = f"{fit.value} {fit.note}" if fit else ""
            return Fitting(held.note if held else "", change, shares)
    return Fitting()


def _ran_out(case: RunCase) -> bool:
    """Whether memory is what the run complains of, and a message says that it ran out."""
    return "memory" in case.symptoms and any(f.name == "oom" for f in case.figures)


def out_of_memory(case: RunCase, named: Sequence[NamedCause], fit: Fitting) -> OutOfMemory | None:
    """Put together what message and planner say; None where no memory ran out.

    `named`: the causes, of which a likely one's remedy is the first thing to do.
    """
    n = case.log_number
    if not _ran_out(case):
        return None
    first = [c.remedy for c in named[:1] if c.probability > LIKELY and c.group == "memory"]
    first = [*([fit.change] if fit.change else []), *first]
    total, allocated = n("gpu_memory"), n("oom_allocated")
    spare, free, asked = n("oom_reserved_unallocated"), n("oom_free"), n("oom_request")
    if spare is None and (reserved := n("oom_reserved")) is not None and allocated is not None:
        spare = max(0.0, reserved - allocated)
    rest = 0.0
    if total is not None and allocated is not None and free is not None:
        rest = total - allocated - (spare or 0.0) - free
    needed, room = n("kv_needed"), n("kv_memory")
    said = {
        "allocated by PyTorch": allocated,
        "reserved, not allocated": spare,
        "outside PyTorch (context, NCCL, other processes)": rest if rest > 0 else None,
        "free": free,
        "cache of one longest request": needed,
        "room for the cache": room if case.log_text("start_refused") else None,
    }
    parts = tuple(PeakPart(part, value) for part, value in said.items() if value is not None)
    short = max(0.0, asked - free) if asked is not None and free is not None else None
    if short is None and needed is not None and room is not None:
        short = max(0.0, needed - room)
    short = n("oom_short") or short
    changes = (*first, *_changes(case, asked, spare, total))
    return OutOfMemory(parts, asked, short, spare, changes, fit.held)


LIKELY = 0.35
"""Probability of a cause from which its remedy comes first."""


def _changes(
    case: RunCase, asked: float | None, spare: float | None, total: float | None
) -> tuple[str, ...]:
    """Smallest changes first."""
    cut = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: as much is reserved"
    found = [cut] if asked and spare and spare > asked else []
    if why := case.log_text("start_refused"):
        most = case.log_number("most_model_len")
        length = f"--max-model-len {most:.0f}" if most else "--max-model-len"
        cache = f"{length}; --kv-cache-dtype fp8; more GPUs (--tensor-parallel-size)"
        return (*found, load_table("_known")["refused"].get(why, cache))
    if case.kind == "serving":
        return (*found, "--gpu-memory-utilization 0.85; --max-num-seqs 64; --enforce-eager")
    micro, recompute = case.number("micro_batch"), case.settings.get("recompute", "").lower()
    half = f"{max(1, int(micro // 2))}" if micro else "half"
    wide = bool(asked and total and asked > 0.03 * total)
    changes = {
        "gradient checkpointing on (recompute full)": recompute not in ("full", "true"),
        f"micro-batch {half}, twice the accumulation": micro is None or micro > 1,
        "fused or chunked cross entropy, if the block is tokens x vocabulary": wide,
        "a higher ZeRO stage (FSDP)": (case.gpus or 1) > 1 and case.number("zero") != 3,
        "8-bit optimizer or adapters": True,
    }
    return (*found, *(change for change, helps in changes.items() if helps))
