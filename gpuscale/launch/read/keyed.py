"""Jobs written as keys: Megatron-Bridge and NeMo YAML, verl's words and files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.io.text import Table
from gpuscale.launch.dialects.megatron_model import model_of
from gpuscale.launch.dialects.nested import Nested, dialect, nest
from gpuscale.launch.dialects.rows import known_keys, leaves, precision_of, put, put_unheard, whole
from gpuscale.launch.found import MEGATRON_KEYS, UNSET, Found, launch_table
from gpuscale.launch.read.kinds import put_beyond
from gpuscale.launch.read.megatron import put_core, read
from gpuscale.launch.read.rl import ESTIMATORS, is_zero, put_rl, put_tokens
from gpuscale.launch.read.together import OPTIONAL, as_flags, flat, key_values, tables_in


def read_bridge(table: Table) -> Found:
    """Read a Megatron-Bridge or NeMo YAML by its leaves; paths differ between releases."""
    found = Found("megatron-bridge", software="megatron-bridge", version="Megatron-Bridge, NeMo")
    leaves: Table = {}
    for key, value in flat(table):
        if key not in leaves or "${" not in str(value):  # another key's value by its path
            leaves[key] = value
    pairs = [pair for one in tables_in(table) for pair in one.items()]
    leaves |= {str(k).rsplit(".", 1)[-1]: v for k, v in pairs if v and isinstance(v, list)}
    put_core(Nested(found, {key.replace("_", "-"): v for key, v in leaves.items()}), flags=False)
    model = table.get("model")
    optim = model.get("optim") if isinstance(model, dict) else None
    if isinstance(optim, dict) and optim.get("name"):  # of NeMo 1
        found.zero_stage = int(str(optim["name"]).startswith(("distributed", "mcore_distributed")))
    _peft(leaves, found)
    said = ("recipe", "model_name", "model_train_name", "restore_from_path")
    name = next((leaves[key] for key in said if leaves.get(key)), None)
    if name and "${" in str(name):
        found.unread["model"] = str(name)
    elif name and str(name) not in ("???", "None"):
        found.model_name = str(name).removesuffix(".nemo")
    _other(leaves, table, found)
    _shape(leaves, table, found)
    if "distributed_strategy" in table:
        found.other_machine = "AWS Trainium"  # of NeuronX Distributed Training
    return found


def is_bridge(table: Table) -> bool:
    """Whether a YAML overrides a recipe of Megatron-Bridge, or is a job of NeMo or its Aligner."""
    train, trainer, model = (table.get(key) for key in ("train", "trainer", "model"))
    if "tensor_model_parallel_size" in dict(flat(table)) and "rollout" not in table:
        return True
    if isinstance(train, dict) and any(isinstance(table.get(k), dict) for k in BRIDGE_SECTIONS):
        return bool({"global_batch_size", "micro_batch_size", "train_iters"} & set(train))
    if not isinstance(trainer, dict) or not isinstance(model, dict):
        return False
    return bool({"devices", "num_nodes"} & set(trainer)) and bool(BATCHES & set(model))


BRIDGE_SECTIONS = ("model", "scheduler", "optimizer", "ddp", "dist", "checkpoint", "dataset")
BATCHES = {"micro_batch_size", "global_batch_size", "restore_from_path"}


def _other(leaves: Table, table: Table, found: Found) -> None:
    """Say where a NeMo YAML trains another thing than a decoder-only language model."""
    inner = (pair for one in tables_in(table) for pair in one.items())
    parts = {str(key) for key, value in inner if isinstance(value, dict)} | set(leaves)
    name = str(table.get("name") or "")
    other = next((key for key in OTHERS if key in parts), "")
    if not other and (named := re.search(OTHER_NAMES, name)):
        other = named[1]
    generates = "tokens_to_generate" in leaves and "global_batch_size" not in leaves
    if (
        generates
        or re.search(r"(^|_)infer(ence)?(_|$)", name)
        or {"quantization", "export"} <= set(table)
    ):
        found.beyond.append(f"{name[:60] or 'its sections'}: an inference, not a training")
    if other:
        found.beyond.append(f"{other}: not the training of a decoder-only language model")
    trainer = table.get("trainer")
    aligned = next((k for k in ALIGNED if isinstance(trainer, dict) and k in trainer), "")
    if found.method == "pretrain" and re.search(r"_(sft|finetuning)(_|$)", name):
        found.method = "full"
    if aligned == "dpo":
        found.rl = {"method": aligned}
    elif aligned:
        found.beyond.append(f"{aligned} of NeMo-Aligner: its further models are not predicted")
    if "tensor_model_parallel_size" not in leaves:
        found.unread["layout"] = "as its checkpoint says" if aligned else "as its recipe says"


def _peft(leaves: Table, found: Found) -> None:
    """Put NeMo's adapters on the record."""
    scheme = str(leaves.get("peft_scheme") or leaves.get("peft") or "")
    if "virtual_prompt_style" in leaves:  # of its first releases
        scheme = "adapter" if leaves["virtual_prompt_style"] == "no-prompts" else "ptuning"
    if scheme in ("lora", "qlora", "dora"):
        found.method = scheme
        found.lora_rank = whole(leaves.get("adapter_dim"))
    elif scheme in ("adapter", "ptuning", "ia3"):
        found.beyond.append(f"peft_scheme {scheme}: training of it is not predicted")


