"""Serving held by hand: services whose answer is known, limits of each term, what is conserved."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.model.params import count_params
from gpuscale.core.serving import disaggregated
from gpuscale.core.serving.capacity import (
    LatencyLimit,
    Limits,
    OpenLoad,
    capacity,
    formula_bound,
    open_load,
)
from gpuscale.core.serving.choose import Candidate, Wanted, at_rate, choose
from gpuscale.core.serving.disaggregated import PooledService, decode_worker, prefill_worker
from gpuscale.core.serving.exchange import exchange_s
from gpuscale.core.serving.extras import (
    Adapters,
    Extras,
    Offload,
    adapter_bytes,
    adapter_widths,
    adapters_s,
    extras_s,
    freed_bytes,
    kept_s,
    movable_bytes,
    offload_s,
)
from gpuscale.core.serving.forward import (
    decode_step,
    layer_time_s,
    most_sequences,
    pass_time,
    prompt_pass,
    side_by_side_s,
)
from gpuscale.core.serving.kernels import multiplied_in
from gpuscale.core.serving.layouts import degrees, layout_text, refusal, replica_layouts
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.matching import (
    RatedWorker,
    aggregated_points,
    disaggregated_points,
    matched,
    workers,
)
from gpuscale.core.serving.memory import EngineMemory, cache_room
from gpuscale.core.serving.percentiles import NOTHING, Latency, summarise
from gpuscale.core.serving.records import Batch, Drafts, PassTime, Replica
from gpuscale.core.serving.scaling import windows_of
from gpuscale.core.serving.scheduler import Scheduler, Simulated
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.simulator import SimulatedEngine, simulate
from gpuscale.core.serving.tables import ContextRange, StepTable
from gpuscale.core.serving.traffic import Lengths, Traffic, closed_traffic, open_traffic
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site


@lru_cache
def spec(name):
    return load_model(name).spec


@lru_cache
def at(cluster="dgx-h100", engine="vllm"):
    return serving_site(load_cluster(cluster), engine)


# --- services whose answer is known --------------------------------------------------------------


@dataclass
class Queue:
    """M/M/1: every latency is ``1 / (mu - rate)``, a token takes ``token_s (1 + rate / mu)``."""

    mu: float
    token_s: float = 0.01
    n_gpus: int = 1
    fits: bool = True
    claims: float = 1.0  # of mu, what its formula says
    sequences_with_room: float = 8.0
    context_lacks_bytes: float = 0.0

    def open(self, rate_per_s, n, seed=0):
        wait = 1.0 / (self.mu - rate_per_s) if rate_per_s < self.mu else 1e9
        token = self.token_s * (1.0 + rate_per_s / self.mu)
        return replace(
            NOTHING,
            ttft=Latency(wait, wait / 2, *[wait] * 3),
            tpot=Latency(token, token / 2, *[token] * 3),
            requests_per_s=min(rate_per_s, self.mu),
            n_requests=n,
        )

    def most_rate(self, ttft_s=math.inf, tpot_s=math.inf):
        by_wait = self.mu - 1.0 / ttft_s
        by_token = self.mu * (tpot_s / self.token_s - 1.0)
        return max(0.0, self.claims * min(self.mu, by_wait, by_token))

    def closed(self, concurrency, n=None, seed=0):
        rate = min(self.mu, 2.0 * concurrency)
        return replace(self.open(rate / 2, n or 0), requests_per_s=rate, most_sequences=concurrency)

    def burst(self, n, seed=0):
        return replace(self.open(self.mu / 2, n), requests_per_s=self.mu)

    def full(self, seed=0):
        return self.burst(1)


TTFT = Limits(LatencyLimit("p95", 0.5))


@given(st.floats(3.0, 1e4), st.floats(0.9, 1.1))
def test_highest_rate_of_a_queue_is_the_known_one(mu, claims):
    found = capacity(Queue(mu, claims=claims), TTFT)
    assert found.binding == "TTFT"
    assert found.load.ttft.p95_s <= 0.5
    assert 0.97 * (mu - 2.0) <= found.rate_per_s + 0.03 <= (mu - 2.0) * (1 + 1e-9) + 0.03


def test_the_nearer_limit_binds():
    both = Limits(LatencyLimit("p95", 0.5), LatencyLimit("mean", 0.012))
    found = capacity(Queue(100.0), both)
    assert found.binding == "TPOT" and 18.0 <= found.rate_per_s <= 20.0
    hard = capacity(Queue(100.0), Limits(tpot=LatencyLimit("mean", 0.009)))
    assert (hard.rate_per_s, hard.binding) == (0.0, "TPOT")
    assert both.missed(Queue(100.0).open(50.0, 1)) == ("TPOT",)
    assert both.missed(Queue(100.0).open(99.0, 1)) == ("TTFT", "TPOT")
    assert Limits().use(NOTHING) == 0.0


def test_without_limits_the_rate_is_that_of_a_full_server():
    for claims in (0.9, 1.5):
        found = capacity(Queue(100.0, claims=claims), Limits())
        assert (found.binding, found.rate_per_s) == ("throughput", 100.0)
    assert capacity(Queue(0.0), Limits()).binding == "cache"


def test_the_bound_of_a_median_is_not_that_of_the_mean():
    """A median lies below the mean in a queue: the formula's mean does not bound it."""
    queue = Queue(100.0)
    mean, median = (formula_bound(queue, Limits(LatencyLimit(s, 0.5))) for s in ("p95", "p50"))
    assert mean == pytest.approx(1.15 * 98.0) and median == pytest.approx(1.15 * 100.0)
    mean, median = (
        formula_bound(queue, Limits(tpot=LatencyLimit(s, 0.015))) for s in ("p90", "p50")
    )
    assert mean == pytest.approx(1.15 * 50.0) and median == pytest.approx(1.15 * 100.0)
    assert 0.0 < formula_bound(queue, Limits(LatencyLimit("p95", 0.001))) <= 0.1


def offers(**prices):
    """Rates within half a second: A 2 a GPU, B 10 for 4, C 3.9 for 2, D too large to fit."""
    found = {"A": Queue(4.0), "B": Queue(12.0, n_gpus=4), "C": Queue(5.9, n_gpus=2)}
    found["D"] = Queue(1e6, n_gpus=1, fits=False)
    return [Candidate(k, "vllm", "fp8", v, prices.get(k)) for k, v in found.items()]


