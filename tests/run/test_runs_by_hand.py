"""Failures, saves, goodput, power and money by hand: round numbers whose result is known."""

import math
from dataclasses import replace

import pytest

from gpuscale.core.run import bill
from gpuscale.core.run import time as runs
from gpuscale.core.run.bill import (
    Charge,
    Draw,
    Making,
    OwnCost,
    Owned,
    Rate,
    Site,
    charge,
    own_cost,
)
from gpuscale.core.run.checkpoint import (
    CheckpointParts,
    Fleet,
    Saver,
    SaveTime,
    Store,
    checkpoint_parts,
    daly_interval_s,
    exact_interval_s,
    interruptions,
    mtbf_s,
    network_stops_per_s,
    poisson_quantile,
    save_time,
    spare_machines,
    young_interval_s,
)
from gpuscale.core.run.goodput import (
    Goodput,
    RunConditions,
    effective_frac,
    first_order_frac,
    goodput,
    outlook,
)
from gpuscale.core.run.time import padded_mean, rental_usd

DAY, HOUR, GB = 86400.0, 3600.0, 1e9

# --- failures ------------------------------------------------------------------------------------


def test_stops_by_hand():
    """16 GPUs are two machines: one stop of each in two days is one a day, with one more two."""
    assert mtbf_s(16, 0.5) == DAY and mtbf_s(16, 0.5, 1 / DAY) == pytest.approx(DAY / 2)
    assert mtbf_s(0.5, 1.0) == 16 * DAY
    assert mtbf_s(8, 0.0) == math.inf and interruptions(3.0, 0.5) == 6.0
    month = 365.25 / 12 * DAY
    assert network_stops_per_s(10, 4, 0.3, 0.5) == pytest.approx((3 + 2) / month)
    assert network_stops_per_s(0, 0, 0, 0) == 0.0
    assert Fleet("none", 0.0, 0.0, 0.0).per_node_day == 0.0


POISSON = [  # mean, quantile, count: e^-1 = 0.368, 0.736, 0.920, 0.981 are its cumulated parts
    (1.0, 0.36, 0), (1.0, 0.37, 1), (1.0, 0.73, 1), (1.0, 0.74, 2), (1.0, 0.93, 3), (0.0, 0.5, 0),
    (0.5, 0.60, 0), (0.5, 0.61, 1),  # e^-0.5 = 0.6065
]  # fmt: skip


@pytest.mark.parametrize(("mean", "quantile", "count"), POISSON)
def test_poisson_counts(mean, quantile, count):
    assert poisson_quantile(mean, quantile) == count


def test_spares_by_hand():
    """Two machines, one failure in two days each, back after a day: a mean of one is down."""
    assert spare_machines(2, 0.5, DAY, 0.9) == 2
    assert spare_machines(1, 0.0, DAY, 0.9) == 0


# --- checkpoints ---------------------------------------------------------------------------------


def test_parts_of_a_checkpoint():
    assert checkpoint_parts(10.0) == CheckpointParts(20.0, 40.0, 80.0)
    adapters = checkpoint_parts(10.0, 1.0, 2.0, 3.0, trainable=4.0)
    assert adapters == CheckpointParts(10.0, 8.0, 12.0) and adapters.total_bytes == 30.0
    assert checkpoint_parts(0.5, trainable=0.0) == CheckpointParts(1.0, 0.0, 0.0)


