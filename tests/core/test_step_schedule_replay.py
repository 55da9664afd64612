"""Replayed schedules against the published bubbles and against the closed form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.step.pipeline import pipeline_s
from gpuscale.core.step.schedule_replay import ORDERS, StageWork, replay_s

TIMES = st.floats(0.1, 10.0)


@given(st.integers(1, 8), st.integers(1, 24), TIMES, TIMES, st.sampled_from(["1f1b", "gpipe"]))
def test_equal_stages_have_the_published_bubble(pp, m, forward, backward, schedule):
    got = replay_s([StageWork(forward, backward)] * pp, m, schedule)
    steady, bubble = pipeline_s(forward + backward, pp * (forward + backward), m, 1, schedule)
    assert got == pytest.approx((m + pp - 1) * (forward + backward))
    assert got == pytest.approx(steady + bubble)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=6), st.integers(1, 16))
def test_uneven_stages_lie_between_the_bounds(stages, m):
    works = [StageWork(f, b) for f, b in stages]
    got = replay_s(works, m)
    total = [f + b for f, b in stages]
    assert got >= m * max(total) * (1 - 1e-12)
    assert got <= m * sum(total) * (1 + 1e-12)


@given(st.integers(2, 8), st.integers(8, 24), TIMES)
def test_zero_bubble_has_a_third_of_the_bubble(pp, m, t):
    work = StageWork(t, t, t)
    got = replay_s([work] * pp, m, "zb-h1")
    assert got == pytest.approx(m * 3 * t + (pp - 1) * t)  # (p-1)(F+B-W), Qi et al., table 2


@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from(sorted(ORDERS)))
def test_every_piece_of_work_is_done_once(pp, m, schedule):
    for stage in range(pp):
        order = ORDERS[schedule](stage, pp, m)
        assert len(set(order)) == len(order)
        assert {w.micro_batch for w in order if w.kind == "F"} == set(range(m))
        assert {w.micro_batch for w in order if w.kind == "B"} == set(range(m))


def test_a_heavy_last_stage_is_what_the_closed_form_says():
    works = [StageWork(1.0, 2.0)] * 7 + [StageWork(1.3, 2.6)]
    steady, bubble = pipeline_s(3.9, 7 * 3.0 + 3.9, 32, 1, "1f1b")
    assert replay_s(works, 32) == pytest.approx(steady + bubble, rel=0.02)


def test_transfers_lengthen_a_pipeline():
    works = [StageWork(1.0, 2.0)] * 4
    assert replay_s(works, 8, transfer_s=0.1) > replay_s(works, 8)


def test_bad_input():
    with pytest.raises(ValueError, match="schedule"):
        replay_s([StageWork(1.0, 1.0)], 1, "nope")
    with pytest.raises(ValueError, match="micro-batch"):
        replay_s([], 1)
