"""`gpuscale roofline`: chips, one parallelism's limit, or a model's whole board."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, amount, text, whole
from gpuscale.answers.layout_options import help_of
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.io.inputs import Loaded
    from gpuscale.render.document import Document

AXES = ("dp", "fsdp", "moe-dp", "tp", "ep", "pp", "cp")


def complete_target(incomplete: str) -> list[str]:
    """Words that a target may be, and the names of models."""
    from gpuscale.io.presets import known_names

    words = ["chip", *AXES, *known_names("model")]
    return [word for word in words if word.startswith(incomplete.lower())]


@dataclass
class Roofline(options.Machine, Swept):
    """Chip figures and the limits of each parallelism for a model.

    Communication is compared with arithmetic that it could hide behind.
    """

    NAME: ClassVar[str] = "roofline"
    RESULTS: ClassVar[str] = (
        "parts.roofline_board:BoardAnswer parts.roofline_limit:LimitAnswer "
        "parts.roofline_chip:ChipAnswer"
    )
    EXAMPLE: ClassVar[str] = "gpuscale roofline llama3-70b --cluster dgx-h100 --gpus 4096"
    HEADLINES: ClassVar[str] = (
        "tokens_per_gpu rows.*.ratio rows.*.need bf16_flop_per_s bf16_ridge_flop_per_byte"
    )
    target: Asked[str] = text(
        "A model; or one of chip, dp, fsdp, moe-dp, tp, ep, pp, cp.", ..., complete=complete_target
    )
    subject: Asked[str | None] = text(
        "GPU of chip; cluster (or GPU) of one limit.", complete="cluster"
    )
    _: KW_ONLY
    gpus: Asked[int | None] = whole("GPUs of the job.", most=1e7)
    batch_tokens: Asked[float | None] = amount(
        "Tokens of the batch, as 4M; of one group for tp, ep, pp.", "tokens", least=1, most=1e15
    )
    seq_len: Asked[int | None] = options.seq_len()
    tp: Asked[int | None] = whole(help_of("tp"), most=1e9)
    pp: Asked[int | None] = whole(help_of("pp"), most=1e9)
    cp: Asked[int | None] = whole(help_of("cp"), most=1e9)
    ep: Asked[int | None] = whole(help_of("ep"), most=1e9)
    micro_batches: Asked[int | None] = whole("Micro-batches of a step.", most=1e9)
    zero: Asked[int] = whole("ZeRO stage of the board, 0 to 3.", 1, least=0, most=3)
    hidden: Asked[int | None] = whole("Model width D, for one limit.", most=1e9)
    ffn: Asked[int | None] = whole("FFN (or expert) width F.", most=1e9)
    matrices: Asked[int] = whole("Weight matrices of the MLP: 2, gated 3.", 2, most=3)
    experts: Asked[int | None] = whole("Experts E.", most=1e9)
    top_k: Asked[int | None] = whole("Experts per token k.", most=1e9)
    layers: Asked[int | None] = whole("Layers, for pp.", most=1e9)
    heads: Asked[int | None] = whole("Heads, for tp and cp.", most=1e9)
    kv_heads: Asked[int | None] = whole("KV heads, for cp.", most=1e9)
    nodes: Asked[int | None] = whole(
        "Nodes that data parallelism spans, for its exact form.", most=1e9
    )
    spans: Asked[int] = whole("Nodes that one replica spans, for dp.", 1, most=1e9)
    max_nodes: Asked[int | None] = whole("Nodes a token is routed to at most, for ep.", most=1e9)
    dispatch_bytes: Asked[float] = amount(
        "Bytes per element sent to experts (fp8: 1).", "bytes", 2.0, least=0.1, most=8
    )
    scope: Asked[str | None] = text(
        "Only node or cluster, for dp, fsdp, moe-dp and tp.", known=("node", "cluster")
    )
    compare: Asked[str | None] = text("Second GPU beside the chip.", complete="gpu")
    clock: Asked[float | None] = amount(
        "Clock of the chip, as '1.98 GHz'.", "hz", least=1e6, most=1e11
    )
    dtype: Asked[str | None] = text(
        "Number format of the matrix units. [default: bf16, or fp16 without it]"
    )

    def answer(self) -> Document:
        """Answer for a chip, one limit, or the whole board of a model."""
        from gpuscale.answers.values import check_dtype

        if self.dtype is not None:
            check_dtype(self.dtype.strip().lower())
        from gpuscale.io.inputs import load_inputs

        name = self.target.strip().lower()
        if name == "chip":
            return _chip(self)
        if self.compare or self.clock:
            raise GpuscaleError("--compare and --clock go with `roofline chip`")
        if name == "network":
            raise GpuscaleError(
                "networks have a command of their own", f"`gpuscale network {_where(self)}`"
            )
        model = None if name in AXES else self.target
        if model is not None:
            _check_model(model)
        where, figures = _where(self), self.catalogue
        loaded = load_inputs(self, cluster=where, model=model, catalogue=figures)
        if model is None:
            from gpuscale.answers.parts.roofline_limit import axis_document

            return axis_document(loaded, name, self, self.dtype or _default_dtype(loaded))
        from gpuscale.answers.parts.roofline_board import board_document

        _refuse_shape(self)
        return board_document(loaded, self, self.dtype or _default_dtype(loaded))


def _where(asked: Roofline) -> str:
    """Cluster that is meant: the second argument, or the option."""
    if asked.subject is None:
        return asked.where
    if asked.cluster is not None or asked.gpu is not None:
        option = "--cluster" if asked.cluster else "--gpu"
        raise GpuscaleError(f"the cluster is given twice: `{asked.subject[:40]}` and {option}")
    return asked.subject


def _chip(asked: Roofline) -> Document:
    from gpuscale.answers.parts.roofline_chip import chip_document
    from gpuscale.io.hardware import load_gpu
    from gpuscale.io.inputs import load_inputs

    gpu = asked.subject or asked.gpu
    if gpu is None:
        raise GpuscaleError("chip wants a GPU", "for example `gpuscale roofline chip h100`")
    other = load_gpu(asked.compare, asked.catalogue) if asked.compare else None
    loaded = load_inputs(asked, gpu=gpu, catalogue=asked.catalogue)
    return chip_document(loaded, other, asked.clock, asked.catalogue)


def _default_dtype(loaded: Loaded) -> str:
    """Training format of a GPU: bf16, or fp16 on those without it."""
    gpu = loaded.gpu
    return "fp16" if gpu.bf16_flop_per_s is None and gpu.fp16_flop_per_s else "bf16"


def _refuse_shape(x: Roofline) -> None:
    """Refuse widths beside a model, which has its own."""
    for name in ("hidden", "ffn", "experts", "top_k", "layers", "heads", "kv_heads"):
        if getattr(x, name) is not None:
            raise GpuscaleError(
                f"--{name.replace('_', '-')} goes with one limit; a model has its own",
                "`--set model.KEY=VALUE` changes the model",
            )


def _check_model(target: str) -> None:
    """Refuse an unknown word, naming the closest model or axis."""
    from gpuscale.io.presets import find_preset, known_names, looks_like_path

    there = looks_like_path(target) or os.path.exists(target)
    if target == "-" or there or find_preset("model", target):
        return
    if find_preset("gpu", target):
        hint = f"its figures are `gpuscale roofline chip {target}`; a model's limits on it are "
        hint += f"`gpuscale roofline MODEL --gpu {target}`"
        raise GpuscaleError(f"`{target}` is a GPU", hint)
    words = "chip, dp, fsdp, moe-dp, tp, ep, pp, cp, or a model of `gpuscale presets`"
    raise unknown_name("model or word", target, ["chip", *AXES, *known_names("model")], words)