def test_the_fewest_gpus_or_dollars_or_the_highest_rate():
    """30 requests a second need 16 A, 3 or 4 B on 16 GPUs, 8 C, each a little below its limit."""
    rated = choose(offers(), Wanted(TTFT, 29.0))
    best = rated.best
    assert (best.candidate.label, best.copies, best.n_gpus) == ("B", 3, 12)
    assert best.meets and best.missed == () and best.at_most_per_s >= 29.0
    assert [c.label for c in rated.no_room] == ["D"]
    cheap = choose(offers(A=0.5, B=1.0, C=1.0), Wanted(TTFT, 29.0)).best
    assert cheap.candidate.label == "A" and cheap.copies == 15
    full = choose(offers(), Wanted(TTFT, None, 8)).best
    assert (full.candidate.label, full.copies) == ("B", 2)
    assert full.at_most_per_s == pytest.approx(20.0, rel=0.03)
    small = choose(offers(), Wanted(TTFT, None, 3))
    assert {f.candidate.label: f.copies for f in small.found} == {"A": 3, "C": 1}
    one = choose(offers(), Wanted(TTFT))
    assert {f.copies for f in one.found} == {4096, 1024, 2048} or {f.copies for f in one.found}
    late = choose(offers(), Wanted(TTFT, 1000.0, 8)).best
    assert not late.meets and late.missed == ("TTFT",)
    few = choose(offers(), Wanted(TTFT, 1000.0, most_gpus=8))
    assert all(not f.meets and f.n_gpus <= 8 for f in few.found)
    assert at_rate(best, 12.0, 7).requests_per_s == 4.0 and at_rate(best, 12.0, 7).n_requests == 7


def test_many_candidates_are_bounded_not_simulated():
    queues = [Candidate(str(i), "vllm", "fp8", Queue(3.0 + i)) for i in range(40)]
    choice = choose(queues, Wanted(TTFT, None, 1))
    assert choice.best.candidate.label == "39"
    assert len(choice.found) + len(choice.bounded) == 40
    assert 4 <= len(choice.found) < 20
    equal = [Candidate(str(i), "vllm", "fp8", Queue(10.0)) for i in range(40)]
    assert len(choose(equal, Wanted(TTFT, None, 1)).found) == 20


def test_a_closed_loop_is_shared_by_the_copies():
    loops = choose(offers(), Wanted(Limits(), None, 8, concurrency=4, n_requests=40))
    copies = {f.candidate.label: f.copies for f in loops.found}
    assert copies == {"A": 4, "B": 2, "C": 4}
    each = {f.candidate.label: f.load for f in loops.found}
    assert {k: v.most_sequences for k, v in each.items()} == {"A": 1, "B": 2, "C": 1}
    assert {k: v.n_requests for k, v in each.items()} == {"A": 10, "B": 20, "C": 10}
    # A 4 x 2 a second on four GPUs, C on eight, B 2 x 4 on eight
    assert loops.best.candidate.label == "A" and loops.best.at_most_per_s == 8.0
    assert loops.best.binding == "the load" and loops.best.meets
    alone = choose(offers(), Wanted(Limits(), None, None, concurrency=4))
    assert {f.copies for f in alone.found} == {1}
    burst = choose(offers(), Wanted(TTFT, None, 8, burst=2))
    assert {f.candidate.label: f.copies for f in burst.found} == {"A": 2, "B": 2, "C": 2}
    assert {f.load.n_requests for f in burst.found} == {1}
    tight = choose(offers(), Wanted(Limits(LatencyLimit("mean", 0.3)), None, 8, burst=2))
    assert [f.meets for f in tight.found] == [True, False, False]
    assert tight.best.candidate.label == "B"


def test_a_closed_loop_takes_the_fewest_gpus_that_serve_it():
    """64 in flight, 8 with room on a copy: 4 copies run half of them. Alone a copy that has c in
    flight takes ``1 / (mu - min(mu, 2 c) / 2)`` to the first token: A never within 0.3 s, B always,
    C with two in flight, not with three: 26 copies.
    """
    free = choose(offers(), Wanted(Limits(), concurrency=64))
    assert {f.candidate.label: f.copies for f in free.found} == {"A": 4, "B": 4, "C": 4}
    assert free.best.candidate.label == "A" and free.best.n_gpus == 4
    limited = choose(offers(), Wanted(Limits(LatencyLimit("mean", 0.3)), concurrency=64))
    assert [(f.candidate.label, f.copies, f.meets) for f in limited.found] == [
        ("B", 4, True),
        ("C", 26, True),
        ("A", 4, False),
    ]
    cheap = choose(
        offers(A=1.0, B=2.0, C=0.5), Wanted(Limits(LatencyLimit("mean", 0.3)), concurrency=64)
    )
    assert cheap.best.candidate.label == "C"
    little = choose(
        offers(), Wanted(Limits(LatencyLimit("mean", 0.3)), concurrency=64, most_gpus=12)
    )
    assert {f.candidate.label: f.n_gpus for f in little.found} == {"A": 4, "B": 12, "C": 8}
    burst = choose(offers(), Wanted(Limits(LatencyLimit("mean", 0.3)), burst=2)).best
    assert (burst.candidate.label, burst.copies) == ("B", 1)


# --- queueing ------------------------------------------------------------------------------------


@given(st.floats(0.01, 0.95), st.floats(1e-3, 10.0), st.floats(0.0, 4.0), st.floats(0.0, 1.0))
def test_one_token_answers_are_pollaczek_khinchine(rho, service, cv2, request):
    """Kleinrock, Queueing Systems I, 5.6: ``W = rho x (1 + cv^2) / (2 (1 - rho))``."""
    load = OpenLoad(rho / service, 1.0, cv2, request_s=request)
    found = open_load(lambda n: 1e-9, lambda n: service, load)
    want = request + service + rho * service * (1 + cv2) / (2 * (1 - rho))
    assert found.ttft_s == pytest.approx(want, rel=1e-6)
    assert found.prompt_use == pytest.approx(rho) and found.sequences == 0.0


