"""MaxText: `key=value` arguments over its base configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError
from gpuscale.launch.job import Written

if TYPE_CHECKING:
    from gpuscale.launch.job import TrainingLaunch

VERSION = "MaxText 0.2.2"
NAMES = {
    "deepseek-v3": "deepseek3-671b",
    "deepseek-v2-lite": "deepseek2-16b",
    "deepseek-v2": "deepseek2-236b",
    "llama4-scout": "llama4-17b-16e",
    "llama4-maverick": "llama4-17b-128e",
    "kimi-k2": "kimi-k2-1t",
}
"""Model preset -> MaxText's name, where they differ."""
MODELS = tuple(
    "gemma2-2b gemma2-9b gemma2-27b gemma3-4b gemma3-12b gemma3-27b gpt-oss-20b gpt-oss-120b "
    "gpt3-175b llama2-7b llama2-13b llama2-70b llama3-8b llama3-70b llama3.1-8b llama3.1-70b "
    "llama3.1-405b llama3.3-70b mistral-7b mixtral-8x7b mixtral-8x22b qwen2.5-1.5b qwen2.5-7b "
    "qwen2.5-14b qwen3-0.6b qwen3-1.7b qwen3-4b qwen3-8b qwen3-14b qwen3-32b qwen3-30b-a3b "
    "qwen3-235b-a22b".split()
)
"""Models that both have under one name (configs/models)."""
DOTS = "query_proj key_proj value_proj out_proj mlpwi mlpwi_0 mlpwi_1 mlpwo context".split()
REMAT: dict[str, dict[str, object]] = {
    "none": {"remat_policy": "custom", **dict.fromkeys(DOTS, "device")},
    "selective": {"remat_policy": "minimal"},
    "per-op": {"remat_policy": "save_qkv_proj"},
    "full": {"remat_policy": "full"},
}
"""Recomputation -> keys: all products kept, all but the attention's core, few, none."""
FP8 = {"fp8": "fp8", "mxfp8": "te_mxfp8"}
CONTEXT = {"ring": "ring", "all-gather": "all_gather"}
"""Kind of context parallelism -> `context_parallel_strategy`; a ring on GPUs alone."""


def write(job: TrainingLaunch) -> Written:
    """Write the arguments of MaxText for a job: no data.

    Raises GpuscaleError if MaxText does not have the model, or cannot run the layout.
    """
    lay, name = job.layout, job.model.name
    if name not in (*MODELS, *NAMES):
        raise GpuscaleError(
            f"{VERSION} has no configuration of {name}",
            "`--framework megatron` writes any dense or MoE model",
        )
    tpu = job.gpu_name.startswith("tpu")
    unsaid: list[str] = []
    given: dict[str, object] = {
        "run_name": "gpuscale",
        "model_name": NAMES.get(name, name),
        "hardware": "tpu" if tpu else "gpu",
        "dataset_type": "synthetic",
        "enable_checkpointing": "false",
        "steps": job.steps or 100,
        "max_target_length": lay.seq_len,
        **_batch(job),
        **_axes(job, tpu, unsaid),
        **REMAT[lay.recompute],
        "dtype": "bfloat16",
    }
    if not tpu:
        given |= {"attention": "cudnn_flash_te", "packing": "false"}
    given |= _context(job, tpu, unsaid)
    if lay.precision in FP8:
        given["quantization"] = FP8[lay.precision]
    elif lay.precision != "bf16":
        unsaid.append(f"{lay.precision} products")
    if lay.offload_optimizer:
        given["optimizer_memory_host_offload"] = "true"
    if lay.offload_activations:
        given |= {"remat_policy": "custom", "decoder_layer_input": "offload"}
    _say(job, unsaid)
    return Written(
        framework="maxtext",
        version=VERSION,
        files=(),
        train=(
            *("-m", "maxtext.trainers.pre_train.train"),
            *(f"{key}={value}" for key, value in given.items()),
        ),
        launcher="python",
        unsaid=tuple(unsaid),
    )


def options(job: TrainingLaunch) -> dict[str, Any]:
    """List the arguments of a job's layout and batch.

    Raises GpuscaleError if MaxText cannot run the layout.
    """
    tpu = job.gpu_name.startswith("tpu")
    return {
        **_batch(job),
        **_axes(job, tpu, []),
        **REMAT[job.layout.recompute],
        **_context(job, tpu, []),
    }