NO_TRAINING = r"infer|_eval(_|$|\.)|generat|logits|quantiz|_ptq|serve_reward|export|convert"
"""Parts of the names of programs of NeMo and its Aligner that train nothing."""
_WORDS = launch_table("words")["keyed"]
OTHERS = tuple(_WORDS["others"])
OTHER_NAMES = (
    r"(?:^|[_-])(m?t5|bert|bart|ul2|retro|griffin|neva|clip|vit|imagen|sdxl|hiddens)(?:[_-]|$)"
)
ALIGNED = tuple(_WORDS["aligned"])
LONG: dict[str, str] = _WORDS["long"]


def _shape(leaves: Table, table: Table, found: Found) -> None:
    """Build the model of a NeMo YAML, which holds its shape, as Megatron's flags would."""
    given: Table = {
        flag: n for key, flag in LONG.items() if (n := whole(leaves.get(key))) is not None
    }
    if {"num-layers", "hidden-size", "num-attention-heads"} - set(given):
        return
    run = table.get("run")
    names = [run.get("name") if isinstance(run, dict) else None, table.get("name")]
    name = str(next((n for n in names if n), found.model_name or "model"))
    untied = leaves.get("untie_embeddings_and_output_weights") is True
    plain = leaves.get("bias") is False or leaves.get("disable_bias_linear") is True
    on = {
        "untie-embeddings-and-output-weights": untied
        or leaves.get("share_embeddings_and_output_weights") is False,
        "disable-bias-linear": plain,
        "group-query-attention": "num-query-groups" in given,
        "swiglu": "glu" in str(leaves.get("activation", "")) or leaves.get("swiglu") is True,
        "add-qkv-bias": leaves.get("qkv_bias") is True,
    }
    given |= {flag: True for flag, said in on.items() if said}
    rms = "rms" in str(leaves.get("normalization", "")).lower()
    given |= {"normalization": "RMSNorm"} if rms else {}
    given["position-embedding-type"] = str(leaves.get("position_embedding_type", "rope"))
    found.model_name = re.sub(r"^(megatron|nemo)_", "", name.partition("${")[0].rstrip("_-"))
    found.model = model_of(Nested(found, given), found.model_name)


def read_flagscale(table: Table) -> Found:
    """Read a YAML of FlagScale: Megatron's options in sections."""
    given = {key: value for key, value in flat(table) if "${" not in str(value)}
    found = read(["pretrain_gpt.py", *" ".join(as_flags(given)).split()], "model")
    found.version, found.not_understood, found.asked = "FlagScale", [], {}
    return found


def is_hydra(words: list[str]) -> bool:
    """Whether a command is one of NeMo's programs with overrides of its configuration."""
    keys = ("trainer.devices=", "model.restore_from_path=", "model.tensor_model_parallel_size=")
    return sum(w.lstrip("+").startswith(keys) for w in words) > 1


def read_hydra(words: list[str]) -> Found:
    """Read overrides of a NeMo configuration: the file that they override says the rest."""
    given = {k: value_of(value) for k, value in key_values(words).items() if "." in k}
    found = read_bridge(nest(given))
    names = [w for w in words if w.startswith("--config-name")]
    after = words[words.index(names[0]) + 1 :] if names else []
    name = names[0].partition("=")[2] or next(iter(after), "") if names else ""
    found.beside += [f"{name.removesuffix('.yaml').strip()}.yaml"] if name else []
    found.model_name = found.model_name if UNSET not in (found.model_name or "") else None
    program = next((w.rsplit("/", 1)[-1] for w in words if w.endswith(".py")), "")
    if re.search(NO_TRAINING, program):
        found.beyond.append(f"{program[:60]}: no training")
    return found


def value_of(text: str) -> Any:
    """Value of an override: true, false, nothing, a list, or the text without its quotes."""
    if text in ("null", "None"):
        return None
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    if text.startswith("[") and text.endswith("]"):
        return [part.strip() for part in text[1:-1].split(",")]
    return text.strip("'\"").removeprefix("torch.")


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
    found.offload_optimizer = any([at.true(f"{part}optimizer_offload"), at.true(OFFLOADS)])
    over_all = at.number(f"{actor}ppo_micro_batch_size")  # of old releases
    if found.micro_batch_size is None and over_all and found.world_size:
        found.micro_batch_size = max(1, over_all // found.world_size)


OFFLOADS = "actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload"
"""Key of Megatron's own optimizer on the host."""


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
