"""DeepSpeed: its JSON configuration and the launcher's line for a Hugging Face trainer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.launch.job import LaunchFile, Written

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.launch.job import TrainingLaunch

VERSION = "DeepSpeed 0.19.8"
FILE = "ds_config.json"


def write(job: TrainingLaunch) -> Written:
    """Write the DeepSpeed JSON of a job and the trainer's arguments that go with it."""
    lay = job.layout
    text = json.dumps(configuration(lay), indent=2) + "\n"
    return Written(
        framework="deepspeed",
        version=VERSION,
        files=(LaunchFile(FILE, text),),
        train=("train.py", *trainer_arguments(job), "--deepspeed", FILE),
        unsaid=_unsaid(lay),
    )


def trainer_arguments(job: TrainingLaunch) -> tuple[str, ...]:
    """Arguments of a Hugging Face trainer that must agree with a DeepSpeed or FSDP file."""
    lay = job.layout
    pairs = {
        "per_device_train_batch_size": lay.micro_batch_size,
        "gradient_accumulation_steps": lay.n_micro_batches,
        "max_steps": job.steps or 100,
        "learning_rate": "1e-5",
    }
    words = [word for key, value in pairs.items() for word in (f"--{key}", str(value))]
    words.append("--fp16" if lay.precision == "fp16" else "--bf16")
    if lay.recompute != "none":
        words.append("--gradient_checkpointing")
    return tuple(words)


def configuration(lay: Layout) -> dict[str, Any]:
    """Keys of a DeepSpeed JSON; numbers, never "auto", so that the file stands alone."""
    zero: dict[str, Any] = {
        "stage": lay.zero_stage,
        "overlap_comm": lay.overlap_dp,
        "contiguous_gradients": True,
    }
    if lay.zero_stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    if lay.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    made: dict[str, Any] = {
        "train_batch_size": lay.micro_batch_size * lay.n_micro_batches * lay.dp,
        "train_micro_batch_size_per_gpu": lay.micro_batch_size,
        "gradient_accumulation_steps": lay.n_micro_batches,
        "gradient_clipping": 1.0,
        "fp16" if lay.precision == "fp16" else "bf16": {"enabled": True},
        "zero_optimization": zero,
    }
    if lay.tp > 1:
        made["tensor_parallel"] = {"autotp_size": lay.tp}
    if lay.cp > 1:
        made["sequence_parallel_size"] = lay.cp
    return made


def _unsaid(lay: Layout) -> tuple[str, ...]:
    unsaid = []
    for word, degree in (("pipeline", lay.pp), ("expert", lay.ep)):
        if degree > 1:
            unsaid.append(f"{word} parallelism {degree}: set in the training script, not here")
    if lay.cp > 1 and "deepspeed" not in CONTEXT_KINDS[lay.cp_kind].said_as:
        unsaid.append(f"context parallelism by {lay.cp_kind}: DeepSpeed has Ulysses")
    if lay.precision not in ("bf16", "fp16"):
        unsaid.append(f"{lay.precision} products")
    if lay.recompute in ("selective", "per-op") or lay.recompute_layers is not None:
        unsaid.append("recomputation of parts: the trainer recomputes every layer")
    if lay.shard_group_size and lay.shard_group_size < lay.dp * lay.cp:
        unsaid.append(f"sharding in groups of {lay.shard_group_size}: hpZ shards the weights alone")
    if lay.offload_activations:
        unsaid.append("activations offloaded to the host")
    return tuple(unsaid)
