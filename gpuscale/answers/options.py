"""Options that several questions have: each is said once, so it means the same everywhere.

A question takes a group by inheriting it, or one option by calling its function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any, overload

from gpuscale.answers.ask import Asked, Converted, Question, Value, amount, text, whole
from gpuscale.answers.job_options import JobOptions
from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.core.schedules import SCHEDULES
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.io.inputs import Wires
    from gpuscale.specs.model import ModelSpec

DEFAULT_CLUSTER = "dgx-h100"
DEFAULT_SOFTWARE = "megatron-core"
DEFAULT_SEQ_LEN = 8192

CLUSTER = "Cluster preset, GPU name (its usual node), TOML file, or -."
MODEL = "Model preset, TOML file, Hugging Face config.json or folder, or -."
SEQ_LEN = (
    f"Tokens of a sequence; 32k is 32,768. [default: {DEFAULT_SEQ_LEN}, or the model's longest]"
)
GPU = "GPU instead of a cluster: its usual node is taken."
PRECISIONS = "bf16, fp16, fp8, mxfp8 or nvfp4"

# --- single options ----------------------------------------------------------------------------


def catalogue() -> Asked[str]:
    """Which hardware figures."""
    return text("Hardware figures: vendor, or documents (as they round).", "vendor")


@overload
def model(default: EllipsisType) -> Asked[str]: ...


@overload
def model(default: None = None) -> Asked[str | None]: ...


def model(default: Any = None) -> Any:
    """Model, as an argument."""
    return text(MODEL, default)


@overload
def seq_len(default: int, **more: Any) -> Asked[int]: ...


@overload
def seq_len(default: None = None, **more: Any) -> Asked[int | None]: ...


def seq_len(default: Any = None, **more: Any) -> Any:
    """Tokens of a sequence; of positions, k is 1,024."""
    help = SEQ_LEN if default is None else SEQ_LEN.partition(" [")[0]
    return whole(help, default, dim="positions", most=2**30, flags=("--seq",), **more)


def usual_seq_len(asked: int | None, model: ModelSpec) -> int:
    """Tokens of a sequence where none are asked for: what all questions take, or the longest."""
    return asked or min(DEFAULT_SEQ_LEN, model.max_position or DEFAULT_SEQ_LEN)


def software(fine_tuning: str = "") -> Asked[str | None]:
    """Framework of a training job."""
    tuned = f"; fine-tuning: {fine_tuning}" if fine_tuning else ""
    return text(f"Framework family preset. [default: {DEFAULT_SOFTWARE}{tuned}]")


def params() -> Asked[float | None]:
    """Bare number of parameters."""
    help = "Number of parameters instead of a model, as 70e9 or 70B."
    return amount(help, "count", most=1e16)


def context() -> Asked[float | None]:
    """Tokens that a served sequence has in its cache."""
    help = "Tokens in the cache of a sequence; 32k is 32,768. [default: 8192]"
    return amount(help, "positions", least=1.0, most=1e9)


def concurrency() -> Asked[int | None]:
    """Sequences served together."""
    return whole("Sequences served at once. [default: 1]", most=1e9)


# --- several values ----------------------------------------------------------------------------


def _parts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return value.split(",")
    return list(value) if isinstance(value, (list, tuple)) else [value]


def doubled(value: Any, read: Any) -> tuple[Any, ...]:
    """One number, a list, or a range ``512..16384`` in which it doubles."""
    found: list[Any] = []
    for part in _parts(value):
        low, dots, high = str(part).partition("..")
        first = read(low if dots else part)
        last = read(high) if dots else first
        if last < first:
            raise ValueError(str(part).strip()[:40])
        while first < last:
            found.append(first)
            first *= 2
        found.append(last)
    return tuple(sorted(set(found)))


Sizes = Converted[tuple[int, ...], Value | Sequence[int]]
Amounts = Converted[tuple[float, ...], Value | Sequence[float]]
Names = Converted[tuple[str, ...], str | Sequence[str]]


def sizes(help: str, most: float, dim: str = "count", **more: Any) -> Sizes:
    """Field of whole numbers: one, a list, or a range in which they double."""

    def read(value: Any, label: str) -> tuple[int, ...]:
        from gpuscale.answers.values import whole

        return _doubled(value, label, lambda v: whole(v, label, most=most, dim=dim))

    return Converted(help, (), read, **more)


def amounts(help: str, dim: str, most: float) -> Amounts:
    """Field of quantities: one, a list, or a range in which they double."""

    def read(value: Any, label: str) -> tuple[float, ...]:
        from gpuscale.answers.values import quantity

        return _doubled(value, label, lambda v: quantity(v, dim, label, least=1.0, most=most))

    return Converted(help, (), read)


def _doubled(value: Any, label: str, read: Any) -> tuple[Any, ...]:
    try:
        return doubled(value, read)
    except ValueError as error:
        raise GpuscaleError(f"{label} {error}: write the smaller number first") from None


def names(help: str, default: Sequence[str] = ()) -> Names:
    """Field of names, comma-separated."""

    def read(value: Any, label: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(str(part).strip() for part in _parts(value)))
        if not all(found):
            raise GpuscaleError(f"{label} {str(value)[:60]!r}: an empty name")
        return found

    return Converted(help, tuple(default), read)


# --- the machine -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Machine(Question):
    """Cluster or GPU, and whose figures of it."""

    cluster: Asked[str | None] = text(f"{CLUSTER} [default: {DEFAULT_CLUSTER}]")
    gpu: Asked[str | None] = text(GPU)
    catalogue: Asked[str] = catalogue()

    @property
    def where(self) -> str:
        """Cluster that is meant.

        Raises GpuscaleError if it is given twice.
        """
        if self.cluster is not None and self.gpu is not None:
            raise GpuscaleError("give --cluster or --gpu, not both")
        return self.cluster or self.gpu or DEFAULT_CLUSTER


PEERS = ("p2p", "host", "bridge")


@dataclass(kw_only=True)
class Wired(Question):
    """How the nodes are built, where they are not a preset's."""

    gpus_per_node: Asked[int | None] = whole("GPUs of a node.", most=4096)
    nics: Asked[int | None] = whole("NICs of a node (rails).", most=256)
    link: Asked[float | None] = amount("Speed of one port of a NIC, e.g. 400Gb/s.", "bytes_per_s")
    peer: Asked[str | None] = text(
        "How cards on PCIe reach each other: p2p, host (no peer access: through host memory) or "
        "bridge (NVLink bridges of pairs). [default: as the card's driver allows]",
        known=PEERS,
    )

    @property
    def wires(self) -> Wires | None:
        """Nodes as they are asked for; None: those of the preset."""
        from gpuscale.io.inputs import Wires

        found = Wires(self.gpus_per_node, self.nics, self.link, self.peer)
        return found if found != Wires() else None


