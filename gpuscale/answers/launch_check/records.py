"""What a launch is and what it takes, as data; the files of a launch with a better layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuscale.answers.saved import LAYOUT, said_by, told, unsaid
from gpuscale.answers.training.tune_memory import TuningMemory
from gpuscale.core.layout import Layout
from gpuscale.core.model.params import count_params
from gpuscale.core.records import Term, dataclass, field, fields, made_of, replace
from gpuscale.core.run.bill import Bill
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import load_software
from gpuscale.io.text import bounded
from gpuscale.launch.found import Found, Said
from gpuscale.launch.read.together import last_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.training.plan_case import PlanCase
    from gpuscale.core.plan.records import Estimate
    from gpuscale.render.document import Block
    from gpuscale.specs.model import ModelSpec

    LayoutOf = Callable[[Found], Layout]


@dataclass(frozen=True, slots=True)
class Change:
    """One option that the best layout has otherwise."""

    field: str
    have: str
    best: str


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What a launch is and what it takes."""

    kind: str
    version: str  # whose option names are known
    method: str
    model: str
    n_params: float | None
    n_gpus: int | None
    gpu: str | None  # as the files name it
    software: str
    layout: Layout | None
    stage_layers: tuple[int, ...]
    said: Said
    missing: tuple[str, ...]  # without which nothing is predicted
    can_launch: bool
    broken: tuple[str, ...]  # rules that it breaks
    not_understood: tuple[str, ...]
    unresolved: tuple[str, ...]
    notes: tuple[str, ...]  # what the answer leaves out, or takes
    fits: bool | None
    peak_bytes: float | None = None
    capacity_bytes: float | None = None
    fits_probability: float | None = None
    memory_interval_factor_80: float = 1.0
    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    mfu: float | None = None
    best_layout: Layout | None = None
    best_step_s: float | None = None
    best_peak_bytes: float | None = None
    slower_factor: float | None = None  # step time over the best's
    why: str = ""
    changes: tuple[Change, ...] = ()
    diff: tuple[str, ...] = ()
    left: tuple[Change, ...] = ()  # what the files with the diff still have otherwise
    tuning: TuningMemory | None = None  # of a fine-tuning job
    bill: Bill | None = None  # of a served hour
    taken: tuple[str, ...] = ()  # what neither files nor person said, and the option that says it
    said_by: Mapping[str, str] = field(default_factory=dict)  # value -> line of a file, option ...


def empty_report(
    found: Found,
    model: ModelSpec | None,
    n_gpus: int | None,
    software: str,
    fits: bool | None,
    missing: tuple[str, ...] = (),
) -> LaunchReport:
    """Report of what was read, before anything is predicted."""
    return LaunchReport(
        kind=found.kind,
        version=found.version,
        method=str(found.rl.get("method", found.method)),
        model=model.name if model else found.model_name or "",
        n_params=float(count_params(model).total_params) if model else None,
        n_gpus=n_gpus,
        gpu=found.gpu,
        software=software,
        layout=None,
        stage_layers=(),
        said=made_of(Said, found),
        missing=missing,
        can_launch=not found.wrong,
        broken=tuple(found.wrong),
        not_understood=tuple(found.not_understood),
        unresolved=tuple(found.unresolved),
        notes=tuple(found.notes),
        fits=fits,
    )


OF_FILES = (*LAYOUT, "n_gpus", "software", "dp_replicate", "lora_rank", "optimizer", "weights")
"""Values of a job that files say; where none of their options is named, by what else is in them."""


