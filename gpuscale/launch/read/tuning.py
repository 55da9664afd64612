"""Configurations that tune a model of the hub: torchtune, LitGPT, VeOmni, oumi and their kin."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.core.finetune.method import canonical
from gpuscale.launch.dialects.hooks import ATTENTION, MLP
from gpuscale.launch.dialects.rows import precision_of, sharded
from gpuscale.launch.read.nested import Nested, put_shape
from gpuscale.launch.read.rl import put_rl

MAPS = ("q", "k", "v", "o", "qkv", "gate", "up", "gate_up", "down")
ALL = "all-linear"


def targets_of(value: Any) -> tuple[str, ...]:
    """Targets of a list, or of names with commas; none where one of them is not known here.

    >>> targets_of("q_proj,v_proj"), targets_of(["all"]), targets_of(".*mlp.*")
    (('q', 'v'), ('all-linear',), ())
    """
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value or "").strip())
    names = tuple(dict.fromkeys(canonical(str(part)) for part in parts if part))
    if ALL in names:
        return (ALL,)
    return names if names and all(name in MAPS for name in names) else ()


def builder_name(builder: str) -> str:
    """Name of a model by the function of torchtune that builds it.

    Examples
    --------
    >>> [builder_name(f) for f in ("llama3_1_8b", "qlora_qwen2_5_1_5b_instruct", "phi3_mini")]
    ['llama3.1-8b', 'qwen2.5-1.5b-instruct', 'phi3-mini']
    """
    name = re.sub(r"^(q?lora|reward)_", "", builder.rsplit(".", 1)[-1])
    name = re.sub(r"(?<=\d)_(5b)", r".\1", name)
    return re.sub(r"(?<=\d)_(?=\d+_)", ".", name).replace("_", "-")


def _torchtune(at: Nested) -> None:
    """torchtune: components by their path, one recipe a file."""
    found = at.found
    builder = at.text("model._component_", "policy_model._component_", "policy._component_")
    found.model_name = builder_name(builder) if builder else None
    if "vision" in builder or "multimodal" in builder:
        found.beyond.append(f"{builder}: images too")
    part = "model" if at.get("model") is not None else "policy_model"
    if at.number(f"{part}.embed_dim"):
        put_shape(found, found.model_name or "model", at.dims("torchtune"), gated=True)
    found.recompute = found.recompute or "none"
    found.offload_parameters = found.offload_optimizer = at.true("fsdp_cpu_offload")
    stem = builder.rsplit(".", 1)[-1]
    four_bit = stem.startswith("qlora") or at.true("model.quantize_base")
    if found.lora_rank:
        dora = at.true("model.use_dora")
        found.method = "dora" if dora else "qlora" if four_bit else "lora"
        found.weights = "nf4" if dora and four_bit else None
        maps = targets_of(at.get("model.lora_attn_modules"))
        mlp = at.true("model.apply_lora_to_mlp")
        whole = mlp and len(maps) == len(ATTENTION)
        found.targets = ("all-linear",) if whole else (*maps, *(MLP if mlp else ()))
    loss = at.text("loss._component_", "rlhf_loss._component_").lower()
    if "dpo" in loss:
        put_rl(found, {"method": "dpo"})
    elif "simpo" in loss:
        put_rl(found, {"method": "simpo"})
    elif "ppo" in loss or at.get("policy_model") is not None:
        rl = {"method": "ppo", "max_response": at.number("max_generated_tokens")}
        put_rl(found, rl | {"prompts": at.number("batch_size")})
    elif "grpo" in loss:
        rl = {"method": "grpo", "group": at.number("grpo_samples", "grpo_size")}
        put_rl(found, rl | {"max_response": at.number("max_generated_tokens")})
    if at.get("optimizer") is None and at.get("policy_model") is None:
        found.beyond.append("no optimizer: an evaluation or a generation, not a training")
    if at.get("teacher_model") is not None:
        found.beyond.append("teacher_model: distillation from a second model is not predicted")


LITGPT_MAPS = {"query": True, "key": False, "value": True, "projection": False, "mlp": False}
LITGPT_TARGETS = {"query": "q", "key": "k", "value": "v", "projection": "o", "mlp": "gate up down"}
"""Flags of LitGPT's adapters, with their habit (finetune/lora.py) -> maps."""


def _litgpt(at: Nested) -> None:
    """LitGPT: `litgpt finetune` by a checkpoint's folder, `litgpt pretrain` by a model's name."""
    found = at.found
    folder = at.text("checkpoint_dir")
    found.model_name = "/".join(folder.split("/")[-2:]) if folder else at.text("model_name") or None
    found.precision = precision_of(at.text("precision"))
    if found.gpus_per_node and not found.n_nodes:
        found.n_nodes = 1
    if at.get("lora_r") is not None:
        found.method = "qlora" if "bnb" in at.text("quantize") else "lora"
        on = {n for n, habit in LITGPT_MAPS.items() if at.true(f"lora_{n}", default=habit)}
        parts = [maps for n, maps in LITGPT_TARGETS.items() if n in on]
        whole = set(on) == set(LITGPT_MAPS)
        found.targets = ("all-linear",) if whole else tuple(" ".join(parts).split())
    elif not folder:
        found.method = "pretrain"
        return
    # FSDP with checkpoints of blocks where there are several devices (finetune/full.py, lora.py)
    several = (found.world_size or 1) > 1
    found.zero_stage, found.recompute = (3, "full") if several else (0, "none")


