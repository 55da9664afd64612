"""Measured serving rows: TTFT, TPOT, throughput and power, asked of `serve` and scored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpuscale.answers.serve import Serve
from gpuscale.answers.serve.case import ServeCase
from gpuscale.answers.serve.measured import power_of, widths
from gpuscale.answers.serve.no_room import settled
from gpuscale.answers.validate.served_rows import kind_of, serve_asked
from gpuscale.core.records import dataclass, field
from gpuscale.core.serving.choose import FoundReplica
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import ScoredRow
from gpuscale.evidence.rows_named import Row, Rows, number, rows_of

QUANTITIES = ("ttft_ms", "tpot_ms", "throughput_tok_s")
FURTHER = ("p99_ttft_ms", "p99_tpot_ms", "power_w")
"""Scored where they are printed, beside the quantities of every table."""

MOST_REQUESTS = 2_500
"""Requests of a closed loop above which a row is scored by fewer rounds than the ten of the
command, at least three."""

STATISTICS = {"mean": "mean", "median": "p50", **{p: p for p in ("p50", "p90", "p95", "p99")}}
"""What a TTFT or TPOT may be of; a blank counts as the mean."""


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """What `gpuscale serve` answers to a row."""

    values: Mapping[str, float]  # by quantity, in the units of the columns
    widths: Mapping[str, float]  # half widths of ln(value) of the stated interval
    classes: Mapping[str, str]
    assumed: tuple[str, ...] = field(default_factory=tuple)


def asked_of(row: Row, calibration: str | None = None) -> tuple[Serve, tuple[str, ...]]:
    """Make the question of a row, its closed loop no longer than `MOST_REQUESTS` and three rounds.

    Raises GpuscaleError for a row that no command says.
    """
    options, assumed = serve_asked(row)
    together = options.get("concurrency")
    if together:
        made = options.get("requests") or 10 * together
        options["requests"] = max(2, min(made, max(MOST_REQUESTS, 3 * together)))
    return Serve(**options, calibration=calibration), tuple(assumed)


Answered = tuple[ServeCase, FoundReplica, Mapping[str, float]]
"""Case, best layout, and half widths of ln(value) of the stated interval by quantity."""


def served(row: Row, calibration: str | None, known: dict[str, Answered]) -> ServedAnswer:
    """Ask `gpuscale serve` what a row states, or take what it answered to the same question.

    Raises GpuscaleError for what the command refuses or calls impossible.
    """
    asked, assumed = asked_of(row, calibration)
    if (key := repr(asked)) not in known:
        known[key] = answered(asked)
    case, best, width = known[key]
    return ServedAnswer(
        values_of(row, case, best), width, classes_of(row, case, best, assumed), assumed
    )


def answered(asked: Serve) -> Answered:
    """Answer as `gpuscale serve` does, up to what is printed."""
    case, wanted, choice = settled(asked, shown=1)
    best = choice.best
    if best is None or best.load is None:
        raise GpuscaleError("does not fit")
    ttft, tpot = widths(case, best, wanted)
    return case, best, {"ttft_ms": ttft, "tpot_ms": tpot}


def values_of(row: Row, case: ServeCase, best: FoundReplica) -> dict[str, float]:
    """Quantities in the row's own statistic and by its own definition of the throughput."""
    load = best.load
    assert load is not None
    statistic = STATISTICS.get(row.get("statistic", "").lower(), "mean")
    ttft_s, tpot_s = load.ttft.at(statistic), load.tpot.at(statistic)
    each = load.output_tokens_per_s
    if kind_of(row) == "prefill":
        each = load.input_tokens_per_s
    tokens_per_s = each * best.copies
    if best.at_most_per_s < load.requests_per_s * best.copies:  # within limits
        tokens_per_s *= best.at_most_per_s / (load.requests_per_s * best.copies)
    if "derived" in row.get("throughput_kind", ""):
        o = number(row.get("output_len")) or 1.0
        together = number(row.get("concurrency")) or 1.0
        tokens_per_s = together * o / (ttft_s + (o - 1.0) * tpot_s)
    found = {
        "ttft_ms": ttft_s * 1e3,
        "tpot_ms": tpot_s * 1e3,
        "p99_ttft_ms": load.ttft.p99_s * 1e3,
        "p99_tpot_ms": load.tpot.p99_s * 1e3,
        "throughput_tok_s": tokens_per_s,
    }
    if number(row.get("power_w")) and case.loaded.gpu.tdp_w:
        found["power_w"] = power_of(best, load, case.loaded.gpu.tdp_w)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def classes_of(
    row: Row, case: ServeCase, best: FoundReplica, assumed: tuple[str, ...]
) -> dict[str, str]:
    """Say what a row belongs to."""
    weak = "weak" in row.get("note", "").lower() or "weak" in row.get("quality", "").lower()
    what = best.candidate.what
    made = what.decode if isinstance(what, PooledService) else what
    drafts = "none"
    if made.replica.drafts:
        drafts = "assumed" if any(text.startswith("acceptance") for text in assumed) else "given"
    elif case.model.n_mtp_layers and not (row.get("spec") or "not used" in row.get("note", "")):
        drafts = "not recorded"
    engine = case.engine_of(best.candidate.engine)
    return {
        "model": case.model.name,
        "framework": engine,
        "kind": kind_of(row),
        "source": row.get("source", "").split(":")[0],
        "dense_or_moe": "moe" if case.model.has_experts else "dense",
        "precision": row.get("precision", "") or "bf16 (blank)",
        "architecture": case.loaded.gpu.architecture,
        "quality": "weak" if weak else "good",
        "maturity": case.ages[engine].stage,
        "drafts": drafts,
        "cache": row.get("cache") or "not recorded",
    }


