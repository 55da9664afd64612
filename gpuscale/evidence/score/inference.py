"""Measured serving rows: TTFT, TPOT and throughput predicted and scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.core.serving.load import closed_loop, decode_step, most_sequences, static_batch
from gpuscale.core.serving.pools import Pool, disaggregated_loop, prefill_pool
from gpuscale.core.serving.records import Requests
from gpuscale.evidence.rows.measurements import number
from gpuscale.evidence.rows.serving import ServedRow, served_row
from gpuscale.evidence.score.records import ScoredRow
from gpuscale.evidence.score.runs import Rows

if TYPE_CHECKING:
    from gpuscale.core.serving.pools import Pools
    from gpuscale.core.serving.records import Replica, ServingLoad, ServingSite

QUANTITIES = ("ttft_ms", "tpot_ms", "throughput_tok_s")
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Concurrencies per replica tried where a scenario limits the latency."""

SiteOf = Callable[[ServedRow], "ServingSite"]


def own_inference() -> Path:
    """File of the package's own copy of the measured serving rows."""
    from gpuscale.evidence.score.runs import own_copy

    return own_copy("inference")


def site_loader(calibration: str | Path | None = None) -> SiteOf:
    """Make the function that gives a row's site, one for each cluster and framework."""
    from gpuscale.io.serving import serving_site

    sites: dict[tuple[str, str], ServingSite] = {}

    def site_of(row: ServedRow) -> ServingSite:
        key = (row.cluster.name, row.framework)
        if key not in sites:
            sites[key] = serving_site(row.cluster, row.framework, calibration)
        return sites[key]

    return site_of


def predict_served(row: ServedRow, site: ServingSite) -> tuple[dict[str, float], bool]:
    """Predict the quantities of a row, in the units of the columns, and say whether it fits.

    The throughput follows its printed definition: of a closed loop `concurrency * output /
    (ttft + (output - 1) tpot)` with the printed output length, else all output tokens of all GPUs;
    of a prefill pool its input tokens.
    """
    if row.kind == "pools":
        found = [_pools_one(row, pools, site) for pools in row.pools]
    else:
        found = [_predict_one(row, replica, site) for replica in row.replicas]
    return max(found, key=lambda one: (one[1], one[0]["throughput_tok_s"]))


def _pools_one(row: ServedRow, pools: Pools, site: ServingSite) -> tuple[dict[str, float], bool]:
    load = disaggregated_loop(row.model, pools, site, row.requests)
    return _quantities(load, load.tokens_per_s)


def _predict_one(
    row: ServedRow, replica: Replica, site: ServingSite
) -> tuple[dict[str, float], bool]:
    copies = max(1.0, row.n_gpus // replica.n_gpus)
    ask = row.requests
    if row.kind == "static":
        load = static_batch(row.model, replica, site, ask)
        return _quantities(load, load.tokens_per_s * copies)
    if row.kind == "prefill":
        pool = prefill_pool(row.model, Pool(replica, int(copies)), site, ask.input_tokens)
        return {"ttft_ms": pool.alone_s * 1e3, "throughput_tok_s": pool.tokens_per_s}, True
    if row.kind == "decode":
        each = (ask.concurrency or 1.0) / copies
        context = ask.input_tokens + ask.output_tokens / 2.0
        step = decode_step(row.model, replica, site, each, context)
        rate = copies * each / step.per_token_s
        fits = most_sequences(row.model, replica, site, context) >= each
        return {"tpot_ms": step.per_token_s * 1e3, "throughput_tok_s": rate}, fits
    if row.kind in ("closed", "one"):
        concurrency = max(1.0, (ask.concurrency or 1.0) / copies)
        each_ask = Requests(ask.input_tokens, ask.output_tokens, concurrency)
        load = closed_loop(row.model, replica, site, each_ask)
        o = row.nominal_output
        rate = (ask.concurrency or 1.0) * o / (load.ttft_s + (o - 1.0) * load.tpot_s)
        return _quantities(load, rate)
    load = _offline(row, replica, site)
    return _quantities(load, load.tokens_per_s * copies)


def _offline(row: ServedRow, replica: Replica, site: ServingSite) -> ServingLoad:
    """As many requests as fit, or as meet the scenario's limits."""
    most = closed_loop(row.model, replica, site, row.requests)
    if row.limits is None:
        return most
    ttft, tpot = row.limits
    room = most_sequences(
        row.model, replica, site, row.requests.input_tokens + row.requests.output_tokens / 2.0
    )
    best = most if most.ttft_s <= ttft and most.tpot_s <= tpot else None
    for c in CONCURRENCIES:
        if best is most or c > max(1.0, room):
            break
        ask = Requests(row.requests.input_tokens, row.requests.output_tokens, float(c))
        load = closed_loop(row.model, replica, site, ask)
        if best is None or (load.ttft_s <= ttft and load.tpot_s <= tpot):
            best = load
    return best or most


def _quantities(load: ServingLoad, tokens_per_s: float) -> tuple[dict[str, float], bool]:
    values = {
        "ttft_ms": load.ttft_s * 1e3,
        "tpot_ms": load.tpot_s * 1e3,
        "throughput_tok_s": tokens_per_s,
    }
    return values, load.fits


def predict_inference_rows(rows: Rows, calibration: str | Path | None = None) -> list[ScoredRow]:
    """One scored row per printed quantity of an inference.csv, in file order.

    Parameters
    ----------
    rows : path or rows
        Columns model, gpu, n_gpus, tp, pp, dp_attention, ep, precision, input_len, output_len,
        concurrency, throughput_tok_s, ttft_ms, tpot_ms, framework, scenario, note, source.
    calibration : path, optional
        Overlay of matmul and collective constants.

    Returns
    -------
    list of ScoredRow
        With the stated 80 % interval; what cannot be predicted says why.
    """
    from gpuscale.evidence.rows.measurements import read_rows
    from gpuscale.io.serving import serving_intervals

    found = read_rows(rows) if isinstance(rows, str | Path) else list(rows)
    site_of, widths = site_loader(calibration), serving_intervals()
    scored: list[ScoredRow] = []
    for index, row in enumerate(found, 1):
        parsed = served_row(row, index)
        if isinstance(parsed, str):
            scored += _lines(row, index, {}, parsed, widths, None)
            continue
        try:
            values, fits = predict_served(parsed, site_of(parsed))
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

    printed = [q for q in QUANTITIES if number(row.get(q)) is not None] or ["throughput_tok_s"]
    lines = []
    for quantity in printed:
        value, measured = values.get(quantity), number(row.get(quantity))
        if value is not None and not math.isfinite(value):
            value = None
        kind = f"{parsed.kind}/{parsed.classes['dense_or_moe']}" if parsed else ""
        width = widths.get(f"{kind}/{quantity}", widths["unknown"])
        if parsed and parsed.classes["architecture"] not in MEASURED:
            width = max(width, widths["unseen-architecture"])
        lines.append(
            ScoredRow(
                id=row.get("id") or f"row-{index}",
                gpu=row.get("gpu", ""),
                quantity=quantity,
                measured=measured,
                predicted=value,
                reason=reason if measured is not None else reason or "no measured value",
                low=None if value is None else value * math.exp(-width),
                high=None if value is None else value * math.exp(width),
                classes=dict(parsed.classes) if parsed else {"model": row.get("model", "")},
            )
        )
    return lines
