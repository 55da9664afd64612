"""Failures, checkpoints, power and emissions of published runs; citations stand in the CSVs."""

import csv
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.answers.lifetime import life_of, save_of
from gpuscale.answers.training.asked import Checkpoint
from gpuscale.core.run.bill import (
    Draw,
    Owned,
    Rate,
    break_even_utilisation,
    carbon_kg,
    charge,
    own_cost,
)
from gpuscale.core.run.checkpoint import (
    Saver,
    Store,
    checkpoint_parts,
    daly_interval_s,
    exact_interval_s,
    interruptions,
    mtbf_s,
    save_time,
    spare_machines,
    young_interval_s,
)
from gpuscale.core.run.goodput import (
    RunConditions,
    effective_frac,
    first_order_frac,
    goodput,
    outlook,
)
from gpuscale.io.hardware import load_cluster
from gpuscale.io.run import load_draw, load_fleet, load_saver, load_site, recovery_s

DATA = Path(__file__).parent.parent / "data" / "published"
DAY, HOUR = 86400.0, 3600.0


def rows(name):
    with (DATA / f"{name}.csv").open(encoding="utf-8") as lines:
        return {r["case_id"]: r for r in csv.DictReader(lines)}


FAILURES, CHECKPOINTS = rows("failures"), rows("checkpoints")


def expected(n_gpus, fleet, way="requeue", blocking_s=1.0):
    f = load_fleet(fleet)
    met = RunConditions(n_gpus, f.per_node_day, recovery_s(way, n_gpus)[0], 30.0, blocking_s, 30.0)
    few, many = (
        replace(met, per_node_day=rate) for rate in (f.low_per_node_day, f.high_per_node_day)
    )
    return outlook(54 * DAY, met, few, many)


@pytest.mark.parametrize(("case", "per_day"), [("l3-all", 4.21e-3), ("l3-unexp", 3.79e-3)])
def test_llama3_interruptions(case, per_day):
    found = interruptions(54 * DAY, mtbf_s(16384, per_day))
    assert found == pytest.approx(float(FAILURES[case]["value"]), rel=0.005)


def test_interruptions_by_the_default_rate_hold_both_printed_counts():
    """The question a buyer asks: 54 days on 16,384 H100; 419 unexpected, 466 in all."""
    f = load_fleet()
    counts = [
        interruptions(54 * DAY, mtbf_s(16384, r))
        for r in (f.low_per_node_day, f.per_node_day, f.high_per_node_day)
    ]
    assert counts[0] < 419 < counts[2] and counts[1] == pytest.approx(419, rel=0.15)


def test_rsc_projection():
    assert mtbf_s(16384, load_fleet("rsc1-a100").per_node_day) / HOUR == pytest.approx(1.8, 0.01)


@pytest.mark.parametrize(
    ("gpus", "fleet", "row"), [(16384, "llama3-h100", "l3-ettr"), (12288, "general", "ms-ettr")]
)
def test_effective_time_is_above_the_printed_bound(gpus, fleet, row):
    assert FAILURES[row]["value"] == ">0.90"
    assert expected(gpus, fleet).goodput.goodput_frac > 0.90


def test_byterobust_dense_job():
    """175 incidents in three months, effective time up to 0.97."""
    run = expected(9600, "byterobust-hopper")
    assert run.goodput.goodput_frac == pytest.approx(0.97, abs=0.01)
    assert interruptions(91 * DAY, run.goodput.mtbf_s) == pytest.approx(175, rel=0.02)


def test_bloom_loses_more_than_the_best_interval_would():
    """BLOOM: 40 s a save, one failure a week, saves every 3 h; Young gives 1.9 h."""
    week = 7 * DAY
    used = 1 - effective_frac(3 * HOUR, 40, 0, week)
    best = 1 - effective_frac(young_interval_s(40, week), 40, 0, week)
    assert (round(100 * used, 2), round(100 * best, 2)) == (1.26, 1.15)


def test_a_minute_of_blocking_is_out_of_reach_at_llama3_scale():
    mean = 2.78 * HOUR
    assert 1 - effective_frac(exact_interval_s(60, mean), 60, 0, mean) == pytest.approx(0.109, 0.05)


CHRONICLES = [  # GPUs, fleet, days of computing, days that it took
    (384, "bloom-a100", 103.4, 117.5),  # 366B tokens at 150 TFLOP/s; 1,082,990 hours of 384 A100
    (992, "opt-a100", 33.0, 62.0),  # 5 November 2021 to 6 January 2022, metaseq chronicles
    (16384, "llama3-h100", 48.6, 54.0),  # more than 90 % of 54 days
    (9600, "byterobust-hopper", 88.3, 91.0),  # up to 0.97 of three months
]


