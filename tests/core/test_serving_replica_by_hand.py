"""A replica's memory and ideal times, prefix caches, daily load: sums done by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.model.params import count_params, embedding_params
from gpuscale.core.serving.maturity import SETTLED, Ages, maturity, needs_kernels
from gpuscale.core.serving.prefixes import block_hits, session_hits
from gpuscale.core.serving.replica import (
    ServingJob,
    decode_flop,
    decode_time_s,
    model_weight_bytes,
    prefill_flop,
    serving_memory,
    serving_times,
    weights_read_bytes,
)
from gpuscale.core.serving.scaling import scaled_of
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.models import load_model

quick = settings(max_examples=30, deadline=None, derandomize=True, database=None)
sizes = st.floats(0, 40e9)


@quick
@given(sizes, sizes, sizes, st.floats(1e6, 1e9), st.integers(0, 200))
def test_memory_of_a_serving_gpu_is_its_parts(weights, activations, overhead, each, n):
    m = serving_memory(
        weights,
        each,
        n,
        80e9,
        activations_bytes=activations,
        overhead_bytes=overhead,
        context_tokens=100.0,
    )
    fixed = weights + activations + overhead
    assert m.total_bytes == pytest.approx(fixed + n * each)
    assert m.fits == (m.total_bytes <= 80e9)
    room = max(0.0, 80e9 - fixed)
    assert m.max_concurrency == pytest.approx(room / each, abs=1)
    assert m.max_concurrency <= room / each
    assert m.cache_tokens == pytest.approx(100 * room / each)


def test_no_cache_and_no_room():
    assert serving_memory(90e9, 1e9, 3, 80e9).max_concurrency == 0
    assert serving_memory(10e9, 0.0, 3, 80e9).max_concurrency == 3
    assert serving_memory(10e9, 0.0, 3, 80e9).cache_tokens == 0.0
    with pytest.raises(ValueError, match="-1"):
        serving_memory(1.0, 1.0, -1, 2.0)


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-0.6b", "mixtral-8x7b"])
def test_weights_read_are_all_but_the_embedding_and_idle_experts(name):
    model = load_model(name).spec
    whole = model_weight_bytes(model, "bf16")
    assert whole == pytest.approx(2 * count_params(model).total_params, rel=1e-3)
    most = weights_read_bytes(model, "bf16", 100_000)
    lookup = 0.0 if model.tie_embeddings else 2 * embedding_params(model)
    assert most == pytest.approx(whole - lookup)
    one = weights_read_bytes(model, "bf16", 1)
    if name == "mixtral-8x7b":  # 2 of 8 experts: a quarter of what all have
        experts = 2 * 32 * 8 * 3 * 4096 * 14336
        assert most - one == pytest.approx(0.75 * experts, rel=1e-9)
    else:
        assert one == most


def test_ideal_times_of_a_replica():
    """Prefill at the peak; a token reads weights and cache at the memory's rate."""
    model = load_model("llama3-8b").spec
    job = ServingJob(context_tokens=1000, concurrency=10)
    t = serving_times(model, job, 4, 2, 1e12, 1e15)
    assert t.group_sequences == 5
    cache = 5 * 1000 * 2 * 2 * 32 * 8 * 128  # K and V of 8 heads in 16 bits
    assert t.decode_read_bytes == pytest.approx(weights_read_bytes(model, "bf16", 5) + cache)
    assert t.decode_s == pytest.approx(t.decode_read_bytes / 4e12) and t.decode_bound == "memory"
    assert t.prefill_s == pytest.approx(t.prefill_flop / 4e15)
    assert t.tokens_per_s == pytest.approx(10 / t.decode_s)
    assert t.tokens_per_s_per_sequence == pytest.approx(1 / t.decode_s)
    weights = weights_read_bytes(model, "bf16", 5) / model_weight_bytes(model, "bf16")
    assert t.weights_read_frac == pytest.approx(weights)
    slow = serving_times(model, job, 4, 2, 1e15, 1e12)
    assert slow.decode_bound == "compute"
    assert slow.decode_s == pytest.approx(slow.decode_flop / 4e12)
    one = serving_times(model, replace(job, concurrency=1), 1, 1, 1e12, 1e15)
    assert one.group_sequences == 1 and one.decode_flop == pytest.approx(t.decode_flop / 5)


