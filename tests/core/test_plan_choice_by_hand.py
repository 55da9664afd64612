"""What a plan says beside its best layout: batches, runs, ties, reasons, caps, remedies."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import IDEAL
from gpuscale.core.plan import sensitivity
from gpuscale.core.plan.records import Estimate, _divisible, run_of, sequences_for
from gpuscale.core.plan.scan import (
    SizeVerdict,
    doubled_sizes,
    grown_part,
    largest,
    smallest,
    why_worse,
)
from gpuscale.core.rules import facts_of
from gpuscale.core.search.problem import problem_for
from gpuscale.core.search.results import FoundLayout, Incumbents
from gpuscale.core.serving.replica import ServingJob, serving_times, weights_read_bytes
from gpuscale.core.step.records import Breakdown, Hardware, Software
from gpuscale.io.models import load_model

# --- batch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "seq", "more", "sequences"),
    [
        (4e6, 8192, {}, 512),  # 488.3
        (62914560, 4096, {}, 15360),  # exact
        (1e3, 8192, {}, 1),
        (8192, 8192, {}, 1),
        (4e6, 8192, {"n_gpus": 1000}, 500),  # 125 ranks are among them
        (4e6, 1024, {"n_gpus": 8, "micro_batch": 44}, 3872),
        (8192, 8192, {"micro_batch": 4}, 4),
        (1.3, 1, {}, 1),  # too far from both neighbours: the nearer
        (5.2, 1, {"micro_batch": 4, "tolerance": 0.01}, 4),
        (4e6, 8192, {"tolerance": 0.0}, 488),
        (100 * 7.0, 7, {"n_gpus": 3, "tolerance": 0.001}, 100),
        (70.0, 1, {"micro_batch": 3, "tolerance": 0.0}, 69),
    ],
)
def test_sequences_of_a_batch(tokens, seq, more, sequences):
    assert sequences_for(tokens, seq, **more) == sequences


@pytest.mark.parametrize(
    ("exact", "tolerance", "even", "want"),
    [
        (96.0, 0.05, 1, 96),
        (97.5, 0.05, 1, 96),
        (97.5, 0.01, 1, 98),
        (97.5, 0.0, 1, 98),
        (1.4, 0.05, 1, 1),
        (250.0, 0.05, 2, 250),
        (250.0, 0.05, 8, 256),
        (250.0, 0.0, 8, 250),
    ],
)
def test_multiples_of_powers_of_two(exact, tolerance, even, want):
    assert _divisible(exact, tolerance, even) == want


# --- run -----------------------------------------------------------------------------------------


def test_run_of_steps():
    run = run_of(2.0, 100.0, 8, 1e6, 3.0)
    assert (run.n_steps, run.time_s, run.expected_s) == (1e4, 2e4, 2e4)
    assert run.days == run.expected_days == run.low_days == run.high_days == 2e4 / 86400
    assert run.gpu_hours == pytest.approx(8 * 2e4 / 3600)
    assert run.usd == pytest.approx(3 * run.gpu_hours) and run.goodput_frac == 1.0
    seen = SimpleNamespace(
        expected_s=4e4, low_s=3e4, high_s=6e4, goodput=SimpleNamespace(goodput_frac=0.5)
    )
    fails = run_of(2.0, 100.0, 8, 1e6, 3.0, seen)
    assert (fails.days, fails.expected_days) == (2e4 / 86400, 4e4 / 86400)
    assert (fails.low_days, fails.high_days) == (3e4 / 86400, 6e4 / 86400)
    assert fails.usd == pytest.approx(2 * run.usd) and fails.goodput_frac == 0.5
    assert run_of(2.0, 100.0, 8, 1e6).usd is None


# --- reasons ----------------------------------------------------------------------------


def found(step, family="a", **changed):
    return FoundLayout(step, step, 10.0, Layout(8, 8, **changed), family)


def estimate(peak=60.0, fits=True, room=75.0, **parts):
    total = sum(parts.values())
    step = SimpleNamespace(expected=Breakdown(total, **parts), expected_s=total)
    return Estimate(
        layout=Layout(8, 8),
        family="a",
        step=step,
        memory=None,
        stage_layers=(1,),
        peak_bytes=peak * 1e9,
        capacity_bytes=80e9,
        fits=fits,
        room_bytes=room * 1e9,
    )


BEST = estimate(matmul_s=90.0, tp_comm_s=10.0)


def row(axis, exceeded=True):
    return SimpleNamespace(
        axis=axis, exceeded=exceeded, ratio=1.5, have=16.0, need=8.0, quantity="tokens"
    )


@pytest.mark.parametrize(
    ("worse", "board", "said"),
    [
        (estimate(85.0, fits=False), (), "does not fit by 5.00 GB"),
        (estimate(78.0), (), "may not fit: the upper end of its memory is 3.20 GB too much"),
        (
            estimate(matmul_s=90.0, tp_comm_s=30.0),
            (),
            "TP communication 25 % of the step, best 10 %",
        ),
        (
            estimate(matmul_s=90.0, tp_comm_s=30.0),
            (row("pp"), row("tp", False), row("tp")),
            "communication-bound 1.5x: TP 16 against at most 8",
        ),
        (
            estimate(matmul_s=90.0, tp_comm_s=10.0, dp_comm_s=20.0),
            (row("dp"),),
            "communication-bound 1.5x: 16 tokens against 8",
        ),
        (
            estimate(matmul_s=90.0, tp_comm_s=10.0, ep_comm_s=20.0),
            (row("ep"),),
            "communication-bound 1.5x: expert width 16 against 8",
        ),
        (estimate(matmul_s=180.0, tp_comm_s=20.0), (), "matrix multiplies 180 s, best 90 s"),
        (estimate(matmul_s=93.0, tp_comm_s=10.0), (), "as fast within the model's error"),
        (
            estimate(62.0, matmul_s=93.0, tp_comm_s=10.0),
            (),
            "as fast within the model's error, 2.00 GB more memory",
        ),
        (estimate(matmul_s=80.0, tp_comm_s=20.0), (), "as fast within the model's error"),
        (
            estimate(matmul_s=92.0, tp_comm_s=12.0, moe_s=3.0, host_s=3.5, pp_comm_s=1.0),
            (),
            "kernel launches, MoE dispatch, matrix multiplies: 8 % more together",
        ),
    ],
)
def test_why_a_layout_is_worse(worse, board, said):
    assert why_worse(worse, BEST, board) == said


def test_stragglers_are_no_reason():
    worse = estimate(matmul_s=91.0, tp_comm_s=10.0, straggler_s=50.0)
    assert grown_part(worse, BEST) == "matmul_s"
    assert BEST.headroom_bytes == 20e9 and BEST.step_s == 100.0


# --- searches under limits -----------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What the searches under caps need of a problem."""

    capacity_bytes: float = 80.0
    fit_factor: float = 1.1
    cache: dict = field(default_factory=dict)