def test_the_range_holds_what_published_chronicles_lost():
    """All but OPT-175B, which lost more than nine in ten did: the range is an 80 % one."""
    missed = []
    for n_gpus, fleet, computed, took in CHRONICLES:
        asked = Checkpoint(params=175e9, gpus=n_gpus, fleet=fleet)
        ideal_s = computed * DAY
        _, found = life_of(
            asked, load_cluster("dgx-a100"), 175e9 * 14, ideal_s, n_gpus, writers=None
        )
        missed += [] if found.low_s * 0.99 <= took * DAY <= found.high_s else [fleet]
        without = life_of(
            replace(asked, debugging=0.0),
            load_cluster("dgx-a100"),
            1e12,
            ideal_s,
            n_gpus,
            writers=None,
        )[1]
        assert without.high_s < found.high_s and without.expected_s <= found.expected_s
    assert missed == ["opt-a100"]


def test_the_store_is_a_range_by_kind_unless_it_is_said():
    cluster, asked = load_cluster("dgx-h100"), Checkpoint(params=70e9, gpus=64)
    ends = [save_of(asked, cluster, 1e12, 64, None, e).write_s for e in ("high", "write", "low")]
    assert ends == sorted(ends) and ends[2] > 3 * ends[1]
    given = replace(asked, store="8 GB/s")
    assert {save_of(given, cluster, 1e12, 64, None, e).write_s for e in ("high", "low")} == {
        save_of(asked, cluster, 1e12, 64, None).write_s
    }
    kinds = [
        save_of(replace(asked, store=kind), cluster, 1e12, 64, None).write_s
        for kind in ("3fs", "nvme", "lustre", "general", "object")
    ]
    assert kinds == sorted(kinds)


def test_rsc_condition_either_lever_is_enough():
    """arXiv:2410.21680: at the largest projected job, rate 6.5 -> 1 or a write of O(10 s)."""
    slow = RunConditions(16384, 6.5e-3, 300, 0, 300, 300)
    assert goodput(slow).goodput_frac < 0.8
    rare = RunConditions(16384, 1e-3, 300, 0, 300, 300)
    quick = RunConditions(16384, 6.5e-3, 300, 0, 10, 10)
    for met in (rare, quick):
        assert goodput(met).goodput_frac == pytest.approx(0.9, abs=0.025)


TABLE = [  # blocking s, recovery s, ETTR at 1,024 to 131,072 GPUs, 4.21 per 1,000 node-days
    (0.05, 120, (0.998, 0.992, 0.985, 0.972, 0.947, 0.901)),
    (2, 300, (0.993, 0.971, 0.951, 0.916, 0.852, 0.743)),
    (20, 600, (0.981, 0.928, 0.884, 0.810, 0.692, 0.515)),
    (60, 900, (0.967, 0.884, 0.818, 0.713, 0.556, 0.352)),
]


@pytest.mark.parametrize(("blocking", "recovery", "values"), TABLE)
def test_table_of_effective_times(blocking, recovery, values):
    sizes = (1024, 8192, 16384, 32768, 65536, 131072)
    for n, want in zip(sizes, values, strict=True):
        found = goodput(RunConditions(n, 4.21e-3, recovery, 0, blocking, 0)).goodput_frac
        assert round(found, 3) == pytest.approx(want, abs=0.0011)


def simulated(interval, blocking, recovery, mean, work, seed):
    """Elapsed time of `work`, failures drawn one by one; saves and restarts can fail too."""
    draw = random.Random(seed)
    elapsed = done = 0.0
    left = draw.expovariate(1 / mean)
    while done < work:
        need = interval + blocking
        if left >= need:
            left -= need
            elapsed += need
            done += interval
            continue
        elapsed += left
        left = draw.expovariate(1 / mean)
        while left < recovery:
            elapsed += left
            left = draw.expovariate(1 / mean)
        elapsed += recovery
        left -= recovery
    return done / elapsed


@pytest.mark.parametrize(
    ("interval", "blocking", "recovery", "mean"),
    [(1200, 20, 600, 10_000), (600, 60, 900, 5000), (3600, 40, 0, 604_800), (300, 1, 120, 1300)],
)
def test_exact_form_against_simulated_failures(interval, blocking, recovery, mean):
    """80 simulated runs of 300 failures: within three standard errors, which are below 1 %."""
    found = [
        simulated(interval, blocking, recovery, mean, 300 * mean / 4, seed) for seed in range(80)
    ]
    average = sum(found) / len(found)
    assert average == pytest.approx(effective_frac(interval, blocking, recovery, mean), rel=0.01)


