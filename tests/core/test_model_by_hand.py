"""Kinds of layer held by hand: every column of every mixer, at sizes that tell the terms apart."""

import pytest

from gpuscale.core.model.layer_shape import (
    ModelFlops,
    cached_elements,
    ffn_maps,
    ffn_matrix_weights,
    flop_per_token,
    kv_cache_bytes,
    layer_shape,
    model_flop_per_token,
    operators,
    state_bytes,
)
from gpuscale.core.model.mixers import (
    Attention,
    CompressedAttention,
    GatedDelta,
    LightningAttention,
    Mamba2,
    Mla,
    NoMixer,
    ShortConv,
)
from gpuscale.core.model.mixers.kind import (
    CacheShape,
    Kept,
    Plain,
    Scan,
    Softmax,
    mean_context_tokens,
)
from gpuscale.core.model.params import (
    count_params,
    experts_met_frac,
    ffn_active_params,
    ffn_params,
    layer_norm_params,
    mtp_params,
    top_norm_params,
)
from gpuscale.specs.model import DenseFfn, ModelSpec, MoeFfn, NoFfn

H = 100
PLAIN = {"n_heads": 8, "n_kv_heads": 2, "head_dim": 16}


def close(value, want):
    return value == pytest.approx(want, rel=1e-9, abs=1e-12)


# --- softmax attention ---------------------------------------------------------------------------

Q, KV = 8 * 16, 2 * 16  # 128 and 32


@pytest.mark.parametrize(
    ("changed", "matrices", "vectors"),
    [
        ({}, H * (Q + 2 * KV) + Q * H, 0),
        ({"v_head_dim": 10}, H * (Q + KV + 20) + 80 * H, 0),
        ({"reuses_kv": True}, 2 * H * Q, 0),
        ({"shared_kv": True}, H * (Q + KV) + Q * H, 0),
        ({"output_gate": True}, H * (2 * Q + 2 * KV) + Q * H, 0),
        ({"head_gate": True}, H * (Q + 2 * KV) + Q * H + H * 8, 0),
        ({"qkv_bias": True}, H * (Q + 2 * KV) + Q * H, Q + 2 * KV),
        ({"out_bias": True}, H * (Q + 2 * KV) + Q * H, H),
        ({"qk_norm": "head"}, H * (Q + 2 * KV) + Q * H, 2 * 16),
        ({"qk_norm": "head", "reuses_kv": True}, 2 * H * Q, 16),
        ({"qk_norm": "full"}, H * (Q + 2 * KV) + Q * H, Q + KV),
        ({"sinks": True, "extra_params": 5.0}, H * (Q + 2 * KV) + Q * H, 8 + 5),
        ({"q_lora_rank": 7}, (H + Q) * 7 + H * 2 * KV + Q * H, 7),
        ({"q_lora_rank": 7, "output_gate": True}, (H + 2 * Q) * 7 + H * 2 * KV + Q * H, 7),
        (
            {"index_n_heads": 3, "index_head_dim": 5, "sparse_top_k_tokens": 4},
            H * (Q + 2 * KV) + Q * H + H * (3 + 1) * 5,
            2 * 5,
        ),
    ],
)
def test_weights_of_attention(changed, matrices, vectors):
    mixer = Attention(**PLAIN, **changed)
    assert mixer.weights(H) == (matrices, vectors)
    gates = H * 8 if "head_gate" in changed else 0
    index = H * (3 + 1) * 5 if "index_n_heads" in changed else 0
    assert sum(m.params for m in mixer.maps(H)) == matrices - gates - index
    if not changed.get("q_lora_rank"):
        assert sum(p.n * p.k for p in mixer.work(H).products) == matrices - gates - index


def test_products_of_attention_on_a_rank():
    """Two KV heads over four ranks: each rank has one of its own."""
    work = Attention(**PLAIN, v_head_dim=10).work(H, 4)
    assert [(p.n, p.k) for p in work.products] == [(32 + 26, H), (H, 20)]
    assert work.core == Softmax(2, 16, 10, None, None, 0.0, whole=True)
    assert (work.streamed, work.exchanged) == (32 + 26, 26)
    masked = Attention(**PLAIN, window_tokens=9).work(H, 4).core
    assert masked.whole and masked.window_tokens == 9  # unfused, a window is a mask
    two = Attention(**PLAIN, window_tokens=9, sparse_top_k_tokens=4).work(H, 2)
    assert two.core == Softmax(4, 16, 16, 9, 4, 0.0, whole=False)
    assert (two.streamed, two.exchanged) == (64 + 32, 32)
    index = Attention(**PLAIN, index_n_heads=3, index_head_dim=5).work(H).core
    assert index.index_flop_per_key == 2 * 3 * 5
    low = Attention(**PLAIN, q_lora_rank=7, shared_kv=True).work(H, 2)
    assert [(p.n, p.k) for p in low.products] == [(7 + 16, H), (64, 7), (H, 64)]
    reused = Attention(**PLAIN, reuses_kv=True, output_gate=True).work(H, 2)
    assert [(p.n, p.k) for p in reused.products] == [(2 * 64, H), (H, 64)]


