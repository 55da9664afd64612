"""A step in time by hand: two stages, passes of 1, 2 and 3 s."""

import pytest

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import StageMemory
from gpuscale.core.schedules import Pass, orders
from gpuscale.core.step.records import Breakdown, LayerTime, Software
from gpuscale.core.step.replay import (
    Event,
    MemoryCurve,
    Placing,
    StepTimeline,
    _needs,
    placed,
    replay,
    stretched,
)
from gpuscale.core.step.timeline import (
    Times,
    _device,
    _drawn,
    _hop,
    _leaves,
    _memory,
    _parts,
    _replayed,
    _summaries,
    _times,
    _transfer,
)

LAID = Placing(
    offset_s=10.0,
    window_s=100.0,
    scale=2.0,
    split=False,
    hop_s=0.0,
    n_drawn=4,
    n_micro_batches=4,
    left_out_s=0.0,
    pp=2,
    vpp=1,
)
T = Times(1.0, 0.5, 2.0, 3.0, 0.0, (("tp", 0.6),))


def seconds(op):
    return {"F": 1.0, "B": 2.0, "W": 3.0}[op.kind]


# --- replay --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "need"),
    [
        (Pass("F", 3, 0), None),
        (Pass("F", 3, 1), Pass("F", 3, 0)),
        (Pass("W", 3, 1), Pass("B", 3, 1)),
        (Pass("B", 3, 2), Pass("F", 3, 2)),
        (Pass("B", 3, 1), Pass("B", 3, 2)),
    ],
)
def test_what_a_pass_waits_for(op, need):
    assert _needs(op, 2) == need


def test_two_stages_in_turn():
    """F 1 s, B 2 s: the second stage starts at 1, the first ends 2 s after the second's last B."""
    run = replay(orders("1f1b", 2, 1, 2), seconds)
    assert [(s, e) for _, s, e in run.times[0]] == [(0, 1), (1, 2), (4, 6), (7, 9)]
    assert [(s, e) for _, s, e in run.times[1]] == [(1, 2), (2, 4), (4, 5), (5, 7)]
    assert (run.length_s, run.hops) == (9.0, 2)
    slow = replay(orders("1f1b", 2, 1, 2), seconds, hop_s=10.0)
    assert [(s, e) for _, s, e in slow.times[1]] == [(11, 12), (12, 14), (14, 15), (15, 17)]
    assert slow.length_s == 29.0 and slow.hops == 2
    led = replay(orders("1f1b", 2, 1, 2), seconds, lead=lambda op: 0.5 if op.kind == "F" else 0.0)
    assert [s for _, s, _ in led.times[0]] == [0.5, 2.0, 4.5, 8.0]
    assert [s for _, s, _ in led.times[1]] == [1.5, 2.5, 5.0, 6.0] and led.length_s == 10.0
    alone = replay(orders("1f1b", 1, 1, 3), seconds)
    assert (alone.length_s, alone.hops) == (9.0, 0)
    with pytest.raises(ValueError, match="waits for itself"):
        replay([[Pass("B", 0, 0), Pass("F", 0, 0)]], seconds)


def test_transfers_that_fill_a_window():
    """9 s alone; two transfers on the way to the end: 1.5 s each make 12."""
    order = orders("1f1b", 2, 1, 2)
    run, hop = stretched(order, seconds, 12.0)
    assert (run.length_s, hop) == (pytest.approx(12.0), pytest.approx(1.5))
    run, hop = stretched(order, seconds, 8.0)
    assert (run.length_s, hop) == (9.0, 0.0)
    run, hop = stretched(orders("1f1b", 1, 1, 2), seconds, 50.0)
    assert (run.length_s, hop) == (6.0, 0.0)


def test_the_second_half_comes_after_what_is_left_out():
    assert LAID.cut == 0 and LAID._replace(left_out_s=1.0, vpp=3).cut == 6
    passes = [(Pass("F", 0, 0), 0.0, 1.0), (Pass("B", 0, 0), 1.0, 3.0), (Pass("F", 1, 0), 3.0, 4.0)]
    assert [(s, e) for _, s, e in placed(passes, LAID)] == [(10, 12), (12, 16), (16, 18)]
    cut = LAID._replace(left_out_s=50.0, n_drawn=2, n_micro_batches=9)
    found = list(placed(passes, cut))
    assert [(op.micro_batch, s, e) for op, s, e in found] == [
        (0, 10, 12),
        (0, 12, 16),
        (8, 66, 68),  # seven are left out
    ]


# --- parts ---------------------------------------------------------------------------------------