@given(st.floats(0.1, 50.0), st.floats(2.0, 500.0), st.floats(1.0, 4.0))
def test_decoding_alone_obeys_littles_law(rate, tokens, each):
    """Prompts for nothing, a pass of 1 ms: n = r (o - 1) T / g."""
    load = OpenLoad(rate, tokens, tokens_per_pass=each)
    found = open_load(lambda n: 1e-3, lambda n: 0.0, load)
    assert found.tpot_s == pytest.approx(1e-3 / each)
    assert found.sequences == pytest.approx(rate * (tokens - 1) * 1e-3 / each, rel=1e-4)
    busy = 1 - math.exp(-found.sequences)  # then it waits half a pass and is read in the next
    assert found.ttft_s == pytest.approx(busy * 1.5e-3, rel=1e-6)


# --- traffic -------------------------------------------------------------------------------------


def test_longest_lengths_are_the_999th_of_1000():
    normal = NormalDist()
    sigma = 0.6
    want = 700 * math.exp(-(sigma**2) / 2 + normal.inv_cdf(0.999) * sigma)
    assert Lengths("lognormal", 700, sigma).most == pytest.approx(want, rel=1e-3)
    assert Lengths("lognormal", 700, 40.0).most == 700 * math.exp(-16.91 * 40.0)
    assert Lengths("exp", 700).most == pytest.approx(-700 * math.log(0.001), rel=2e-3)
    assert Lengths("uniform", 3, 9).most == 9 and Lengths("fixed", 5).most == 5
    assert Lengths("sampled", values=(4, 9, 2)).most == 9


def test_windows_by_hand():
    """Three, one, six and two a second of replicas of one each; a replica starts in one window."""
    counts = (30, 10, 60, 20)
    arrivals = [10.0 * w + 10.0 * i / n for w, n in enumerate(counts) for i in range(n)]
    found = windows_of(arrivals, 1.0, 10.0, 10.0)
    assert [w.needed for w in found.windows] == [3, 1, 6, 2]
    assert [w.planned for w in found.windows] == [3, 6, 6, 2]
    assert [w.start_s for w in found.windows] == [0.0, 10.0, 20.0, 30.0]
    assert [w.rate_per_s for w in found.windows] == [3.0, 1.0, 6.0, 2.0]
    assert (found.peak, found.mean) == (6, 17 / 4)
    assert (found.fixed_replica_s, found.planned_replica_s) == (240.0, 170.0)
    # on demand: 3, then 3, then 1 for six a second: 50 of 120 are late
    assert found.late_frac == pytest.approx(50 / 120)
    assert windows_of(arrivals, 1.0, 0.0, 10.0).late_frac == 0.0
    for bad in (([], 1.0, 0.0, 1.0), ([0.0], 0.0, 0.0, 1.0), ([0.0], 1.0, -1.0, 1.0)):
        with pytest.raises(ValueError, match="wanted"):
            windows_of(*bad)


# --- what a simulation conserves -----------------------------------------------------------------


class Passes:
    """Pass times of round numbers."""

    def decode(self, n):
        return (0.010 + 1e-4 * n, 1e-6)

    def prompt(self, tokens, keys, n, ends):
        return 1e-4 * tokens + (0.005 if n == 0 else 0.0)


@settings(max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([1.0, 2.5]),
    st.sampled_from([{}, {"mixed": False}, {"reserve_output": True}, {"prefilled": True}]),
    st.sampled_from(
        [
            {},
            {"stages": 2},
            {"poll_passes": 3},
            {"poll_passes": 9, "poll_prompts": 2},
            {"intake_s": 0.02},
        ]
    ),
)
def test_an_emptied_engine_holds_nothing(seed, prefix, each, kind, more):
    """What is let in is let out: cache, context and places are empty after the last request."""
    traffic = open_traffic(
        Lengths("lognormal", 100, 0.8), Lengths("exp", 60), 20.0, 40, seed=seed, prefix_frac=prefix
    )
    limits = Scheduler(256, 8, 900.0, 8.0, tokens_per_pass=each, **kind, **more)
    engine = SimulatedEngine(Passes(), limits, traffic)
    out = engine.run()
    assert not engine.running and not engine.waiting and engine.partial < 0
    assert engine.held == pytest.approx(0.0, abs=1e-6)
    assert engine.context == pytest.approx(0.0, abs=1e-6)
    assert engine.decoded == 40 and out.most_sequences <= 8
    answered = [i for i in range(40) if not math.isnan(out.end_s[i])]
    assert len(answered) + out.n_refused == 40
    assert all(out.arrival_s[i] <= out.first_s[i] + 1e-9 for i in answered)
    assert all(out.first_s[i] <= out.end_s[i] + 1e-9 for i in answered)
    assert out.busy_s <= max(out.end_s[i] for i in answered) + 1e-9


@pytest.mark.parametrize("skip", [0.0, 0.5])
def test_a_crowded_engine_answers_all(skip):
    """Short prompts, long answers, chunks of 8: who is started over reads a long prompt again."""
    outputs = [900 - 29 * i for i in range(30)]
    traffic = Traffic([1] * 30, outputs, [0.0] * 30, prefix_frac=skip)
    engine = SimulatedEngine(Passes(), Scheduler(8, 256, 1000, 8.0, tokens_per_pass=1.5), traffic)
    out = engine.run()
    assert out.n_preempted > 10 and out.n_refused == 0
    assert not any(math.isnan(end) for end in out.end_s)
    assert (engine.held, engine.context) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize(("prompt", "together"), [(49, 2), (50, 1)])
def test_prefilled_requests_are_let_in_below_the_watermark(prompt, together):
    """Two of 49 tokens are 98 of 99 that may be taken of 100."""
    traffic = Traffic([prompt] * 2, [2] * 2, [0.0] * 2)
    out = simulate(Passes(), Scheduler(8192, 8, 100, prefilled=True), traffic)
    assert out.most_sequences == together


def test_a_crowd_of_prefilled_requests():
    traffic = Traffic([10] * 3, [2] * 3, [0.0] * 3)
    assert simulate(Passes(), Scheduler(8192, 2, prefilled=True), traffic).most_sequences == 2