def searched(module, monkeypatch, layouts):
    """Put a search over (time, memory) in the place of the real one; return what it was asked."""
    asked = []

    def fastest(problem, space, limit_s=float("inf"), **more):
        asked.append((problem.capacity_bytes, problem.fit_factor, limit_s))
        able = [x for x in layouts if x[1] <= problem.capacity_bytes and x[0] < limit_s]
        return FoundLayout(min(able)[0], *min(able), Layout(8, 8), "a") if able else None

    monkeypatch.setattr(module, "fastest", fastest)
    return asked


FRONT = [(1.0, 70.0), (1.04, 66.0), (1.2, 40.0), (1.3, 39.0), (2.0, 25.0)]


def test_most_memory_left_at_the_same_speed(monkeypatch):
    asked = searched(sensitivity, monkeypatch, FRONT)
    best = FoundLayout(1.0, 1.0, 70.0, Layout(8, 8), "a")
    chosen = sensitivity.most_headroom(Job(), None, best)
    assert chosen.peak_bytes == 66.0 and len(asked) == 8
    assert asked[0] == (35.0, 1.0, 1.05)
    alone = searched(sensitivity, monkeypatch, FRONT[:1])
    assert sensitivity.most_headroom(Job(), None, best) is best
    assert alone[-1][0] == pytest.approx(70 * (1 - 2**-8))


