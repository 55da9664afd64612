"""Configurations that train a shape of their own: GPT-NeoX, nanotron, OLMo and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.launch.read.nested import Nested, precision_of, put_shape
from gpuscale.launch.read.pretraining_fsdp import foundry, levanter, lingua, olmo

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    dims = at.dims("gpt-neox")
    dims |= {"ffn": wide, "top_k": dims["top_k"] or 1}
    dims["vocab"] = dims["vocab"] or GPT_NEOX_VOCABULARY
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
    if (ep := at.number("parallelism.expert_parallel_size") or 1) > 1:  # parallel/context.py
        found.n_gpus *= ep
        found.beyond.append(f"ep {ep}: nanotron's experts are a dimension of the ranks of its own")
    found.vpp = 1
    if found.pp > 1:  # all forward, all backward where it is not said
        engine = at.text("parallelism.pp_engine").lower() or "afab"
        found.schedule = {"1f1b": "1f1b", "afab": "gpipe"}.get(engine, engine)
    config, dims = "model.model_config.", at.dims("nanotron")
    said = at.text(f"{config}activation_function")  # of StarCoder 2 and its like, whose MLP has
    plain = at.true(f"{config}is_starcoder2_config") or said.startswith("gelu")  # no gate
    if plain and at.true(f"{config}multi_query"):
        dims["kv"] = 1
    if plain and dims["hidden"]:
        dims["ffn"] = dims["ffn"] or 4 * dims["hidden"]
    name = at.text("general.run").replace("%", "") or "model"
    put_shape(
        found,
        name[:40],
        dims,
        gated=not plain,
        rms=not plain,
        bias=plain,
        tied=plain or at.true(f"{config}tie_word_embeddings"),
        qkv_bias=at.true(f"{config}attention_bias"),
    )


READERS = {
    "gpt-neox": _neox,
    "nanotron": _nanotron,
    "llm-foundry": foundry,
    "olmo": olmo,
    "lingua": lingua,
    "levanter": levanter,
}
"""Framework -> what reads what its rows do not say."""


def neox_keys(table: Mapping[str, Any]) -> dict[str, Any]:
    """Write keys of a GPT-NeoX file with underscores, as it does itself."""
    return {str(key).replace("-", "_"): value for key, value in table.items()}
