"""The table of mixer kinds is full, and its columns agree with each other."""

from dataclasses import dataclass
from typing import ClassVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.model.mixers import AnyMixer, recurrent
from gpuscale.core.model.mixers.kind import Mixer
from gpuscale.io.models import load_model
from gpuscale.io.presets import preset_names

KINDS = get_args(AnyMixer)
MIXERS = {
    f"{name}/{key}": (mixer, spec.hidden_size)
    for name in preset_names("model")
    if (spec := load_model(name).spec)
    for key, mixer in spec.mixers.items()
}


def test_every_kind_is_read_from_files_and_used_by_a_preset():
    def below(cls):
        return {c for sub in cls.__subclasses__() for c in (sub, *below(sub))}

    written = {c for c in below(Mixer) if "kind" in vars(c) and c.__module__.startswith("gpuscale")}
    assert written == set(KINDS)
    assert len({cls.kind for cls in KINDS}) == len(KINDS)
    assert {type(mixer) for mixer, _ in MIXERS.values()} == set(KINDS)


def test_a_kind_with_a_column_left_out_cannot_be_defined():
    with pytest.raises(TypeError, match="Halved leaves out cache, maps, measured"):

        @dataclass(frozen=True, kw_only=True)
        class Halved(Mixer):
            measured: ClassVar[None] = None
            weights = flop = kept = work = met_keys = read_tokens = recurrent.NoMixer.flop
            flop_per_key = cache_shards = heads = words = recurrent.NoMixer.flop


@pytest.mark.parametrize("name", sorted(MIXERS))
def test_columns_agree(name):
    """Products hold the matrix weights; TP splits them; what is cached can be read."""
    mixer, hidden = MIXERS[name]
    matrices, vectors = mixer.weights(hidden)
    whole, half = mixer.work(hidden), mixer.work(hidden, 2)
    products = sum(p.n * p.k for p in whole.products)
    assert vectors >= 0 and products <= matrices * (1 + 1e-9)
    assert products >= 0.93 * matrices, "low-rank queries and indexers aside, all weights multiply"
    assert products / 2 <= sum(p.n * p.k for p in half.products) <= products
    cache, kept = mixer.cache(), mixer.kept()
    cached = cache.elements_per_token + cache.window_elements_per_token
    assert (cached > 0) == (mixer.flop_per_key(True) > 0) or getattr(mixer, "reuses_kv", False)
    assert kept.split >= whole.streamed / 4 and mixer.cache_shards(8) in range(1, 9)
    assert (mixer.kind == "none") == (matrices == 0) == (whole.core is None)
    assert mixer.words()


@pytest.mark.parametrize("kind", KINDS)
@given(context=st.floats(1, 1e6), more=st.floats(0, 1e6))
def test_a_longer_context_never_costs_less(kind, context, more):
    mixer = next(m for m, _ in MIXERS.values() if type(m) is kind)
    assert mixer.met_keys(context) <= mixer.met_keys(context + more)
    assert mixer.read_tokens(context) <= context
    assert mixer.flop(int(context)) <= mixer.flop(int(context + more)) * (1 + 1e-12)
