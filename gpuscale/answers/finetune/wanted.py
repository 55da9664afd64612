"""Layout options of `memory` and `plan` as fine-tuning takes them, and the layout they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import fields_of
from gpuscale.answers.legal import is_legal, refuse_illegal
from gpuscale.core.context import CONTEXT_KINDS, DEFAULT_CONTEXT
from gpuscale.core.finetune.method import GPTQ
from gpuscale.core.layout import ORDERS, PRECISIONS, RECOMPUTE, Layout
from gpuscale.core.records import made_of
from gpuscale.core.schedules import SCHEDULES
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.answers.finetune.asked import Tuning
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp")
"""Degrees beside data parallelism, 1 where they are not said."""

OFFLOADS = ("parameters", "gradients", "optimizer", "activations")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Layout options of either command, as far as fine-tuning takes them."""

    n_gpus: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    cp_kind: str | None = None
    ep: int = 1
    etp: int = 1
    zero: int | None = None
    micro_batch: int | None = None  # None: the software's habit
    global_batch: int | None = None
    sequence_parallel: bool | None = None
    recompute: str | None = None
    recompute_layers: int | None = None
    schedule: str = "1f1b"
    order: str = "tp-cp-dp-pp"
    precision: str | None = None
    offload: tuple[str, ...] | None = None  # None: the software's habit
    seq_len: int | None = None
    software: str | None = None

    @property
    def moved(self) -> tuple[str, ...]:
        """Parts that were asked to the host."""
        return self.offload or ()


def one(asked: Any, name: str, default: int) -> int:
    """Whole number of a dimension, which a plan may also be asked to search."""
    value = getattr(asked, name)
    if value is None:
        return default
    if not isinstance(value, int):
        raise GpuscaleError(
            f"--{name.replace('_', '-')}: one number is wanted with --method, --accumulation"
        )
    return value


NEEDS = {
    "vpp": ("pp",),
    "schedule": ("pp",),
    "cp_kind": ("cp",),
    "sequence_parallel": ("tp",),
    "order": ("tp", "pp", "cp"),
}
"""Options that do nothing unless one of these degrees is above 1."""


def _refuse_idle(asked: Any) -> None:
    """Refuse options that would do nothing at the degrees asked for."""
    fields = fields_of(type(asked))
    for name, degrees in NEEDS.items():
        if getattr(asked, name) == fields[name][0].default:
            continue
        if all(one(asked, d, 1) == 1 for d in degrees):
            needed = " or ".join(f"--{d}" for d in degrees)
            raise GpuscaleError(f"--{name.replace('_', '-')} needs {needed} above 1")


def accumulated(asked: Any, dp: int) -> int:
    """Sequences of a step of `dp` ranks by `--accumulation`."""
    if asked.global_batch:
        raise GpuscaleError("give --accumulation or --global-batch, not both")
    return max(1, dp) * one(asked, "micro_batch", 1) * int(asked.accumulation)


def with_accumulation(asked: Any, n_gpus: int | None) -> Any:
    """Say `--accumulation` of pre-training as the global batch of its ranks, data-parallel.

    Degrees that are left open are 1, as with a method: else the ranks would not be known.
    """
    if getattr(asked, "batch_tokens", ()):
        raise GpuscaleError("give --accumulation or --batch-tokens, not both")
    degrees = {name: one(asked, name, 1) for name in ("tp", "pp", "cp", "micro_batch")}
    split = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp = (n_gpus or split * one(asked, "dp", 1)) // split
    batch = accumulated(asked, dp)
    sizes = (batch,) if isinstance(asked.global_batch, tuple) else batch
    return replace(asked, accumulation=None, global_batch=sizes, **degrees)


