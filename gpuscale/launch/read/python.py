"""Python files read statically: values of assignments and arguments of calls, nothing is executed.

A configuration that is a Python file (InternEvo, XTuner) is a table of its assignments. A training
script of the Hugging Face kind says its job in the arguments of a few calls: the model that is
loaded, its adapters, the trainer's arguments.
"""

from __future__ import annotations

import ast
from typing import Any

from gpuscale.launch.read.found import Found
from gpuscale.launch.read.nested import precision_of
from gpuscale.launch.read.pretraining import PRETRAINING, of_table
from gpuscale.launch.read.program_text import Program
from gpuscale.launch.read.recipe_scripts import read_recipe_script
from gpuscale.launch.read.rl import put_rl
from gpuscale.launch.read.trainer import read_arguments
from gpuscale.launch.read.tuning import TUNING


def read_python(text: str) -> Found | None:
    """Read a Python file; None where it says no job in constants."""
    try:
        tree = ast.parse(text)
        program = Program(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = of_table(program.names, (*PRETRAINING, *TUNING)) or _script(program)
    return found or read_recipe_script(tree)


LOADED = ("Fast", "AutoModel", "ForCausalLM", "AutoLiger")
TRAINERS = {"DPO": "dpo", "GRPO": "grpo", "ORPO": "orpo", "RLOO": "rloo", "CPO": "simpo"}
"""First letters of TRL's trainers and of their arguments -> method."""
MODEL_KEYS = ("model_name", "pretrained_model_name_or_path", "model_name_or_path")


def _script(program: Program) -> Found | None:
    """Job of a script that trains with a trainer of Hugging Face."""
    table: dict[str, Any] = {}
    trains = adapters = False
    for name, words, keys in program.calls:
        said = {key: value for key, value in keys.items() if value is not None}
        last = name.rsplit(".", 1)[-1]
        if last == "from_pretrained" and any(part in name for part in LOADED):
            first = words[0] if words and isinstance(words[0], str) else None
            model = next((said[k] for k in MODEL_KEYS if k in said), first)
            if model:  # the first that is loaded is trained, later ones try it out
                table.setdefault("model_name_or_path", model)
            fields = ("max_seq_length", "load_in_4bit", "load_in_8bit", "dtype", "torch_dtype")
            table = {key: said[key] for key in fields if key in said} | table
        elif last == "BitsAndBytesConfig":
            table |= {key: said[key] for key in ("load_in_4bit", "load_in_8bit") if key in said}
        elif last in ("LoraConfig", "get_peft_model"):
            adapters = True
            table |= {"lora_r": said["r"]} if "r" in said else {}
            table |= {"use_dora": True} if said.get("use_dora") else {}
            if said.get("use_gradient_checkpointing"):
                table["gradient_checkpointing"] = True
        elif last.endswith(("TrainingArguments", "Config")) and ARGUMENTS & set(keys):
            trains = True
            table |= {k: v for k, v in said.items() if not isinstance(v, (dict, list))}
            table.setdefault("rl", next((m for n, m in TRAINERS.items() if last.startswith(n)), ""))
        elif last.endswith("Trainer"):
            trains = True
            table |= {k: said[k] for k in ("max_seq_length",) if k in said}
            table["rl"] = table.get("rl") or next(
                (m for n, m in TRAINERS.items() if last.startswith(n)), ""
            )
    if not trains or not ({"model_name_or_path", "per_device_train_batch_size"} & set(table)):
        return None
    return _found(program, table, adapters)


ARGUMENTS = {"per_device_train_batch_size", "output_dir", "num_train_epochs", "max_steps"}


def _found(program: Program, table: dict[str, Any], adapters: bool) -> Found:
    unsloth = any(module.split(".")[0] == "unsloth" for module in program.imports)
    if unsloth and adapters:
        table.setdefault("load_in_4bit", True)  # its own default (FastLanguageModel)
        table.setdefault("gradient_checkpointing", True)
    table.setdefault("per_device_train_batch_size", 8)  # the trainer's own default
    table["use_lora"] = adapters
    method = table.pop("rl", "")
    found = read_arguments(table, "trainer", "")
    if unsloth:
        found.kind = found.software = "unsloth"
        found.n_gpus = 1
    if adapters and found.lora_rank is None:
        found.lora_rank = 16 if unsloth else 8
    word = str(table.get("dtype") or table.get("torch_dtype") or "")
    found.precision = found.precision or precision_of(word)
    if method and not found.rl:
        group = table.get("num_generations") or (8 if method == "grpo" else None)
        prompt, longest = table.get("max_prompt_length"), table.get("max_completion_length")
        rl = {"group": group, "prompt": prompt, "max_response": longest}
        put_rl(found, {"method": method} | (rl if method in ("grpo", "rloo") else {}))
    return found
