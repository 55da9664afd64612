"""Configurations that train a shape of their own: GPT-NeoX, nanotron, OLMo and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.launch.read.nested import Dialect, Nested, precision_of, put_shape, vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.launch.read.found import Found


def _neox(at: Nested) -> None:
    """GPT-NeoX: keys of Megatron and of DeepSpeed in one table (megatron/neox_arguments)."""
    found = at.found
    found.zero_stage = at.number("zero_optimization.stage") or 0
    for name in ("bf16", "fp16"):
        if at.true(name):
            found.precision = name
            break
    found.precision = found.precision or precision_of(at.text("precision")) or "fp16"
    found.recompute = "full" if at.true("checkpoint_activations") else "none"
    found.offload_optimizer = at.text("zero_optimization.offload_optimizer.device") == "cpu"
    hidden = at.number("hidden_size")
    if not hidden or not at.number("num_layers"):
        return
    gated = at.text("activation") in ("swiglu", "geglu", "silu_glu", "reglu")
    wide = at.number("intermediate_size") or 4 * hidden
    if gated:  # a third of it, rounded up (megatron/model/transformer.py, ParallelMLP)
        multiple = at.number("mlp_multiple_of") or 256
        wide = -(-(wide // 3) // multiple) * multiple
    dims = {
        "layers": at.number("num_layers"),
        "hidden": hidden,
        "heads": at.number("num_attention_heads"),
        "kv": at.number("num_kv_heads"),
        "ffn": wide,
        "vocab": at.number("padded_vocab_size") or GPT_NEOX_VOCABULARY,
        "experts": at.number("moe_num_experts", "num_experts"),
        "top_k": at.number("moe_top_k") or 1,
    }
    put_shape(
        found,
        at.text("name") or "gpt-neox",
        dims,
        gated=gated,
        tied=not at.true("no_weight_tying"),
        rms="rms" in at.text("norm"),
        bias=at.true("use_bias_in_mlp", default=True),
        learned=at.text("pos_emb") in ("", "learned", "sinusoidal"),
    )


GPT_NEOX_VOCABULARY = 50_432
"""That of its own tokenizer, padded; other tokenizers are files."""


def _nanotron(at: Nested) -> None:
    """nanotron: every degree is said, so that the GPUs are (config/parallelism_config.py)."""
    found = at.found
    found.zero_stage = at.number("optimizer.zero_stage") or 0
    found.precision = precision_of(at.text("model.dtype") or "bfloat16")
    found.recompute = "full" if at.true("parallelism.recompute_layer") else "none"
    found.sequence_parallel = at.text("parallelism.tp_mode").upper() == "REDUCE_SCATTER"
    replicas = at.number("parallelism.dp") or 1
    found.n_gpus = replicas * found.tp * found.pp * found.cp
    found.vpp = 1
    config = "model.model_config."
    dims = {key: at.number(config + word) for key, word in HUGGING_FACE.items()}
    experts = f"{config}moe_config."
    dims["experts"] = at.number(f"{experts}num_experts", f"{experts}num_local_experts")
    dims["top_k"] = at.number(f"{experts}top_k", f"{experts}num_experts_per_tok")
    name = at.text("general.run").replace("%", "") or "model"
    put_shape(
        found,
        name[:40],
        dims,
        gated=True,
        tied=at.true(f"{config}tie_word_embeddings"),
        qkv_bias=at.true(f"{config}attention_bias"),
    )


HUGGING_FACE = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "head_dim": "head_dim",
}


def _foundry(at: Nested) -> None:
    """llm-foundry over Composer: a model of the hub, or MPT by its shape."""
    found = at.found
    found.precision = precision_of(at.text("precision") or "bf16")
    fsdp = "fsdp_config" if at.get("fsdp_config") is not None else "parallelism_config.fsdp"
    found.zero_stage = _sharded(at.text(f"{fsdp}.sharding_strategy"), at.get(fsdp))
    checkpointed = at.true(f"{fsdp}.activation_checkpointing")
    found.recompute = "full" if checkpointed else "none"
    found.offload_activations = at.true(f"{fsdp}.activation_cpu_offload")
    named = at.text("model.pretrained_model_name_or_path")
    if named:
        found.model_name, found.method = named, "full"
        if at.get("model.peft_config") is not None:
            found.method, found.lora_rank = "lora", at.number("model.peft_config.r") or 8
        return
    hidden = at.number("model.d_model")
    ratio = at.number("model.expansion_ratio") or 4
    glu = at.text("model.ffn_config.ffn_type") == "mptglu"
    dims = {
        "layers": at.number("model.n_layers"),
        "hidden": hidden,
        "heads": at.number("model.n_heads"),
        "kv": at.number("model.attn_config.kv_n_heads"),
        "ffn": at.number("model.ffn_config.ffn_hidden_size") or (hidden or 0) * ratio,
        "vocab": at.number("model.vocab_size"),
    }
    rope = at.true("model.attn_config.rope")
    tied = at.true("model.tie_word_embeddings", default=True)
    alone = {"rms": False, "bias": not at.true("model.no_bias"), "learned": not rope}
    put_shape(
        found, at.text("run_name", "model.name") or "mpt", dims, gated=glu, tied=tied, **alone
    )


def _sharded(word: str, section: Any) -> int:
    """ZeRO stage of a word of torch's FSDP; without a section nothing is sharded."""
    if section is None or "NO_SHARD" in word.upper():
        return 0
    return 2 if "GRAD_OP" in word.upper() else 3


