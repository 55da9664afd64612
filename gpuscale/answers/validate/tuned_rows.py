"""Rows of a table of fine-tuning runs, each as the question that a person would ask of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuscale.answers.finetune.case import FinetuneCase
from gpuscale.answers.finetune.memory import case_of
from gpuscale.answers.memory import Memory
from gpuscale.core.finetune.method import ALL, canonical
from gpuscale.core.finetune.states import IN_BACKWARD
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.hardware import asked_gpu
from gpuscale.evidence.rows.words import meaning, number, whole

Row = Mapping[str, str]

RL_LAYOUT = re.compile(r"train \[TP,CP,EP,PP[^\]]*\] \[([^\]]*)\]; generation \[TP,PP\] \[(\d+)")

VERSION = re.compile(r"(\S+) (20\d\d-\d\d|\d+(?:\.\d+)+)\b")
"""Framework and version, or month, as a row begins to name them."""

MANY = 16
"""Sequences of a batch of which one is nearly as long as the longest allowed."""


@dataclass(frozen=True, slots=True)
class TunedRow:
    """One fine-tuning run as `gpuscale memory --method` takes it, and what was measured."""

    case: FinetuneCase
    gpu_known: bool
    timed: bool  # whether the row tells the lengths that it computes
    memory_bytes: float | None
    memory_kind: str
    out_of_memory: bool
    step_s: float | None  # of an optimizer step


def tuned_row(row: Row) -> TunedRow:
    """Read one run of a file.

    Raises GpuscaleError for what the command refuses, and for what a row leaves out or no option
    says.
    """
    asked = Memory(**asked_of(row))
    case = case_of(asked, asked.software)
    layout = case.job.layout
    measured, kind, oom = _memory_of(row, case)
    varied = "variable" in row.get("packing", "").lower() and asked.mean_len is None
    return TunedRow(
        case=case,
        gpu_known=asked.gpu is not None,
        timed=not varied or layout.micro_batch_size >= MANY,
        memory_bytes=measured,
        memory_kind=kind,
        out_of_memory=oom,
        step_s=_step_s(row, layout.global_batch_size, layout.seq_len),
    )


def asked_of(row: Row) -> dict[str, Any]:
    """Arguments of `gpuscale memory` that say what a row states, and nothing else.

    Raises GpuscaleError for a method that no option says, and where lengths are not printed.
    """
    text = {name: value.lower() for name, value in row.items()}.get
    kind = re.sub(r"^rl trainer | \(pissa\)$", "", text("method", ""))
    if kind not in ("lora", "qlora", "dora", "full"):
        raise GpuscaleError(f"method `{kind[:40]}` is not modelled")
    if re.search(r"pipeline \(|device_map|pipeline 2", text("parallel", "")):
        raise GpuscaleError("layers spread over cards that work in turn are not modelled")
    seq_len, mean = whole(row.get("seq_len")), number(row.get("mean_tokens"))
    if seq_len is None:
        raise GpuscaleError("sequence length not printed")
    optimizer = meaning("optimizer", text("optimizer", ""))
    if optimizer and "in backward" in text("optimizer", ""):
        optimizer += IN_BACKWARD
    zero = meaning("zero", text("parallel", ""))
    ulysses = re.search(r"sequence parallel (\d+)", text("parallel", ""))
    degrees = {k: int(v) for k, v in re.findall(r"\b(tp|pp|cp|ep)(\d+)", text("parallel", ""))}
    if ulysses and int(ulysses[1]) > 1:
        degrees["cp"] = int(ulysses[1])
    adapters: dict[str, Any] = {}
    if "pure bf16" in text("compute_precision", ""):
        adapters = {"base": "bf16"}
    if kind != "full":
        targets, embeddings = targets_of(row.get("targets", ""))
        adapters = {
            "rank": whole(row.get("rank")),
            "targets": targets,
            "train_embeddings": embeddings,
            "base": meaning("base", text("base_precision", "")),
        }
    return {
        **_machine(row),
        **degrees,
        **adapters,
        "cp_kind": "ulysses" if degrees.get("cp", 1) > 1 and ulysses else None,
        "method": kind,
        "zero": zero and int(zero),
        "micro_batch": whole(row.get("micro_batch")),
        "accumulation": whole(row.get("grad_accumulation")),
        "max_len": seq_len,
        "mean_len": mean and min(mean, seq_len),
        "packing": text("packing", "").startswith("yes"),
        "group_by_length": bool(meaning("grouped", row.get("source", ""))),
        "optimizer": optimizer,
        "recompute": meaning("recompute", text("checkpointing", "")),
        "loss": meaning("loss", text("fused_ce", "")),
        "attention": meaning("attention", text("attention_impl", "")),
        "compiled": bool(
            re.search(r"torch\.compile|\+ compile", f"{text('software', '')} {text('note', '')}")
        ),
        "offload": _offload(row),
        "precision": meaning("precision", text("compute_precision", "")) or "bf16",
    }


def _machine(row: Row) -> dict[str, Any]:
    """Model, GPUs and software; a power limit that stands in the GPU's name is a change of it."""
    software = meaning("tuner", f"{row.get('software', '')} {row.get('parallel', '')}")
    version = VERSION.match(row.get("software", "").lower())
    if software and version and version[1] == software:
        software += f":{version[2]}"
    watts = re.search(r"(\d{2,4}) ?w\b", row.get("gpu", "").lower())
    return {
        "model": row.get("model", ""),
        "gpu": asked_gpu(row),
        "gpus": whole(row.get("n_gpus")) or 1,
        "software": software,
        "set": (f"gpu.tdp_w={watts[1]}",) if watts else (),
    }


