"""The answer of `gpuscale timeline`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.changed import changed
from gpuscale.answers.layout import layout_of
from gpuscale.answers.memory.train import layout_text
from gpuscale.answers.options import usual_seq_len
from gpuscale.answers.summary import memory_point, tone_of
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, made_of, term_of, total_of
from gpuscale.core.rules import facts_of
from gpuscale.core.timeline.build import timeline
from gpuscale.core.timeline.records import DeviceTime
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import load_inputs
from gpuscale.io.jobs import job_problem
from gpuscale.io.maturity import LeastDegrees
from gpuscale.io.software import load_software, usual_software
from gpuscale.render.document import Block, Column, Document, Point, Table, Text
from gpuscale.render.pictures.step import memory_over_time, stage_memory, step_gantts
from gpuscale.render.pictures.terminal import drawn

if TYPE_CHECKING:
    from gpuscale.answers.timeline import Timeline as Asked
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.timeline.records import StepTimeline
    from gpuscale.io.inputs import Loaded


@dataclass(frozen=True, slots=True)
class TimelineResult:
    """One expected training step in time."""

    step_s: float
    window_s: float  # first forward pass to last backward pass
    schedule_s: float  # the same by the schedule alone, transfers taking no time
    transfer_wait_s: float
    pass_time_scale: float
    bubble_frac: float  # of the pipeline device that waits least
    n_micro_batches: int
    n_drawn_micro_batches: int
    schedule: str
    stages: tuple[DeviceTime, ...]


def timeline_document(asked: Asked) -> Document:
    """Lay one step out and show it."""
    software = asked.software or usual_software(asked.where, catalogue=asked.catalogue)
    loaded = load_inputs(
        asked,
        cluster=asked.where,
        model=asked.model,
        catalogue=asked.catalogue,
        others={"software": load_software(software)},
        wires=asked.wires,
    )
    tokens = usual_seq_len(asked.seq_len, loaded.model)
    layout = layout_of(asked, tokens, loaded.model, loaded.specs["software"], 2)
    facts = facts_of(loaded.model, layout.seq_len, layout.global_batch_size, layout.n_gpus)
    degrees = LeastDegrees.of(layout)
    problem = job_problem(loaded, facts, asked.job_settings, layout.precision, degrees)
    try:
        line = timeline(
            problem.model,
            problem.hardware,
            problem.software,
            layout,
            problem.memory_facts,
            problem.memory_parameters,
        )
    except ValueError as error:
        raise GpuscaleError(str(error)) from None
    head = (
        f"{loaded.model.name} on {layout.n_gpus:,} {loaded.gpu.name}: {layout_text(layout)}, "
        f"{line.schedule}, {line.n_micro_batches:,} micro-batches of {layout.micro_batch_size}: "
        f"{format_si(line.total_s, 's')} a step"
    )
    if words := asked.job_settings.words:
        head += f"\n{', '.join(words)}"
    return _document(asked, loaded, problem, layout, line, head)


def _document(
    asked: Asked, loaded: Loaded, problem: Problem, layout: Layout, line: StepTimeline, head: str
) -> Document:
    import shutil

    usable = problem.capacity_bytes
    about = f"{loaded.model.name} on {layout.n_gpus:,} {loaded.gpu.name}, {layout_text(layout)}"
    charts = step_gantts(line, about)
    width = shutil.get_terminal_size((100, 24)).columns
    lanes = [drawn(c, width) for c in step_gantts(line, about, max(12, min(width, 120) // 3))]
    details: dict[str, list[Block]] = {
        "picture": [Text(head), *lanes],
        "stages": [_table(line), *changed(loaded)],
    }
    least = min(line.devices, key=lambda d: d.bubble_s)
    result = made_of(
        TimelineResult,
        line,
        step_s=line.total_s,
        transfer_wait_s=line.wait_s,
        pass_time_scale=line.scale,
        bubble_frac=least.bubble_s / line.total_s,
        stages=line.devices,
    )
    inputs = {
        "model": loaded.model.name,
        "cluster": loaded.cluster.name,
        "gpu": loaded.gpu.name,
        "software": asked.software or loaded.specs["software"].name,
        "n_gpus": layout.n_gpus,
        **asdict(layout),
    }
    peak = max(d.peak_bytes or 0.0 for d in line.devices)
    return Document.layered(
        "timeline",
        inputs,
        result,
        _summary(result, layout, head, peak, usable),
        details,
        warnings=(*loaded.warnings, *_warnings(line)),
        answered_no=peak > usable,
        terms=_terms(line, least),
        csv_table=_table(line),
        pictures=lambda: [
            *charts,
            memory_over_time(line, usable),
            stage_memory(problem, layout, usable),
        ],
        timeline=lambda: line,
    )


def _summary(
    r: TimelineResult, layout: Layout, head: str, peak_bytes: float, usable_bytes: float
) -> list[Point]:
    """Sum up the step, its passes, what waits, the memory of the fullest stage."""
    tone = tone_of(peak_bytes <= usable_bytes, peak_bytes, usable_bytes)
    fullest = max(r.stages, key=lambda d: d.peak_bytes or 0.0).device + 1
    drawn = f"{r.n_micro_batches:,} micro-batches through {layout.pp} stages, {r.schedule}"
    memory = memory_point(peak_bytes, usable_bytes, None, tone)
    return [
        Point("verdict", head.replace("\n", "; ") + ".", tone=tone),
        Point("passes", format_si(r.window_s, "s"), drawn),
        Point(
            "bubble", f"{100 * r.bubble_frac:.1f} %", "of the step, on the stage that waits least"
        ),
        Point("transfers", format_si(r.transfer_wait_s, "s"), "waited for between stages"),
        Point("rest", format_si(r.step_s - r.window_s, "s"), "before and after the passes"),
        replace(memory, note=f"stage {fullest}, {memory.note}"),
        Point("next", "-o step.trace.json", "opens in ui.perfetto.dev; --show picture draws it"),
    ]


def _warnings(line: StepTimeline) -> tuple[str, ...]:
    """Say where the drawing differs from a plain replay."""
    found = []
    if line.scale < 0.999:
        found.append(
            f"the schedule alone takes {100 * (1 / line.scale - 1):.1f} % longer than the step "
            f"model has for it: passes are drawn {100 * (1 - line.scale):.1f} % shorter"
        )
    if line.n_drawn_micro_batches < line.n_micro_batches:
        found.append(
            f"{line.n_drawn_micro_batches:,} of {line.n_micro_batches:,} micro-batches are drawn "
            "one by one; the middle of the step is one event"
        )
    return tuple(found)


def _table(line: StepTimeline) -> Table:
    def show(value: float) -> str:
        return format_si(value, "s") if value else "0"

    names = {
        "forward_s": "forward",
        "recompute_s": "recompute",
        "backward_s": "backward, inputs",
        "weights_s": "backward, weights",
        "bubble_s": "bubble",
        "skipped_s": "not drawn",
        "other_s": "rest of the step",
    }
    used = {k: name for k, name in names.items() if any(getattr(d, k) for d in line.devices)}
    columns: dict[str, Any] = {"stage": "stage"}
    columns |= {k: Column(k, name, show) for k, name in used.items()}
    rows = [{"stage": d.device + 1, **asdict(d)} for d in line.devices]
    memory = Column("peak_bytes", "peak memory", gb)
    return Table.of({**columns, "peak_bytes": memory}, rows, "Time and memory of each stage")


def _terms(line: StepTimeline, least: DeviceTime) -> tuple[Term, ...]:
    parts = {k: v for k, v in asdict(least).items() if k.endswith("_s") and v}
    fills = (
        f"stage {least.device + 1}, the busiest: its events fill the step; each from the step "
        "model of `gpuscale plan`"
    )
    paper = "Narayanan et al. 2021, arXiv:2104.04473, section 2.2, with transfers between stages"
    share = {"bubble_frac": least.bubble_s / line.total_s, "step_s": line.total_s}
    return (
        total_of("step_s", line.total_s, "s", parts, fills),
        term_of("bubble_frac", "frac", "bubble_s / step_s", paper, least, **share),
    )
