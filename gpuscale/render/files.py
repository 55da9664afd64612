"""Files that are more than text of the answer: pictures, reports, traces; by their ending."""

from __future__ import annotations

from pathlib import Path

from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.render.document import Document
from gpuscale.render.pictures.chart import Chart

ENDINGS = (".svg", ".png", ".html", ".trace.json", ".sh", ".sbatch")

LAUNCHERS = {".sh": "torchrun", ".sbatch": "slurm"}
"""Ending of a launch file -> what starts its processes."""

PNG_EXTRA = "pip install 'gpuscale[png]'"


def ending_of(path: Path) -> str:
    """Find the ending that decides the format; empty where this module has none.

    Examples
    --------
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
        from gpuscale.render.trace import to_trace

        if document.timeline is None:
            raise GpuscaleError(
                f"-o {path}: this answer has no timeline",
                "`gpuscale plan` and `gpuscale timeline` of a training job have one",
            )
        about = {"command": command}
        return (to_trace(document.timeline(), about) + "\n").encode("ascii", "backslashreplace")
    from gpuscale.render.pictures.draw import to_svg

    drawing = to_svg(chosen(document, path))
    if ending == ".svg":
        return (drawing + "\n").encode("utf-8", "backslashreplace")
    return to_png(drawing)


def chosen(document: Document, path: Path) -> Chart:
    """Pick the picture that a file's name asks for: the first, or the one before the ending."""
    from gpuscale.render.pictures.known import pictures

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
