"""Measured fine-tuning runs, each asked as a person would ask it, and scored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuscale.answers.training.asked import Memory
from gpuscale.answers.training.tune_case import FinetuneCase
from gpuscale.answers.training.tune_memory import case_of
from gpuscale.core.finetune.method import ALL, canonical
from gpuscale.core.finetune.states import IN_BACKWARD
from gpuscale.core.records import dataclass, replace
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import ErrorSummary, ScoredRow, summarise
from gpuscale.evidence.rows_named import (
    Rows,
    asked_gpu,
    gpu_preset,
    meaning,
    number,
    rows_of,
    whole,
)

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


QUANTITIES = ("peak_memory_bytes", "step_time_s", "rl_step_s")

NEAR_FRAC = 0.1
"""Predictions this near to the card's memory are no verdict."""


def predict_finetune_rows(rows: Rows) -> list[ScoredRow]:
    """One scored row per printed quantity of a finetune.csv, in file order.

    `rows`: columns model, method, rank, targets, base_precision, optimizer, gpu, n_gpus, parallel,
    seq_len, micro_batch, grad_accumulation, packing, checkpointing, fused_ce, offload,
    peak_memory_gb, memory_kind, step_time_s or tokens_per_s, mean_tokens, software, ... Returns:
    ``peak_memory_bytes`` in the row's own way of counting, ``step_time_s`` of an optimizer step,
    ``fits`` (1 or 0) where the row says that a run did not fit, or ran on a known GPU: what
    `gpuscale memory` answers to what the row states. What cannot be predicted says why.
    """
    scored: list[ScoredRow] = []
    for index, row in enumerate(rows_of(rows), 1):
        gpu = gpu_preset(row.get("gpu", ""))
        base = {
            "id": row.get("id") or f"row-{index}",
            "gpu": row.get("gpu", ""),
            "classes": {
                **{key: row.get(key, "") for key in ("method", "source", "quality", "group")},
                "gpu": gpu or "not stated",
            },
        }
        rolls = row.get("method", "").lower().startswith(("grpo", "dapo", "ppo", "rloo"))
        try:
            scored += [_rl_line(row, base)] if rolls else _lines(row, base)
        except (ValueError, GpuscaleError) as error:
            scored += _left_out(row, base, str(error).splitlines()[0][:100])
    return scored


def _rl_line(row: Mapping[str, str], base: dict[str, Any]) -> ScoredRow:
    """One line of an RL step."""
    asked, measured = rl_asked(row)
    r: Any = Memory(**asked).answer().result
    base["classes"] |= {"family": "rl"}
    line = ScoredRow(quantity="rl_step_s", measured=measured, predicted=r.step_s, **base)
    return replace(line, low=r.step_low_s, high=r.step_high_s)


def _left_out(row: Mapping[str, str], base: dict[str, Any], reason: str) -> list[ScoredRow]:
    """Lines of a row that cannot be predicted: one per quantity that it prints."""
    memory, step = number(row.get("peak_memory_gb")), number(row.get("step_time_s"))
    printed = [("peak_memory_bytes", memory * 1e9)] if memory else []
    lines = [ScoredRow(quantity=q, measured=v, reason=reason, **base) for q, v in printed]
    if step or number(row.get("tokens_per_s")) or not printed:
        lines.append(ScoredRow(quantity="step_time_s", measured=step, reason=reason, **base))
    return lines


def _lines(printed: Mapping[str, str], base: dict[str, Any]) -> list[ScoredRow]:
    row = tuned_row(printed)
    case, method = row.case, row.case.job.method
    trial, table = case.bench.trial(case.job), case.bench.site(case.job)[2]
    lines: list[ScoredRow] = []
    qlora = method.quantised and method.adapts
    base["classes"] |= {"family": case.family().name, "model": case.loaded.model.name}
    base["classes"] |= {"method": "qlora" if qlora else method.kind}

    def add(
        quantity: str,
        measured: float | None,
        predicted: float | None,
        width: float | None = None,
        reason: str = "",
        **more: str,
    ) -> None:
        ends = (predicted / width, predicted * width) if predicted and width else (None, None)
        line = {**base, "classes": base["classes"] | more}
        found = ScoredRow(
            quantity=quantity, measured=measured, predicted=predicted, reason=reason, **line
        )
        lines.append(replace(found, low=ends[0], high=ends[1]))

    if row.memory_bytes:
        kind, width = row.memory_kind, table.interval_factor_80
        peak = trial.memory.kind_bytes(kind)
        add("peak_memory_bytes", row.memory_bytes, peak, width, memory_kind=kind)
    if row.step_s and not (row.timed and row.gpu_known):
        why = "GPU not stated" if row.timed else "mean length of the sequences not printed"
        add("step_time_s", row.step_s, None, reason=why)
    elif row.step_s:
        add("step_time_s", row.step_s, trial.step.step_s, table.step_interval_factor_80)
    if row.gpu_known and (row.out_of_memory or row.memory_bytes):
        share = trial.memory.total_bytes / case.bench.usable_bytes
        near = "" if abs(share - 1.0) > NEAR_FRAC else "within 10 % of the card's memory"
        add("fits", float(not row.out_of_memory), float(share <= 1.0), reason=near)
    if not lines:
        add("step_time_s", None, None, reason="prints neither memory nor time")
    return lines


def verdicts(rows: list[ScoredRow]) -> ErrorSummary:
    """Share of right verdicts outside +-10 % of the card's memory, as a summary's `mape_frac`.

    The error of a row is 0 or 1; `mape_frac` is the share of wrong verdicts.
    """
    clear = [r for r in rows if r.quantity == "fits" and not r.reason and r.predicted is not None]
    wrong = [r for r in clear if r.predicted != r.measured]
    frac = len(wrong) / len(clear) if clear else None
    return ErrorSummary("fits: share of wrong verdicts", len(clear), len(clear), mape_frac=frac)


def scored_quantities(rows: list[ScoredRow], quality: str = "good") -> dict[str, ErrorSummary]:
    """Summaries of memory and time over the rows of one quality."""
    return {
        quantity: summarise(
            [r for r in rows if r.quantity == quantity and r.classes.get("quality") == quality],
            f"{quantity}, {quality}",
        )
        for quantity in QUANTITIES
    }