# 800 GB of 8 GPUs on 2 nodes: 100 GB each over 20 GB/s of 40, 5 s; store 8 s; node link 4 s
STORE = Store(100 * GB, 50 * GB, 100 * GB, 40 * GB)
SLOW = replace(STORE, node_bytes_per_s=10 * GB)  # 40 s
SAVES = [  # saver, store, what differs, then write, blocking, load, bytes of a GPU, bound
    (Saver("x", "blocking", 1.0), STORE, {}, (9.0, 9.0, 17.0, 100 * GB, "store")),
    (Saver("x", "blocking", 1.0), SLOW, {}, (41.0, 41.0, 41.0, 100 * GB, "node link")),
    # writers on one node alone: 800 GB / 100; two writers copy 400 GB each
    (Saver("x", "blocking"), SLOW, {"writers": 1}, (80.0, 80.0, 40.0, 800 * GB, "node link")),
    (Saver("x", "blocking"), STORE, {"writers": 2}, (20.0, 20.0, 20.0, 400 * GB, "host link")),
    (Saver("x", "blocking"), STORE, {"writers": 99}, (8.0, 8.0, 16.0, 100 * GB, "store")),
    # it waits for the copy and a quarter of what goes on beside it, never longer than the write
    (Saver("x", "asynchronous", 1.0, 0.5, 0.25), STORE, {}, (9.0, 8.0, 17.0, 100 * GB, "store")),
    (Saver("x", "asynchronous", 1.0, 0.5, 0.9), STORE, {}, (9.0, 9.0, 17.0, 100 * GB, "store")),
    # to a peer: over the network, not to the store; read from the store all the same
    (Saver("x", "memory", 1.0), STORE, {}, (6.0, 6.0, 17.0, 100 * GB, "host link")),
    (Saver("x", "memory", 1.0), SLOW, {}, (41.0, 6.0, 41.0, 100 * GB, "node link")),
]  # fmt: skip


@pytest.mark.parametrize(("saver", "store", "more", "want"), SAVES)
def test_save_by_hand(saver, store, more, want):
    assert save_time(800 * GB, 8, 2, saver, store, **more) == SaveTime(800 * GB, *want)


def test_a_save_bound_by_the_copy_loads_as_slowly():
    quick = Store(1e15, 1e15, host_link_bytes_per_s=40 * GB)
    found = save_time(100 * GB, 1, 1, Saver("x", "blocking", 2.0), quick)
    assert (found.write_s, found.load_s, found.bound) == (7.0, 7.0, "host link")
    assert save_time(0.5, 1, 1, Saver("x", "blocking"), quick).total_bytes == 0.5


@pytest.mark.parametrize(("blocking", "mean"), [(60.0, 1e4), (1.0, 1e5), (500.0, 1000.0)])
def test_intervals_by_their_formulas(blocking, mean):
    """Young: sqrt(2 d M). Daly: x (1 + x / (6 M) + d / (18 M)) - d with that x."""
    young = math.sqrt(2 * blocking * mean)
    assert young_interval_s(blocking, mean) == pytest.approx(young)
    daly = young * (1 + young / (6 * mean) + blocking / (18 * mean)) - blocking
    assert daly_interval_s(blocking, mean) == pytest.approx(daly)
    x = exact_interval_s(blocking, mean) / mean
    assert math.log(1 - x) + x + blocking / mean == pytest.approx(0.0, abs=1e-9)


def test_intervals_at_their_ends():
    assert daly_interval_s(20.0, 10.0) == 10.0  # d = 2 M
    # x = sqrt(2 x 19 x 10) = 19.494, times 1 + 19.494/60 + 19/180, less 19
    assert daly_interval_s(19.0, 10.0) == pytest.approx(19.494 * 1.43046 - 19, rel=1e-4)
    assert exact_interval_s(0.0, 10.0) == 0.0 == exact_interval_s(0.0, math.inf)
    assert exact_interval_s(1.0, math.inf) == math.inf
    assert 0 < exact_interval_s(1e4, 10.0) <= 10.0  # saving is slow: once between two failures
    assert young_interval_s(0.0, 5.0) == 0.0 and young_interval_s(2.0, 0.25) == 1.0


# --- goodput -------------------------------------------------------------------------------------


