"""The answer of `gpuscale timeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.layout import layout_of
from gpuscale.answers.options import usual_seq_len
from gpuscale.answers.saved import inputs_of, said_by, taken_of, told
from gpuscale.answers.summary import changed, memory_point, taken_points, tone_of
from gpuscale.answers.training.memory_train import layout_text, loaded_of
from gpuscale.answers.training.plan_train import timeline_of
from gpuscale.core.layout import Layout, Settled
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, asdict, dataclass, made_of, replace, term_of, total_of
from gpuscale.core.step.replay import DeviceTime, StepTimeline
from gpuscale.core.step.step import step_time
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import Loaded
from gpuscale.io.jobs import problem_of, step_interval
from gpuscale.io.step import memory_interval_factor
from gpuscale.render.document import Block, Column, Document, Point, Table, Text
from gpuscale.render.picture_step import memory_over_time, stage_memory, step_gantts
from gpuscale.render.terminal import drawn

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Timeline as Asked
    from gpuscale.core.search.problem import Problem


@dataclass(frozen=True, slots=True)
class TimelineResult(Settled):
    """One expected training step in time."""

    step_s: float
    step_low_s: float  # 80 % interval of the expected time
    step_high_s: float
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
    loaded = loaded_of(asked)
    tokens = usual_seq_len(asked.seq_len, loaded.model)
    layout = layout_of(asked, tokens, loaded.model, loaded.specs["software"], 2)
    problem = problem_of(loaded, layout, asked.job_settings)
    try:
        line = timeline_of(problem, layout)
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


def _result(
    asked: Asked, loaded: Loaded, problem: Problem, layout: Layout, line: StepTimeline
) -> TimelineResult:
    """Put the record of an answer together."""
    least = min(line.devices, key=lambda d: d.bubble_s)
    peak = max(d.peak_bytes or 0.0 for d in line.devices)
    step = step_time(problem.model, problem.hardware, problem.software, layout)
    spec = loaded.specs["software"]
    low_s, high_s = step_interval(step, problem, spec.name, layout)
    return made_of(
        TimelineResult,
        line,
        fits=peak <= problem.capacity_bytes,
        layout=layout,
        peak_bytes=peak,
        capacity_bytes=problem.capacity_bytes,
        memory_interval_factor_80=memory_interval_factor(spec.name),
        taken=taken_of(asked, loaded, layout),
        said_by=said_by(told(asked), spec),
        step_s=line.total_s,
        step_low_s=low_s,
        step_high_s=high_s,
        transfer_wait_s=line.wait_s,
        pass_time_scale=line.scale,
        bubble_frac=least.bubble_s / line.total_s,
        stages=line.devices,
    )


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
    result = _result(asked, loaded, problem, layout, line)
    return Document.layered(
        "timeline",
        inputs_of(loaded, layout),
        result,
        _summary(result, head),
        details,
        warnings=(*loaded.warnings, *_warnings(line)),
        answered_no=not result.fits,
        terms=_terms(line),
        csv_table=_table(line),
        pictures=lambda: [
            *charts,
            memory_over_time(line, usable),
            stage_memory(problem, layout, usable),
        ],
        timeline=lambda: line,
    )


def _summary(r: TimelineResult, head: str) -> list[Point]:
    """Sum up the step, its passes, what waits, the memory of the fullest stage."""
    tone = tone_of(r.fits, r.peak_bytes, r.capacity_bytes)
    fullest = max(r.stages, key=lambda d: d.peak_bytes or 0.0).device + 1
    drawn = f"{r.n_micro_batches:,} micro-batches through {r.layout.pp} stages, {r.schedule}"
    memory = memory_point(r.peak_bytes, r.capacity_bytes, None, tone)
    least = "of the step, on the stage that waits least"
    return [
        Point("verdict", head.replace("\n", "; ") + ".", tone=tone),
        Point("passes", format_si(r.window_s, "s"), drawn),
        Point("bubble", f"{100 * r.bubble_frac:.1f} %", least),
        Point("transfers", format_si(r.transfer_wait_s, "s"), "waited for between stages"),
        Point("rest", format_si(r.step_s - r.window_s, "s"), "before and after the passes"),
        replace(memory, note=f"stage {fullest}, {memory.note}"),
        *taken_points(r.taken),
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
    columns: dict[str, object] = {"stage": "stage"}
    columns |= {k: Column(k, name, show) for k, name in used.items()}
    rows = [{"stage": d.device + 1, **asdict(d)} for d in line.devices]
    memory = Column("peak_bytes", "peak memory", gb)
    return Table.of({**columns, "peak_bytes": memory}, rows, "Time and memory of each stage")


def _terms(line: StepTimeline) -> tuple[Term, ...]:
    least = min(line.devices, key=lambda d: d.bubble_s)
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