def _olmo(at: Nested) -> None:
    """OLMo (the repository of the first two releases): FSDP, a shape of its own."""
    found = at.found
    found.precision = precision_of(at.text("precision") or "bf16")
    found.zero_stage = _sharded(at.text("fsdp.sharding_strategy"), at.get("fsdp"))
    word = at.text("activation_checkpointing")
    found.recompute = {"": "none", "whole_layer": "full", "fine_grained": "selective"}.get(word)
    if found.recompute is None:  # every second, third or fourth layer, or one of them
        share = {"two": 2, "three": 3, "four": 4}.get(word.rsplit("_", 1)[-1], 1)
        layers = at.number("model.n_layers") or 0
        found.recompute, found.recompute_layers = "full", layers // share
    gated = at.text("model.activation_type") in ("", "swiglu")
    hidden = at.number("model.d_model") or 0
    wide = at.number("model.mlp_hidden_size") or hidden * (at.number("model.mlp_ratio") or 4)
    dims = {
        "layers": at.number("model.n_layers"),
        "hidden": hidden,
        "heads": at.number("model.n_heads"),
        "kv": at.number("model.n_kv_heads"),
        "ffn": wide // 2 if gated else wide,  # of both halves together (olmo/model.py)
        "vocab": at.number("model.embedding_size", "model.vocab_size"),
    }
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


