"""Memory formulas against the documents' answers and the papers behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.formats import weight_bytes
from gpuscale.core.memory.parameters import RECIPES, gpus_to_hold, nodes_to_hold, sharded_states
from gpuscale.core.serving.replica import serving_memory
from gpuscale.textbook.formulas import korthikanti_layer_bytes, rule

STATES = [  # params, recipe, stage, shards, bytes, source
    (7.5e9, "mixed-adam", 0, 64, 120e9, "ZeRO paper, figure 1"),
    (7.5e9, "mixed-adam", 1, 64, 31.40625e9, "ZeRO paper, figure 1: 31.4"),
    (7.5e9, "mixed-adam", 2, 64, 16.640625e9, "ZeRO paper, figure 1: 16.6"),
    (7.5e9, "mixed-adam", 3, 64, 1.875e9, "ZeRO paper, figure 1: 1.9"),
    (7.5e9, "mixed-adam-nomaster", 0, 64, 90e9, "multi-GPU Q&A, ZeRO (errata E14)"),
    (7.5e9, "mixed-adam-nomaster", 1, 64, 30.9375e9, "multi-GPU Q&A, ZeRO"),
    (7.5e9, "mixed-adam-nomaster", 2, 64, 16.171875e9, "multi-GPU Q&A, ZeRO"),
    (7.5e9, "mixed-adam-nomaster", 3, 64, 1.40625e9, "multi-GPU Q&A, ZeRO"),
    (70e9, "book-min", 0, 1, 700e9, "How to Scale Your Model, GPU chapter, Quiz 5 Q2.1"),
    (70e9 / 8, "book-min", 0, 1, 87.5e9, "same, Q2.3: 8-way TP and pure DP"),
    (70e9 / 64, "book-min", 0, 1, 10.9375e9, "same, Q2.3: 8 TP x 8 PP"),
    (1e9, "fp32-adam", 0, 8, 16e9, "FSDP notes, stage 0"),
    (1e9, "fp32-adam", 1, 8, 9e9, "FSDP notes, stage 1"),
    (1e9, "fp32-adam", 2, 8, 5.5e9, "FSDP notes, stage 2"),
    (1e9, "fp32-adam", 3, 8, 2e9, "FSDP notes, stage 3"),
    (7e9, "mixed-adam", 3, 8, 14e9, "lecture notes, HSDP 16x8: 16 P / K"),
]


@pytest.mark.parametrize(("params", "recipe", "stage", "shards", "want", "source"), STATES)
def test_states_match_the_documents(params, recipe, stage, shards, want, source):
    got = sharded_states(params, RECIPES[recipe], stage, shards).total_bytes
    assert got == pytest.approx(want, rel=1e-12), source


def test_recipes_bytes_per_param():
    want = {"mixed-adam": 16, "mixed-adam-nomaster": 12, "book-min": 10, "fp32-adam": 16}
    assert {n: RECIPES[n].bytes_per_param for n in want} == want
    total = RECIPES["fp32-adam"].bytes_per_param + rule("activation-bytes").threshold
    assert total == 24  # FSDP notes: 4 + 20


def test_gpus_for_llama3_70b():
    assert gpus_to_hold(700e9, 80e9) == 9  # Quiz 5 Q2.1
    assert nodes_to_hold(9, 8) == 2
    assert gpus_to_hold(1120e9, 80e9) == 14  # with 16 bytes per parameter


def test_gpt3_on_512_v100_does_not_fit():  # errata E8: weights alone exceed the card
    weights = sharded_states(175e9 / 8, RECIPES["mixed-adam"]).weights_bytes
    assert weights == 43.75e9 > 32e9


def test_671b_cards():  # FSDP and deployment notes; errata E25, E34
    counts = {
        (d, h): gpus_to_hold(weight_bytes(671e9, d), h)
        for d in ("bf16", "fp8")
        for h in (80e9, 141e9, 80 * 2.0**30)
    }
    assert counts == {
        ("bf16", 80e9): 17,
        ("fp8", 80e9): 9,
        ("bf16", 141e9): 10,
        ("fp8", 141e9): 5,
        ("bf16", 80 * 2.0**30): 16,
        ("fp8", 80 * 2.0**30): 8,
    }
    assert weight_bytes(671e9, "bf16") > 16 * 80e9
    assert weight_bytes(671e9, "fp8") / 16 == 41.9375e9


def test_korthikanti_gpt3():  # Korthikanti et al. 2022, table 2, GPT-3 shape
    args = (2048, 1, 12288, 96)
    assert korthikanti_layer_bytes(*args) == 2868903936
    assert korthikanti_layer_bytes(*args, 8, sequence_parallel=True) == 358612992
    assert (
        korthikanti_layer_bytes(*args, 8, sequence_parallel=True, recompute="selective")
        == 106954752
    )
    assert korthikanti_layer_bytes(*args, recompute="full") == 50331648


@given(
    st.floats(1, 1e13), st.sampled_from(sorted(RECIPES)), st.integers(0, 2), st.integers(1, 4096)
)
def test_more_sharding_never_holds_more(params, recipe, stage, shards):
    r = RECIPES[recipe]
    here = sharded_states(params, r, stage, shards).total_bytes
    assert sharded_states(params, r, stage + 1, shards).total_bytes <= here
    assert sharded_states(params, r, stage, 2 * shards).total_bytes <= here
    assert sharded_states(params, r, stage, 1).total_bytes == pytest.approx(
        params * r.bytes_per_param
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: sharded_states(1e9, RECIPES["mixed-adam"], 4, 2),
        lambda: sharded_states(1e9, RECIPES["mixed-adam"], 1, 0),
        lambda: gpus_to_hold(1e9, 0.0),
        lambda: weight_bytes(1e9, "fp7"),
        lambda: korthikanti_layer_bytes(0, 1, 1, 1),
        lambda: korthikanti_layer_bytes(1, 1, 1, 1, recompute="some"),
        lambda: serving_memory(1, 1, -1, 1),
    ],
)
def test_out_of_range_is_refused(call):
    with pytest.raises(ValueError, match=r"."):
        call()


@pytest.mark.parametrize("context", [128, 1024, 4096, 32768])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_most_sequences_fit_and_one_more_does_not(context, tp):
    from gpuscale.core.serving.replica import ServingJob, replica_memory
    from gpuscale.io.models import load_model

    model = load_model("llama3-8b").spec
    most = replica_memory(model, ServingJob(context_tokens=context), tp, 1, 24e9).max_concurrency
    for n, fits in ((most, True), (most + 1, False)):
        job = ServingJob(context_tokens=context, concurrency=n)
        assert replica_memory(model, job, tp, 1, 24e9).fits is fits
