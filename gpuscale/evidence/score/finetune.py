"""Measured fine-tuning runs: peak memory, step time and whether they fit, predicted and scored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.core.finetune.memory import finetune_memory
from gpuscale.core.finetune.step import finetune_step
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.fit import usable_bytes
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.finetune import FinetuneRow, finetune_row
from gpuscale.evidence.rows.measurements import number
from gpuscale.evidence.score.records import ScoredRow, Summary, summarise
from gpuscale.io.finetune import finetune_site
from gpuscale.io.tables import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.core.memory.facts import ModelFacts
    from gpuscale.evidence.score.runs import Rows

QUANTITIES = ("peak_memory_bytes", "step_time_s", "rl_step_s", "fits")

NEAR_FRAC = 0.1
"""Predictions this near to the card's memory are no verdict."""


def predict_finetune_rows(rows: Rows) -> list[ScoredRow]:
    """One scored row per printed quantity of a finetune.csv, in file order.

    `rows`: columns model, method, rank, targets, base_precision, optimizer, gpu, n_gpus, parallel,
    seq_len, micro_batch, grad_accumulation, packing, checkpointing, fused_ce, offload,
    peak_memory_gb, memory_kind, step_time_s or tokens_per_s, mean_tokens, software, ... Returns:
    ``peak_memory_bytes`` in the row's own way of counting, ``step_time_s`` of an optimizer step,
    ``fits`` (1 or 0) where the row says that a run did not fit, or ran on a known GPU. What cannot
    be predicted says why.
    """
    found = read_rows(rows) if isinstance(rows, str | Path) else list(rows)
    facts: dict[str, ModelFacts] = {}
    scored: list[ScoredRow] = []
    for index, row in enumerate(found, 1):
        try:
            parsed = finetune_row(row, index)
        except (ValueError, GpuscaleError) as error:
            parsed = str(error).splitlines()[0][:100]
        if isinstance(parsed, str) and parsed.startswith("RL"):
            scored += _rl_lines(row, index)
            continue
        if isinstance(parsed, str):
            scored += _left_out(row, index, parsed)
            continue
        if parsed.model.name not in facts:
            facts[parsed.model.name] = model_facts(parsed.model)
        scored += _lines(parsed, row, facts[parsed.model.name])
    return scored


def _rl_lines(row: Mapping[str, str], index: int) -> list[ScoredRow]:
    """One line of an RL step, or why it cannot be predicted."""
    from gpuscale.core.rl.estimate import rl_estimate
    from gpuscale.evidence.rows.rl import rl_row
    from gpuscale.io.rl import rl_costs, rl_engine

    parsed = rl_row(row)
    if isinstance(parsed, str):
        return _left_out(row, index, parsed)
    engine = rl_engine(parsed.cluster, parsed.rollout_tp)
    costs = parsed.costs or rl_costs()
    found = rl_estimate(
        parsed.bench, parsed.job, parsed.rl, engine, critic=parsed.critic, costs=costs
    )
    return [
        ScoredRow(
            id=row.get("id") or f"row-{index}",
            gpu=row.get("gpu", ""),
            quantity="rl_step_s",
            measured=parsed.step_s,
            predicted=found.step.step_s,
            low=found.step.step_s / costs.interval_factor_80,
            high=found.step.step_s * costs.interval_factor_80,
            classes={
                "method": row.get("method", ""),
                "family": "rl",
                "source": row.get("source", ""),
                "quality": row.get("quality", ""),
                "gpu": parsed.cluster.gpu.name,
            },
        )
    ]


def _left_out(row: Mapping[str, str], index: int, reason: str) -> list[ScoredRow]:
    """Lines of a row that cannot be predicted: one per quantity that it prints."""
    printed = []
    memory = number(row.get("peak_memory_gb"))
    if memory:
        printed.append(("peak_memory_bytes", memory * 1e9))
    step = number(row.get("step_time_s"))
    if step or number(row.get("tokens_per_s")) or not printed:
        printed.append(("step_time_s", step or math.nan))
    classes = {"method": row.get("method", ""), "quality": row.get("quality", "")}
    return [
        ScoredRow(
            id=row.get("id") or f"row-{index}",
            gpu=row.get("gpu", ""),
            quantity=quantity,
            measured=None if math.isnan(value) else value,
            reason=reason,
            classes=classes | {"source": row.get("source", "")},
        )
        for quantity, value in printed
    ]


def _lines(row: FinetuneRow, printed: Mapping[str, str], facts: ModelFacts) -> list[ScoredRow]:
    site = finetune_site(row.cluster, row.software, row.job)
    classes = dict(row.classes) | {"gpu": row.cluster.gpu.name if row.gpu_known else "not stated"}
    gpu = printed.get("gpu", "")
    lines: list[ScoredRow] = []

    def add(
        quantity: str,
        measured: float | None,
        predicted: float | None,
        reason: str = "",
        width: float | None = None,
        **more: str,
    ) -> None:
        known = predicted is not None and math.isfinite(predicted)
        value = predicted if known else None
        lines.append(
            ScoredRow(
                id=row.id,
                gpu=gpu,
                quantity=quantity,
                measured=measured,
                predicted=value,
                reason=reason if known or reason else "cannot be computed",
                low=value / width if value is not None and width else None,
                high=value * width if value is not None and width else None,
                classes=classes | more,
            )
        )

    memory = finetune_memory(row.model, facts, row.job, site.parameters)
    spec = row.software.finetune
    if row.memory_bytes:
        add(
            "peak_memory_bytes",
            row.memory_bytes,
            memory.kind_bytes(row.memory_kind),
            width=spec.interval_factor_80 if spec else None,
            memory_kind=row.memory_kind,
        )
    if row.step_s:
        if row.timed is None:
            add("step_time_s", row.step_s, None, "mean length of the sequences not printed")
        elif not row.gpu_known:
            add("step_time_s", row.step_s, None, "GPU not stated")
        else:
            step = finetune_step(row.model, row.timed, *site)
            width = spec.step_interval_factor_80 if spec else None
            add("step_time_s", row.step_s, step.step_s, width=width)
    if row.gpu_known and (row.out_of_memory or row.memory_bytes):
        gpu_spec = row.cluster.gpu
        usable = usable_bytes(gpu_spec.hbm_bytes, gpu_spec.usable_hbm_bytes)
        share = memory.total_bytes / usable
        near = "" if abs(share - 1.0) > NEAR_FRAC else "within 10 % of the card's memory"
        add("fits", float(not row.out_of_memory), float(share <= 1.0), near)
    if not lines:
        add("step_time_s", None, None, "prints neither memory nor time")
    return lines


def verdicts(rows: list[ScoredRow]) -> Summary:
    """Share of right verdicts outside +-10 % of the card's memory, as a summary's `mape_frac`.

    The error of a row is 0 or 1; `mape_frac` is the share of wrong verdicts.
    """
    clear = [r for r in rows if r.quantity == "fits" and not r.reason and r.predicted is not None]
    wrong = [r for r in clear if r.predicted != r.measured]
    frac = len(wrong) / len(clear) if clear else None
    return Summary("fits: share of wrong verdicts", len(clear), len(clear), mape_frac=frac)


def scored_quantities(rows: list[ScoredRow], quality: str = "good") -> dict[str, Summary]:
    """Summaries of memory and time over the rows of one quality."""
    return {
        quantity: summarise(
            [r for r in rows if r.quantity == quantity and r.classes.get("quality") == quality],
            f"{quantity}, {quality}",
        )
        for quantity in QUANTITIES[:3]
    }
