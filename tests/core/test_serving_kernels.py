"""Kernels and limits of serving by hand: experts, attention, queues, power, layouts, demand."""

import math
from types import SimpleNamespace

import pytest

from gpuscale.core.serving import kernels, power
from gpuscale.core.serving.capacity import NO_END, OpenLoad, open_load
from gpuscale.core.serving.extras import Extras
from gpuscale.core.serving.kernels import (
    STATE_BYTES_PER_ELEMENT,
    cache_read_bytes,
    decode_core_flop,
    decode_core_s,
    prefill_core_s,
    widened_peak,
)
from gpuscale.core.serving.layouts import n_experts, refusal, replica_layouts
from gpuscale.core.serving.loads import Demand, rounds
from gpuscale.core.serving.power import PowerParameters, gpu_power_w, use_frac
from gpuscale.core.serving.records import Batch, Drafts, Kernels, Replica, ServingSoftware
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site

LLAMA, MIXTRAL, DEEPSEEK, DELTA = (
    load_model(name).spec
    for name in ("llama3-70b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b")
)
KERNELS = Kernels(
    grouped_memory_eff=0.5, widened_memory_eff=0.5, widened_compute_eff=0.5,
    grouped_vector_ratio=10.0, grouped_ramp_rows=32.0, grouped_ramp_depth=256.0, routing_alike=0.1,
    routed_passes=6.0, expert_skew=0.2, prefill_attention_eff=0.5, prefill_ramp_tokens=500.0,
    decode_attention_eff=0.8, decode_flop_eff=0.25,
)  # fmt: skip


def at(**more):
    soft = {"vector_rows": 0.0} | more
    return SimpleNamespace(
        kernels=KERNELS, software=ServingSoftware("x", **soft), hbm_bytes_per_s=1e12,
        vector_flop_per_s=1e13, peaks={"bf16": 1e15, "fp8": 2e15},
    )  # fmt: skip


# --- experts -------------------------------------------------------------------------------------

SHAPES = ((2e6, 1024.0), (1e6, 512.0))


def softly(memory_s, compute_s):
    return math.hypot(memory_s, compute_s)


def test_grouped_products_by_hand():
    """Four experts of 3 M weights, 100 rows and 32 more an expert; loops start at 256 of k."""
    beside = (2e6 * 1.25 + 1e6 * 1.5) / (10 * 1e13)
    want = softly(24e6 / 0.5e12, 2 * 228 * (3e6 / 0.9e15 + beside))
    assert kernels.grouped_s(at(), 100.0, 4.0, SHAPES, "bf16") == pytest.approx(want)
    few = softly(24e6 / 0.5e12, 2 * 100 * (3e6 / 0.9e15 + 3e6 / 1e14))
    assert kernels.grouped_s(at(vector_rows=25.0), 100.0, 4.0, SHAPES, "bf16") == pytest.approx(few)
    tiled = kernels.grouped_s(at(vector_rows=24.9), 100.0, 4.0, SHAPES, "bf16")
    assert tiled == pytest.approx(want)
    narrow = softly(12e6 / 0.5e12, 2 * 228 * (3e6 / 1.8e15 + beside))
    assert kernels.grouped_s(at(), 100.0, 4.0, SHAPES, "fp8") == pytest.approx(narrow)
    # 4 bits are widened: half of the rate and of the bandwidth
    wide = softly(6e6 / 0.25e12, 2 * 228 * (3e6 / 0.45e15 + beside))
    assert kernels.grouped_s(at(), 100.0, 4.0, SHAPES, "int4") == pytest.approx(wide)
    ramped = softly(24e6 / 0.5e12, 2 * (100 + 64 * 4) * (3e6 / 0.9e15 + beside / 2))
    found = kernels.grouped_s(at(ramp_factor=2.0, vector_factor=2.0), 100.0, 4.0, SHAPES, "bf16")
    assert found == pytest.approx(ramped)
    slow = kernels.grouped_s(at(grouped_factor=3.0), 100.0, 4.0, SHAPES, "bf16")
    assert slow == pytest.approx(3 * want)
    assert widened_peak(at(), 1e15) == 0.5e15
    assert widened_peak(at(integer_rate=80.0), 1e15) == 8e14


def test_the_busiest_rank():
    assert kernels.busiest(50.0, math.e) == pytest.approx(60.0)  # sqrt(2 x 50)
    assert kernels.busiest(50.0, 1.0) == 50.0