def test_parts_of_a_micro_batch():
    """A third of the products are weight gradients, no more than the backward pass has."""
    time = LayerTime(10.0, 26.0, matmul_s=12.0, recompute_s=6.0, tp_comm_s=1.5, ep_comm_s=0.5)
    found = _times(time, 7.0)
    assert found == Times(10.0, 6.0, 16.0, 4.0, 7.0, (("tp", 1.5), ("ep", 0.5)))
    assert found.seconds == 43.0 and found.forward_frac == 10 / 30
    assert found.gather_of("F") == pytest.approx(7 / 3)
    assert found.gather_of("B") == pytest.approx(14 / 3) and found.gather_of("W") == 0.0
    assert (found.of("F", False), found.of("B", False)) == (10.0, 26.0)
    assert (found.of("B", True), found.of("W", True)) == (22.0, 4.0)
    few = _times(LayerTime(1.0, 2.0, matmul_s=12.0), 0.0)
    assert (few.backward_s, few.weights_s) == (0.0, 2.0)
    assert Times(0.0, 1.0, 0.0, 0.0, 0.0, ()).forward_frac == 0.0


@pytest.mark.parametrize(
    ("m", "stages", "pp", "most", "drawn"),
    [(100, 4, 2, 400, 100), (101, 4, 2, 400, 101), (100, 4, 2, 100, 24), (103, 4, 2, 100, 27)],
)
def test_micro_batches_that_are_drawn(m, stages, pp, most, drawn):
    """Whole rounds of 2 pp: 100 // (4 x 4) = 6 of 4, and the rest."""
    assert _drawn(m, stages, pp, most) == drawn
    assert _drawn(1000, 8, 4, 1) == 8 and _drawn(9, 8, 4, 1) == 9


def test_time_of_a_transfer():
    parts = Breakdown(total_s=1.0, pp_comm_s=28.0)
    layout = Layout(64, 12, pp=2, vpp=2, dp=2)  # 2 (6 x 2 + 1) = 26 of them
    sw = Software("toy", pp_exposed_frac=0.5)
    assert _hop(parts, layout, sw) == pytest.approx(28 / 26 / 0.5)
    whole = Layout(64, 12, pp=2, vpp=2, dp=2, overlap_pp=False)
    assert _hop(parts, whole, sw) == pytest.approx(28 / 26)
    assert _hop(parts, Layout(64, 12), sw) == 0.0
    assert _hop(Breakdown(total_s=1.0), layout, sw) == 0.0


def test_passes_that_do_not_fit_are_shortened():
    layout = Layout(64, 2, pp=2)
    even = (Times(1.0, 0.0, 2.0, 0.0, 0.0, ()),) * 2
    found = _replayed(layout, even, 2, False, 12.0)
    assert (found.wait_s, found.alone_s, found.scale) == (pytest.approx(1.5), 9.0, 1.0)
    tight = _replayed(layout, even, 2, False, 4.5)
    assert (tight.wait_s, tight.alone_s, tight.scale) == (0.0, 9.0, 0.5)
    uneven = (even[0], Times(2.0, 0.0, 4.0, 0.0, 0.0, ()))  # the last B of the second ends at 13
    assert _replayed(layout, uneven, 2, False, 99.0).alone_s == 15.0
    chunks = _replayed(Layout(64, 2, pp=2, vpp=2), even, 2, False, 100.0)
    assert chunks.alone_s == 7.5  # half a pass each: 1.5 s of bubble beside 6
    gathered = (Times(1.0, 0.0, 2.0, 0.0, 3.0, ()),)
    assert _replayed(Layout(64, 2), gathered, 2, False, 99.0).alone_s == 12.0


# --- events --------------------------------------------------------------------------------------


def times_of(events, track="compute"):
    return [(e.kind, e.start_s, e.duration_s) for e in events if e.track == track]


