"""RL post-training configured by one table: NeMo-RL and AReaL."""

from __future__ import annotations

import math
import re

from gpuscale.launch.read.nested import Nested
from gpuscale.launch.read.rl import is_zero, put_rl


def _nemo_rl(at: Nested) -> None:
    """NeMo-RL: a policy over Megatron-Core or over torch's FSDP2 (dtensor)."""
    found = at.found
    if at.true("policy.megatron_cfg.enabled"):
        part = "policy.megatron_cfg"
        found.sequence_parallel = at.true(f"{part}.sequence_parallel")
        found.zero_stage = 1
    else:
        part = "policy.dtensor_cfg"
        found.tp, found.cp, found.pp, found.ep = 1, 1, 1, None
        at.put({"tp": f"{part}.tensor_parallel_size", "cp": f"{part}.context_parallel_size"})
        at.put({"ep": f"{part}.expert_parallel_size"})
        found.offload_parameters = found.offload_optimizer = at.true(f"{part}.cpu_offload")
        found.zero_stage = 3
    found.recompute = "full" if at.true(f"{part}.activation_checkpointing") else "none"
    kept = at.text("loss_fn.reference_policy_kl_penalty")
    rank = at.number(f"{part}.lora_cfg.dim", f"{part}.peft.dim", f"{part}.lora.dim")
    if rank and at.true(f"{part}.lora_cfg.enabled", f"{part}.peft.enabled", default=True):
        found.method, found.lora_rank = "lora", rank
    batch, rl, found.rl = found.global_batch_size, found.rl, {}
    if at.get("distillation") is not None:
        found.beyond.append("distillation from a second model is not predicted")
    elif at.get("dpo") is not None:
        put_rl(found, {"method": "dpo"})
    elif at.get("grpo") is not None or at.get("loss_fn") is not None:
        engine = at.text("policy.generation.backend") or "vllm"
        tp = at.number(
            f"policy.generation.{engine}_cfg.tensor_parallel_size",
            "policy.generation.vllm_cfg.tensor_parallel_size",
        )
        longest = found.seq_len or math.inf  # a limit that is that of the whole sequence says none
        limits = {"prompt", "max_response"}
        rl = {k: v for k, v in rl.items() if k not in limits or int(v or 0) < longest}
        no_kl = is_zero(kept or None) or None
        put_rl(found, {**rl, "rollout_tp": tp, "method": "grpo", "no_kl": no_kl})
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
    word = at.text("actor.backend", "model.backend", "allocation_mode")
    degrees = backend_degrees(word)
    for name, degree in degrees.items():
        setattr(found, name, degree)
    if "d" in word and degrees:
        found.n_gpus = found.tp * found.pp * found.cp * degrees.get("dp", 1)
    over = "megatron" in word or found.pp > 1
    found.zero_stage, found.sequence_parallel = (1, True) if over else (3, None)
    found.cp_kind = "ulysses" if found.cp > 1 and not over else None
    if at.true("actor.use_lora"):
        found.method, found.lora_rank = "lora", at.number("actor.lora_rank") or 32
    if at.get("gconfig") is None:
        found.rl = {}
        return
    tokens = at.number("actor.mb_spec.max_tokens_per_mb")
    engines = at.text("rollout.backend") or (word.split("+")[0] if "+" in word else "")
    rollout = backend_degrees(engines or word)
    no_kl = is_zero(at.text("actor.kl_ctl") or None) or None
    put_rl(found, {**found.rl, "rollout_tp": rollout.get("tp"), "no_kl": no_kl})
    if engines and "|" not in engines and "dp" in rollout and found.n_gpus:
        apart = math.prod(rollout.get(name, 1) for name in ("dp", "pp", "tp"))
        found.rl |= {"engine": "async", "rollout_gpus": apart}
        found.n_gpus += apart
    length = found.seq_len or at.number("gconfig.max_new_tokens")
    if tokens and length:  # as many samples as so many tokens hold
        found.micro_batch_size = max(1, tokens // length)


def _roll(at: Nested) -> None:
    """ROLL: a strategy each for the workers that train and that generate."""
    found, part = at.found, "actor_train.strategy_args"
    strategy = at.text(f"{part}.strategy_name")
    stage = at.number(f"{part}.strategy_config.zero_optimization.stage")
    found.zero_stage = 1 if "megatron" in strategy else stage or 3
    off = at.true("actor_train.model_args.disable_gradient_checkpointing")
    granularity = at.text(f"{part}.strategy_config.recompute_granularity")
    full = granularity == "full" or "megatron" not in strategy
    found.recompute = "full" if full and not off else "none"
    if devices := re.fullmatch(r"list\(range\((\d+),\s*(\d+)\)\)", at.text(MAPPING)):
        found.n_gpus = int(devices[2]) - int(devices[1])
    found.method = "lora" if found.lora_rank else "full"
    put_rl(found, found.rl)


MAPPING = "actor_train.device_mapping"


def _skyrl(at: Nested) -> None:
    """SkyRL: `trainer.` for the policy, `generator.` for the rollouts."""
    found = at.found
    over = at.text("trainer.strategy") == "megatron"
    found.sequence_parallel = True if over else None
    found.cp_kind = "ulysses" if found.cp > 1 and not over else None
    found.method = "lora" if found.lora_rank else "full"
    kept = at.true("trainer.algorithm.use_kl_loss", default=True)
    kept |= at.true("trainer.algorithm.use_kl_in_reward")
    put_rl(found, {**found.rl, "no_kl": not kept or None})


READERS = {"nemo-rl": _nemo_rl, "roll": _roll, "skyrl": _skyrl, "areal": _areal}
"""Framework -> what reads what its rows do not say."""
