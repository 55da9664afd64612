"""Commands that a file tells the rest, and those of ColossalAI's trainers."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.launch.options import launch_table
from gpuscale.launch.read.found import UNSET, Found, named_model
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.read.nested import Nested, nest, precision_of
from gpuscale.launch.read.program import options_in
from gpuscale.launch.read.rl import put_rl

FRONTS = {
    "llamafactory-cli": ("llama-factory", ("train",)),
    "lmf": ("llama-factory", ("train",)),
    "axolotl": ("axolotl", ("train",)),
    "axolotl.cli.train": ("axolotl", ()),
    "oumi": ("oumi", ("train",)),
    "tune": ("torchtune", ("run",)),
}
"""Program -> kind of its files, and the words that make it train."""
ENDINGS = (".yaml", ".yml", ".json", ".toml")


def started(words: list[str]) -> Found | None:
    """Read a command of a front end that trains as a file says: `llamafactory-cli train FILE`."""
    names = [w.rsplit("/", 1)[-1] for w in words]
    at = next((i for i, name in enumerate(names) if name in FRONTS), None)
    options = options_in(words)
    if "peft_method" in options or "batch_size_training" in options:
        return _llama_recipes(options)
    if at is None:
        return None
    kind, verbs = FRONTS[names[at]]
    rest = words[at + 1 :]
    if verbs and not any(verb in rest[:2] for verb in verbs):
        return None
    after = zip(rest, [*rest[1:], ""], strict=True)
    named = next((a for w, a in after if w in ("-c", "--config")), "")
    file = named or next((w for w in rest if w.endswith(ENDINGS)), "")
    if not file:
        return None
    found = Found(kind, software=KINDS[kind].software or kind)
    found.beside.append(file)
    found.options = {k: v for k, v in map(_pair, rest) if k}
    if any("single_device" in w for w in rest):
        found.n_gpus = 1
    return found


def _pair(word: str) -> tuple[str, str]:
    """Key and value of a word `key=value`; an empty key for another word."""
    key, equals, value = word.partition("=")
    return (key, value) if equals and re.fullmatch(r"[A-Za-z_][\w.]*", key) else ("", "")


def one_device(name: str, found: list[Found]) -> list[Found]:
    """Put one GPU on the recipes of torchtune that are called so."""
    for one in found:
        if one.kind == "torchtune" and re.search("single[-_]device", name.rsplit("/", 1)[-1]):
            one.n_gpus = 1
    return found


def _llama_recipes(table: dict[str, Any]) -> Found:
    """Read options of Meta's `finetuning.py`, with its defaults (llama-cookbook, `configs`)."""
    found = Found("trainer", software="fsdp", method="full")
    at = Nested(found, nest({"batch_size_training": 4, "context_length": 4096, **table}))
    at.put({"micro_batch_size": "batch_size_training", "seq_len": "context_length"})
    at.put({"accumulation": "gradient_accumulation_steps"})
    name = named_model(at.text("model_name"))
    found.model_name = name if name and UNSET not in name else None
    sharded = at.true("enable_fsdp")
    found.zero_stage = 3 if sharded else 0
    kept = at.true("fsdp_config.fsdp_activation_checkpointing", "fsdp_activation_checkpointing")
    said = [key for key in table if key.endswith("fsdp_activation_checkpointing")]
    found.recompute = "full" if sharded and (kept or not said) else "none"
    found.precision = "fp16" if at.true("use_fp16") else "bf16"
    if at.true("use_peft"):
        found.method = "qlora" if "4" in at.text("quantization") else "lora"
        found.lora_rank = at.number("lora_config.r") or 8
        found.targets = ("q", "v")
    return found


_WORDS = launch_table("words")["commands"]
COLOSSALAI: dict[str, str] = _WORDS["colossalai"]


def read_colossalai(words: list[str], table: dict[str, Any]) -> Found:
    """Read a command `colossalai run SCRIPT`: a plugin says how the model is sharded."""
    found = Found("colossalai", software="fsdp", method="full")
    at = Nested(found, table)
    at.put({field: key for key, field in COLOSSALAI.items()})
    names = ("pretrain", "model_path", "model_name_or_path", "model")
    said = [name for key in names if (name := at.text(key)) not in ("", "True")]
    found.model_name = next((name for name in said if UNSET not in name), None)
    plugin = at.text("plugin").strip("'\"")
    stages = {"ddp": 0, "zero1": 1, "zero2": 2, "gemini": 3, "fsdp": 3, "3d": at.number("zero")}
    found.zero_stage = stages.get(plugin.split("_")[0]) or 0
    found.offload_optimizer = plugin.endswith("_cpu")
    found.precision = precision_of(at.text("mixed_precision"))
    kept = any(at.true(key) for key in ("grad_checkpoint", "gradient_checkpointing"))
    found.recompute = "full" if kept else "none"
    found.method = "lora" if found.lora_rank else "full"
    program = next((w.rsplit("/", 1)[-1] for w in words if w.endswith(".py")), "")
    method = next((m for m in ("dpo", "orpo", "simpo", "grpo", "ppo", "kto") if m in program), "")
    if method in ("kto", "ppo"):
        found.beyond.append(f"{program}: its loss and further models are not predicted")
    elif method:
        put_rl(found, {"method": method})
    return found