def test_events_of_a_pass():
    """8 s for 0.5 + 2 + 3 s of work; of 0.6 s of exchange a sixth belongs to the forward pass."""
    forward = list(_parts(0, Pass("F", 2, 1), chunk=1, start=5.0, end=7.0, t=T, laid=LAID))
    assert times_of(forward) == [("forward", 5.0, 2.0)]
    assert times_of(forward, "tp") == [("tp", 5.0, pytest.approx(2 * 0.6 / 6))]
    assert {(e.micro_batch, e.chunk, e.device) for e in forward} == {(2, 1, 0)}
    backward = list(_parts(0, Pass("B", 2, 1), chunk=1, start=5.0, end=16.0, t=T, laid=LAID))
    assert times_of(backward) == [
        ("recompute", 5.0, 1.0),
        ("backward", 6.0, 4.0),
        ("weights", 10.0, 6.0),
    ]
    assert times_of(backward, "tp") == [("tp", 6.0, pytest.approx(2 * 0.6 * 5 / 6))]
    split = LAID._replace(split=True)
    inputs = list(_parts(0, Pass("B", 2, 1), chunk=1, start=0.0, end=2.5, t=T, laid=split))
    assert times_of(inputs) == [("recompute", 0.0, 0.5), ("backward", 0.5, 2.0)]
    weights = list(_parts(0, Pass("W", 2, 1), chunk=1, start=0.0, end=3.0, t=T, laid=split))
    assert times_of(weights) == [("weights", 0.0, 3.0)]
    long = T._replace(comm=(("tp", 5.0), ("ep", 20.0)))
    found = list(_parts(0, Pass("F", 0, 0), chunk=0, start=0.0, end=1.0, t=long, laid=LAID))
    assert times_of(found, "tp") == [("tp", 0.0, pytest.approx(5 / 6))]
    assert times_of(found, "ep") == [("ep", pytest.approx(5 / 6), pytest.approx(1 / 6))]
    found = list(_parts(0, Pass("B", 0, 0), chunk=0, start=0.0, end=11.0, t=long, laid=LAID))
    assert times_of(found, "tp") == [("tp", 1.0, 4.0)]  # no longer than the inputs' own 2 x 2 s
    none = Times(0.0, 0.0, 0.0, 0.0, 0.0, ())
    assert not list(_parts(0, Pass("F", 0, 0), chunk=0, start=0.0, end=1.0, t=none, laid=LAID))


@pytest.mark.parametrize(
    ("op", "leaves"),
    [
        (Pass("F", 0, 2), True),
        (Pass("F", 0, 3), False),
        (Pass("B", 0, 1), True),
        (Pass("B", 0, 0), False),
        (Pass("W", 0, 1), False),
    ],
)
def test_results_that_go_to_another_stage(op, leaves):
    assert _leaves(op, LAID._replace(vpp=2)) is leaves


@pytest.mark.parametrize(
    ("device", "op", "to", "track", "chunk"),
    [
        (0, Pass("F", 5, 0), 1, "pp-before", 0),
        (2, Pass("F", 5, 2), 3, "pp-before", 0),
        (3, Pass("F", 5, 3), 0, "pp-before", 1),  # to the next chunk of the first device
        (3, Pass("B", 5, 3), 2, "pp-after", 0),
        (0, Pass("B", 5, 4), 3, "pp-after", 0),
        (3, Pass("F", 5, 0), 2, "pp-after", 0),  # DualPipe, upwards
        (0, Pass("B", 5, 3), 1, "pp-before", 0),
    ],
)
def test_transfers(device, op, to, track, chunk):
    laid = LAID._replace(pp=4, vpp=2, hop_s=3.0)
    sent, received = _transfer(device, op, 7, 20.0, laid)
    assert sent == Event("send", device, "pp", 20.0, 3.0, 5, 7)
    assert received == Event("receive", to, track, 20.0, 3.0, 5, chunk)
    late = list(_transfer(device, op, 7, 109.0, laid))  # the window closes at 110
    assert [e.duration_s for e in late] == [1.0, 1.0]
    assert not list(_transfer(device, op, 7, 110.0, laid))


def test_no_transfer_to_oneself():
    assert not list(_transfer(0, Pass("F", 5, 0), 0, 20.0, LAID._replace(pp=1, hop_s=3.0)))


def test_events_of_a_device():
    """Host 10 s, a wait of 2, a gather before the pass, a bubble to the end, then the tail."""
    gathered = T._replace(gather_s=6.0, comm=())
    passes = [(Pass("F", 0, 0), 3.0, 4.0), (Pass("B", 0, 0), 9.0, 14.5)]
    tail = (("straggler", 1.0), ("dp", 2.0), ("optimizer", 0.0), ("host", 3.0))
    found = list(_device(0, passes, (gathered,) * 2, LAID, tail))
    assert times_of(found) == [
        ("host", 0.0, 10.0),
        ("bubble", 10.0, 4.0),  # the pass starts at 16, its gather of 2 x 6 / 6 before it
        ("gather", 14.0, 2.0),
        ("forward", 16.0, 2.0),
        ("gather", 18.0, 10.0),
        ("recompute", 28.0, 1.0),
        ("backward", 29.0, 4.0),
        ("weights", 33.0, 6.0),
        ("bubble", 39.0, 71.0),
        ("straggler", 110.0, 1.0),
        ("dp", 111.0, 2.0),
        ("host", 113.0, 3.0),
    ]
    assert times_of(found, "dp") == [("dp", 14.0, 2.0), ("dp", 18.0, 10.0), ("dp", 111.0, 2.0)]
    halves = list(_device(0, passes, (gathered,) * 2, LAID._replace(vpp=2), ()))
    assert times_of(halves, "dp") == [("dp", 15.0, 1.0), ("dp", 23.0, 5.0)]
    quiet = list(_device(0, passes, (gathered,) * 2, LAID._replace(offset_s=0.0), ()))
    assert times_of(quiet)[0] == ("bubble", 0.0, 4.0)


