"""A load begun in the middle, the order of what is found, a cache's room: by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuscale.core.serving import choose, forward, loads, matching, memory, service
from gpuscale.core.serving.capacity import LatencyLimit, Limits
from gpuscale.core.serving.choose import Candidate, FoundReplica
from gpuscale.core.serving.disaggregated import PooledService
from gpuscale.core.serving.forward import overlap_frac
from gpuscale.core.serving.loads import Demand, UnderLoad
from gpuscale.core.serving.maturity import needs_kernels
from gpuscale.core.serving.memory import EngineMemory, cache_room
from gpuscale.core.serving.percentiles import Latency, LoadResult, batch_error_frac, summarise
from gpuscale.core.serving.records import Batch, Replica
from gpuscale.core.serving.replica import ServingJob, replica_of
from gpuscale.core.serving.scaling import scaled_of
from gpuscale.core.serving.scheduler import Scheduler, Simulated
from gpuscale.core.serving.service import Service
from gpuscale.core.serving.simulator import SimulatedEngine
from gpuscale.core.serving.traffic import Lengths, Traffic, open_traffic
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site


class Straight(UnderLoad):
    """A token takes ``one + more N`` seconds with N that decode; answers have 100 tokens."""

    def __init__(self, one_s, more_s, inside, room):
        super().__init__(Demand(Lengths("fixed", 10), Lengths("fixed", 100)))
        self.one_s, self.more_s, self.by_formula, self.room = one_s, more_s, inside, room
        self.asked = []

    def simulated(self, traffic):
        raise NotImplementedError

    @property
    def sequences_with_room(self):
        return self.room

    def inside(self, rate_per_s):
        return self.by_formula

    def _from(self, rate_per_s, n, seed, running):
        self.asked.append(running)
        token_s = self.one_s + self.more_s * running
        return LoadResult(tpot=Latency(token_s, *[0.0] * 4))


# Little: N = r o (a + b N); at 1/s with 100 tokens of 1 s + 5 ms N that is 200
STARTS = [  # by formula, room, tried, begun with
    (120.0, 1000.0, [120, 160], 200),  # 120 stay 160 requests
    (160.0, 1000.0, [160, 200], 200),  # 180 are closer than a quarter more
    (190.0, 197.0, [190, 197], 197),  # no more than have room
    (150.0, 150.0, [150, 120], 150),  # by formula full: a quarter less
]


@pytest.mark.parametrize(("by_formula", "room", "tried", "begun"), STARTS)
def test_as_many_decode_at_the_start_as_littles_law_says(by_formula, room, tried, begun):
    load = Straight(1.0, 0.005, by_formula, room)
    load.open(1.0, 1000)
    assert load.asked == [*tried, begun]


def test_a_load_that_fills_often_starts_empty_and_one_without_end_full():
    load = Straight(1.0, 0.005, 50.0, 1000.0)
    load.open(1.0, 1000)  # twenty times as many
    assert load.asked == [0]
    steep = Straight(1.0, 0.02, 120.0, 500.0)  # each more holds up the others by two
    steep.open(1.0, 1000)
    assert steep.asked == [120, 340, 500]


def test_a_summary_of_a_load_begun_in_the_middle():
    """Two run when time begins; of the two that come one has its first token in time."""
    nan = math.nan
    run = Simulated(
        [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 1.5, 3.0], [4.0, nan, nan, nan],
        [70, 80, 10, 20], [5, 9, 3, 3], busy_s=0.5, sequence_s=1.0, n_running=2,
    )  # fmt: skip
    found = summarise(run)
    assert (found.ttft.mean_s, found.tpot.mean_s) == (0.75, 1.0)
    assert found.end_to_end.mean_s == pytest.approx((0.5 + 2 * 1.0 + 1.0 + 2 * 1.0) / 2)
    assert (found.n_requests, found.requests_per_s, found.time_s) == (2, 1.0, 3.0)
    assert (found.input_tokens_per_s, found.output_tokens_per_s) == (10.0, 3.0)
    assert (found.decoding_sequences, found.busy_frac) == (2.0, pytest.approx(0.5 / 3.0))
    assert summarise(replace(run, busy_s=0.0)).decoding_sequences == 0.0


@pytest.mark.parametrize(("left", "counted"), [((11, 100), 2.0), ((11, 31), 2.0), ((20, 30), 1.5)])
def test_short_ends_of_answers_do_not_tell_the_pace(left, counted):
    """Below a sixteenth of a mean answer of 320, or half the longest: 20, 15.5 and 15 tokens."""
    ends = [float(left[0] - 1), 2.0 * (left[1] - 1)]  # a second a token, and two
    run = Simulated([0.0] * 3, [0.0, 0.0, 1.0], [*ends, math.nan], [9] * 3, [*left, 320])
    run.n_running = 2
    assert summarise(run).tpot.mean_s == pytest.approx(counted)


def test_error_of_a_percentile_from_batches():
    """Ten batches of two: 0, 0, 0, 0, 0 and five of 2: mean 1, deviation sqrt(10/9)."""
    values = [0.0] * 10 + [2.0] * 10
    assert batch_error_frac(values, 0.5) == pytest.approx(math.sqrt(10 / 9 / 10) / 1.0)
    halved = [v / 4 for v in values]
    assert batch_error_frac(halved, 0.5) == pytest.approx(1 / 3)
    assert batch_error_frac([0.0] * 20, 0.5) == batch_error_frac(values[:19], 0.5) == 0.0


def test_requests_that_run_are_spread_over_their_answers():
    """Prompts of 50 tokens, half of one known; answers of 100, of which 2 to 100 are to come."""
    fixed = Lengths("fixed", 50), Lengths("fixed", 100)
    traffic = open_traffic(*fixed, 2.0, 10, prefix_frac=0.5, running=200)
    left = traffic.outputs[:200]
    assert min(left) >= 2 and max(left) <= 100 and 40 < sum(left) / 200 < 60
    assert [i + o for i, o in zip(traffic.inputs, left, strict=False)] == [150] * 200
    assert traffic.hits == [25] * 210 and traffic.outputs[200:] == [100] * 10
    assert traffic.ends_s == traffic.arrivals_s[-1] > 0.0
    assert open_traffic(*fixed, 2.0, 10).ends_s == math.inf


class Second:
    """Every pass takes a second."""

    def decode(self, n):
        return 1.0, 0.0

    def prompt(self, tokens, keys, n, prompts):
        return 1.0


def test_an_engine_that_begins_with_running_sequences():
    engine = SimulatedEngine(Second(), Scheduler(), Traffic([9, 9, 5], [3, 5, 2], [0, 0, 9.0]))
    assert engine.out.n_running == 0
    traffic = Traffic([9, 9, 5], [3, 5, 2], [0, 0, 9.0], running=2)
    engine = SimulatedEngine(Second(), Scheduler(sequence_tokens=1.0), traffic)
    assert (engine.held, engine.context, engine.ends_s) == (20.0, 18, 2.0)
    out = engine.run()
    assert out.first_s[:2] == [0.0, 0.0] and out.end_s[:2] == [2.0, 4.0]


def test_drafts_are_accepted_more_in_some_texts_than_in_others():
    """The logarithm of a request's tokens a pass is normal: half are above 3, a sixth by 1.35."""
    n = 2000
    traffic = Traffic([1] * n, [1] * n, [0.0] * n)
    limits = Scheduler(tokens_per_pass=3.0, pace_spread=0.3)
    engine = SimulatedEngine(Second(), limits, traffic)
    each = sorted(engine.each)
    assert each[n // 2] == pytest.approx(3.0, rel=0.01)
    assert each[int(0.8413 * n)] / 3.0 == pytest.approx(math.exp(0.3), rel=0.01)
    assert SimulatedEngine(Second(), Scheduler(tokens_per_pass=3.0), traffic).each == [3.0] * n
    slow = Scheduler(tokens_per_pass=1.0, pace_spread=0.3)
    assert min(SimulatedEngine(Second(), slow, traffic).each) == 1.0  # a pass has a token or more
    engine.add(1, 1, 0.0)
    assert engine.each[0] != engine.each[-1] != engine.each[-2]


def test_prompts_are_read_in_parts_and_the_engine_is_busy_meanwhile():
    """250 tokens in passes of 100: of the first, twice; of both; of the second, twice."""
    read = []

    class Noted(Second):
        def prompt(self, tokens, keys, n, prompts):
            read.append((tokens, prompts))
            return 1.0

    traffic = Traffic([250, 250], [1, 1], [0.0, 0.0])
    engine = SimulatedEngine(Noted(), Scheduler(token_budget=100), traffic)
    moments = []
    while engine.decoded < 2:
        moments.append(engine.next_s)
        engine.step()
    assert moments == [0, 1, 2, 3, 4] and engine.next_s == math.inf
    assert read == [(100, 1), (100, 1), (100, 2), (100, 1), (100, 1)]


def test_a_rank_reads_a_prompt_in_chunks_of_its_own():
    """Of a budget of 8,000 for four ranks 2,000 each: 5,000 tokens take three passes."""
    made = object.__new__(Service)
    made.scheduler, made.replica, made.prefilled = Scheduler(8000), Replica(dp_attention=4), False
    made.demand = Demand(Lengths("fixed", 10_000), Lengths("fixed", 100), 0.5)
    made.table = SimpleNamespace(prompt=lambda tokens, keys, n, prompts: tokens / 1000)
    assert made.prompt_s(1.0) == pytest.approx(3 * 1.667)  # of 1,666.7 tokens


def test_what_falls_short_is_held_against_the_best(monkeypatch):
    """The best so far keeps 12 requests a second on 8 GPUs; four copies of two are asked for 3."""
    asked = []

    class Trials:
        def __init__(self, what, limits, seed):
            pass

        def spare(self, rate, n):
            asked.append(rate)
            return -1.0

    monkeypatch.setattr(choose, "RateTrials", Trials)
    limits = Limits(LatencyLimit("p95", 1.0))
    c = Candidate("", "", "", SimpleNamespace(n_gpus=2))
    found = [SimpleNamespace(at_most_per_s=rate) for rate in (4.0, 12.0, 8.0)]
    assert choose._falls_short(c, found, choose.Wanted(limits, None, 8), 0)
    assert asked == [3.0]
    assert not choose._falls_short(c, found, choose.Wanted(limits, None, None), 0)
    assert not choose._falls_short(c, [], choose.Wanted(limits, None, 8), 0)


@pytest.mark.parametrize("drafts", [1.0, 1.5])
def test_no_pass_takes_more_cache_than_there_is(drafts):
    traffic = Traffic([10] * 12, [40 + 3 * i for i in range(12)], [0.5 * i for i in range(12)])
    limits = Scheduler(64, 8, 200.0, 4.0, mixed=False, tokens_per_pass=drafts)
    engine = SimulatedEngine(Second(), limits, traffic)
    while engine.decoded < 12:
        engine.step()
        assert engine.held <= 200.0 or len(engine.running) == 1
    assert engine.out.n_preempted > 0


def test_of_what_is_found_more_throughput_is_first_and_then_fewer_gpus():
    def found(rate, gpus, missed=()):
        return FoundReplica(
            SimpleNamespace(what=SimpleNamespace(n_gpus=gpus)), 1, rate, None, "", missed
        )

    ordered = [found(9.0, 8), found(5.0, 2), found(5.0, 4), found(99.0, 1, ("TTFT",))]
    assert sorted(reversed(ordered), key=choose._loop_order) == ordered


def test_two_pools_leave_the_first_what_comes_after_it():
    """A first token by 1 s: 0.1 s of transfer and a pass of 0.2 s leave the prompts 0.7 s."""
    pools = object.__new__(PooledService)
    pools.n_prefill, pools.n_decode, pools.transfer_s = 2, 3, 0.1
    pools.prefill = SimpleNamespace(most_rate=lambda ttft_s: 10.0 * ttft_s)
    pools.decode = SimpleNamespace(
        pass_s=lambda n: 0.2 * n, most_rate=lambda ttft_s, tpot_s: 100.0 * tpot_s
    )
    assert pools.most_rate(1.0) == pytest.approx(2 * 7.0)
    assert pools.most_rate(0.25) == 0.0
    assert pools.most_rate(1.0, 0.01) == pytest.approx(3 * 1.0)


@pytest.mark.parametrize(("stable", "inside", "want"), [(True, 5, 5), (True, 9, 7), (False, 1, 7)])
def test_sequences_inside_are_no_more_than_have_room(monkeypatch, stable, inside, want):
    made = object.__new__(Service)
    monkeypatch.setattr(Service, "sequences_with_room", 7)
    made.steady = lambda rate: SimpleNamespace(stable=stable, sequences=inside)
    assert made.inside(1.0) == want


def test_kernels_of_their_own_are_wanted_by_one_layer_of_many():
    """Qwen3-Next: most layers recurrent; Gemma 2: windows alone; GLM 4.5: dense first layers."""
    names = ("qwen3.5-27b", "gemma2-27b", "glm-4.5", "llama3-8b")
    assert [needs_kernels(load_model(n).spec) for n in names] == [True, False, True, False]


def test_two_batches_overlap_over_several_nodes():
    """Unless the engine has one batch alone, or its ranks gather all tokens (`joint_gpus`)."""
    shares = [((2, 16), 0.8), ((1, 16), 0.0), ((2, 8), 0.0), ((16, 16), 0.8)]
    for two, joint in ((True, 0), (False, 0), (True, 16)):
        soft = SimpleNamespace(two_batches=two, joint_gpus=joint)
        kernels = SimpleNamespace(exchange_overlap=0.8)
        site = SimpleNamespace(domain=8, kernels=kernels, software=soft)
        for (ranks, ep), want in shares:
            found = overlap_frac(Replica(dp_attention=ranks, ep=ep), site)
            assert found == (want if two and not joint else 0.0)


def test_a_replica_of_ranks_with_their_own_sequences():
    mixtral, llama = (load_model(n).spec for n in ("mixtral-8x7b", "llama3-8b"))
    job = ServingJob("fp8", "fp8")
    split = replica_of(mixtral, job, 8, 2, split_kv=True)
    assert (split.tp, split.pp, split.dp_attention, split.ep) == (1, 2, 8, 8)
    whole = replica_of(mixtral, job, 8, 2)
    assert (whole.tp, whole.pp, whole.dp_attention, whole.ep) == (8, 2, 1, 1)
    assert replica_of(llama, job, 8, 1, split_kv=True).ep == 1


def test_an_operator_lowers_the_sequences_of_the_sampler(monkeypatch):
    """100 GB, 90 % of it: 2 of a pass, 1 around; 2 are left to the cache.

    8 copies of 4 bytes x 250,000 words are 8 MB a sequence: 2 GB of 256 fit beside 80 of weights,
    1 GB is left beside 84; of 16 sequences 0.128 GB are always held.
    """
    monkeypatch.setattr(memory, "activation_bytes", lambda *a: 2e9)
    monkeypatch.setattr(memory, "reserved_bytes", lambda *a: 1e9)
    for weights, sampler in ((80e9, 2.048e9), (84e9, 1e9), (87e9, 0.128e9)):
        monkeypatch.setattr(memory, "replica_weight_bytes", lambda *a, w=weights, **k: w)
        model = SimpleNamespace(vocab_size=250_000)
        room = cache_room(model, Replica(), EngineMemory(), 100e9)
        assert room.activations_bytes == pytest.approx(2e9 + sampler)
        assert room.cache_bytes == pytest.approx(90e9 - weights - 3e9 - sampler)
        assert room.overhead_bytes == pytest.approx(11e9)


ROOMS = [  # rule, of 100 GB: room for the cache, what is left outside of it
    ("static", 0.8 * (100 - 1) - 60, 100 - 0.8 * 99),  # SGLang: weights and cache share 80 %
    ("free", 0.8 * (100 - 60 - 2 - 2.048 - 1), 1 + 0.2 * 34.952),  # TensorRT-LLM: of the rest
    ("all", 100 - 60 - 2 - 2.048 - 1, 1),
    ("device", 0.8 * 100 - 60 - 2 - 2.048 - 1, 1 + 20),  # vLLM
]


@pytest.mark.parametrize(("rule", "cache", "left"), ROOMS)
def test_how_engines_divide_a_gpu(monkeypatch, rule, cache, left):
    """60 GB of weights, 2 of a pass, 2.048 of the sampler, 1 around; 80 % is the engine's."""
    monkeypatch.setattr(memory, "activation_bytes", lambda *a: 2e9)
    monkeypatch.setattr(memory, "reserved_bytes", lambda *a: 1e9)
    monkeypatch.setattr(memory, "replica_weight_bytes", lambda *a, **k: 60e9)
    model, engine = SimpleNamespace(vocab_size=250_000), EngineMemory(rule, 0.8)
    room = cache_room(model, Replica(), engine, 100e9)
    assert room.cache_bytes == pytest.approx(cache * 1e9)
    assert room.overhead_bytes == pytest.approx(left * 1e9)
    parts = room.weights_bytes + room.activations_bytes + room.overhead_bytes + room.cache_bytes
    assert parts == pytest.approx(100e9)
    if rule != "static":  # llama.cpp: the logits come when the pass is over
        apart = cache_room(model, Replica(), EngineMemory(rule, 0.8, apart=True), 100e9)
        assert apart.activations_bytes == pytest.approx(2.048e9)
        few = EngineMemory(rule, 0.8, apart=True, sampler_sequences=16.0)
        assert cache_room(model, Replica(), few, 100e9).activations_bytes == 2e9


def test_replicas_that_start_late_by_more_than_a_window():
    """Windows of 100 s, a replica of 1/s is up after 150: two windows ahead, as first or before."""
    found = scaled_of([100.0, 200.0, 100.0, 300.0, 100.0], 1.0, 150.0, 100.0)
    assert [w.needed for w in found.windows] == [1, 2, 1, 3, 1]
    assert [w.planned for w in found.windows] == [2, 3, 3, 3, 1]
    assert found.n_starts == 1
    assert found.late_frac == pytest.approx((100 + 0 + 100) / 800)  # 1, 1, 1, 2, 1 are up
    assert scaled_of([100.0, 200.0, 100.0, 300.0], 1.0, 0.0, 100.0).n_starts == 1 + 2


@pytest.mark.parametrize(
    ("gpus", "rate", "each", "copies", "missed"),
    [
        (None, 0.9, 0.3, 3, ()),  # a third of a request a second is served by three
        (None, 0.9, 0.0, 50, ("TTFT",)),  # by none
        (None, 30.0, 0.3, 50, ("TTFT",)),  # a hundred are too many
        (None, None, 0.3, 1, ()),
        (8, 0.9, 0.3, 4, ()),  # all GPUs given
        (8, 1.3, 0.3, 4, ("TTFT",)),
    ],
)
def test_copies_that_serve_a_rate(gpus, rate, each, copies, missed):
    c = Candidate("", "", "", SimpleNamespace(n_gpus=2))
    wanted = choose.Wanted(Limits(), rate, gpus, most_gpus=100)
    one = SimpleNamespace(rate_per_s=each, load=LoadResult(), binding="TTFT")
    found = choose._found(c, one, wanted)
    assert (found.copies, found.missed) == (copies, missed)
    assert found.at_most_per_s == pytest.approx(copies * each)
    assert found.n_gpus == 2 * copies and found.meets == (not missed)


def test_a_full_replica_is_seen_for_five_rounds_without_the_first_and_the_last(monkeypatch):
    """What came when the first round had ended, halfway between two requests."""
    seen = []
    load = Straight(1.0, 0.0, 1.0, 10.4)
    monkeypatch.setattr(load, "simulated", lambda traffic: traffic)
    monkeypatch.setattr(
        loads, "summarise", lambda run, warm_up_frac: seen.append((run, warm_up_frac))
    )
    load.full()
    ((traffic, share),) = seen
    assert traffic.concurrency == 10 and len(traffic.inputs) == 50
    assert share == pytest.approx(19.5 / 50) and int(share * 50) == 19


def test_decode_workers_with_as_much_of_a_reader_as_they_need():
    """Answers of 101: 100 passes of 10 ms; the reader gives 4 GPUs 2 requests a second."""
    reader = SimpleNamespace(
        service=SimpleNamespace(
            replica=Replica(tp=4), steady=lambda rate: SimpleNamespace(ttft_s=0.2 * rate)
        ),
        per_gpu=0.5,
        rate_per_s=2.0,
    )
    decode = SimpleNamespace(
        demand=Demand(Lengths("fixed", 1000), Lengths("fixed", 101)),
        scheduler=Scheduler(tokens_per_pass=1.0),
        sequences_with_room=2.0,
        pass_s=lambda n: 0.01,
        n_gpus=8,
        replica=Replica(tp=8),
    )
    one, two = matching.disaggregated_points(reader, decode, "vllm", "fp8")
    assert (one.concurrency, two.concurrency) == (1, 2)
    assert one.tokens_per_s_per_user == two.tokens_per_s_per_user == pytest.approx(100.0)
    # one a second and 101 tokens, on 8 GPUs and half of the reader's four
    assert one.tokens_per_s_per_gpu == pytest.approx(101 / (8 + 2))
    assert two.tokens_per_s_per_gpu == pytest.approx(202 / (8 + 4))
    assert one.ttft_s == pytest.approx(0.2 * matching.BUSY_FRAC * 2.0 + 0.01)
    decode.scheduler = Scheduler(tokens_per_pass=2.0)
    assert matching.disaggregated_points(reader, decode, "", "")[0].tpot_s == pytest.approx(0.005)
    decode.demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 1))  # a pass all the same
    one, _ = matching.disaggregated_points(reader, decode, "", "")
    assert one.tokens_per_s_per_gpu == pytest.approx(200 / (8 + 200 / 0.5))