@pytest.fixture
def grouped(monkeypatch):
    asked = []
    monkeypatch.setattr(
        kernels,
        "grouped_s",
        lambda site, rows, met, shapes, fmt: asked.append((rows, met, shapes)) or 1.0,
    )
    return asked


ROUTED = [  # model, tokens, replica; rows, experts met, inner width
    (MIXTRAL, 1.0, {}, 2.0, 2.0, 14336),
    (MIXTRAL, 1.0, {"tp": 4}, 2.0, 2.0, 3584),
    (MIXTRAL, 0.25, {}, 0.5, 1.0, 14336),
    # 64 tokens choose like 64^0.9 = 42.22: of 256 experts, 8 each, 1 - (248/256)^42.22 are met
    (DEEPSEEK, 64.0, {}, 512.0, 256 * (1 - (248 / 256) ** (64**0.9)), 2048),
    # one token: a row and an expert a rank, sqrt(2 ln 8) by chance, a fifth of 7/8 rows by skew
    (DEEPSEEK, 1.0, {"dp_attention": 8, "ep": 8},
     1 + math.sqrt(2 * math.log(8)) + 0.175, 1 + math.sqrt(2 * math.log(8)), 2048),
    # 50 rows a rank, sqrt(100 ln 4) by chance, a fifth of three quarters by skew; both experts
    (MIXTRAL, 100.0, {"tp": 4, "ep": 4}, 50 + math.sqrt(100 * math.log(4)) + 7.5, 2.0, 14336),
    (MIXTRAL, 100.0, {"tp": 4, "ep": 2}, 100 + math.sqrt(200 * math.log(2)) + 10, 4.0, 7168),
    # 16 ranks keep copies: a quarter of the skew
    (DEEPSEEK, 2000.0, {"dp_attention": 16, "ep": 16},
     1000 + math.sqrt(2000 * math.log(16)) + 0.05 * 1000 * 15 / 16, 16.0, 2048),
]  # fmt: skip


@pytest.mark.parametrize(("model", "tokens", "replica", "rows", "met", "inner"), ROUTED)
def test_rows_and_experts_of_a_batch(grouped, model, tokens, replica, rows, met, inner):
    (ffn,) = [f for f in model.ffns.values() if f.kind == "moe"]
    hidden = model.hidden_size
    found = kernels.experts_s(ffn, hidden, tokens, Replica(**replica), at())
    ((asked_rows, asked_met, shapes),) = grouped
    assert (asked_rows, asked_met) == (pytest.approx(rows), pytest.approx(met, rel=1e-3))
    assert shapes == ((2 * hidden * inner, hidden), (hidden * inner, inner))
    moved = rows * (6 * hidden + 3 * inner) * 2
    assert found == pytest.approx(1.0 + moved / 0.5e12)


def test_products_of_an_ffn(monkeypatch):
    """Times of m n k: gated up and down are three; router and shared expert beside the routed."""
    monkeypatch.setattr(kernels, "product_s", lambda site, m, n, k, fmt: m * n * k)
    monkeypatch.setattr(kernels, "experts_s", lambda ffn, hidden, tokens, *a: tokens)
    assert kernels.mlp_s(None, 2.0, 3.0, 5.0, True, "x") == 90.0
    assert kernels.mlp_s(None, 2.0, 3.0, 5.0, False, "x") == 60.0
    assert kernels.mlp_s(None, 2.0, 0.0, 5.0, True, "x") == 0.0
    (dense,) = LLAMA.ffns.values()
    two = Replica(tp=2)
    assert kernels.ffn_s(dense, 8192, 9.0, 3.0, two, None) == (3 * 3 * 8192 * 14336, 0.0)
    (moe,) = [f for f in DEEPSEEK.ffns.values() if f.kind == "moe"]
    beside = 3 * 3 * 7168 * 1024 + 3 * 7168 * 256
    assert kernels.ffn_s(moe, 7168, 9.0, 3.0, two, None) == (beside, 9.0)
    assert kernels.ffn_s(SimpleNamespace(kind="none"), 8, 9.0, 3.0, two, None) == (0.0, 0.0)
    latent = SimpleNamespace(kind="moe", shared_ffn_hidden_size=0, dense_ffn_hidden_size=0,
                             gated=True, n_experts=16, latent_size=6)  # fmt: skip
    into = 3 * 10 * 16 + 2 * (3 * 10 * 3)  # the router, then down to the latent and up again
    assert kernels.ffn_s(latent, 10, 9.0, 3.0, two, None) == (into, 9.0)