@pytest.mark.parametrize(
    ("seq", "window", "causal", "keys"),
    [(4, None, True, 2.5), (4, 2, True, 1.75), (4, 9, True, 2.5), (4, 2, False, 2.0)],
)
def test_keys_met_on_average(seq, window, causal, keys):
    assert mean_context_tokens(seq, window, causal) == keys


def test_flop_cache_and_keys_of_attention():
    """2 heads (qk + v) a key: 2 x 8 x 26; of 10 tokens a mean of 5.5, of a window of 4, 3.4."""
    full = Attention(**PLAIN, v_head_dim=10)
    assert full.flop(10) == 416 * 5.5 and full.flop(10, causal=False) == 4160
    window = Attention(**PLAIN, v_head_dim=10, window_tokens=4)
    assert close(window.flop(10), 416 * 3.4)
    sparse = {"sparse_top_k_tokens": 4, "index_n_heads": 3, "index_head_dim": 5}
    indexed = Attention(**PLAIN, v_head_dim=10, **sparse)
    assert close(indexed.flop(10), 416 * 3.4 + 30 * 5.5)
    assert full.cache() == CacheShape(elements_per_token=2 * 26)
    assert indexed.cache() == CacheShape(elements_per_token=2 * 26 + 5)
    assert window.cache() == CacheShape(window_elements_per_token=52, window_tokens=4)
    assert Attention(**PLAIN, reuses_kv=True).cache() == CacheShape()
    assert [m.met_keys(10) for m in (full, window, indexed)] == [10, 4, 4]
    assert [m.met_keys(3) for m in (full, window, indexed)] == [3, 3, 3]
    assert window.read_tokens(10) == 4.0 and full.flop_per_key(True) == 416.0
    assert [full.cache_shards(tp) for tp in (1, 2, 8)] == [1, 2, 2]
    assert Attention(**PLAIN, reuses_kv=True).cache_shards(8) == 8
    assert full.heads() == (8, 2)
    assert window.words() == "8 heads, 2 KV, 16 wide, window 4"
    assert indexed.words() == "8 heads, 2 KV, 16 wide, top 4"


@pytest.mark.parametrize(
    ("changed", "split"),
    [
        ({}, Q + 2 * KV + Q),
        ({"v_head_dim": 10}, Q + KV + 20 + 80),
        ({"output_gate": True}, 2 * Q + 2 * KV + Q),
        ({"shared_kv": True}, Q + KV + Q),
        ({"reuses_kv": True}, 2 * Q),
        ({"window_tokens": 9}, Q + 2 * KV + Q),
    ],
)
def test_what_attention_keeps(changed, split):
    assert Attention(**PLAIN, **changed).kept() == Kept(split=split, score_heads=8.0)


# --- latent attention ----------------------------------------------------------------------------

LATENT = {
    "n_heads": 8,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
}
DOWN, UP, OUT = H * 24, 20 * 8 * 22, 80 * H


@pytest.mark.parametrize(
    ("changed", "matrices", "vectors"),
    [
        ({}, H * 128 + DOWN + UP + OUT, 20),
        ({"q_lora_rank": 7}, (H + 128) * 7 + DOWN + UP + OUT, 27),
        ({"q_lora_rank": 7, "bias": True}, (H + 128) * 7 + DOWN + UP + OUT, 27 + 7 + 24 + H),
        ({"bias": True, "extra_params": 3.0}, H * 128 + DOWN + UP + OUT, 20 + 24 + H + 3),
        (
            {"q_lora_rank": 7, "index_n_heads": 3, "index_head_dim": 5},
            (H + 128) * 7 + DOWN + UP + OUT + 7 * 15 + H * 5 + H * 3,
            27 + 10,
        ),
        (
            {"index_n_heads": 3, "index_head_dim": 5},
            H * 128 + DOWN + UP + OUT + H * 15 + H * 5 + H * 3,
            20 + 10,
        ),
    ],
)
def test_weights_of_latent_attention(changed, matrices, vectors):
    mixer = Mla(**LATENT, **changed)
    assert mixer.weights(H) == (matrices, vectors)
    index = 0
    if changed.get("index_n_heads"):
        index = (changed.get("q_lora_rank") or H) * 15 + H * 8
    assert sum(m.params for m in mixer.maps(H)) == matrices - index
    assert sum(p.n * p.k for p in mixer.work(H).products) == matrices


