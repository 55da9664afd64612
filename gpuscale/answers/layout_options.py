"""Options of the layout of a training job: searched unless pinned, or given in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuscale.answers.ask import PRETRAIN, SERVE, TASKS, TRAIN, Asked, Converted, text, whole
from gpuscale.answers.job_options import JobOptions
from gpuscale.answers.options import PRECISIONS, parts, software
from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.core.schedules import SCHEDULES
from gpuscale.errors import GpuscaleError

LAYOUT = {
    "tp": "Tensor-parallel degree.",
    "pp": "Pipeline stages.",
    "vpp": "Interleaved chunks of a stage.",
    "cp": "Context-parallel degree.",
    "cp_kind": f"Context parallelism by {', '.join(CONTEXT_KINDS)}.",
    "ep": "Expert-parallel degree.",
    "etp": "Tensor-parallel degree of the experts.",
    "dp": "Data-parallel degree.",
    "zero": "ZeRO stage 0 to 3; 3 is FSDP.",
    "shard_group": "GPUs of one shard group, fewer than dp*cp: HSDP.",
    "micro_batch": "Sequences of a micro-batch.",
    "sequence_parallel": "Sequence parallelism beside TP: on or off.",
    "recompute": "Recomputed backwards: none, selective, full, per-op.",
    "recompute_layers": "Layers of a stage that full recompute is for. [default: all]",
    "pipeline_layout": "Layers of each stage, or of each chunk in model order: 8,8,7, or as "
    "Megatron-Core says it, Et*3|(tt|)*29|L. [default: as the software splits]",
    "schedule": f"Pipeline schedule: {', '.join(SCHEDULES)}.",
    "overlap_tp": "TP's exchanges behind its products: on or off.",
    "overlap_dp": "DP's exchanges behind the passes: on or off.",
    "overlap_pp": "Transfers between stages behind the passes: on or off.",
    "offload": "Moved to the host: optimizer, activations, both or none.",
    "order": "Dimensions on the network, innermost first: tp-cp-dp-pp or tp-cp-pp-dp.",
}
"""What each option of a layout means, in every question that has it."""

Pin = Converted[int | str | None, int | str | Sequence[int]]
Stages = Converted[tuple[int, ...] | None, str | Sequence[int]]


def pin(name: str, **more: Any) -> Pin:
    """Field of a dimension that is searched unless it is given: a value, a list or a range."""

    def read(value: Any, label: str) -> int | str:
        if isinstance(value, bool):
            return "on" if value else "off"
        shown = ",".join(str(part).strip() for part in parts(value))
        number = int(shown) if shown.isdecimal() and len(shown) < 10 else None
        if number == 0 and name != "zero":
            raise GpuscaleError(f"{label} must be at least 1")
        return shown if number is None else number

    return Converted(LAYOUT[name], None, read, **{"metavar": "N"} | more)


def pipeline_layout() -> Stages:
    """Field of the layers of each stage or chunk."""

    def read(value: Any, label: str) -> tuple[int, ...]:
        from gpuscale.core.layout import layout_chunks

        text = value if isinstance(value, str) else ",".join(map(str, value))
        try:
            return tuple(layout_chunks(text))
        except ValueError as error:
            raise GpuscaleError(f"{label}: {error}") from None

    return Converted(LAYOUT["pipeline_layout"], None, read, tasks=PRETRAIN)


def degree(name: str, **more: Any) -> Asked[int]:
    """Field of a degree that is 1 unless it is given."""
    return whole(LAYOUT[name], 1, most=1e6, **more)


def switch(name: str) -> Asked[str]:
    """Field of an overlap, which is on unless it is given."""
    return text(LAYOUT[name], "on", known=("on", "off"), tasks=PRETRAIN)


SHARDED = "--zero 3 shards over all GPUs"
SIZED = (*TRAIN, "params")


@dataclass(kw_only=True)
class Pins(JobOptions):
    """A layout to be searched: what is given is pinned, to one value, a list or a range."""

    GROUP: ClassVar[str] = "layout"
    OF_TASKS: ClassVar[tuple[str, ...]] = TRAIN
    tp: Pin = pin("tp", common=1, tasks=(*TRAIN, *SERVE))
    pp: Pin = pin("pp", common=1, tasks=(*TRAIN, *SERVE))
    vpp: Pin = pin("vpp")
    dp: Pin = pin("dp", common=1)
    cp: Pin = pin("cp", common=1)
    cp_kind: Pin = pin("cp_kind", metavar="WORD")
    ep: Pin = pin("ep", common=1)
    etp: Pin = pin("etp")
    zero: Pin = pin("zero", common=1)
    shard_group: Pin = pin("shard_group", tasks=PRETRAIN, instead=SHARDED)
    micro_batch: Pin = pin("micro_batch", common=2, group="batch")
    sequence_parallel: Pin = pin("sequence_parallel", metavar="on|off")
    recompute: Pin = pin("recompute", common=1, metavar="WORD")
    recompute_layers: Pin = pin("recompute_layers")
    schedule: Pin = pin("schedule", metavar="WORD")
    pipeline_layout: Stages = pipeline_layout()
    overlap_tp: Pin = pin("overlap_tp", tasks=PRETRAIN, metavar="on|off")
    overlap_dp: Pin = pin("overlap_dp", tasks=PRETRAIN, metavar="on|off")
    overlap_pp: Pin = pin("overlap_pp", tasks=PRETRAIN, metavar="on|off")
    offload: Pin = pin("offload", metavar="WORD")
    order: Pin = pin("order", metavar="WORD")

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


@dataclass(kw_only=True)
class Degrees(JobOptions):
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
    tp: Asked[int] = degree("tp", common=1, tasks=TASKS)
    pp: Asked[int] = degree("pp", common=1, tasks=TASKS)
    vpp: Asked[int] = degree("vpp")
    dp: Asked[int | None] = whole(LAYOUT["dp"], most=1e6, common=1, tasks=SIZED)
    cp: Asked[int] = degree("cp", common=1, tasks=SIZED)
    cp_kind: Asked[str | None] = text(
        f"{LAYOUT['cp_kind']} [default: the software's]", known=CONTEXT_KINDS
    )
    ep: Asked[int] = degree("ep", common=1)
    etp: Asked[int | None] = whole(
        f"{LAYOUT['etp']} [default: 1; Megatron-LM: as TP]", most=1e6, common=0
    )
    zero: Asked[int | None] = whole(
        f"{LAYOUT['zero']} [default: the software's habit]", least=0, most=3, common=1, tasks=SIZED
    )
    shard_group: Asked[int | None] = whole(
        LAYOUT["shard_group"], tasks=("pretrain", "params"), instead=SHARDED
    )
    micro_batch: Asked[int | None] = whole(
        "Sequences of a micro-batch. [default: 1, or the framework's]",
        most=1e6,
        group="batch",
        common=2,
    )
    global_batch: Asked[int | None] = whole(
        "Sequences of a step. [default: a few micro-batches for each stage]",
        most=1e9,
        group="batch",
        common=1,
    )
    sequence_parallel: Asked[str | None] = text(
        f"{LAYOUT['sequence_parallel']} [default: the software's]", known=("on", "off")
    )
    recompute: Asked[str | None] = text(
        f"{LAYOUT['recompute']} [default: the software's]",
        known=("none", "selective", "full", "per-op"),
        common=1,
    )
    recompute_layers: Asked[int | None] = whole(LAYOUT["recompute_layers"], most=1e6)
    schedule: Asked[str] = text(LAYOUT["schedule"], "1f1b", known=SCHEDULES)
    pipeline_layout: Stages = pipeline_layout()
    overlap_tp: Asked[str] = switch("overlap_tp")
    overlap_dp: Asked[str] = switch("overlap_dp")
    overlap_pp: Asked[str] = switch("overlap_pp")
    order: Asked[str] = text(LAYOUT["order"], "tp-cp-dp-pp", known=("tp-cp-dp-pp", "tp-cp-pp-dp"))
    offload: Asked[str | None] = text(
        LAYOUT["offload"], known=("optimizer", "activations", "both", "none")
    )
    precision: Asked[str] = text(
        f"{PRECISIONS}.",
        "bf16",
        known=("bf16", "fp16", "fp8", "mxfp8", "nvfp4"),
        group="machines",
        common=1,
    )
    software: Asked[str | None] = software()
