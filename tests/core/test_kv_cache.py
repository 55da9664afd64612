"""KV cache against published figures, and invariants."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.model.layer_shape import kv_bytes_per_token, kv_cache_bytes, state_bytes
from gpuscale.io.models import load_model

PUBLISHED = [  # preset, byte per element, byte per token, source
    ("llama3-70b", 2, 327_680, "2 x 80 layers x 8 heads x 128 x 2 byte"),
    ("llama3.1-405b", 2, 516_096, "DeepSeek-V3 ISCA 2025 paper, table 1: 516.096 kB"),
    ("qwen2.5-72b", 2, 327_680, "DeepSeek-V3 ISCA 2025 paper, table 1: 327.680 kB"),
    ("deepseek-v3", 2, 70_272, "DeepSeek-V3 ISCA 2025 paper, table 1: 70.272 kB"),
    ("gpt3-175b", 2, 4_718_592, "2 x 96 layers x 12288 x 2 byte"),
]


@pytest.mark.parametrize(("name", "size", "want", "source"), PUBLISHED)
def test_bytes_per_token(name, size, want, source):
    assert kv_bytes_per_token(load_model(name).spec, size) == want, source


def test_window_stops_growing():
    """gpt-oss-120b: 18 of 36 layers keep 128 tokens; 2 x 8 x 64 elements of 2 byte per layer."""
    spec = load_model("gpt-oss-120b").spec
    layer = 2 * 8 * 64 * 2
    assert kv_cache_bytes(spec, 128) == 36 * layer * 128
    assert kv_cache_bytes(spec, 10_000) == 18 * layer * (10_000 + 128)


def test_linear_state_is_constant():
    """Nemotron 3 Nano: 23 Mamba layers of 64 x 64 x 128 fp32, conv 3 x (4096 + 2 x 8 x 128)."""
    spec = load_model("nemotron-3-nano").spec
    per_layer = 64 * 64 * 128 * 4 + 3 * (4096 + 2 * 8 * 128) * 2
    assert state_bytes(spec) == kv_cache_bytes(spec, 0) == 23 * per_layer
    grown = kv_cache_bytes(spec, 1000) - kv_cache_bytes(spec, 0)
    assert grown == 1000 * kv_bytes_per_token(spec) == 1000 * 6 * 2 * 2 * 128 * 2


def test_deepseek_v4_keeps_far_less_than_v3():
    """The V4 report: at 1M tokens about a tenth of the cache of V3.2 or less."""
    v4, v3 = load_model("deepseek-v4-flash").spec, load_model("deepseek-v3").spec
    assert kv_cache_bytes(v4, 1_000_000) < 0.1 * kv_cache_bytes(v3, 1_000_000)


def test_reused_kv_costs_nothing():
    mixer = replace(load_model("llama3-8b").spec.mixers["full"], reuses_kv=True)
    assert mixer.cache().elements_per_token == 0


def test_negative_context_is_refused():
    with pytest.raises(ValueError, match="context_tokens"):
        kv_cache_bytes(load_model("gpt2").spec, -1)


@given(
    name=st.sampled_from(["gpt-oss-20b", "qwen3.5-35b-a3b", "gemma3-27b", "deepseek-v4-flash"]),
    short=st.integers(0, 10**6),
    more=st.integers(0, 10**6),
)
def test_cache_never_shrinks_with_context(name, short, more):
    spec = load_model(name).spec
    assert kv_cache_bytes(spec, short) <= kv_cache_bytes(spec, short + more)
    assert kv_cache_bytes(spec, short, 1) <= kv_cache_bytes(spec, short, 2)