def test_columns_of_latent_attention():
    mixer = Mla(**LATENT, q_lora_rank=7)
    work = mixer.work(H, 2)
    assert [(p.n, p.k) for p in work.products] == [(31, H), (64, 7), (88, 20), (H, 40)]
    assert [p.from_latent for p in work.products] == [False, True, True, False]
    assert [p.absorbed for p in work.products] == [False, False, True, False]
    assert work.core == Softmax(4, 16, 10, None, None, 0.0, whole=False)
    assert (work.streamed, work.exchanged) == (4 * 42, 4 * 26)
    up = 8 * (16 + 16 + 10)
    assert mixer.kept() == Kept(2 * (7 + 20) + 4, up + 80, up, 8.0)
    assert Mla(**LATENT).kept().latent == 2 * 20 + 4
    assert mixer.flop(10) == 2 * 8 * 26 * 5.5 and mixer.flop(10, causal=False) == 4160
    assert mixer.flop_per_key(True) == 2 * 8 * (24 + 20)
    assert mixer.cache() == CacheShape(elements_per_token=24)
    indexed = Mla(**LATENT, sparse_top_k_tokens=4, index_n_heads=3, index_head_dim=5)
    assert close(indexed.flop(10), 416 * 3.4 + 30 * 5.5)
    assert indexed.cache().elements_per_token == 29
    assert indexed.work(H).core.index_flop_per_key == 30 == indexed.work(H, 2).core[5]
    assert indexed.work(H).core.top_k_tokens == 4
    assert (mixer.met_keys(10), indexed.met_keys(10), indexed.read_tokens(3)) == (10, 4, 3)
    assert mixer.cache_shards(8) == 1 and mixer.heads() == (8, 0)
    assert mixer.words() == "MLA, 8 heads, latent 20+4"
    assert indexed.words() == "MLA, 8 heads, latent 20+4, top 4"


# --- compressed attention ------------------------------------------------------------------------

SHORT = {
    "n_heads": 8,
    "head_dim": 16,
    "q_lora_rank": 7,
    "o_lora_rank": 3,
    "o_groups": 4,
    "window_tokens": 6,
}
MAPS = (H + Q) * 7 + H * 16 + Q * 3 + 4 * 3 * H
FAR = {"compress_rate": 5}
INDEX = FAR | {"sparse_top_k_tokens": 2, "index_n_heads": 3, "index_head_dim": 9}


@pytest.mark.parametrize(
    ("changed", "matrices", "vectors"),
    [
        ({}, MAPS, 7 + 16 + 8),
        ({"index_n_heads": 3, "index_head_dim": 9}, MAPS, 7 + 16 + 8),
        (FAR, MAPS + 2 * H * 16, 31 + 5 * 16 + 16),
        (INDEX, MAPS + 2 * H * 32 + 2 * H * 18 + 7 * 27 + H * 3, 31 + 5 * 32 + 16 + 5 * 18 + 9),
    ],
)
def test_weights_of_compressed_attention(changed, matrices, vectors):
    mixer = CompressedAttention(**SHORT, **changed)
    assert mixer.weights(H) == (matrices, vectors)
    assert sum(m.params for m in mixer.maps(H)) == MAPS
    work = mixer.work(H, 2)
    assert close(sum(p.n * p.k for p in work.products), matrices / 2)
    assert (work.core, work.exchanged) == (Plain(), 0.0) and close(work.streamed, matrices / H / 2)


