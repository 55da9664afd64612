"""Pictures of one step: its passes in time, memory of each pipeline stage."""

from __future__ import annotations

from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import stage_memories
from gpuscale.core.search.problem import Problem
from gpuscale.core.step.replay import Event, StepTimeline
from gpuscale.core.words import EVENT_KINDS
from gpuscale.render.chart import Axis, Gantt, Lines, Mark, Series, Span, Stack
from gpuscale.render.palette import LETTERS
from gpuscale.render.pictures_known import layout_words, memory_stack

PASSES_SHOWN = 32
"""Most passes of a stage in half a picture: as many as leave room for their numbers."""


def stage_memory(problem: Problem, layout: Layout, usable_bytes: float) -> Stack:
    """Memory of one GPU of each pipeline stage."""
    stages = stage_memories(problem.memory_facts, layout, problem.memory_parameters)
    limit = (usable_bytes, f"usable {Axis('', 'bytes').text(usable_bytes)}")
    return memory_stack(
        [(f"stage {s.stage + 1}", s) for s in stages],
        "Memory per GPU, by pipeline stage",
        limit,
        layout_words(layout),
    )


def step_gantts(timeline: StepTimeline, about: str, n_shown: int = PASSES_SHOWN) -> list[Gantt]:
    """One step of the job `about`, a lane per pipeline stage: whole, or its start and its end.

    More than ``2 n_shown`` passes on a stage are too many for one picture.
    """
    passes = ("forward", "backward", "weights", "recompute")
    lanes = [timeline.of(d) for d in range(timeline.n_devices)]
    busy = [[e for e in lane if e.kind in passes] for lane in lanes]
    fullest = max(busy, key=len)
    time, total = Axis("time", "s"), timeline.total_s
    title = "One step in time"
    if len(fullest) <= 2 * n_shown:
        return [_gantt(timeline, lanes, (0.0, total), "timeline", title, about)]
    until = fullest[n_shown].start_s
    since = fullest[-n_shown].start_s
    done = max(e.start_s + e.duration_s for e in fullest[-n_shown:])
    if total - done > done - since:  # what follows the passes takes most of the room
        since = fullest[-max(1, n_shown // 3)].start_s
    first = f"{about}, of which the first {time.text(until)}"
    last = f"{about}, of which the last {time.text(total - since)}"
    return [
        _gantt(timeline, lanes, (0.0, until), "timeline", f"{title}: its start", first),
        _gantt(timeline, lanes, (since, total), "timeline-end", f"{title}: its end", last),
    ]


def _gantt(
    timeline: StepTimeline,
    lanes: list[list[Event]],
    span: tuple[float, float],
    key: str,
    title: str,
    about: str,
) -> Gantt:
    start, end = span

    def seen(e: Event) -> bool:
        inside = e.start_s < end - 1e-12 and e.start_s + e.duration_s > start + 1e-12
        return e.kind in LETTERS and inside

    shown = [[e for e in lane if seen(e)] for lane in lanes]
    kinds = [k for k in LETTERS if any(e.kind == k for lane in shown for e in lane)]
    drawn = []
    for device, lane in enumerate(shown):
        spans = []
        for e in lane:
            at = max(start, e.start_s)
            number = str(e.micro_batch + 1) if e.micro_batch >= 0 else ""
            length = min(e.start_s + e.duration_s, end) - at
            spans.append(Span(at, length, kinds.index(e.kind), number))
        drawn.append((f"stage {device + 1}", spans))
    time = Axis("time", "s")
    note = (
        f"{about}; {timeline.schedule}, {timeline.n_micro_batches:,} micro-batches, step "
        f"{time.text(timeline.total_s)}; boxes carry the number of the micro-batch"
    )
    names = [(EVENT_KINDS[k], LETTERS[k]) for k in kinds]
    return Gantt(key, title, time, end, names, drawn, note=note, start=start)


def memory_over_time(timeline: StepTimeline, usable_bytes: float) -> Lines:
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
    x, y = Axis("time", "s"), Axis("memory", "bytes")
    return Lines("memory-time", "Memory of one GPU over the step", x, y, series, [mark])
