"""Scans and pins: against brute force and by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.habits import ANY
from gpuscale.core.layout import Layout
from gpuscale.core.plan.pins import pin_space, why_empty
from gpuscale.core.plan.records import ScanRow
from gpuscale.core.plan.scan import (
    Conditions,
    choose,
    cost_of,
    excess,
    least_gpus,
    shortfalls,
    with_efficiency,
    with_pareto,
)
from gpuscale.core.plan.sensitivity import trials
from gpuscale.core.rules import RuleFacts
from gpuscale.core.search.results import Counts
from gpuscale.core.search.space import default_space

# --- a scan --------------------------------------------------------------------------------------

ROW = ScanRow(
    cluster="a", n_gpus=8, seq_len=4096, global_batch_size=64, fits=True, meets=True,
    layout=Layout(4096, 64), step_s=2.0, roofline_s=1.0, mfu=0.4, tokens_per_s=800.0,
    tokens_per_s_per_gpu=100.0, peak_bytes=60e9, capacity_bytes=80e9, ideal_days=9.0, days=10.0,
    gpu_hours=1.0, usd=2e6, tokens_per_usd=50.0, scaling_efficiency=None, pareto=False,
    why_not="", counts=Counts(),
)  # fmt: skip
DAY = 86400.0


def test_conditions_at_their_edges():
    assert shortfalls(ROW, Conditions(10 * DAY, 2e6, 0.4, 2.0)) == []
    assert shortfalls(ROW, Conditions()) == []
    assert shortfalls(ROW, Conditions(9.9 * DAY, None, None, None)) == ["10.0 days > 9.9 days"]
    assert shortfalls(ROW, Conditions(None, 1.9e6, None, None)) == ["2.00 MUSD > 1.90 MUSD"]
    assert shortfalls(ROW, Conditions(None, None, 0.41, None)) == ["MFU 40.0 % < 41 %"]
    assert shortfalls(ROW, Conditions(None, None, None, 1.9)) == ["step 2 s > 1.9 s"]
    unknown = replace(ROW, days=None, usd=None)
    assert shortfalls(unknown, Conditions(DAY, 1e6, None, None)) == [
        "no token budget > 1 days",
        "no price > 1.00 MUSD",
    ]
    over = replace(ROW, fits=False, peak_bytes=85e9)
    assert shortfalls(over, Conditions()) == ["does not fit by 5.0 GB"]
    unsafe = replace(ROW, fits=False, peak_bytes=79e9)
    assert "upper end" in shortfalls(unsafe, Conditions())[0]


def test_the_condition_that_is_missed_by_most():
    missed = Conditions(5 * DAY, 1.5e6, 0.6, 1.6)  # 2, 1.333, 1.5 and 1.25 times over
    assert excess(ROW, missed) == 2.0
    assert excess(ROW, Conditions()) == 1.0 and excess(ROW, Conditions(20 * DAY)) == 1.0
    assert excess(ROW, Conditions(budget_usd=1e6)) == 2.0
    assert excess(ROW, Conditions(mfu_at_least=0.6)) == pytest.approx(1.5)
    assert excess(ROW, Conditions(max_step_s=1.6)) == 1.25
    assert excess(replace(ROW, days=None, usd=None), missed) == pytest.approx(1.5)
    assert excess(replace(ROW, fits=False), Conditions()) == float("inf")


def test_gpus_of_a_deadline():
    """Llama 3 405B at the peak: 3.8e25 FLOP at 989 TFLOP/s in 54 days are 8,236 GPUs."""
    assert least_gpus(15.6e12, 6 * 405e9, 989e12, 54 * DAY) == pytest.approx(8216, rel=2e-3)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.booleans()), max_size=12))
def test_what_no_other_beats(points):
    """Speed and price of a token: a row stays unless another is as good in both, better in one."""
    rows = [
        replace(ROW, tokens_per_s=float(speed), tokens_per_usd=1.0 / cost, fits=fits)
        for speed, cost, fits in points
    ]
    for row, (speed, cost, fits) in zip(with_pareto(rows), points, strict=True):
        beaten = any(
            s >= speed and c <= cost and (s, c) != (speed, cost) for s, c, ok in points if ok
        )
        assert row.pareto == (fits and not beaten)


def test_cost_without_a_price_is_gpu_seconds():
    assert cost_of(ROW) == 1 / 50 and cost_of(replace(ROW, tokens_per_usd=None)) == 8 / 800


def test_efficiency_is_relative_to_the_smallest_that_fits():
    rows = [
        replace(ROW, n_gpus=16, tokens_per_s_per_gpu=90.0),
        replace(ROW, n_gpus=4, tokens_per_s_per_gpu=120.0, fits=False),
        ROW,
        replace(ROW, cluster="b", n_gpus=32, tokens_per_s_per_gpu=50.0),
        replace(ROW, cluster="c", fits=False),
    ]
    assert [r.scaling_efficiency for r in with_efficiency(rows)] == [0.9, None, 1.0, 1.0, None]


def test_the_row_that_answers():
    small = replace(ROW, n_gpus=4, tokens_per_s=500.0, tokens_per_usd=40.0, peak_bytes=70e9)
    large = replace(ROW, n_gpus=16, tokens_per_s=900.0, tokens_per_usd=60.0, peak_bytes=75e9)
    off = replace(ROW, n_gpus=2, tokens_per_s=9e9, tokens_per_usd=9e9, peak_bytes=0.0)
    rows = [replace(off, fits=False), small, ROW, large, replace(off, meets=False)]
    assert choose(rows, "step-time") is large and choose(rows, "tokens-per-dollar") is large
    assert choose(rows, "memory-headroom") is ROW
    assert choose(rows, "step-time", "fewest") is small
    assert choose(rows, "step-time", "most") is large
    assert choose(rows, "step-time", "fastest") is large
    slower = replace(large, n_gpus=32, tokens_per_s=850.0)
    assert choose([slower, *rows], "step-time", "most") is slower
    assert choose([slower, *rows], "step-time", "fastest") is large
    assert choose(rows[:1], "step-time") is None
    twins = [ROW, replace(ROW, tokens_per_s=801.0)]
    assert all(choose(twins, "step-time", size) is twins[1] for size in ("fewest", "most", ""))
    assert choose(twins, "tokens-per-dollar") is choose(twins, "memory-headroom") is twins[1]


# --- pins ----------------------------------------------------------------------------------------

FACTS = RuleFacts(32, (32,), (8,), (14336,), (1536,), 8, 8192, 512, 64)
SPACE = default_space(FACTS, 8)


def pinned(facts=FACTS, **pins):
    return pin_space(default_space(facts, 8), pins, facts)


PINS = [  # pins, what they make of the space
    ({"tp": "1,2"}, {"tp": (1, 2)}),
    ({"tp": "2..8"}, {"tp": (2, 4, 8)}),
    ({"pp": "4..16"}, {"pp": (4, 8, 16)}),
    ({"vpp": "4"}, {"vpp": (4,), "schedule": ("interleaved",), "even_chunks": False}),
    ({"vpp": "1"}, {"vpp": ()}),
    ({"vpp": "1,2"}, {"vpp": (2,), "schedule": SPACE.schedule}),
    ({"dp": "8"}, {"dp": (8,), "zero_stage": SPACE.zero_stage}),
    ({"offload": "both"}, {"offload_optimizer": (True,), "offload_activations": (True,)}),
    ({"offload": "activations"}, {"offload_optimizer": (False,), "offload_activations": (True,)}),
    (
        {"offload": "none,optimizer"},
        {"offload_optimizer": (False, True), "offload_activations": (False,)},
    ),
    ({"dp": "8", "zero": "3"}, {"dp": (8,), "zero_stage": (3,)}),
    ({"shard_group": "8"}, {"fsdp": False, "zero_stage": (3,)}),
    ({"shard_group": "8", "dp": "16"}, {"zero_stage": (3,)}),
    ({"recompute": "full"}, {"recompute": ("full",), "recompute_layers": ()}),
    ({"recompute_layers": "4"}, {"recompute": ("full",), "whole_recompute": False}),
    ({"recompute": "full", "recompute_layers": "4"}, {"recompute_layers": (4,)}),
    ({"offload": "optimizer"}, {"offload_optimizer": (True,)}),
    ({"offload": "none"}, {"offload_optimizer": (False,)}),
    ({"offload": "none,optimizer"}, {"offload_optimizer": (False, True)}),
    ({"sequence_parallel": "off"}, {"sequence_parallel": (False,)}),
    ({"sequence_parallel": "both"}, {"sequence_parallel": (True, False)}),
    ({"zero": "0..2"}, {"zero_stage": (0, 1, 2)}),
    ({"recompute_layers": "1..3"}, {"recompute_layers": (1, 2, 3)}),
    ({"recompute_layers": "30..40"}, {"recompute_layers": (30, 31, 32)}),
    ({"dp": "4..16"}, {"dp": (4, 8, 16)}),
]


@pytest.mark.parametrize(("pins", "fields"), PINS, ids=str)
def test_a_pin_says_what_it_means(pins, fields):
    space, left_out = pinned(**pins)
    assert {name: getattr(space, name) for name in fields} == fields
    assert left_out == ()


def test_without_interleaving_one_chunk():
    assert "interleaved" not in pinned(vpp="1")[0].schedule
    assert "interleaved" in SPACE.schedule


LEFT = [
    ({"tp": "2,3"}, "tp=3 does not divide 64 GPUs"),
    ({"pp": "2,5"}, "pp=5 does not divide 64 GPUs"),
    ({"micro_batch": "1,3"}, "micro_batch_size=3 does not divide the global batch of 512"),
    ({"ep": "2,3"}, "ep=3 does not divide 8 experts"),
    ({"etp": "2,5"}, "etp=5 does not divide the expert width 1536"),
    ({"zero": "1,4"}, "zero=4 is not one of 0, 1, 2, 3"),
    ({"shard_group": "8,7"}, "shard_group=7 does not divide 64 GPUs"),
    ({"dp": "8,0"}, "dp must be at least 1"),
    ({"cp": "2,0"}, "cp must be at least 1"),
]


@pytest.mark.parametrize(("pins", "words"), LEFT, ids=str)
def test_impossible_values_are_left_out_and_alone_refused(pins, words):
    _, left_out = pinned(**pins)
    assert len(left_out) == 1 and words in left_out[0]
    ((flag, text),) = pins.items()
    with pytest.raises(ValueError, match=words.split(" of 0")[0]):
        pinned(**{flag: text.split(",")[1]})


SOFT = [
    ({"pp": "2"}, {"pipeline": False}, "no pipeline"),
    ({"schedule": "zb-h1"}, {"schedules": ("1f1b",)}, "no zb-h1 schedule: it has 1f1b"),
    ({"schedule": "zb-h1"}, {"pipeline": False}, "no pipeline parallelism: pp=2"),
    ({"cp_kind": "ring"}, {"cp_kinds": ("ulysses",)}, "no context parallelism by ring"),
    ({"recompute": "full"}, {"recompute": ("none",)}, "no full recompute"),
    ({"recompute_layers": "4"}, {"recompute_layers": False}, "all layers or none"),
    ({"offload": "optimizer"}, {"offload_optimizer": False}, "does not offload"),
    ({"zero": "2"}, {"zero_stages": (0, 1)}, "no ZeRO stage 2"),
    ({"shard_group": "8"}, {"hybrid_shards": False}, "no shard groups"),
    ({"vpp": "3"}, {"uneven_stages": False}, "does not divide 32 layers"),
    ({"cp": "2"}, {"cp_kinds": ()}, "X has no context parallelism: cp=2"),
]


@pytest.mark.parametrize(("pins", "soft", "words"), SOFT, ids=str)
def test_what_a_framework_has_not_cannot_be_pinned(pins, soft, words):
    pinned(**pins)
    with pytest.raises(ValueError, match=words):
        pinned(replace(FACTS, runs_on=replace(ANY, name="X", **soft)), **pins)


def test_pins_that_exclude_each_other():
    with pytest.raises(ValueError, match="--vpp above 1 needs"):
        pinned(vpp="2", schedule="1f1b")
    with pytest.raises(ValueError, match="needs --vpp of at least 2"):
        pinned(vpp="1", schedule="interleaved")
    with pytest.raises(ValueError, match="--sequence-parallel: 'maybe' is not one of"):
        pinned(sequence_parallel="maybe")


EMPTY = [
    ({"tp": "8", "pp": "8", "dp": "2"}, "tp*pp*dp=128 does not divide 64 GPUs"),
    ({"tp": "8", "pp": "4", "dp": "2", "cp": "1", "schedule": "dualpipe", "micro_batch": "64"},
     "DualPipe"),
    ({"tp": "2", "pp": "2", "dp": "2", "cp": "1"}, "leaves cp=8 of 64 GPUs"),
    ({"tp": "2", "micro_batch": "512", "dp": "4,8"}, "does not divide the global batch"),
    # the combination that comes furthest: heads stop TP 8 x CP 8, not the number of GPUs
    ({"tp": "4,8", "cp": "8", "pp": "1,4", "dp": "1", "cp_kind": "ulysses"}, "heads"),
    ({"tp": "4,8", "cp": "8", "pp": "4"}, "tp*cp*pp=128 does not divide 64 GPUs"),
    # one micro-batch on two stages
    ({"tp": "1", "pp": "2", "cp": "1", "micro_batch": "16", "vpp": "2"}, "micro-batches"),
    # 8 and 32 GPUs of a replica leave dp=8 and dp=2; 128 are more than there are, which says more
    ({"tp": "2,8", "pp": "4,16", "cp": "1", "dp": "4"}, "tp*cp*pp=128 does not divide 64 GPUs"),
    ({"tp": "2", "pp": "4"}, "no layout meets all pinned values together"),  # no rule alone
]  # fmt: skip


@pytest.mark.parametrize(("pins", "words"), EMPTY, ids=str)
def test_why_nothing_is_left(pins, words):
    space, _ = pinned(**pins)
    assert words in why_empty(space, FACTS)


def test_experts_split_as_the_attention_is_need_as_many_ranks():
    space, _ = pinned(tp="8", pp="8", cp="1", ep="8")  # eight ranks for eight experts, 8 ways
    assert "ep*etp=64 does not divide tp*cp*dp=8" in why_empty(replace(space, etp=(0,)), FACTS)


def test_a_pipeline_that_could_run_is_not_the_reason():
    """DualPipe has its 256 micro-batches: what is left over is ZeRO-2 beside stages."""
    facts = replace(FACTS, runs_on=replace(ANY, zero_pipeline=(0, 1), zero_pipeline_asked=()))
    space, _ = pinned(facts, schedule="dualpipe", pp="4", zero="2", micro_batch="1")
    assert "zero 2 with a pipeline" in why_empty(space, facts)


SHARDED = [
    ({}, False),
    ({"zero": "1"}, True),
    ({"zero": "0,1"}, False),
    ({"zero": "1", "dp": "1"}, False),
    ({"zero": "1", "tp": "8", "pp": "8"}, False),
    ({"zero": "1", "tp": "4,8", "pp": "8"}, True),
    ({"zero": "1", "tp": "8", "pp": "4,8"}, True),
]


@pytest.mark.parametrize(("pins", "shares"), SHARDED, ids=str)
def test_a_stage_that_is_asked_for_shards_where_ranks_are_left(pins, shares):
    assert pinned(**pins)[0].sharded == shares
    assert not pinned(replace(FACTS, global_batch_size=1), **pins)[0].sharded


def test_a_range_of_expert_tensor_parallelism():
    assert pinned(etp="1..4")[0].etp == (1, 2, 4) and pinned(etp="8..512")[0].etp == (8, 16, 32, 64)


def test_changes_that_might_help():
    said = [text.split(":")[0] for text, _ in trials({"tp": "8", "offload": "none"})]
    assert said == ["--tp left free", "--offload left free", "every dimension left free"]
    assert trials({}) == [("--offload optimizer: its states on the host", {"offload": "optimizer"})]
    assert [c for _, c in trials({"dp": "8", "zero": "1"})] == [
        {"dp": "8", "zero": "1", "offload": "optimizer"},
        {"zero": "1"},
        {"dp": "8"},
        {},
    ]
