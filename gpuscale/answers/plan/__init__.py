"""`gpuscale plan`: the best layout of a training job, what it costs, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command

if TYPE_CHECKING:
    from gpuscale.render.document import Document

PIN = "one value, a list or a range: 8, 1,3, 4..16"


@command(
    app,
    "plan",
    example="gpuscale plan llama3-70b --gpus 4096",
    headlines=(
        "step_s",
        "roofline_s",
        "mfu",
        "tokens_per_s",
        "peak_bytes",
        "layout.tp",
        "layout.cp",
        "layout.pp",
        "layout.dp",
        "run.days",
        "chosen.n_gpus",
        "chosen.step_s",
        "chosen.mfu",
        "tp",
        "pp",
        "times.prefill_s",
        "times.decode_s",
        "times.tokens_per_s",
    ),
)
def plan(
    common: Common,
    model: Annotated[
        str | None, typer.Argument(help="Model preset, TOML file, Hugging Face config or -.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPUs; a range 512..16384 or a list is a scan.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster, or several, comma-separated. [default: dgx-h100]")
    ] = None,
    catalogue: Annotated[
        str | None, typer.Option(help="Hardware figures: vendor, or documents (as they round).")
    ] = None,
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", "--seq", help="Tokens of a sequence. [default: 8192]")
    ] = None,
    batch_tokens: Annotated[
        str | None,
        typer.Option(
            help="Tokens of a step, rounded to sequences that divide well. "
            "[default: the model's, or 4M]"
        ),
    ] = None,
    global_batch: Annotated[str | None, typer.Option(help="Sequences of a step, exactly.")] = None,
    tokens: Annotated[
        str | None, typer.Option(help="Tokens of the whole run, e.g. 15T. [default: the model's]")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="bf16, fp16, fp8, mxfp8, nvfp4, a list, or all. [default: bf16]"),
    ] = None,
    software: Annotated[
        str | None, typer.Option(help="Framework family preset. [default: megatron-core]")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="step-time, tokens-per-dollar, memory-headroom or fewest-gpus."),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(help="Of a GPU, e.g. '2.5 USD/h', or a=2USD/h,b=3USD/h by cluster."),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="PLAN.TOML", help="Read the job from a file.")
    ] = None,
    show_job: Annotated[
        bool, typer.Option("--show-job", help="Print the job as plan.toml, to edit and reuse.")
    ] = False,
    tp: Annotated[str | None, typer.Option(help=f"Tensor parallelism: {PIN}.")] = None,
    pp: Annotated[str | None, typer.Option(help="Pipeline stages.")] = None,
    vpp: Annotated[str | None, typer.Option(help="Interleaved chunks of a stage.")] = None,
    dp: Annotated[
        str | None, typer.Option(help="Whole replicas: leaves out ZeRO-3 unless --zero says so.")
    ] = None,
    cp: Annotated[str | None, typer.Option(help="Context parallelism.")] = None,
    cp_kind: Annotated[str | None, typer.Option(help="ring, all-gather, ulysses.")] = None,
    ep: Annotated[str | None, typer.Option(help="Expert parallelism.")] = None,
    etp: Annotated[str | None, typer.Option(help="Tensor parallelism of the experts.")] = None,
    zero: Annotated[str | None, typer.Option(help="ZeRO stage 0 to 3; 3 is FSDP.")] = None,
    shard_group: Annotated[str | None, typer.Option(help="GPUs of a shard group: HSDP.")] = None,
    micro_batch: Annotated[str | None, typer.Option(help="Sequences of a micro-batch.")] = None,
    sequence_parallel: Annotated[str | None, typer.Option(help="on, off or both.")] = None,
    recompute: Annotated[str | None, typer.Option(help="none, selective, full.")] = None,
    recompute_layers: Annotated[
        str | None, typer.Option(help="Layers of a stage that full recompute is for.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="1f1b, interleaved, zb-h1, dualpipe.")
    ] = None,
    overlap_tp: Annotated[str | None, typer.Option(help="on, off or both.")] = None,
    overlap_dp: Annotated[str | None, typer.Option(help="on, off or both.")] = None,
    overlap_pp: Annotated[str | None, typer.Option(help="on, off or both.")] = None,
    offload: Annotated[str | None, typer.Option(help="none, optimizer.")] = None,
    order: Annotated[
        str | None, typer.Option(help="Innermost first: tp-cp-dp-pp, tp-cp-pp-dp, or both.")
    ] = None,
    alternatives: Annotated[
        int, typer.Option(min=0, max=64, help="Next best process grids to show.")
    ] = 3,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Search again for every changed figure.")
    ] = False,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Fastest layout under each of some memory caps.")
    ] = False,
    deadline: Annotated[
        str | None, typer.Option(help="Find the smallest size that trains in time, e.g. 30d.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="The same within a budget, e.g. 5MUSD.")
    ] = None,
    mfu_at_least: Annotated[str | None, typer.Option(help="The same with an MFU, 0.4.")] = None,
    max_step_time: Annotated[
        str | None, typer.Option(help="The same with a step time, e.g. 5s.")
    ] = None,
    scaling: Annotated[
        str | None, typer.Option(help="Scaling over --gpus: strong (same batch) or weak.")
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serving instead of training.")] = False,
    weights: Annotated[
        str | None, typer.Option(help="Format of served weights: bf16, fp8, int4.")
    ] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV cache: bf16, fp8.")] = None,
    context: Annotated[str | None, typer.Option(help="Tokens in the cache of a sequence.")] = None,
    concurrency: Annotated[str | None, typer.Option(help="Sequences served at once.")] = None,
) -> Document:
    """Best layout of a training job on a cluster, its time, memory and cost.

    Every dimension that is not pinned is searched; the layout printed is the best of all.
    """
    flags: dict[str, Any] = dict(locals())
    if serve:
        from gpuscale.answers.plan.serve import serving_plan

        return serving_plan(flags)
    from gpuscale.answers.plan.train import training_plan

    return training_plan(flags)
