"""Readers of pre-training configurations whose frameworks shard by FSDP: shapes of their own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuscale.launch.read.gpus import gpu_named
from gpuscale.launch.read.nested import precision_of, put_shape, sharded, vocabulary

if TYPE_CHECKING:
    from gpuscale.launch.read.nested import Nested


def foundry(at: Nested) -> None:
    """llm-foundry over Composer: a model of the hub, or MPT by its shape."""
    found = at.found
    found.precision = precision_of(at.text("precision") or "bf16")
    found.gpu = gpu_named(at.text("compute.gpu_type", "gpu_type").replace("_", "-"))
    fsdp = "fsdp_config" if at.get("fsdp_config") is not None else "parallelism_config.fsdp"
    found.zero_stage = (
        sharded(at.text(f"{fsdp}.sharding_strategy")) if at.get(fsdp) is not None else 0
    )
    checkpointed = at.true(f"{fsdp}.activation_checkpointing")
    found.recompute = "full" if checkpointed else "none"
    found.offload_activations = at.true(f"{fsdp}.activation_cpu_offload")
    zero = "deepspeed_config.zero_optimization"  # Composer hands it on
    if (stage := at.number(f"{zero}.stage")) is not None:
        found.zero_stage, found.software = stage, "deepspeed"
        found.offload_optimizer = at.text(f"{zero}.offload_optimizer.device") == "cpu"
        found.offload_parameters = at.text(f"{zero}.offload_param.device") == "cpu"
    named = at.text("model.pretrained_model_name_or_path", "model.pretrained_model_name")
    kind = at.text("model.name")
    if re.search(r"(^|_)(t5|bert)", kind):
        found.beyond.append(f"{kind}: not the training of a decoder-only language model")
    if named:
        found.model_name = named
        found.method = "full" if at.true("model.pretrained", default=True) else "pretrain"
        if at.get("model.peft_config") is not None:
            found.method = "dora" if at.true("model.peft_config.use_dora") else "lora"
            found.lora_rank = at.number("model.peft_config.r") or 8
        return
    llama = "llama" in kind  # of LLM-Shearing
    glu = llama or at.text("model.ffn_config.ffn_type") == "mptglu"
    dims = at.dims("llm-foundry")
    ratio = at.number("model.expansion_ratio") or 4
    dims["ffn"] = dims["ffn"] or (dims["hidden"] or 0) * ratio
    dims["top_k"] = dims["top_k"] or 1
    rope = llama or at.true("model.attn_config.rope")
    tied = at.true("model.tie_word_embeddings", default=not llama)
    bias = not (llama or at.true("model.no_bias"))
    alone = {"rms": llama, "bias": bias, "learned": not rope}
    put_shape(
        found, at.text("run_name", "model.name") or "mpt", dims, gated=glu, tied=tied, **alone
    )


def olmo(at: Nested) -> None:
    """OLMo (the repository of the first two releases): FSDP, a shape of its own."""
    found = at.found
    found.precision = precision_of(at.text("precision") or "bf16")
    replicated = at.text("distributed_strategy") in ("ddp", "single")
    found.zero_stage = 0 if replicated else sharded(at.text("fsdp.sharding_strategy"))
    word = at.text("activation_checkpointing")
    found.recompute = {"": "none", "whole_layer": "full", "fine_grained": "selective"}.get(word)
    if found.recompute is None:  # every second, third or fourth layer, or one of them
        share = {"two": 2, "three": 3, "four": 4}.get(word.rsplit("_", 1)[-1], 1)
        layers = at.number("model.n_layers") or 0
        found.recompute, found.recompute_layers = "full", layers // share
    gated = at.text("model.activation_type") in ("", "swiglu")
    dims = at.dims("olmo")
    hidden = dims["hidden"] or 0
    wide = at.number("model.mlp_hidden_size") or hidden * (at.number("model.mlp_ratio") or 4)
    dims["ffn"] = wide // 2 if gated else wide  # of both halves together (olmo/model.py)
    if at.true("model.multi_query_attention"):
        dims["kv"] = 1
    put_shape(
        found,
        at.text("run_name") or "olmo",
        dims,
        gated=gated,
        tied=at.true("model.weight_tying", default=True),
        rms="rms" in at.text("model.layer_norm_type"),
        bias=at.true("model.include_bias"),
        learned=not at.true("model.rope"),
    )


def lingua(at: Nested) -> None:
    """Meta Lingua: `dim` and a gated MLP of 8/3 of it (lingua/transformer.py)."""
    found = at.found
    found.precision = "fp8" if at.true("distributed.float8_recipe") else "bf16"
    shard = at.text("distributed.fsdp_type")
    found.zero_stage = {"no_shard": 0, "shard_grad_op": 2}.get(shard, 3)
    found.dp_replicate = at.number("distributed.dp_replicate")
    shards, replicas = at.number("distributed.dp_shard"), found.dp_replicate
    found.n_gpus = shards * (replicas or 1) * found.tp if shards and replicas else None
    selective = at.true("distributed.selective_activation_checkpointing")
    found.recompute = "per-op" if selective else "none"
    if other := next(
        (k for k in ("state_dim", "conv_size", "lru_dim") if at.get(f"model.{k}")), ""
    ):
        found.beyond.append(f"model.{other}: a recurrent model, whose training is not predicted")
        return
    dims = at.dims("lingua")
    multiple = at.number("model.multiple_of") or 256
    factor = float(at.text("model.ffn_dim_multiplier") or 1.0)
    wide = int(2 * 4 * (dims["hidden"] or 0) / 3 * factor)
    dims["ffn"] = -(-wide // multiple) * multiple
    tied = at.true("model.weight_tying")
    put_shape(found, at.text("name") or "lingua", dims, gated=True, tied=tied)


def levanter(at: Nested) -> None:
    """Levanter: sharded over all devices, tensor axes by `model_axis_size`."""
    found = at.found
    policy = at.text("trainer.mp")
    found.precision = (
        "bf16" if "c=bf" in policy else "fp32" if policy in ("f32", "float32") else None
    )
    found.zero_stage = 3
    found.recompute = "full" if at.true("model.gradient_checkpointing", default=True) else "none"
    kind = at.text("model.type")
    name = at.text("initialize_from_hf", "model_name_or_path")
    own = at.number("model.hidden_dim") and not at.true("use_hf_model_config")
    if name and name.lower() not in ("true", "false") and not own:
        found.model_name = name.split("@")[0]
        return
    for key in ("train_batch_size", "per_device_parallelism"):
        if isinstance(at.get(f"trainer.{key}"), list):
            found.beyond.append(f"trainer.{key} has several stages: give a file of one")
    if kind in ("whisper", "backpack", "asr"):
        found.beyond.append(f"model type {kind}: not the training of a decoder-only language model")
        return
    gpt2 = kind in ("", "gpt2") or "starcoder" in kind
    if found.seq_len is None:  # of its classes of models
        found.seq_len = {"": 1024, "gpt2": 1024, "llama": 2048}.get(kind)
    dims = at.dims("levanter")
    dims["ffn"] = dims["ffn"] or 4 * (dims["hidden"] or 0)
    dims["vocab"] = vocabulary(at.text("data.tokenizer", "tokenizer"))
    style = {"gated": not gpt2, "rms": not gpt2, "bias": gpt2, "learned": gpt2}
    put_shape(found, f"{kind or 'gpt2'}-levanter", dims, tied=gpt2, **style)
