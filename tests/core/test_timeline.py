"""A step in time: as long as the predicted step, nothing at once on a track, memory's peak."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.memory.peak import stage_memories
from gpuscale.core.schedules import SCHEDULES, in_flight, orders
from gpuscale.core.step.replay import replay, stretched
from gpuscale.core.step.step import step_time
from gpuscale.core.step.timeline import timeline
from gpuscale.core.words import EVENT_KINDS, TRACKS
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step import step_hardware

HW = step_hardware(load_cluster("dgx-h100"))

LAYOUTS = [
    ("llama3-70b", "megatron-core", {"pp": 1, "dp": 8, "global_batch_size": 64}),
    ("llama3-70b", "megatron-core", {"pp": 8, "dp": 2, "global_batch_size": 64}),
    ("llama3-70b", "megatron-core", {"pp": 8, "dp": 2, "global_batch_size": 6}),
    (
        "llama3-70b",
        "megatron-core",
        {"pp": 4, "vpp": 5, "schedule": "interleaved", "dp": 2, "global_batch_size": 64},
    ),
    (
        "llama3-70b",
        "megatron-core",
        {"pp": 8, "schedule": "zb-h1", "dp": 2, "global_batch_size": 64},
    ),
    (
        "llama3-70b",
        "megatron-core",
        {"pp": 8, "schedule": "dualpipe", "dp": 2, "global_batch_size": 64},
    ),
    (
        "llama3-70b",
        "megatron-core",
        {"pp": 4, "schedule": "gpipe", "dp": 2, "global_batch_size": 16},
    ),
    ("llama3-70b", "fsdp", {"tp": 1, "dp": 16, "zero_stage": 3, "global_batch_size": 64}),
    (
        "llama3-70b",
        "megatron-core",
        {"pp": 8, "dp": 4, "zero_stage": 3, "recompute": "full", "global_batch_size": 64},
    ),
    (
        "deepseek-v3",
        "megatron-core",
        {"pp": 8, "dp": 2, "ep": 8, "schedule": "dualpipe", "global_batch_size": 64},
    ),
    (
        "deepseek-v3",
        "megatron-core",
        {"pp": 8, "dp": 2, "ep": 8, "schedule": "zb-h1", "global_batch_size": 64},
    ),
]


def made(model, software, changes, **options):
    spec = load_software(software)
    sw, model = software_record(spec, HW.architecture), load_model(model).spec
    layout = Layout(**({"seq_len": 4096, "tp": 8} | changes))
    facts, parameters = model_facts(model), parameters_of(spec)
    found = timeline(model, HW, sw, layout, facts, parameters, **options)
    stages = stage_memories(facts, layout, parameters)
    return found, step_time(model, HW, sw, layout), stages, layout


@pytest.mark.parametrize(("model", "software", "changes"), LAYOUTS)
def test_every_stage_is_as_long_as_the_predicted_step(model, software, changes):
    found, step, stages, layout = made(model, software, changes)
    assert found.total_s == step.expected_s
    for device in range(layout.pp):
        now = 0.0
        for event in found.of(device):  # without gaps: idle time is an event too
            assert event.start_s == pytest.approx(now, abs=1e-9)
            now = event.start_s + event.duration_s
        assert now == pytest.approx(step.expected_s, rel=1e-9)
    for curve, stage in zip(found.memory, stages, strict=True):
        assert curve.peak_bytes == pytest.approx(stage.total_bytes, rel=1e-9)


@pytest.mark.parametrize(("model", "software", "changes"), LAYOUTS)
def test_nothing_is_at_once_on_a_track(model, software, changes):
    found, *_ = made(model, software, changes)
    assert {e.kind for e in found.events} <= set(EVENT_KINDS)
    for device in range(found.n_devices):
        for track in TRACKS:
            events = found.of(device, track)
            for before, after in zip(events, events[1:], strict=False):
                assert before.start_s + before.duration_s <= after.start_s + 1e-9


@pytest.mark.parametrize(("model", "software", "changes"), LAYOUTS[:4])
def test_the_heaviest_stage_has_the_parts_of_the_step_model(model, software, changes):
    found, step, _, _ = made(model, software, changes)
    mine, parts = found.devices[step.heaviest_stage], step.expected
    assert found.scale == 1.0
    assert mine.bubble_s == pytest.approx(parts.bubble_s + parts.pp_comm_s, rel=1e-6, abs=1e-9)
    busy = mine.forward_s + mine.recompute_s + mine.backward_s + mine.weights_s
    rest = parts.bubble_s + parts.pp_comm_s + mine.other_s
    assert busy == pytest.approx(step.expected_s - rest, rel=1e-9)
    assert mine.recompute_s == pytest.approx(parts.recompute_s, rel=1e-9)
    end = {e.kind: e.duration_s for e in found.of(step.heaviest_stage)}
    assert end["optimizer"] == pytest.approx(parts.optimizer_s)
    assert end["straggler"] == pytest.approx(parts.straggler_s)
    assert end["dp"] == pytest.approx(parts.dp_comm_s)


@pytest.mark.parametrize(("model", "software", "changes"), LAYOUTS)
def test_passes_are_shortened_by_little_where_the_schedule_does_not_fit(model, software, changes):
    found, *_ = made(model, software, changes)
    assert 0.95 < found.scale <= 1.0
    assert (found.scale < 1.0) == (found.schedule_s > found.window_s * (1 + 1e-9))


def test_a_long_step_is_cut_in_the_middle():
    changes = {"pp": 8, "dp": 1, "global_batch_size": 5000}
    found, step, stages, _ = made("llama3-70b", "megatron-core", changes, most_passes=2000)
    assert found.n_drawn_micro_batches < 300 and found.n_micro_batches == 5000
    for device in range(8):
        events = found.of(device)
        skipped = [e for e in events if e.kind == "skipped"]
        assert len(skipped) == 1 and skipped[0].duration_s > 0.9 * step.expected_s
        total = math.fsum(e.duration_s for e in events)
        assert total == pytest.approx(step.expected_s, rel=1e-9)
        assert max(e.micro_batch for e in events) == 4999
        assert found.memory[device].peak_bytes == pytest.approx(stages[device].total_bytes)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "dualpipe", "interleaved"])
def test_the_shortest_cut_keeps_length_and_peak(schedule):
    changes = {
        "pp": 4,
        "vpp": 5 if schedule == "interleaved" else 1,
        "schedule": schedule,
        "global_batch_size": 1004,
    }
    found, step, stages, _ = made("llama3-70b", "megatron-core", changes, most_passes=1)
    assert found.n_drawn_micro_batches < 20
    for device, stage in enumerate(stages):
        assert found.memory[device].peak_bytes == pytest.approx(stage.total_bytes)
        now = 0.0
        for event in found.of(device):
            assert event.start_s == pytest.approx(now, abs=1e-7) and event.duration_s >= 0
            now = event.start_s + event.duration_s
        assert now == pytest.approx(step.expected_s, rel=1e-9)


def sums(ops, split, vpp):
    held, peak = 0, 0
    for op in ops:
        held += {"F": 1, "W" if split else "B": -1}.get(op.kind, 0)
        peak = max(peak, held)
    assert held == 0
    return peak / vpp


@given(st.sampled_from(list(SCHEDULES)), st.integers(1, 6), st.integers(1, 6), st.integers(2, 4))
@settings(max_examples=80, deadline=None)
def test_every_schedule_does_all_work_and_holds_what_the_memory_model_counts(
    schedule, half, rounds, chunks
):
    pp, m = 2 * half, 2 * half * rounds
    vpp = chunks if schedule == "interleaved" else 1
    if schedule == "dualpipe":
        m += 2 * pp
    order = orders(schedule, pp, vpp, m)
    split = SCHEDULES[schedule].splits_backward
    for device, ops in enumerate(order):
        assert len(set(ops)) == len(ops) == m * vpp * (3 if split else 2)
        assert sums(ops, split, vpp) == in_flight(schedule, device, pp, vpp, m)
    run = replay(order, lambda op: 1.0)
    for times in run.times:
        assert all(a[2] <= b[1] for a, b in zip(times, times[1:], strict=False))


PUBLISHED = [  # schedule, pp, vpp, m, length with F = 1 and the whole backward 2, source
    ("1f1b", 4, 1, 8, 33.0, "Narayanan et al. 2021, section 2.2: (m + p - 1)(F + B)"),
    ("gpipe", 4, 1, 8, 33.0, "the same"),
    ("interleaved", 4, 2, 8, 28.5, "section 2.2: bubble (p - 1)(F + B) / v"),
    ("interleaved", 8, 3, 16, 55.0, "the same"),
    ("zb-h1", 4, 1, 8, 27.0, "Qi et al. 2023, table 2: bubble (p - 1)(F + B - W)"),
    ("zb-h1", 8, 1, 32, 103.0, "the same"),
    ("zb-h2", 4, 1, 8, 27.0, "section 2.2: no bubble but the way in, (p - 1) F, in one step"),
    ("zb-h2", 8, 1, 32, 103.0, "the same"),
    ("dualpipe", 8, 1, 32, 100.0, "DeepSeek-V3, table 2: (p/2 - 1)(F&B + B - 3W), see below"),
]


@pytest.mark.parametrize(("schedule", "pp", "vpp", "m", "length", "source"), PUBLISHED)
def test_lengths_of_the_papers(schedule, pp, vpp, m, length, source):
    if schedule == "dualpipe":
        # B of the paper is the whole backward, 2; F&B one after the other are 3: 3 (3 + 2 - 3) = 6
        # is the bound; passes of opposite directions may fill more of it
        assert replay(orders(schedule, pp, vpp, m), lambda op: 1.0).length_s <= 3 * m + 6
        return

    def unit(op):
        whole = 1.0 if op.kind != "B" or schedule.startswith("zb") else 2.0
        return whole / vpp

    assert replay(orders(schedule, pp, vpp, m), unit).length_s == pytest.approx(length), source


@given(st.integers(2, 6), st.integers(1, 20), st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_transfers_fill_a_longer_window(pp, m, factor):
    order = orders("1f1b", pp, 1, m)
    alone = replay(order, lambda op: 1.0).length_s
    run, hop = stretched(order, lambda op: 1.0, factor * alone)
    assert run.length_s == pytest.approx(factor * alone, rel=1e-9) and hop >= 0.0


def test_impossible_schedules_are_refused():
    for schedule, pp, vpp, m in (
        ("dualpipe", 3, 1, 12),
        ("dualpipe", 4, 1, 6),
        ("interleaved", 4, 2, 9),
    ):
        with pytest.raises(ValueError, match="needs"):
            orders(schedule, pp, vpp, m)


@pytest.mark.parametrize(("model", "software", "changes"), [*LAYOUTS[:4], LAYOUTS[9]])
def test_exchanges_of_the_heaviest_stage_are_those_of_the_step_model(model, software, changes):
    found, step, _, _ = made(model, software, changes)
    mine = [e for e in found.events if e.device == step.heaviest_stage]
    for kind in ("tp", "cp", "ep"):
        took = math.fsum(e.duration_s for e in mine if e.kind == kind)
        want = getattr(step.expected, f"{kind}_comm_s") * found.scale
        assert took == pytest.approx(want, rel=0.02, abs=1e-9), kind
        assert all(e.track == kind for e in mine if e.kind == kind)
    # inside the passes that they hold up
    busy = [e for e in mine if e.kind in ("forward", "backward")]
    for e in mine:
        if e.kind in ("tp", "ep"):
            end = e.start_s + e.duration_s
            assert any(
                b.start_s - 1e-9 <= e.start_s and end <= b.start_s + b.duration_s + 1e-9
                for b in busy
            )


@pytest.mark.parametrize(("model", "software", "changes"), LAYOUTS[1:6])
def test_what_is_sent_is_received_by_the_neighbour(model, software, changes):
    found, _, _, layout = made(model, software, changes)
    pp, last = layout.pp, layout.pp * layout.vpp - 1
    for device in range(pp):
        sent = [e for e in found.of(device, "pp")]
        near = [e for t in ("pp-before", "pp-after") for e in found.of(device, t)]
        assert {e.kind for e in sent} == {"send"} and {e.kind for e in near} == {"receive"}
        if layout.schedule != "dualpipe":  # both directions of every boundary of its chunks
            stages = range(device, last + 1, pp)
            out = sum((s < last) + (s > 0) for s in stages) * layout.n_micro_batches
            assert len(sent) <= out and len(sent) > 0.9 * out
    moments = {
        k: sorted(e.start_s for e in found.events if e.kind == k) for k in ("send", "receive")
    }
    assert moments["send"] == moments["receive"]
    if layout.vpp == 1 and layout.schedule != "dualpipe":
        # activations come from the stage before, gradients from the one after
        first, end = found.of(0, "pp-before"), found.of(pp - 1, "pp-after")
        assert not first and not end
        for e in found.of(1, "pp-before"):
            ready = [
                f.start_s + f.duration_s
                for f in found.of(0)
                if f.kind == "forward" and f.micro_batch == e.micro_batch
            ]
            assert ready and e.start_s >= ready[0] - 1e-9


@pytest.mark.parametrize(("model", "software", "changes"), LAYOUTS[:7])
def test_memory_rises_from_the_states_and_falls_back(model, software, changes):
    found, step, stages, _ = made(model, software, changes)
    for curve, stage in zip(found.memory, stages, strict=True):
        idle = stage.states_bytes + stage.context_bytes
        assert curve.held_bytes[0] == pytest.approx(idle) == pytest.approx(curve.held_bytes[-1])
        assert min(curve.held_bytes) == pytest.approx(idle)
        assert list(curve.start_s) == sorted(set(curve.start_s)) and curve.start_s[0] == 0.0
        assert curve.start_s[-1] <= step.expected_s