def _veomni(at: Nested) -> None:
    """VeOmni: FSDP2 by default, sequences over Ulysses, activations checkpointed."""
    found = at.found
    found.precision = "bf16"
    mode = at.text(
        "train.accelerator.fsdp_config.fsdp_mode", "train.data_parallel_mode", "train.dp_mode"
    )
    found.zero_stage = 0 if mode == "ddp" else 3
    found.cp_kind = "ulysses" if found.cp > 1 else None
    kept = "train.gradient_checkpointing.enable", "train.enable_gradient_checkpointing"
    found.recompute = "full" if at.true(*kept, default=True) else "none"
    if rank := at.number("model.lora_config.rank", "model.lora_config.r"):
        found.method, found.lora_rank = "lora", rank
    if "condition_model" in str(at.get("model")) or "dit" in at.text(
        "train.trainer", "data.data_type"
    ):
        found.beyond.append("a diffusion model: not the training of a decoder-only language model")
    elif at.get("data.mm_configs") is not None or at.get("model.encoders") is not None:
        found.beyond.append(
            "images, video or sound: more than a decoder-only language model trains"
        )


def _oumi(at: Nested) -> None:
    """oumi: a trainer of TRL or its own, with sections for adapters, FSDP and DeepSpeed."""
    found = at.found
    found.recompute = found.recompute or "none"
    if at.true("training.use_peft"):
        four_bit = at.true("peft.q_lora")
        found.method, found.lora_rank = "qlora" if four_bit else "lora", found.lora_rank or 8
    else:
        found.lora_rank = None
    found.zero_stage = 0
    if at.true("fsdp.enable_fsdp"):
        found.zero_stage = sharded(at.text("fsdp.sharding_strategy"))
        found.offload_parameters = at.true("fsdp.cpu_offload")
    if at.true("deepspeed.enable_deepspeed"):
        found.software = "deepspeed-zero3"
        stage = at.text("deepspeed.zero_stage")[-1:]
        found.zero_stage = int(stage) if stage.isdigit() else 0
    trainer = at.text("training.trainer_type").upper()
    method = next((m for m in ("DPO", "GRPO", "KTO", "GKD") if m in trainer), "")
    if method in ("DPO", "GRPO"):
        group = at.number("training.grpo.num_generations")
        longest = at.number("training.grpo.max_completion_length")
        prompt = at.number("training.grpo.max_prompt_length")
        rl = {"group": group, "prompt": prompt, "max_response": longest}
        put_rl(found, {"method": method.lower()} | (rl if method == "GRPO" else {}))
    elif method:
        found.beyond.append(f"trainer {trainer}: its loss and its second model are not predicted")


def _automodel(at: Nested) -> None:
    """NeMo Automodel: FSDP2 with tensor, context, pipeline and expert axes."""
    found = at.found
    target = at.text("model._target_")
    found.precision = found.precision or "bf16"
    if at.true("fp8.enabled"):
        found.precision = "fp8"
    strategy = at.text("distributed.strategy", "distributed._target_").lower()
    found.zero_stage = 0 if "ddp" in strategy else 3
    found.recompute = found.recompute or "none"
    found.cp_kind = "ring" if found.cp > 1 else None
    if at.get("peft") is not None:
        found.method, found.lora_rank = "lora", at.number("peft.dim") or 8
        if at.true("quantization.load_in_4bit"):
            found.method = "qlora"
    if "diffusion" in at.text("recipe").lower() + target.lower() or at.get("flow_matching"):
        found.beyond.append("a diffusion model: not the training of a language model")
    elif "ImageTextToText" in target or "Multimodal" in target:
        found.beyond.append("images, video or sound: more than a language model trains")


def _prime_rl(at: Nested) -> None:
    """prime-rl: a trainer and an orchestrator; the GPUs that train are those of the answer."""
    found = at.found
    name = at.text("model.name", "trainer.model.name")
    found.model_name = name or None
    found.precision = "bf16"
    found.zero_stage = 3
    part = "trainer.model" if at.get("trainer.model") is not None else "model"
    found.recompute = "full" if at.true(f"{part}.ac") else "none"
    found.cp_kind = "ring" if found.cp > 1 else None
    if rank := at.number(f"{part}.lora.rank", "model.lora.rank"):
        found.method, found.lora_rank = "lora", rank
    nodes = at.number("deployment.num_train_nodes")
    if nodes:
        found.n_nodes = nodes
        found.gpus_per_node = at.number("deployment.gpus_per_node") or 8
    else:
        found.n_gpus = at.number("deployment.num_train_gpus", "trainer_gpus", "trainer.gpus")
    found.optimizer = at.text(f"{part.split('.')[0]}.optim.type", "optim.type") or None
    if at.get("orchestrator") is None:
        return
    group = at.number("orchestrator.rollouts_per_example", "orchestrator.group_size")
    batch = at.number("orchestrator.batch_size")
    longest = at.number(
        "orchestrator.sampling.max_tokens", "orchestrator.train.sampling.max_tokens"
    )
    prompts = max(1, batch // group) if batch and group else None
    put_rl(found, {"method": "grpo", "group": group, "prompts": prompts, "max_response": longest})
    found.global_batch_size = batch or found.global_batch_size


READERS = {
    "torchtune": _torchtune,
    "litgpt": _litgpt,
    "veomni": _veomni,
    "oumi": _oumi,
    "nemo-automodel": _automodel,
    "prime-rl": _prime_rl,
}
"""Framework -> what reads what its rows do not say."""