def test_effective_time_by_hand():
    """tau / (M e^(R/M) (e^((tau + d)/M) - 1)), M = 100."""
    want = 50 / (100 * math.exp(0.1) * (math.exp(0.6) - 1))
    assert effective_frac(50, 10, 10, 100) == pytest.approx(want)
    assert effective_frac(50, 10, 10, math.inf) == 50 / 60
    assert effective_frac(0.5, 0.0, 0.0, 1e9) == pytest.approx(1.0)
    assert effective_frac(1e3, 0, 0, 1.0) == 0.0 == effective_frac(1.0, 0.0, 1e3, 1.0)
    assert 0 < effective_frac(600.0, 50.0, 50.0, 1.0) < 1e-280  # 700, the last that is no zero
    assert effective_frac(600.0, 50.0, 51.0, 1.0) == 0.0
    assert first_order_frac(50, 10, 10, 100) == pytest.approx((1 - 0.35) / 1.2)
    assert first_order_frac(0.5, 0, 0, 0.5) == 0.5
    assert first_order_frac(200, 10, 10, 100) == 0.0


FAULTLESS = RunConditions(8, 0.0, 100.0, 50.0, 10.0, 20.0)


def test_a_run_that_never_fails_waits_for_its_saves_alone():
    assert goodput(FAULTLESS) == Goodput(1.0, math.inf, math.inf, 0.0, 0.0, 0.0, 0.0, 0.0)
    hourly = goodput(replace(FAULTLESS, interval_s=90.0, straggler_frac=0.1, debug_frac=0.5))
    assert hourly.goodput_frac == pytest.approx(0.9 * 0.9 * 0.5)
    assert hourly.saving_frac == pytest.approx(0.1 * 0.5)
    assert hourly.straggler_frac == pytest.approx(0.9 * 0.1 * 0.5)
    assert (hourly.debug_frac, hourly.interval_s, hourly.rework_frac) == (0.5, 90.0, 0.0)


def test_where_the_time_of_a_failing_run_goes():
    """Two machines, one stop in two days each: M is a day; saves each hour, 150 s to restart."""
    met = RunConditions(16, 0.5, 100.0, 50.0, 360.0, 20.0, interval_s=HOUR)
    found = goodput(met)
    useful = HOUR / (DAY * math.exp(150 / DAY) * math.expm1((HOUR + 360) / DAY))
    assert found.mtbf_s == DAY and found.goodput_frac == pytest.approx(useful)
    assert found.saving_frac == pytest.approx(useful * 0.1)
    assert found.recovery_frac == pytest.approx(150 / DAY)
    assert found.rework_frac == pytest.approx(1 - useful * 1.1 - 150 / DAY)
    part = goodput(replace(met, straggler_frac=0.2, debug_frac=0.25))
    assert part.goodput_frac == pytest.approx(useful * 0.8 * 0.75)
    assert part.saving_frac == pytest.approx(useful * 0.1 * 0.75)
    assert part.recovery_frac == pytest.approx(150 / DAY * 0.75)
    assert part.rework_frac == pytest.approx(found.rework_frac * 0.75)
    assert part.straggler_frac == pytest.approx(useful * 0.2 * 0.75)
    lost = goodput(replace(met, recovery_s=2 * DAY))  # recovering is no more than what is lost
    assert lost.recovery_frac == pytest.approx(1 - lost.goodput_frac * 1.1)


def test_no_shorter_interval_than_a_save_and_a_thousandth_where_saves_cost_nothing():
    met = RunConditions(16, 0.5, 0.0, 0.0, 1.0, 7000.0)  # the best would be sqrt(2 x 86400) = 416 s
    assert goodput(met).interval_s == 7000.0
    assert goodput(replace(met, blocking_s=0.0, write_s=0.0)).interval_s == DAY / 1000
    assert goodput(replace(met, write_s=0.0)).interval_s == exact_interval_s(1.0, DAY)
    cheap = replace(met, blocking_s=0.01, write_s=0.0)  # sqrt(2 x 0.01 x 86400) = 42 s
    assert goodput(cheap).interval_s == exact_interval_s(0.01, DAY) < DAY / 1000