def _lingua(at: Nested) -> None:
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
    hidden = at.number("model.dim") or 0
    multiple = at.number("model.multiple_of") or 256
    factor = float(at.text("model.ffn_dim_multiplier") or 1.0)
    wide = int(2 * 4 * hidden / 3 * factor)
    dims = {
        "layers": at.number("model.n_layers"),
        "hidden": hidden,
        "heads": at.number("model.n_heads"),
        "kv": at.number("model.n_kv_heads"),
        "ffn": -(-wide // multiple) * multiple,
        "vocab": at.number("model.vocab_size"),
    }
    tied = at.true("model.weight_tying")
    put_shape(found, at.text("name") or "lingua", dims, gated=True, tied=tied)


def _levanter(at: Nested) -> None:
    """Levanter: sharded over all devices, tensor axes by `model_axis_size`."""
    found = at.found
    found.precision = "bf16" if "c=bf" in at.text("trainer.mp") else None
    found.zero_stage = 3
    found.recompute = "full" if at.true("model.gradient_checkpointing", default=True) else "none"
    name = at.text("initialize_from_hf", "model_name_or_path")
    if name and name.lower() not in ("true", "false"):
        found.model_name = name.split("@")[0]
        return
    kind = at.text("model.type")
    if kind in ("whisper", "backpack", "asr"):
        found.beyond.append(f"model type {kind}: not the training of a decoder-only language model")
        return
    hidden = at.number("model.hidden_dim") or 0
    gpt2 = kind in ("", "gpt2")
    dims = {
        "layers": at.number("model.num_layers"),
        "hidden": hidden,
        "heads": at.number("model.num_heads"),
        "kv": at.number("model.num_kv_heads"),
        "ffn": at.number("model.intermediate_dim") or 4 * hidden,
        "vocab": vocabulary(at.text("data.tokenizer", "tokenizer")),
        "experts": at.number("model.n_routed_experts"),
        "top_k": at.number("model.num_experts_per_tok"),
    }
    style = {"gated": not gpt2, "rms": not gpt2, "bias": gpt2, "learned": gpt2}
    put_shape(found, f"{kind or 'gpt2'}-levanter", dims, tied=gpt2, **style)


def _internevo(at: Nested) -> None:
    """InternEvo: a Python file of plain assignments; `micro_num` micro-batches a step."""
    found = at.found
    found.precision = precision_of(at.text("model.dtype") or "bfloat16")
    found.zero_stage = 0 if at.number("parallel.zero1.size") == 1 else 1
    if at.true("parallel.zero1.fsdp"):
        found.zero_stage = 3
    found.sequence_parallel = at.text("parallel.tensor.mode") in ("msp", "fsp")
    if at.text("parallel.tensor.mode") == "isp":
        found.cp, found.tp, found.cp_kind = found.tp, 1, "ulysses"
    found.recompute = "full" if at.text("model.checkpoint") in ("True", "1", "1.0") else "none"
    hidden = at.number("model.hidden_size") or 0
    try:
        ratio = float(at.text("model.mlp_ratio") or 8 / 3)
    except ValueError:
        ratio = 8 / 3
    dims = {
        "layers": at.number("model.num_layers"),
        "hidden": hidden,
        "heads": at.number("model.num_attention_heads"),
        "kv": at.number("model.num_kv_attention_heads"),
        "ffn": -(-int(hidden * ratio) // 256) * 256,
        "vocab": at.number("model.vocab_size"),
        "experts": at.number("model.num_experts"),
        "top_k": at.number("model.moe_topk", "moe.top_k"),
    }
    rms = "rms" in at.text("model.norm_type")
    put_shape(found, at.text("JOB_NAME") or "internlm", dims, gated=True, rms=rms)


PRETRAINING = (
    Dialect(
        "gpt-neox",
        "GPT-NeoX configuration",
        "megatron-deepspeed",
        (
            "pipe_parallel_size",
            "model_parallel_size",
            "num_layers hidden_size num_attention_heads pos_emb",
        ),
        {
            "pp": "pipe_parallel_size",
            "tp": "model_parallel_size",
            "cp": "context_parallel_size",
            "ep": "moe_expert_parallel_size",
            "micro_batch_size": "train_micro_batch_size_per_gpu",
            "accumulation": "gradient_accumulation_steps gas",
            "global_batch_size": "train_batch_size",
            "seq_len": "seq_length",
        },
        _neox,
        tunes=False,
    ),
    Dialect(
        "nanotron",
        "nanotron configuration",
        "nanotron",
        ("parallelism tokens.micro_batch_size",),
        {
            "tp": "parallelism.tp",
            "pp": "parallelism.pp",
            "dp": "parallelism.dp",
            "cp": "parallelism.context_parallel_size",
            "ep": "parallelism.expert_parallel_size",
            "micro_batch_size": "tokens.micro_batch_size",
            "accumulation": "tokens.batch_accumulation_per_replica",
            "seq_len": "tokens.sequence_length",
        },
        _nanotron,
        tunes=False,
    ),
    Dialect(
        "llm-foundry",
        "llm-foundry configuration",
        "fsdp",
        ("train_loader model", "global_train_batch_size tokenizer.name model.name"),
        {
            "seq_len": "max_seq_len",
            "global_batch_size": "global_train_batch_size",
            "micro_batch_size": "device_train_microbatch_size device_train_batch_size",
            "n_gpus": "compute.gpus gpu_num",
        },
        _foundry,
        tunes=False,
    ),
    Dialect(
        "olmo",
        "OLMo configuration",
        "fsdp",
        ("model.d_model device_train_microbatch_size", "model.d_model global_train_batch_size"),
        {
            "seq_len": "model.max_sequence_length",
            "global_batch_size": "global_train_batch_size",
            "micro_batch_size": "device_train_microbatch_size",
        },
        _olmo,
        tunes=False,
    ),
    Dialect(
        "lingua",
        "Lingua configuration",
        "pytorch",
        ("distributed.fsdp_type model data.seq_len", "model.dim data.root_dir"),
        {
            "tp": "distributed.tp_size",
            "seq_len": "data.seq_len",
            "micro_batch_size": "data.batch_size",
            "accumulation": "grad_acc_steps",
        },
        _lingua,
        tunes=False,
    ),
    Dialect(
        "levanter",
        "Levanter configuration",
        "jax",
        ("trainer.train_batch_size", "trainer.fsdp_axis", "trainer.mp model.type"),
        {
            "tp": "trainer.model_axis_size",
            "seq_len": "model.seq_len train_seq_len max_seq_len",
            "global_batch_size": "trainer.train_batch_size",
            "micro_batch_size": "trainer.per_device_parallelism",
        },
        _levanter,
        tunes=False,
    ),
    Dialect(
        "internevo",
        "InternEvo configuration",
        "megatron-core",
        ("parallel data.micro_bsz",),
        {
            "tp": "parallel.tensor.size parallel.tensor",
            "pp": "parallel.pipeline.size parallel.pipeline",
            "seq_len": "data.seq_len",
            "micro_batch_size": "data.micro_bsz",
            "accumulation": "data.gradient_accumulation data.micro_num",
        },
        _internevo,
        tunes=False,
    ),
)
"""Frameworks whose files hold a shape."""


def neox_keys(table: Mapping[str, Any]) -> dict[str, Any]:
    """Write keys of a GPT-NeoX file with underscores, as it does itself."""
    return {str(key).replace("-", "_"): value for key, value in table.items()}


def of_table(table: Mapping[str, Any], dialects: tuple[Dialect, ...]) -> Found | None:
    """Read a table by the first dialect that it is of."""
    for one in dialects:
        if one.is_of(table):
            return one.found(table)
    return None
