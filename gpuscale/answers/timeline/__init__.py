"""`gpuscale timeline`: one training step of a layout, laid out in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.render.document import Document


@command(
    app,
    "timeline",
    example="gpuscale timeline llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 32",
    headlines=("step_s", "window_s", "bubble_frac"),
)
def timeline(
    common: Common,
    model: Annotated[
        str, typer.Argument(help="Model preset, TOML file, Hugging Face config or -.")
    ],
    cluster: Annotated[
        str | None, typer.Option(help="Cluster preset, TOML file or -. [default: dgx-h100]")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU instead of a cluster: its usual node is taken.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPUs used; the data-parallel degree follows.")
    ] = None,
    tp: Annotated[str, typer.Option(help="Tensor-parallel degree.")] = "1",
    pp: Annotated[str, typer.Option(help="Pipeline stages.")] = "1",
    vpp: Annotated[str, typer.Option(help="Interleaved chunks per stage.")] = "1",
    cp: Annotated[str, typer.Option(help="Context-parallel degree.")] = "1",
    ep: Annotated[str, typer.Option(help="Expert-parallel degree.")] = "1",
    etp: Annotated[str, typer.Option(help="Tensor-parallel degree of the experts.")] = "1",
    dp: Annotated[str | None, typer.Option(help="Data-parallel degree.")] = None,
    zero: Annotated[
        str | None,
        typer.Option(help="ZeRO stage 0 to 3; 3 is FSDP. [default: the software's habit]"),
    ] = None,
    shard_group: Annotated[
        str | None, typer.Option(help="GPUs of one shard group, fewer than dp*cp: HSDP.")
    ] = None,
    micro_batch: Annotated[str, typer.Option(help="Sequences per micro-batch.")] = "1",
    global_batch: Annotated[
        str | None, typer.Option(help="Sequences per step. [default: 2 * dp * pp micro-batches]")
    ] = None,
    seq: Annotated[str, typer.Option(help="Tokens per sequence.")] = "4096",
    recompute: Annotated[
        str | None, typer.Option(help="none, selective, full or per-op. [default: the software's]")
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="Pipeline schedule: 1f1b, interleaved, zb-h1, dualpipe, gpipe.")
    ] = "1f1b",
    precision: Annotated[str, typer.Option(help="bf16, fp16, fp8, mxfp8 or nvfp4.")] = "bf16",
    offload: Annotated[
        str | None, typer.Option(help="Moved to the host: optimizer, activations, or both.")
    ] = None,
    software: Annotated[str, typer.Option(help="Framework family preset.")] = "megatron-core",
) -> Document:
    """One training step in time: passes, bubbles and exchanges of every pipeline stage.

    The expected step of `gpuscale plan`, for a layout that you give; `-o step.trace.json` writes
    it for ui.perfetto.dev.
    """
    if cluster is not None and gpu is not None:
        raise GpuscaleError("give --cluster or --gpu, not both")
    given: dict[str, Any] = dict(locals()) | {"catalogue": "vendor", "recipe": None}
    from gpuscale.answers.timeline.drawn import timeline_document

    return timeline_document(given)