def test_columns_of_compressed_attention():
    """4 heads d a key; of 100 tokens 50.5 on average, a fifth of it compressed."""
    near, far, index = (CompressedAttention(**SHORT, **c) for c in ({}, FAR, INDEX))
    window = (6 * 7 / 2 + 94 * 6) / 100
    assert close(near.flop(100), 4 * 128 * window)
    assert close(far.flop(100), 4 * 128 * (window + 10.1))
    assert close(index.flop(100), 4 * 128 * (window + 2) + 2 * 3 * 9 * 10.1)
    assert close(index.flop(5, causal=False), 4 * 128 * (5 + 1) + 2 * 3 * 9)
    assert near.cache() == CacheShape(0.0, 16, 6)
    assert far.cache() == CacheShape(16 / 5, 16, 6)
    assert index.cache() == CacheShape(25 / 5, 16, 6)
    assert near.kept() == Kept(latent=2 * 7 + 3 * 16, split=2 * Q + 12)
    assert (near.met_keys(100), far.met_keys(100), far.met_keys(5)) == (6, 26, 6)
    assert far.read_tokens(100) == 100 and far.cache_shards(8) == 1 and far.heads() == (8, 0)
    assert far.flop_per_key(True) == 4 * 128
    assert near.words() == "8 heads, 16 wide, window 6"
    assert far.words() == "8 heads, 16 wide, window 6, 1 of 5 beyond"


# --- recurrences ---------------------------------------------------------------------------------


def test_lightning_attention():
    mixer = LightningAttention(n_heads=8, head_dim=16)
    assert mixer.weights(H) == (5 * Q * H, Q)
    assert [(m.n_in, m.n_out) for m in mixer.maps(H)] == [(H, Q)] * 4 + [(Q, H)]
    assert mixer.flop(99) == 4 * 8 * 256
    assert mixer.cache() == CacheShape(state_elements=8 * 256)
    assert mixer.kept() == Kept(split=6 * Q)
    work = mixer.work(H, 2)
    assert [(p.n, p.k) for p in work.products] == [(5 * Q / 2, H)]
    assert (work.core, work.streamed, work.exchanged) == (Plain(), 5 * Q / 2, 0.0)
    assert mixer.heads() == (8, 0) and mixer.words() == "lightning, 8 heads, state 16 x 16"


def test_gated_delta():
    """Keys of 2 x 12, values of 8 x 10; a convolution over q, k and v; chunks of 64 tokens."""
    mixer = GatedDelta(n_k_heads=2, n_v_heads=8, k_head_dim=12, v_head_dim=10, conv_kernel=5)
    key, value = 24, 80
    projected = 2 * key + 2 * value + 2 * 8
    assert mixer.weights(H) == (H * projected + value * H, (2 * key + value) * 5 + 2 * 8 + 10)
    assert [(m.n_in, m.n_out) for m in mixer.maps(H)] == [(H, projected), (value, H)]
    assert mixer.flop(99) == 6 * value * 12
    assert mixer.cache() == CacheShape(
        state_elements=value * 12, conv_elements=4 * (2 * key + value)
    )
    assert mixer.kept() == Kept(split=2 * (2 * key + value) + 3 * value + 64 * 8)
    work = mixer.work(H, 2)
    width = key + value
    assert [(p.n, p.k) for p in work.products] == [(width, H), (H, value / 2)]
    assert work.core == Scan(2 * 64 * width + 3 * value * 12, 2 * width)
    assert (work.streamed, work.exchanged) == (width, 0.0)
    assert mixer.heads() == (8, 2) and mixer.words() == "gated delta, 8 heads, state 12 x 10"


def test_kimi_delta():
    """A decay for each channel of the keys; it and the gate through a rank of 12."""
    heads = {"n_k_heads": 8, "n_v_heads": 8, "k_head_dim": 12, "v_head_dim": 12}
    mixer = GatedDelta(**heads, gate_rank=12)
    width = 8 * 12
    low = 2 * (H * 12 + 12 * width)
    vectors = 3 * width * 4 + width + 8 + 12  # convolutions, steps, decay, norm
    assert mixer.weights(H) == (H * (3 * width + 8) + low + width * H, vectors)
    assert sum(m.params for m in mixer.maps(H)) == mixer.weights(H)[0]
    assert mixer.cache() == GatedDelta(**heads).cache()
    half = [(p.n, p.k) for p in mixer.work(H, 2).products]  # down to the rank on both GPUs
    split = width / 2
    assert half == [(3 * split + 24, H), (width, 12), (H, split)]
    whole = sum(p.n * p.k for p in mixer.work(H).products)
    assert whole == mixer.weights(H)[0] - 8 * H, "all but a step's strength"