def with_origins(
    asked: LaunchCheck, found: Found, files: Mapping[str, str], report: LaunchReport
) -> LaunchReport:
    """Report with who said each value: a line of a file, the person, a habit, a default."""
    from gpuscale.launch.read.edit import line_of

    usual, first = Found(""), next(iter(files))
    read = (f.name for f in fields(Found) if getattr(found, f.name) != getattr(usual, f.name))
    said = dict.fromkeys((name for name in (*read, "n_gpus") if name in OF_FILES), first)
    lines = {field: line_of(files, place) for field, place in found.places.items()}
    said |= {field.removeprefix("settings."): line for field, line in lines.items()} | told(asked)
    named, layout = asked.cluster or asked.gpu or found.gpu, report.layout
    taken = unsaid((named, asked.where, "--cluster, --gpu"))
    if layout is not None:
        lengths = ("seq_len" in said, f"sequences of {layout.seq_len:,}", "--seq-len")
        taken += unsaid(lengths)
        said = said_by(said, load_software(report.software))
    return replace(report, said_by=said, taken=taken)


@dataclass(frozen=True, slots=True)
class Checked:
    """A report, with what its text needs beside it."""

    report: LaunchReport
    asked: LaunchCheck
    warnings: Sequence[str] = ()
    blocks: Sequence[Block] = ()  # of the answer that the report takes its figures from
    terms: Sequence[Term] = ()  # of its figures


COMPARED = (
    "tp pp vpp cp ep etp zero_stage shard_group_size micro_batch_size recompute sequence_parallel "
    "offload_optimizer overlap_tp overlap_dp"
).split()
"""Fields of a layout that a person would change for a better one."""


@dataclass(frozen=True, slots=True)
class LaunchFiles:
    """Files of a launch, and what a person says beside them."""

    files: Mapping[str, str]  # with those that they name and that were found
    given: tuple[str, ...]  # names of those that a person gave, and of scripts that these start
    variables: dict[str, str]
    named: tuple[str, ...]  # by the person alone


def differences(have: Layout, best: Layout) -> tuple[Change, ...]:
    """List the fields that another layout has otherwise."""
    return tuple(
        Change(name, str(getattr(have, name)), str(getattr(best, name)))
        for name in COMPARED
        if getattr(have, name) != getattr(best, name)
        and not (name in ("sequence_parallel", "overlap_tp") and best.tp == 1)
    )


def change_of_files(
    launch: LaunchFiles, found: Found, layout_of: LayoutOf, case: PlanCase, best: Estimate
) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """Write the best layout into the files.

    `layout_of`: lays out what files say. Returns: the change as a unified diff, none where no
    option of the layout can be set; and what the changed files, read again, still have otherwise.
    """
    from gpuscale.launch.dialects.write import chunks_of
    from gpuscale.launch.dialects.write import options as written_options
    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.launch.read.edit import KINDS, changed, diff

    if found.kind not in KINDS:
        return (), ()

    def options(layout: Layout, stages: tuple[int, ...]) -> dict[str, object]:
        model = case.problem.model
        chunks = chunks_of(model, layout, stages)
        job = TrainingLaunch(model, case.cluster, found.software, layout, chunks)
        return written_options(job, found.kind)

    try:
        now, wanted = options(layout_of(found), ()), options(best.layout, best.stage_layers)
    except GpuscaleError:  # a layout that its exporter cannot say
        return (), ()
    with bounded(launch.given[0]):
        after = changed(launch.files, now, wanted)
        lines = diff(launch.files, after, launch.named)
        again = read_again(launch, after) if lines else None
    left: tuple[Change, ...] = ()
    with suppress(GpuscaleError):
        left = differences(layout_of(again), best.layout) if again else ()
    nearest = found.kind == "maxtext" and best.layout.recompute == "none"  # it keeps products alone
    return lines, tuple(c for c in left if not (nearest and c.field == "recompute"))


def read_again(launch: LaunchFiles, after: Mapping[str, str]) -> Found | None:
    """Read the changed files of a launch; None where they cannot be."""
    from gpuscale.launch.read.detect import read_launch

    def look(written: str) -> tuple[str, str] | None:
        same = (name for name in after if last_of(name) == last_of(written))
        return next(((name, after[name]) for name in same), None)

    given = {name: after[name] for name in launch.given}
    try:
        return read_launch(given, launch.variables, look)
    except (GpuscaleError, ValueError, OverflowError, ZeroDivisionError, RecursionError):
        return None