def test_a_summary_by_hand():
    """Five requests, one a second; the last never fits."""
    nan = math.nan
    run = Simulated(
        [0.0, 1.0, 2.0, 3.0, 4.0],
        [0.5, 1.5, 2.5, 3.5, nan],
        [2.5, 3.5, 2.5, 7.5, nan],
        [10, 20, 30, 40, 50],
        [3, 3, 1, 5, 5],
        n_preempted=2,
        n_refused=1,
        busy_s=5.0,
        sequence_s=10.0,
        most_sequences=3,
    )
    found = summarise(run)
    assert (found.n_requests, found.time_s, found.requests_per_s) == (4, 7.5, 4 / 7.5)
    assert found.input_tokens_per_s == pytest.approx(100 / 7.5)
    assert found.output_tokens_per_s == pytest.approx(12 / 7.5)
    assert found.ttft.mean_s == 0.5 and found.tpot.mean_s == 1.0
    assert found.end_to_end.mean_s == pytest.approx((2.5 + 2.5 + 0.5 + 4.5) / 4)
    assert (found.decoding_sequences, found.busy_frac) == (2.0, 5 / 7.5)
    assert found.tokens_per_s_per_user == 1.0
    warm = summarise(run, warm_up_frac=0.2)  # from 1 s to 4 s three end: at 2.5, 3.5 and 2.5
    assert warm.n_requests == 3 and warm.requests_per_s == pytest.approx(1.0)
    assert warm.output_tokens_per_s == pytest.approx(7 / 3)
    nothing = summarise(replace(run, end_s=[nan] * 5))
    assert (nothing.n_requests, nothing.requests_per_s, nothing.time_s) == (0, 0.0, 0.0)


# --- adapters and weights on the host ------------------------------------------------------------


def test_adapters_of_llama_are_as_many_as_peft_prints():
    """PEFT, r = 16 on all seven maps of Llama 3 8B: trainable params: 41,943,040."""
    model = spec("llama3-8b")
    width, launches = adapter_widths(model)
    assert 16 * width == 41_943_040
    assert launches == 32 * 4 * 2  # queries with keys and values, out, gate with up, down
    assert adapter_bytes(model, Replica(), Adapters(16, 3)) == 3 * 2 * 41_943_040
    assert adapter_bytes(model, Replica(tp=4, pp=2), Adapters(16, 8)) == 2 * 41_943_040


def test_adapters_are_read_once_each_and_move_every_token():
    model, site = spec("llama3-8b"), at()
    rate = site.hbm_bytes_per_s * site.kernels.decode_attention_eff
    none = adapters_s(model, Replica(), site, Adapters(16, 1), Batch())
    launched = 256 * site.kernels.small_kernel_s
    assert none == pytest.approx(launched + 2 * 41_943_040 / rate)

    def beyond(n, batch, replica=None):
        return adapters_s(model, replica or Replica(), site, Adapters(16, n), batch) - launched

    one = Batch(sequences=1)
    moved = 2 * 41_943_040 / 16 / rate
    assert beyond(1, one) == pytest.approx(2 * 41_943_040 / rate + moved)
    assert beyond(50, Batch(sequences=8)) == pytest.approx(8 * beyond(1, one))
    assert beyond(50, Batch(100.0, prompts=2.0)) == pytest.approx(
        2 * 2 * 41_943_040 / rate + 100 * moved
    )
    assert beyond(50, Batch(sequences=8), Replica(tp=4)) == pytest.approx(2 * beyond(1, one))
    assert beyond(4, Batch(sequences=8), Replica(dp_attention=2)) == pytest.approx(
        4 * 2 * 41_943_040 / rate + 4 * moved
    )


LAYER = 218_103_808  # weights of a layer of Llama 3 8B: 41,943,040 attention, 176,160,768 MLP
EXPERT = 176_160_768  # weights of an expert of Mixtral 8x7B


def test_what_may_move_to_the_host():
    llama, mixtral = spec("llama3-8b"), spec("mixtral-8x7b")
    assert movable_bytes(llama, Replica(), "layers") == 2 * 32 * LAYER
    assert movable_bytes(llama, Replica(), "experts") == 0.0
    narrow = Replica(ffn_format="fp8")
    assert movable_bytes(llama, narrow, "layers") == 32 * (176_160_768 + 2 * 41_943_040)
    assert movable_bytes(mixtral, Replica(), "experts") == 2 * 32 * 8 * EXPERT
    assert movable_bytes(mixtral, narrow, "experts") == 32 * 8 * EXPERT
    layers = movable_bytes(mixtral, Replica(), "layers")
    assert layers / 2 == pytest.approx(
        count_params(mixtral).total_params - 2 * 32000 * 4096, rel=1e-5
    )
    off = Extras(Adapters(16, 4), Offload("experts", 0.5, 1e11, 1e12, 25e9))
    free = freed_bytes(mixtral, Replica(tp=2), off)
    own = adapter_bytes(mixtral, Replica(tp=2), off.adapters)
    assert free == pytest.approx(0.5 * 2 * 32 * 8 * EXPERT / 2 - own)
    assert freed_bytes(mixtral, Replica(), Extras()) == 0.0


FAST = 1e30


def offloaded(name, kind, batch, frac=1.0, host=FAST, flop=FAST, pcie=1e9):
    """Time, but for the activations' way over PCIe: 16 bits there and back for every layer."""
    whole = offload_s(spec(name), Replica(), Offload(kind, frac, host, flop, pcie), batch)
    return whole - 4 * batch.tokens * 4096 * 32 * frac / pcie


def test_each_term_of_an_offloaded_pass_alone():
    """The host's memory, its cores, or PCIe, the others without limit."""
    one, many = Batch(sequences=1), Batch(4000.0, sequences=96)
    handed = 32 * 1e-4
    whole = 2 * 32 * 8 * EXPERT
    # a token meets two experts of eight, read at half of the host's bandwidth
    read = offloaded("mixtral-8x7b", "experts", one, host=1e11)
    assert read == pytest.approx(handed + whole / 4 / 0.5e11)
    assert offloaded("mixtral-8x7b", "experts", one, 0.5, host=1e11) == pytest.approx(read / 2)
    assert offloaded("mixtral-8x7b", "experts", many, host=1e11) == pytest.approx(
        handed + whole / 0.5e11
    )
    assert offloaded("llama3-8b", "layers", one, host=1e11) == pytest.approx(
        2 * 32 * LAYER / 0.5e11
    )
    assert offloaded("mixtral-8x7b", "layers", one, host=1e11) > 3.9 * (read - handed)
    # two FLOP for a weight; a token and its two experts of eight
    assert offloaded("mixtral-8x7b", "experts", many, flop=1e13) == pytest.approx(
        handed + 2 * 4096 * 32 * 2 * EXPERT / 1e13
    )
    assert offloaded("llama3-8b", "layers", many, flop=1e13) == pytest.approx(
        2 * 4096 * 32 * LAYER / 1e13
    )
    # a slow host: the weights are streamed
    assert offloaded("llama3-8b", "layers", many, host=1.0, flop=1.0) == pytest.approx(
        2 * 32 * LAYER / 1e9
    )
    assert offloaded("llama3-8b", "layers", many) == pytest.approx(0.0, abs=1e-9)