def test_mamba2():
    """8 heads of 16, two groups of B and C, 6 states; chunks of 256 tokens."""
    shape = {"n_heads": 8, "head_dim": 16, "state_size": 6, "n_groups": 2, "conv_kernel": 5}
    mixer = Mamba2(**shape)
    conv = Q + 2 * 2 * 6
    projected = 2 * Q + 2 * 2 * 6 + 8
    matrices, vectors = mixer.weights(H)
    assert (matrices, vectors) == (H * projected + Q * H, conv * 6 + 3 * 8 + Q)
    bare = Mamba2(**shape, conv_bias=False).weights(H)
    assert bare == (matrices, vectors - conv)
    biased = Mamba2(**shape, proj_bias=True).weights(H)
    assert biased == (matrices, vectors + projected + H)
    assert [(m.n_in, m.n_out) for m in mixer.maps(H)] == [(H, projected), (Q, H)]
    assert mixer.flop(99) == 4 * Q * 6
    assert mixer.cache() == CacheShape(state_elements=Q * 6, conv_elements=4 * conv)
    assert mixer.kept() == Kept(split=projected + 2 * Q)
    for tp, state in ((1, 12), (2, 6), (4, 6)):  # a group at least on every rank
        inner = Q / tp
        work = mixer.work(H, tp)
        width = 2 * inner + 2 * state
        assert [(p.n, p.k) for p in work.products] == [(width + 8 / tp, H), (H, inner)]
        flop = 256 * (state + inner) + 4 * inner * 6
        assert work.core == Scan(flop, 2 * (3 * inner + 2 * state))
        assert (work.streamed, work.exchanged) == (width, 0.0)
    assert mixer.heads() == (8, 2) and mixer.words() == "Mamba-2, 8 heads, state 16 x 6"


def test_short_convolution():
    mixer = ShortConv(width=40, conv_kernel=5)
    assert mixer.weights(H) == (4 * 40 * H, 5 * 40)
    assert ShortConv(width=40, conv_kernel=5, bias=True).weights(H)[1] == 5 * 40 + 4 * 40 + H
    assert [(m.n_in, m.n_out) for m in mixer.maps(H)] == [(H, 120), (40, H)]
    assert mixer.flop(99) == 12 * 40
    assert mixer.cache() == CacheShape(conv_elements=4 * 40)
    assert mixer.kept() == Kept(split=240)
    work = mixer.work(H, 2)
    assert [(p.n, p.k) for p in work.products] == [(60, H), (H, 20)]
    assert (work.core, work.streamed, work.exchanged) == (Scan(240, 200), 60, 0.0)
    assert mixer.heads() == (0, 0) and mixer.words() == "short convolution, 40 wide, 5 taps"


@pytest.mark.parametrize(
    "mixer", [NoMixer(), ShortConv(width=4), LightningAttention(n_heads=2, head_dim=4)]
)
def test_a_recurrence_meets_no_keys(mixer):
    assert mixer.met_keys(99) == mixer.read_tokens(99) == mixer.flop_per_key(True) == 0.0
    assert mixer.cache_shards(8) == 8
    nothing = NoMixer()
    assert (nothing.weights(H), nothing.maps(H), nothing.flop(9)) == ((0, 0), (), 0.0)
    assert (nothing.cache(), nothing.kept(), nothing.heads()) == (CacheShape(), Kept(), (0, 0))
    assert nothing.work(H).core is None and nothing.words() == "no mixer"


# --- feed-forward --------------------------------------------------------------------------------

DENSE = DenseFfn(ffn_hidden_size=30)
EXPERTS = {"n_experts": 8, "top_k": 3, "expert_ffn_hidden_size": 20}


@pytest.mark.parametrize(
    ("ffn", "every", "active", "multiplied"),
    [
        (DENSE, 3 * H * 30, 3 * H * 30, 3 * H * 30),
        (DenseFfn(ffn_hidden_size=30, gated=False), 2 * H * 30, 2 * H * 30, 2 * H * 30),
        (DenseFfn(ffn_hidden_size=30, bias=True, extra_params=5), 9000 + 160 + 5, 9165, 9000),
        (DenseFfn(ffn_hidden_size=30, gated=False, bias=True), 6000 + 130, 6130, 6000),
        (NoFfn(), 0, 0, 0),
        (MoeFfn(**EXPERTS), 8 * 6000 + 800, 3 * 6000 + 800, 3 * 6000 + 800),
        (MoeFfn(**EXPERTS, gated=False), 8 * 4000 + 800, 3 * 4000 + 800, 3 * 4000 + 800),
        (MoeFfn(**EXPERTS, bias=True), 8 * 6140 + 800, 3 * 6140 + 800, 3 * 6000 + 800),
        (MoeFfn(**EXPERTS, router_bias=True, extra_params=5), 48_813, 18_813, 18_800),
        (MoeFfn(**EXPERTS, shared_ffn_hidden_size=10), 51_800, 21_800, 21_800),
        (MoeFfn(**EXPERTS, dense_ffn_hidden_size=10, gated=False), 34_800, 14_800, 14_800),
        (MoeFfn(**EXPERTS, shared_ffn_hidden_size=10, shared_gate=True), 51_900, 21_900, 21_900),
        (
            MoeFfn(**EXPERTS, latent_size=50),
            8 * 3000 + 800 + 10_000,
            3 * 3000 + 800 + 10_000,
            3 * 3000 + 800 + 10_000,
        ),
    ],
)
def test_weights_of_a_feed_forward_part(ffn, every, active, multiplied):
    assert (ffn_params(ffn, H), ffn_active_params(ffn, H)) == (every, active)
    assert ffn_matrix_weights(ffn, H) == multiplied


