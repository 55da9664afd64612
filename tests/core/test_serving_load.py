"""Prompts in chunks, drafts and room, with passes of round numbers in place of a model's."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.serving import forward
from gpuscale.core.serving.records import Drafts, Kernels, PassTime, Replica, ServingSoftware

SOFT = ServingSoftware("x", request_s=0.5, chunk_tokens=1e6, max_sequences=100.0)


def at(**more):
    return SimpleNamespace(software=replace(SOFT, **more), kernels=Kernels(), hbm_bytes=80e9)


@pytest.fixture
def batches(monkeypatch):
    """Every pass takes a second, a layer a tenth; what was in it is kept."""
    kept = []

    def timed(model, replica, site, batch):
        kept.append(batch)
        return PassTime(linear_s=0.75, host_s=0.25)

    monkeypatch.setattr(forward, "pass_time", timed)
    monkeypatch.setattr(forward, "layer_time_s", lambda m, r, s, batch: kept.append(batch) or 0.1)
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
    found = forward.prompt_pass(None, replica, at(chunk_tokens=1000.0), tokens, prompts)
    (one,) = batches
    passes, each, ends, reading = want
    assert found.total_s == pytest.approx(passes) and found.host_s == pytest.approx(passes / 4)
    assert (one.prompt_tokens, one.prompts) == (pytest.approx(each), pytest.approx(ends))
    assert (one.prompt_context, one.prompt_ranks) == (tokens / 2, reading)
    assert one.sequences == 0.0


def test_drafts_of_a_decode_pass(batches):
    """Three drafts of a half: 0.5 + 0.25 + 0.125 are kept, a layer each is proposed."""
    found = forward.decode_step(None, Replica(drafts=Drafts(3, (0.5,))), None, 5.0, 90.0)
    assert (found.draft_s, found.tokens) == (pytest.approx(0.3), 1.875)
    assert found.time_s == pytest.approx(1.3) and found.per_token_s == pytest.approx(1.3 / 1.875)
    assert [(b.sequences, b.context, b.tokens_each) for b in batches] == [(5, 90, 4), (5, 90, 1)]
    for drafts in (None, Drafts(0, (0.5,))):
        plain = forward.decode_step(None, Replica(drafts=drafts), None, 5.0, 90.0)
        assert (plain.time_s, plain.per_token_s) == (1.0, 1.0)
    assert forward.decode_step(None, Replica(drafts=Drafts(1, (0.5,))), None, 5, 90).tokens == 1.5
    prompt = forward.prompt_pass(None, Replica(), at(), 10, 1.0)
    assert prompt.total_s == 1.0 and batches[-1].tokens_each == 1.0


def test_sequences_that_have_room(monkeypatch):
    """90 GB of cache over 2 GB a sequence; engines run so many of a stage and no more."""
    room = SimpleNamespace(cache_bytes=90e9)
    monkeypatch.setattr(forward, "cache_room", lambda *a: room)
    monkeypatch.setattr(forward, "cache_bytes_per_sequence", lambda m, r, tokens: tokens * 1e9)

    def most(tokens, **layout):
        return forward.most_sequences(None, Replica(**layout), at(), tokens)

    assert (most(2.0), most(2.0, dp_attention=3)) == (45.0, 135.0)
    assert (most(0.5), most(0.5, pp=2), most(0.0, pp=2)) == (100.0, 180.0, 200.0)
    room.cache_bytes = -1e9
    assert most(2.0) == 0.0
