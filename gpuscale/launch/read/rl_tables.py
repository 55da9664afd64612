"""RL post-training configured by one table: NeMo-RL and AReaL."""

from __future__ import annotations

import math
import re

from gpuscale.launch.dialects.rows import precision_of
from gpuscale.launch.read.found import MEGATRON_KEYS, named_model
from gpuscale.launch.read.nested import Nested
from gpuscale.launch.read.rl import ESTIMATORS, is_zero, put_rl

DEGREES = {name: key for name, key in MEGATRON_KEYS.items() if name != "vpp"}


def _nemo_rl(at: Nested) -> None:
    """NeMo-RL: a policy over Megatron-Core or over torch's FSDP2 (dtensor)."""
    found = at.found
    if at.true("policy.megatron_cfg.enabled"):
        part = "policy.megatron_cfg"
        at.put({name: f"{part}.{key}" for name, key in DEGREES.items()})
        found.sequence_parallel = at.true(f"{part}.sequence_parallel")
        found.zero_stage = 1
    else:
        part = "policy.dtensor_cfg"
        at.put({"tp": f"{part}.tensor_parallel_size", "cp": f"{part}.context_parallel_size"})
        at.put({"ep": f"{part}.expert_parallel_size"})
        found.offload_parameters = found.offload_optimizer = at.true(f"{part}.cpu_offload")
        found.zero_stage = 3
    found.recompute = "full" if at.true(f"{part}.activation_checkpointing") else "none"
    kept = at.text("loss_fn.reference_policy_kl_penalty")
    rank = at.number(f"{part}.lora_cfg.dim", f"{part}.peft.dim", f"{part}.lora.dim")
    if rank and at.true(f"{part}.lora_cfg.enabled", f"{part}.peft.enabled", default=True):
        found.method, found.lora_rank = "lora", rank
    batch = found.global_batch_size
    if at.get("distillation") is not None:
        found.beyond.append("distillation from a second model is not predicted")
    elif at.get("dpo") is not None:
        put_rl(found, {"method": "dpo"})
    elif at.get("grpo") is not None or at.get("loss_fn") is not None:
        engine = at.text("policy.generation.backend") or "vllm"
        rl = {
            "prompts": at.number("grpo.num_prompts_per_step"),
            "group": at.number("grpo.num_generations_per_prompt"),
            "rollout_tp": at.number(
                "policy.generation.vllm_cfg.tensor_parallel_size",
                f"policy.generation.{engine}_cfg.tensor_parallel_size",
            ),
            "max_response": at.number("policy.generation.max_new_tokens"),
            "prompt": at.number("data.max_input_seq_length"),
        }
        prompt, longest = rl["prompt"], rl["max_response"]
        if found.seq_len and (prompt or 0) >= found.seq_len:
            rl["prompt"] = None  # its limit is that of the whole sequence
        if found.seq_len and (longest or 0) >= found.seq_len:
            rl["max_response"] = None
        put_rl(found, {"method": "grpo", "no_kl": is_zero(kept or None) or None} | rl)
    found.global_batch_size = batch or found.global_batch_size


def backend_degrees(text: str) -> dict[str, int]:
    """Degrees of AReaL's words for a backend: `fsdp:d4t2`, `sglang.d4p1t2+d8p1t1` (the last).

    Examples
    --------
    >>> backend_degrees("megatron:(attn:d1p4t2c2|ffn:d1p4t1e4)")
    {'dp': 1, 'pp': 4, 'tp': 2, 'cp': 2, 'ep': 4}
    """
    last = text.split("+")[-1]
    found: dict[str, int] = {}
    for group in re.findall(r"(?<![a-z])(?:[dptce]\d+)+", last):
        for letter, number in re.findall(r"([dptce])(\d+)", group):
            found.setdefault(LETTERS[letter], int(number))
    return found


LETTERS = {"d": "dp", "p": "pp", "t": "tp", "c": "cp", "e": "ep"}


