"""Search of layouts: as brute force, highest rates, pools."""

from __future__ import annotations

import itertools
import math

import pytest

from gpuscale.core.serving.capacity import LatencyLimit, Limits, capacity, formula_bound, keeps_up
from gpuscale.core.serving.choose import Candidate, Wanted, choose
from gpuscale.core.serving.disaggregated import PooledService, decode_worker, prefill_worker
from gpuscale.core.serving.layouts import degrees, layout_text, refusal, replica_layouts
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.records import Drafts, Replica
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site

LLAMA = load_model("llama3.1-70b").spec
DEEPSEEK = load_model("deepseek-v3").spec
H100 = serving_site(load_cluster("dgx-h100"), "vllm")
CHAT = Demand(Lengths("lognormal", 1000, 0.6), Lengths("exp", 200))
FP8 = Replica(ffn_format="fp8", attention_format="fp8", kv_format="fp8")
LIMITS = Limits(LatencyLimit("p95", 0.6), LatencyLimit("p95", 0.03))


def candidates(most=8):
    return [
        Candidate(layout_text(r), "vllm", "fp8", Service(LLAMA, r, H100, CHAT))
        for r in replica_layouts(LLAMA, FP8, most, (8, 1))
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    [Wanted(LIMITS, 6.0, 8), Wanted(LIMITS, 30.0, None), Wanted(Limits(), None, 4)],
    ids=str,
)
def test_search_is_brute_force(wanted):
    """Bounds leave nothing out: every candidate simulated gives the same best."""
    tried = candidates(4)
    choice = choose(tried, wanted)
    best, brute = choice.best, []
    for c in tried:
        if not c.what.fits or c.what.n_gpus > (wanted.n_gpus or 4096):
            continue
        one = capacity(c.what, wanted.limits)
        if wanted.n_gpus is not None:
            brute.append(
                (-one.rate_per_s * (wanted.n_gpus // c.what.n_gpus), c.what.n_gpus, c.label)
            )
        elif one.rate_per_s > 0.0:
            copies = math.ceil(wanted.rate_per_s / one.rate_per_s - 1e-9)
            brute.append((copies * c.what.n_gpus, -copies * one.rate_per_s, c.label))
    assert best is not None
    want = min(brute)
    assert best.candidate.label == want[2]
    assert (best.n_gpus if wanted.n_gpus is None else -best.at_most_per_s) == pytest.approx(want[0])


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_highest_rate_is_at_the_limit(tp):
    service = Service(LLAMA, Replica(tp=tp, **{f: "fp8" for f in FORMATS}), H100, CHAT)
    found = capacity(service, LIMITS)
    assert found.rate_per_s > 0.0
    assert 0.97 <= LIMITS.use(found.load) <= 1.0
    assert found.rate_per_s <= formula_bound(service, LIMITS)
    beyond = service.open(1.1 * found.rate_per_s, 3_000)
    assert LIMITS.use(beyond) > 1.0 or not keeps_up(beyond, 1.1 * found.rate_per_s)


FORMATS = ("ffn_format", "attention_format", "kv_format")


def test_limit_that_nothing_can_keep_has_no_rate():
    service = Service(LLAMA, Replica(tp=8), H100, CHAT)
    found = capacity(service, Limits(None, LatencyLimit("p95", 1e-3)))
    assert found.rate_per_s == 0.0
    assert found.binding == "TPOT"
    assert found.load.tpot.p95_s > 1e-3


def test_closed_loop_of_one_is_the_passes_alone():
    fixed = Demand(Lengths("fixed", 1000), Lengths("fixed", 100))
    service = Service(LLAMA, Replica(tp=8), H100, fixed)
    load = service.closed(1)
    assert load.tpot.mean_s == pytest.approx(service.pass_s(1), rel=0.01)
    alone = H100.software.request_s + service.prompt_s(0)
    assert load.ttft.mean_s == pytest.approx(alone, rel=0.02)


def test_prefix_hits_and_drafts_help():
    fixed = Demand(Lengths("fixed", 4000), Lengths("fixed", 200))
    plain = Service(LLAMA, Replica(tp=8), H100, fixed).closed(8)
    hit = Demand(fixed.inputs, fixed.outputs, 0.75)
    cached = Service(LLAMA, Replica(tp=8), H100, hit).closed(8)
    assert cached.ttft.mean_s < 0.65 * plain.ttft.mean_s
    drafts = Drafts(3, (0.8, 0.6, 0.4))
    drafted = Service(LLAMA, Replica(tp=8, drafts=drafts), H100, fixed).closed(8)
    assert drafted.tpot.mean_s < 0.7 * plain.tpot.mean_s


def test_pools_take_the_prompts_out_of_the_way():
    replica = Replica(tp=4, **{f: "fp8" for f in FORMATS})
    long = Demand(Lengths("fixed", 6000), Lengths("fixed", 300))
    pools = PooledService(
        prefill_worker(LLAMA, replica, H100, long, Tuning()),
        1,
        decode_worker(LLAMA, replica, H100, long, Tuning()),
        1,
    )
    both = Service(LLAMA, replica, H100, long)
    apart, mixed = pools.open(1.2, 1_000), both.open(0.6, 1_000)
    assert apart.tpot.p95_s < mixed.tpot.p95_s
    assert apart.output_tokens_per_s == pytest.approx(1.2 * 300, rel=0.06)
    assert 0.0 < pools.transfer_s < 0.02
    burst = pools.burst(40)
    assert burst.n_requests == 40
    assert burst.time_s >= 40 * 0.8 * pools.prefill.prompt_s(0, 1)
    loop = pools.closed(16)
    inside = loop.requests_per_s * loop.end_to_end.mean_s
    assert inside == pytest.approx(16, rel=0.15)


def test_layouts_are_legal_and_worth_trying():
    for model, engine in itertools.product((LLAMA, DEEPSEEK), ("vllm", "sglang", "llamacpp")):
        found = replica_layouts(model, Replica(), 16, (8, 8), engine)
        assert found
        for r in found:
            assert not refusal(model, r, engine)
            assert r.n_gpus <= 16
            assert r.tp <= (16 if engine == "sglang" else 8)  # which takes TP over nodes
        if engine == "llamacpp":
            assert {r.tp for r in found} == {1}
    for near, widest in ((8, 16), (1, 8)):  # SGLang's TP crosses nodes, where their links are fast
        found = replica_layouts(DEEPSEEK, Replica(), 16, (8, near), "sglang")
        assert max(r.tp for r in found) == widest
    assert any(r.dp_attention == 16 for r in replica_layouts(DEEPSEEK, Replica(), 16, (8, 8)))
    assert not any(r.pp > 1 for r in replica_layouts(LLAMA, Replica(), 8, (8, 8)))


@pytest.mark.parametrize(
    ("replica", "words"),
    [
        (Replica(tp=6), "does not divide"),
        (Replica(pp=81), "layers"),
        (Replica(tp=4, ep=4), "no experts"),
        (Replica(dp_attention=4), "no experts"),
    ],
)
def test_refusals(replica, words):
    assert words in refusal(LLAMA, replica)


def test_more_refusals_of_experts():
    assert "more than" in refusal(DEEPSEEK, Replica(dp_attention=512, ep=512))
    assert "does not divide" in refusal(DEEPSEEK, Replica(tp=8, ep=3))
    assert "whole layers" in refusal(LLAMA, Replica(tp=2), "llamacpp")
    assert degrees(1) == (1,)


LONG = Demand(Lengths("fixed", 500), Lengths("exp", 2_000))


@pytest.mark.slow
@pytest.mark.parametrize("pools", [False, True])
def test_many_in_flight_are_seen_in_their_steady_state(pools):
    """A thousand and more decode at a time, and 1,000 requests do not fill the replica once.

    The state that the short simulation begins with is the one that a long simulation from an empty
    replica comes to (Little: requests inside are the rate times the stay of one).
    """
    layout = Replica(dp_attention=16, ep=16, **{f: "fp8" for f in FORMATS})
    wide = Service(DEEPSEEK, layout, H100, LONG)
    if pools:
        worker = Service(DEEPSEEK, layout, H100, LONG, prefilled=True)
        wide = PooledService(wide, 1, worker, 1)
    rate = 0.7 * wide.most_rate()
    assert wide.inside(rate) > 500.0
    short, long = wide.open(rate, 1_000), wide.open(rate, 40_000)
    assert short.requests_per_s == pytest.approx(rate, rel=0.06)
    assert short.tpot.mean_s == pytest.approx(long.tpot.mean_s, rel=0.03)
    assert short.ttft.p50_s == pytest.approx(long.ttft.p50_s, rel=0.05)
    little = rate * LONG.outputs.mean * short.tpot.mean_s
    assert short.decoding_sequences == pytest.approx(little, rel=0.05)