# --- attention -----------------------------------------------------------------------------------


def test_attention_of_prompts_by_hand():
    """Llama 3 70B: 4 x 64 x 128 FLOP a key; at 500 keys half of half of the peak."""
    (mixer,) = LLAMA.mixers.values()
    batch = Batch(prompt_tokens=1000.0, prompt_context=500.0)
    want = 1000 * 500 * 4 * 64 * 128 / (1e15 * 0.25)
    assert prefill_core_s(mixer, batch, Replica(), at()) == pytest.approx(want)
    assert prefill_core_s(mixer, batch, Replica(tp=4), at()) == pytest.approx(want / 4)
    assert prefill_core_s(mixer, batch, Replica(dp_attention=2), at()) == pytest.approx(want / 2)
    assert prefill_core_s(mixer, Batch(prompt_context=500.0), Replica(), at()) == 0.0
    assert prefill_core_s(mixer, Batch(prompt_tokens=5.0), Replica(), at()) == 0.0


def test_attention_of_decoding_by_hand():
    """8 KV heads of 128, keys and values of 2 bytes; reading and multiplying overlap."""
    (mixer,) = LLAMA.mixers.values()
    read, flop = 2 * 8 * 128 * 1000 * 2, 1000 * 4 * 64 * 128
    assert cache_read_bytes(mixer, 1000.0, Replica()) == read
    assert cache_read_bytes(mixer, 1000.0, Replica(tp=4, kv_format="fp8")) == read / 8
    assert decode_core_flop(mixer, 1000.0) == flop
    batch = Batch(sequences=6.0, context=1000.0, tokens_each=3.0)
    for layout, n, tp in (({}, 6, 1), ({"tp": 2}, 6, 2), ({"dp_attention": 3}, 2, 1)):
        want = math.hypot(n * read / tp / 0.8e12, n * 3 * flop / tp / 0.25e15)
        assert decode_core_s(mixer, batch, Replica(**layout), at()) == pytest.approx(want)
    assert decode_core_s(mixer, Batch(context=9.0), Replica(), at()) == 0.0


def test_recurrences_by_hand():
    """Delta nets of Qwen3-Next: 32 heads of 128 x 128 read and written, 6 FLOP an element."""
    mixer = DELTA.layer_groups[0].mixer
    cache, state = mixer.cache(), 32 * 128 * 128
    assert cache.state_elements == state
    moved = 2 * state * STATE_BYTES_PER_ELEMENT
    assert cache_read_bytes(mixer, 9e9, Replica()) == moved + 2 * cache.conv_elements * 2
    assert cache_read_bytes(mixer, 9e9, Replica(tp=2)) == moved / 2 + cache.conv_elements * 2
    assert decode_core_flop(mixer, 9e9) == 6 * state
    for tokens, passes in ((640.0, 10.0), (6.4, 1.0)):  # 64 of them keep it on the chip
        want = 6 * tokens * state / 0.25e15 + moved * passes / 0.8e12
        found = prefill_core_s(mixer, Batch(prompt_tokens=tokens), Replica(), at())
        assert found == pytest.approx(want)
        half = prefill_core_s(mixer, Batch(prompt_tokens=tokens), Replica(tp=2), at())
        assert half == pytest.approx(want / 2)


# --- queues, power -------------------------------------------------------------------------------


def queue(rate, **more):
    """Passes of 10 ms; a prompt adds 20 ms, alone it takes 50."""
    load = OpenLoad(rate, **({"output_tokens": 81.0, "request_s": 0.5} | more))
    return open_load(lambda n: 0.01, lambda n: 0.02 if n else 0.05, load)


def test_an_open_load_by_hand():
    """Ten a second: a fifth of the time prompts, passes of 12.5 ms, 10 x 80 x 12.5 ms are ten."""
    found = queue(10.0, prompt_cv2=1.0, prompt_passes=2.0)
    assert found.prompt_use == pytest.approx(0.2) and found.tpot_s == pytest.approx(0.0125)
    assert found.sequences == pytest.approx(10.0)
    rest = 0.0125 / 2 + 10 * 0.02**2 * 2 / 2
    along = rest + 2 * 0.01 + 0.02 + 2 * 10 * 0.02 * rest
    alone = 0.05 + 10 * 0.05**2 * 2 / 2 / (1 - 0.5)
    busy = 1 - math.exp(-10)
    assert found.ttft_s == pytest.approx(0.5 + busy * along + (1 - busy) * alone)
    drafts = queue(10.0, tokens_per_pass=2.0)
    assert drafts.tpot_s == pytest.approx(0.0125 / 2) and drafts.sequences == pytest.approx(5.0)


