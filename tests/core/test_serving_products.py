"""One product, one table, what is sent: serving's smallest parts, with kernels of round numbers."""

from types import SimpleNamespace

import pytest

from gpuscale.core.serving import exchange, kernels, tables
from gpuscale.core.serving.extras import Extras
from gpuscale.core.serving.forward import DecodeStep
from gpuscale.core.serving.kernels import product_s, projections_s
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.records import Batch, Drafts, Kernels, PassTime, Replica, ServingSoftware
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.tables import ContextRange, StepTable, replica_table
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site

SMALL, DEEPSEEK = load_model("llama3.1-8b").spec, load_model("deepseek-v3").spec
SITE = serving_site(load_cluster("dgx-h100"), "vllm")


def at(**soft):
    return SimpleNamespace(
        kernels=Kernels(widened_memory_eff=0.5, widened_compute_eff=0.25, small_kernel_s=3.0),
        software=ServingSoftware("x", **({"vector_rows": 0.0} | soft)), memo={},
        hbm_bytes_per_s=1e12, vector_flop_per_s=1e13, n_units=100, l2_bytes=5e7, arch=None,
        peaks={"bf16": 1e15, "fp8-block": 2e15},
    )  # fmt: skip


@pytest.fixture
def kernel(monkeypatch):
    """A product takes 8 s; what it was asked is kept. A memory pass takes its bytes in 1e-6 s."""
    asked = []

    def matmul(m, rows, dtype, arch):
        asked.append((m, rows, dtype))
        return 8.0

    monkeypatch.setattr(kernels, "product_time_s", matmul)
    monkeypatch.setattr(
        kernels, "expected_elementwise_time_s", lambda moved, flop, arch, hbm: moved * 1e-6
    )
    return asked


def asked_for(kernel):
    m, rows, dtype = kernel[-1]
    names = ("peak_flop_per_s", "hbm_bytes_per_s", "include_quant", "weight_bytes")
    return m, rows.n, rows.k, dtype, *(getattr(rows, name) for name in names)


def test_formats_of_a_product(kernel):
    site = at()
    assert product_s(site, 3.3, 64, 32, "bf16") == 8.0
    assert asked_for(kernel) == (3.0, 64, 32, "bf16", 1e15, 1e12, False, None)
    product_s(site, 4, 0.5, 0.25, "fp8-block")
    assert asked_for(kernel) == (4.0, 1, 1, "fp8-block", 2e15, 1e12, True, None)
    product_s(site, 4, 64, 32, "int4")  # widened: a quarter of the rate, half of the bandwidth
    assert asked_for(kernel) == (4.0, 64, 32, "bf16", 0.25e15, 0.5e12, False, 0.5)
    assert len(kernel) == 3 and product_s(site, 4, 64, 32, "int4") == 8.0
    assert len(kernel) == 3  # kept
    assert product_s(site, 4, 0, 32, "bf16") == 0.0 == product_s(site, 4, 64, 0, "bf16")


def test_few_rows_on_the_vector_units(kernel):
    """Weights as stored and 16-bit rows in and out, after a kernel that quantises them."""
    site = at(vector_rows=4.0, small_factor=2.0)
    assert product_s(site, 4, 64, 32, "int4") == pytest.approx(
        (0.5 * 64 * 32 + 2 * 4 * (64 + 32)) * 1e-6 + 6
    )
    assert asked_for(kernel)[4:6] == (1e15, 1e12)
    assert product_s(site, 5, 64, 32, "int4") == 8.0
    assert product_s(site, 4, 64, 32, "bf16") == pytest.approx(
        (2 * 64 * 32 + 2 * 4 * (64 + 32)) * 1e-6
    )
    assert product_s(site, 4, 1e4, 1e4, "bf16") == 8.0  # tiles are faster
    product_s(at(vector_rate=2.0), 9, 64, 32, "bf16")
    assert asked_for(kernel)[4] == 2e13
    product_s(at(vector_rate=2e3), 9, 64, 32, "bf16")
    assert asked_for(kernel)[4] == 1e15


