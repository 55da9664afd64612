"""RL post-training configured by one table: NeMo-RL and AReaL."""

from __future__ import annotations

import re

from gpuscale.launch.read.nested import Dialect, Nested, precision_of
from gpuscale.launch.read.rl import ESTIMATORS, put_rl

DEGREES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}


def _nemo_rl(at: Nested) -> None:
    """NeMo-RL: a policy over Megatron-Core or over torch's FSDP2 (dtensor)."""
    found = at.found
    found.model_name = at.text("policy.model_name") or None
    found.precision = precision_of(at.text("policy.precision"))
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
        put_rl(found, {"method": "grpo"} | rl)
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
    rollout = backend_degrees(at.text("rollout.backend") or word.split("+")[0])
    rl = {
        "prompts": at.number("train_dataset.batch_size"),
        "group": at.number("gconfig.n_samples"),
        "prompt": at.number("train_dataset.max_length"),
        "max_response": at.number("gconfig.max_new_tokens"),
        "rollout_tp": rollout.get("tp"),
    }
    estimator = at.text("actor.adv_estimator") or "grpo"
    put_rl(found, {"method": ESTIMATORS.get(estimator, estimator)} | rl)
    length = found.seq_len or rl["max_response"]
    if tokens and length:  # as many samples as so many tokens hold
        found.micro_batch_size = max(1, tokens // length)


RL_TABLES = (
    Dialect(
        "nemo-rl",
        "NeMo-RL configuration",
        "nemo-rl",
        (
            "policy.model_name",
            "defaults policy",
            "defaults grpo",
            "defaults dpo",
            "defaults sft",
            "defaults distillation",
        ),
        {
            "global_batch_size": "policy.train_global_batch_size",
            "micro_batch_size": "policy.train_micro_batch_size",
            "seq_len": "policy.max_total_sequence_length",
            "n_nodes": "cluster.num_nodes",
            "gpus_per_node": "cluster.gpus_per_node",
        },
        _nemo_rl,
        beside="defaults",
    ),
    Dialect(
        "areal",
        "AReaL configuration",
        "areal",
        ("actor.path", "allocation_mode", "gconfig actor", "model.path train_dataset"),
        {"n_nodes": "cluster.n_nodes", "gpus_per_node": "cluster.n_gpus_per_node"},
        _areal,
    ),
)
"""Frameworks of RL that a table configures."""
