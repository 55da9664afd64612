"""Replays of the load generators behind measured serving rows, and what the rows print of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.serving.capacity import Limit, Limits, capacity
from gpuscale.core.serving.load import closed_loop, decode_step, most_sequences, static_batch
from gpuscale.core.serving.percentiles import LoadResult
from gpuscale.core.serving.pools import Pool, disaggregated_loop, prefill_pool
from gpuscale.core.serving.power import gpu_power_w, rates_of, use_frac
from gpuscale.core.serving.service import Demand, Service
from gpuscale.core.serving.traffic import CHAT, Lengths

if TYPE_CHECKING:
    from gpuscale.core.serving.pools import Pools
    from gpuscale.core.serving.records import Replica, ServingLoad, ServingSite
    from gpuscale.evidence.rows.serving import ServedRow

ROUNDS = 10
"""Requests of a closed loop over its concurrency, as the public load generators take."""

MOST_REQUESTS = 2_500
"""Requests from which fewer rounds are replayed, at least `FEWEST_ROUNDS`."""

FEWEST_ROUNDS = 3

FIRST_WAVE = 0.1
"""Share of the requests that all start at once: the first of ten waves."""

Predicted = tuple[dict[str, float], bool]


class Harness:
    """Replays rows; services are kept, since rows differ in their concurrency alone."""

    def __init__(self, most_requests: int = MOST_REQUESTS, *, limits: bool = True) -> None:
        """Replay with at most so many requests; with scenarios' limits or without."""
        self.services: dict[tuple[object, ...], Service] = {}
        self.most_requests, self.limits = most_requests, limits

    def predict(self, row: ServedRow, site: ServingSite) -> Predicted:
        """Predict the quantities of a row, in the units of the columns, and say whether it fits.

        Where the layout is not printed the fastest that fits is taken.
        """
        if row.kind == "pools":
            found = [self.pools(row, pools, site) for pools in row.pools]
        elif row.kind == "offline":
            return self.offline(row, site)
        else:
            found = [self.one(row, replica, site) for replica in row.replicas]
        return max(found, key=lambda one: (one[1], one[0]["throughput_tok_s"]))

    def one(self, row: ServedRow, replica: Replica, site: ServingSite) -> Predicted:
        """Predict one layout."""
        copies = max(1, row.n_gpus // replica.n_gpus)
        ask = row.requests
        if row.kind == "static":
            load = static_batch(row.model, replica, site, ask)
            return _of_formula(load, load.tokens_per_s * copies)
        if row.kind == "prefill":
            pool = prefill_pool(row.model, Pool(replica, copies), site, ask.input_tokens)
            return {"ttft_ms": pool.alone_s * 1e3, "throughput_tok_s": pool.tokens_per_s}, True
        if row.kind == "decode":
            return _decode_pool(row, replica, site, copies)
        service = self.service(row, replica, site)
        if not service.fits:
            return _unlimited(row, replica, site, copies)
        if row.kind == "burst":
            found = service.burst(max(1, round((row.at_once or 1000.0) / copies)))
            return _of_result(row, found, found.output_tokens_per_s * copies)
        each = max(1, round((ask.concurrency or 1.0) / copies))
        made = row.n_requests // copies if row.n_requests else ROUNDS * each
        n = min(made, max(self.most_requests, FEWEST_ROUNDS * each))
        found = service.closed(each, max(2, n))
        values, fits = _of_result(row, found, found.output_tokens_per_s * copies)
        if row.power:
            values["power_w"] = _power_w(row, replica, site, found)
        return values, fits

    def service(self, row: ServedRow, replica: Replica, site: ServingSite) -> Service:
        """Make or find the service of a row's layout and lengths."""
        ask = row.requests
        demand = Demand(_lengths(row, ask.input_tokens, 0), _lengths(row, ask.output_tokens, 1))
        key = (site, row.model.name, replica, demand, row.tuning)
        if key not in self.services:
            self.services[key] = Service(row.model, replica, site, demand, row.tuning)
        return self.services[key]

    def pools(self, row: ServedRow, pools: Pools, site: ServingSite) -> Predicted:
        """Predict a prefill and a decode pool: steady state, and the first wave in the mean."""
        load = disaggregated_loop(row.model, pools, site, row.requests)
        values, fits = _of_formula(load, load.tokens_per_s)
        if row.statistic == "mean":
            first = prefill_pool(row.model, pools.prefill, site, row.requests.input_tokens)
            wave_s = (row.requests.concurrency or 1.0) / first.prompts_per_s / 2.0
            values["ttft_ms"] += FIRST_WAVE * wave_s * 1e3
        return values, fits

    def offline(self, row: ServedRow, site: ServingSite) -> Predicted:
        """Predict as many requests as fit, or the highest rate within a scenario's limits."""
        found = []
        for replica in row.replicas:
            copies = max(1, row.n_gpus // replica.n_gpus)
            load = closed_loop(row.model, replica, site, row.requests)
            found.append((load.fits, load.tokens_per_s * copies, replica, load))
        found.sort(key=lambda one: one[:2], reverse=True)
        fits, rate, _, load = found[0]
        if row.limits is None or not (fits and self.limits):
            return _of_formula(load, rate)
        ttft_s, tpot_s = row.limits
        limits = Limits(Limit("p99", ttft_s), Limit("p99", tpot_s))
        best = 0.0
        for _, _, replica, _ in found[:2]:
            service = self.service(row, replica, site)
            most = capacity(service, limits).rate_per_s * row.requests.output_tokens
            best = max(best, most * max(1, row.n_gpus // replica.n_gpus))
        return {**_of_formula(load, rate)[0], "throughput_tok_s": best or rate}, True


def _lengths(row: ServedRow, mean: float, which: int) -> Lengths:
    """Lengths of prompts (0) or answers (1) as the row's load generator draws them."""
    if row.chat:
        return Lengths("lognormal", mean, CHAT[which].b)
    low, high = row.spread
    if low == high:
        return Lengths("fixed", mean)
    top = mean * 2.0 / (low + high)
    return Lengths("uniform", low * top, high * top)


def _unlimited(row: ServedRow, replica: Replica, site: ServingSite, copies: int) -> Predicted:
    """Predict a row that does not fit by the memory's count, as if it did."""
    each = max(1.0, (row.requests.concurrency or row.at_once or 1.0) / copies)
    ask = replace(row.requests, concurrency=each)
    load = closed_loop(row.model, replica, site, ask)
    return _of_formula(load, load.tokens_per_s * copies)[0], False


def _decode_pool(row: ServedRow, replica: Replica, site: ServingSite, copies: int) -> Predicted:
    each = (row.requests.concurrency or 1.0) / copies
    context = row.requests.input_tokens + row.requests.output_tokens / 2.0
    step = decode_step(row.model, replica, site, each, context)
    fits = most_sequences(row.model, replica, site, context) >= each
    rate = copies * each / step.per_token_s
    return {"tpot_ms": step.per_token_s * 1e3, "throughput_tok_s": rate}, fits


def _power_w(row: ServedRow, replica: Replica, site: ServingSite, found: LoadResult) -> float:
    """Power of one GPU under a simulated load. [W]."""
    from gpuscale.io.serving import load_power

    context = row.requests.input_tokens + row.requests.output_tokens / 2.0
    use = use_frac(row.model, replica, site, rates_of(found, context))
    return gpu_power_w(row.cluster.gpu.tdp_w or 0.0, use, load_power(), found.busy_frac)


def _of_formula(load: ServingLoad, tokens_per_s: float) -> Predicted:
    values = {
        "ttft_ms": load.ttft_s * 1e3,
        "tpot_ms": load.tpot_s * 1e3,
        "throughput_tok_s": tokens_per_s,
    }
    return values, load.fits


def _of_result(row: ServedRow, found: LoadResult, tokens_per_s: float) -> Predicted:
    """Predict in the row's own statistic and by its own definition of the throughput."""
    ttft_s, tpot_s = found.ttft.at(row.statistic), found.tpot.at(row.statistic)
    if row.derived_rate:
        o = row.nominal_output
        tokens_per_s = (row.requests.concurrency or 1.0) * o / (ttft_s + (o - 1.0) * tpot_s)
    return {
        "ttft_ms": ttft_s * 1e3,
        "tpot_ms": tpot_s * 1e3,
        "p99_ttft_ms": found.ttft.p99_s * 1e3,
        "p99_tpot_ms": found.tpot.p99_s * 1e3,
        "throughput_tok_s": tokens_per_s,
    }, True
