"""Measured training runs and grids of layouts: step time, memory and ranking, predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import correlation, fmean
from typing import Any

from gpuscale.core.memory.peak import printed_bytes
from gpuscale.core.model.layer_shape import model_flop_per_token
from gpuscale.core.plan.records import Estimate, estimate
from gpuscale.core.records import dataclass, replace
from gpuscale.core.rules import facts_of
from gpuscale.core.search.problem import Problem
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import ScoredRow
from gpuscale.evidence.rows_named import Rows, rows_of
from gpuscale.evidence.rows_runs import TrainingRun, training_run
from gpuscale.io.jobs import make_problem, step_interval
from gpuscale.io.software import capabilities_of, load_software


def own_copy(name: str) -> Path:
    """File of the package's own copy of the development measurements."""
    return Path(__file__).resolve().parents[1] / "data" / "validation" / f"{name}.csv.gz"


def read_runs(rows: Rows) -> list[TrainingRun]:
    """Read the runs of a CSV file, or of rows already read."""
    return [training_run(row, i) for i, row in enumerate(rows_of(rows), 1)]


def problem_of(run: TrainingRun, calibration: str | Path | None = None) -> Problem:
    """Put the job of a run together as `plan` does, with what the run says of it."""
    assert run.model is not None and run.hardware is not None and run.layout is not None
    lay, spec = run.layout, load_software(run.software)
    facts = facts_of(
        run.model, lay.seq_len, lay.global_batch_size, run.n_gpus, capabilities_of(spec)
    )
    return make_problem(
        run.model,
        run.hardware,
        software=spec.model_copy(update=dict(run.changes)),
        facts=replace(facts, settings=run.settings),
        precision=lay.precision,
        calibration=None if calibration is None else str(calibration),
        settings=run.settings,
    )


def feasible(run: TrainingRun, problem: Problem) -> tuple[TrainingRun, Estimate]:
    """Run and its estimate, with the least recomputation that fits where it is not printed."""
    assert run.layout is not None
    found = estimate(problem, run.layout)
    for recompute in ("selective", "full") if run.open_recompute and not found.fits else ():
        if problem.facts.runs_on.recompute and recompute not in problem.facts.runs_on.recompute:
            continue
        run = replace(run, layout=replace(run.layout, recompute=recompute))
        assert run.layout is not None
        found = estimate(problem, run.layout)
        if found.fits:
            break
    return run, found


def predict_run_rows(rows: Rows, calibration: str | Path | None = None) -> list[ScoredRow]:
    """Predict step time and memory of every row of a training_runs.csv, in order.

    `rows`: the columns of `training_runs.csv`. `calibration`: overlay that `gpuscale calibrate`
    wrote. Returns: quantity ``step_time_s``; classes
    source, family, dense_or_moe, precision, gpu and more.
    """
    return [scored_run(run, calibration) for run in read_runs(rows)]


STALL_COMPUTE_RATE = 0.25


def is_stalled(run: TrainingRun) -> bool:
    """Whether a row of the nanotron grid carries an unexplained stall of each micro-batch.

    Needs no model of time: (time - compute at 25 % MFU with bubble) / m above 0.3 s at tp <= 8,
    above 0.6 s from 32 nodes, or above 1.5 s; and all groups of 64 nodes.
    """
    if not (run.model and run.layout and run.hardware and run.step_time_s):
        return False
    lay, nodes = run.layout, run.n_gpus / run.hardware.gpus_per_node
    if nodes >= 64:
        return True
    tokens = lay.global_batch_size * lay.seq_len
    flop = model_flop_per_token(run.model, lay.seq_len) * tokens
    m = lay.n_micro_batches
    rate = STALL_COMPUTE_RATE * (run.hardware.gpu.bf16_flop_per_s or 1e13) * run.n_gpus
    stall = (run.step_time_s - flop / rate * (1.0 + (lay.pp - 1) / m)) / m
    return stall > 1.5 or (nodes >= 32 and stall > 0.6) or (lay.tp <= 8 and stall > 0.3)


def scored_run(run: TrainingRun, calibration: str | Path | None = None) -> ScoredRow:
    """Predict one run."""
    base: dict[str, Any] = {
        "id": run.id,
        "gpu": run.gpu,
        "quantity": "step_time_s",
        "measured": run.step_time_s,
        "classes": {
            **run.classes,
            "newest": "no" if run.superseded else "yes",
            "clean": "no" if run.software == "nanotron" and is_stalled(run) else "yes",
        },
    }
    extra: dict[str, float | None] = {"measured_memory_bytes": run.memory_bytes}
    try:
        if run.reason:
            raise GpuscaleError(run.reason)
        problem = problem_of(run, calibration)
        run, found = feasible(run, problem)
        assert run.layout is not None
        extra["predicted_memory_bytes"] = printed_bytes(
            problem.memory_facts, run.layout, problem.memory_parameters, run.memory_kind
        )
        low, high = step_interval(found.step, problem, run.software, run.layout)
    except (GpuscaleError, ValueError, ArithmeticError, KeyError, TypeError) as error:
        extra["predicted_memory_bytes"] = None
        return ScoredRow(reason=str(error).splitlines()[0][:120], extra=extra, **base)
    remark = f"recompute {run.layout.recompute}, not printed" if run.open_recompute else ""
    remark = "no measured time" if run.step_time_s is None else remark
    return ScoredRow(predicted=found.step_s, low=low, high=high, reason=remark, extra=extra, **base)


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
