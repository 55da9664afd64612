"""Parallelism limits: the documents' cases, and that each row agrees with its own times."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.layout import Layout
from gpuscale.core.limits import formulas as limits
from gpuscale.core.limits.board import limits_board
from gpuscale.core.model.layer_shape import layer_shape
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model

H100 = load_cluster("dgx-h100", "documents")
H800 = load_cluster("h800", "documents")
LLAMA = load_model("llama3-70b").spec
DEEPSEEK = load_model("deepseek-v3").spec


def board(model, cluster, tokens, **layout):
    given = {"seq_len": 8192, "global_batch_size": 488} | layout
    rows = limits_board(model, cluster, Layout(**given), tokens)
    return {row.axis: row for row in rows}


def test_llama3_70b_on_4096_h100_is_communication_bound_without_a_pipeline():
    """976.6 tokens per GPU against 2475, 2.53 times; the GPU chapter's text compares 7812."""
    dp = board(LLAMA, H100, 4e6, tp=8, dp=512)["dp"]
    assert dp.have == pytest.approx(976.5625)
    assert dp.rule == pytest.approx(2475)
    assert dp.need == pytest.approx(2475 * 511 / 512)
    assert dp.verdict == "communication-bound 2.53x" and dp.exceeded


def test_llama3_70b_with_eight_stages_is_compute_bound():
    rows = board(LLAMA, H100, 4e6, tp=8, pp=8, dp=64)
    assert rows["dp"].rule == pytest.approx(309.375)
    assert rows["dp"].verdict == "compute-bound"
    assert rows["tp"].rule == pytest.approx(13.0327, rel=1e-4)


def test_llama3_405b_limit_with_sixteen_stages():
    """C / (16 W_node) (127/128) = 153.5 tokens per GPU."""
    model = load_model("llama3.1-405b").spec
    dp = board(model, H100, None, tp=8, pp=16, dp=128, global_batch_size=2048)["dp"]
    assert dp.have == 1024 and dp.need == pytest.approx(153.479, rel=1e-4)


def test_deepseek_v3_is_over_the_expert_parallel_limit():
    """F = 2048 against 17325 for two matrices over all nodes."""
    rows = board(DEEPSEEK, H800, None, seq_len=4096, global_batch_size=15360, ep=64, pp=16, dp=128)
    ep = rows["ep"]
    assert ep.rule == pytest.approx(17325) and ep.have == 2048
    assert ep.exceeded and ep.bound == "communication"
    assert rows["dp"].have == 30720 and not rows["moe-dp"].exceeded


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 2, 8)),
    st.sampled_from((1, 2, 4)),
    st.integers(0, 6),
    st.floats(1e5, 1e9),
)
def test_have_against_need_says_what_the_times_say(tp, pp, cp, log_dp, tokens):
    for model, cluster in ((LLAMA, H100), (DEEPSEEK, H800)):
        rows = board(model, cluster, tokens, tp=tp, pp=pp, cp=cp, dp=2**log_dp)
        for row in rows.values():
            if row.bound == "-":
                continue
            met = row.have >= row.need if row.relation == ">=" else row.have <= row.need
            slack = 1e-9 * abs(row.need)
            if abs(row.have - row.need) > slack and row.need != row.degree:
                within_layers = row.axis == "pp" and row.need == layer_shape(model).n_layers
                assert within_layers or met == (row.ratio <= 1), row
            assert row.ratio == pytest.approx(row.comm_s / row.math_s)


@settings(max_examples=20, deadline=None)
@given(st.floats(1.0, 20.0), st.sampled_from(("scaleup_bytes_per_s", "node_egress_bytes_per_s")))
def test_more_bandwidth_never_tightens_a_limit(gain, key):
    faster = H100.model_copy(update={key: getattr(H100, key) * gain})
    for layout in ({"tp": 8, "dp": 512}, {"tp": 4, "pp": 4, "cp": 2, "dp": 32}):
        base, better = board(LLAMA, H100, 4e6, **layout), board(LLAMA, faster, 4e6, **layout)
        for axis, row in base.items():
            assert better[axis].ratio <= row.ratio * (1 + 1e-12), axis


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 200_000))
def test_expert_limit_agrees_with_its_times(ep, k, ffn):
    need = limits.ep_min_ffn(ep, k, 990e12, 400e9)
    math_s = limits.ep_math_s(1e6, k, 7168, ffn, ep, 990e12)
    comm_s = limits.ep_comm_s(1e6, 7168, ep, k, 400e9)
    assert comm_s / math_s == pytest.approx(need / ffn, rel=1e-9)


@given(st.integers(2, 512), st.integers(256, 10**6))
def test_tensor_limit_agrees_with_its_times(tp, ffn):
    limit = limits.tp_limit(ffn, 990e12, 450e9)
    ratio = limits.tp_comm_s(4096, 8192, 450e9) / limits.tp_math_s(4096, 8192, ffn, tp, 990e12)
    assert ratio == pytest.approx(tp / limit, rel=1e-9)


def test_shapes_of_hybrids_and_mixtures_are_found():
    shape = layer_shape(DEEPSEEK)
    assert (shape.n_experts, shape.top_k, shape.ffn_hidden_size) == (256, 8, 2048)
    assert shape.n_layers == 61 and shape.kv_width == (512 + 64) / 2
    assert layer_shape(LLAMA).layer_weights * 80 == pytest.approx(68.5e9, rel=0.01)


def test_ring_limits():
    math_s, comm_s = limits.ring_attention_times(550, 8192, 1024, 990e12, 450e9, causal=True)
    assert math_s == pytest.approx(comm_s)


def test_impossible_cases_are_value_errors():
    with pytest.raises(ValueError, match="fp4"):
        board(LLAMA, H100, 4e6, tp=8, precision="nvfp4")
    alone = H100.model_copy(update={"node_egress_bytes_per_s": None})
    with pytest.raises(ValueError, match="at most 8"):
        board(LLAMA, alone, 4e6, tp=8, dp=2)
    linkless = alone.model_copy(
        update={
            "scaleup_bytes_per_s": None,
            "gpu": H100.gpu.model_copy(update={"scaleup_bytes_per_s": None}),
        }
    )
    with pytest.raises(ValueError, match="no link"):
        board(LLAMA, linkless, 4e6, tp=1)


def test_rows_are_plain_data():
    row = board(LLAMA, H100, 4e6, tp=8, dp=512)["dp"]
    assert dataclasses.asdict(row)["quantity"] == "tokens per GPU"