def predict_inference_rows(rows: Rows, calibration: str | None = None) -> list[ScoredRow]:
    """One scored row per printed quantity of an inference.csv, in file order.

    `rows`: columns model, gpu, n_gpus, tp, pp, dp_attention, ep, precision, input_len, output_len,
    concurrency, throughput_tok_s, ttft_ms, tpot_ms, framework, scenario, cache, note, source.
    `calibration`: overlay of matmul and collective constants. Returns: what `gpuscale serve`
    answers to what a row states; what it refuses says why.
    """
    scored: list[ScoredRow] = []
    known: dict[str, Answered] = {}  # rows of one question differ in what was measured
    for index, row in enumerate(rows_of(rows), 1):
        try:
            found, reason = served(row, calibration, known), ""
        except (GpuscaleError, ValueError, ArithmeticError) as error:
            found = ServedAnswer({}, {}, {"model": row.get("model", "")})
            reason = str(error).splitlines()[0][:100] or "cannot be computed"
        scored += _lines(row, index, found, reason or "; ".join(found.assumed))
    return scored


def _lines(row: Row, index: int, found: ServedAnswer, reason: str) -> list[ScoredRow]:
    """Lines of one row: every quantity that it prints, the throughput if it prints none."""
    printed = [q for q in (*QUANTITIES, *FURTHER) if number(row.get(q)) is not None]
    lines = []
    for quantity in printed or ["throughput_tok_s"]:
        value, measured = found.values.get(quantity), number(row.get(quantity))
        ends: dict[str, Any] = {}
        if value is not None and quantity in found.widths:
            width = math.exp(found.widths[quantity])
            ends = {"low": value / width, "high": value * width}
        none = "no percentile of this kind of load" if value is None and found.values else reason
        lines.append(
            ScoredRow(
                id=row.get("id") or f"row-{index}",
                gpu=row.get("gpu", ""),
                quantity=quantity,
                measured=measured,
                predicted=value,
                reason=none if measured is not None else none or "no measured value",
                classes=dict(found.classes),
                **ends,
            )
        )
    return lines
