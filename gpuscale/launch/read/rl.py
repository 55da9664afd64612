"""RL post-training: OpenRLHF's and slime's options, a trainer's keys."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpuscale.core.rl.step import ALL_METHODS as METHODS
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.dialects.heard import Heard, known_keys, put_unheard
from gpuscale.launch.dialects.rows import put
from gpuscale.launch.options import launch_table
from gpuscale.launch.read.found import UNSET, Found, named_model
from gpuscale.launch.read.keyed import whole
from gpuscale.launch.read.nested import Nested

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    if (method := found.rl.get("method")) not in METHODS:
        found.beyond.append(f"RL by `{method}`: `memory --method` knows {', '.join(METHODS)}")
    prompts, group = whole(found.rl.get("prompts")), whole(found.rl.get("group"))
    if prompts and found.rl.get("method") != "dpo":
        found.global_batch_size = prompts * (group or 1)
    prompt, response = whole(found.rl.get("prompt")), whole(found.rl.get("max_response"))
    if found.seq_len is None and prompt and response:
        found.seq_len = prompt + response


TRAINERS: dict[str, str] = _WORDS["trainers"]


def read_openrlhf(words: Sequence[str], table: Mapping[str, Any]) -> Found:
    """Read a command of OpenRLHF; options before 0.10 have no sections (`--zero_stage`)."""
    given, table = table, Heard(table)
    get = Reader(Found("openrlhf", software="openrlhf", version="OpenRLHF"), table)
    found = get.found
    at = Nested(found, table)
    put(dialect("openrlhf"), at)
    found.rl = {}
    found.zero_stage = 2 if found.zero_stage is None else found.zero_stage
    found.cp_kind = "ring" if found.cp > 1 else None
    found.precision = found.precision or "bf16"
    found.recompute = found.recompute or "none"
    four_bit = "load_in_4bit" in table or "ds.load_in_4bit" in table
    found.method = ("qlora" if four_bit else "lora") if found.lora_rank else "full"
    found.weights = None
    program = next((w.rsplit(".", 1)[-1] for w in words if "openrlhf.cli." in w), "")
    if (method := TRAINERS.get(program)) is None:
        _openrlhf_rollouts(get)
    elif method:
        put_rl(found, {"method": method})
    put_unheard(found, given, table.asked | at.heard, known_keys("openrlhf"))
    return found


def _openrlhf_rollouts(get: Reader) -> None:
    word = get.text("algo.advantage.estimator") or get.text("advantage_estimator") or "gae"
    rl: dict[str, Any] = {"method": ESTIMATORS.get(word, word.replace("_", "-"))}
    rl["prompts"] = get.number("rollout.batch_size") or get.number("rollout_batch_size")
    samples = get.number("rollout.n_samples_per_prompt") or get.number("n_samples_per_prompt")
    rl["group"] = samples if rl["method"] != "ppo" else None
    tp = get.number("vllm.tensor_parallel_size") or get.number("vllm_tensor_parallel_size")
    rl["rollout_tp"] = tp
    longest = get.number("rollout.max_new_tokens") or get.number("generate_max_len")
    prompt = get.number("prompt_max_len")
    rl["max_response"] = longest
    coefficient = get.text("algo.kl.init_coef") or get.text("init_kl_coef")
    rl["no_kl"] = is_zero(coefficient) or None
    remote = any(key in get.table for key in REMOTE)
    rl["rule_reward"] = (remote and rl["method"] == "ppo") or None
    length = get.found.seq_len
    rl["prompt"] = prompt or (length - longest if length and longest and length > longest else None)
    batch = get.found.global_batch_size
    put_rl(get.found, rl)
    get.found.global_batch_size = batch or get.found.global_batch_size
    _openrlhf_placement(get, tp or 1)


def is_zero(coefficient: str | None) -> bool:
    """Whether a term of the loss is switched off: its coefficient is a zero."""
    return coefficient is not None and re.fullmatch(r"0*\.?0*(e.*)?", coefficient) is not None


REMOTE = ("remote_rm_url", "reward.remote_url")
"""Options of OpenRLHF that leave rewards to a server or a function."""
COLOCATED = ("colocate_all_models", "colocate_all", "train.colocate_all", "vllm.colocate_all")


def _openrlhf_placement(get: Reader, tp: int) -> None:
    """Engines and critic on GPUs of their own, where the models are not colocated."""
    found, table = get.found, get.table
    engines = get.number("vllm_num_engines") or get.number("vllm.num_engines")
    if not engines or found.world_size is None or any(key in table for key in COLOCATED):
        return
    found.rl |= {"engine": "split", "rollout_gpus": engines * tp}
    critic = 0
    if found.rl.get("method") == "ppo":
        nodes = get.number("critic_num_nodes") or get.number("critic.num_nodes") or 0
        per = get.number("critic_num_gpus_per_node") or get.number("critic.num_gpus_per_node")
        critic = nodes * (per or 0)
        found.rl |= {"critic_gpus": critic} if critic else {}
    found.n_gpus = found.world_size + engines * tp + critic
    found.notes.append("GPUs of the reference and of the reward model alone are not counted")


SLIME: dict[str, str] = _WORDS["slime"]


def is_slime(words: Sequence[str]) -> bool:
    """Whether a command trains with slime."""
    return "--actor-num-gpus-per-node" in words and "--rollout-batch-size" in words


def read_slime(found: Found, table: Mapping[str, Any]) -> Found:
    """Put what slime adds to Megatron's options on their record."""
    get = Reader(found, table)
    found.kind = found.software = found.version = "slime"
    found.asked = {}
    found.not_understood = [name for name in found.not_understood if name[2:4] == "no"]
    found.wrong = [one for one in found.wrong if "do not divide" not in one]  # its own split
    found.n_nodes = get.number("actor_num_nodes", "n_nodes")
    found.gpus_per_node = get.number("actor_num_gpus_per_node", "gpus_per_node")
    name = get.text("hf_checkpoint", "model")
    found.model_name = name.rsplit("/", 1)[-1] if name else None
    found.model, found.method, found.precision = None, "full", "bf16"
    found.zero_stage = 1
    if (get.text("loss_type") or "").startswith("sft"):
        found.seq_len = found.seq_len or get.number("max_tokens_per_gpu")
        return found
    found.seq_len = None  # of Megatron; slime packs what is rolled out
    word = get.text("advantage_estimator") or "grpo"
    rl: dict[str, Any] = {key: get.number(option) for key, option in SLIME.items()}
    if "use_kl_loss" not in table and is_zero(get.text("kl_coef") or "0"):  # slime: `with_ref`
        rl["no_kl"] = True
    batch = found.global_batch_size
    if "colocate" not in table and (engines := get.number("rollout_num_gpus")):
        rl |= {"rollout_gpus": engines}
        found.n_gpus = (found.world_size or 0) + engines
    put_rl(found, {"method": ESTIMATORS.get(word, word.replace("_", "-")), **rl})
    if "rollout_gpus" in found.rl:
        found.rl["engine"] = "split"
    found.global_batch_size = batch or found.global_batch_size
    return found