def wanted_of(
    asked: Any, n_gpus: int, *, global_batch: int | None, seq_len: int | None, software: str | None
) -> Wanted:
    """Read the layout options of either command."""

    def word(name: str, known: Sequence[str]) -> str | None:
        value = getattr(asked, name)
        if value is not None and value not in known:
            raise unknown_name(name.replace("_", "-"), str(value), known, ", ".join(known))
        return None if value is None else str(value)

    split = one(asked, "tp", 1) * one(asked, "pp", 1) * one(asked, "cp", 1)
    dp = one(asked, "dp", 0)
    if dp and dp * split != n_gpus:
        raise GpuscaleError(f"--dp {dp} with tp*pp*cp = {split} means {dp * split} GPUs")
    _refuse_idle(asked)
    if asked.accumulation is not None:
        global_batch = accumulated(asked, n_gpus // split)
    recompute = word("recompute", RECOMPUTE)
    if recompute == "per-op":
        raise GpuscaleError("--recompute per-op has no meaning with --method", "full or none")
    together = word("sequence_parallel", ("on", "off"))
    return made_of(
        Wanted,
        asked,
        n_gpus=n_gpus,
        **{name: one(asked, name, 1) for name in DEGREES},
        cp_kind=word("cp_kind", tuple(CONTEXT_KINDS)),
        zero=None if asked.zero is None else one(asked, "zero", 0),
        micro_batch=one(asked, "micro_batch", 0) or None,
        global_batch=global_batch,
        sequence_parallel=None if together is None else together == "on",
        recompute=recompute,
        schedule=word("schedule", tuple(SCHEDULES)) or "1f1b",
        order=word("order", ORDERS) or ORDERS[0],
        precision=word("precision", PRECISIONS),
        offload=None if asked.offload is None else offloads_of(asked.offload),
        seq_len=seq_len,
        software=software,
    )


def offloads_of(value: Any) -> tuple[str, ...]:
    """Read `--offload`: parts separated by commas, `both` for optimizer and activations.

    >>> offloads_of("parameters,optimizer"), offloads_of("none")
    (('parameters', 'optimizer'), ())
    """
    words = [w.strip() for w in str(value or "none").lower().split(",")]
    if words == ["none"]:
        return ()
    if words == ["both"]:
        return ("optimizer", "activations")
    for word in words:
        if word not in OFFLOADS:
            raise unknown_name("offload", word, OFFLOADS, f"known: {', '.join(OFFLOADS)}, none")
    return tuple(dict.fromkeys(words))


def offload_of(wanted: Wanted, habits: FinetuneParameters, software: str) -> tuple[str, ...]:
    """Read what goes to the host: as asked, else what the software's own checkpointing moves.

    Raises GpuscaleError for what the software keeps on the GPU.
    """
    if never := [part for part in wanted.moved if part not in habits.offloads]:
        raise GpuscaleError(
            f"--offload {', '.join(never)}: {software} keeps them on the GPU",
            f"it moves {', '.join(habits.offloads)}; --software hf-deepspeed moves all of them",
        )
    if wanted.offload is not None:
        return wanted.offload
    own = habits.offload_inputs and wanted.recompute is None
    return ("activations",) if own else ()


def _recompute_of(wanted: Wanted, habits: FinetuneParameters, software: SoftwareSpec) -> str:
    """Read what is recomputed: some layers only where the framework can."""
    from gpuscale.io.software import capabilities_of

    kind = wanted.recompute or ("full" if wanted.recompute_layers else habits.recompute)
    if wanted.recompute_layers and (
        kind != "full" or not capabilities_of(software).recompute_layers
    ):
        raise GpuscaleError(
            f"--recompute-layers: {software.name} recomputes all layers or none",
            "--software megatron-swift with --recompute full recomputes some",
        )
    return kind


def _usual_micro(wanted: Wanted, dp: int, habit: int) -> int:
    """Micro-batch of the framework, no larger than the batch that was asked for."""
    each = max(1, (wanted.global_batch or habit * dp) // dp)
    return next(n for n in range(min(habit, each), 0, -1) if each % n == 0)


CP_KIND = "ulysses"
"""Context parallelism of fine-tuning frameworks, where they have several kinds."""


def layout_of(
    asked: Tuning,
    wanted: Wanted,
    model: ModelSpec,
    software: SoftwareSpec,
    seq_len: int,
    judge: SoftwareSpec,
) -> Layout:
    """Layout of a job, blanks by the software's habits.

    `judge`: the framework that was named, whose rules hold with a method and without one. Raises
    GpuscaleError for a layout that it cannot run.
    """
    from gpuscale.io.finetune import finetune_parameters
    from gpuscale.io.software import capabilities_of

    habits = finetune_parameters(software)
    split = wanted.tp * wanted.pp * wanted.cp
    if wanted.n_gpus % split:
        raise GpuscaleError(f"--gpus {wanted.n_gpus} is no multiple of tp*pp*cp = {split}")
    dp = wanted.n_gpus // split
    micro = wanted.micro_batch or _usual_micro(wanted, dp, habits.micro_batch)
    batch = wanted.global_batch or dp * micro * wanted.pp
    if batch % (dp * micro):
        raise GpuscaleError(
            f"--global-batch {batch} is no multiple of {dp} ranks * micro-batch {micro}",
            f"{-(-batch // (dp * micro)) * dp * micro} would be",
        )
    zero = wanted.zero
    if zero is None:  # context parallelism of such frameworks comes with shards
        zero = 3 if wanted.cp > 1 and habits.sharded else habits.zero_stage
        zero = min(zero, 2) if asked.base in GPTQ else zero
    together = wanted.sequence_parallel
    together = software.sequence_parallel if together is None else together
    offload = offload_of(wanted, habits, software.name)
    kinds = capabilities_of(judge).cp_kinds or (CP_KIND, DEFAULT_CONTEXT)
    kinds = tuple(sorted(kinds, key=lambda kind: kind != CP_KIND))
    layout = Layout(
        seq_len=seq_len,
        global_batch_size=batch,
        micro_batch_size=micro,
        dp=dp,
        **{name: getattr(wanted, name) for name in DEGREES},
        zero_stage=3 if "parameters" in offload and wanted.zero is None else zero,
        sequence_parallel=together and wanted.tp > 1,
        recompute=_recompute_of(wanted, habits, software),
        recompute_layers=wanted.recompute_layers,
        schedule=wanted.schedule,
        order=wanted.order,
        precision=wanted.precision or "bf16",
        cp_kind=wanted.cp_kind or kinds[0],
        offload_optimizer="optimizer" in offload,
        offload_activations="activations" in offload,
    )
    ways = [replace(layout, cp_kind=wanted.cp_kind or kind) for kind in kinds]
    layout = next((way for way in ways if is_legal(model, judge, way)), layout)
    refuse_illegal(model, judge, layout)
    return layout
