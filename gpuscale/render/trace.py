"""A step as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

Format: "Trace Event Format" (Google, 2016): complete events (X), counters (C) and names (M);
`ts` and `dur` in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuscale.core.words import EVENT_KINDS, TRACKS
from gpuscale.render.palette import MEANINGS, meaning

if TYPE_CHECKING:
    from gpuscale.core.timeline.records import Event, StepTimeline


def to_trace(timeline: StepTimeline, about: Mapping[str, Any]) -> str:
    """Write a timeline as JSON: one process per pipeline stage, one thread per track.

    `timeline`: of `core.timeline`. `about`: says what was asked; goes to `otherData`.
    """
    events = [*_names(timeline), *map(_event, timeline.events), *_counters(timeline)]
    other = {
        "step_s": timeline.total_s,
        "schedule": timeline.schedule,
        "micro_batches": timeline.n_micro_batches,
        "micro_batches_drawn": timeline.n_drawn_micro_batches,
        "window_s": timeline.window_s,
        "schedule_alone_s": timeline.schedule_s,
        "transfer_wait_s": timeline.wait_s,
        "pass_time_scale": timeline.scale,
        **about,
    }
    lines = ",\n".join(json.dumps(e, separators=(",", ":"), allow_nan=False) for e in events)
    tail = json.dumps(other, allow_nan=False)
    return f'{{"displayTimeUnit":"ms","otherData":{tail},"traceEvents":[\n{lines}\n]}}'


def _thread(track: str) -> int:
    return list(TRACKS).index(track)


def _names(timeline: StepTimeline) -> Iterator[dict[str, Any]]:
    used = sorted({(e.device, _thread(e.track)) for e in timeline.events})
    for device in range(timeline.n_devices):
        yield _meta("process_name", device, 0, {"name": f"stage {device + 1}"})
        yield _meta("process_sort_index", device, 0, {"sort_index": device})
    names = list(TRACKS.values())
    for device, thread in used:
        yield _meta("thread_name", device, thread, {"name": names[thread]})
        yield _meta("thread_sort_index", device, thread, {"sort_index": thread})


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _us(seconds: float) -> float:
    """Microseconds, whole nanoseconds: what starts where another ends stays so."""
    return round(seconds * 1e9) / 1000


def _event(event: Event) -> dict[str, Any]:
    start = _us(event.start_s)
    args: dict[str, Any] = {}
    name = EVENT_KINDS[event.kind]
    if event.micro_batch >= 0:
        name = f"{name} {event.micro_batch + 1}"
        args = {"micro_batch": event.micro_batch + 1, "chunk": event.chunk + 1}
    return {
        "ph": "X",
        "name": name,
        "cat": event.kind,
        "cname": MEANINGS[meaning(EVENT_KINDS[event.kind]) or "other"].trace,
        "pid": event.device,
        "tid": _thread(event.track),
        "ts": start,
        "dur": round(_us(event.start_s + event.duration_s) - start, 3),
        "args": args,
    }


def _counters(timeline: StepTimeline) -> Iterator[dict[str, Any]]:
    for curve in timeline.memory:
        for at, held in zip(curve.start_s, curve.held_bytes, strict=True):
            yield {
                "ph": "C",
                "name": "memory",
                "pid": curve.device,
                "tid": 0,
                "ts": _us(at),
                "args": {"GB": held / 1e9},
            }