def test_formulas_of_inference():
    # 2 P s + 4 s^2 h L, half of the second for a causal kernel (Pope et al. 2022)
    assert prefill_flop(10, 3, 5, 7) == 2 * 10 * 3 + 4 * 9 * 5 * 7
    assert prefill_flop(10, 3, 5, 7, causal=True) == 2 * 10 * 3 + 2 * 9 * 5 * 7
    assert decode_flop(10, 3, 5, 7) == 2 * 10 + 4 * 3 * 5 * 7
    assert decode_time_s(60, 10, 2, 10, 100) == 3.0
    assert decode_time_s(6, 1000, 2, 10, 100) == 5.0


def test_hits_of_a_prefix_cache():
    prompts = [[1, 2], [1, 3], [1, 2], [4]]
    assert block_hits(prompts, [8, 9, 8, 1], 4, 100.0) == [0, 4, 7, 0]
    # room for three blocks: the least recently used, 1 of the first, goes when 4 and 5 come
    assert block_hits([[1, 2], [4, 5], [1, 2]], [9, 9, 9], 4, 12.0) == [0, 0, 0]
    assert block_hits([[1, 2], [4], [1, 2]], [9, 9, 9], 4, 12.0) == [0, 0, 8]
    assert block_hits([[1], [1]], [9, 9], 4, 0.0) == [0, 4]  # one block is always held
    assert session_hits(["a", None, "a"], [10, 99, 20], [5, 5, 5], 100.0) == [0, 0, 15]
    assert session_hits(["a", "a"], [10, 10], [5, 5], 100.0) == [0, 9]
    assert session_hits(["a", "b", "b", "a"], [10, 10, 20, 20], [5] * 4, 30.0) == [0, 0, 15, 0]


@pytest.mark.parametrize("released", ["", "2025-09-01", "2025-10-20", "2025-01-01"])
def test_age_of_an_architecture(released):
    plain, own = load_model("llama3-8b").spec, load_model("deepseek-v3").spec
    assert not needs_kernels(plain) and needs_kernels(own)
    assert maturity(plain, released, "2025-11-01", Ages()) == SETTLED
    stage = maturity(own, released, "2025-11-01", Ages())
    wanted = {"": "first", "2025-10-20": "first", "2025-09-01": "new"}
    assert stage == SETTLED if released == "2025-01-01" else stage.stage == wanted[released]


def test_moments_of_lengths():
    assert Lengths("sampled", values=(2, 4, 6)).mean == 4
    assert Lengths("sampled", values=(2, 4, 6)).cv2 == pytest.approx(8 / 3 / 16)
    uniform = Lengths("uniform", 10, 30)
    assert (uniform.mean, uniform.cv2) == (20, pytest.approx(400 / 12 / 400))
    wide = Lengths("lognormal", 100, 0.7)
    assert wide.mean == 100 and wide.cv2 == pytest.approx(math.exp(0.49) - 1)


def test_replicas_follow_a_day():
    # windows of 100 s, replicas of 1/s: 50, 250, 250, 100 requests want 1, 3, 3, 1
    counts = [50.0, 250.0, 250.0, 100.0]
    at_once = scaled_of(counts, 1.0, 0.0, 100.0)
    assert [w.needed for w in at_once.windows] == [1, 3, 3, 1]
    assert (at_once.peak, at_once.mean, at_once.n_starts) == (3, 2.0, 2)
    assert at_once.late_frac == 0.0 and at_once.planned_replica_s == 800
    assert at_once.fixed_replica_s == 3 * 4 * 100
    slow = scaled_of(counts, 1.0, 50.0, 100.0)  # half a window until a replica is up
    assert [w.planned for w in slow.windows] == [3, 3, 3, 1]
    assert slow.late_frac == pytest.approx(0.5 * (250 - 100) / 650)
    assert slow.planned_replica_s == pytest.approx(800 + 2 * 50)
    later = scaled_of(counts, 1.0, 0.0, 100.0, start_s=7.0)
    assert [w.start_s for w in later.windows][:2] == [7, 107]
