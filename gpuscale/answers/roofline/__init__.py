"""`gpuscale roofline`: chips, one parallelism's limit, or a model's whole board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command
from gpuscale.cli.completion import complete_cluster, complete_gpu, complete_model
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.roofline.axes import Numbers
    from gpuscale.io.inputs import Loaded
    from gpuscale.render.document import Document

AXES = ("dp", "fsdp", "moe-dp", "tp", "ep", "pp", "cp")
DEFAULT_CLUSTER = "dgx-h100"


def _complete_target(incomplete: str) -> list[str]:
    words = [word for word in ("chip", *AXES) if word.startswith(incomplete)]
    return words + complete_model(incomplete)


@command(
    app,
    "roofline",
    example="gpuscale roofline llama3-70b --cluster dgx-h100 --gpus 4096",
    headlines=(
        "tokens_per_gpu",
        "rows.*.ratio",
        "rows.*.need",
        "bf16_flop_per_s",
        "bf16_ridge_flop_per_byte",
    ),
)
def roofline(
    common: Common,
    target: Annotated[
        str,
        typer.Argument(
            help="A model; or one of chip, dp, fsdp, moe-dp, tp, ep, pp, cp.",
            autocompletion=_complete_target,
        ),
    ],
    subject: Annotated[
        str | None,
        typer.Argument(
            help="GPU of chip; cluster (or GPU) of one limit.", autocompletion=complete_cluster
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help=f"Cluster preset, GPU name or TOML. [default: {DEFAULT_CLUSTER}]",
            autocompletion=complete_cluster,
        ),
    ] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs of the job.")] = None,
    batch_tokens: Annotated[
        str | None, typer.Option(help="Tokens of the batch, as 4M; of one group for tp, ep, pp.")
    ] = None,
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", "--seq", help="Tokens of a sequence.")
    ] = None,
    tp: Annotated[str | None, typer.Option("--tp", help="Tensor parallel degree.")] = None,
    pp: Annotated[str | None, typer.Option("--pp", help="Pipeline stages.")] = None,
    cp: Annotated[str | None, typer.Option("--cp", help="Context parallel degree.")] = None,
    ep: Annotated[str | None, typer.Option("--ep", help="Expert parallel degree.")] = None,
    micro_batches: Annotated[str | None, typer.Option(help="Micro-batches of a step.")] = None,
    zero: Annotated[int, typer.Option(help="ZeRO stage of the board.", min=0, max=3)] = 1,
    hidden: Annotated[str | None, typer.Option(help="Model width D, for one limit.")] = None,
    ffn: Annotated[str | None, typer.Option(help="FFN (or expert) width F.")] = None,
    matrices: Annotated[
        int, typer.Option(help="Weight matrices of the MLP: 2, gated 3.", min=1, max=3)
    ] = 2,
    experts: Annotated[str | None, typer.Option(help="Experts E.")] = None,
    top_k: Annotated[str | None, typer.Option(help="Experts per token k.")] = None,
    layers: Annotated[str | None, typer.Option(help="Layers, for pp.")] = None,
    heads: Annotated[str | None, typer.Option(help="Heads, for tp and cp.")] = None,
    kv_heads: Annotated[str | None, typer.Option(help="KV heads, for cp.")] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Nodes that data parallelism spans, for its exact form.")
    ] = None,
    spans: Annotated[str | None, typer.Option(help="Nodes that one replica spans, for dp.")] = None,
    max_nodes: Annotated[
        str | None, typer.Option(help="Nodes a token is routed to at most, for ep.")
    ] = None,
    dispatch_bytes: Annotated[
        float, typer.Option(help="Bytes per element sent to experts (fp8: 1).", min=0.1, max=8)
    ] = 2.0,
    scope: Annotated[
        str | None, typer.Option(help="Only node or cluster, for dp, fsdp, moe-dp and tp.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="Second GPU beside the chip.", autocompletion=complete_gpu)
    ] = None,
    clock: Annotated[str | None, typer.Option(help="Clock of the chip, as '1.98 GHz'.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Number format of the matrix units. [default: bf16, or fp16 without it]"),
    ] = None,
    catalogue: Annotated[
        str, typer.Option(help="Hardware figures: vendor, or documents (as they round).")
    ] = "vendor",
) -> Document:
    """Chip figures and the limits of each parallelism for a model.

    Communication is compared with arithmetic that it could hide behind.
    """
    from gpuscale.answers.matmul_time import check_dtype
    from gpuscale.answers.roofline.axes import Numbers
    from gpuscale.answers.values import quantity, whole
    from gpuscale.io.inputs import load_inputs

    def number(text: str | None, name: str, most: float = 1e9) -> int | None:
        return None if text is None else whole(text, name, most=most)

    def where() -> str:
        if subject is not None and cluster is not None:
            raise GpuscaleError(f"the cluster is given twice: `{subject[:40]}` and --cluster")
        return subject or cluster or DEFAULT_CLUSTER

    if dtype is not None:
        dtype = dtype.strip().lower()
        check_dtype(dtype)
    name = target.strip().lower()
    if name == "chip":
        from gpuscale.answers.roofline.chip import chip_document
        from gpuscale.io.hardware import load_gpu

        if subject is None:
            raise GpuscaleError("chip wants a GPU", "for example `gpuscale roofline chip h100`")
        other = load_gpu(compare, catalogue) if compare else None
        hz = quantity(clock, "hz", "--clock", least=1e6, most=1e11) if clock else None
        loaded = load_inputs(common, gpu=subject, catalogue=catalogue)
        return chip_document(loaded, other, hz, catalogue)
    if compare or clock:
        raise GpuscaleError("--compare and --clock go with `roofline chip`")
    n_gpus = number(gpus, "--gpus", 1e7)
    if name == "network":
        raise GpuscaleError("networks have a command of their own", f"`gpuscale network {where()}`")
    numbers = Numbers(
        quantity(batch_tokens, "tokens", "--batch-tokens", least=1, most=1e15)
        if batch_tokens
        else None,
        n_gpus,
        number(nodes, "--nodes"),
        number(hidden, "--hidden"),
        number(ffn, "--ffn"),
        matrices,
        number(experts, "--experts"),
        number(top_k, "--top-k"),
        number(tp, "--tp"),
        number(ep, "--ep"),
        number(pp, "--pp"),
        number(cp, "--cp"),
        number(micro_batches, "--micro-batches"),
        number(layers, "--layers"),
        number(seq_len, "--seq-len"),
        number(heads, "--heads"),
        number(kv_heads, "--kv-heads"),
        number(max_nodes, "--max-nodes"),
        dispatch_bytes,
        number(spans, "--spans") or 1,
    )
    if name in AXES:
        from gpuscale.answers.roofline.axes import axis_document

        loaded = load_inputs(common, cluster=where(), catalogue=catalogue)
        return axis_document(
            loaded, name, numbers, _scope(scope), dtype or _default_dtype(loaded), catalogue
        )
    from gpuscale.answers.roofline.board import board_document

    _check_model(target)
    loaded = load_inputs(common, cluster=where(), model=target, catalogue=catalogue)
    _refuse_shape(numbers)
    return board_document(loaded, numbers, dtype or _default_dtype(loaded), zero, catalogue)


def _default_dtype(loaded: Loaded) -> str:
    """Training format of a GPU: bf16, or fp16 on those without it."""
    gpu = loaded.gpu
    return "fp16" if gpu.bf16_flop_per_s is None and gpu.fp16_flop_per_s else "bf16"


def _scope(text: str | None) -> str | None:
    if text is not None and text not in ("node", "cluster"):
        raise GpuscaleError(f"--scope must be node or cluster, got `{text[:40]}`")
    return text


def _refuse_shape(x: Numbers) -> None:
    """Refuse widths beside a model, which has its own."""
    given = {
        "--hidden": x.hidden,
        "--ffn": x.ffn,
        "--experts": x.experts,
        "--top-k": x.top_k,
        "--layers": x.layers,
        "--heads": x.heads,
        "--kv-heads": x.kv_heads,
    }
    for option, value in given.items():
        if value is not None:
            raise GpuscaleError(
                f"{option} goes with one limit; a model has its own",
                "`--set model.KEY=VALUE` changes the model",
            )


def _check_model(target: str) -> None:
    """Refuse an unknown word, naming the closest model or axis."""
    from gpuscale.errors import unknown_name
    from gpuscale.io.presets import find_preset, looks_like_path, preset_aliases, preset_names

    if target == "-" or looks_like_path(target) or find_preset("model", target):
        return
    known = [*AXES, "chip", *preset_names("model"), *preset_aliases("model")]
    raise unknown_name(
        "model or word",
        target,
        known,
        "chip, dp, fsdp, moe-dp, tp, ep, pp, cp, or a model of `gpuscale presets`",
    )
