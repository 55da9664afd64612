"""Parts of a plan: batch, pins, reasons, remedies, scans, serving times."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.habits import ANY
from gpuscale.core.layout import Layout
from gpuscale.core.limits.board import LimitRow
from gpuscale.core.model.params import experts_met_frac
from gpuscale.core.plan.pins import FLAGS, pin_space, why_empty
from gpuscale.core.plan.records import (
    TOLERANCE,
    ScanRow,
    estimate,
    host_bytes_per_node,
    run_of,
    sequences_for,
)
from gpuscale.core.plan.scan import (
    Conditions,
    choose,
    shortfalls,
    why_worse,
    with_efficiency,
    with_pareto,
)
from gpuscale.core.plan.sensitivity import find_remedies, most_headroom, sensitivity
from gpuscale.core.rules import against, facts_of
from gpuscale.core.search.engine import search
from gpuscale.core.search.results import Counts
from gpuscale.core.search.space import default_space, grids
from gpuscale.core.serving.replica import ServingJob, serving_times, weights_read_bytes
from gpuscale.core.words import STEP_PARTS
from gpuscale.io.hardware import load_cluster
from gpuscale.io.jobs import make_problem
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software


def problem_of(model="llama3-8b", cluster="dgx-h100", n_gpus=16, batch=64, seq_len=8192):
    spec = load_model(model).spec
    facts = facts_of(spec, seq_len, batch, n_gpus)
    return make_problem(spec, load_cluster(cluster), load_software(), facts)


def space_of(problem, **pins):
    space = default_space(problem.facts, problem.hardware.scaleup_domain_gpus)
    return pin_space(space, pins, problem.facts)[0]


@given(st.floats(1, 1e10), st.integers(1, 1 << 20))
def test_batch_is_within_tolerance_or_the_nearest_whole_number(tokens, seq_len):
    n, exact = sequences_for(tokens, seq_len), tokens / seq_len
    assert n >= 1
    assert abs(n / exact - 1) <= TOLERANCE or abs(n - exact) <= 1


@given(st.floats(1, 1e10), st.integers(1, 1 << 15), st.integers(1, 4096), st.integers(1, 200))
def test_a_batch_is_whole_micro_batches(tokens, seq_len, n_gpus, micro_batch):
    n = sequences_for(tokens, seq_len, n_gpus=n_gpus, micro_batch=micro_batch)
    assert n >= micro_batch and n % micro_batch == 0
    assert abs(n / (tokens / seq_len) - 1) <= TOLERANCE or abs(n - tokens / seq_len) <= micro_batch


@pytest.mark.parametrize(
    ("tokens", "seq_len", "want"),
    [
        (4e6, 8192, 512),
        (16e6, 8192, 2048),
        (16e6, 131072, 128),
        (62914560, 4096, 15360),
        (3.2e6, 2048, 1536),
    ],
)
def test_batches_of_real_runs(tokens, seq_len, want):
    assert sequences_for(tokens, seq_len) == want


def test_facts_of_models():
    facts = facts_of(load_model("deepseek-v3").spec, 4096, 15360, 2048)
    assert (facts.n_experts, facts.expert_widths, facts.head_counts) == (256, (2048,), (128,))
    assert set(facts.ffn_widths) == {18432, 2048}
    dense = facts_of(load_model("llama3-70b").spec, 8192, 512, 4096)
    assert (dense.n_experts, dense.kv_head_counts, dense.ffn_widths) == (0, (8,), (28672,))


PINS = st.fixed_dictionaries(
    {},
    optional={
        "tp": st.sampled_from(["1", "2", "2,4", "1..8", "8"]),
        "pp": st.sampled_from(["1", "2", "1..4"]),
        "cp": st.sampled_from(["1", "1,2", "2"]),
        "zero": st.sampled_from(["0", "1", "1,3", "3", "0..2"]),
        "micro_batch": st.sampled_from(["1", "2", "1..4"]),
        "recompute": st.sampled_from(["none", "full", "none,selective"]),
        "schedule": st.sampled_from(["1f1b", "zb-h1", "all"]),
        "sequence_parallel": st.sampled_from(["on", "off", "both"]),
        "overlap_dp": st.sampled_from(["on", "off"]),
        "offload": st.sampled_from(["none", "optimizer"]),
    },
)


@settings(max_examples=25, deadline=None)
@given(PINS)
def test_what_is_found_obeys_the_pins_and_the_rules(pins):
    problem = problem_of()
    space = default_space(problem.facts, 8)
    pinned, _ = pin_space(space, pins, problem.facts)
    result = search(problem, pinned, 2)
    if result.counts.declared == 0:
        assert why_empty(pinned, problem.facts)
        return
    layouts = [f.layout for f in (*result.families.values(), *result.next_best)]
    for layout in layouts:
        assert against(layout, problem.facts) is None
        assert layout.tp in pinned.tp
        assert layout.pp in pinned.pp
        assert layout.zero_stage in pinned.zero_stage
        assert layout.micro_batch_size in pinned.micro_batch_size
        assert layout.recompute in pinned.recompute
        assert layout.offload_optimizer in pinned.offload_optimizer


def test_search_and_estimate_agree():
    problem = problem_of(n_gpus=64, batch=128)
    result = search(problem, space_of(problem), 3)
    for found in (*result.families.values(), *result.next_best):
        one = estimate(problem, found.layout)
        assert one.step_s == pytest.approx(found.step_s, rel=1e-9)
        assert one.peak_bytes == pytest.approx(found.peak_bytes, rel=1e-9)
        assert one.fits


def test_search_and_estimate_agree_in_fp8():
    spec = load_model("qwen3-30b-a3b").spec
    facts = facts_of(spec, 4096, 256, 32)
    problem = make_problem(spec, load_cluster("dgx-h100"), load_software(), facts, "fp8")
    found = search(problem, default_space(facts, 8, "fp8"), 1).best
    one = estimate(problem, found.layout)
    assert (one.step_s, one.peak_bytes) == pytest.approx((found.step_s, found.peak_bytes))


BAD_PINS = [
    ({"tp": "7"}, "tp=7 does not divide 16 GPUs"),
    ({"pp": "64"}, "pp=64 does not divide 16 GPUs"),
    ({"tp": "x"}, "--tp: 'x' is no whole number"),
    ({"tp": "8..4"}, "--tp: range '8..4' is empty"),
    ({"zero": "4"}, "zero=4 is not one of 0, 1, 2, 3"),
    ({"ep": "2"}, "ep and etp need a model with experts"),
    ({"schedule": "gpipe2"}, "--schedule: 'gpipe2' is not one of"),
    ({"overlap_tp": "maybe"}, "--overlap-tp: 'maybe' is not one of on, off, both"),
    ({"vpp": "2", "schedule": "1f1b"}, "--vpp above 1 needs --schedule interleaved"),
    ({"dp": "3"}, "dp=3 does not divide 16 GPUs"),
    ({"micro_batch": "48"}, "micro_batch_size=48 does not divide the global batch"),
]


@pytest.mark.parametrize(("pins", "message"), BAD_PINS)
def test_impossible_pins_say_why(pins, message):
    problem = problem_of()
    with pytest.raises(ValueError) as error:  # noqa: PT011
        space_of(problem, **pins)
    assert message in str(error.value)


EMPTY = [
    ({"tp": "8", "pp": "4"}, "tp*cp*pp=32 does not divide 16 GPUs"),
    ({"tp": "8", "pp": "2", "dp": "2"}, "tp*pp*dp=32 does not divide 16 GPUs"),
    ({"zero": "2", "pp": "4"}, "zero 2 with a pipeline"),
    ({"schedule": "dualpipe", "pp": "1"}, "dualpipe needs pp > 1"),
]


@pytest.mark.parametrize(("pins", "message"), EMPTY)
def test_pins_that_do_not_go_together_say_why(pins, message):
    problem = problem_of()
    space = space_of(problem, **pins)
    assert search(problem, space).counts.declared == 0
    assert message in why_empty(space, problem.facts)


def test_impossible_values_of_a_list_are_left_out_and_told():
    problem = problem_of()
    space, left_out = pin_space(default_space(problem.facts, 8), {"tp": "3,8"}, problem.facts)
    assert space.tp == (8,)
    assert left_out == ("left out: tp=3 does not divide 16 GPUs",)


def test_a_number_of_replicas_says_nothing_of_their_sharding():
    problem = problem_of()
    assert space_of(problem, dp="2").zero_stage == default_space(problem.facts, 8).zero_stage
    assert {g.dp for g in grids(space_of(problem, dp="2"), problem.facts)} == {2}


@pytest.mark.parametrize("group", [4, 8, 16])
def test_a_shard_group_is_that_and_nothing_else(group):
    problem = problem_of(n_gpus=16, batch=64)
    space = space_of(problem, shard_group=str(group), tp="1", pp="1", cp="1")
    layout = search(problem, space, 0).best.layout
    assert layout.zero_stage == 3
    assert layout.shard_group_size == (group if group < 16 else None)  # all ranks: FSDP


def test_recomputed_layers_are_that_many():
    problem = problem_of(n_gpus=16, batch=64)
    best = search(problem, space_of(problem, recompute_layers="5", pp="2"), 0).best.layout
    assert (best.recompute, best.recompute_layers) == ("full", 5)
    best = search(problem, space_of(problem, recompute_layers="32", pp="2"), 0).best.layout
    assert (best.recompute, best.recompute_layers) == ("full", None)  # all of a stage


def test_every_flag_can_be_pinned():
    problem = problem_of("qwen3-30b-a3b", seq_len=4096, batch=16)
    switches = ("sequence_parallel", "overlap_tp", "overlap_dp", "overlap_pp")
    texts = (
        dict.fromkeys(FLAGS, "1")
        | dict.fromkeys(switches, "on")
        | {
            "cp_kind": "ring",
            "recompute": "full",
            "schedule": "1f1b",
            "offload": "none",
            "order": "tp-cp-pp-dp",
            "shard_group": "8",
            "zero": "3",
            "vpp": "1",
            "dp": "16",  # one sequence a rank
        }
    )
    for flag, text in texts.items():
        assert pin_space(default_space(problem.facts, 8), {flag: text}, problem.facts)


def two_estimates():
    problem = problem_of(n_gpus=16, batch=64)
    best = estimate(problem, Layout(8192, 64, tp=2, dp=8))
    worse = estimate(problem, Layout(8192, 64, tp=8, dp=2))
    return problem, best, worse


def test_why_names_the_part_that_grew():
    _, best, worse = two_estimates()
    assert worse.step_s > best.step_s
    assert why_worse(worse, best).startswith("TP communication ")


def test_why_names_an_exceeded_limit():
    _, best, worse = two_estimates()
    row = LimitRow(
        "tp", 8, True, 1.0, 2.5, "degree", 8.0, 3.2, "<=", None, "communication", 2.5, ""
    )
    assert why_worse(worse, best, [row]) == "communication-bound 2.5x: TP 8 against at most 3.2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "cluster", "n_gpus"),
    [("llama3-8b", "dgx-a100", 32), ("llama3-70b", "dgx-h100", 64), ("mixtral-8x7b", "aws-p5", 16)],
)
def test_reasons_name_what_makes_the_difference(model, cluster, n_gpus):
    """Never a part under 4 % of the step, and of the parts the one that grew most."""
    problem = problem_of(model, cluster, n_gpus=n_gpus, batch=64)
    found = search(problem, space_of(problem), 6)
    layouts = {f.layout for f in (*found.families.values(), *found.next_best)}
    best, said = estimate(problem, found.best.layout), 0
    for worse in (estimate(problem, y) for y in layouts - {found.best.layout}):
        for one, other in ((worse, best), (best, worse)):
            text = why_worse(one, other)
            mine, total = one.step.expected.parts(), one.step_s
            theirs = other.step.expected.parts()
            grown = {n: mine[n] - theirs[n] for n in mine if n != "straggler_s"}
            most = max(grown, key=grown.get)
            named = [n for n, words in STEP_PARTS.items() if text.startswith(words + " ")]
            if named:
                said += 1
                assert named == [most]
                assert total > other.step_s
                assert mine[most] >= 0.04 * total
            elif text.startswith("as fast"):
                assert total <= 1.05 * other.step_s
            else:
                assert "together" in text
                assert mine[most] < 0.04 * total
    assert said


def test_why_says_by_how_much_it_does_not_fit():
    problem, best, _ = two_estimates()
    whole = estimate(problem, Layout(8192, 64, micro_batch_size=8, dp=8, zero_stage=0))
    assert not whole.fits
    over = (whole.peak_bytes - problem.capacity_bytes) / 1e9
    assert why_worse(whole, best) == f"does not fit by {over:,.1f} GB"


def test_sensitivity_is_a_step_computed_again():
    problem = problem_of(n_gpus=16, batch=64)
    layout = Layout(8192, 64, tp=4, dp=4)
    base = estimate(problem, layout).step_s
    effects = {e.figure: e for e in sensitivity(problem, layout)}
    faster = replace(problem.hardware, bf16_flop_per_s=1.2 * problem.hardware.bf16_flop_per_s)
    again = estimate(replace(problem, hardware=faster), layout).step_s
    assert effects["FLOP/s"].expected_s == pytest.approx(again)
    assert effects["FLOP/s"].gain_frac == pytest.approx(1 - again / base)
    assert all(e.gain_frac >= -1e-12 for e in effects.values())
    assert effects["host link"].gain_frac == 0.0


def test_most_headroom():
    problem = problem_of(n_gpus=16, batch=64)
    space = space_of(problem)
    best = search(problem, space, 0).fastest
    roomy = most_headroom(problem, space, best)
    assert roomy.step_s <= 1.05 * best.step_s
    assert roomy.peak_bytes <= best.peak_bytes


def test_remedies_fit():
    problem = problem_of("llama3-70b", n_gpus=32, batch=64)
    pins = {"tp": "2", "zero": "0", "pp": "1", "cp": "1"}
    space = default_space(problem.facts, 8)
    pinned, _ = pin_space(space, pins, problem.facts)
    assert search(problem, pinned, 0).best is None
    closest = estimate(problem, Layout(8192, 64, tp=2, dp=16, zero_stage=0, recompute="full"))
    remedies = find_remedies(problem, space, pins, closest)
    searched = [r for r in remedies if r.step_s is not None and r.n_gpus == 32][:-1]
    assert searched
    for remedy in searched:
        assert estimate(problem, remedy.layout).fits
    hbm = float(remedies[-1].change.split()[2].replace(",", ""))
    assert hbm * 1e9 * 0.989 == pytest.approx(closest.peak_bytes, rel=1e-2)


def row(**changes):
    base = ScanRow(
        "c",
        8,
        8192,
        64,
        True,
        True,
        Layout(8192, 64),
        1.0,
        0.5,
        0.4,
        1e5,
        1e4,
        5e10,
        8e10,
        10.0,
        10.0,
        1e4,
        2e4,
        1e6,
        None,
        False,
        "",
        Counts(),
    )
    return replace(base, **changes)


def test_shortfalls():
    assert shortfalls(row(), Conditions(11 * 86400, 3e4, 0.3, 2.0)) == []
    assert shortfalls(row(), Conditions(9 * 86400, None, None, None)) == ["10.0 days > 9 days"]
    assert shortfalls(row(usd=None), Conditions(None, 1.0, None, None))[0].startswith("no price")
    assert len(shortfalls(row(fits=False, peak_bytes=9e10), Conditions(86400, 1.0, 0.9, 0.1))) == 5


def test_choices_of_a_scan():
    small = row(n_gpus=8, tokens_per_s=1e5, tokens_per_usd=2e6)
    large = row(n_gpus=16, tokens_per_s=1.9e5, tokens_per_usd=1.9e6, peak_bytes=2e10)
    no = row(n_gpus=4, fits=False)
    rows = [no, small, large]
    assert choose(rows, "step-time", "") is large
    assert choose(rows, "step-time", "fewest") is small
    assert choose(rows, "tokens-per-dollar", "") is small
    assert choose(rows, "memory-headroom", "") is large
    assert choose(rows, "fewest-gpus", "fewest") is small
    assert choose([no], "step-time", "") is None
    dominated = row(n_gpus=32, tokens_per_s=1.8e5, tokens_per_usd=1e6)
    assert [r.pareto for r in with_pareto([*rows, dominated])] == [False, True, True, False]


def test_efficiency_is_relative_to_the_first_that_fits():
    rows = [row(fits=False), row(tokens_per_s_per_gpu=1e4), row(tokens_per_s_per_gpu=8e3)]
    assert [r.scaling_efficiency for r in with_efficiency(rows)] == [None, 1.0, 0.8]


def test_run_adds_up():
    run = run_of(2.0, 4e6, 1024, 1e12, 2.0)
    assert run.gpu_hours == pytest.approx(1024 * run.time_s / 3600)
    assert run.usd == pytest.approx(2.0 * run.gpu_hours)
    assert run_of(2.0, 4e6, 1024, 1e12, None).usd is None


def test_dense_decode_reads_all_but_the_embedding():
    model = load_model("llama3-70b").spec
    read = weights_read_bytes(model, "bf16", 1)
    assert read == pytest.approx(2 * (70.55e9 - 128256 * 8192), rel=1e-3)
    assert weights_read_bytes(model, "bf16", 64) == read


def test_moe_decode_reads_active_weights_for_one_token_and_all_for_many():
    model = load_model("deepseek-v3").spec
    one, many = (weights_read_bytes(model, "fp8", n) for n in (1, 4096))
    assert one == pytest.approx(37.5e9, rel=0.05)  # DeepSeek-V3 report: 37B active, head in bf16
    assert many == pytest.approx(671e9, rel=0.01)
    assert experts_met_frac(256, 8, 1) == 8 / 256


def test_serving_times_are_the_documents_roofline():
    model = load_model("llama3-70b").spec
    job = ServingJob("bf16", "bf16", 4096, 1)
    times = serving_times(model, job, 8, 1, 3.35e12, 990e12)
    assert times.decode_bound == "memory"
    assert times.decode_s == pytest.approx(times.decode_read_bytes / (8 * 3.35e12))
    assert times.prefill_s == pytest.approx(times.prefill_flop / (8 * 990e12))
    assert times.prefill_flop == pytest.approx(5.95e14, rel=0.05)  # 2 P s + 2 s^2 h L, causal


def test_experts_lie_on_the_data_ranks_of_each_grid():
    """EP 16 over data ranks alone: with CP 2 eight of them are left, too few."""
    soft = replace(ANY, name="X", experts_over_data=True)
    problem = problem_of("qwen3-30b-a3b", n_gpus=16, batch=64)
    facts = replace(problem.facts, runs_on=soft)
    space, _ = pin_space(default_space(facts, 8), {"ep": "16", "tp": "1", "pp": "1"}, facts)
    result = search(replace(problem, facts=facts), replace(space, cp=(1, 2)), 4)
    assert result.best is not None
    for found in (*result.families.values(), *result.next_best):
        assert against(found.layout, facts) is None


def test_states_of_a_node_on_its_host():
    """Master weights and two moments of fp32 for each of 8.03 billion parameters, once."""
    problem = problem_of(n_gpus=8, batch=64)
    layout = Layout(8192, 64, dp=8, zero_stage=1, offload_optimizer=True)
    assert host_bytes_per_node(problem, layout) == pytest.approx(12 * 8.03e9, rel=1e-3)
    assert host_bytes_per_node(problem, replace(layout, offload_optimizer=False)) == 0.0
