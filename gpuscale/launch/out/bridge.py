"""Megatron-Bridge: a recipe of its library and the overrides of its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.errors import GpuscaleError
from gpuscale.launch.job import Written
from gpuscale.launch.out.megatron import SHARDED_ALONE, narrow_states

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
    "bf16": ("bf16_mixed", {}),
    "fp16": ("fp16_mixed", {}),
    "fp8": (
        "bf16_with_fp8_current_scaling_mixed",
        {
            "fp8": "hybrid",
            "fp8_recipe": "tensorwise",
            "first_last_layers_bf16": True,
            "num_layers_at_start_in_bf16": 1,
            "num_layers_at_end_in_bf16": 1,
            "fp8_param_gather": True,
        },
    ),
    "mxfp8": (
        "bf16_with_mxfp8_mixed",
        {
            "fp8": "e4m3",
            "fp8_recipe": "mxfp8",
            "fp8_param_gather": True,
            "reuse_grad_buf_for_mxfp8_param_ag": True,
        },
    ),
    "nvfp4": (
        "bf16_with_nvfp4_mixed",
        {"fp4": "e2m1", "fp4_recipe": "nvfp4", "fp4_param_gather": True},
    ),
}
"""Names of `mixed_precision`, and what each sets beside bf16 (`training/mixed_precision.py`)."""


def write(job: TrainingLaunch) -> Written:
    """Write the command of a recipe with the layout as overrides.

    A recipe has settings of its own, so what the plan leaves out is said too. Overrides of the
    model are forced (`++`): the Llama recipes keep those keys one level deeper, and hand them on.

    Raises GpuscaleError if Megatron-Bridge has no recipe of the model.
    """
    name = job.model.name
    if name not in RECIPES:
        raise GpuscaleError(
            f"Megatron-Bridge has no recipe of {name}",
            f"it has {', '.join(RECIPES)}; --framework megatron writes any model",
        )
    unsaid: list[str] = []
    given = options(job, unsaid) | _precision(job) | _optimizer(job) | _settings(job)
    if job.layout.schedule not in ("1f1b", "interleaved"):
        unsaid.append(f"the schedule {job.layout.schedule}")
    if job.layout.zero_stage == 0 and narrow_states(job):
        unsaid.append(SHARDED_ALONE)
    if job.layout.offload_activations:
        unsaid.append("activations offloaded to the host")
    words = [f"{_forced(key)}={_text(value)}" for key, value in given.items()]
    select = ("--model", RECIPES[name], "--mode", "pretrain", "--dataset", "mock")
    return Written(
        framework="megatron-bridge",
        version=VERSION,
        files=(),
        train=("scripts/training/run_recipe.py", *select, *words),
        unsaid=tuple(unsaid),
    )


def options(job: TrainingLaunch, unsaid: list[str] | None = None) -> dict[str, Any]:
    """List the overrides of a job's layout and batch; what they cannot say is put to `unsaid`."""
    kept = _recompute(job, [] if unsaid is None else unsaid)
    return _layout(job) | _stages(job) | kept | _sharding(job)


def _forced(key: str) -> str:
    return f"++{key}" if key.startswith(("model.", "mixed_precision")) else key