def _context(job: TrainingLaunch, tpu: bool, unsaid: list[str]) -> dict[str, str]:
    lay = job.layout
    if lay.cp == 1:
        return {}
    if lay.cp_kind not in CONTEXT or (tpu and lay.cp_kind == "ring"):
        unsaid.append(f"context parallelism by {lay.cp_kind}: keys are gathered")
        return {"context_parallel_strategy": "all_gather"}
    return {"context_parallel_strategy": CONTEXT[lay.cp_kind]}


def _batch(job: TrainingLaunch) -> dict[str, object]:
    """Sequences of a device, in one pass or in those of a pipeline (configs/types.py)."""
    lay = job.layout
    if lay.pp == 1 and lay.n_micro_batches > 1 and lay.precision == "fp8":
        raise GpuscaleError(
            "MaxText accumulates no gradients with fp8",
            "plan with a larger --micro-batch, a smaller --global-batch or --precision bf16",
        )
    if lay.pp == 1:
        given: dict[str, object] = {
            "per_device_batch_size": lay.global_batch_size / lay.n_gpus / lay.n_micro_batches
        }
        if lay.n_micro_batches > 1:
            given["gradient_accumulation_steps"] = lay.n_micro_batches
        return given
    if lay.n_micro_batches % lay.pp or not job.even_stages:
        raise GpuscaleError(
            "MaxText wants stages of as many layers each, and micro-batches a multiple of the "
            f"stages: not {lay.n_micro_batches} micro-batches on {lay.pp} stages",
            "plan with another --pp, --vpp or --global-batch",
        )
    return {
        "per_device_batch_size": lay.global_batch_size / lay.n_gpus,
        "num_pipeline_microbatches": lay.n_micro_batches,
        "num_layers_per_pipeline_stage": job.stage_layers[0],
        "num_pipeline_repeats": lay.vpp,
    }


def _axes(job: TrainingLaunch, tpu: bool, unsaid: list[str]) -> dict[str, object]:
    """Axes of the mesh: inside a slice (`ici_`), which is a node of GPUs, and over slices."""
    lay = job.layout
    if lay.dp % lay.ep:
        raise GpuscaleError(
            f"MaxText's expert axis is apart from its other axes: expert parallelism {lay.ep} must "
            f"divide data parallelism {lay.dp}",
            f"plan with --ep {math.gcd(lay.dp, lay.ep)}",
        )
    ranks = lay.dp // lay.ep
    group = lay.shard_group_size or lay.dp * lay.cp
    replicas = lay.dp * lay.cp // group if lay.zero_stage == 3 else ranks
    if ranks % replicas:
        unsaid.append(f"shards of {group} ranks")
        replicas = 1
    if lay.zero_stage == 2:
        unsaid.append("ZeRO-2 (ZeRO-1 is written)")
    tensor = "tensor_sequence" if lay.sequence_parallel else "tensor"
    degrees = {
        tensor: lay.tp,
        "context": lay.cp,
        "expert": lay.ep,
        "fsdp": ranks // replicas,
        "data": replicas,
        "pipeline": lay.pp,
    }
    room = lay.n_gpus if tpu else job.gpus_a_node
    given: dict[str, object] = {}
    for axis, degree in degrees.items():
        inner = math.gcd(degree, room)
        room //= inner
        given[f"ici_{axis}_parallelism"] = inner
        given[f"dcn_{axis}_parallelism"] = degree // inner
    if lay.zero_stage in (1, 2) and replicas > 1:
        given["shard_optimizer_over_data"] = "true"
    if room > 1:
        raise GpuscaleError(
            "MaxText lays whole axes over nodes: these degrees leave GPUs of a node idle",
            "plan with degrees that divide the GPUs of a node, or are multiples of them",
        )
    return {k: v for k, v in given.items() if v != 1 or "data" in k or "fsdp" in k}


def _say(job: TrainingLaunch, unsaid: list[str]) -> None:
    """List what its arguments cannot set."""
    lay = job.layout
    if lay.recompute == "none":
        unsaid.append("no recomputation: norms and activation functions are computed again")
    if lay.tp > 1 and not lay.sequence_parallel:
        unsaid.append("no sequence parallelism: the tensor axis splits activations too")
    if (lay.dp == lay.ep and lay.zero_stage and lay.dp * lay.cp > 1) or (
        lay.ep > 1 and lay.zero_stage < 3
    ):
        unsaid.append(f"ZeRO-{lay.zero_stage} over the ranks of experts or of context parallelism")
    if lay.recompute_layers is not None:
        unsaid.append(f"recomputation of {lay.recompute_layers} layers a stage: all are written")
    if lay.etp > 1 and lay.ep > 1 and lay.etp != lay.tp:
        unsaid.append(f"expert tensor parallelism {lay.etp}: experts are split as the rest")
