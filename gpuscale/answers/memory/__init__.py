"""`gpuscale memory`: what training or serving a model needs on each GPU, and whether it fits."""

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
    "memory",
    example="gpuscale memory llama3-70b --cluster dgx-h100 --tp 8 --pp 8",
    headlines=(
        "total_bytes",
        "per_gpu.total_bytes",
        "per_gpu.max_concurrency",
        "headroom_bytes",
        "fits",
    ),
)
def memory(
    common: Common,
    model: Annotated[
        str | None, typer.Argument(help="Model preset, TOML file, Hugging Face config or -.")
    ] = None,
    params: Annotated[
        str | None, typer.Option(help="Number of parameters instead of a model, as 70e9 or 70B.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster preset, TOML file or -. [default: dgx-h100]")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU instead of a cluster: its usual node is taken.")
    ] = None,
    catalogue: Annotated[
        str, typer.Option(help="Hardware figures: vendor, or documents (as they round).")
    ] = "vendor",
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
        str | None, typer.Option(help="Sequences per step. [default: dp * pp micro-batches]")
    ] = None,
    seq: Annotated[str, typer.Option("--seq-len", "--seq", help="Tokens per sequence.")] = "4096",
    recompute: Annotated[
        str | None, typer.Option(help="none, selective, full or per-op. [default: the software's]")
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="Pipeline schedule: 1f1b, interleaved, zb-h1, dualpipe, gpipe.")
    ] = "1f1b",
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Bytes per parameter: mixed-adam, book-min, fp32-adam, ... "
            "[default: the software's]"
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="bf16, fp16, fp8, mxfp8 or nvfp4.")] = "bf16",
    offload: Annotated[
        str | None, typer.Option(help="Moved to the host: optimizer, activations, or both.")
    ] = None,
    software: Annotated[str, typer.Option(help="Framework family preset.")] = "megatron-core",
    imbalance: Annotated[
        str, typer.Option(help="MoE: tokens of the busiest expert rank over the mean.")
    ] = "1",
    stages: Annotated[bool, typer.Option("--stages", help="Show every pipeline stage.")] = False,
    min_gpus: Annotated[
        bool, typer.Option("--min-gpus", help="Look for the smallest number of GPUs.")
    ] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serving instead of training.")] = False,
    weights: Annotated[
        str | None, typer.Option(help="Format of served weights: bf16, fp8, int4, ...")
    ] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV cache: bf16, fp8.")] = None,
    context: Annotated[str | None, typer.Option(help="Tokens in the cache of a sequence.")] = None,
    concurrency: Annotated[str | None, typer.Option(help="Sequences served at once.")] = None,
    dp_attention: Annotated[
        bool, typer.Option("--dp-attention", help="Serving: the cache splits over all GPUs.")
    ] = False,
) -> Document:
    """Memory per GPU of training or serving a model, by part, and whether it fits.

    Two columns: ideal is the formulas alone; expected adds the framework's overheads.
    """
    if (model is None) == (params is None):
        raise GpuscaleError(
            "give a model or --params, one of them",
            "for example `gpuscale memory llama3-70b --tp 8 --pp 8` or `--params 70e9`",
        )
    if cluster is not None and gpu is not None:
        raise GpuscaleError("give --cluster or --gpu, not both")
    given: dict[str, Any] = dict(locals())
    _refuse_mixed(given)
    if serve:
        from gpuscale.answers.memory.serve import serving_document

        return serving_document(given)
    if params is not None:
        from gpuscale.answers.memory.params import params_document

        return params_document(given)
    from gpuscale.answers.memory.train import training_document

    return training_document(given)


_SERVING = ("weights", "kv", "context", "concurrency", "dp_attention")
_TRAINING = ("zero", "shard_group", "global_batch", "recompute", "recipe", "offload", "dp")
_WITH_MODEL = ("global_batch", "recompute", "offload", "stages", "min_gpus", "serve")


_LAYOUT_DEFAULTS = {
    "vpp": "1",
    "ep": "1",
    "etp": "1",
    "micro_batch": "1",
    "seq": "4096",
    "schedule": "1f1b",
    "precision": "bf16",
    "software": "megatron-core",
    "imbalance": "1",
}
"""Options that only the training of a model reads, with their defaults."""


def _refuse_mixed(given: dict[str, Any]) -> None:
    """Refuse options of the other kind of question, which would silently do nothing."""
    wrong, why = (
        (_TRAINING, "has no meaning with --serve")
        if given["serve"]
        else (_SERVING, "needs --serve")
    )
    for name in wrong:
        if given[name]:
            raise GpuscaleError(f"--{name.replace('_', '-')} {why}")
    if given["params"] is not None or given["serve"]:
        for name, default in _LAYOUT_DEFAULTS.items():
            if given[name] != default:
                raise GpuscaleError(
                    f"--{name.replace('_', '-')} has a meaning for training a model only",
                    "for serving see --context and --concurrency" if given["serve"] else "",
                )
    if given["serve"] and (given["stages"] or given["cp"] != "1"):
        raise GpuscaleError("--stages and --cp have no meaning with --serve")
    if given["params"] is not None and not given["serve"]:
        for name in _WITH_MODEL:
            if given[name]:
                raise GpuscaleError(
                    f"--{name.replace('_', '-')} needs a model, not a number of parameters",
                    "list the models with `gpuscale presets`",
                )
