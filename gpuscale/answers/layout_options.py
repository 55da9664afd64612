"""Options of the layout of a training job: searched unless pinned, or given in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gpuscale.answers.ask import PRETRAIN, TASKS, TRAIN, Asked, Converted, fields_of, text, whole
from gpuscale.answers.job_options import JobOptions
from gpuscale.answers.options import PRECISIONS, parts, software
from gpuscale.core.layout import CONTEXT_KINDS, ORDERS, RECOMPUTE, layout_chunks
from gpuscale.core.layout import PRECISIONS as TRAINED
from gpuscale.core.records import dataclass
from gpuscale.core.schedules import SCHEDULES
from gpuscale.errors import GpuscaleError

Count = Converted[int, int | str | Sequence[int]]
Size = Converted[int | None, int | str | Sequence[int]]
Word = Converted[str, int | str | Sequence[str]]
Habit = Converted[str | None, int | str | Sequence[str]]
Stages = Converted[tuple[int, ...] | None, str | Sequence[int]]


def pipeline_layout() -> Stages:
    """Field of the layers of each stage or chunk."""

    def read(value: Any, label: str) -> tuple[int, ...]:
        text = value if isinstance(value, str) else ",".join(map(str, value))
        try:
            return tuple(layout_chunks(text))
        except ValueError as error:
            raise GpuscaleError(f"{label}: {error}") from None

    told = (
        "Layers of each stage, or of each chunk in model order: 8,8,7, or as Megatron-Core says "
        "it, Et*3|(tt|)*29|L. [default: as the software splits]"
    )
    return Converted(told, None, read, tasks=PRETRAIN)


def degree(help: str, **more: Any) -> Any:
    """Field of a degree that is 1 unless it is given."""
    return whole(help, 1, most=1e6, **more)


def switch(help: str) -> Any:
    """Field of an overlap, which is on unless it is given."""
    return text(help, "on", known=("on", "off"), tasks=PRETRAIN)


_whole: Callable[..., Any] = whole
_text: Callable[..., Any] = text
SHARDED: dict[str, Any] = {"instead": "--zero 3 shards over all GPUs"}
SIZED: dict[str, Any] = {"common": 1, "tasks": (*TRAIN, "params")}


@dataclass(kw_only=True)
class Dimensions(JobOptions):
    """What a layout is made of, as one says it; `Pins` are the same, a list or a range each."""

    GROUP: ClassVar[str] = "layout"
    OF_TASKS: ClassVar[tuple[str, ...]] = TRAIN
    tp: Count = degree("Tensor-parallel degree.", common=1, tasks=TASKS)
    pp: Count = degree("Pipeline stages.", common=1, tasks=TASKS)
    vpp: Count = degree("Interleaved chunks of a stage.")
    dp: Size = _whole("Data-parallel degree.", most=1e6, **SIZED)
    cp: Count = degree("Context-parallel degree.", **SIZED)
    cp_kind: Habit = _text(
        f"Context parallelism by {', '.join(CONTEXT_KINDS)}. [default: the software's]",
        known=CONTEXT_KINDS,
    )
    ep: Count = degree("Expert-parallel degree.", common=1)
    etp: Size = _whole(
        "Tensor-parallel degree of the experts. [default: 1; Megatron-LM: as TP]", most=1e6
    )
    zero: Size = _whole(
        "ZeRO stage 0 to 3; 3 is FSDP. [default: the software's habit]", least=0, most=3, **SIZED
    )
    shard_group: Size = _whole(
        "GPUs of one shard group, fewer than dp*cp: HSDP.", tasks=("pretrain", "params"), **SHARDED
    )
    micro_batch: Size = _whole(
        "Sequences of a micro-batch. [default: 1, or the framework's]",
        most=1e6,
        group="batch",
        common=2,
    )
    sequence_parallel: Habit = _text(
        "Sequence parallelism beside TP: on or off. [default: the software's]", known=("on", "off")
    )
    recompute: Habit = _text(
        "Recomputed backwards: none, selective, full, per-op. [default: the software's]",
        known=RECOMPUTE,
        common=1,
    )
    recompute_layers: Size = _whole(
        "Layers of a stage that full recompute is for. [default: all]", most=1e6
    )
    schedule: Word = _text(f"Pipeline schedule: {', '.join(SCHEDULES)}.", "1f1b", known=SCHEDULES)
    pipeline_layout: Stages = pipeline_layout()
    overlap_tp: Word = switch("TP's exchanges behind its products: on or off.")
    overlap_dp: Word = switch("DP's exchanges behind the passes: on or off.")
    overlap_pp: Word = switch("Transfers between stages behind the passes: on or off.")
    order: Word = _text(
        f"Dimensions on the network, innermost first: {' or '.join(ORDERS)}.",
        ORDERS[0],
        known=ORDERS,
    )
    offload: Habit = _text(
        "Moved to the host: optimizer, activations, both or none.",
        known=("optimizer", "activations", "both", "none"),
    )


@dataclass(kw_only=True)
class Degrees(Dimensions):
    """A layout that is given in full: a degree that is not named is 1."""

    GROUP: ClassVar[str] = "layout"
    OF_TASKS: ClassVar[tuple[str, ...]] = TRAIN
    gpus: Asked[int | None] = whole(
        "GPUs used; the data-parallel degree follows.",
        most=1e7,
        group="machines",
        common=1,
        tasks=TASKS,
    )
    global_batch: Asked[int | None] = whole(
        "Sequences of a step. [default: a few micro-batches for each stage]",
        most=1e9,
        group="batch",
        common=1,
    )
    precision: Asked[str] = text(
        f"{PRECISIONS}.", "bf16", known=TRAINED, group="machines", common=1
    )
    software: Asked[str | None] = software()


def help_of(name: str) -> str:
    """Say what an option of a layout means, in every question that has it."""
    told: str = vars(Dimensions)[name].help
    return told.partition(" [default")[0]


def _pin(name: str) -> Asked[Any]:
    """Field of a dimension that is searched unless it is given: a value, a list or a range."""

    def read(value: Any, label: str) -> int | str:
        if isinstance(value, bool):
            return "on" if value else "off"
        shown = ",".join(str(part).strip() for part in parts(value))
        number = int(shown) if shown.isdecimal() and len(shown) < 10 else None
        if number == 0 and name != "zero":
            raise GpuscaleError(f"{label} must be at least 1")
        return shown if number is None else number

    of, told = vars(Dimensions)[name], help_of(name)
    words = "on|off" if told.endswith(": on or off.") else "WORD"
    same = {key: getattr(of, key) for key in ("group", "common", "tasks", "instead")}
    return Asked(told, None, read, metavar=of.metavar or words, **same)


def _searched(question: type[Dimensions]) -> type[Dimensions]:
    """Make each dimension of a question a pin, by its own name."""
    for name in fields_of(Dimensions).keys() - fields_of(JobOptions).keys() - {"pipeline_layout"}:
        question.__annotations__[name] = "int | str | Sequence[int] | None"
        setattr(question, name, pinned := _pin(name))
        pinned.__set_name__(question, name)
    return question


@dataclass(kw_only=True)
@_searched
class Pins(Dimensions):
    """A layout to be searched: what is given is pinned, to one value, a list or a range."""

    GROUP: ClassVar[str] = "layout"
    OF_TASKS: ClassVar[tuple[str, ...]] = TRAIN

    @property
    def pinned(self) -> dict[str, int | str]:
        """What is pinned, in the order of `core.plan.pins.FLAGS`."""
        from gpuscale.core.plan.pins import FLAGS

        found = {name: value for name in FLAGS if (value := getattr(self, name)) is not None}
        if self.pipeline_layout:
            found |= said_by_layout(self.pipeline_layout, found.get("pp"))
        return found


def said_by_layout(chunks: tuple[int, ...], pp: int | str | None) -> dict[str, int | str]:
    """Pins that the layers of each chunk mean: the stages, and the chunks of each.

    Raises GpuscaleError if the chunks do not divide over the stages.
    """
    stages = pp if isinstance(pp, int) else len(chunks)
    if len(chunks) % stages:
        raise GpuscaleError(f"--pipeline-layout: {len(chunks)} chunks do not divide over pp={pp}")
    vpp = len(chunks) // stages
    return {"pp": stages, "vpp": vpp, "pipeline_layout": ",".join(map(str, chunks))}