@given(st.floats(0.1, 100), st.floats(2000, 1e6), st.floats(0.2, 5.0))
@settings(max_examples=40, deadline=None)
def test_no_interval_is_better_than_the_exact_one(blocking, mean, factor):
    best = exact_interval_s(blocking, mean)
    other = effective_frac(best * factor, blocking, 60, mean)
    assert effective_frac(best, blocking, 60, mean) >= other - 1e-12
    if blocking < mean / 100:
        assert daly_interval_s(blocking, mean) == pytest.approx(best, rel=0.02)


@given(st.floats(60, 600), st.floats(0, 5), st.floats(0, 60))
@settings(max_examples=30, deadline=None)
def test_first_order_meets_the_exact_form_where_failures_are_rare(interval, blocking, recovery):
    exact = effective_frac(interval, blocking, recovery, 1e6)
    assert first_order_frac(interval, blocking, recovery, 1e6) == pytest.approx(exact, rel=1e-3)


@given(st.integers(8, 200_000), st.floats(1e-4, 1e-2), st.floats(0, 2000), st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_parts_of_the_time_add_up(gpus, rate, recovery, blocking):
    g = goodput(RunConditions(gpus, rate, recovery, 10, blocking, blocking, straggler_frac=0.02))
    parts = (g.saving_frac, g.rework_frac, g.recovery_frac, g.straggler_frac, g.debug_frac)
    assert min(parts) >= -1e-9
    assert g.goodput_frac + sum(parts) == pytest.approx(1.0)


@pytest.mark.parametrize(("machines", "want"), [(128, "br-p99-2048"), (512, "br-p99-8192")])
def test_byterobust_spares(machines, want):
    assert spare_machines(machines, 1.4e-3, DAY) == int(FAILURES[want]["value"])


# --- checkpoints -------------------------------------------------------------------------------


def test_checkpoint_sizes():
    """BLOOM prints 2.3 T and 329 G in binary units; DeepSpeed's issue 6598 90 and 15 GiB."""
    bloom = checkpoint_parts(176.2e9)
    assert bloom.weights_bytes / 2**30 == pytest.approx(329, rel=0.03)
    assert bloom.total_bytes / 2**40 == pytest.approx(2.3, rel=0.03)
    llama = checkpoint_parts(8.03e9)
    assert llama.weights_bytes / 2**30 == pytest.approx(15, rel=0.03)
    assert (llama.master_bytes + llama.optimizer_bytes) / 2**30 == pytest.approx(90, rel=0.03)


SAVES = [  # row, parameters, GPUs, saver, store byte/s, seconds
    ("bloom-save", 176.2e9, 384, "sync", 57.5e9, 40.0),
    ("br-ck-70b-2048-megatron", 70e9, 2048, "sync", 432e9, 6.77),
    ("br-ck-70b-4096-megatron", 70e9, 4096, "sync", 432e9, 7.14),
    ("br-ck-256b-16384-megatron", 256e9, 16384, "sync", 432e9, 12.98),
    ("br-ck-256b-8192-in-memory", 256e9, 8192, "memory", 432e9, 0.22),
    ("br-ck-256b-16384-in-memory", 256e9, 16384, "memory", 432e9, 0.18),
    ("br-ck-70b-2048-byterobust", 70e9, 2048, "memory-overlapped", 432e9, 0.04),
    ("br-ck-70b-4096-byterobust", 70e9, 4096, "memory-overlapped", 432e9, 0.03),
    ("dcp-async", 7e9, 128, "dcp-async", 98e9 / 148.8, 6.3),
]


@pytest.mark.parametrize(("row", "params", "gpus", "saver", "store", "seconds"), SAVES)
def test_blocking_time_within_half(row, params, gpus, saver, store, seconds):
    assert row in CHECKPOINTS
    total = checkpoint_parts(params).total_bytes
    found = save_time(total, gpus, gpus // 8, load_saver(saver), Store(store, store))
    assert seconds / 1.5 < found.blocking_s < 1.5 * seconds


def test_llama3_store():
    """405B at 14 byte and 2 TB/s: 2.8 s; 1 MB to 4 GB a GPU."""
    total = checkpoint_parts(405e9).total_bytes
    found = save_time(total, 16384, 2048, Saver("x", "blocking"), Store(2e12, 2e12))
    assert found.write_s == pytest.approx(2.8, rel=0.02)
    assert 1e6 < found.bytes_per_gpu < 4e9


# --- power, carbon, money ----------------------------------------------------------------------

POWER = [  # cluster, measured AC W of a node, source
    ("dgx-b200", 9694, "MLPerf Training v5.0 bert, Lenovo"),
    ("dgx-b200", 9571, "MLPerf Training v5.0 llama2_70b_lora, Lenovo"),
    ("dgx-b200", 9564, "MLPerf Training v5.0 retinanet, Lenovo"),
    ("dgx-b200", 10044, "MLPerf Training v5.0 stable_diffusion, Lenovo"),
    ("dgx-h100", 7024, "MLPerf Training v4.1, mean with start and end, Dell"),
    ("dgx-h100", 7752, "arXiv:2506.14551"),
    ("dgx-a100", 4200, "arXiv:2408.14158 table II"),
    ("pcie-a100-40gb-8", 2500, "arXiv:2408.14158 table II"),
]


def test_node_power_mean_error():
    errors = [abs(load_draw(load_cluster(name)).work_w / w - 1) for name, w, _ in POWER]
    assert sum(errors) / len(errors) < 0.10


@pytest.mark.parametrize(("name", "watts", "source"), POWER)
def test_node_power_inside_its_range(name, watts, source):
    draw = load_draw(load_cluster(name))
    assert draw.work_w * draw.low_frac <= watts * 1.01, source
    assert draw.work_w * draw.high_frac >= watts * 0.99, source


CARDS = [  # t CO2e, GPU-hours, W, by the card's own accounting: TDP of the GPUs alone
    ("Llama 2 7B", 31.22, 184_320, 400),
    ("Llama 2 70B", 291.42, 1_720_320, 400),
    ("Llama 3.1 8B", 420, 1_460_000, 700),
    ("Llama 3.1 70B", 2040, 7_000_000, 700),
    ("Llama 3.1 405B", 8930, 30_840_000, 700),
    ("Llama 4 Scout", 1354, 5_000_000, 700),
    ("Llama 4 Maverick", 645, 2_380_000, 700),
]


@pytest.mark.parametrize(("model", "tonnes", "hours", "watts"), CARDS)
def test_emissions_of_model_cards(model, tonnes, hours, watts):
    site = load_site("us", pue=1.09)
    node = Draw(watts * 8.0, 0.0, 1.0, 1.0, 8)
    found = charge(hours * HOUR, 1, None, node, site)
    assert found.carbon_kg / 1e3 == pytest.approx(tonnes, rel=0.05)


def test_emissions_of_bloom_and_gpt3():
    """433.2 MWh at 57 g/kWh, 24.7 t; 1287 MWh at 429 g/kWh, 552.1 t (arXiv:2104.10350)."""
    assert carbon_kg(433.2e3 * 3.6e6, 57) / 1e3 == pytest.approx(24.7, rel=0.01)
    assert carbon_kg(1287e3 * 3.6e6, 429) / 1e3 == pytest.approx(552.1, rel=0.01)
    assert load_site("france").grid_g_per_kwh == pytest.approx(57, rel=0.02)


def test_money_adds_up_and_scales():
    rate = Rate(2.0, 1.0, 4.0, "given")
    one, two = charge(HOUR, 8, rate, tokens=1e6), charge(2 * HOUR, 8, rate, tokens=2e6)
    assert (one.usd, one.usd_low, one.usd_high) == (16.0, 8.0, 32.0)
    assert two.usd == 2 * one.usd
    assert two.usd_per_million_tokens == one.usd_per_million_tokens == 16.0
    assert one.energy_j is None and one.carbon_kg is None


OWNED = Owned(310e3, 4e6, node_power_w=8e3, interest=0.08, usd_per_kwh=0.1, pue=1.3)


@given(st.floats(0.3, 1.0), st.floats(0.5, 20.0))
@settings(max_examples=30, deadline=None)
def test_break_even_is_where_owning_costs_the_rent(utilisation, rent):
    share = break_even_utilisation(OWNED, 1024, 8, rent)
    if share <= 1:
        at = replace(OWNED, utilisation=share)
        assert own_cost(at, 1024, 8).total_usd_per_gpu_hour == pytest.approx(rent)


def test_own_parts_add_up():
    found = own_cost(OWNED, 1024, 8)
    parts = (found.capital_usd, found.energy_usd, found.colocation_usd, found.staff_usd)
    assert found.total_usd_per_gpu_hour == pytest.approx(sum(parts) + found.maintenance_usd)