def test_changes_that_make_a_job_fit(monkeypatch):
    """The fewest changes first; everything free only where nothing else helps."""
    near, far = Layout(8, 8, tp=2), Layout(8, 8, tp=2, zero_stage=3, pp=2)
    moved = replace(near, offload_optimizer=True)
    answers = {
        "offload": FoundLayout(3.0, 3.0, 9.0, moved, "a"),
        "free": FoundLayout(2.0, 2.0, 9.0, far, "a"),
    }

    def pin_space(space, pins, facts):
        if pins.get("offload") == "optimizer":
            return "offload", ()
        if list(pins) == ["tp"]:
            raise ValueError("no")
        return "free", ()

    monkeypatch.setattr(sensitivity, "pin_space", pin_space)
    monkeypatch.setattr(sensitivity, "fastest", lambda problem, space: answers[space])
    monkeypatch.setattr(sensitivity, "host_bytes_per_node", lambda problem, layout: 8e9)
    monkeypatch.setattr(sensitivity, "more_gpus", lambda problem, closest, tp: ("gpus",))
    monkeypatch.setattr(sensitivity, "more_memory", lambda problem, closest: "memory")
    problem = SimpleNamespace(facts=SimpleNamespace(n_gpus=8))
    closest = replace(BEST, layout=near)
    every = sensitivity.find_remedies(problem, None, {"dp": "8", "tp": "2"}, closest)
    assert [getattr(r, "change", r).split(":")[0] for r in every] == [
        "--offload optimizer",
        "--tp left free",
        "gpus",
        "memory",
    ]
    assert every[0].n_gpus == 8 and every[1].step_s == 2.0
    assert every[0].change.endswith("on the host, at least 8.00 GB a node")
    assert (
        sensitivity.n_changes(near, far) == 2
        and sensitivity.n_changes(near, replace(near, dp=9)) == 0
    )
    answers |= {"offload": None, "free": None}
    assert sensitivity.find_remedies(problem, None, {"dp": "8"}, closest) == ("gpus", "memory")


def test_memory_that_a_gpu_would_need():
    problem = SimpleNamespace(facts=SimpleNamespace(n_gpus=8))
    found = sensitivity.more_memory(problem, replace(BEST, peak_bytes=98.9e9))
    assert found.change == "GPUs with 100.0 GB of memory"
    assert (found.step_s, found.peak_bytes, found.n_gpus) == (100.0, 98.9e9, 8)


def test_gpus_that_would_hold_a_job():
    """Llama 3 8B by the bare formulas: 16 bytes of 8.03 billion parameters on GPUs of 40 GB."""
    llama = load_model("llama3-8b").spec

    def asked(n, tp=None):
        layout = Layout(64, 64, dp=n)
        problem = SimpleNamespace(
            memory_facts=model_facts(llama),
            memory_parameters=IDEAL,
            facts=facts_of(llama, 64, 64, n),
            room_bytes=40e9,
            hardware=SimpleNamespace(gpus_per_node=8),
        )
        return sensitivity.more_gpus(problem, replace(BEST, layout=layout), tp)

    (found,) = asked(1)
    (alone,) = asked(1, 1)
    assert " TP 1 x " in alone.change and " TP 1 x " not in found.change
    assert found.n_gpus == 4 and found.change.startswith("4 GPUs, as TP ")
    assert found.layout is None and found.peak_bytes <= 40e9 and ", EP" not in found.change
    assert asked(4) == () == asked(8) and len(asked(2)) == 1


# --- what a search keeps -----------------------------------------------------------------------


def test_what_a_search_keeps():
    known = Incumbents(2)
    known.follow(frozenset("abcde"))
    for each in (found(1.0, "a", tp=2), found(1.6, "b", tp=8), found(1.2, "a", tp=4)):
        known.note(each)
    assert (known.kth_s, known.cutoff_s, known.fastest_s) == (1.6, 1.5, 1.0)
    for each in (found(0.9, "a", tp=4), found(1.3, "b", tp=8), found(9.0, "d")):
        known.note(each)
    known.result.counts.declared = 7
    both = known.finish()
    assert both.best == both.fastest == found(0.9, "a", tp=4)
    assert both.families == {"a": found(0.9, "a", tp=4), "b": found(1.3, "b", tp=8)}
    assert both.next_best == [found(1.0, "a", tp=2), found(1.3, "b", tp=8)]
    assert both.slower == ("c", "d", "e") and both.counts.bounded == 7
    empty = Incumbents(4).finish()
    assert (empty.best, empty.next_best, empty.interrupted) == (None, [], False)


