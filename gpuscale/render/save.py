"""Answers as files, by their ending: pictures, reports, traces; each whole, all of them or none.

A step as a Chrome trace, for ui.perfetto.dev or chrome://tracing: "Trace Event Format" (Google,
2016): complete events (X), counters (C) and names (M); `ts` and `dur` in microseconds.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
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


PICTURE_ENDINGS = (".svg", ".png", ".html", ".trace.json", ".sh", ".sbatch")

LAUNCHERS = {".sh": "torchrun", ".sbatch": "slurm"}
"""Ending of a launch file -> what starts its processes."""

PNG_EXTRA = "pip install 'gpuscale[png]'"


def ending_of(path: Path) -> str:
    """Find the ending that decides the format; empty where this module has none.

    >>> ending_of(Path("step.trace.json")), ending_of(Path("plan.json"))
    ('.trace.json', '')
    """
    return next((e for e in PICTURE_ENDINGS if path.name.endswith(e)), "")


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


ENDINGS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".txt": "text",
    ".html": "html",
    ".svg": "svg",
    ".png": "png",
    ".sh": "torchrun script",
    ".sbatch": "Slurm script",
}
"""Ending of a file -> format; those of `PICTURE_ENDINGS` are written otherwise."""


def rendered(
    document: Document, format_: str, extra: Mapping[str, Any], ascii_only: bool = False
) -> str:
    """Text of a document in a format; `extra` has what stands beside the result."""
    from gpuscale.render import text

    if format_ == "json":
        return text.to_json(document, dict(extra), ascii_only)
    if format_ == "csv":
        return text.to_csv(document)
    if format_ == "markdown":
        return text.to_markdown(document, explain="explain" in extra)
    return text.to_text(document, explain="explain" in extra)


def check_target(text: str, flag: str = "-o", endings: Iterable[str] | None = ENDINGS) -> Path:
    """Refuse a file that could not be written, before anything is computed.

    A device or a pipe may end as it likes, as may a file without `endings`; ``-``, standard output,
    is not for the answer, which is there anyway.
    """
    path = Path(text)
    stream = os.path.exists(path) and not (path.is_file() or path.is_dir())
    stream = stream or (text == "-" and flag != "-o")
    if endings is not None and path.suffix not in endings and not stream:
        hint = f"known endings: {' '.join(endings)}"
        if endings is ENDINGS:
            hint += f"; launch files: {' '.join(LAUNCHERS)}, others by `gpuscale launch`"
        if text == "-":
            hint = "the answer is on standard output: --json or --format says how"
        raise GpuscaleError(f"{flag} {text}: the ending `{path.suffix}` is not known", hint)
    try:
        if text != "-":
            _writable(path, f"{flag} {text}")
    except (OSError, ValueError, RuntimeError):
        raise GpuscaleError(f"{flag} {text}: is not a file name") from None
    if flag == "-o" or flag == "path":
        check(path)
    return path


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or ``-``: it is written to, and never replaced."""
    within = path.absolute().parts[1:2]
    return (
        str(path) == "-"
        or within in (("dev",), ("proc",))
        or (os.path.exists(path) and not os.path.isfile(path))
    )


def _writable(path: Path, said: str) -> None:
    """Refuse a folder, a folder that is not there, and a link to what is another user's."""
    if not path.parent.is_dir():
        raise GpuscaleError(f"{said}: there is no folder `{path.parent}`")
    if path.is_dir():
        raise GpuscaleError(f"{said}: cannot be written")
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise GpuscaleError(f"{said}: cannot be written")
        return
    real = path.resolve()
    if not os.access(real.parent, os.W_OK):
        raise GpuscaleError(f"{said}: cannot be written")
    end = real if real.exists() else real.parent
    if path.is_symlink() and hasattr(os, "geteuid") and end.stat().st_uid != os.geteuid():
        raise GpuscaleError(
            f"{said}: is a link to a file of another user", f"name the file itself: {real}"
        )


def file_content(
    document: Document, path: Path, extra: Mapping[str, Any], command: str
) -> str | bytes:
    """Content of a file in the format of its ending; a path of `check_target`."""
    if ending_of(path):
        return content(document, path, command)
    return rendered(document, ENDINGS.get(path.suffix, "text"), extra) + "\n"


def save(contents: Mapping[Path, str | bytes]) -> None:
    """Write files whole and together: a reader sees the old content or the new.

    A symbolic link to what the user owns is followed, and stays one; devices and pipes are written
    to. Raises GpuscaleError if one of them cannot be written; then no file is.
    """
    partial: dict[Path, Path] = {}
    streams: dict[Path, bytes] = {}
    path = Path()
    try:
        for path, content in contents.items():
            if isinstance(content, str):
                content = content.encode("utf-8", "backslashreplace")
            if is_stream(path):
                streams[path] = content
                continue
            _writable(path, str(path))
            real = path.resolve()
            partial[real] = real.with_name(f".{secrets.token_hex(8)}.gpuscale")
            _fill(partial[real], content, like=real)
        for path, content in streams.items():
            _pour(path, content)
        for path, made in partial.items():
            os.replace(made, path)
    except (OSError, RuntimeError, GpuscaleError) as error:
        for made in partial.values():
            made.unlink(missing_ok=True)
        if isinstance(error, GpuscaleError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise GpuscaleError(f"{path}: {reason}") from None


def _fill(made: Path, content: bytes, like: Path) -> None:
    """Write a file that was not there, with the permissions of the one that it will replace."""
    mode = like.stat().st_mode & 0o777 if like.exists() else None
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(content)
    if mode is not None:
        made.chmod(mode)


def _pour(path: Path, content: bytes) -> None:
    """Write to standard output, a device or a pipe."""
    if str(path) == "-":
        sys.stdout.write(content.decode("utf-8", "replace"))
        sys.stdout.flush()
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(content)
