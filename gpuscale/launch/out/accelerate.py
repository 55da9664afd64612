"""Hugging Face accelerate: the YAML of an FSDP2 job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.launch.job import LaunchFile, Written
from gpuscale.launch.out.deepspeed import trainer_arguments

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.launch.job import TrainingLaunch

VERSION = "accelerate 1.15.0"
FILE = "fsdp.yaml"


def write(job: TrainingLaunch) -> Written:
    """Write the accelerate file of a job; the trainer's arguments carry batch and accumulation."""
    lay = job.layout
    return Written(
        framework="accelerate",
        version=VERSION,
        files=(LaunchFile(FILE, _yaml(job)),),
        train=("train.py", *trainer_arguments(job)),
        unsaid=_unsaid(lay),
    )


def _yaml(job: TrainingLaunch) -> str:
    lay = job.layout
    group = lay.shard_group_size or lay.dp * lay.cp
    replicate = lay.dp * lay.cp // group
    sharded = group > 1 and lay.zero_stage > 0
    lines = [
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {'FSDP' if sharded else 'MULTI_GPU'}",
        f"num_machines: {job.n_nodes}",
        f"num_processes: {lay.n_gpus}",
        "machine_rank: 0  # of this machine; the launcher's own --machine_rank wins",
        f"mixed_precision: {'fp16' if lay.precision == 'fp16' else 'bf16'}",
        "main_training_function: main",
        "use_cpu: false",
    ]
    if job.n_nodes > 1:
        lines += ["main_process_ip: HEAD_NODE", "main_process_port: 29500"]
        lines += ["rdzv_backend: c10d", "same_network: true"]
    fsdp = [
        "fsdp_config:",
        "  fsdp_version: 2",
        f"  fsdp_reshard_after_forward: {str(lay.zero_stage == 3).lower()}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "  fsdp_state_dict_type: SHARDED_STATE_DICT",
        f"  fsdp_offload_params: {str(lay.offload_optimizer).lower()}",
        f"  fsdp_activation_checkpointing: {str(lay.recompute != 'none').lower()}",
        "  fsdp_cpu_ram_efficient_loading: true",
    ]
    lines += fsdp if sharded else []
    if lay.tp > 1 or lay.cp > 1 or replicate > 1:
        replicate, shard = (replicate, lay.dp // replicate) if sharded else (lay.dp, 1)
        sizes = {"dp_replicate": replicate, "dp_shard": shard, "tp": lay.tp}
        sizes[CONTEXT_KINDS[lay.cp_kind].said_as.get("accelerate", "cp")] = lay.cp
        lines.append("parallelism_config:")
        lines += [f"  parallelism_config_{name}_size: {n}" for name, n in sizes.items()]
    return "\n".join(lines) + "\n"


def _unsaid(lay: Layout) -> tuple[str, ...]:
    unsaid = []
    for word, degree in (("pipeline", lay.pp), ("expert", lay.ep)):
        if degree > 1:
            unsaid.append(f"{word} parallelism {degree}: accelerate has none")
    if lay.zero_stage < 2:
        unsaid.append(f"ZeRO-{lay.zero_stage}: FSDP2 shards gradients and optimizer")
    if lay.cp > 1 and "accelerate" not in CONTEXT_KINDS[lay.cp_kind].said_as:
        unsaid.append(f"context parallelism by {lay.cp_kind}: accelerate has ring and Ulysses")
    if lay.precision not in ("bf16", "fp16"):
        unsaid.append(f"{lay.precision}: `mixed_precision: fp8` needs a recipe section of its own")
    if lay.recompute in ("selective", "per-op") or lay.recompute_layers is not None:
        unsaid.append("recomputation of parts: FSDP recomputes every layer")
    if lay.offload_activations:
        unsaid.append("activations offloaded to the host")
    return tuple(unsaid)
