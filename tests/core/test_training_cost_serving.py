"""Training, cost, pipeline, serving and number format arithmetic against published figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.limits import formulas as pipeline_ideal
from gpuscale.core.run import bill
from gpuscale.core.run import time as tr
from gpuscale.core.run.time import rental_usd
from gpuscale.core.serving import replica as serving_ideal
from gpuscale.textbook.formulas import (
    bound,
    figures,
    link,
    moe_strategy,
    product_shape,
    round_significant,
)

positive = st.floats(1e-3, 1e12)
counts = st.integers(1, 4096)

DAY = 86400.0

MEGATRON = [  # Narayanan et al. 2021, arXiv:2104.04473, section 5.1; 8 T P counts a recomputation
    ("GPT-3 175B, 300B tokens, 1024 A100 at 140 TFLOP/s", (175e9, 300e9, 1024, 140e12), 34),
    ("1T, 450B tokens, 3072 A100 at 163 TFLOP/s", (1e12, 450e9, 3072, 163e12), 84),
]


@pytest.mark.parametrize(("case", "args", "days"), MEGATRON)
def test_training_time_is_that_of_megatron(case, args, days):
    with_recompute = tr.training_time_s(*args) * 4 / 3
    assert with_recompute / DAY == pytest.approx(days, rel=0.015), case


LLAMA3_405B = [  # The Llama 3 Herd of Models, table 4: TFLOP/s per GPU, MFU printed
    (430e12, 0.43),
    (400e12, 0.41),
    (380e12, 0.38),
]


@pytest.mark.parametrize(("rate", "printed"), LLAMA3_405B)
def test_mfu_of_llama3(rate, printed):
    assert tr.utilisation(rate, 989e12) == pytest.approx(printed, abs=0.0065)


def test_llama3_405b_flop():
    """The Llama 3 Herd of Models, section 3.2.1: 3.8e25 FLOP for 405B on 15.6T tokens."""
    assert tr.training_flop(405e9, 15.6e12) == pytest.approx(3.8e25, rel=0.01)


@given(positive, positive, counts, positive)
def test_mfu_inverts_training_time(n_params, n_tokens, n_gpus, peak):
    step_s = tr.training_time_s(n_params, n_tokens, n_gpus, peak, 0.4)
    assert tr.mfu(n_params, n_tokens, step_s, n_gpus, peak) == pytest.approx(0.4, rel=1e-9)


@given(positive, positive, positive)
def test_shares_add_up(a, b, c):
    assert tr.share(a, b, c) + tr.share(b, a, c) + tr.share(c, a, b) == pytest.approx(1.0)


@given(positive, positive)
def test_exposed_is_never_more_than_the_communication(comm, compute):
    assert tr.exposed_s(comm, 0) == comm and tr.exposed_s(comm, 1) == 0


@given(counts, counts, st.integers(1, 16))
def test_bubbles_are_consistent(p, m, v):
    share, over = pipeline_ideal.bubble_frac(p, m, v), pipeline_ideal.bubble_over_ideal(p, m, v)
    assert 0 <= share < 1
    assert share == pytest.approx(over / (1 + over)) == pytest.approx((p - 1) / (v * m + p - 1))


@given(positive, st.floats(1, 1e9), counts)
def test_one_stage_and_one_micro_batch_send_nothing(tokens, link_rate, layers):
    assert pipeline_ideal.forward_transfer_time_s(tokens, 8192, 1, 1, link_rate) == 0
    per_layer = pipeline_ideal.transfer_time_per_layer_s(tokens, 8192, layers, link_rate)
    whole = pipeline_ideal.hop_time_s(tokens, 8192, 1, link_rate)
    assert per_layer * layers == pytest.approx(1.5 * whole)


def test_rounding():
    assert round_significant(1.23456e-7, 3) == 1.23e-7


def test_energy_and_money():
    """A DGX H100 draws 10.2 kW."""
    assert bill.power_w(8, 700, host_power_w=4600) == 10_200
    assert bill.power_w(8, 700, 4600, pue=1.2) == pytest.approx(12_240)
    assert rental_usd(8, 3600, 2.0) == 16.0
    with pytest.raises(ValueError, match="pue"):
        bill.power_w(8, 700, pue=0.9)


@pytest.mark.slow
@given(st.integers(1, 100_000))
def test_prefill_is_the_sum_of_its_tokens(seq_len):
    """Causal prefill is decoding every position against half of the context on average."""
    full = serving_ideal.prefill_flop(70e9, seq_len, 8192, 80, causal=True)
    tokens = seq_len * serving_ideal.decode_flop(70e9, seq_len / 2, 8192, 80)
    assert full == pytest.approx(tokens)


@given(st.integers(1, 512), st.floats(1e12, 1e16))
def test_decode_is_no_slower_with_more_bandwidth(tp, rate):
    slow = serving_ideal.decode_time_s(140e9, 140e9, tp, 1e12, rate)
    assert serving_ideal.decode_time_s(140e9, 140e9, tp, 2e12, rate) <= slow


def test_shards():
    with pytest.raises(ValueError, match="inner"):
        product_shape(("N", "D"), ("F", "D"))


def test_strategy_of_deepseek_is_beyond_its_roofline():
    """F = 2048 does not clear EP over nodes; with H800's 200 GB/s not even inside one."""
    assert moe_strategy(2048, 8, 990e12, 450e9, 400e9) == ("EP 8 inside a node + PP + ZeRO-1 DP")
    assert moe_strategy(1024, 8, 990e12, 200e9, 400e9) == "PP + ZeRO-1 DP"


def test_rules_of_thumb_carry_their_source():
    assert all(r["source"] for kind in ("rule", "link") for r in figures()[kind].values())
    assert bound(1.0, 1.0) == "compute"


def test_links_are_one_way():
    """PCI-SIG: 4.0 x16 carries 31.5 GB/s after coding; InfiniBand HDR 200 Gb/s."""
    assert link("pcie4").bytes_per_s * 128 / 130 == pytest.approx(31.5e9, rel=1e-3)
    assert link("hdr").bytes_per_s == 25e9
    for generation in "2345":
        each, n = figures()["nvlink"][generation]
        assert link(f"nvlink{generation}").bytes_per_s == each * n