# --- the layout of a training job --------------------------------------------------------------

LAYOUT = {
    "tp": "Tensor-parallel degree.",
    "pp": "Pipeline stages.",
    "vpp": "Interleaved chunks of a stage.",
    "cp": "Context-parallel degree.",
    "cp_kind": f"Context parallelism by {', '.join(CONTEXT_KINDS)}.",
    "ep": "Expert-parallel degree.",
    "etp": "Tensor-parallel degree of the experts.",
    "dp": "Data-parallel degree: whole replicas.",
    "zero": "ZeRO stage 0 to 3; 3 is FSDP.",
    "shard_group": "GPUs of one shard group, fewer than dp*cp: HSDP.",
    "micro_batch": "Sequences of a micro-batch.",
    "sequence_parallel": "Sequence parallelism beside TP: on or off.",
    "recompute": "Recomputed in the backward pass: none, selective, full (all layers) or per-op.",
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


def pin(name: str) -> Pin:
    """Field of a dimension that is searched unless it is given: a value, a list or a range."""

    def read(value: Any, label: str) -> int | str:
        if isinstance(value, bool):
            return "on" if value else "off"
        shown = ",".join(str(part).strip() for part in _parts(value))
        return int(shown) if shown.isdecimal() and len(shown) < 10 else shown

    return Converted(LAYOUT[name], None, read)


def pipeline_layout() -> Stages:
    """Field of the layers of each stage or chunk."""

    def read(value: Any, label: str) -> tuple[int, ...]:
        from gpuscale.core.layout import layout_chunks

        text = value if isinstance(value, str) else ",".join(map(str, value))
        try:
            return tuple(layout_chunks(text))
        except ValueError as error:
            raise GpuscaleError(f"{label}: {error}") from None

    return Converted(LAYOUT["pipeline_layout"], None, read)


def degree(name: str) -> Asked[int]:
    """Field of a degree that is 1 unless it is given."""
    return whole(LAYOUT[name], 1, most=1e6)


@dataclass(kw_only=True)
class Pins(JobOptions):
    """A layout to be searched: what is given is pinned, to one value, a list or a range."""

    tp: Pin = pin("tp")
    pp: Pin = pin("pp")
    vpp: Pin = pin("vpp")
    dp: Pin = pin("dp")
    cp: Pin = pin("cp")
    cp_kind: Pin = pin("cp_kind")
    ep: Pin = pin("ep")
    etp: Pin = pin("etp")
    zero: Pin = pin("zero")
    shard_group: Pin = pin("shard_group")
    micro_batch: Pin = pin("micro_batch")
    sequence_parallel: Pin = pin("sequence_parallel")
    recompute: Pin = pin("recompute")
    recompute_layers: Pin = pin("recompute_layers")
    schedule: Pin = pin("schedule")
    pipeline_layout: Stages = pipeline_layout()
    overlap_tp: Pin = pin("overlap_tp")
    overlap_dp: Pin = pin("overlap_dp")
    overlap_pp: Pin = pin("overlap_pp")
    offload: Pin = pin("offload")
    order: Pin = pin("order")

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

    gpus: Asked[int | None] = whole("GPUs used; the data-parallel degree follows.", most=1e7)
    tp: Asked[int] = degree("tp")
    pp: Asked[int] = degree("pp")
    vpp: Asked[int] = degree("vpp")
    dp: Asked[int | None] = whole(LAYOUT["dp"], most=1e6)
    cp: Asked[int] = degree("cp")
    cp_kind: Asked[str | None] = text(
        f"{LAYOUT['cp_kind']} [default: the software's]", known=CONTEXT_KINDS
    )
    ep: Asked[int] = degree("ep")
    etp: Asked[int] = degree("etp")
    zero: Asked[int | None] = whole(
        f"{LAYOUT['zero']} [default: the software's habit]", least=0, most=3
    )
    shard_group: Asked[int | None] = whole(LAYOUT["shard_group"])
    micro_batch: Asked[int] = degree("micro_batch")
    global_batch: Asked[int | None] = whole(
        "Sequences of a step. [default: a few micro-batches for each stage]", most=1e9
    )
    sequence_parallel: Asked[str | None] = text(
        f"{LAYOUT['sequence_parallel']} [default: the software's]", known=("on", "off")
    )
    recompute: Asked[str | None] = text(
        f"{LAYOUT['recompute']} [default: the software's]",
        known=("none", "selective", "full", "per-op"),
    )
    recompute_layers: Asked[int | None] = whole(LAYOUT["recompute_layers"], most=1e6)
    schedule: Asked[str] = text(LAYOUT["schedule"], "1f1b", known=SCHEDULES)
    pipeline_layout: Stages = pipeline_layout()
    overlap_tp: Asked[str] = text(LAYOUT["overlap_tp"], "on", known=("on", "off"))
    overlap_dp: Asked[str] = text(LAYOUT["overlap_dp"], "on", known=("on", "off"))
    overlap_pp: Asked[str] = text(LAYOUT["overlap_pp"], "on", known=("on", "off"))
    order: Asked[str] = text(LAYOUT["order"], "tp-cp-dp-pp", known=("tp-cp-dp-pp", "tp-cp-pp-dp"))
    offload: Asked[str | None] = text(
        LAYOUT["offload"], known=("optimizer", "activations", "both", "none")
    )
    precision: Asked[str] = text(
        f"{PRECISIONS}.", "bf16", known=("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
    )
    software: Asked[str | None] = software()
