"""RL post-training: options of OpenRLHF and slime, a trainer's keys, tables of NeMo-RL, AReaL."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.core.finetune.rl import ALL_METHODS as METHODS
from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, dialect
from gpuscale.launch.dialects.rows import known_keys, put, put_unheard, whole
from gpuscale.launch.found import UNSET, Found, launch_table, named_model


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
    if over and found.recompute == "full":  # the switch is the trainer's, what of it Megatron's
        found.recompute = at.text("actor.megatron.recompute_granularity") or "full"
        at.get("actor.megatron.recompute_method"), at.number("actor.megatron.recompute_num_layers")
    tokens = at.number("actor.mb_spec.max_tokens_per_mb")
    if at.get("gconfig") is None:
        pairs = at.text("train_dataset.type") == "dpo"
        found.seq_len, found.rl = whole(found.rl.get("prompt")), {}
        put_rl(found, {"method": "dpo"}) if pairs else None
        found.global_batch_size = at.number("train_dataset.batch_size")
        put_tokens(found, tokens // (2 if pairs else 1) if tokens else None)
        return
    engines = at.text("rollout.backend") or (word.split("+")[0] if "+" in word else "")
    rollout = backend_degrees(engines or word)
    no_kl = is_zero(at.text("actor.kl_ctl") or None) or None
    put_rl(found, {**found.rl, "rollout_tp": rollout.get("tp"), "no_kl": no_kl})
    if engines and "|" not in engines and "dp" in rollout and found.n_gpus:
        apart = math.prod(rollout.get(name, 1) for name in ("dp", "pp", "tp"))
        found.rl |= {"engine": "async", "rollout_gpus": apart}
        found.n_gpus += apart
    longest = at.number("gconfig.max_tokens")  # of all turns
    found.seq_len = longest or found.seq_len or at.number("gconfig.max_new_tokens")
    put_tokens(found, tokens)


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
    put_rl(found, found.rl)


MAPPING = "actor_train.device_mapping"


def _skyrl(at: Nested) -> None:
    """SkyRL: `trainer.` for the policy, `generator.` for the rollouts."""
    found = at.found
    over = at.text("trainer.strategy") == "megatron"
    found.sequence_parallel = True if over else None
    found.cp_kind = "ulysses" if found.cp > 1 and not over else None
    put_rl(found, found.rl)


READERS = {"nemo-rl": _nemo_rl, "roll": _roll, "skyrl": _skyrl, "areal": _areal}
"""Framework -> what reads what its rows do not say."""


_WORDS = launch_table("words")["rl"]
ESTIMATORS: dict[str, str] = _WORDS["estimators"]


def is_openrlhf(words: Sequence[str]) -> bool:
    """Whether a command trains with OpenRLHF."""
    named = any(re.match(r"openrlhf\.cli\.train_\w+$", w) for w in words)
    by_path = any(re.search(r"(^|/)train_ppo_ray\.py$", w) for w in words)
    return named or (by_path and "--pretrain" in words)


def put_rl(found: Found, rl: Mapping[str, Any]) -> None:
    """Put what is said of RL on the record; a method that is not known is named."""
    found.rl = {key: value for key, value in rl.items() if value is not None}
    if "method" in found.rl:
        word = str(found.rl["method"])
        found.rl["method"] = ESTIMATORS.get(word, word.replace("_", "-"))
    if (method := found.rl.get("method")) not in METHODS:
        found.beyond.append(f"RL by `{method}`: `memory --method` knows {', '.join(METHODS)}")
    prompts, group = whole(found.rl.get("prompts")), whole(found.rl.get("group"))
    if prompts and found.rl.get("method") != "dpo":
        found.global_batch_size = prompts * (group or 1)
    prompt, response = whole(found.rl.get("prompt")), whole(found.rl.get("max_response"))
    if found.seq_len is None and prompt and response:
        found.seq_len = prompt + response


def put_tokens(found: Found, tokens: int | None) -> None:
    """Put as many samples into a micro-batch as so many tokens of a GPU hold."""
    if tokens and found.seq_len:
        found.micro_batch_size = max(1, tokens * found.cp // found.seq_len)


TRAINERS: dict[str, str] = _WORDS["trainers"]


def read_openrlhf(words: Sequence[str], table: Mapping[str, Any]) -> Found:
    """Read a command of OpenRLHF; options before 0.10 have no sections (`--zero_stage`)."""
    found = Found("openrlhf", software="openrlhf", version="OpenRLHF")
    at = Nested(found, table)
    put(dialect("openrlhf"), at)
    found.cp_kind = "ring" if found.cp > 1 else None
    found.recompute = found.recompute or "none"
    four_bit = "load_in_4bit" in table or "ds.load_in_4bit" in table
    found.method = ("qlora" if four_bit else "lora") if found.lora_rank else "full"
    found.weights = None
    rl, found.rl = found.rl, {}
    program = next((w.rsplit(".", 1)[-1] for w in words if "openrlhf.cli." in w), "")
    if (method := TRAINERS.get(program)) is None:
        _openrlhf_rollouts(at, rl)
    elif method:
        put_rl(found, {"method": method})
    put_unheard(found, table, at.heard | {"load_in_4bit"}, known_keys("openrlhf"))
    return found


def _openrlhf_rollouts(at: Nested, rl: Table) -> None:
    found, batch = at.found, at.found.global_batch_size
    estimator = str(rl["method"])
    ppo = ESTIMATORS.get(estimator, estimator) == "ppo"
    rl |= {"no_kl": is_zero(at.text("algo.kl.init_coef", "init_kl_coef") or None) or None}
    rl |= {"rule_reward": (ppo and at.get(*REMOTE) is not None) or None}
    rl |= {"group": None} if ppo else {}
    length, longest = found.seq_len, rl.get("max_response")
    if "prompt" not in rl and length and longest and length > longest:
        rl["prompt"] = length - longest
    put_rl(found, rl)
    found.global_batch_size = batch or found.global_batch_size
    if at.true("train.dynamic_batch_enable", "use_dynamic_batch"):
        tokens = at.number("train.max_tokens_per_gpu", "train_max_tokens_per_gpu")
        put_tokens(found, tokens or 16192)  # openrlhf/cli/train_ppo_ray.py
    _openrlhf_placement(at, rl.get("rollout_tp") or 1)


def is_zero(coefficient: str | None) -> bool:
    """Whether a term of the loss is switched off: its coefficient is a zero."""
    return coefficient is not None and re.fullmatch(r"0*\.?0*(e.*)?", coefficient) is not None


REMOTE = ("remote_rm_url", "reward.remote_url")
"""Options of OpenRLHF that leave rewards to a server or a function."""
COLOCATED = ("colocate_all_models", "colocate_all", "train.colocate_all", "vllm.colocate_all")


def _openrlhf_placement(at: Nested, tp: int) -> None:
    """Engines and critic on GPUs of their own, where the models are not colocated."""
    found = at.found
    engines = at.number("vllm_num_engines", "vllm.num_engines")
    if not engines or found.world_size is None or any(at.get(key) for key in COLOCATED):
        return
    found.rl |= {"engine": "split", "rollout_gpus": engines * tp}
    critic = 0
    if found.rl.get("method") == "ppo":
        nodes = at.number("critic_num_nodes", "critic.num_nodes") or 0
        critic = nodes * (at.number("critic_num_gpus_per_node", "critic.num_gpus_per_node") or 0)
        found.rl |= {"critic_gpus": critic} if critic else {}
    found.n_gpus = found.world_size + engines * tp + critic
    found.notes.append("GPUs of the reference and of the reward model alone are not counted")


def is_slime(words: Sequence[str]) -> bool:
    """Whether a command trains with slime."""
    return "--actor-num-gpus-per-node" in words and "--rollout-batch-size" in words


def read_slime(found: Found, table: Mapping[str, Any]) -> Found:
    """Put what slime adds to Megatron's options on their record."""
    at, batch = Nested(found, table), found.global_batch_size
    found.kind = found.software = found.version = "slime"
    found.asked = {}
    found.not_understood = [name for name in found.not_understood if name[2:4] == "no"]
    found.wrong = [one for one in found.wrong if "do not divide" not in one]  # its own split
    put(dialect("slime"), at)
    rl, found.rl = found.rl, {}
    name = named_model(at.text("hf_checkpoint").strip("'\""))
    if UNSET in name:
        found.unread["model"] = name.replace(UNSET, "")
    found.model_name = name.rsplit("/", 1)[-1] if name and UNSET not in name else None
    found.model, found.method, found.precision = None, "full", "bf16"
    found.zero_stage = 1
    if at.text("loss_type").startswith("sft"):
        found.seq_len = found.seq_len or at.number("max_tokens_per_gpu")
        return found
    found.seq_len = None  # of Megatron; slime packs what is rolled out
    if "use_kl_loss" not in table and is_zero(at.text("kl_coef") or "0"):  # slime: `with_ref`
        rl["no_kl"] = True
    if "colocate" not in table and (engines := at.number("rollout_num_gpus")):
        rl |= {"rollout_gpus": engines, "engine": "split"}
        found.n_gpus = (found.world_size or 0) + engines
    put_rl(found, rl)
    found.global_batch_size = batch or found.global_batch_size
    return found