GRPO_KEYS = ("num_generations", "max_completion_length", "max_prompt_length", "reward_funcs")
"""Keys that only a GRPO trainer of TRL has; any two of them say so."""


def put_trainer(table: Mapping[str, Any], found: Found) -> None:
    """Put on a trainer's record what its keys say of preference tuning and RL."""
    said = ("rl", "rlhf_type", "stage", "task_type")
    word = next((str(table[key]).lower() for key in said if table.get(key)), "")
    get = Reader(found, table)
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
        prompt = get.number("max_prompt_length")
        longest = get.number("max_completion_length")
        if prompt and longest:
            found.seq_len = prompt + longest
        rl = {
            "group": get.number("num_generations", "group"),
            "prompt": prompt,
            "max_response": longest,
            "rollout_tp": get.number("vllm_tensor_parallel_size"),
            "no_kl": (found.kind == "trainer" and is_zero(str(table.get("beta", "0")))) or None,
        }
        put_rl(found, {"method": word, **rl})
        if get.true("use_vllm") and table.get("vllm_mode") == "colocate":
            found.rl["engine"] = "colocated"
        elif get.true("use_vllm"):
            found.notes.append("a vLLM server on other GPUs rolls out: timed as by the trainer")
    elif word in METHODS:
        put_rl(found, {"method": word})
    elif word in ("rm", "kto", "ppo"):
        found.not_understood.append(f"{word} (its loss is not counted)")
    elif word in ("gkd", "distill", "distillation"):
        found.beyond.append(f"{word}: distillation from a second model is not predicted")


NONE: Mapping[str, int] = MappingProxyType({})


class Reader:
    """Values of a table that a command line gives, unset variables noted on a `Found`."""

    def __init__(self, found: Found, table: Mapping[str, Any]) -> None:
        self.found, self.table = found, table

    def text(self, key: str, field: str = "") -> str | None:
        """Value of a key as text; None where it is missing or holds an unset variable."""
        value = self.table.get(key)
        if value is None or value is True:
            return None
        text = str(value).strip("'\"")
        text = named_model(text) if field == "model" else text
        if UNSET in text:
            if field:
                self.found.unread[field] = text.replace(UNSET, "")
            return None
        if field:
            self.found.places[field] = f"{key} {text}"
        return text

    def number(self, key: str, field: str = "", own: Mapping[str, int] = NONE) -> int | None:
        """Value of a key as a whole number; where it is missing the framework's `own`."""
        if key in own and self.table.get(key) is None:
            self.found.notes.append(f"{key} {own[key]}, its default")
            return own[key]
        return whole(self.text(key, field))

    def true(self, key: str) -> bool:
        """Whether a key is true."""
        return str(self.table.get(key)).lower() == "true"