def test_ranks_gather_prompts_before_they_read():
    """TensorRT-LLM: prompts wait until each attention rank has one, or for some passes."""
    site = serving_site(load_cluster("dgx-h100"), "vllm")
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 101))
    model = load_model("llama3-8b").spec
    gathers = replace(site, software=replace(site.software, gather_passes=1))
    for at, ranks, polls in ((gathers, 2, 1), (gathers, 1, 0), (site, 2, 0)):
        found = Service(model, Replica(dp_attention=ranks), at, demand).scheduler
        assert found.poll_passes == polls
        assert found.poll_prompts == (service.covering(2) if polls else math.inf)
    each = replace(site, software=replace(site.software, intake_s=0.004), domain=8)
    for gpus, intake_s in ((4, 0.004), (8, 0.004), (16, 0.002), (32, 0.001)):  # a reader a machine
        found = Service(model, Replica(dp_attention=gpus), each, demand).scheduler
        assert found.intake_s == pytest.approx(intake_s)
    sent = Service(model, Replica(dp_attention=2), gathers, demand, prefilled=True).scheduler
    assert (sent.poll_passes, sent.request_s, sent.intake_s) == (0, 0.0, 0.0)


def test_small_kernels_take_their_launches_as_often_as_the_engine_starts_them():
    """Llama 3 8B: 32 layers of so many kernels of 2 us; twice as many under another engine."""
    site = serving_site(load_cluster("dgx-h100"), "vllm")
    model = load_model("llama3-8b").spec
    kernels = replace(site.kernels, stream_passes=0.0, small_kernel_s=2e-6)
    n = forward.SMALL_KERNELS["attention"] + forward.SMALL_KERNELS["dense"]
    for factor in (1.0, 2.0):
        software = replace(site.software, small_factor=factor, adds_experts=False)
        at = replace(site, kernels=kernels, software=software)
        found = forward.pass_time(model, Replica(), at, Batch(sequences=4.0, context=100.0))
        assert found.small_s == pytest.approx(32 * n * 2e-6 * factor * software.kernels_factor)


