"""Files that are more than text of the answer: pictures, reports, traces; by their ending.

A step as a Chrome trace, for ui.perfetto.dev or chrome://tracing: "Trace Event Format" (Google,
2016): complete events (X), counters (C) and names (M); `ts` and `dur` in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.core.words import EVENT_KINDS, TRACKS
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.render.chart import Chart
from gpuscale.render.document import Document
from gpuscale.render.palette import MEANINGS, meaning

if TYPE_CHECKING:
    from gpuscale.core.step.replay import Event, StepTimeline


def to_trace(timeline: StepTimeline, about: Mapping[str, Any]) -> str:
    """Write a timeline as JSON: one process per pipeline stage, one thread per track.

    `timeline`: of `core.step.timeline`. `about`: says what was asked; goes to `otherData`.
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


def _names(timeline: StepTimeline) -> Iterator[dict[str, object]]:
    used = sorted({(e.device, _thread(e.track)) for e in timeline.events})
    for device in range(timeline.n_devices):
        yield _meta("process_name", device, 0, {"name": f"stage {device + 1}"})
        yield _meta("process_sort_index", device, 0, {"sort_index": device})
    names = list(TRACKS.values())
    for device, thread in used:
        yield _meta("thread_name", device, thread, {"name": names[thread]})
        yield _meta("thread_sort_index", device, thread, {"sort_index": thread})


def _meta(name: str, pid: int, tid: int, args: dict[str, object]) -> dict[str, object]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _us(seconds: float) -> float:
    """Microseconds, whole nanoseconds: what starts where another ends stays so."""
    return round(seconds * 1e9) / 1000


def _event(event: Event) -> dict[str, object]:
    start = _us(event.start_s)
    args: dict[str, object] = {}
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


def _counters(timeline: StepTimeline) -> Iterator[dict[str, object]]:
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


ENDINGS = (".svg", ".png", ".html", ".trace.json", ".sh", ".sbatch")

LAUNCHERS = {".sh": "torchrun", ".sbatch": "slurm"}
"""Ending of a launch file -> what starts its processes."""

PNG_EXTRA = "pip install 'gpuscale[png]'"


def ending_of(path: Path) -> str:
    """Find the ending that decides the format; empty where this module has none.

    >>> ending_of(Path("step.trace.json")), ending_of(Path("plan.json"))
    ('.trace.json', '')
    """
    return next((e for e in ENDINGS if path.name.endswith(e)), "")


def check(path: Path) -> None:
    """Refuse what could not be written, before anything is computed."""
    if ending_of(path) == ".png":
        from importlib.util import find_spec

        if find_spec("resvg_py") is None:
            raise GpuscaleError(
                f"-o {path}: PNG needs the package resvg_py", f"{PNG_EXTRA}, or write .svg"
            )


def content(document: Document, path: Path, command: str) -> bytes:
    """Make the content of a file.

    `document`: the answer. `path`: its ending decides; ``name.KEY.svg`` takes the picture called
    KEY. `command`: command line that made the answer, for reports. Raises GpuscaleError if the
    answer has no picture, no timeline or no launch.
    """
    ending = ending_of(path)
    if ending == ".html":
        from gpuscale.render.html_report import to_html

        return to_html(document, command).encode("utf-8", "backslashreplace")
    if ending in LAUNCHERS:
        if document.launch is None:
            raise GpuscaleError(
                f"-o {path}: this answer starts no job",
                "`gpuscale plan` of a training job and `gpuscale launch` do",
            )
        return document.launch(LAUNCHERS[ending]).encode("utf-8", "backslashreplace")
    if ending == ".trace.json":
        if document.timeline is None:
            raise GpuscaleError(
                f"-o {path}: this answer has no timeline",
                "`gpuscale plan` and `gpuscale timeline` of a training job have one",
            )
        about = {"command": command}
        return (to_trace(document.timeline(), about) + "\n").encode("ascii", "backslashreplace")
    from gpuscale.render.draw import to_svg

    drawing = to_svg(chosen(document, path))
    if ending == ".svg":
        return (drawing + "\n").encode("utf-8", "backslashreplace")
    return to_png(drawing)


def chosen(document: Document, path: Path) -> Chart:
    """Pick the picture that a file's name asks for: the first, or the one before the ending."""
    from gpuscale.render.pictures_known import pictures

    found = pictures(document)
    if not found:
        raise GpuscaleError(
            f"-o {path}: this answer has no picture",
            "plan, timeline, memory, roofline, collective, matmul-time and sweeps have; "
            "or write .html",
        )
    _, dot, key = path.name[: -len(path.suffix)].rpartition(".")
    if not dot:
        return found[0]
    names = {chart.key: chart for chart in found}
    if key not in names:
        raise unknown_name("picture", key, names, f"this answer has {', '.join(names)}")
    return names[key]


def to_png(drawing: str, zoom: int = 2) -> bytes:
    """Draw an SVG as PNG, light colours, twice as large."""
    from importlib import import_module

    made = import_module("resvg_py").svg_to_bytes(
        svg_string=drawing, zoom=zoom, font_family="DejaVu Sans", sans_serif_family="DejaVu Sans"
    )
    return bytes(made)
