"""Measured layout grids: predicted throughput of each row, and how good the ranking is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import correlation, fmean

from gpuscale.evidence.rows.measurements import TrainingRun
from gpuscale.evidence.rows.words import Rows
from gpuscale.evidence.score.records import ScoredRow
from gpuscale.evidence.score.runs import is_stalled, read_runs, scored_run


@dataclass(frozen=True, slots=True)
class RankingScore:
    """How good the ranking of one group of layouts is, or of all groups (means)."""

    name: str
    n_rows: int
    first_pick_frac: float  # measured throughput of the layout ranked first over the best
    best_of_three_frac: float
    spearman: float
    worst_first_pick_frac: float


def predict_layout_rows(rows: Rows, calibration: str | Path | None = None) -> list[ScoredRow]:
    """Predict throughput and memory of every row of a layouts.csv, in order.

    A layout that the memory model calls infeasible still gets a throughput, and the reason says
    `does not fit`. Classes: group, clean ("yes" or "no").
    """
    return [_scored(run, calibration) for run in read_runs(rows)]


def _scored(run: TrainingRun, calibration: str | Path | None) -> ScoredRow:
    """Score the throughput of a layout: tokens of a step over its time."""
    found = scored_run(run, calibration)
    rate, reason = None, found.reason
    if found.predicted and run.layout is not None and run.hardware is not None:
        tokens = run.layout.global_batch_size * run.layout.seq_len
        rate = tokens / (found.predicted * run.n_gpus)
        peak = found.extra["predicted_memory_bytes"] or 0.0
        reason = "" if peak <= run.hardware.gpu.hbm_bytes else "does not fit"
    return replace(
        found,
        quantity="tokens_per_s_per_gpu",
        measured=run.tokens_per_s_per_gpu,
        predicted=rate,
        low=None,
        high=None,
        reason=reason,
        classes={**found.classes, "group": run.source, "clean": "no" if is_stalled(run) else "yes"},
    )


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, ties averaged.

    Examples
    --------
    >>> ranks([10.0, 30.0, 20.0, 20.0])
    [1.0, 4.0, 2.5, 2.5]
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in order[at : end + 1]:
            out[i] = (at + end) / 2.0 + 1.0
        at = end + 1
    return out


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation; 1 for fewer than two values or a constant.

    Examples
    --------
    >>> spearman([1.0, 2.0, 3.0], [10.0, 20.0, 15.0])
    0.5
    """
    x, y = ranks(a), ranks(b)
    return correlation(x, y) if min(len({*x}), len({*y})) > 1 else 1.0


def group_choice(name: str, rows: Sequence[ScoredRow]) -> RankingScore:
    """Judge the ranking of one group by its predicted throughput."""
    measured = [row.measured or 0.0 for row in rows]
    predicted = [row.predicted or 0.0 for row in rows]
    order = sorted(range(len(rows)), key=lambda i: -predicted[i])
    best = max(measured)
    first = measured[order[0]] / best
    three = max(measured[i] for i in order[:3]) / best
    return RankingScore(name, len(rows), first, three, spearman(predicted, measured), first)


def layout_choices(rows: Sequence[ScoredRow], clean_only: bool = True) -> list[RankingScore]:
    """One judgement for each group, and the mean of all as the last."""
    groups: dict[str, list[ScoredRow]] = {}
    for row in rows:
        if row.predicted and row.measured and (not clean_only or row.classes.get("clean") == "yes"):
            groups.setdefault(row.classes.get("group", ""), []).append(row)
    found = [group_choice(name, group) for name, group in groups.items() if len(group) > 1]
    if found:
        found.append(
            RankingScore(
                "all",
                sum(c.n_rows for c in found),
                fmean(c.first_pick_frac for c in found),
                fmean(c.best_of_three_frac for c in found),
                fmean(c.spearman for c in found),
                min(c.first_pick_frac for c in found),
            )
        )
    return found