def _offload(row: Row) -> str | None:
    """Parts that a row keeps on the host; None where it says nothing."""
    text = row.get("offload", "").lower()
    moved = [p for p in ("parameters", "optimizer", "activations") if p in text]
    if "offloaded" in row.get("checkpointing", "").lower() and "activations" not in moved:
        moved.append("activations")
    return ",".join(moved) or ("none" if text == "none" else None)


def targets_of(text: str) -> tuple[tuple[str, ...], bool]:
    """(targets, whether embedding and head are trained in full too); () where none are printed.

    >>> targets_of("all linear + wte,lm_head trained in full")
    (('all-linear',), True)
    >>> targets_of("q_proj,v_proj"), targets_of("query+key+value+projection+mlp+head")
    ((('q', 'v'), False), (('q', 'k', 'v', 'o', 'mlp'), False))
    """
    lowered = re.sub(r"\(.*?default.*?\)|_default|of that release", "", text.lower())
    embeddings = "lm_head" in lowered
    if "qkv" in lowered:
        return ("qkv", *(("o",) if "proj" in lowered else ())), embeddings
    if lowered.startswith("all"):
        return (ALL,), embeddings
    names = [canonical(t) for t in re.split(r"[,+]", lowered) if t.strip(" ()")]
    known = tuple(dict.fromkeys(n.strip("()") for n in names if n not in ("head", "lm_head")))
    return known, embeddings


def _memory_of(row: Row, case: FinetuneCase) -> tuple[float | None, str, bool]:
    """(bytes, way of counting, out of memory) of a row's peak."""
    text = row.get("memory_kind", "")
    if "capacity" in text.lower():
        return None, "capacity", False
    family = case.family().finetune
    kind = meaning("memory_kind", text) or (family.printed_kind if family else "reserved")
    if "oom" in text.lower():
        return None, kind, True
    value = number(row.get("peak_memory_gb"))
    unit = 2**30 if "GiB" in text or "/1024" in text else 1e9
    return (value * unit if value else None), kind, False


def _step_s(row: Row, batch: int, seq_len: int) -> float | None:
    """Measured time of an optimizer step. [s]."""
    step, samples = number(row.get("step_time_s")), number(row.get("samples_per_s"))
    rate, tokens = number(row.get("tokens_per_s")), number(row.get("mean_tokens")) or seq_len
    if step or samples:
        return step or batch / (samples or 1.0)
    return batch * tokens / rate if rate else None


def rl_asked(row: Row) -> tuple[dict[str, Any], float]:
    """Arguments of `gpuscale memory` that say what a row of RL states, and the measured step [s].

    Raises GpuscaleError where layout, lengths or batch are not printed.
    """

    def figure(name: str) -> float | None:
        found = re.search(rf"\b{name}=([\d.,]+)", row.get("phases", ""))
        return number(found[1]) if found else None

    asked: dict[str, Any] = {**_machine(row), "method": row.get("method", "").lower().split()[0]}
    step, n = number(row.get("step_time_s")), asked["gpus"]
    found = RL_LAYOUT.search(row.get("parallel", ""))
    batch, samples = figure("generation_batch"), figure("rollout_samples")
    pairs, query, answer = (figure(name) for name in ("pairs_per_step", "query", "answer"))
    rate = number(row.get("tokens_per_s"))
    if found and batch and step:
        degrees = map(int, re.findall(r"\d+", found[1])[:4])
        asked |= dict(zip(("tp", "cp", "ep", "pp"), degrees, strict=True))
        asked |= {"rollout_tp": int(found[2]), "group": 32}
        asked |= {"prompts": int(batch) // 32 or 1, "max_len": whole(row.get("seq_len"))}
        asked |= {"mean_len": number(row.get("mean_tokens")), "packing": True}
        if "on policy" not in row.get("phases", "").lower():
            lag = re.search(r"(\d+)-step off", row["phases"].lower())
            asked |= {"engine": "async", "lag": int(lag[1]) if lag else 1}
        asked |= {"precision": meaning("precision", row.get("compute_precision", "").lower())}
    elif samples and step:
        nodes = int(figure("critic_nodes") or 0)
        asked |= {"prompts": int(samples), "response": figure("mean_response"), "engine": "hf"}
        asked |= {"critic_gpus": nodes * n // int(nodes + (figure("actor_nodes") or 1))}
    elif pairs and query and answer and rate:
        asked |= {"prompts": int(pairs), "prompt": query, "response": answer, "zero": 3}
        asked |= {"max_response": answer, "critic": "opt-350m", "engine": "hf"}
        asked |= {"precision": meaning("precision", row.get("compute_precision", "")) or "bf16"}
        step = pairs * (query + answer) / rate
    else:
        raise GpuscaleError("RL: layout, lengths or batch not printed")
    return asked, float(step)