def _areal(at: Nested) -> None:
    """AReaL: degrees in a word for the trainer and one for the rollouts."""
    found = at.found
    found.model_name = at.text("actor.path", "model.path") or None
    found.precision = precision_of(at.text("actor.dtype", "model.dtype") or "bfloat16")
    word = at.text("actor.backend", "model.backend", "allocation_mode")
    degrees = backend_degrees(word)
    for name, degree in degrees.items():
        setattr(found, name, degree)
    if "d" in word and degrees:
        found.n_gpus = found.tp * found.pp * found.cp * degrees.get("dp", 1)
    over = "megatron" in word or found.pp > 1
    found.zero_stage, found.sequence_parallel = (1, True) if over else (3, None)
    found.cp_kind = "ulysses" if found.cp > 1 and not over else None
    kept = at.true("actor.gradient_checkpointing", "model.gradient_checkpointing")
    found.recompute = "full" if kept else "none"
    if at.true("actor.use_lora"):
        found.method, found.lora_rank = "lora", at.number("actor.lora_rank") or 32
    if at.get("gconfig") is None:
        return
    tokens = at.number("actor.mb_spec.max_tokens_per_mb")
    engines = at.text("rollout.backend") or (word.split("+")[0] if "+" in word else "")
    rollout = backend_degrees(engines or word)
    rl = {
        "prompts": at.number("train_dataset.batch_size"),
        "group": at.number("gconfig.n_samples"),
        "prompt": at.number("train_dataset.max_length"),
        "max_response": at.number("gconfig.max_new_tokens"),
        "rollout_tp": rollout.get("tp"),
    }
    estimator = at.text("actor.adv_estimator") or "grpo"
    no_kl = is_zero(at.text("actor.kl_ctl") or None) or None
    put_rl(found, {"method": ESTIMATORS.get(estimator, estimator), "no_kl": no_kl, **rl})
    if engines and "|" not in engines and "dp" in rollout and found.n_gpus:
        apart = math.prod(rollout.get(name, 1) for name in ("dp", "pp", "tp"))
        found.rl |= {"engine": "async", "rollout_gpus": apart}
        found.n_gpus += apart
    length = found.seq_len or rl["max_response"]
    if tokens and length:  # as many samples as so many tokens hold
        found.micro_batch_size = max(1, tokens // length)


def _roll(at: Nested) -> None:
    """ROLL: a strategy each for the workers that train and that generate."""
    found = at.found
    found.model_name = at.text("pretrain", "actor_train.model_args.model_name_or_path") or None
    found.precision = precision_of(at.text("actor_train.model_args.dtype") or "bf16")
    part, config = "actor_train.strategy_args", "actor_train.strategy_args.strategy_config"
    at.put({name: f"{config}.{key}" for name, key in DEGREES.items()})
    at.put({"cp": f"{config}.ulysses_size {config}.context_parallel_size"})
    strategy = at.text(f"{part}.strategy_name")
    stage = at.number(f"{config}.zero_optimization.stage")
    found.zero_stage = 1 if "megatron" in strategy else stage or 3
    off = at.true("actor_train.model_args.disable_gradient_checkpointing")
    full = at.text(f"{config}.recompute_granularity") == "full" or "megatron" not in strategy
    found.recompute = "full" if full and not off else "none"
    found.offload_optimizer = at.true(f"{config}.offload_policy", f"{config}.optimizer_offload")
    if devices := re.fullmatch(r"list\(range\((\d+),\s*(\d+)\)\)", at.text(MAPPING)):
        found.n_gpus = int(devices[2]) - int(devices[1])
    rank = at.number("actor_train.model_args.lora_rank")
    found.method, found.lora_rank = "lora" if rank else "full", rank
    word = at.text("adv_estimator") or "gae"
    infer = "actor_infer.strategy_args.strategy_config.tensor_parallel_size"
    rl = {
        "prompts": at.number("rollout_batch_size"),
        "group": at.number("num_return_sequences_in_group"),
        "prompt": at.number("prompt_length"),
        "max_response": at.number("response_length"),
        "rollout_tp": at.number(infer),
    }
    put_rl(found, {"method": ESTIMATORS.get(word, word)} | rl)


MAPPING = "actor_train.device_mapping"


def _skyrl(at: Nested) -> None:
    """SkyRL: `trainer.` for the policy, `generator.` for the rollouts."""
    found = at.found
    policy = "trainer.policy"
    found.model_name = named_model(at.text(f"{policy}.model.path")) or None
    found.precision = "bf16"
    over = at.text("trainer.strategy") == "megatron"
    if over:
        at.put({name: f"{policy}.megatron_config.{key}" for name, key in DEGREES.items()})
    found.zero_stage = 1 if over else 3
    found.sequence_parallel = True if over else None
    at.put({"cp": f"{policy}.sequence_parallel_size"} if not over else {})
    found.cp_kind = "ulysses" if found.cp > 1 and not over else None
    found.recompute = "full" if at.true("trainer.gradient_checkpointing", default=True) else "none"
    offload = at.true(f"{policy}.fsdp_config.cpu_offload")
    found.offload_parameters = found.offload_optimizer = offload
    if (rank := at.number(f"{policy}.model.lora.rank")) is not None:
        found.method, found.lora_rank = "lora", rank
    found.n_nodes = found.n_nodes or 1
    engine = "generator.inference_engine"
    word = at.text("trainer.algorithm.advantage_estimator") or "grpo"
    rl = {
        "prompts": at.number("trainer.train_batch_size"),
        "group": at.number("generator.n_samples_per_prompt"),
        "prompt": at.number("trainer.max_prompt_length"),
        "max_response": at.number("generator.sampling_params.max_generate_length"),
        "rollout_tp": at.number(f"{engine}.tensor_parallel_size", TENSOR_PARALLEL),
    }
    kept = at.true("trainer.algorithm.use_kl_loss", default=True)
    kept |= at.true("trainer.algorithm.use_kl_in_reward")
    put_rl(found, {"method": ESTIMATORS.get(word, word), "no_kl": not kept or None, **rl})


TENSOR_PARALLEL = "generator.inference_engine_tensor_parallel_size"


READERS = {"nemo-rl": _nemo_rl, "roll": _roll, "skyrl": _skyrl, "areal": _areal}
"""Framework -> what reads what its rows do not say."""