def test_extras_add_and_what_is_on_the_host_leaves_the_gpu():
    model, site, batch = spec("llama3-8b"), at(), Batch(sequences=4)
    adapters, offload = Adapters(8, 2), Offload("layers", 0.25, 1e11, 1e12, 25e9)
    both = extras_s(model, Replica(), site, Extras(adapters, offload), batch)
    apart = adapters_s(model, Replica(), site, adapters, batch)
    assert both == pytest.approx(apart + offload_s(model, Replica(), offload, batch))
    assert extras_s(model, Replica(), site, Extras(), batch) == 0.0
    parts = PassTime(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    assert kept_s(parts, None) == 127.0 == kept_s(parts, Extras(adapters))
    assert kept_s(parts, Extras(offload=offload)) == 127.0 - 0.25 * (1 + 2 + 4 + 16)


# --- a pass --------------------------------------------------------------------------------------


def test_a_draft_costs_one_more_layer_and_the_head():
    """The same by two models, one a layer deeper."""
    model, site, replica = spec("llama3.1-8b"), at(), Replica(tp=2)
    deeper = type(model).model_validate({**model.model_dump(), "layers": "33 x full+dense"})
    batch = Batch(sequences=16, context=1000)
    one, two = (pass_time(m, replica, site, batch) for m in (model, deeper))
    layer = sum(
        getattr(two, part) - getattr(one, part)
        for part in ("linear_s", "attention_s", "experts_s", "communication_s", "small_s")
    )
    assert layer_time_s(model, replica, site, batch) == pytest.approx(layer + one.head_s)
    drafted = decode_step(model, replace(replica, drafts=Drafts(3, (0.5,))), site, 16, 1000)
    assert drafted.draft_s == pytest.approx(3 * (layer + one.head_s))
    assert drafted.tokens == 1.875
    verified = pass_time(model, replica, site, Batch(sequences=16, context=1000, tokens_each=4.0))
    assert drafted.time_s == pytest.approx(verified.total_s + drafted.draft_s)
    none = replace(replica, drafts=Drafts(0, (0.5,)))
    assert decode_step(model, none, site, 16, 1000).draft_s == 0.0


def test_host_and_gpu_of_nothing():
    assert side_by_side_s(0.0, 0.0, 3.0) == 0.0
    assert side_by_side_s(3.0, 4.0, 2.0) == pytest.approx(5.0)


def test_gathered_tokens_take_no_less_than_the_links_allow():
    """Eight attention ranks gather all tokens around the experts and scatter the sums."""
    model, site = spec("qwen3-30b-a3b"), at()
    tokens, h = 8 * 4096, model.hidden_size
    ranks = Replica(dp_attention=8)
    batch = Batch(tokens, 2048, 8, prompt_ranks=8)
    found = pass_time(model, ranks, site, batch).communication_s
    least = 48 * 2 * 7 / 8 * tokens * h * 2 / site.scaleup_bytes_per_s
    assert least <= found <= 2.0 * least
    two = pass_time(model, Replica(tp=2), site, Batch(4096, 2048, 1)).communication_s
    reduced = 48 * 2 * 4096 * h * 2 / site.scaleup_bytes_per_s  # two all-reduces of two ranks
    assert reduced <= two <= 4.0 * reduced
    sent = exchange_s(model.ffns["moe"], h, Replica(dp_attention=8, ep=8), site, 4096.0)
    apart = 8 * 4096 / 8 * 8 * 7 / 8 * h * 3 / 450e9  # eight experts a token, one byte and two
    assert apart <= sent <= 2.5 * apart


def test_a_chunked_prompt_is_the_sum_of_its_passes():
    model, site = spec("llama3.1-8b"), at()
    chunk = site.software.chunk_tokens
    whole = prompt_pass(model, Replica(), site, 3 * chunk, 1.0)
    third = pass_time(model, Replica(), site, Batch(chunk, 1.5 * chunk, 1 / 3))
    assert whole.total_s == pytest.approx(3 * third.total_s)
    ranks = Replica(dp_attention=4)
    shared = prompt_pass(spec("qwen3-30b-a3b"), ranks, site, chunk, 4.0)
    one = pass_time(
        spec("qwen3-30b-a3b"), ranks, site, Batch(4 * chunk, chunk / 2, 4, prompt_ranks=4)
    )
    assert shared.total_s == pytest.approx(one.total_s)


def test_formats_are_multiplied_in_what_the_gpu_has():
    peaks = {"bf16": 1.0, "fp8": 2.0, "nvfp4": 4.0, "mxfp8": 2.0, "int4": 9.0}
    blackwell = SimpleNamespace(peaks=peaks)
    hopper = SimpleNamespace(peaks={"bf16": 1.0, "fp8": 2.0})
    for fmt, new, old in (
        ("fp4", "nvfp4", "bf16"),
        ("mxfp4", "mxfp8", "bf16"),
        ("int4", "bf16", "bf16"),
        ("fp8", "fp8", "fp8"),
        ("bf16", "bf16", "bf16"),
    ):
        assert (multiplied_in(blackwell, fmt), multiplied_in(hopper, fmt)) == (new, old)


# --- room and layouts ----------------------------------------------------------------------------


def test_tokens_of_a_cache_by_hand():
    """Llama 3.1 70B on eight GPUs: 80 x 2 x 128 x 2 B of one KV head are 40,960 B."""
    model, site, eight = spec("llama3.1-70b"), at(), Replica(tp=8)
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 200))
    plain = Service(model, eight, site, demand)
    room = cache_room(model, eight, site.software.memory, site.hbm_bytes).cache_bytes
    assert plain.scheduler.cache_tokens == pytest.approx(room / 40_960)
    assert plain.scheduler.sequence_tokens == pytest.approx(8.0)
    assert plain.scheduler.token_budget == site.software.chunk_tokens
    hit = Service(model, eight, site, replace(demand, prefix_frac=0.5))
    assert hit.scheduler.cache_tokens == pytest.approx(room / 40_960 - 500)
    assert hit.sequences_with_room > plain.sequences_with_room or (
        plain.sequences_with_room == plain.scheduler.max_sequences
    )
    drafted = Service(model, replace(eight, drafts=Drafts(2, (0.5,))), site, demand)
    assert drafted.scheduler.tokens_per_pass == 1.75
    tuned = Service(model, eight, site, demand, Tuning(512, 16, 3)).scheduler
    assert (tuned.token_budget, tuned.max_sequences) == (512, 16)
    assert (tuned.poll_passes, tuned.poll_prompts) == (3, math.inf)
    assert plain.fits and plain.context_lacks_bytes == 0.0
    long = Service(model, eight, site, replace(demand, most_context=1e9))
    assert not long.fits
    assert long.context_lacks_bytes == pytest.approx(1e9 * 40_960 - room)
    assert most_sequences(model, eight, site, 1200) == pytest.approx(
        min(room / 40_960 / 1200, site.software.max_sequences)
    )
    wide = Service(model, Replica(tp=4, pp=2), site, demand).scheduler
    assert wide.stages == 2 and wide.max_sequences == 2 * plain.scheduler.max_sequences
    loaded = Tuning(extras=Extras(Adapters(16, 10)))
    less = Service(model, eight, site, demand, loaded).room
    own = adapter_bytes(model, eight, Adapters(16, 10))
    assert less.cache_bytes == pytest.approx(room - own)
    assert less.weights_bytes - plain.room.weights_bytes == pytest.approx(own)