def test_projections_of_a_latent(monkeypatch):
    """DeepSeek-V3: absorbed for decoding, expanded for prompts; others for all tokens of a rank."""
    from gpuscale.core.serving import kernels

    took = []
    monkeypatch.setattr(
        kernels, "product_s", lambda site, m, n, k, fmt: took.append((m, n, k, fmt)) or 1.0
    )
    mixer = DEEPSEEK.layer_groups[-1].mixer
    every = mixer.work(7168, 1).products
    absorbed = [p for p in every if p.absorbed]
    assert absorbed
    fp8 = Replica(attention_format="fp8", dp_attention=2)
    batch = Batch(prompt_tokens=100.0, sequences=6.0, tokens_each=2.0)
    assert projections_s(mixer, 7168, batch, fp8, None) == len(every) + len(absorbed)
    for p in every:
        rows = 50.0 if p.absorbed else 56.0
        assert (rows, p.n, p.k, "fp8") in took
        assert ((6.0, p.n, p.k, "bf16") in took) == p.absorbed
    assert projections_s(mixer, 7168, Batch(sequences=6.0), fp8, None) == len(every)
    prompts = Batch(prompt_tokens=100.0)
    assert projections_s(mixer, 7168, prompts, fp8, None) == len(every)


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 5, 100, 700, 5000])
def test_what_prompts_add_to_sequences_is_between_the_entries(n):
    """1e-9 s a prompt token, sequence and key of it, at the middle of 100 and 900 keys."""
    table = StepTable(
        lambda b: 0.01 + 1e-9 * b.prompt_tokens * b.sequences * b.context * b.tokens_each,
        lambda n, context: 0.01,
        ContextRange(100.0, 900.0),
        drafted_tokens=3,
    )
    for tokens in (1, 100, 3000, 100_000):
        assert table.prompt(tokens, 1.0, n, 1) == pytest.approx(1e-9 * tokens * n * 500 * 3)


def test_between_its_entries_a_table_is_a_chord():
    low, high = tables.TOKENS[3:5]
    table = StepTable(lambda b: 1e-6 * b.prompt_tokens**2, lambda n, c: 0.0, ContextRange())
    for share in (0.25, 0.5):
        tokens = round(low + share * (high - low))
        at = (tokens - low) / (high - low)
        assert table.prompt(tokens, 1.0, 0, 1) == pytest.approx(
            1e-6 * (low**2 + at * (high**2 - low**2))
        )


def test_a_table_of_one_context_has_no_slope():
    table = StepTable(lambda b: 0.0, lambda n, c: 0.01 * n + 1e-6 * n * c, ContextRange(9.0, 9.0))
    assert table.decode(4) == (pytest.approx(0.04 + 36e-6), 0.0)


def test_stages_see_their_share_of_the_sequences(monkeypatch):
    """Drafts are verified with their tokens; adapters and weights on the host are added."""
    seen = []
    monkeypatch.setattr(
        tables, "pass_time", lambda m, r, s, b: seen.append(b) or PassTime(linear_s=1.0)
    )
    monkeypatch.setattr(
        tables,
        "decode_step",
        lambda m, r, s, n, c: seen.append((n, c)) or DecodeStep(PassTime(linear_s=1.0), 0.5, 2.0),
    )
    monkeypatch.setattr(tables, "kept_s", lambda parts, extras: parts.total_s)
    monkeypatch.setattr(
        tables, "extras_s", lambda m, r, s, e, b: 0.125 * b.sequences * b.tokens_each
    )
    drafts = Drafts(3, (0.5,))
    made = replica_table(None, Replica(pp=4, drafts=drafts), None, ContextRange())
    assert made.pass_of(Batch(sequences=8.0)) == 1.0 and seen.pop().sequences == 2.0
    assert made.pass_of(Batch(sequences=2.0)) == 1.0 and seen.pop().sequences == 1.0
    made.pass_of(Batch(prompt_tokens=5.0))
    assert seen.pop().sequences == 0.0
    assert made.decode_of(8.0, 90.0) == 1.5 and seen.pop() == (2.0, 90.0)
    assert made.each == 4
    two = replica_table(None, Replica(pp=2), None, ContextRange())
    assert two.pass_of(Batch(sequences=8.0)) == 1.0 and seen.pop().sequences == 4.0
    more = replica_table(None, Replica(drafts=drafts), None, ContextRange(), Extras())
    assert more.decode_of(8.0, 90.0) == 1.5 + 0.125 * 8 * 4
    assert more.pass_of(Batch(sequences=8.0)) == 1.0 + 0.125 * 8
    plain = replica_table(None, Replica(), None, ContextRange(), Extras())
    assert plain.each == 1 and plain.decode_of(8.0, 90.0) == 2.5


# --- what is sent to experts ---------------------------------------------------------------------


