"""Configurations that train a shape of their own: GPT-NeoX, nanotron, OLMo and their kin.

What a key says stands in the rows of their framework, the paths and the style of the shape in
`words.toml`; here is what neither can say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, put_shape, vocabulary
from gpuscale.launch.dialects.rows import sharded
from gpuscale.launch.named import gpu_named
from gpuscale.launch.options import launch_table

Dims = Table
Own = Callable[[Nested, Dims, dict[str, bool]], None]


def _neox(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """GPT-NeoX: a gated MLP is a third wide, rounded up (megatron/model/transformer.py)."""
    wide = at.number("intermediate_size") or 4 * (dims["hidden"] or 0)
    if style["gated"]:
        multiple = at.number("mlp_multiple_of") or 256
        wide = -(-(wide // 3) // multiple) * multiple
    dims["ffn"] = wide


def _nanotron(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """nanotron: every degree is said, so that the GPUs are (config/parallelism_config.py)."""
    found = at.found
    found.n_gpus = (found.dp or 1) * found.tp * found.pp * found.cp
    if (found.ep or 1) > 1:  # parallel/context.py
        found.n_gpus *= found.ep or 1
        found.beyond.append(
            f"ep {found.ep}: nanotron's experts are a dimension of the ranks of its own"
        )
    found.vpp = 1
    found.schedule = found.schedule if found.pp > 1 else None
    config = "model.model_config."
    if at.true(f"{config}is_starcoder2_config") or not style["gated"]:  # whose MLP has no gate
        style |= {"gated": False, "rms": False, "bias": True, "tied": True}
        dims["ffn"] = dims["ffn"] or 4 * (dims["hidden"] or 0)
        dims["kv"] = 1 if at.true(f"{config}multi_query") else dims["kv"]


def _foundry(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """llm-foundry over Composer: MPT's shape, or that of Llama in LLM-Shearing."""
    found, kind = at.found, at.text("model.name")
    found.gpu = gpu_named(at.text("compute.gpu_type", "gpu_type").replace("_", "-"))
    fsdp = "fsdp_config" if at.get("fsdp_config") is not None else "parallelism_config.fsdp"
    shards = at.get(fsdp) is not None
    found.zero_stage = sharded(at.text(f"{fsdp}.sharding_strategy")) if shards else 0
    if (stage := at.number("deepspeed_config.zero_optimization.stage")) is not None:
        found.zero_stage, found.software = stage, "deepspeed"  # Composer hands it on
    if found.model_name:
        named = "lora" if at.get("model.peft_config") is not None else "full"
        named = "dora" if at.true("model.peft_config.use_dora") else named
        found.method = named if at.true("model.pretrained", default=True) else "pretrain"
        found.lora_rank = found.lora_rank or 8 if named != "full" else None
    elif "llama" in kind:
        style |= {"gated": True, "rms": True, "bias": False, "learned": False}
        style["tied"] = at.true("model.tie_word_embeddings")
    ratio = at.number("model.expansion_ratio") or 4
    dims["ffn"] = dims["ffn"] or (dims["hidden"] or 0) * ratio


def _olmo(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """OLMo (the repository of the first two releases): FSDP, a shape of its own."""
    found = at.found
    replicated = at.text("distributed_strategy") in ("ddp", "single")
    found.zero_stage = 0 if replicated else sharded(at.text("fsdp.sharding_strategy"))
    if found.recompute is None:  # every second, third or fourth layer, or one of them
        word = at.text("activation_checkpointing").rsplit("_", 1)[-1]
        share = {"two": 2, "three": 3, "four": 4}.get(word, 1)
        found.recompute, found.recompute_layers = "full", (dims["layers"] or 0) // share
        found.asked.pop("activation_checkpointing", None)
    ratio = at.number("model.mlp_ratio") or 4
    wide = at.number("model.mlp_hidden_size") or (dims["hidden"] or 0) * ratio
    dims["ffn"] = wide // 2 if style["gated"] else wide  # of both halves together (olmo/model.py)
    dims["kv"] = 1 if at.true("model.multi_query_attention") else dims["kv"]


def _lingua(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """Meta Lingua: `dim` and a gated MLP of 8/3 of it (lingua/transformer.py)."""
    found = at.found
    shards, replicas = at.number("distributed.dp_shard"), found.dp_replicate
    found.n_gpus = shards * replicas * found.tp if shards and replicas else None
    multiple = at.number("model.multiple_of") or 256
    factor = float(at.text("model.ffn_dim_multiplier") or 1.0)
    wide = int(2 * 4 * (dims["hidden"] or 0) / 3 * factor)
    dims["ffn"] = -(-wide // multiple) * multiple


def _levanter(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """Levanter: classes of models with a length of their own, GPT-2's and Llama's."""
    found, kind = at.found, at.text("model.type")
    name = at.text("initialize_from_hf", "model_name_or_path")
    own = at.number("model.hidden_dim") and not at.true("use_hf_model_config")
    if name and name.lower() not in ("true", "false") and not own:
        found.model_name = name.split("@")[0]
        return
    for key in ("train_batch_size", "per_device_parallelism"):
        if isinstance(at.get(f"trainer.{key}"), list):
            found.beyond.append(f"trainer.{key} has several stages: give a file of one")
    gpt2 = kind in ("", "gpt2") or "starcoder" in kind
    if found.seq_len is None:
        found.seq_len = {"": 1024, "gpt2": 1024, "llama": 2048}.get(kind)
    dims["ffn"] = dims["ffn"] or 4 * (dims["hidden"] or 0)
    dims["vocab"] = vocabulary(at.text("data.tokenizer", "tokenizer"))
    style |= {"gated": not gpt2, "rms": not gpt2, "bias": gpt2, "learned": gpt2, "tied": gpt2}


OWN: dict[str, Own] = {
    "gpt-neox": _neox,
    "nanotron": _nanotron,
    "llm-foundry": _foundry,
    "olmo": _olmo,
    "lingua": _lingua,
    "levanter": _levanter,
}
"""Framework -> what neither its rows nor its table of a shape can say."""


def put_own_shape(at: Nested) -> None:
    """Build the model of a file by its framework's paths, unless it names one of the hub."""
    table: Mapping[str, Any] = launch_table("words")["shapes"][at.found.kind]
    usual = table.get("usual", {})
    dims = {key: n or usual.get(key) for key, n in at.dims(at.found.kind).items()}
    style = {key: _holds(at, said) for key, said in table["style"].items()}
    OWN[at.found.kind](at, dims, style)
    if not at.found.model_name and dims["hidden"] and not at.found.beyond:
        name = at.text(*table["name"].split()).replace("%", "")
        put_shape(at.found, name or table["own"], dims, **style)


def _holds(at: Nested, said: bool | Mapping[str, Any]) -> bool:
    """Whether a file is of a style: always, or where an option is true or `like` a pattern."""
    if isinstance(said, bool):
        return said
    text = at.text(said["option"])
    if not text:
        return bool(said.get("usual", False))
    return bool(re.search(said["like"], text)) if "like" in said else at.true(said["option"])


def neox_keys(table: Mapping[str, Any]) -> Table:
    """Write keys of a GPT-NeoX file with underscores, as it does itself."""
    return {str(key).replace("-", "_"): value for key, value in table.items()}