def test_loads_that_have_no_end():
    assert queue(10.0, most_sequences=20.0).stable and queue(10.0, most_sequences=9.9) == NO_END
    assert queue(20.0) == NO_END  # alone they take all the time, before anything decodes
    assert queue(19.0).stable and queue(51.0) == NO_END
    assert not NO_END.stable and NO_END.sequences == math.inf


def test_use_of_a_replica_by_hand(monkeypatch):
    """Three drafts of a half keep 0.875: 1,000 token/s of ten sequences are 53.3 passes/s."""
    monkeypatch.setattr(power, "kv_cache_bytes", lambda model, context, element: context * 1e4)
    monkeypatch.setattr(power, "weights_read_bytes", lambda model, fmt, n: n * 1e9)
    monkeypatch.setattr(
        power, "flop_per_token", lambda m, context: SimpleNamespace(forward_flop=context * 1e8)
    )
    names = ("output_tokens_per_s", "input_tokens_per_s", "decoding_sequences")
    load = SimpleNamespace(**dict(zip(names, (1000.0, 500.0, 10.0), strict=True)))
    replica = Replica(tp=2, drafts=Drafts(3, (0.5,)))
    read = 1000 / 10 / 1.875 * (10e9 + 10 * 1e6) / 1e12
    work = (1000 * 4 / 1.875 + 500) * 1e10 / 1e15
    assert use_frac(None, replica, at(), load, 100.0) == pytest.approx((read + work) / 2)
    plain = (1000 / 10 * (10e9 + 1e7) / 1e12 + 1500 * 1e10 / 1e15) / 8
    assert use_frac(None, Replica(tp=8), at(), load, 100.0) == pytest.approx(plain)
    assert use_frac(None, Replica(), at(), load, 100.0) == 1.0
    idle = SimpleNamespace(
        **dict(zip(names, (0.5, 0.0, 0.25), strict=True))
    )  # less than one sequence is a pass of one
    want = 0.5 * (1e9 + 0.25 * 0.5 * 1e4) / 1e12 + 0.5 * 1e8 / 1e15
    assert use_frac(None, Replica(), at(), idle, 0.5) == pytest.approx(want)


def test_power_by_hand():
    p = PowerParameters(0.2, 0.25, 0.5)
    assert gpu_power_w(100.0, 0.5, p) == pytest.approx(20 + 80 * 0.5)
    assert gpu_power_w(100.0, 0.5, p, 0.5) == pytest.approx(20 + 80 * 0.25)
    assert gpu_power_w(100.0, 2.0, p) == pytest.approx(100.0)


# --- layouts -------------------------------------------------------------------------------------

REFUSED = [
    (LLAMA, {"tp": 2}, "llamacpp", "gives whole layers"),
    (LLAMA, {"dp_attention": 2}, "llamacpp", "gives whole layers"),
    (LLAMA, {"pp": 2}, "llamacpp", ""),
    (LLAMA, {"tp": 2, "ep": 2}, "vllm", "has no experts"),
    (LLAMA, {"dp_attention": 2}, "vllm", "no experts to share"),
    (MIXTRAL, {"tp": 16, "ep": 16}, "vllm", "16"),
    (MIXTRAL, {"dp_attention": 16, "ep": 16}, "vllm", "ep 16 is more than the 8 experts"),
    (MIXTRAL, {"tp": 2, "ep": 8}, "vllm", "ep 8 does not divide the 2 GPUs"),
    (MIXTRAL, {"dp_attention": 4, "ep": 2}, "vllm", ""),
    (MIXTRAL, {"dp_attention": 2}, "vllm", ""),
    (MIXTRAL, {"dp_attention": 8, "ep": 8}, "vllm", ""),
    (LLAMA, {"drafts": Drafts(0, (0.5,))}, "vllm", "at least one token"),
    (LLAMA, {"drafts": Drafts(1, (0.5,))}, "vllm", ""),
    (LLAMA, {"pp": 83}, "vllm", "pp=83 is more than 80 layers"),
]


