"""Measured serving rows: counted, with the reason why none is predicted yet."""

from __future__ import annotations

from gpuscale.io.measurements import number
from gpuscale.validate.records import ScoredRow
from gpuscale.validate.runs import Rows

QUANTITIES = ("ttft_ms", "tpot_ms", "throughput_tok_s")
REASON = "the expected-time model covers training steps; serving has the ideal formulas only"


def predict_inference_rows(rows: Rows) -> list[ScoredRow]:
    """One row per printed quantity of an inference.csv, in order, none of them predicted."""
    from gpuscale.io.measurements import read_rows

    found = read_rows(rows) if not isinstance(rows, list | tuple) else rows  # type: ignore[arg-type]
    return [
        ScoredRow(
            id=row.get("id") or f"row-{i}", gpu=row.get("gpu", ""), quantity=quantity,
            measured=number(row.get(quantity)), reason=REASON,
            classes={"model": row.get("model", ""), "framework": row.get("framework", "")},
        )
        for i, row in enumerate(found, 1)
        for quantity in QUANTITIES
        if row.get(quantity)
    ]  # fmt: skip