def test_outlook_by_hand():
    """Failures a half and twice as often; what is spared is against the same run."""
    met = RunConditions(16, 0.5, 100.0, 50.0, 360.0, 20.0, None, 1e-5, 0.1, 0.2)
    ends = [replace(met, per_node_day=rate) for rate in (0.25, 1.0)]
    run = outlook(1e6, met, *ends)
    low, middle, high = (goodput(replace(met, per_node_day=rate)) for rate in (0.25, 0.5, 1.0))
    assert (run.low_s, run.expected_s, run.high_s) == tuple(
        1e6 / g.goodput_frac for g in (low, middle, high)
    )
    assert (run.ideal_s, run.goodput) == (1e6, middle)
    assert (run.goodput_low_frac, run.goodput_high_frac) == (high.goodput_frac, low.goodput_frac)
    assert run.n_interruptions == run.expected_s / middle.mtbf_s
    assert run.n_interruptions_low == run.low_s / low.mtbf_s
    assert run.n_interruptions_high == run.high_s / high.mtbf_s
    changed = {
        "half the failures": {"per_node_day": 0.25, "other_per_s": 5e-6},
        "half the time to recover": {"recovery_s": 50.0, "load_s": 25.0},
        "half the wait for a save": {"blocking_s": 180.0},
        "no slow machines": {"straggler_frac": 0.0},
        "half the debugging": {"debug_frac": 0.1},
    }
    found = {h.lever: (h.goodput_frac, h.saved_s) for h in run.helps}
    for lever, change in changed.items():
        frac = goodput(replace(met, **change)).goodput_frac
        assert found.pop(lever) == pytest.approx((frac, run.expected_s - 1e6 / frac))
    assert not found
    saved = [h.saved_s for h in run.helps]
    assert saved == sorted(saved, reverse=True)
    never = outlook(1e6, replace(met, recovery_s=1e9), *ends)  # no headway
    assert never.expected_s == math.inf and never.helps == ()
    assert outlook(1e6, FAULTLESS, FAULTLESS, FAULTLESS).helps == ()
    assert len(outlook(1.0, met, *ends).helps) == 5  # of less than a second


# --- time, power, carbon, money ------------------------------------------------------------------


def test_arithmetic_of_a_run():
    assert runs.training_time_s(2.0, 3.0, 4.0, 0.5, 0.75) == 36 / 1.5
    assert runs.training_flop(2.0, 3.0) == 36.0 and runs.cluster_flop_per_s(2, 3, 0.5) == 3.0
    assert runs.mfu(2.0, 3.0, 9.0, 4.0, 2.0) == 36 / 72
    assert (runs.tokens_per_s(3.0, 0.5), runs.gpu_hours(2, 1800.0)) == (6.0, 1.0)
    assert runs.utilisation(1.0, 0.5) == 2.0 and runs.batch_tokens(2, 3, 4) == 24
    assert runs.share(0.25, 0.25, 0.5) == 0.25 and runs.exposed_s(8.0, 0.25) == 6.0
    assert (runs.exposed_s(8.0, 1.0), runs.exposed_s(8.0, 0.0)) == (0.0, 8.0)
    assert padded_mean(6.0, 100.0, 3) == pytest.approx(6 * (1 + 1 / 2 + 1 / 3))
    assert (padded_mean(6.0, 7.0, 2), padded_mean(7.0, 7.0, 9), padded_mean(0.5, 1, 1)) == (
        7,
        7,
        0.5,
    )


SITE = Site("here", 400.0, 1.25, 0.2, 100.0)
NODE = Draw(1000.0, 200.0, 0.5, 2.0, 4)
RATE = Rate(3.0, 2.0, 5.0, "given")


def test_a_bill_by_hand():
    """Two hours of 8 GPUs, three quarters at work: two nodes of 800 W, 1.25."""
    making = Making(100.0, 800 * HOUR, 0.5)
    found = charge(2 * HOUR, 8, RATE, NODE, SITE, 0.75, 4e6, making)
    watts = 2 * 800 * 1.25
    kwh = watts * 2 / 1000
    assert found == Charge(
        16.0, 48.0, 32.0, 80.0, 12.0, watts, watts * 7200, watts * 3600, watts * 14400,
        pytest.approx(kwh * 0.2), pytest.approx(kwh * 0.4), pytest.approx(kwh * 0.1),
        100 * 16 / 400,
    )  # fmt: skip
    bare = charge(2 * HOUR, 8)
    assert bare == Charge(16.0, *[None] * 12)
    alone = charge(2 * HOUR, 8, draw=NODE)  # of no site: no overhead, no carbon
    assert alone.power_w == 2000.0 and alone.carbon_kg is None is alone.energy_usd
    plain = charge(2 * HOUR, 8, RATE, NODE, Site("x", 400.0, 1.0))
    assert plain.carbon_market_kg is None is plain.energy_usd and plain.carbon_kg is not None
    assert plain.usd_per_million_tokens is None
    assert charge(0.0, 0.5, RATE, tokens=1e6).usd_per_million_tokens is None
    assert charge(0.5, 8, RATE, tokens=1e6).usd_per_million_tokens is not None
    assert charge(HOUR, 8, tokens=1e6).usd_per_million_tokens is None


