"""Jobs written as keys: Megatron-Bridge and NeMo YAML."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.io.toml import Table
from gpuscale.launch.dialects.megatron_model import model_of
from gpuscale.launch.dialects.nested import Nested, nest
from gpuscale.launch.dialects.rows import whole
from gpuscale.launch.found import UNSET, Found
from gpuscale.launch.options import launch_table
from gpuscale.launch.read.megatron import put_core, read
from gpuscale.launch.read.tables import as_flags, flat, key_values, tables_in


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