def test_prompts_wait_for_all_attention_ranks():
    """TensorRT-LLM's attention_dp_config: of 4 ranks each reads 8,192 tokens a pass."""
    soft = replace(at().software, gather_passes=60, chunk_tokens=8192.0)
    site, demand = replace(at(), software=soft), Demand(Lengths("fixed", 1024), Lengths("fixed", 9))
    found = Service(spec("deepseek-v3"), Replica(dp_attention=4, ep=4), site, demand).scheduler
    assert (found.poll_passes, found.token_budget) == (60, 32_768)
    assert found.poll_prompts == pytest.approx(4 * (1 + 1 / 2 + 1 / 3 + 1 / 4))
    assert Service(spec("deepseek-v3"), Replica(tp=4), site, demand).scheduler.poll_passes == 0


def test_demand_by_hand():
    """Answers weighted by their length: an exponential's mean residual is its mean."""
    assert Demand(Lengths("fixed", 1000), Lengths("fixed", 200)).mean_context == 1100
    assert Demand(Lengths("fixed", 1000), Lengths("exp", 200)).mean_context == 1200


@pytest.mark.parametrize("rule", ["device", "static", "free", "all"])
def test_more_of_the_memory_is_more_cache(rule):
    """Of a share u of 80 GB: the weights take the same from each."""
    model = spec("llama3.1-8b")
    low, high = (cache_room(model, Replica(), EngineMemory(rule, u), 80e9) for u in (0.5, 0.9))
    if rule == "all":
        assert low.cache_bytes == high.cache_bytes
    elif rule == "device":  # the share is of the device
        assert high.cache_bytes - low.cache_bytes == pytest.approx(0.4 * 80e9)
    elif rule == "static":  # of what is free at the start
        assert high.cache_bytes - low.cache_bytes == pytest.approx(0.4 * (80e9 - 0.55e9))
    else:  # of what weights and the peak leave
        assert high.cache_bytes / low.cache_bytes == pytest.approx(0.9 / 0.5)


def test_layouts_in_words_and_their_degrees():
    assert layout_text(Replica()) == "TP 1" and layout_text(Replica(pp=4)) == "PP 4"
    assert layout_text(Replica(tp=2, ep=2)) == "TP 2 x EP 2"
    assert layout_text(Replica(tp=2, dp_attention=2, ep=4)) == "DPA 2 x TP 2 x EP 4"
    assert degrees(8) == (1, 2, 4, 8) and degrees(12)[-1] <= 12
    model = spec("llama3.1-70b")
    assert {(r.tp, r.pp) for r in replica_layouts(model, Replica(), 4, (2, 1))} == {
        (1, 1), (2, 1), (1, 2), (2, 2), (1, 4),
    }  # fmt: skip
    assert {(r.tp, r.pp) for r in replica_layouts(model, Replica(), 4, (2, 2))} == {
        (1, 1), (2, 1), (2, 2), (1, 4),
    }  # fmt: skip
    moe = spec("mixtral-8x7b")
    found = replica_layouts(moe, Replica(), 8, (8, 8))
    assert max(r.ep for r in found) == 8
    assert all(r.ep in (1, r.group) for r in found)
    assert any(r.dp_attention == 2 and r.tp == 4 for r in found)
    assert not any(
        r.dp_attention > 1 for r in replica_layouts(moe, Replica(), 8, (8, 8), "llamacpp")
    )
    assert "no experts" in refusal(model, Replica(tp=2, ep=2))
    assert refusal(moe, Replica(tp=8, ep=8)) == ""


# --- pools ---------------------------------------------------------------------------------------


def test_traffic_at_one_moment_and_bursts():
    model, site = spec("llama3.1-8b"), at()
    service = Service(model, Replica(), site, Demand(Lengths("fixed", 500), Lengths("fixed", 50)))
    burst = service.burst(30)
    assert burst.n_requests == 30
    same = service.simulated(Traffic([500] * 30, [50] * 30, [0.0] * 30))
    assert burst.time_s == pytest.approx(max(same.end_s))


# --- tables of passes ----------------------------------------------------------------------------

linear = st.floats(0.0, 1e-3)


@given(linear, linear, linear, st.integers(1, 200_000), st.integers(0, 3000), st.floats(1.0, 5e6))
def test_a_table_of_a_linear_pass_is_the_pass(per_token, per_sequence, per_key, tokens, n, keys):
    """Between and beyond its entries: ``T = T0 + a tokens + b sequences + c tokens keys``."""

    def pass_of(batch):
        own = per_token * batch.prompt_tokens + per_key * batch.prompt_tokens * batch.prompt_context
        return 0.01 + own + per_sequence * batch.sequences * batch.context

    def decode_of(n, context):
        return 0.01 + n * (per_sequence + per_key * context)

    table = StepTable(pass_of, decode_of, ContextRange(100.0, 900.0))
    floor = max(keys, 128.0)  # fewer keys take the time of the first in the table
    want = tokens * (per_token + per_key * floor) + (0.01 if n == 0 else 0.0)
    assert table.prompt(tokens, keys, n, 1) == pytest.approx(want, rel=1e-6, abs=1e-9)
    if n:
        base, each = table.decode(n)
        assert base == pytest.approx(0.01 + n * per_sequence, rel=1e-6)
        assert each == pytest.approx(per_key, rel=1e-5, abs=1e-9)
    assert table.decode(0) == (0.0, 0.0)