def test_bytes_sent_to_experts(monkeypatch):
    """64 GPUs of 8 nodes: a token to u nodes of 8 and from there to 8 GPUs, there in 1 byte."""
    sent = []

    def timed(group, traffic, op):
        sent.append((op, traffic, group.n, group.n_in))
        return 1.0

    monkeypatch.setattr(exchange.expected.RankGroup, "way_s", timed)
    (moe,) = [f for f in DEEPSEEK.ffns.values() if f.kind == "moe"]
    site = SimpleNamespace(
        domain=8, memo={}, kernels=Kernels(crossing_s=0.25), fabric=None,
        scaleup_bytes_per_s=1.0, scaleout_bytes_per_s=1.0,
    )  # fmt: skip
    wide = Replica(dp_attention=64, ep=64)
    assert exchange.exchange_s(moe, 7168, wide, site, 32.0) == 2 * 1.25
    for (_, traffic, n, inside), element in zip(
        sent, (exchange.DISPATCH_BYTES, exchange.COMBINE_BYTES), strict=True
    ):
        one = 32 * 7168 * element
        assert traffic.inner_bytes == pytest.approx(one * 8 * 7 / 8)
        met = exchange.expected.destination_nodes(8, 8.0, 4)
        assert traffic.outer_bytes == pytest.approx(one * met * 7 / 8)
        assert (traffic.inner_hops, traffic.outer_hops, n, inside) == (3.0, 3.0, 64, 8)
    assert [op for op, *_ in sent] == ["moe-dispatch", "moe-combine"]
    assert exchange.exchange_s(moe, 7168, wide, site, 32.0) == 2.5 and len(sent) == 2  # kept
    near = Replica(tp=2, dp_attention=2, ep=4)
    assert exchange.exchange_s(moe, 7168, near, site, 32.0) == 2.0  # within the node
    _, traffic, n, inside = sent[-1]
    assert traffic.inner_bytes == pytest.approx(16 * 7168 * exchange.COMBINE_BYTES * 4 * 3 / 4)
    assert (traffic.outer_bytes, traffic.inner_hops, traffic.outer_hops) == (0.0, 2.0, 0.0)
    assert (n, inside) == (4, 4)
    assert exchange.exchange_s(moe, 7168, Replica(tp=4), site, 32.0) is None


# --- limits of an engine -------------------------------------------------------------------------


def test_limits_of_an_engine_by_hand(monkeypatch):
    """A sequence keeps 2 MB a token and 100 MB; 40 GB are free on each of two ranks."""
    from gpuscale.core.serving import service

    monkeypatch.setattr(
        service, "cache_bytes_per_sequence", lambda m, r, tokens: 1e8 + 2e6 * tokens
    )
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 101), 0.25)
    two = Replica(dp_attention=2, pp=3)
    made = Service(SMALL, two, SITE, demand, Tuning(chunk_tokens=500.0, max_sequences=7.0))
    made.room = SimpleNamespace(cache_bytes=40e9, usable_bytes=80e9)
    found = made.scheduler
    assert found.cache_tokens == pytest.approx(2 * 20_000 - 2 * 250)
    assert found.sequence_tokens == pytest.approx(50 + service.BLOCK_TOKENS / 2)
    assert (found.token_budget, found.max_sequences, found.stages) == (1000, 14, 3)
    usual = Service(SMALL, two, SITE, demand)
    usual.room = made.room
    assert usual.scheduler.max_sequences == 6 * SITE.software.max_sequences
    assert usual.scheduler.token_budget == 2 * SITE.software.chunk_tokens
    none = Service(SMALL, two, SITE, demand)
    none.room = SimpleNamespace(cache_bytes=-1.0, usable_bytes=80e9)
    assert none.scheduler.cache_tokens == 0.0 and not none.fits
    monkeypatch.setattr(service, "cache_bytes_per_sequence", lambda m, r, tokens: 1e9)
    states = Service(SMALL, Replica(), SITE, demand)  # a state alone: forty of 1 GB
    states.room = made.room
    assert states.scheduler.max_sequences == 40 and states.scheduler.cache_tokens == float("inf")
    assert states.scheduler.sequence_tokens == 0.0


def test_answers_of_a_loop_end_apart_where_prompts_are_read_between(monkeypatch):
    """Only then, and only of more than one request at a time."""
    from gpuscale.core.serving import loads

    drawn = []
    monkeypatch.setattr(loads, "loosened", lambda lengths: "apart")
    monkeypatch.setattr(
        loads,
        "closed_traffic",
        lambda inputs, outputs, concurrency, n, **more: drawn.append((outputs, concurrency, n)),
    )
    monkeypatch.setattr(Service, "simulated", lambda self, traffic: None)
    monkeypatch.setattr(loads, "summarise", lambda run: None)
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 101))
    for mixed, concurrency, n in ((True, 2, None), (True, 1, None), (False, 2, 7)):
        made = Service(SMALL, Replica(), SITE, demand)
        made.scheduler = SimpleNamespace(mixed=mixed)
        made.closed(concurrency, n)
    assert drawn == [("apart", 2, 20), (demand.outputs, 1, 10), (demand.outputs, 2, 7)]
