"""Measured fine-tuning runs: peak memory, step time and whether they fit, asked and scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuscale.answers.memory import Memory
from gpuscale.answers.validate.tuned_rows import rl_asked, tuned_row
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.hardware import gpu_preset
from gpuscale.evidence.rows.words import Rows, number, rows_of
from gpuscale.evidence.score.records import ErrorSummary, ScoredRow, summarise

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
