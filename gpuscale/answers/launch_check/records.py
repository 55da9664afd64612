"""What a launch is and what it takes, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.answers.origins import LAYOUT, said_by, told, unsaid
from gpuscale.answers.training.tune_memory import TuningMemory
from gpuscale.core.dataclasses import dataclass, field, fields, replace
from gpuscale.core.layout import Layout
from gpuscale.core.records import Term, made_of
from gpuscale.core.run.bill import Bill
from gpuscale.launch.found import Found, Said

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.render.document import Block
    from gpuscale.specs.model import ModelSpec


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
    from gpuscale.core.model.params import count_params

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
    from gpuscale.io.software import load_software
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
