"""Measured serving rows: TTFT, TPOT and throughput predicted and scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.evidence.rows.measurements import number
from gpuscale.evidence.rows.serving import ServedRow, served_row
from gpuscale.evidence.rows.words import Rows, rows_of
from gpuscale.evidence.score.harness import Harness
from gpuscale.evidence.score.records import ScoredRow

if TYPE_CHECKING:
    from gpuscale.core.serving.records import ServingSite

QUANTITIES = ("ttft_ms", "tpot_ms", "throughput_tok_s")
FURTHER = ("p99_ttft_ms", "p99_tpot_ms", "power_w")
"""Scored where they are printed, beside the quantities of every table."""

OF_DRAFTS = {"given": "+drafts", "assumed": "+drafts", "not recorded": "+unrecorded"}
"""What the class of an interval says of drafts; nothing where there are none."""

SiteOf = Callable[[ServedRow], "ServingSite"]


def own_inference() -> Path:
    """File of the package's own copy of the measured serving rows."""
    from gpuscale.evidence.score.runs import own_copy

    return own_copy("inference")


def site_key(row: ServedRow) -> tuple[str, str, str, str]:
    """Name what a row's hardware and software depend on."""
    return row.cluster.name, row.framework, row.version, row.maturity.stage


def site_loader(calibration: str | Path | None = None) -> SiteOf:
    """Make the function that gives a row's site, one for each cluster and framework."""
    from gpuscale.io.serving import matured, serving_site

    sites: dict[tuple[str, str, str, str], ServingSite] = {}

    def site_of(row: ServedRow) -> ServingSite:
        key = site_key(row)
        if key not in sites:
            site = serving_site(row.cluster, row.framework, calibration, version=row.version)
            sites[key] = matured(site, row.maturity)
        return sites[key]

    return site_of


def interval_class(row: ServedRow, quantity: str) -> str:
    """Class of rows whose errors give an interval: kind of load, drafts, experts, quantity."""
    drafts = "+new" if row.maturity.new else OF_DRAFTS.get(row.classes["drafts"], "")
    return f"{row.kind}{drafts}/{row.classes['dense_or_moe']}/{quantity}"


def predict_inference_rows(rows: Rows, calibration: str | Path | None = None) -> list[ScoredRow]:
    """One scored row per printed quantity of an inference.csv, in file order.

    `rows`: columns model, gpu, n_gpus, tp, pp, dp_attention, ep, precision, input_len, output_len,
    concurrency, throughput_tok_s, ttft_ms, tpot_ms, framework, scenario, note, source.
    `calibration`: overlay of matmul and collective constants. Returns: with the stated 80 %
    interval; what cannot be predicted says why.
    """
    from gpuscale.io.serving import serving_intervals

    site_of, widths, harness = site_loader(calibration), serving_intervals(), Harness()
    scored: list[ScoredRow] = []
    for index, row in enumerate(rows_of(rows), 1):
        parsed = served_row(row, index)
        if isinstance(parsed, str):
            scored += _lines(row, index, {}, parsed, widths, None)
            continue
        try:
            values, fits = harness.predict(parsed, site_of(parsed))
            reason = "; ".join(parsed.assumed if fits else ("does not fit", *parsed.assumed))
        except (ValueError, ArithmeticError) as error:
            values, reason = {}, f"cannot be computed: {str(error).splitlines()[0][:100]}"
        scored += _lines(row, index, values, reason, widths, parsed)
    return scored


def _lines(
    row: Mapping[str, str],
    index: int,
    values: Mapping[str, float],
    reason: str,
    widths: Mapping[str, float],
    parsed: ServedRow | None,
) -> list[ScoredRow]:
    """Lines of one row: every quantity that it prints, the throughput if it prints none."""
    from gpuscale.io.serving import MEASURED

    printed = [q for q in (*QUANTITIES, *FURTHER) if number(row.get(q)) is not None]
    lines = []
    for quantity in printed or ["throughput_tok_s"]:
        value, measured = values.get(quantity), number(row.get(quantity))
        if value is not None and not math.isfinite(value):
            value = None
        said = "no percentile of this kind of load" if value is None and values else reason
        width = widths["unknown"]
        if parsed:
            known = (interval_class(parsed, quantity), f"any/{quantity}")
            width = next((widths[name] for name in known if name in widths), width)
        if parsed and parsed.classes["architecture"] not in MEASURED:
            width = max(width, widths["unseen-architecture"])
        lines.append(
            ScoredRow(
                id=row.get("id") or f"row-{index}",
                gpu=row.get("gpu", ""),
                quantity=quantity,
                measured=measured,
                predicted=value,
                reason=said if measured is not None else said or "no measured value",
                low=None if value is None else value * math.exp(-width),
                high=None if value is None else value * math.exp(width),
                classes=dict(parsed.classes) if parsed else {"model": row.get("model", "")},
            )
        )
    return lines
