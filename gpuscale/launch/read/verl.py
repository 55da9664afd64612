"""verl: a command's `KEY=VALUE` words over its own configuration, or a YAML of the same keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.io.toml import Table
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.dialects.heard import known_keys, leaves, put_unheard
from gpuscale.launch.dialects.nested import Nested
from gpuscale.launch.dialects.rows import precision_of, put, whole
from gpuscale.launch.found import MEGATRON_KEYS, UNSET, Found
from gpuscale.launch.options import launch_table
from gpuscale.launch.read.kinds import put_beyond
from gpuscale.launch.read.rl import ESTIMATORS, is_zero, put_rl, put_tokens
from gpuscale.launch.read.tables import key_values
from gpuscale.launch.read.together import OPTIONAL


def is_verl(words: Sequence[str]) -> bool:
    """Whether a command trains with verl."""
    return any(re.match(r"verl\.trainer\.\w+|\S*/main_ppo\.py$", w) for w in words) or any(
        w.startswith("actor_rollout_ref.") for w in words
    )


def read_verl_command(words: Sequence[str]) -> Found:
    """Read a command of verl, whose configuration is its own, or a file that is named."""
    found = read_verl(key_values(words), " ".join(words))
    if other := next((w for w in words if re.match(r"verl\.trainer\.main_(gen|eval)", w)), ""):
        found.rl = {}
        found.beyond.append(f"{other}: no training")
    if any(w.endswith("main_ppo_split.py") for w in words) and found.world_size:
        found.rl["critic_gpus"] = found.world_size // 2  # two pools (examples/split_placement)
    given = {key: word.partition("=")[2] for word in words for key in CONFIG if key in word}
    for word, after in zip(words, words[1:], strict=False):
        given |= {word: after} if word in CONFIG else {}
    name, folder = (given.get(key, "").strip("'\"") for key in CONFIG)
    name = name.removesuffix(".yaml") or "ppo_trainer" * ("verl.trainer.main_ppo" in words)
    own = name.endswith(("ppo_trainer", "sft_trainer")) or "megatron_trainer" in name
    file = f"{OPTIONAL}verl/trainer/config" if own else folder or "config"  # of a fork
    found.beside += [f"{file}/{name}.yaml"] if name else []
    found.options = key_values(words)
    script = next((w for w in words[:4] if w.endswith(".sh")), "")
    if script and "actor_rollout_ref.model.path" not in key_values(words):  # it says the rest
        found = Found("verl", software="verl", version="verl", beside=[script])
    return found


CONFIG = ("--config-name", "--config-path")


def read_verl_file(table: Mapping[str, Any]) -> Found:
    """Read a YAML of verl: its keys are those of a command."""
    return read_verl(dotted(table), str(table.get("defaults", "")))


def dotted(table: Mapping[str, Any]) -> Table:
    """Make dotted keys of a nested table; `${oc.env:NAME,default}` is the default.

    >>> dotted({"a": {"b": 1, "c": "${oc.env:N,8}"}})
    {'a.b': 1, 'a.c': '8'}
    """
    made: Table = {}
    for key, value in leaves(table):
        named = re.fullmatch(r"\$\{oc\.env:\w+(?:,(.*))?\}", str(value).strip())
        made[key] = (named[1] or f"{UNSET}{value}") if named else value
    made = {key: value for key, value in made.items() if value is not None}
    refers = [k for k, v in made.items() if re.fullmatch(r"\$\{[\w.]+\}", str(v))]
    variables = {made[k][2:-1] for k in refers if "." not in made[k]}  # of the file itself
    made |= {k: made.get(made[k][2:-1], UNSET + made[k]) for k in refers}
    return {key: value for key, value in made.items() if key not in variables}


def read_verl(table: Mapping[str, Any], words: str) -> Found:
    """Read a job of verl: GRPO and its like, or supervised fine-tuning.

    `table`: its keys, dotted. `words`: what else names its trainer. Batch sizes are prompts of a
    step; a sequence is a prompt and its longest response. What is not said is verl's own.
    """
    found = Found("verl", software="verl", version="verl")
    sft = "sft_trainer" in words or "model.partial_pretrain" in table
    at = Nested(found, table)
    put(dialect("verl-sft" if sft else "verl"), at)
    rl, found.rl = found.rl, {}
    found.precision = precision_of(at.text("actor_rollout_ref.actor.fsdp_config.dtype")) or "bf16"
    found.method = "lora" if found.lora_rank else "full"
    found.zero_stage = 3
    if not sft:
        _verl_policy(at, words)
        _verl_rollouts(at, rl)
    found.cp_kind = "ulysses" if found.cp > 1 and "megatron" not in " ".join(table) else None
    put_beyond(at)
    put_unheard(found, table, at.heard | {"engine"}, known_keys("verl"))
    return found


def _verl_policy(at: Nested, words: str) -> None:
    """Degrees, micro-batch and offload of the policy: Megatron's workers or FSDP's."""
    found, actor = at.found, "actor_rollout_ref.actor."
    over = re.search(r"ppo_megatron_trainer|--config-name[= ]\S*megatron", words) is not None
    over |= any(key.startswith(f"{actor}megatron.") for key in at.table)
    over |= at.text(f"{actor}strategy") == "megatron"
    part = f"{actor}{'megatron' if over else 'fsdp_config'}."
    if over:
        at.put({field: f"{part}{key}" for field, key in MEGATRON_KEYS.items()})
        found.zero_stage = 1
        found.sequence_parallel = at.true(f"{part}sequence_parallel", default=True)
    size = at.number(f"{part}fsdp_size") or 0
    if 0 < size < (found.world_size or 0):
        found.notes.append(f"fsdp_size {size}: its shards are counted as over all GPUs, too small")
    found.offload_parameters = at.true(f"{part}param_offload")
    found.offload_optimizer = at.true(f"{part}optimizer_offload")
    over_all = at.number(f"{actor}ppo_micro_batch_size")  # of old releases
    if found.micro_batch_size is None and over_all and found.world_size:
        found.micro_batch_size = max(1, over_all // found.world_size)


def _verl_rollouts(at: Nested, rl: Table) -> None:
    """Prompts, samples, lengths and the engine's degree."""
    found = at.found
    estimator = str(rl["method"])
    mini = at.number("actor_rollout_ref.actor.ppo_mini_batch_size") or 256  # prompts of an update
    if at.text("data.train_batch_size") == "0":  # fully asynchronous: between two handed over
        handed = mini * (at.number("async_training.require_batches") or 1)
        rl["prompts"] = at.number("async_training.required_samples") or handed  # of rLLM
    if ESTIMATORS.get(estimator) == "ppo":
        rl |= {"group": None, "rule_reward": not at.true("reward_model.enable") or None}
    else:  # agents of Search-R1 and its kin are samples too
        rl["group"] *= at.number(*launch_table("words")["rl"]["agents"]) or 1
        rl["rule_reward"] = None
    rl |= {"no_kl": not _has_kl(at) or None, "engine": None}
    rl |= {"group": None} if "rl.group" in found.unread else {}
    put_rl(found, rl)
    if found.global_batch_size:
        update = mini * (whole(found.rl.get("group")) or 1)
        found.global_batch_size = min(found.global_batch_size, update)
    if at.true("trainer.val_only"):
        found.beyond.append("trainer.val_only: an evaluation, not a training")
    _verl_placement(at)
    tokens = at.number("actor_rollout_ref.actor.ppo_max_token_len_per_gpu") or 16384  # its default
    if at.true("actor_rollout_ref.actor.use_dynamic_bsz"):
        put_tokens(found, tokens)


def _has_kl(at: Nested) -> bool:
    """Whether the loss or the reward has a KL term, and so a reference (`need_reference_policy`).

    Releases before `use_kl_in_reward` put it into the reward wherever the loss had none.
    """
    keys = ("algorithm.use_kl_in_reward", "actor_rollout_ref.actor.use_kl_loss")
    older = ("actor_rollout_ref.actor.ppo_micro_batch_size", "algorithm.kl_ctrl.kl_coef")
    if keys[0] in at.table or not any(key in at.table for key in older):
        return any(at.true(key) for key in keys)
    return at.true(keys[1]) or not is_zero(at.text(older[1]) or None)


def _verl_placement(at: Nested) -> None:
    """GPUs of their own for the rollouts: `one_step_off_policy` and `fully_async_policy`."""
    found = at.found
    per = at.number("rollout.n_gpus_per_node")
    if per is None or found.world_size is None:
        return
    apart = per * (at.number("rollout.nnodes") or 1)
    found.rl |= {"engine": "async", "rollout_gpus": apart}
    found.n_gpus = found.world_size + apart
