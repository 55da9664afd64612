"""torchtitan: a registered configuration and overrides of it on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.core.stages import split_text, splits_by_length
from gpuscale.errors import GpuscaleError
from gpuscale.launch.job import Written

if TYPE_CHECKING:
    from gpuscale.launch.job import TrainingLaunch

VERSION = "torchtitan 0.3.0"
REGISTRY = {
    "llama3-8b": ("llama3", "llama3_8b"),
    "llama3.1-8b": ("llama3", "llama3_8b"),
    "llama3-70b": ("llama3", "llama3_70b"),
    "llama3.1-70b": ("llama3", "llama3_70b"),
    "llama3.1-405b": ("llama3", "llama3_405b"),
    "qwen3-0.6b": ("qwen3", "qwen3_0_6b"),
    "qwen3-1.7b": ("qwen3", "qwen3_1_7b"),
    "qwen3-14b": ("qwen3", "qwen3_14b"),
    "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
}
"""Model preset -> `--module` and `--config` (torchtitan/models/*/config_registry.py)."""
LONGEST = {"deepseek-v3": 16_384}
"""Tokens that the rotary positions of a configuration reach, where that is short."""
NO_SEQUENCE_PARALLEL = "--parallelism.no-enable_sequence_parallel"
SCHEDULE = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe"}
RECOMPUTE = {"none": "none", "selective": "selective", "per-op": "selective", "full": "full"}


def write(job: TrainingLaunch) -> Written:
    """Write the overrides of torchtitan for a job.

    Raises GpuscaleError if torchtitan has no configuration of the model.
    """
    if job.model.name not in REGISTRY:
        raise GpuscaleError(
            f"torchtitan {VERSION.split()[1]} has no configuration of {job.model.name}",
            f"it has {', '.join(REGISTRY)}; `--framework megatron` writes any dense or MoE model",
        )
    module, config = REGISTRY[job.model.name]
    lay = job.layout
    if lay.seq_len > LONGEST.get(job.model.name, lay.seq_len):
        raise GpuscaleError(
            f"torchtitan's {config} reaches {LONGEST[job.model.name]:,} tokens, not {lay.seq_len:,}"
        )
    unsaid: list[str] = []
    given = options(job, unsaid)
    recompute = given.pop("activation_checkpoint.mode")
    apart = given.pop(NO_SEQUENCE_PARALLEL, None)
    flags = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    flags += [NO_SEQUENCE_PARALLEL] if apart else []
    if lay.pp > 1 or lay.ep > 1:  # no graphs of a pipeline, nor of an all-to-all that synchronises
        flags.append("--training.disable_cuda_graphs")
    if lay.offload_optimizer:
        flags.append("--training.enable_cpu_offload")
        unsaid.append("torchtitan offloads parameters and gradients beside the optimizer")
    _say(job, unsaid)
    return Written(
        framework="torchtitan",
        version=VERSION,
        files=(),
        train=(
            *("-m", "torchtitan.train", "--module", module, "--config", config),
            *flags,
            f"activation-checkpoint:{recompute}",
        ),
        unsaid=tuple(unsaid),
        environment=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),),
    )


def options(job: TrainingLaunch, unsaid: list[str] | None = None) -> dict[str, Any]:
    """List the overrides of a job's layout, batch and length.

    `unsaid`: gets what they cannot say. Raises GpuscaleError if torchtitan cannot split the layers
    into the stages.
    """
    lay = job.layout
    group = lay.shard_group_size or lay.dp * lay.cp
    replicate = lay.dp * lay.cp // group if lay.zero_stage else lay.dp
    return {
        "training.seq_len": lay.seq_len,
        "training.local_batch_size": _local_batch(job),
        "training.global_batch_size": lay.global_batch_size,
        "training.steps": job.steps or 100,
        "parallelism.data_parallel_replicate_degree": replicate,
        "parallelism.data_parallel_shard_degree": lay.dp // replicate if lay.zero_stage else 1,
        "parallelism.fsdp_reshard_after_forward": "always" if lay.zero_stage == 3 else "never",
        "parallelism.tensor_parallel_degree": lay.tp,
        "parallelism.context_parallel_degree": lay.cp,
        "parallelism.expert_parallel_degree": lay.ep,
        **_pipeline(job, [] if unsaid is None else unsaid),
        "activation_checkpoint.mode": RECOMPUTE[lay.recompute],
        **({NO_SEQUENCE_PARALLEL: True} if lay.tp > 1 and not lay.sequence_parallel else {}),
    }


def _local_batch(job: TrainingLaunch) -> int:
    """Sequences a rank takes at once: one micro-batch, or all of a step for a pipeline."""
    lay = job.layout
    return lay.micro_batch_size * (lay.n_micro_batches if lay.pp > 1 else 1)


def _pipeline(job: TrainingLaunch, unsaid: list[str]) -> dict[str, object]:
    lay = job.layout
    if lay.pp == 1:
        return {}
    found = splits_by_length(job.model.n_layers, lay.pp * lay.vpp)
    if not found:
        raise GpuscaleError(
            f"torchtitan cannot split {job.model.n_layers} layers into {lay.pp * lay.vpp} stages",
            "plan with another --pp or --vpp",
        )
    same = (split for split in found if split.counts == job.stage_layers)
    each, first, last, chunks = next(same, found[0])
    if chunks != job.stage_layers:
        unsaid.append(
            f"the split of layers {split_text(job.stage_layers)}; torchtitan makes "
            f"{split_text(chunks)}"
        )
    if lay.schedule not in SCHEDULE:
        unsaid.append(f"the schedule {lay.schedule} (1F1B is written)")
    schedule = "Interleaved1F1B" if lay.vpp > 1 else SCHEDULE.get(lay.schedule, "1F1B")
    return {
        "parallelism.pipeline_parallel_degree": lay.pp,
        "parallelism.pipeline_parallel_schedule": schedule,
        "parallelism.pipeline_parallel_microbatch_size": lay.micro_batch_size,
        "parallelism.pipeline_parallel_layers_per_stage": each,
        "parallelism.pipeline_parallel_first_stage_less_layers": first,
        "parallelism.pipeline_parallel_last_stage_less_layers": last,
    }


def _say(job: TrainingLaunch, unsaid: list[str]) -> None:
    """List what the command line of torchtitan cannot set."""
    lay = job.layout
    if job.model.name == "llama3.1-405b" and lay.precision != "fp8":
        unsaid.append(f"{lay.precision}: the configuration llama3_405b computes in float8")
    elif lay.precision != "bf16" and job.model.name != "llama3.1-405b":
        unsaid.append(f"{lay.precision}: a converter in the Python configuration, no option")
    if lay.recompute == "selective":
        unsaid.append("selective recomputation of attention: torchtitan's is per operation")
    if lay.zero_stage == 1:
        unsaid.append("ZeRO-1: FSDP2 shards gradients too (`never` reshards after the forward)")
    if lay.etp > 1:
        unsaid.append(f"expert tensor parallelism {lay.etp}")
    if lay.cp > 1 and "torchtitan" not in CONTEXT_KINDS[lay.cp_kind].said_as:
        unsaid.append(f"context parallelism by {lay.cp_kind}: torchtitan rotates (ring)")
    if lay.recompute_layers is not None:
        unsaid.append(f"recomputation of {lay.recompute_layers} layers a stage: all are written")
    if lay.offload_activations:
        unsaid.append("activations offloaded to the host")