def _text(value: Any) -> str:
    """Value as an override says it.

    >>> _text({"bf16": True, "modules": ["a", "b"]})
    '{bf16:true,modules:[a,b]}'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_text(v)}" for k, v in value.items()) + "}"
    return f"[{','.join(map(str, value))}]" if isinstance(value, (list, tuple)) else str(value)


def _layout(job: TrainingLaunch) -> dict[str, Any]:
    lay = job.layout
    given: dict[str, Any] = {
        "dataset.seq_length": lay.seq_len,
        "train.global_batch_size": lay.global_batch_size,
        "train.micro_batch_size": lay.micro_batch_size,
        "train.train_iters": job.steps or 100,
        "scheduler.lr_warmup_iters": 0,
        "model.tensor_model_parallel_size": lay.tp,
        "model.pipeline_model_parallel_size": lay.pp,
        "model.virtual_pipeline_model_parallel_size": lay.vpp if lay.vpp > 1 else None,
        "model.context_parallel_size": lay.cp,
        "model.sequence_parallel": lay.sequence_parallel and lay.tp > 1,
    }
    if lay.cp > 1:
        given["model.cp_comm_type"] = (
            CONTEXT_KINDS[lay.cp_kind].said_as["megatron"].replace("allgather", "all_gather")
        )
    if job.model.has_experts:
        given["model.expert_model_parallel_size"] = lay.ep
        given["model.expert_tensor_parallel_size"] = lay.etp
    given["comm_overlap"] = None  # what a recipe overlaps, said below
    given["model.tp_comm_overlap"] = lay.tp > 1 and lay.sequence_parallel and lay.overlap_tp
    given["model.overlap_p2p_comm"] = lay.vpp > 1
    given["model.batch_p2p_comm"] = lay.pp > 1 and lay.vpp == 1
    return given


def _stages(job: TrainingLaunch) -> dict[str, Any]:
    """Layers of each chunk; the splits of the recipe itself are taken back."""
    chunks: str | None = None
    if job.layout.pp > 1 and (not job.even_stages or job.model.n_mtp_layers):
        layers = ["t" * n for n in job.stage_layers]
        layers[0] = "E" + layers[0]
        layers[-1] += "m" * job.model.n_mtp_layers + "L"
        chunks = f"'{'|'.join(layers)}'"
    return {
        "model.pipeline_model_parallel_layout": chunks,
        "model.account_for_embedding_in_pipeline_split": False,
        "model.account_for_loss_in_pipeline_split": False,
    }


def _recompute(job: TrainingLaunch, unsaid: list[str]) -> dict[str, Any]:
    lay = job.layout
    full = lay.recompute == "full"
    method = None if not full else "uniform" if lay.recompute_layers is None else "block"
    given: dict[str, Any] = {
        "model.recompute_granularity": lay.recompute if full else None,
        "model.recompute_method": method,
        "model.recompute_num_layers": (lay.recompute_layers or 1) if full else None,
    }
    if lay.recompute == "selective":
        modules = job.settings.recompute_modules or ("core_attn",)
        kept = [m for m in modules if job.model.has_experts or m not in ("moe", "moe_act")]
        given["model.recompute_granularity"] = "selective"
        given["model.recompute_modules"] = kept or ["core_attn"]
    elif lay.recompute == "per-op":
        unsaid.append("recomputation per operation")
    return given


def _sharding(job: TrainingLaunch) -> dict[str, Any]:
    lay = job.layout
    sharded = lay.zero_stage >= 1 or narrow_states(job)
    given: dict[str, Any] = {
        "ddp.use_distributed_optimizer": sharded,
        "optimizer.use_distributed_optimizer": sharded,
        "ddp.overlap_grad_reduce": lay.overlap_dp,
        "ddp.overlap_param_gather": lay.overlap_dp and sharded,
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


def _precision(job: TrainingLaunch) -> dict[str, Any]:
    """Say the name, or the record with what the run sets otherwise than the name does."""
    s, narrow = job.settings, NARROW_WEIGHTS.get(job.layout.precision)
    name, fields = PRECISION[job.layout.precision]
    gather = s.fp8_param_gather is not False and job.layout.zero_stage >= 1
    changed: dict[str, Any] = {}
    if s.gradients == "bf16":
        changed["grad_reduce_in_fp32"] = False
    if narrow and not gather:
        changed |= {narrow: False}
        changed |= {k: False for k in fields if k.startswith("reuse")}
    if not changed or name == "fp16_mixed":
        return {"mixed_precision": name}
    kept = {"_target_": f"{MIXED}.MixedPrecisionConfig", "bf16": True}
    dtype = {"_target_": "torch.bfloat16", "_call_": False}
    record = kept | {"params_dtype": dtype, "pipeline_dtype": dtype} | fields | changed
    return {"mixed_precision": record}


def _optimizer(job: TrainingLaunch) -> dict[str, Any]:
    """Say the formats of the states, which recipes of large mixtures set to bf16."""
    moments = TORCH.get(job.settings.moments or "", "float32")
    offload = job.layout.offload_optimizer
    given: dict[str, Any] = {
        "ddp.grad_reduce_in_fp32": job.settings.gradients != "bf16",
        "optimizer.use_precision_aware_optimizer": narrow_states(job),
        "optimizer.main_grads_dtype": "torch.float32",
        "optimizer.exp_avg_dtype": f"torch.{moments}",
        "optimizer.exp_avg_sq_dtype": f"torch.{moments}",
    }
    return given | ({"optimizer.optimizer_cpu_offload": True} if offload else {})


def _settings(job: TrainingLaunch) -> dict[str, Any]:
    """Write what the run sets beside its layout."""
    s, experts = job.settings, job.model.has_experts
    given: dict[str, Any] = {"model.cuda_graph_impl": "none"}
    if s.cuda_graphs in ("layer", "full"):
        given |= {"model.use_te_rng_tracker": True, "rng.te_rng_tracker": True}
    if s.cuda_graphs == "layer":
        given["model.cuda_graph_impl"] = "transformer_engine"
        given["model.cuda_graph_scope"] = (
            ["attn", "moe_router", "moe_preprocess"] if experts else ["attn", "mlp"]
        )
    elif s.cuda_graphs == "full":
        given["model.cuda_graph_impl"] = "full_iteration"
        given["model.cuda_graph_scope"] = []
        given["rerun_state_machine.check_for_nan_in_loss"] = False
        given["ddp.check_for_nan_in_grad"] = False
    if experts and s.dispatcher in ("deepep", "hybridep"):
        given["model.moe_token_dispatcher_type"] = "flex"
        given["model.moe_flex_dispatcher_backend"] = s.dispatcher
    elif experts and s.dispatcher:
        given["model.moe_token_dispatcher_type"] = s.dispatcher
    if experts:
        given["model.overlap_moe_expert_parallel_comm"] = bool(s.overlap_ep)
    if s.overlap_ep:
        given["model.moe_shared_expert_overlap"] = False
    if s.offload_layers:
        given["model.cpu_offloading"] = True
        given["model.cpu_offloading_num_layers"] = s.offload_layers
    return given


MIXED = "megatron.bridge.training.mixed_precision"
NARROW_WEIGHTS = {
    "fp8": "fp8_param_gather",
    "mxfp8": "fp8_param_gather",
    "nvfp4": "fp4_param_gather",
}

TORCH = {"bf16": "bfloat16", "fp8": "uint8"}
"""Format of the moments -> name of torch's type."""