def test_dispatch_of_a_schedule():
    sparse = SimpleNamespace(n_experts=8)
    problem = Problemlike(Software("toy"), sparse)
    assert problem_for(problem, "1f1b") is problem
    dual = problem_for(problem, "dualpipe")
    assert dual.software.dualpipe and dual.cache is problem.cache["dualpipe"]
    dense = Problemlike(Software("toy"), SimpleNamespace(n_experts=0))
    assert problem_for(dense, "dualpipe") is dense


@dataclass(frozen=True)
class Problemlike:
    software: Software
    facts: SimpleNamespace
    cache: dict = field(default_factory=dict)


# --- sensitivity ---------------------------------------------------------------------------------

HW = Hardware("toy", "toy", 1.0, 2.0, 4.0, 1e9, 1e6, 10, 8, 8, 100.0, 10.0)


def test_better_figures():
    faster = sensitivity.with_better(HW, "FLOP/s", 2.0)
    assert (faster.bf16_flop_per_s, faster.fp8_flop_per_s, faster.fp4_flop_per_s) == (2, 4, 8)
    assert faster.hbm_bytes_per_s == HW.hbm_bytes_per_s
    assert sensitivity.with_better(HW, "node egress", 2.0).scaleout_bytes_per_s == 20.0
    quick = replace(HW, kernel_floor_s=4.0, kernel_gap_s=2.0)
    quick = sensitivity.with_better(quick, "kernel floor", 2.0)
    assert (quick.kernel_floor_s, quick.kernel_gap_s) == (2.0, 1.0)


def test_effects_of_better_figures(monkeypatch):
    """100 s: half of it FLOP, 20 s of a batch of 8 that another 8 share."""

    def times_of(problem, hw, layout):
        fixed = 20.0 + 30.0 * layout.global_batch_size / 8
        return fixed + 50.0 * layout.global_batch_size / 8 / hw.bf16_flop_per_s, 7.0

    monkeypatch.setattr(sensitivity, "times_of", times_of)
    problem = SimpleNamespace(hardware=HW)
    effects = sensitivity.sensitivity(problem, Layout(8, 8), 1.25)
    first, second, *rest = effects
    assert (first.figure, first.change) == ("FLOP/s", "+25 %")
    assert first.gain_frac == pytest.approx(0.1)
    assert (first.expected_s, first.roofline_s) == (90.0, 7.0)
    batch = next(e for e in effects if e.figure == "global batch")
    assert (batch.change, batch.expected_s, batch.roofline_s) == ("x2", 90.0, 3.5)
    assert batch.gain_frac == pytest.approx(0.1)
    latency = next(e for e in effects if e.figure == "network latency")
    assert (latency.change, latency.gain_frac) == ("-20 %", 0.0)
    assert len(effects) == 8 and second.gain_frac >= max(e.gain_frac for e in rest)


# --- serving -------------------------------------------------------------------------------------


def test_times_of_a_served_replica():
    """Llama 3 8B on 2 x 2 GPUs: groups of 16 sequences; all but the embedding is read."""
    llama = load_model("llama3-8b").spec
    job = ServingJob(context_tokens=1000, concurrency=31)
    found = serving_times(llama, job, 2, 2, 3e12, 1e15)
    layers = 32 * 2 * 218_103_808
    head, key = 2 * 128_256 * 4096, 4 * 4096 * 32
    assert found.prefill_flop == 1000 * (layers + key * 500.5) + head
    assert found.prefill_s == pytest.approx(found.prefill_flop / 2e15)
    assert found.group_sequences == 16
    assert found.decode_flop == 16 * (layers + key * 1000 + head)
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    assert weights_read_bytes(llama, "bf16", 16) == weights
    assert found.decode_read_bytes == weights + 16 * 131_072_000
    assert found.decode_s == pytest.approx(found.decode_read_bytes / 6e12)
    assert found.decode_bound == "memory"
    assert found.weights_read_frac == pytest.approx(weights / (2 * 8_030_261_248))
    assert found.tokens_per_s == pytest.approx(31 / found.decode_s)
    assert found.tokens_per_s_per_sequence == pytest.approx(1 / found.decode_s)
    slow = serving_times(llama, job, 2, 2, 3e12, 1e12)
    assert slow.decode_bound == "compute"
    assert slow.decode_s == pytest.approx(slow.decode_flop / 2e12)
    idle = serving_times(llama, ServingJob(context_tokens=0.5, concurrency=0), 1, 1, 3e12, 1e15)
    assert idle.group_sequences == 1 and idle.prefill_flop > 0
    tied = llama.model_copy(update={"tie_embeddings": True})
    assert weights_read_bytes(tied, "bf16", 16) == weights  # the embedding works as the head


