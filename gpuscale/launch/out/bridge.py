"""Megatron-Bridge: a recipe of its library and the overrides of its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.errors import GpuscaleError
from gpuscale.launch.job import Written

if TYPE_CHECKING:
    from gpuscale.launch.job import TrainingLaunch

VERSION = "Megatron-Bridge 0.7.0 (source of 2026-08-22)"
RECIPES = {
    "llama3-8b": "llama3_8b",
    "llama3-70b": "llama3_70b",
    "llama3.1-8b": "llama31_8b",
    "llama3.1-70b": "llama31_70b",
    "llama3.1-405b": "llama31_405b",
    "qwen2.5-7b": "qwen25_7b",
    "qwen2.5-14b": "qwen25_14b",
    "qwen2.5-32b": "qwen25_32b",
    "qwen2.5-72b": "qwen25_72b",
    "qwen3-8b": "qwen3_8b",
    "qwen3-14b": "qwen3_14b",
    "qwen3-32b": "qwen3_32b",
    "qwen3-30b-a3b": "qwen3_30b_a3b",
    "qwen3-235b-a22b": "qwen3_235b_a22b",
    "deepseek-v2-lite": "deepseek_v2_lite",
    "deepseek-v3": "deepseek_v3",
    "gpt-oss-20b": "gpt_oss_20b",
    "gpt-oss-120b": "gpt_oss_120b",
}
"""Model preset -> stem of its recipe (`src/megatron/bridge/recipes`)."""
PRECISION = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Names of `mixed_precision` (`training/mixed_precision.py`)."""


def write(job: TrainingLaunch) -> Written:
    """Write the command of a recipe with the layout as overrides.

    Raises GpuscaleError if Megatron-Bridge has no recipe of the model.
    """
    name = job.model.name
    if name not in RECIPES:
        raise GpuscaleError(
            f"Megatron-Bridge has no recipe of {name}",
            f"it has {', '.join(RECIPES)}; --framework megatron writes any model",
        )
    unsaid: list[str] = []
    given = _layout(job, unsaid) | _sharding(job) | _settings(job)
    words = [f"{key}={_text(value)}" for key, value in given.items()]
    select = ("--model", RECIPES[name], "--mode", "pretrain", "--dataset", "mock")
    return Written(
        framework="megatron-bridge",
        version=VERSION,
        files=(),
        train=("scripts/training/run_recipe.py", *select, *words),
        unsaid=tuple(unsaid),
    )


