"""Model FLOPs against the published formulas, and invariants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.model.layer_shape import flop_per_token, six_p_flop_per_token
from gpuscale.core.model.mixers.kind import mean_context_tokens
from gpuscale.core.model.params import count_params
from gpuscale.io.models import load_model
from gpuscale.io.presets import preset_names


def test_megatron_formula():
    """Narayanan et al. 2021, eq. 2: 96 B s l h^2 (1 + s/6h + V/16lh) with recomputation, so 72
    without; their attention is not causal."""
    spec = load_model("megatron-175b").spec
    s, layers, h, v = 2048, 96, 12288, 51200
    want = 72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert flop_per_token(spec, s, causal=False).training_flop == pytest.approx(want, rel=1e-9)


def test_palm_formula():
    """Chowdhery et al. 2022, appendix B: 6N + 12 L H Q T with N without embeddings."""
    spec = load_model("gpt3-175b").spec
    h, layers, t = 12288, 96, 2048
    want = 6 * (12 * layers * h * h + spec.vocab_size * h) + 12 * layers * h * t
    assert flop_per_token(spec, t, causal=False).training_flop == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("name", preset_names("model"))
def test_linear_part_is_twice_the_active_matrices(name):
    """Without attention, forward FLOP are 2 per active weight, but for vectors and embedding."""
    spec = load_model(name).spec
    f = flop_per_token(spec, 1)
    linear = f.mixer_linear_flop + f.ffn_flop + f.head_flop + f.other_flop
    params = count_params(spec)
    no_lookup = params.active_params_excl_embedding
    assert linear <= 2 * no_lookup
    if not spec.position == "learned":
        assert linear == pytest.approx(
            2 * no_lookup, rel=0.012 if name != "chinchilla-70b" else 0.1
        )
    assert f.training_flop == 3 * f.forward_flop


def test_six_p():
    assert six_p_flop_per_token(70e9) == 4.2e11


@given(s=st.integers(1, 3000), w=st.integers(1, 3000))
def test_mean_context_is_the_mean(s, w):
    counted = sum(min(i, w) for i in range(1, s + 1)) / s
    assert mean_context_tokens(s, w, True) == pytest.approx(counted)
    assert mean_context_tokens(s, w, False) == min(s, w)


@given(s=st.integers(1, 10**6), more=st.integers(0, 10**6))
def test_sparse_and_windowed_never_cost_more(s, more):
    full = load_model("deepseek-v3").spec.mixers["mla"]
    sparse = load_model("deepseek-v3.2").spec.mixers["dsa"]
    index = 2 * sparse.index_n_heads * sparse.index_head_dim * mean_context_tokens(s, None, True)
    assert sparse.flop(s) - index <= full.flop(s) * (1 + 1e-12)
    assert full.flop(s) <= full.flop(s + more)


def test_bad_length():
    with pytest.raises(ValueError, match="seq_len"):
        flop_per_token(load_model("gpt2").spec, 0)