def test_a_prompt_stays_on_one_rank_and_sequences_are_spread():
    batch = Batch(800.0, 50.0, 8.0, 12.0, 90.0, 2.0, prompt_ranks=2.0)
    assert batch.on_rank(4.0) == Batch(400.0, 50.0, 4.0, 3.0, 90.0, 2.0)
    assert batch.on_rank(1.0) == batch and batch.tokens == 800 + 12 * 2


def test_the_first_end_is_known_before_it_comes():
    """Passes of 1 s and 10 ms a token of context, which grows by two sequences of 1.5 tokens."""

    class Growing(Second):
        def decode(self, n):
            return 1.0, 0.01

    traffic = Traffic([100, 50], [7, 31], [0.0, 99.0], running=2)
    engine = SimulatedEngine(Growing(), Scheduler(tokens_per_pass=1.5), traffic)
    passes = [1.0 + 0.01 * (150 + 3 * k) for k in range(4)]  # 6 tokens to come: four passes
    assert engine.ends_s == pytest.approx(sum(passes))
    assert engine.run().end_s[0] == pytest.approx(sum(passes))


def test_a_prompt_is_read_by_one_token_a_pass_where_decoding_fills_the_budget():
    read = []

    class Noted(Second):
        def prompt(self, tokens, keys, n, prompts):
            read.append(tokens)
            return 1.0

    traffic = Traffic([9] * 4 + [3], [50] * 4 + [2], [0.0] * 5, running=4)
    engine = SimulatedEngine(Noted(), Scheduler(token_budget=4), traffic)
    for _ in range(3):
        engine.step()
    assert read == [1, 1, 1]