def test_maps_of_a_feed_forward_part():
    def of(**changed):
        found = ffn_maps(MoeFfn(**EXPERTS, **changed), H)
        return [(m.name, m.n_in, m.n_out, m.copies, m.per_token) for m in found]

    routed = [("gate", 100, 20, 8, 3), ("up", 100, 20, 8, 3), ("down", 20, 100, 8, 3)]
    assert of() == routed and ffn_maps(NoFfn(), H) == ()
    assert of(gated=False, latent_size=50) == [("up", 50, 20, 8, 3), ("down", 20, 50, 8, 3)]
    shared = of(shared_ffn_hidden_size=9)[3:]
    assert shared == [
        ("shared_gate", 100, 9, 1, 1),
        ("shared_up", 100, 9, 1, 1),
        ("shared_down", 9, 100, 1, 1),
    ]
    assert [m[0] for m in of(dense_ffn_hidden_size=9)[3:]] == [
        "dense_gate",
        "dense_up",
        "dense_down",
    ]
    plain = [(m.name, m.n_in, m.n_out, m.copies) for m in ffn_maps(DENSE, H)]
    assert plain == [("gate", 100, 30, 1), ("up", 100, 30, 1), ("down", 30, 100, 1)]


@pytest.mark.parametrize(("tokens", "frac"), [(1, 0.25), (2, 0.4375), (0, 0.0)])
def test_experts_met(tokens, frac):
    assert experts_met_frac(8, 2, tokens) == frac
    assert experts_met_frac(2, 8, 1) == 1.0


# --- a model -------------------------------------------------------------------------------------

ATTENTION = {"kind": "attention"} | PLAIN
LAYER = H * (Q + 2 * KV) + Q * H


def model(layers="3 x a+d, 2 x a+e", mixers=None, **changed):
    return ModelSpec.model_validate(
        {
            "name": "toy",
            "hidden_size": H,
            "vocab_size": 1000,
            "layers": layers,
            "mixers": mixers or {"a": ATTENTION},
            "ffns": {
                "d": {"kind": "dense", "ffn_hidden_size": 30},
                "e": {"kind": "moe"} | EXPERTS,
                "n": {"kind": "none"},
            },
        }
        | changed
    )


def test_flop_of_a_token():
    """5 layers of attention, 3 dense, 2 with experts; 512 a key; head of 1,000 words."""
    found = flop_per_token(model(), 9)
    want = ModelFlops(5 * 2 * LAYER, 5 * 512 * 5.0, 2 * (3 * 9000 + 2 * 18_800), 2e5)
    assert found == want
    assert close(found.forward_flop, sum(getattr(want, n) for n in want.__slots__))
    assert found.backward_flop == 2 * found.forward_flop
    assert found.training_flop == 3 * found.forward_flop
    assert flop_per_token(model(), 9, causal=False).attention_flop == 5 * 512 * 9
    streams = flop_per_token(model(hc_mult=4), 9)
    assert streams.other_flop == 2 * (2 * 24 * 5 + 4) * 4 * H
    embedded = flop_per_token(model(ple_hidden_size=7, ple_vocab_size=11), 9)
    assert embedded.other_flop == 2 * 3 * 7 * H * 5
    with pytest.raises(ValueError, match="seq_len"):
        flop_per_token(model(), 0)
    assert flop_per_token(model(), 1).attention_flop == 5 * 512


