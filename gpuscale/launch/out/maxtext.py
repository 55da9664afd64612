"""MaxText: `key=value` arguments over its base configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.launch.job import Written

if TYPE_CHECKING:
    from gpuscale.launch.job import TrainingLaunch

VERSION = "MaxText 0.2.2"
REMAT = {"none": "minimal", "selective": "qkv_proj_offloaded", "per-op": "save_qkv_proj"}


def write(job: TrainingLaunch) -> Written:
    """Write the arguments of MaxText for a job: parallel degrees inside a slice, no data."""
    lay, model = job.layout, job.model
    unsaid: list[str] = []
    given: dict[str, object] = {
        "run_name": "gpuscale",
        "model_name": model.name,
        "dataset_type": "synthetic",
        "steps": job.steps or 100,
        "max_target_length": lay.seq_len,
        "per_device_batch_size": lay.global_batch_size / lay.n_gpus / lay.n_micro_batches
        if lay.pp == 1
        else lay.global_batch_size / lay.n_gpus,
        "ici_tensor_parallelism": lay.tp,
        "ici_context_parallelism": lay.cp,
        "ici_expert_parallelism": lay.ep,
        "ici_pipeline_parallelism": lay.pp,
        "ici_fsdp_parallelism": -1 if lay.zero_stage == 3 else 1,
        "ici_data_parallelism": 1 if lay.zero_stage == 3 else -1,
        "remat_policy": REMAT.get(lay.recompute, "full"),
        "dtype": "bfloat16",
    }
    if lay.pp == 1 and lay.n_micro_batches > 1:
        given["gradient_accumulation_steps"] = lay.n_micro_batches
    if lay.pp > 1:
        given["num_pipeline_microbatches"] = lay.n_micro_batches
        given["num_pipeline_repeats"] = lay.vpp
        if not job.even_stages:
            unsaid.append("stages of different length: MaxText wants equal ones")
    if lay.precision in ("fp8", "mxfp8"):
        given["quantization"] = "fp8"
    elif lay.precision == "nvfp4":
        unsaid.append("nvfp4 products")
    if lay.offload_optimizer:
        given["optimizer_memory_host_offload"] = "true"
    if lay.recompute_layers is not None:
        unsaid.append(f"recomputation of {lay.recompute_layers} layers a stage")
    words = [f"{key}={value}" for key, value in given.items()]
    return Written(
        framework="maxtext",
        version=VERSION,
        files=(),
        train=("-m", "MaxText.train", "MaxText/configs/base.yml", *words),
        unsaid=tuple(unsaid),
    )