@given(st.integers(1, 8))
def test_ranks_share_the_prompts_of_a_pass(prompts):
    """A pass of ``0.01 + tokens / ranks``: eight read eight at a time."""
    table = StepTable(
        lambda b: 0.01 + 1e-5 * b.prompt_tokens / b.prompt_ranks,
        lambda n, c: 0.01,
        ContextRange(),
        ranks=8,
    )
    assert table.prompt(4096, 1.0, 0, prompts) == pytest.approx(0.01 + 4.096e-2 / prompts)
    assert table.prompt(4096, 1.0, 0, 20) == pytest.approx(0.01 + 4.096e-2 / 8)


# --- workers of two pools, with passes of round numbers ------------------------------------------

FIXED = Demand(Lengths("fixed", 1000), Lengths("fixed", 101))


def pooled(n_prefill=1, n_decode=1):
    """1,000 tokens are read in 0.105 s, a pass of one sequence takes 10.1 ms and its context."""
    model, site = spec("llama3.1-70b"), at()
    read = prefill_worker(model, Replica(tp=2), site, FIXED, Tuning())
    made = decode_worker(model, Replica(tp=4), site, FIXED, Tuning())
    read.table = made.table = Passes()
    return PooledService(read, n_prefill, made, n_decode)


def test_one_request_of_two_workers_by_hand():
    pools = pooled()
    soft = at().software
    sent = 1000 * 2 * 8 * 128 * 2 / 2 / 450e9  # one layer's cache on one of two GPUs
    assert pools.transfer_s == pytest.approx(sent) and pools.n_gpus == 6
    step = 0.0101 + 1e-6 * 1050.5
    first = soft.request_s + 0.105 + sent + step
    decode = sum(0.0101 + 1e-6 * (1000 + i) for i in range(100))
    for load in (pools.burst(1), pools.open(0.01, 40)):
        assert load.ttft.mean_s == pytest.approx(first, rel=1e-3)
        assert load.end_to_end.mean_s == pytest.approx(first + decode, rel=1e-3)
        assert load.tpot.mean_s == pytest.approx(decode / 100, rel=1e-3)
    loop = pools.closed(1, 2000)
    assert loop.requests_per_s == pytest.approx(1 / (first + decode), rel=0.1)


def test_a_request_waits_while_its_workers_agree():
    slow = at()
    slow = replace(slow, software=replace(slow.software, handover_s=0.25))
    read = prefill_worker(spec("llama3.1-70b"), Replica(tp=2), slow, FIXED, Tuning())
    read.table = Passes()
    late = PooledService(read, 1, pooled().decode, 1)
    assert late.transfer_s == pytest.approx(pooled().transfer_s + 0.25)
    one, two = pooled().burst(1), late.burst(1)
    assert two.ttft.mean_s == pytest.approx(one.ttft.mean_s + 0.25)
    assert two.tpot.mean_s == pytest.approx(one.tpot.mean_s)


def test_twice_the_workers_share_twice_the_load():
    one, two = pooled().burst(6), pooled(2, 2).burst(12)
    # twelve GPUs are beyond the node: the cache comes over the NICs
    assert two.end_to_end.mean_s == pytest.approx(one.end_to_end.mean_s, rel=1e-4)
    assert two.output_tokens_per_s == pytest.approx(2 * one.output_tokens_per_s, rel=1e-4)
    assert two.most_sequences == one.most_sequences
    few, many = pooled().open(4.0, 400), pooled(2, 2).open(8.0, 400)
    assert 0.7 * few.ttft.mean_s < many.ttft.mean_s < few.ttft.mean_s  # turns even the arrivals
    assert many.decoding_sequences == pytest.approx(2 * few.decoding_sequences, rel=0.15)


def test_a_full_server_takes_as_many_as_have_room():
    """Ten slots, prompts without time, 100 passes of 11 ms: 10 / 1.1 s."""
    made = decode_worker(
        spec("llama3.1-70b"), Replica(tp=4), at(), FIXED, Tuning(max_sequences=10.0)
    )
    made.table = SimpleNamespace(decode=lambda n: (0.011, 0.0))
    assert made.full().requests_per_s == pytest.approx(10 / 1.1, rel=0.03)
    assert made.full().most_sequences == 10


@pytest.mark.parametrize("workers", [(1, 1), (2, 1), (1, 3)])
def test_a_closed_loop_of_pools_obeys_littles_law(workers):
    found = pooled(*workers).closed(24, 2400)
    inside = found.requests_per_s * found.end_to_end.mean_s
    assert inside == pytest.approx(24, rel=0.03)
    more = pooled(*workers).closed(48, 2400)
    assert more.requests_per_s >= found.requests_per_s * (1 - 1e-3)
    assert more.ttft.p99_s >= found.ttft.p99_s


def test_pools_in_step_do_what_one_after_the_other_does():
    """Without a loop nothing comes back: the prompts' ends are the arrivals of the second pool."""
    pools = pooled()
    traffic = open_traffic(Lengths("exp", 1000), Lengths("exp", 100), 4.0, 300, seed=3)
    read = pools.prefill.simulated(replace(traffic, outputs=[1] * 300))
    order = sorted(range(300), key=read.end_s.__getitem__)
    arrivals = [read.end_s[i] + pools.transfer_s for i in order]
    sizes = [traffic.inputs[i] for i in order], [traffic.outputs[i] for i in order]
    made = pools.decode.simulated(Traffic(*sizes, arrivals))
    both, after = pools.simulated(traffic), pools.decode.pass_s(1.0)
    for k, i in enumerate(order):
        assert both.first_s[i] == pytest.approx(made.first_s[k] + after, abs=0.03)
        assert both.end_s[i] == pytest.approx(made.end_s[k] + after, abs=0.03)
    assert both.n_refused == 0 and both.busy_s == pytest.approx(made.busy_s, rel=0.02)


