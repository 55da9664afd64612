"""The step model obeys physics: parts add up, the ideal bounds, better hardware never slows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from products import expected_matmul_time_s

from gpuscale.core.layout import Layout
from gpuscale.core.network.expected import RankGroup, group_time_s
from gpuscale.core.step.data_parallel import Shards, replicated_s
from gpuscale.core.step.ideal import ideal_hardware, ideal_software
from gpuscale.core.step.layer import layer_time
from gpuscale.core.step.operators import linear_s, matmul_s
from gpuscale.core.step.parallel_comm import all_to_all_s, gather_s, split_group
from gpuscale.core.step.records import PARTS, Hardware, Software, StageTimes, exposed_s, pipeline_s
from gpuscale.core.step.step import breakdown, shape_of, step_time
from gpuscale.io.hardware import load_cluster
from gpuscale.io.presets import preset_names
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step import step_hardware
from gpuscale.specs.model import ModelSpec

CLUSTERS = ("dgx-a100", "dgx-h100", "dgx-b200", "gb200-nvl72", "aws-p5")
FAMILIES = tuple(preset_names("software"))


def model(layers: int = 16, *, moe: bool = False, mla: bool = False) -> ModelSpec:
    mixer = {"kind": "attention", "n_heads": 32, "n_kv_heads": 8, "head_dim": 128}
    if mla:
        mixer = {
            "kind": "mla",
            "n_heads": 32,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        }
    ffn = {"kind": "dense", "ffn_hidden_size": 14336}
    if moe:
        ffn = {"kind": "moe", "n_experts": 64, "top_k": 8, "expert_ffn_hidden_size": 1536}
    return ModelSpec.model_validate(
        {
            "name": "test",
            "hidden_size": 4096,
            "vocab_size": 128256,
            "layers": f"{layers} x a+f",
            "mixers": {"a": mixer},
            "ffns": {"f": ffn},
        }
    )


DENSE, MOE, MLA = model(), model(moe=True), model(moe=True, mla=True)


@lru_cache(maxsize=64)
def records(cluster: str, family: str) -> tuple[Hardware, Software]:
    hw = step_hardware(load_cluster(cluster))
    return hw, software_record(load_software(family), hw.architecture)


@st.composite
def layouts(draw: st.DrawFn, moe: bool = False) -> Layout:
    power = st.integers(0, 3).map(lambda i: 2**i)
    tp, pp, dp = draw(power), draw(power), draw(power)
    micro = draw(st.sampled_from([1, 2, 4]))
    return Layout(
        seq_len=draw(st.sampled_from([1024, 4096, 8192])),
        micro_batch_size=micro,
        global_batch_size=micro * dp * draw(st.integers(1, 24)),
        tp=tp,
        pp=pp,
        dp=dp,
        cp=draw(st.sampled_from([1, 1, 2])),
        ep=min(dp, 4) if moe else 1,
        vpp=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        zero_stage=draw(st.sampled_from([0, 1, 2, 3] if pp == 1 else [0, 1])),
        sequence_parallel=draw(st.booleans()) and tp > 1,
        recompute=draw(st.sampled_from(["none", "selective", "full", "per-op"])),
        precision=draw(st.sampled_from(["bf16", "fp8", "mxfp8"])),
    )


CASES = st.tuples(
    st.sampled_from(CLUSTERS), st.sampled_from(FAMILIES), st.booleans(), st.booleans()
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(CASES, st.data())
def test_parts_add_up_and_the_ideal_is_a_lower_bound(case, data):
    cluster, family, moe, mla = case
    hw, sw = records(cluster, family)
    spec = (MLA if mla else MOE) if moe else DENSE
    result = step_time(spec, hw, sw, data.draw(layouts(moe=moe)))
    for column in (result.roofline, result.expected):
        parts = column.parts()
        assert set(parts) == set(PARTS)
        assert math.fsum(parts.values()) == pytest.approx(column.total_s, rel=1e-9)
        assert all(value >= -1e-12 and math.isfinite(value) for value in parts.values())
    assert 0.0 < result.roofline_s <= result.expected_s * (1 + 1e-12)
    expected, ideal = result.expected.parts(), result.roofline.parts()
    hidden = {name for name in PARTS if name.endswith("comm_s") or name == "offload_s"}
    assert all(expected[n] >= ideal[n] * (1 - 1e-9) for n in PARTS if n not in hidden)
    for name in hidden:  # exposed: with the compute that hides it, never below
        beside = sum(expected[n] - ideal[n] for n in PARTS if n not in hidden)
        assert expected[name] + beside >= ideal[name] * (1 - 1e-9)
    assert 0.0 < result.mfu <= result.hfu <= 2.2  # fp8 counts against the bf16 peak


WHOLE = dict.fromkeys(("tp", "cp", "ep", "dp", "dp_network", "pp"), 1.0)
UNHIDDEN = {f"{dimension}_exposed_frac": frac for dimension, frac in WHOLE.items()}


@settings(max_examples=60, deadline=None)
@given(CASES, st.data())
def test_every_part_is_at_least_its_roofline_where_nothing_hides(case, data):
    """Communication beside no compute: its bytes take as long or longer than the links allow."""
    cluster, family, moe, mla = case
    hw, sw = records(cluster, family)
    spec = (MLA if mla else MOE) if moe else DENSE
    layout = data.draw(layouts(moe=moe))
    shown = {"overlap_ep": False, **UNHIDDEN}
    expected, _ = breakdown(spec, hw, replace(sw, **shown), layout)
    ideal = breakdown(spec, ideal_hardware(hw), replace(ideal_software(sw), **shown), layout)[0]
    below = {
        name: (seconds, ideal.parts()[name])
        for name, seconds in expected.parts().items()
        if seconds < ideal.parts()[name] * (1 - 1e-9)
    }
    assert not below


@settings(max_examples=40, deadline=None)
@given(
    CASES,
    layouts(),
    st.floats(1.0, 4.0),
    st.sampled_from(
        [
            "hbm_bytes_per_s",
            "scaleup_bytes_per_s",
            "scaleout_bytes_per_s",
            "bf16_flop_per_s",
            "fp8_flop_per_s",
            "hbm_eff",
            "scaleout_frac",
            "scaleup_frac",
            "product_bf16_frac",
            "attention_eff",
        ]
    ),
)
def test_more_of_anything_never_slows_a_step(case, layout, factor, field):
    cluster, family, _, _ = case
    hw, sw = records(cluster, family)
    sw = replace(sw, stage_split="even")  # the split stays as it is
    better = replace(hw, **{field: getattr(hw, field) * factor})
    before, after = (breakdown(DENSE, h, sw, layout)[0].total_s for h in (hw, better))
    assert after <= before * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CLUSTERS), layouts())
def test_fewer_bytes_never_slow_a_step(cluster, layout):
    hw, sw = records(cluster, "megatron-core")
    for change in ({"gradient_bytes": 1.0}, {"parameter_gather_bytes": 1.0}):
        fewer = replace(sw, **change)
        total = breakdown(DENSE, hw, sw, layout)[0].total_s
        assert breakdown(DENSE, hw, fewer, layout)[0].total_s <= total * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CLUSTERS), st.booleans(), layouts())
def test_fp8_is_never_slower_than_bf16_by_the_roofline(cluster, moe, layout):
    hw, sw = records(cluster, "megatron-core")
    spec = MOE if moe else DENSE
    wide, narrow = (
        step_time(spec, hw, sw, replace(layout, precision=p)).roofline_s for p in ("bf16", "fp8")
    )
    assert narrow <= wide * (1 + 1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_gpu_has_no_communication_and_no_bubble(family):
    hw, sw = records("dgx-h100", family)
    layout = Layout(seq_len=4096, global_batch_size=4, zero_stage=3)
    parts = step_time(DENSE, hw, sw, layout).expected.parts()
    silent = (
        "tp_comm_s",
        "cp_comm_s",
        "ep_comm_s",
        "pp_comm_s",
        "dp_comm_s",
        "bubble_s",
        "straggler_s",
    )
    assert [parts[name] for name in silent] == [0.0] * len(silent)


def test_one_gpu_is_the_sum_of_its_layers():
    hw, sw = records("dgx-h100", "megatron-core")
    layout = Layout(seq_len=4096, global_batch_size=3)
    shape = shape_of(layout, hw, sw)
    one = layer_time(DENSE.mixers["a"], DENSE.ffns["f"], DENSE.hidden_size, hw, sw, shape)
    parts = step_time(DENSE, hw, sw, layout).expected.parts()
    assert parts["attention_s"] == pytest.approx(3 * 16 * one.attention_s)
    assert parts["recompute_s"] == 0.0


def test_ideal_records_are_the_data_sheet():
    hw, sw = records("dgx-h100", "nanotron")
    ideal, perfect = ideal_hardware(hw), ideal_software(sw)
    assert ideal.bf16_flop_per_s == hw.bf16_flop_per_s
    assert ideal.product_bf16_frac == ideal.hbm_eff == ideal.scaleout_frac == 1.0
    assert ideal.arch is ideal.fabric is None
    assert ideal.kernel_floor_s == ideal.p2p_latency_s == perfect.host_layer_s == 0.0
    shape = (8192.0, 8192.0, 8192.0)
    assert matmul_s(ideal, *shape) == pytest.approx(2 * 8192**3 / 989.4e12)


def test_a_product_in_a_step_is_the_product_alone_and_named_parameters():
    hw, _ = records("dgx-h100", "megatron-core")
    alone = expected_matmul_time_s(
        8192,
        4096,
        8192,
        "bf16",
        hw.arch,
        hw.bf16_flop_per_s,
        hw.hbm_bytes_per_s,
        n_units=hw.n_compute_units,
        l2_bytes=hw.l2_bytes,
    )
    in_step = matmul_s(hw, 8192, 4096, 8192)
    assert in_step == pytest.approx(hw.kernel_gap_s + alone / hw.product_bf16_frac)


@pytest.mark.parametrize(("op", "reduce_all"), [("all-gather", False), ("all-reduce", True)])
@pytest.mark.parametrize("n_ranks", [4, 8, 64])
def test_a_collective_in_a_step_is_the_one_alone_at_its_share(op, reduce_all, n_ranks):
    hw, _ = records("dgx-h100", "megatron-core")
    hw = replace(
        hw,
        scaleup_frac=1.0,
        scaleout_frac=1.0,
        scaleup_latency_factor=1.0,
        scaleout_latency_factor=1.0,
    )
    alone = group_time_s(RankGroup(op, 1e9, n_ranks, min(8, n_ranks), hw.fabric, 450e9, 50e9))
    assert gather_s(hw, n_ranks, 1, 1e9, reduce_all=reduce_all) == pytest.approx(alone)
    slower = replace(hw, scaleup_frac=0.5, scaleout_frac=0.5)
    assert gather_s(slower, n_ranks, 1, 1e9, reduce_all=reduce_all) > 1.5 * alone


def test_a_linear_costs_three_multiplies():
    hw = ideal_hardware(records("dgx-h100", "megatron-core")[0])
    forward, backward = linear_s(hw, 8192, 8192, 8192)
    assert backward == pytest.approx(2 * forward)


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 1))
def test_overlap_is_the_one_form(window, comm, c):
    exposed = exposed_s(window, comm, c)
    want = max(window, comm) + c * min(window, comm) - window
    assert exposed == pytest.approx(want, abs=1e-9)
    assert 0.0 <= exposed <= comm + 1e-9


def test_the_level_of_a_group_follows_the_rank_order():
    hw, _ = records("dgx-h100", "megatron-core")
    rack, _ = records("gb200-nvl72", "megatron-core")
    assert split_group(hw, 8, 1) == (8, 1)
    assert split_group(hw, 8, 8) == (1, 8)
    assert split_group(hw, 64, 2) == (4, 16)
    assert split_group(rack, 64, 1) == (64, 1)
    assert split_group(rack, 128, 1) == (64, 2)
    inside, across = (gather_s(hw, 8, stride, 1e9) for stride in (1, 8))
    assert inside < across


@pytest.mark.parametrize("ep", [8, 16])
def test_nothing_hides_a_plain_all_to_all(ep):
    hw, sw = records("dgx-h100", "megatron-core")
    own = replace(sw, deduplicated_all_to_all=True)
    shape = shape_of(Layout(4096, 64, ep=ep, dp=16), hw, sw)
    moved = 4096 * 8 * 4096 * 2.0  # tokens, experts of each, width, bytes
    whole = 4 * all_to_all_s(hw, ep, 1, moved)
    shown, hidden = (
        layer_time(MOE.mixers["a"], MOE.ffns["f"], 4096, hw, s, shape).ep_comm_s for s in (sw, own)
    )
    assert shown == pytest.approx(whole) and hidden < 0.9 * whole


def test_deduplication_never_sends_more():
    hw, _ = records("dgx-h100", "megatron-core")
    plain, once = (all_to_all_s(hw, 64, 1, 1e9, copies) for copies in (0, 8))
    limited = all_to_all_s(hw, 64, 1, 1e9, 8, max_domains=4)
    assert limited < once < plain


def test_bubble_of_equal_stages_is_the_published_one():
    steady, bubble = pipeline_s(1.0, 8.0, 32, 4, "1f1b")
    assert bubble / steady == pytest.approx((8 - 1) / (4 * 32))  # Narayanan et al. 2021, 2.2.2


def test_zero_1_moves_what_an_all_reduce_moves():
    hw = ideal_hardware(records("dgx-h100", "megatron-core")[0])
    hw = replace(hw, in_switch_reduction=False)
    sw = ideal_software(records("dgx-h100", "megatron-core")[1])
    sw = replace(sw, overlap_gather=False)
    shards = Shards(1e9, 0.0, 16, 1, 1, 1, 16, 1)
    none = StageTimes(0.0, 0.0, 1, 0.0, 0.0, 0.0)
    plain, sharded = (
        replicated_s(hw, sw, shards, Layout(64, 64, zero_stage=z), none) for z in (0, 1)
    )
    assert plain == pytest.approx(sharded)


def test_full_recompute_repeats_the_forward_pass():
    hw, sw = records("dgx-h100", "megatron-core")
    shape = shape_of(Layout(seq_len=4096, global_batch_size=8, tp=2), hw, sw)
    mixer, ffn = DENSE.mixers["a"], DENSE.ffns["f"]
    none = layer_time(mixer, ffn, 4096, hw, sw, shape)
    full = layer_time(mixer, ffn, 4096, hw, sw, shape._replace(recompute="full"))
    assert full.bwd_s - none.bwd_s == pytest.approx(none.fwd_s)
    assert full.recompute_s == pytest.approx(none.fwd_s)


def test_activation_recompute_by_layer_count_lies_between():
    hw, sw = records("dgx-h100", "megatron-core")
    times = [
        step_time(
            DENSE,
            hw,
            sw,
            Layout(seq_len=4096, global_batch_size=8, recompute="full", recompute_layers=n),
        ).expected_s
        for n in (None, 8)
    ]
    none = step_time(DENSE, hw, sw, Layout(seq_len=4096, global_batch_size=8)).expected_s
    assert none < times[1] < times[0]


def test_a_partial_last_micro_batch_costs_a_whole_one():
    hw, sw = records("dgx-h100", "megatron-core")
    results = [
        step_time(DENSE, hw, sw, Layout(seq_len=4096, global_batch_size=n, micro_batch_size=4))
        for n in (13, 16)
    ]
    assert results[0].n_micro_batches == results[1].n_micro_batches == 4
    assert results[0].expected_s == results[1].expected_s