@pytest.mark.parametrize(("model", "layout", "engine", "words"), REFUSED)
def test_layouts_that_an_engine_refuses(model, layout, engine, words):
    found = refusal(model, Replica(**layout), engine)
    assert words in found and bool(words) == bool(found)


def test_layouts_worth_trying():
    """Mixtral on four GPUs: TP with and without whole experts, attention of two and four ranks."""
    assert [n_experts(m) for m in (LLAMA, MIXTRAL, DEEPSEEK)] == [0, 8, 256]

    def tried(model, most, domain, engine="vllm"):
        return [
            (r.tp, r.pp, r.dp_attention, r.ep)
            for r in replica_layouts(model, Replica(), most, domain, engine)
        ]

    assert tried(MIXTRAL, 4, (4, 4)) == [
        (1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 2), (1, 1, 2, 2),
        (4, 1, 1, 1), (4, 1, 1, 4), (2, 1, 2, 4), (1, 1, 4, 4),
    ]  # fmt: skip
    assert tried(LLAMA, 2, (2, 2)) == [(1, 1, 1, 1), (2, 1, 1, 1)]
    assert tried(LLAMA, 2, (2, 1)) == [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1)]
    assert tried(LLAMA, 4, (2, 2), "llamacpp") == [(1, 1, 1, 1), (1, 4, 1, 1)]


# --- demand --------------------------------------------------------------------------------------

SITE = serving_site(load_cluster("dgx-h100"), "vllm")
SMALL = load_model("llama3.1-8b").spec


class Table:
    """A prompt token takes 0.1 ms, a pass of prompts alone 5 ms more; what is asked is kept."""

    def __init__(self):
        self.asked = []

    def prompt(self, tokens, keys, n, ends):
        self.asked.append((tokens, keys, n, ends))
        return 1e-4 * tokens + (0.005 if n == 0 else 0.0)

    def decode(self, n):
        return 0.01 + 0.001 * n * n, 1e-6


def served(replica=None, hit=0.25, inputs=1000, chunk=300.0, **more):
    demand = Demand(Lengths("fixed", inputs), Lengths("fixed", 101), hit)
    made = Service(SMALL, replica or Replica(), SITE, demand, Tuning(chunk_tokens=chunk), **more)
    made.table = Table()
    return made


def test_prompts_of_a_service_by_hand():
    """750 of 1,000 tokens in three chunks of 250; two together in three of 500."""
    one = served()
    assert one.prompt_s(4.4) == pytest.approx(3 * 0.025)
    assert one.table.asked == [(250, 0.5 * 1000 * 1.25, 4, 1)]
    assert one.prompt_s(0.0) == pytest.approx(3 * 0.030)
    assert one.prompt_s(4.0, 2) == pytest.approx(3 * 0.050 / 2)
    assert served(Replica(pp=2)).prompt_s(4.0) == pytest.approx(3 * 0.025 / 2)
    assert served(hit=0.0, inputs=300).prompt_s(4.0) == pytest.approx(0.030)  # one chunk
    assert served(hit=0.0, inputs=301).prompt_s(4.0) == pytest.approx(2 * 0.0150)
    assert served(hit=0.9999, inputs=10).prompt_s(1.0) == pytest.approx(1e-4)  # one token is read
    assert served(prefilled=True).prompt_s(4.0) == 0.0


def test_passes_of_a_service_by_hand():
    """At 1,050.5 keys; between whole numbers of sequences on a line, and one at least."""
    one = served(hit=0.0)
    context = 1000 + 0.5 * 101
    two, three = 0.014 + 2e-6 * context, 0.019 + 3e-6 * context
    assert one.pass_s(2.0) == pytest.approx(two)
    assert one.pass_s(2.25) == pytest.approx(two + 0.25 * (three - two))
    assert one.pass_s(0.5) == one.pass_s(1.0) == pytest.approx(0.011 + 1e-6 * context)


def test_contexts_of_a_demand():
    found = Demand(Lengths("fixed", 1000), Lengths("fixed", 101)).contexts
    assert (found.low, found.high) == (500.0, 1101.0)
    assert [rounds(n) for n in (0, 1, 64, 10_000)] == [10, 10, 10, 3]


def test_extras_take_their_memory():
    """Nothing beside is nothing less."""
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 101))
    plain = Service(SMALL, Replica(), SITE, demand)
    same = Service(SMALL, Replica(), SITE, demand, Tuning(extras=Extras()))
    assert plain.room == same.room