class OneByOne(SimulatedEngine):
    """An engine that looks around after each pass, as if something might always come."""

    horizon_s = property(lambda self: 0.0, lambda self, value: None)


@pytest.mark.parametrize("workers", [(1, 2), (2, 3), (3, 2)])
def test_passes_taken_at_once_are_those_taken_one_by_one(workers, monkeypatch):
    """In a loop an answer of one worker lets the next request come: none may run past it."""
    traffic = closed_traffic(FIXED.inputs, FIXED.outputs, 12, 150)
    found = pooled(*workers).simulated(traffic)
    monkeypatch.setattr(disaggregated, "SimulatedEngine", OneByOne)
    single = pooled(*workers).simulated(traffic)
    assert sorted(found.first_s) == pytest.approx(sorted(single.first_s))
    assert sorted(found.end_s) == pytest.approx(sorted(single.end_s))


def test_the_slower_pool_sets_the_rate():
    """A worker reads ten prompts a second and decodes 1 / (100 x 1.15 ms), less than ten."""
    read, made = pooled(1, 4).most_rate(), pooled(4, 1).most_rate()
    assert read == pytest.approx(10.0, rel=0.06)
    assert 7.0 < made < 8.7
    assert pooled(2, 8).most_rate() == pytest.approx(2 * read)
    assert pooled(8, 2).most_rate() == pytest.approx(2 * made)
    assert pooled(1, 1).most_rate() == pytest.approx(made)
    assert 0.0 < pooled(1, 4).most_rate(ttft_s=0.2) < read
    assert pooled(1, 4).most_rate(ttft_s=0.05) == 0.0
    slow = pooled(8, 1).most_rate(tpot_s=0.0125)  # at most two sequences of 1.15 ms
    assert slow == pytest.approx(2.17 / 100 / 0.0125, rel=0.1)
    assert pooled(8, 1).most_rate(tpot_s=0.011) < 0.7 * slow


@dataclass
class Part:
    """A worker that keeps so many requests a second on so many GPUs."""

    rate: float
    n_gpus: int
    fits: bool = True

    def most_rate(self, ttft_s, tpot_s):
        return self.rate if ttft_s >= 0.1 and tpot_s >= 0.01 else 0.0


READS = [Part(5.0, 2), Part(9.0, 4), Part(1.0, 8), Part(3.0, 1), Part(99.0, 1, fits=False)]
MAKES = [Part(4.0, 4), Part(13.0, 8), Part(0.0, 1)]


@pytest.fixture
def plain_pools(monkeypatch):
    def made(read, n_read, make, n_make):
        return SimpleNamespace(
            read=read, n_read=n_read, make=make, n_make=n_make,
            n_gpus=n_read * read.n_gpus + n_make * make.n_gpus,
            rate=min(n_read * read.rate, n_make * make.rate),
        )  # fmt: skip

    monkeypatch.setattr("gpuscale.core.serving.matching.PooledService", made)


def test_workers_are_ordered_by_their_rate_a_gpu():
    assert [w.service.rate for w in workers(READS, 1.0, 1.0)] == [3.0, 5.0, 9.0, 1.0]
    assert workers(READS, 0.01, 1.0) == []


@pytest.mark.parametrize("n_gpus", [5, 8, 16, 40])
def test_matched_pools_are_the_best_of_all(plain_pools, n_gpus):
    found = matched(READS, MAKES, Limits(), n_gpus, None)
    best = max(
        min(n * read.rate, m * make.rate)
        for read in READS[:4] for make in MAKES
        for n in range(1, 40) for m in range(1, 40)
        if n * read.n_gpus + m * make.n_gpus <= n_gpus
    )  # fmt: skip
    assert max(p.rate for p in found) == pytest.approx(best)
    assert all(p.n_gpus <= n_gpus for p in found) and len(found) <= 3
    assert all((p.n_read - 1) * p.read.rate < p.rate for p in found)  # none more than needed
    assert [p.rate / p.n_gpus for p in found] == sorted(
        (p.rate / p.n_gpus for p in found), reverse=True
    )


def test_matched_pools_for_a_rate(plain_pools):
    """20 a second and a twentieth more: 21 are 5 of 5 and 2 of 13."""
    found = matched(READS, MAKES, Limits(), None, 20.0)
    best = found[0]
    assert (best.n_read, best.read.rate, best.n_make, best.make.rate) == (5, 5.0, 2, 13.0)
    assert all(p.rate >= 21.0 for p in found)
    assert matched(READS, MAKES, Limits(), None, None) == []
    assert matched(READS, MAKES, Limits(), None, 1e5) == []
    assert matched(READS, MAKES, Limits(tpot=LatencyLimit("mean", 0.001)), None, 20.0) == []
    assert matched(READS, MAKES, Limits(ttft=LatencyLimit("mean", 0.001)), None, 20.0) == []
    assert matched(READS, MAKES, Limits(), 4, None) == []


def test_points_of_pools_obey_littles_law():
    pools = pooled()
    points = disaggregated_points(RatedWorker(pools.prefill, 8.0), pools.decode, "vllm", "fp8")
    for p in points:
        rate = p.concurrency * p.tokens_per_s_per_user / 100  # requests a second of the worker
        gpus = 4 + rate / 8.0 * 2
        assert p.tokens_per_s_per_gpu == pytest.approx(rate * 101 / gpus)
        assert p.tpot_s == pytest.approx(1 / p.tokens_per_s_per_user)
        assert p.ttft_s > 0.105 + p.tpot_s
    assert [p.concurrency for p in points][:3] == [1, 2, 4]
    assert points[0].tpot_s == pytest.approx(0.0101 + 1e-6 * 1050.5)
    assert points[0].layout == "TP 2 read, TP 4 decode"


def test_points_of_a_replica_are_its_closed_loops():
    service = Service(spec("llama3.1-70b"), Replica(tp=4), at(), FIXED, Tuning(max_sequences=2))
    service.table = Passes()
    one, two = aggregated_points(service, "vllm", "bf16")
    assert one.tpot_s == pytest.approx(0.0101 + 1e-6 * 1049.5, rel=1e-3)
    assert one.tokens_per_s_per_user == 1 / one.tpot_s
    stay = one.ttft_s + 100 * one.tpot_s
    assert one.tokens_per_s_per_gpu == pytest.approx(101 / stay / 4, rel=1e-3)
    assert two.tokens_per_s_per_gpu > one.tokens_per_s_per_gpu
