"""Pictures of one step: its passes in time, memory of each pipeline stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.memory.peak import stage_memories
from gpuscale.core.timeline.records import KINDS
from gpuscale.render.pictures.chart import Axis, Gantt, Lines, Mark, Series, Span, Stack
from gpuscale.render.pictures.known import layout_words, memory_stack

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.timeline import Timeline

LETTERS = {
    "forward": "F", "backward": "B", "weights": "W", "recompute": "R", "gather": "g",
    "optimizer": "O", "dp": "D", "straggler": "s", "host": "h", "skipped": "~",
}  # fmt: skip
"""Kinds that are drawn, and their letters; bubbles are what is left."""

MOST_SPANS = 6000
"""Most boxes of a picture; a longer step shows its start."""


def stage_memory(problem: Problem, layout: Layout, usable_bytes: float) -> Stack:
    """Memory of one GPU of each pipeline stage."""
    stages = stage_memories(problem.memory_facts, layout, problem.memory_parameters)
    limit = (usable_bytes, f"usable {Axis('', 'bytes').text(usable_bytes)}")
    return memory_stack(
        [(f"stage {s.stage + 1}", s) for s in stages], "Memory per GPU, by pipeline stage", limit,
        layout_words(layout),
    )  # fmt: skip


def step_gantt(timeline: Timeline) -> Gantt:
    """One step, a lane per pipeline stage."""
    per_lane = max(40, MOST_SPANS // timeline.n_devices)
    lanes, until = [], timeline.total_s
    for device in range(timeline.n_devices):
        events = [e for e in timeline.of(device) if e.kind in LETTERS]
        if len(events) > per_lane:
            until = min(until, events[per_lane].start_s)
        lanes.append((f"stage {device + 1}", events))
    kinds = [k for k in LETTERS if any(e.kind == k for _, events in lanes for e in events)]
    drawn = [
        (
            name,
            [
                Span(e.start_s, min(e.duration_s, until - e.start_s), kinds.index(e.kind),
                     str(e.micro_batch + 1) if e.micro_batch >= 0 else "")
                for e in events if e.start_s < until
            ],
        )
        for name, events in lanes
    ]  # fmt: skip
    time = Axis("time", "s")
    note = f"{timeline.schedule}, {timeline.n_micro_batches:,} micro-batches"
    note += f", step {time.text(timeline.total_s)}"
    if until < timeline.total_s:
        note += f", its first {time.text(until)}"
    return Gantt(
        "timeline", "One step in time", time, until, [(KINDS[k], LETTERS[k]) for k in kinds],
        drawn, note,
    )  # fmt: skip


def memory_over_time(timeline: Timeline, usable_bytes: float) -> Lines:
    """Memory of one GPU of the first, middle and last stage over the step."""
    n = timeline.n_devices
    series = []
    for device in sorted({0, n // 2, n - 1}):
        curve = timeline.memory[device]
        points: list[tuple[float, float, str]] = []
        for at, held in zip(curve.start_s, curve.held_bytes, strict=True):
            points += [(at, points[-1][1], "")] if points else []
            points.append((at, held, ""))
        points.append((timeline.total_s, points[-1][1], ""))
        series.append(Series(f"stage {device + 1}", points, markers=False))
    mark = Mark("y", usable_bytes, f"usable {Axis('', 'bytes').text(usable_bytes)}")
    return Lines(
        "memory-time", "Memory of one GPU over the step", Axis("time", "s"),
        Axis("memory", "bytes"), series, [mark],
    )  # fmt: skip
