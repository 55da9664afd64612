"""What an expert avoids, by hand: each burden alone, and what is said of a layout passed over."""

from dataclasses import replace

import pytest

from gpuscale.core.layout import Layout
from gpuscale.core.rules import RuleFacts
from gpuscale.core.search.burden import burdens, risks, total

FACTS = RuleFacts(80, (64,), (8,), (28672,), (), 0, 8192, 512, 64)
NARROW = replace(FACTS, n_experts=128, expert_widths=(1536,))
BARE = Layout(8192, 512)

ALONE = [
    ({}, 0.0),
    ({"tp": 2}, 0.005),
    ({"tp": 8}, 0.005),
    ({"tp": 16}, 0.155),
    ({"cp": 2}, 0.12),
    ({"cp": 4}, 0.22),
    ({"pp": 2}, 0.005 + 0.015),
    ({"pp": 16}, 0.005 + 0.06),
    ({"pp": 20}, 0.005 + 0.015 * 4.643856189774724),
    ({"pp": 40}, 0.005 + 0.015 * 6.643856189774724 + 0.02),
    ({"pp": 41}, 0.005 + 0.015 * 6.715105528 + 0.02 * 1.035623909730721),
    ({"pp": 42}, 0.005 + 0.015 * 6.784634845557521 + 1.01),
    ({"pp": 7}, 0.005 + 0.015 * 2.807354922057604 + 0.01),
    ({"pp": 3}, 0.005 + 0.015 * 1.584962500721156),
    ({"pp": 4, "vpp": 5}, 0.005 + 0.03 + 0.004 * 2.321928094887362),
    ({"pp": 4, "vpp": 10}, 0.005 + 0.03 + 0.004 * 3.321928094887362),
    ({"pp": 8, "vpp": 10}, 0.005 + 0.045 + 0.004 * 3.321928094887362 + 0.02),
    ({"pp": 40, "vpp": 2}, 0.005 + 0.015 * 6.643856189774724 + 0.02 + 0.004 + 0.02),
    ({"pp": 4, "schedule": "zb-h1"}, 0.005 + 0.04),
    ({"pp": 4, "schedule": "dualpipe"}, 0.005 + 0.04),
    ({"ep": 8}, 0.005),
    ({"ep": 16}, 0.035),
    ({"ep": 64}, 0.095),
    ({"ep": 128}, 0.325),
    ({"ep": 8, "etp": 2}, 0.185),
    ({"ep": 4, "etp": 2}, 0.155),
    ({"order": "tp-cp-pp-dp"}, 0.005),
    ({"recompute": "selective"}, 0.005),
    ({"recompute": "full"}, 0.005),
    ({"zero_stage": 0}, 0.005),
    ({"zero_stage": 3}, 0.0),
    ({"zero_stage": 3, "shard_group_size": 8}, 0.005),
    ({"offload_optimizer": True}, 0.03),
    ({"offload_activations": True}, 0.03),
    ({"offload_activations": True, "offload_optimizer": True}, 0.06),
]


@pytest.mark.parametrize(("changed", "share"), ALONE)
def test_each_burden_alone(changed, share):
    found = burdens(replace(BARE, **changed), FACTS, 8)
    assert total(found) == pytest.approx(share, rel=1e-6, abs=1e-12)
    assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)


def test_a_pipeline_of_experts_spreads_them():
    """No published one keeps all experts of its layers on every rank; TP of experts has its own."""
    wide = replace(FACTS, n_experts=8, expert_widths=(14336,))
    whole, spread = replace(BARE, pp=8), replace(BARE, pp=8, ep=8)
    assert burdens(whole, wide, 8)[0] == ("whole experts in a pipeline", 0.15)
    assert total(burdens(spread, wide, 8)) == pytest.approx(0.005 + 0.05)
    assert total(burdens(BARE, wide, 8)) == 0.0
    split = [words for words, _ in burdens(replace(whole, tp=2, etp=2), wide, 8)]
    assert "experts split by TP 2" in split and "whole experts in a pipeline" not in split


def test_narrow_experts_long_sequences_and_thin_stages():
    tp = replace(BARE, tp=4)
    assert total(burdens(tp, NARROW, 8)) == pytest.approx(0.285)
    assert total(burdens(replace(BARE, tp=2), NARROW, 8)) == pytest.approx(0.075)
    wide = replace(NARROW, expert_widths=(1536, 14336))
    shares = [total(burdens(replace(BARE, tp=n), wide, 8)) for n in (1, 2, 4, 8)]
    assert shares == pytest.approx([0.0, 0.005 + 0.01, 0.005 + 0.04, 0.005 + 0.09])
    assert total(burdens(tp, FACTS, 8)) == 0.005
    assert total(burdens(replace(tp, tp=16), FACTS, 72)) == 0.005
    long = replace(FACTS, seq_len=131072)
    shares = [total(burdens(replace(BARE, cp=c), long, 8)) for c in (2, 16, 32)]
    assert shares == pytest.approx([0.02, 0.02, 0.12])
    kimi = replace(FACTS, n_layers=61)
    assert total(burdens(replace(BARE, pp=32), kimi, 8)) > 1.0
    assert total(burdens(replace(BARE, pp=31), kimi, 8)) < 0.2
    chunked = burdens(replace(BARE, pp=16, vpp=2), kimi, 8)  # 62 places for 61 layers
    assert "chunks of one layer" in [words for words, _ in chunked]
    even = [total(burdens(replace(BARE, pp=p), kimi, 8)) for p in (3, 9, 6)]
    assert even == pytest.approx(
        [0.005 + 0.015 * 1.5849625, 0.005 + 0.015 * 3.169925, 0.005 + 0.015 * 2.5849625 + 0.01]
    )


def test_what_is_said_of_a_layout_passed_over():
    chosen = replace(BARE, tp=8, pp=4, dp=2)
    other = replace(BARE, tp=4, cp=4, pp=4, vpp=2, zero_stage=0)
    assert risks(other, chosen, FACTS, 8) == ("CP 4 at 8,192 tokens",)
    assert risks(replace(BARE, zero_stage=0), chosen, FACTS, 8) == ("an optimizer on every rank",)
    assert risks(chosen, chosen, FACTS, 8) == ()
    deep = replace(BARE, pp=32, tp=16)
    words = risks(deep, chosen, replace(FACTS, n_layers=61), 8)
    assert words[:2] == ("stages of one layer (61 layers over 32)", "TP 16 over nodes of 8")