def test_experts_read_are_those_that_are_met():
    """Qwen3 30B-A3B: 8 of 128; of two tokens 1 - (15/16)^2 of the experts."""
    qwen = load_model("qwen3-30b-a3b").spec
    experts = 48 * 128 * 3 * 2048 * 768
    beside = 30_532_122_624 - experts - 151_936 * 2048
    for tokens, met in ((1, 1 / 16), (2, 1 - (15 / 16) ** 2)):
        read = weights_read_bytes(qwen, "bf16", tokens)
        assert read == pytest.approx(2 * (beside + met * experts), rel=1e-9)


# --- looking for a size --------------------------------------------------------------------------


def sizes(seek, verdict):
    """Sizes that a search tries, and whether it left some out."""
    tried = []
    try:
        n, _ = next(seek)
        while True:
            tried.append(n)
            n, _ = seek.send(verdict(n))
    except StopIteration as end:
        return tried, end.value


def at_least(least):
    return lambda n: SizeVerdict.MEETS if n >= least else SizeVerdict.MORE


def at_most(most):
    return lambda n: SizeVerdict.MEETS if n <= most else SizeVerdict.FEWER


def test_sizes_that_are_doubled():
    assert list(doubled_sizes(8, 80)) == [1, 2, 4, 8, 16, 32, 64, 80]
    assert list(doubled_sizes(8, 8)) == [1, 2, 4, 8] and list(doubled_sizes(1, 1)) == [1]
    assert list(doubled_sizes(6, 13)) == [1, 2, 4, 6, 12, 13] and list(doubled_sizes(8, 5))[-1] == 5


def test_the_smallest_size():
    """Doubled until one meets, then the nodes below it."""
    assert sizes(smallest(8, 64), at_least(37)) == ([1, 2, 4, 8, 16, 32, 64, 24, 40], False)
    assert sizes(smallest(8, 64), at_least(3)) == ([1, 2, 4], False)
    assert sizes(smallest(8, 64, 20.0), at_least(37)) == ([32, 64, 24, 40], False)
    assert sizes(smallest(8, 64), at_least(99)) == ([1, 2, 4, 8, 16, 32, 64, 24, 40, 48, 56], False)
    fewer = sizes(smallest(8, 64), lambda n: SizeVerdict.MEETS if n == 24 else SizeVerdict.FEWER)
    assert fewer == ([1, 2, 4, 8, 16, 32, 24], False)
    # 511 between 512 and 1,024: every eighth, then the seven before the one that meets
    many, gaps = sizes(smallest(1, 1024), at_least(520))
    assert gaps and many[:11] == [1 << i for i in range(11)]
    assert many[11:] == [513, 521, *range(514, 521)]
    few, gaps = sizes(smallest(8, 131_072, 7800), at_least(8000))
    assert not gaps and few[:2] == [8192, 7800] and few[-1] == 8000


def test_the_largest_size():
    doubled = [1, 2, 4, 8, 16, 32, 64]
    assert sizes(largest(8, 64), at_most(40)) == ([*doubled, 56, 48, 40], False)
    every = [*doubled, 56, 48, 40, 24]
    assert sizes(largest(8, 64, fastest=True), at_most(40)) == (every, False)
    assert sizes(largest(8, 64), at_most(0)) == (every, False)
    # none above four times the largest that meets, every third of 190, the two before it
    many, gaps = sizes(largest(1, 1000), at_most(100))
    assert gaps and many[:11] == [*(1 << i for i in range(10)), 1000]
    assert many[11:14] == [255, 252, 249] and many[-3:] == [101, 98, 100]
    none, gaps = sizes(largest(1, 200), at_most(0))
    assert gaps and none[9] == 63 and min(none[9:]) == 3
    assert sizes(largest(1, 100, fastest=True), at_most(90))[1]