def test_power_and_carbon_by_hand():
    assert bill.power_w(2, 3.0, 4.0, 1.5) == 15.0
    assert bill.mean_power_w(8.0, 2.0, 0.0) == 2.0 and bill.mean_power_w(8.0, 2.0, 1.0) == 8.0
    assert bill.carbon_kg(3.6e6, 500.0) == pytest.approx(0.5)
    assert bill.carbon_kg(0.0, 0.0) == 0.0
    assert bill.embodied_kg(10.0, 8.0, 40 * HOUR, 0.5) == 4.0
    assert bill.embodied_kg(10.0, 8.0, 0.5, 1.0) == 80 * HOUR / 0.5
    assert rental_usd(2, 1800.0, 3.0) == 3.0
    assert bill.usd_per_million_tokens(1.8, 2, 0.5) == pytest.approx(3.6 / 1800 * 1e6)
    assert Site("x", 0.0, 1.0).pue == 1.0 and Rate(0.0, 0.0, 0.0, "given").low_usd == 0.0


OWNED = Owned(
    1000.0, 300.0, 700.0, residual_usd=121.0, life_years=2.0, interest=0.1, utilisation=0.5,
    node_power_w=500.0, pue=1.5, usd_per_kwh=0.2, colocation_usd_per_kw_month=10.0,
    staff_usd_per_year=60.0, maintenance=0.05,
)  # fmt: skip


def test_an_owned_cluster_by_hand():
    """3,000 USD over two years at 10 %: 1.21, so 0.121 / 0.21 a year; 121 left are 100 now."""
    recovery = 0.1 * 1.21 / 0.21
    hours = 8760 * 16 * 0.5
    parts = (
        (3000 - 100) * recovery, 1.0 * 1.5 * 8760 * 0.2, 1.0 * 10 * 12, 60.0, 3000 * 0.05,
    )  # fmt: skip
    want = OwnCost(*(part / hours for part in parts), sum(parts) / hours)
    found = own_cost(OWNED, 16, 8)
    for name in OwnCost.__slots__:
        assert getattr(found, name) == pytest.approx(getattr(want, name)), name
    assert bill.capital_recovery_frac(0.0, 0.5) == 2.0
    assert bill.capital_recovery_frac(1.0, 1.0) == 2.0
    rent = own_cost(replace(OWNED, utilisation=1.0), 16, 8).total_usd_per_gpu_hour
    assert bill.break_even_utilisation(OWNED, 16, 8, rent / 2) == pytest.approx(2.0)
    free = own_cost(Owned(node_power_w=1e3, usd_per_kwh=1.0, utilisation=1.0), 8, 8)
    assert free.energy_usd == free.total_usd_per_gpu_hour == pytest.approx(1 / 8)  # PUE 1


REFUSED = [
    (lambda: runs.job_time_s(1.0, 0.0), "flop_per_s must be positive, got 0"),
    (lambda: runs.job_time_s(1.0, 1.0, 0.0), "utilisation_frac"),
    (lambda: runs.share(0.0, 0.0), "more than 0"),
    (lambda: runs.exposed_s(1.0, 1.1), "between 0 and 1"),
    (lambda: runs.exposed_s(1.0, -0.1), "between 0 and 1"),
    (lambda: bill.power_w(1, 1.0, pue=0.9), "pue"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_no_run_has_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