def test_sends_of_a_device_wait_for_each_other():
    passes = [(Pass("F", 0, 0), 0.0, 1.0), (Pass("F", 1, 0), 1.0, 2.0), (Pass("B", 0, 0), 2.0, 7.5)]
    found = list(_device(0, passes, (T, T), LAID._replace(hop_s=5.0), ()))
    assert times_of(found, "pp") == [("send", 12.0, 5.0), ("send", 17.0, 5.0)]


def test_the_middle_that_is_not_drawn_is_one_event():
    passes = [
        (Pass("F", 0, 0), 0.0, 1.0),
        (Pass("B", 0, 0), 1.0, 6.5),
        (Pass("F", 1, 0), 6.5, 7.5),
        (Pass("B", 1, 0), 7.5, 13.0),
    ]
    cut = LAID._replace(left_out_s=50.0, n_drawn=2, n_micro_batches=9, scale=1.0, pp=1)
    found = times_of(_device(0, passes, (T,), cut, ()))
    assert [e for e in found if e[0] == "skipped"] == [("skipped", 16.5, 50.0)]
    assert [e[1] for e in found if e[0] == "forward"] == [10.0, 66.5]
    assert sum(e[2] for e in found) == pytest.approx(110.0)


def test_what_a_device_does():
    events = [
        Event("forward", 0, "compute", 0.0, 1.0),
        Event("recompute", 0, "compute", 0.0, 2.0),
        Event("backward", 0, "compute", 0.0, 4.0),
        Event("weights", 0, "compute", 0.0, 8.0),
        Event("bubble", 0, "compute", 0.0, 16.0),
        Event("skipped", 0, "compute", 0.0, 32.0),
        Event("host", 0, "compute", 0.0, 64.0),
        Event("gather", 0, "compute", 0.0, 128.0),
        Event("dp", 0, "dp", 0.0, 256.0),
        Event("forward", 1, "compute", 0.0, 512.0),
    ]
    found, other = _summaries(events, [7.0, None])
    assert (other.forward_s, other.bubble_s, other.peak_bytes) == (512.0, 0.0, None)
    assert (found.forward_s, found.recompute_s, found.backward_s, found.weights_s) == (1, 2, 4, 8)
    assert (found.bubble_s, found.skipped_s, found.other_s) == (16, 32, 192)
    assert found.peak_bytes == 7.0


def test_memory_over_time():
    """100 always; 50 beside while activations of 20 are held, from a forward pass to its B."""
    stage = StageMemory(0, 4, 0.0, 2.0, 40.0, 30.0, 10.0, 15.0, 40.0, 20.0, 25.0, 5.0, 5.0)
    passes = [
        (Pass("F", 0, 0), 0.0, 1.0),
        (Pass("F", 1, 0), 1.0, 2.0),
        (Pass("B", 0, 0), 2.0, 4.0),
        (Pass("B", 1, 0), 4.0, 6.0),
    ]
    laid = LAID._replace(scale=1.0)
    found = _memory(0, passes, stage, laid, 99.0)
    assert found == MemoryCurve(
        0, (0.0, 10.0, 11.0, 14.0, 16.0), (100.0, 170.0, 190.0, 170.0, 100.0)
    )
    assert found.peak_bytes == 190.0
    chunks = _memory(0, passes, stage, laid._replace(vpp=2), 99.0)
    assert chunks.held_bytes == (100.0, 160.0, 170.0, 160.0, 100.0)
    turns = [
        (op, s, e)
        for (op, *_), (s, e) in zip(
            (passes[0], passes[2], passes[1], passes[3]),
            ((0, 1), (1, 3), (3, 4), (4, 6)),
            strict=True,
        )
    ]
    in_turn = _memory(0, turns, stage, laid, 99.0)  # one is freed as the next begins
    assert in_turn.start_s == (0.0, 10.0, 13.0, 16.0)
    assert in_turn.held_bytes == (100.0, 170.0, 170.0, 100.0)
    late = _memory(0, passes, stage, laid._replace(split=True), 12.0)
    assert late.held_bytes == (100.0, 170.0, 190.0) and late.start_s == (0.0, 10.0, 11.0)
    short = _memory(0, passes, stage, laid, 12.0)
    assert short.start_s[-1] == 12.0


def test_events_are_found_by_track():
    late, early = (Event("forward", 0, "compute", s, 1.0) for s in (2.0, 1.0))
    other = Event("send", 0, "pp", 0.0, 1.0)
    laid = StepTimeline(9.0, "1f1b", 1, 1, 1, 9.0, 9.0, 0.0, 1.0, (late, early, other), (), ())
    assert laid.of(0) == [early, late] and laid.of(0, "pp") == [other] and laid.of(1) == []