def test_flop_of_prediction_layers():
    """Each is a mean layer, a head and a product of 2h x h, forward and backward."""
    plain = flop_per_token(model(), 9)
    layer = (plain.forward_flop - 2e5) / 5
    want = 3 * (plain.forward_flop + 2 * (layer + 2e5 + 2 * 2 * H * H))
    assert close(model_flop_per_token(model(n_mtp_layers=2), 9), want)
    assert model_flop_per_token(model(), 9) == plain.training_flop


def test_parameters_of_a_model():
    """Norms of 100, two a layer; a tied head is counted once, and works."""
    plain = count_params(model())
    edges, layers = 1000 * H, 5 * (LAYER + 200) + 3 * 9000 + 2 * 48_800
    assert plain.total_params == 2 * edges + layers + H
    assert plain.active_params == plain.total_params - 2 * 5 * 6000
    assert plain.active_params_excl_embedding == plain.active_params - edges
    tied = count_params(model(tie_embeddings=True))
    assert tied.total_params == edges + layers + H and tied.head_params == 0
    assert tied.active_params_excl_embedding == tied.active_params
    assert (plain.mixer_params, plain.ffn_params) == (5 * LAYER, 3 * 9000 + 2 * 48_800)
    assert plain.norm_params == 5 * 200 + H
    seen = count_params(model(vision_params=77, extra_params=5))
    assert seen.total_params == plain.total_params + 82
    assert seen.active_params == plain.active_params + 5
    biased = count_params(model(tie_embeddings=True, lm_head_bias=True))
    assert biased.head_params == 1000
    places = count_params(model(position="learned", max_position=64))
    assert places.embedding_params == edges + 64 * H
    assert places.active_params_excl_embedding == plain.active_params_excl_embedding
    first, second = plain.groups
    assert (first.n_layers, first.layer_params) == (3, LAYER + 9000 + 200)
    assert first.params == 3 * first.layer_params
    assert second.active_layer_params == LAYER + 18_800 + 200


@pytest.mark.parametrize(
    ("changed", "layer", "top"),
    [
        ({}, 200, 100),
        ({"norm": "layernorm"}, 400, 200),
        ({"norms_per_layer": 4}, 400, 100),
        ({"final_norm": False}, 200, 0),
        ({"embedding_norm": True}, 200, 200),
        ({"hc_mult": 4}, 200 + 2 * (24 * 4 * H + 24 + 3), 100 + 16 * H + 5),
        ({"ple_hidden_size": 7, "ple_vocab_size": 11}, 200 + 2 * 7 * H + H, 100 + 7 * (5 * H + 1)),
    ],
)
def test_vectors_beside_the_layers(changed, layer, top):
    toy = model(**changed)
    assert (layer_norm_params(toy), top_norm_params(toy)) == (layer, top)
    if changed.get("ple_hidden_size"):
        assert count_params(toy).embedding_params == 1000 * H + 11 * 7 * 5


def test_parameters_of_prediction_layers():
    """The last layer again, three norms and a projection of 2h x h (DeepSeek-V3, section 2.2)."""
    one = LAYER + 48_800 + 200 + 2 * H * H + 3 * H
    assert mtp_params(model(n_mtp_layers=2)) == 2 * one
    assert mtp_params(model()) == 0
    assert count_params(model(n_mtp_layers=2)).total_params == count_params(model()).total_params


def test_cache_of_a_model():
    mixers = {
        "a": ATTENTION,
        "w": ATTENTION | {"window_tokens": 6},
        "s": {"kind": "short-conv", "width": 40},
        "l": {"kind": "lightning", "n_heads": 8, "head_dim": 16},
    }
    toy = model("1 x a+d, 2 x w+d, 3 x s+d, 1 x l+d", mixers)
    assert cached_elements(toy) == 3 * 64
    state = 3 * 2 * 40
    assert state_bytes(toy, 1.0) == state + 4 * 2048
    assert kv_cache_bytes(toy, 4, 1.0) == 3 * 64 * 4 + state + 4 * 2048
    assert kv_cache_bytes(toy, 10) == 2 * (64 * 10 + 2 * 64 * 6 + state) + 4 * 2048
    assert kv_cache_bytes(toy, 0) == 2 * state + 4 * 2048


