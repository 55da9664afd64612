"""Measured training runs: predicting step time and memory of each row, in order."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.core.model.flops import model_flop_per_token
from gpuscale.core.step.interval import interval, interval_classes
from gpuscale.core.step.records import Hardware, Software
from gpuscale.core.step.step import breakdown
from gpuscale.evidence.rows.measurements import TrainingRun, training_run
from gpuscale.evidence.rows.settings import with_recipes
from gpuscale.evidence.rows.words import Rows, rows_of
from gpuscale.evidence.score.records import ScoredRow
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step_calibration import Calibration
from gpuscale.io.step_hardware import step_hardware
from gpuscale.io.step_intervals import interval_widths

MEMORY_COLUMNS = ("measured_memory_bytes", "predicted_memory_bytes")


def own_copy(name: str) -> Path:
    """File of the package's own copy of the development measurements."""
    return Path(__file__).resolve().parents[2] / "data" / "validation" / f"{name}.csv.gz"


def read_runs(rows: Rows) -> list[TrainingRun]:
    """Read the runs of a CSV file, or of rows already read."""
    return [training_run(row, i) for i, row in enumerate(with_recipes(rows_of(rows)), 1)]


def records_of(
    run: TrainingRun, calibration: Calibration | None = None
) -> tuple[Hardware, Software]:
    """Hardware and software records of a run."""
    assert run.hardware is not None and run.layout is not None
    h, precision = run.hardware, run.layout.precision
    at = (h.gpus_per_node, h.node_egress_bytes_per_s, h.fabric_class)
    key = (run.gpu, *at, run.software, str(sorted(run.options.items())), precision)
    if calibration is None and key in _SHIPPED:
        return _SHIPPED[key]
    hw = step_hardware(h, calibration)
    sw = software_record(
        load_software(run.software),
        hw.architecture,
        run.options,
        precision=precision,
        calibration=calibration,
        gpu=h.gpu.name,
    )
    if calibration is None:
        _SHIPPED[key] = hw, sw
    return hw, sw


_SHIPPED: dict[tuple[object, ...], tuple[Hardware, Software]] = {}
"""Records by what they depend on, of the parameters that are shipped."""


def step_seconds(run: TrainingRun, calibration: Calibration | None = None) -> float:
    """Compute the expected step time of a run that has a model and a layout. [s]."""
    assert run.model is not None and run.layout is not None
    hw, sw = records_of(run, calibration)
    return breakdown(run.model, hw, sw, run.layout)[0].total_s


def predicted_memory(run: TrainingRun) -> float | None:
    """Peak memory as the row's source prints it. [byte]; None if it cannot be said."""
    from gpuscale.core.memory.peak import measured_like

    if run.model is None or run.layout is None:
        return None
    try:
        return measured_like(
            run.model, run.layout, load_software(run.software), run.memory_kind, run.options
        )
    except (ValueError, ArithmeticError, KeyError):
        return None


def feasible(run: TrainingRun) -> TrainingRun:
    """Return the run with the least recomputation that fits, where the row leaves it blank."""
    assumed = [a for a in run.assumed if a.startswith("recompute")]
    if not assumed or not run.hardware or not run.layout or run.layout.recompute == "full":
        return run
    for recompute in dict.fromkeys((run.layout.recompute, "selective", "full")):
        tried = replace(run, layout=replace(run.layout, recompute=recompute))
        memory = predicted_memory(tried)
        if memory is None or memory <= run.hardware.gpu.hbm_bytes:
            return tried
    return run


def predict_run_rows(rows: Rows, calibration: Calibration | None = None) -> list[ScoredRow]:
    """Predict step time and memory of every row of a training_runs.csv, in order.

    `rows`: the columns of `training_runs.csv`; missing ones are filled, as `assumed` says.
    `calibration`: other parameters than those shipped. Returns: quantity ``step_time_s``; classes
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
    hw, _ = records_of(run)
    tokens = lay.global_batch_size * lay.seq_len
    flop = model_flop_per_token(run.model, lay.seq_len) * tokens
    m = lay.n_micro_batches
    rate = STALL_COMPUTE_RATE * hw.bf16_flop_per_s * run.n_gpus
    stall = (run.step_time_s - flop / rate * (1.0 + (lay.pp - 1) / m)) / m
    return stall > 1.5 or (nodes >= 32 and stall > 0.6) or (lay.tp <= 8 and stall > 0.3)


def scored_run(run: TrainingRun, calibration: Calibration | None = None) -> ScoredRow:
    """Predict one run."""
    extra: dict[str, float | None] = dict.fromkeys(MEMORY_COLUMNS)
    extra["measured_memory_bytes"] = run.memory_bytes
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
        "extra": extra,
    }
    if run.model is None or run.layout is None:
        return ScoredRow(reason=run.reason or "not understood", **base)
    try:
        run = feasible(run)
        seconds = step_seconds(run, calibration)
        extra["predicted_memory_bytes"] = predicted_memory(run)
        low, high = stated_interval(run, seconds)
    except (ValueError, ArithmeticError, KeyError, TypeError) as error:
        return ScoredRow(reason=f"the model gives no time: {str(error)[:100]}", **base)
    return ScoredRow(predicted=seconds, low=low, high=high, reason=_remark(run), **base)


def stated_interval(run: TrainingRun, seconds: float) -> tuple[float, float]:
    """80 % interval of an expected time. [s]."""
    assert run.model is not None and run.layout is not None
    hw, _ = records_of(run)
    classes = interval_classes(run.model, hw, run.software, run.layout, len(run.assumed))
    return interval(seconds, classes, interval_widths())


def _remark(run: TrainingRun) -> str:
    if run.step_time_s is None:
        return "no measured time"
    return "assumed: " + ", ".join(run.assumed) if run.assumed else ""


@lru_cache(maxsize=2)
def own_runs(name: str = "training_runs") -> tuple[TrainingRun, ...]:
    """Return the runs of the package's own copy."""
    return tuple(read_runs(own_copy(name)))
