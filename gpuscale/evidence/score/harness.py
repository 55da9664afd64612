"""Replays of the load generators behind measured serving rows, and what the rows print of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.serving.capacity import Limit, Limits, capacity
from gpuscale.core.serving.disaggregated import PooledService, decode_worker, prefill_worker
from gpuscale.core.serving.percentiles import LoadResult
from gpuscale.core.serving.power import gpu_power_w, use_frac
from gpuscale.core.serving.service import Demand, Service, Tuning
from gpuscale.core.serving.traffic import CHAT, Lengths

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.evidence.rows.serving import Pools, ServedRow

ROUNDS = 10
"""Requests of a closed loop over its concurrency, as the public load generators take."""

MOST_REQUESTS = 2_500
"""Requests from which fewer rounds are replayed, at least `FEWEST_ROUNDS`."""

FEWEST_ROUNDS = 3

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
        copies, ask = max(1, row.n_gpus // replica.n_gpus), row.requests
        each = max(1, round((ask.concurrency or 1.0) / copies))
        if row.kind == "prefill":
            return self.prefill(row, replica, site, copies)
        service = self.service(row, replica, site)
        fits = service.fits
        if row.kind == "decode":
            service = decode_worker(row.model, replica, site, service.demand, Tuning())
            step_s = service.pass_s(each) / service.scheduler.tokens_per_pass
            values = {"tpot_ms": step_s * 1e3, "throughput_tok_s": copies * each / step_s}
            return values, service.sequences_with_room >= each
        if not fits:  # as if it did
            service = self.service(row, replica, replace(site, hbm_bytes=UNLIMITED_BYTES))
        if row.kind in ("burst", "static"):
            at_once = each if row.kind == "static" else round((row.at_once or 1000.0) / copies)
            found = service.burst(max(1, at_once))
        else:
            found = service.closed(each, self.requests(row, each, copies))
        values = _of_result(row, found, copies)
        if row.power and fits:
            values["power_w"] = _power_w(row, replica, site, found)
        return values, fits

    def requests(self, row: ServedRow, each: int, copies: int = 1) -> int:
        """Count the requests of a closed loop that are replayed."""
        made = row.n_requests // copies if row.n_requests else ROUNDS * each
        return max(2, min(made, max(self.most_requests, FEWEST_ROUNDS * each)))

    def prefill(
        self, row: ServedRow, replica: Replica, site: ServingSite, copies: int
    ) -> Predicted:
        """Predict workers that read prompts, passes full."""
        worker = prefill_worker(row.model, replica, site, _demand(row), Tuning())
        together = max(1, int(worker.scheduler.token_budget // row.requests.input_tokens))
        alone_s = worker.prompt_s(0.0)
        each_s = min(alone_s, worker.prompt_s(0.0, together))
        rate = copies * row.requests.input_tokens / each_s
        return {"ttft_ms": alone_s * 1e3, "throughput_tok_s": rate}, True

    def service(self, row: ServedRow, replica: Replica, site: ServingSite) -> Service:
        """Make or find the service of a row's layout and lengths."""
        demand = _demand(row)
        key = (site, row.model.name, replica, demand, row.tuning)
        if site.hbm_bytes == UNLIMITED_BYTES:
            return Service(row.model, replica, site, demand, row.tuning)
        if key not in self.services:
            self.services[key] = Service(row.model, replica, site, demand, row.tuning)
        return self.services[key]

    def pools(self, row: ServedRow, pools: Pools, site: ServingSite) -> Predicted:
        """Predict a prefill and a decode pool."""
        service = _pooled(row, pools, site)
        fits = service.fits
        if not fits:  # as if it did
            service = _pooled(row, pools, replace(site, hbm_bytes=UNLIMITED_BYTES))
        each = max(1, round(row.requests.concurrency or service.sequences_with_room))
        found = service.closed(each, self.requests(row, each))
        return _of_result(row, found), fits

    def offline(self, row: ServedRow, site: ServingSite) -> Predicted:
        """Predict the highest rate, within a scenario's limits where it has some."""
        limits = Limits()
        if row.limits is not None and self.limits:
            limits = Limits(*(Limit("p99", most_s) for most_s in row.limits))
        found: list[Predicted] = []
        for replica in row.replicas:
            service = self.service(row, replica, site)
            copies = max(1, row.n_gpus // replica.n_gpus)
            most = capacity(service, limits)
            values = _of_result(row, most.load, copies)
            if limits != Limits():
                values["throughput_tok_s"] = most.rate_per_s * row.requests.output_tokens * copies
            found.append((values, service.fits))
        return max(found, key=lambda one: (one[1], one[0]["throughput_tok_s"]))


UNLIMITED_BYTES = 1e15
"""Memory of a GPU that holds what a row says that it held."""


def _pooled(row: ServedRow, pools: Pools, site: ServingSite) -> PooledService:
    (first, n_first), (second, n_second) = pools
    parts = (site, _demand(row), Tuning())
    read = prefill_worker(row.model, first, *parts)
    return PooledService(read, n_first, decode_worker(row.model, second, *parts), n_second)


def _demand(row: ServedRow) -> Demand:
    ask = row.requests
    lengths = (_lengths(row, ask.input_tokens, 0), _lengths(row, ask.output_tokens, 1))
    return Demand(*lengths, cold=row.cold)


def _lengths(row: ServedRow, mean: float, which: int) -> Lengths:
    """Lengths of prompts (0) or answers (1) as the row's load generator draws them."""
    if row.chat:
        return Lengths("lognormal", mean, CHAT[which].b)
    low, high = row.spread
    if low == high:
        return Lengths("fixed", mean)
    top = mean * 2.0 / (low + high)
    return Lengths("uniform", low * top, high * top)


def _power_w(row: ServedRow, replica: Replica, site: ServingSite, found: LoadResult) -> float:
    """Power of one GPU under a simulated load. [W]."""
    from gpuscale.io.serving import load_power

    context = row.requests.input_tokens + row.requests.output_tokens / 2.0
    use = use_frac(row.model, replica, site, found, context)
    return gpu_power_w(row.cluster.gpu.tdp_w or 0.0, use, load_power(), found.busy_frac)


def _of_result(row: ServedRow, found: LoadResult, copies: int = 1) -> dict[str, float]:
    """Predict in the row's own statistic and by its own definition of the throughput."""
    ttft_s, tpot_s = found.ttft.at(row.statistic), found.tpot.at(row.statistic)
    tokens_per_s = found.output_tokens_per_s * copies
    if row.derived_rate:
        o = row.nominal_output
        tokens_per_s = (row.requests.concurrency or 1.0) * o / (ttft_s + (o - 1.0) * tpot_s)
    return {
        "ttft_ms": ttft_s * 1e3,
        "tpot_ms": tpot_s * 1e3,
        "p99_ttft_ms": found.ttft.p99_s * 1e3,
        "p99_tpot_ms": found.tpot.p99_s * 1e3,
        "throughput_tok_s": tokens_per_s,
    }
