"""A replica under load by the formulas, with passes of round numbers in place of a model's."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.serving import load
from gpuscale.core.serving.load import DecodeStep, Steady
from gpuscale.core.serving.records import (
    Drafts,
    Kernels,
    PassTime,
    Replica,
    Requests,
    ServingSoftware,
)

SOFT = ServingSoftware("x", request_s=0.5, chunk_tokens=1e6, max_sequences=100.0, burst_frac=0.1)
D, A = 0.01, 1e-4  # seconds of a decode pass, of a prompt token


def at(**more):
    return SimpleNamespace(
        software=replace(SOFT, **more), kernels=Kernels(queue_factor=0.8), hbm_bytes=80e9
    )


@pytest.fixture
def plain(monkeypatch):
    """A pass takes 10 ms, a prompt token 0.1 ms; what is decoded along takes its pass."""

    def prompt(model, replica, site, tokens, prompts, decoding=0.0, context=0.0):
        ranks = max(1.0, min(replica.dp_attention, prompts))
        passes = max(1.0, tokens * prompts / ranks / site.software.chunk_tokens)
        return PassTime(linear_s=A * tokens * prompts + (passes * D if decoding else 0.0))

    monkeypatch.setattr(load, "prompt_pass", prompt)
    monkeypatch.setattr(
        load, "decode_step", lambda m, r, s, n, context: DecodeStep(PassTime(linear_s=D), 0.0, 1.0)
    )
    monkeypatch.setattr(load, "most_sequences", lambda m, r, s, tokens: 4000.0 / tokens)


def steady(n, o, concurrency, replica=None, **soft):
    wanted = Requests(n, o, concurrency)
    return load.steady_state(None, replica or Replica(), at(**soft), wanted, concurrency)


@pytest.mark.parametrize("mixed", [True, False])
def test_one_request_meets_no_other(plain, mixed):
    """Half a pass, its prompt, then a pass a token."""
    found = steady(200, 101, 1.0, mixed=mixed)
    assert found.ttft_s == pytest.approx(0.5 + D / 2 + 200 * A)
    assert found.tpot_s == D and found.decoding == pytest.approx(1.0)
    assert steady(200, 1, 1.0).tpot_s == D


CROWDS = [  # prompt, answer, requests, replica, software, passes of a prompt, share of its time
    (200, 101, 16, {}, {"mixed": False}, 0, 1.0),
    (200, 101, 16, {}, {}, 1, 1.0),
    (2000, 301, 64, {}, {}, 1, 1.0),
    (2000, 301, 64, {"dp_attention": 4}, {}, 1, 1.0),
    (2000, 301, 2, {}, {"mixed": False}, 0, 1.0),
    (2000, 301, 32, {}, {"chunk_tokens": 500.0}, 4, 1.0),  # one at a time, in four chunks
    (2000, 301, 32, {"pp": 2}, {"mixed": False}, 0, 0.5),  # two stages read two
    (200, 101, 16, {}, {"mixed": False, "burst_frac": 1.0}, 0, 1.0),
]


@pytest.mark.parametrize(("n", "o", "c", "layout", "soft", "passes", "share"), CROWDS)
def test_requests_in_flight_obey_littles_law(
    plain, monkeypatch, n, o, c, layout, soft, passes, share
):
    """Of what is found at last: those that wait, that decode and the time of a token agree."""
    monkeypatch.setattr(load, "ROUNDS", 200)
    monkeypatch.setattr(load, "TOLERANCE", 0.0)
    found = steady(n, o, float(c), Replica(**layout), **soft)
    burst, cycle = soft.get("burst_frac", 0.1), found.ttft_s + (o - 1) * found.tpot_s
    assert found.decoding == pytest.approx(c * (1 - found.ttft_s / cycle), rel=1e-6)
    stall = A * n * share * found.decoding * (c - 1) / c * (1 - burst / 2) / (o - 1)
    assert found.tpot_s == pytest.approx(D + stall, rel=1e-6)
    reading = found.ttft_s - 0.5 - D / 2
    if share == 1.0:
        waiting = (reading - passes * D) / (A * n) - 1
        queue = 0.8 * (c - 1) * min(1.0, reading / cycle)
        assert waiting == pytest.approx(min(c - 1, queue + burst * (c - 1) / 2), rel=1e-6)


def test_a_closed_loop_waits_for_room(plain, monkeypatch):
    """Room for four of 1,000 tokens: the other six of ten wait for one and a half stays."""
    made = Steady(2.0, 0.1, 3.0, DecodeStep(PassTime(linear_s=D), 0.0, 1.0))
    inside = []
    monkeypatch.setattr(load, "steady_state", lambda m, r, s, asked, n: inside.append(n) or made)

    def loop(n, o, c):
        return load.closed_loop(None, Replica(), at(), Requests(n, o, c))

    found = loop(900, 201, 10.0)
    room, stay = 4000 / 1000.5, 2.0 + 200 * 0.1
    queue = (10 - room) * stay / room
    assert inside.pop() == found.concurrency == pytest.approx(room)
    assert found.ttft_s == pytest.approx(2.0 + queue) and found.tpot_s == 0.1
    assert found.tokens_per_s == pytest.approx(10 * 201 / (stay + queue))
    assert (found.fits, found.decoding_sequences, found.decode_pass_s) == (True, 3.0, D)
    assert found.prefill_s == pytest.approx(900 * A)
    few = loop(900, 201, 2.0)
    assert (few.concurrency, few.ttft_s) == (2.0, 2.0)
    assert few.tokens_per_s == pytest.approx(2 * 201 / 22)
    full = loop(900, 201, None)
    assert full.concurrency == pytest.approx(room) and full.ttft_s == pytest.approx(2.0)
    tight = loop(4000, 201, 3.0)
    assert (tight.fits, tight.concurrency, tight.ttft_s) == (False, 3.0, 2.0)
    assert loop(4000, 201, None).concurrency == 1.0
    assert loop(3900, 200, 1.0).fits and not loop(3900.5, 200, 1.0).fits  # 4,000 tokens
    assert loop(1, 1, 1.0).tokens_per_s == 0.5
    for bad in ((0.5, 1, 1.0), (1, 0.5, 1.0), (1, 1, 0.5)):
        with pytest.raises(ValueError, match="at least 1"):
            loop(*bad)


def test_a_static_batch_is_read_then_decoded(plain, monkeypatch):
    """Four of 200 + 101 tokens: the room for 4,000 is that of 13."""
    found = load.static_batch(None, Replica(), at(), Requests(200, 101, 4.0))
    total = 800 * A + 100 * D
    assert (found.ttft_s, found.tpot_s) == (pytest.approx(800 * A), D)
    assert found.tokens_per_s == pytest.approx(4 * 101 / total)
    assert (found.concurrency, found.decoding_sequences, found.fits) == (4.0, 4.0, True)
    assert load.static_batch(None, Replica(), at(), Requests(200, 101)).concurrency == 1.0
    keys = []
    monkeypatch.setattr(
        load,
        "decode_step",
        lambda m, r, s, n, context: keys.append((n, context)) or DecodeStep(PassTime(), 0.0, 1.0),
    )
    load.static_batch(None, Replica(), at(), Requests(200, 100, 4.0))
    load.steady_state(None, Replica(pp=4), at(), Requests(200, 100, 4.0), 8.0)
    assert keys[:2] == [(4.0, 250.0), (2.0, 250.0)]
    assert load.static_batch(None, Replica(), at(), Requests(900, 100, 4.0)).fits
    assert not load.static_batch(None, Replica(), at(), Requests(901, 100, 4.0)).fits


@pytest.fixture
def batches(monkeypatch):
    """Every pass takes a second, a layer a tenth; what was in it is kept."""
    kept = []

    def timed(model, replica, site, batch):
        kept.append(batch)
        return PassTime(linear_s=0.75, host_s=0.25)

    monkeypatch.setattr(load, "pass_time", timed)
    monkeypatch.setattr(load, "layer_time_s", lambda m, r, s, batch: kept.append(batch) or 0.1)
    return kept


PROMPTS = [  # tokens, prompts, ranks; passes, tokens and prompts of one, ranks that read
    (300, 10, 1, (3.0, 1000.0, 10 / 3, 1.0)),
    (300, 2, 1, (1.0, 600.0, 2.0, 1.0)),
    (300, 10, 4, (1.0, 3000.0, 10.0, 4.0)),  # a chunk each
    (300, 20, 4, (1.5, 4000.0, 20 / 1.5, 4.0)),
    (2000, 2, 4, (2.0, 2000.0, 1.0, 2.0)),
    (300, 0.5, 4, (1.0, 150.0, 0.5, 1.0)),
]


@pytest.mark.parametrize(("tokens", "prompts", "ranks", "want"), PROMPTS)
def test_prompts_are_read_in_chunks(batches, tokens, prompts, ranks, want):
    replica = Replica(dp_attention=ranks, drafts=Drafts(2, (0.5,)))
    found = load.prompt_pass(None, replica, at(chunk_tokens=1000.0), tokens, prompts, 7.0, 90.0)
    (one,) = batches
    passes, each, ends, reading = want
    assert found.total_s == pytest.approx(passes) and found.host_s == pytest.approx(passes / 4)
    assert (one.prompt_tokens, one.prompts) == (pytest.approx(each), pytest.approx(ends))
    assert (one.prompt_context, one.prompt_ranks) == (tokens / 2, reading)
    assert (one.sequences, one.context, one.tokens_each) == (7.0, 90.0, 3.0)


def test_drafts_of_a_decode_pass(batches):
    """Three drafts of a half: 0.5 + 0.25 + 0.125 are kept, a layer each is proposed."""
    found = load.decode_step(None, Replica(drafts=Drafts(3, (0.5,))), None, 5.0, 90.0)
    assert (found.draft_s, found.tokens) == (pytest.approx(0.3), 1.875)
    assert found.time_s == pytest.approx(1.3) and found.per_token_s == pytest.approx(1.3 / 1.875)
    assert [(b.sequences, b.context, b.tokens_each) for b in batches] == [(5, 90, 4), (5, 90, 1)]
    for drafts in (None, Drafts(0, (0.5,))):
        plain = load.decode_step(None, Replica(drafts=drafts), None, 5.0, 90.0)
        assert (plain.time_s, plain.per_token_s) == (1.0, 1.0)
    assert load.decode_step(None, Replica(drafts=Drafts(1, (0.5,))), None, 5, 90).tokens == 1.5
    prompt = load.prompt_pass(None, Replica(), at(), 10, 1.0)
    assert prompt.total_s == 1.0 and batches[-1].tokens_each == 1.0


def test_sequences_that_have_room(monkeypatch):
    """90 GB of cache over 2 GB a sequence; engines run so many of a stage and no more."""
    room = SimpleNamespace(cache_bytes=90e9)
    monkeypatch.setattr(load, "cache_room", lambda *a: room)
    monkeypatch.setattr(load, "cache_bytes_per_sequence", lambda m, r, tokens: tokens * 1e9)

    def most(tokens, **layout):
        return load.most_sequences(None, Replica(**layout), at(), tokens)

    assert (most(2.0), most(2.0, dp_attention=3)) == (45.0, 135.0)
    assert (most(0.5), most(0.5, pp=2), most(0.0, pp=2)) == (100.0, 180.0, 200.0)
    room.cache_bytes = -1e9
    assert most(2.0) == 0.0