def _text(value: Any) -> str:
    """Value as an override says it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return f"[{','.join(map(str, value))}]" if isinstance(value, (list, tuple)) else str(value)


def _layout(job: TrainingLaunch, unsaid: list[str]) -> dict[str, Any]:
    lay = job.layout
    given: dict[str, Any] = {
        "dataset.seq_length": lay.seq_len,
        "train.global_batch_size": lay.global_batch_size,
        "train.micro_batch_size": lay.micro_batch_size,
        "train.train_iters": job.steps or 100,
        "mixed_precision": PRECISION[lay.precision],
        "model.tensor_model_parallel_size": lay.tp,
        "model.pipeline_model_parallel_size": lay.pp,
        "model.virtual_pipeline_model_parallel_size": lay.vpp if lay.vpp > 1 else None,
        "model.context_parallel_size": lay.cp,
        "model.sequence_parallel": lay.sequence_parallel and lay.tp > 1,
        "model.tp_comm_overlap": lay.tp > 1 and lay.sequence_parallel and lay.overlap_tp,
    }
    if lay.cp > 1:
        given["model.cp_comm_type"] = (
            CONTEXT_KINDS[lay.cp_kind].said_as["megatron"].replace("allgather", "all_gather")
        )
    if any(f.kind == "moe" for f in job.model.ffns.values()):
        given["model.expert_model_parallel_size"] = lay.ep
        given["model.expert_tensor_parallel_size"] = lay.etp
    if lay.pp > 1 and (not job.even_stages or job.model.n_mtp_layers):
        chunks = ["t" * n for n in job.stage_layers]
        chunks[0] = "E" + chunks[0]
        chunks[-1] += "m" * job.model.n_mtp_layers + "L"
        given["model.pipeline_model_parallel_layout"] = f"'{'|'.join(chunks)}'"
    if lay.recompute in ("full", "selective"):
        given["model.recompute_granularity"] = lay.recompute
    if lay.recompute == "full":
        whole = lay.recompute_layers is None
        given["model.recompute_method"] = "uniform" if whole else "block"
        given["model.recompute_num_layers"] = 1 if whole else lay.recompute_layers
    elif lay.recompute == "per-op":
        unsaid.append("recomputation per operation")
    if lay.schedule not in ("1f1b", "interleaved"):
        unsaid.append(f"the schedule {lay.schedule}")
    if lay.offload_activations:
        unsaid.append("activations offloaded to the host")
    if lay.offload_optimizer:
        given["optimizer.optimizer_cpu_offload"] = True
        given["optimizer.use_precision_aware_optimizer"] = True
    return given


def _sharding(job: TrainingLaunch) -> dict[str, Any]:
    lay = job.layout
    given: dict[str, Any] = {
        "ddp.use_distributed_optimizer": lay.zero_stage >= 1,
        "ddp.overlap_grad_reduce": lay.overlap_dp,
        "ddp.overlap_param_gather": lay.overlap_dp and lay.zero_stage >= 1,
    }
    if lay.zero_stage >= 2:
        sharding = "optim_grads" if lay.zero_stage == 2 else "optim_grads_params"
        given |= {
            "ddp.use_megatron_fsdp": True,
            "ddp.data_parallel_sharding_strategy": sharding,
            "checkpoint.ckpt_format": "fsdp_dtensor",
            "model.gradient_accumulation_fusion": False,
        }
    group = lay.shard_group_size
    if group and group < lay.dp * lay.cp:
        given["ddp.num_distributed_optimizer_instances"] = lay.dp * lay.cp // group
    return given


def _settings(job: TrainingLaunch) -> dict[str, Any]:
    """Write what the run sets beside its layout."""
    s = job.settings
    experts = any(f.kind == "moe" for f in job.model.ffns.values())
    given: dict[str, Any] = {}
    if s.cuda_graphs == "layer":
        given["model.cuda_graph_impl"] = "transformer_engine"
        given["model.cuda_graph_scope"] = (
            ["attn", "moe_router", "moe_preprocess"] if experts else ["attn", "mlp"]
        )
    elif s.cuda_graphs == "full":
        given["model.cuda_graph_impl"] = "local"
        given["model.cuda_graph_scope"] = "full_iteration"
    if experts and s.dispatcher in ("deepep", "hybridep"):
        given["model.moe_token_dispatcher_type"] = "flex"
        given["model.moe_flex_dispatcher_backend"] = s.dispatcher
    elif experts and s.dispatcher:
        given["model.moe_token_dispatcher_type"] = s.dispatcher
    if s.overlap_ep:
        given["model.overlap_moe_expert_parallel_comm"] = True
    if s.recompute_modules and job.layout.recompute == "selective":
        given["model.recompute_modules"] = list(s.recompute_modules)
    if s.moments not in (None, "fp32"):
        given["optimizer.use_precision_aware_optimizer"] = True
        given["optimizer.exp_avg_dtype"] = f"torch.{TORCH[s.moments or '']}"
        given["optimizer.exp_avg_sq_dtype"] = f"torch.{TORCH[s.moments or '']}"
    if s.gradients:
        given["ddp.grad_reduce_in_fp32"] = s.gradients == "fp32"
    if s.fp8_param_gather is not None and job.layout.precision in NARROW_WEIGHTS:
        given[f"mixed_precision.{NARROW_WEIGHTS[job.layout.precision]}"] = s.fp8_param_gather
    if s.offload_layers:
        given["model.cpu_offloading"] = True
        given["model.cpu_offloading_num_layers"] = s.offload_layers
    return given


NARROW_WEIGHTS = {
    "fp8": "fp8_param_gather",
    "mxfp8": "fp8_param_gather",
    "nvfp4": "fp4_param_gather",
}

TORCH = {"bf16": "bfloat16", "fp8": "uint8"}
"""Format of the moments -> name of torch's type."""