def test_shape_of_the_main_layer():
    """Two layers of experts hold 97,600 of FFN weights that a token meets 37,600 of: the main."""
    shape = layer_shape(model(mixers={"a": ATTENTION | {"v_head_dim": 10}}))
    mixer = H * (Q + KV + 20) + 80 * H
    assert (shape.hidden_size, shape.ffn_hidden_size, shape.n_matrices) == (H, 20, 3)
    assert (shape.n_experts, shape.top_k, shape.n_layers) == (8, 3, 5)
    assert (shape.shared_width, shape.n_route_groups, shape.mixer_weights) == (0.0, 0, mixer)
    assert close(shape.layer_weights, mixer + (3 * 9000 + 2 * 18_800) / 5)
    assert (shape.q_width, shape.kv_width) == (8 * 26 / 2, 2 * 26 / 2)
    dense = layer_shape(model("9 x a+d, 1 x a+e"))
    assert (dense.ffn_hidden_size, dense.n_experts, dense.top_k) == (30, 1, 1)
    assert (dense.shared_width, dense.n_route_groups) == (0.0, 0)
    assert (dense.q_width, dense.kv_width) == (128, 32)
    ffns = {
        "e": {"kind": "moe", "gated": False, "n_route_groups": 2}
        | EXPERTS
        | {"shared_ffn_hidden_size": 7, "dense_ffn_hidden_size": 4}
    }
    beside = layer_shape(model("2 x a+e", ffns=ffns))
    assert (beside.shared_width, beside.n_route_groups, beside.n_matrices) == (11.0, 2, 2)
    windows = {"a": {"kind": "short-conv", "width": 400}, "b": ATTENTION | {"window_tokens": 4}}
    mixed = layer_shape(model("1 x a+d, 1 x b+d, 1 x b+n", windows))
    assert (mixed.q_width, mixed.kv_width, mixed.mixer_weights) == (128, 32, 4 * 400 * H)
    assert layer_shape(model("2 x a+d", {"a": windows["a"]})).q_width == 0.0
    with pytest.raises(ValueError, match="no FFN"):
        layer_shape(model("2 x a+n"))


def test_operators_of_a_layer():
    """Products in 16 bits, each operand moved once; a core moves q, k, v and the output."""
    toy = model("1 x a+d, 1 x a+e")
    found = {op.name: op for op in operators(toy, 64.0, 32.0, False)}
    qkv = found["QKV"]
    assert (qkv.m, qkv.n, qkv.k, qkv.flop) == (64, 192, H, 2 * 64 * 192 * H)
    assert qkv.moved_bytes == 2 * (64 * H + 192 * H + 64 * 192)
    assert close(qkv.intensity, qkv.flop / qkv.moved_bytes)
    core = found["attention core"]
    assert core.flop == 64 * 16.5 * 512 and core.moved_bytes == 2 * 64 * (256 + 64)
    sizes = {n: (op.m, op.n, op.k) for n, op in found.items() if n != "attention core"}
    assert sizes["attention out"] == (64, H, Q)
    assert sizes["FFN up"] == (64, 60, H) and sizes["FFN down"] == (64, H, 30)
    assert sizes["expert up"] == (24, 40, H) and sizes["expert down"] == (24, H, 20)
    assert sizes["head"] == (64, 1000, H)
    decoding = {op.name: op for op in operators(toy, 2.0, 32.0, True)}
    core = decoding["attention core"]
    assert core.flop == 2 * 32 * 512 and core.moved_bytes == 2 * 2 * (256 + 32 * 64)
    assert decoding["expert up"].m == 1.0
    window = operators(model("1 x a+d", {"a": ATTENTION | {"window_tokens": 4}}), 2, 32.0, True)
    core = next(op for op in window if op.name == "attention core")
    assert core.flop == 2 * 4 * 512 and core.moved_bytes == 4 * (256 + 4 * 64)
    prompt = operators(model("1 x a+d", {"a": ATTENTION | {"window_tokens": 4}}), 32, 32.0, False)
    core = next(op for op in prompt if op.name == "attention core")
    assert core.flop == 32 * 512 * (1 + 2 + 3 + 29 * 4) / 32
    latent = {"e": {"kind": "moe", "gated": False, "latent_size": 50} | EXPERTS}
    thin = {op.name: op for op in operators(model("1 x a+e", ffns=latent), 64.0, 32.0, False)}
    assert (thin["expert up"].n, thin["expert up"].k) == (20, 50)
    assert (thin["expert down"].n, thin["expert down"].k) == (50, 20)
    bare = {"mixers": {"s": {"kind": "short-conv", "width": 4}}, "ffns": {"n": {"kind": "none"}}}
    none = operators(model("1 x s+n", **bare), 2.0, 2.0, False)
    assert [op.name for op in none] == ["conv in", "conv out", "head"]