GRPO_KEYS = ("num_generations", "max_completion_length", "max_prompt_length", "reward_funcs")
"""Keys that only a GRPO trainer of TRL has; any two of them say so."""


def put_trainer(table: Mapping[str, Any], found: Found) -> None:
    """Put on a trainer's record what its keys say of preference tuning and RL."""
    said = ("rl", "rlhf_type", "stage", "task_type")
    word = next((str(table[key]).lower() for key in said if table.get(key)), "")
    at = Nested(found, table)
    if word not in METHODS and sum(key in table for key in GRPO_KEYS) >= 2:
        word = "grpo"
    if "loss_type" in table and word == "grpo":
        loss = str(table["loss_type"]).replace("_", "-")
        word = loss if loss in METHODS else word
    if word == "dpo" and str(table.get("pref_loss")) in METHODS:
        word = str(table["pref_loss"])
    if "gamma_beta_ratio" in table or "simpo_gamma" in table:
        word = "simpo"
    pairs = {"beta", "ref_model", "label_smoothing"} & set(table)
    if word not in METHODS and "max_prompt_length" in table and pairs:
        word = "dpo"
    if "num_samples_per_prompt_rollout" in table:
        found.beyond.append("open-instruct: its learners and engines are not read")
        return
    if word in ("grpo", "gspo", "dapo", "rloo"):
        prompt = at.number("max_prompt_length")
        longest = at.number("max_completion_length")
        if longest and not prompt and found.seq_len and found.seq_len > longest:
            prompt = found.seq_len - longest
        if prompt and longest:
            found.seq_len = prompt + longest
        rl = {
            "group": at.number("num_generations"),
            "prompt": prompt,
            "max_response": longest,
            "rollout_tp": at.number("vllm_tensor_parallel_size"),
            "no_kl": (found.kind == "trainer" and is_zero(str(table.get("beta", "0")))) or None,
        }
        put_rl(found, {"method": word, **rl})
        if at.true("use_vllm") and table.get("vllm_mode") == "colocate":
            found.rl["engine"] = "colocated"
        elif at.true("use_vllm"):
            found.notes.append("a vLLM server on other GPUs rolls out: timed as by the trainer")
    elif word in METHODS:
        put_rl(found, {"method": word})
    elif word in ("rm", "kto", "ppo"):
        found.not_understood.append(f"{word} (its loss is not counted)")
    elif word in _WORDS["heads"]:
        found.beyond.append(f"{word}: another head and loss than a language model's")
    elif word in ("gkd", "distill", "distillation"):
        found.beyond.append(f"{word}: distillation from a second model is not predicted")
