"""The layers of a family: what its row says, and what a row cannot say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuscale.core.model.mixers import AnyMixer, Attention
from gpuscale.core.records import replace
from gpuscale.io import hf_orders as orders
from gpuscale.io.hf_keys import Keys
from gpuscale.io.hf_parts import MIXERS, FamilyRow, Parts, attention, dense, moe, window_tokens
from gpuscale.io.text import Table
from gpuscale.specs.model import AnyFfn, DenseFfn, MoeFfn, NoFfn

Build = Callable[[Keys, FamilyRow], Any]


def family_parts(name: str, k: Keys, row: FamilyRow) -> Parts:
    """Read the layers of a config of the family of this name and row."""
    if name in WHOLE:
        return WHOLE[name](k, row)
    n = orders.n_layers(k)
    own = OWN.get(name, {})
    mixers, ffns = orders.LAYERS[row.layers](k, n, row), orders.EXPERTS[row.experts](k, n, row)
    parts = _parts(k, row, mixers, ffns, own)
    parts.spec |= {key: k.integer(key) for key in row.counts}
    if name in SPEC:
        parts.spec |= SPEC[name](k, parts)
    return parts


def _parts(
    k: Keys, row: FamilyRow, mixers: list[str], ffns: list[str], own: dict[str, Build]
) -> Parts:
    """Build what the layers name, and only that, so that no unused key is asked for."""
    read: dict[str, Build] = {**MIXERS, "dense": dense, "moe": moe, **own}
    return Parts(
        list(zip(mixers, ffns, strict=True)),
        {name: read[name](k, row) for name in dict.fromkeys(mixers)},
        {name: read["no-ffn" if name == "none" else name](k, row) for name in dict.fromkeys(ffns)},
        dict(row.spec),
    )


# --- what a row cannot say of a part -------------------------------------------------------------


def _phi(k: Keys, row: FamilyRow) -> Attention:
    full = attention(k, row)
    return replace(full, extra_params=4 * full.head_dim) if k.flag("qk_layernorm") else full


def _falcon(k: Keys, row: FamilyRow) -> Attention:
    """Multi-query, or grouped heads in the new architecture."""
    heads = k.integer("num_attention_heads")
    if k.flag("new_decoder_architecture"):
        kv_heads = k.integer("num_key_value_heads", heads)
    else:
        kv_heads = 1 if k.flag("multi_query", True) else heads
    width = k.integer("hidden_size") // heads
    return attention(k, row, n_kv_heads=kv_heads, head_dim=width)


def _mimo(k: Keys, row: FamilyRow) -> Attention:
    return attention(
        k,
        row,
        n_kv_heads=k.integer("num_key_value_heads"),
        head_dim=k.integer("head_dim"),
        v_head_dim=k.integer("v_head_dim"),
        qkv_bias=k.flag("attention_bias"),
        sinks=k.flag("add_full_attention_sink_bias"),
    )


def _mimo_sliding(k: Keys, row: FamilyRow) -> Attention:
    full = _mimo(k, row)
    return replace(
        full,
        n_heads=k.integer("swa_num_attention_heads", full.n_heads),
        n_kv_heads=k.integer("swa_num_key_value_heads", 2 * full.n_kv_heads),
        head_dim=k.integer("swa_head_dim", full.head_dim),
        v_head_dim=k.integer("swa_v_head_dim", full.v_head_dim),
        sinks=k.flag("add_swa_attention_sink_bias", True),
        window_tokens=window_tokens(k, row),
    )


def _inkling_sliding(k: Keys, row: FamilyRow) -> Attention:
    full = attention(k, row, window_tokens=window_tokens(k, row))
    kv_heads = k.integer("swa_num_key_value_heads", full.n_kv_heads)
    return replace(full, n_kv_heads=kv_heads, head_dim=k.integer("swa_head_dim", full.head_dim))


def _by_layer(k: Keys, row: FamilyRow, slides: bool = False) -> Attention:
    """Heads as the first layer of the kind has them (Laguna)."""
    n = orders.n_layers(k)
    kinds = orders.names_of(orders.layer_types(k, n))
    heads = k.per_layer("num_attention_heads_per_layer", n) or [k.integer("num_attention_heads")]
    first = heads[kinds.index("sliding" if slides else "full") % len(heads)]
    return attention(k, row, n_heads=first, window_tokens=window_tokens(k, row) if slides else None)


def _step3(k: Keys, row: FamilyRow) -> Attention:
    """Low-rank query, one KV head."""
    kv_heads = k.integer("num_key_value_heads", 1)
    return attention(k, row, n_kv_heads=kv_heads, q_lora_rank=k.integer("share_q_dim"))


def _step3p5(k: Keys, row: FamilyRow, **more: Any) -> Attention:
    per_head = k.table.get("gating", True) in (True, "per-head")
    return attention(k, row, head_gate=per_head, output_gate=not per_head, **more)


def _step3p5_sliding(k: Keys, row: FamilyRow) -> Attention:
    other = k.below("attention_other_setting").optional("num_attention_heads")
    heads = k.optional("num_sliding_attention_heads") or other
    heads = heads or k.integer("num_attention_heads")
    return _step3p5(k, row, n_heads=heads, window_tokens=window_tokens(k, row))


def _lfm2_mlp(k: Keys, row: FamilyRow) -> DenseFfn:
    """Read an MLP whose width is adjusted."""
    width = k.optional("block_ff_dim") or k.integer("intermediate_size")
    if k.flag("block_auto_adjust_ff_dim", True):
        multiple = k.integer("block_multiple_of", 256)
        width = multiple * -(-(2 * width // 3) // multiple)
    return DenseFfn(ffn_hidden_size=width)


def _ernie_experts(k: Keys, row: FamilyRow) -> MoeFfn:
    shared = k.integer("moe_num_shared_experts", 0, least=0) * k.integer(row.expert_width)
    biased = k.flag("use_bias") and shared
    extra = 2 * shared + k.integer("hidden_size") if biased else 0
    return moe(k, row, shared_ffn_hidden_size=shared, extra_params=extra)


OWN: dict[str, dict[str, Build]] = {
    "phi": {"full": _phi},
    "falcon": {"full": _falcon},
    "bigcode": {"full": _falcon},
    "laguna": {"full": _by_layer, "sliding": lambda k, row: _by_layer(k, row, True)},
    "inkling": {"sliding": _inkling_sliding},
    "inkling2": {"sliding": _inkling_sliding},
    "mimo_v2": {"full": _mimo, "sliding": _mimo_sliding},
    "step3": {"full": _step3},
    "step3p5": {"full": _step3p5, "sliding": _step3p5_sliding},
    "lfm2": {"dense": _lfm2_mlp},
    "ernie_moe": {"moe": _ernie_experts},
}
"""Family -> part -> how it is read instead."""


def _opt_spec(k: Keys, parts: Parts) -> Table:
    """Learned positions have two extra rows."""
    h = k.integer("hidden_size")
    if (k.optional("word_embed_proj_dim") or h) != h:
        raise k.error("word_embed_proj_dim", "an embedding narrower than the model is not modelled")
    final = k.flag("do_layer_norm_before", True) and not k.flag("_remove_final_layer_norm")
    return {"extra_params": 2 * h, "final_norm": final}


def _falcon_spec(k: Keys, parts: Parts) -> Table:
    two = k.flag("new_decoder_architecture") and k.integer("num_ln_in_parallel_attn", 2) == 2
    return {
        "norms_per_layer": 2 if two or not k.flag("parallel_attn", True) else 1,
        "position": "alibi" if k.flag("alibi") else "rope",
    }


SPEC: dict[str, Callable[[Keys, Parts], Table]] = {
    "stablelm": lambda k, _: {"norms_per_layer": 1 if k.flag("use_parallel_residual") else 2},
    "opt": _opt_spec,
    "falcon": _falcon_spec,
    "ernie_moe": lambda k, _: {"lm_head_bias": k.flag("use_bias")},
}
"""Family -> keys of the model that its config decides."""


# --- families whose layers are read as a whole ---------------------------------------------------

_NEMOTRON = {"M": "mamba", "mamba": "mamba", "linear_attention": "mamba", "mamba2": "mamba"}
_NEMOTRON |= {"*": "full", "attention": "full", "full_attention": "full"}
_NEMOTRON |= {"E": "moe", "moe": "moe", "-": "dense", "mlp": "dense"}


def _nemotron_h(k: Keys, row: FamilyRow) -> Parts:
    """Nemotron-H and Nemotron 3: each layer is a mixer or an FFN, with one norm."""
    kinds: list[Any] | str | None = k.sequence("layers_block_type") or k.sequence("layer_types")
    if kinds is None:
        kinds = k.text("hybrid_override_pattern")
    if not kinds:
        raise k.error("hybrid_override_pattern", "this key is required and missing")
    n = k.integer("num_hidden_layers", len(kinds))
    if len(kinds) < n:
        raise k.error("hybrid_override_pattern", f"has {len(kinds)} entries for {n} layers")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _NEMOTRON:
            raise k.error("hybrid_override_pattern", f"unknown kind of layer {str(kind)[:40]!r}")
    order = [_NEMOTRON[kind] for kind in kinds]
    bias = k.flag("mlp_bias")
    own: dict[str, Build] = {
        "full": _nemotron_attention,
        "dense": lambda k, row: DenseFfn(
            ffn_hidden_size=k.integer("intermediate_size"), gated=False, bias=bias
        ),
        "moe": lambda k, row: _nemotron_experts(k, row, bias),
        "no-ffn": lambda k, row: NoFfn(),
    }
    ffns = [name if name in ("moe", "dense") else "none" for name in order]
    mixers = ["none" if name in ("moe", "dense") else name for name in order]
    parts = _parts(k, row, mixers, ffns, own)
    parts.spec |= {"norms_per_layer": 1, "position": "none", "tie_embeddings": False}
    return parts


def _nemotron_attention(k: Keys, row: FamilyRow) -> Attention:
    width = k.optional("head_dim") if k.table.get("head_dim") else k.optional("attention_head_dim")
    return attention(k, row, head_dim=width or k.integer("head_dim"))


def _nemotron_experts(k: Keys, row: FamilyRow, bias: bool) -> MoeFfn:
    n_shared = k.integer("n_shared_experts", 1, least=0)
    shared = k.integer("moe_shared_expert_intermediate_size", 0, least=0) if n_shared else 0
    latent, h = k.optional("moe_latent_size"), k.integer("hidden_size")
    biases = (shared + h if shared else 0) + (latent + h if latent else 0)
    return moe(
        k,
        row,
        shared_ffn_hidden_size=shared,
        gated=False,
        latent_size=latent,
        extra_params=biases if bias else 0,
    )


def _gemma4(k: Keys, row: FamilyRow) -> Parts:
    """Gemma 4: wider full layers, K=V, shared KV, per-layer embeddings, experts beside the MLP."""
    n = orders.n_layers(k)
    types = orders.layer_types(k, n, lambda i: (i + 1) % 6 == 0)
    types[-1] = "full_attention"
    shared = k.integer("num_kv_shared_layers", 0, least=0)
    reuse = [shared > 0 and i >= n - shared for i in range(n)]
    kinds = zip(orders.names_of(types), reuse, strict=True)
    names = [name + ("-reuse" if again else "") for name, again in kinds]
    wide = k.flag("use_double_wide_mlp")
    ffn = "moe" if k.flag("enable_moe_block") else "dense"
    ffn_names = [ffn + ("-wide" if wide and again else "") for again in reuse]
    ffns: dict[str, AnyFfn] = {name: _gemma4_ffn(k, name) for name in dict.fromkeys(ffn_names)}
    spec: Table = {"norms_per_layer": 4}
    width = k.integer("hidden_size_per_layer_input", 0, least=0)
    if width:
        spec["ple_hidden_size"] = width
        spec["ple_vocab_size"] = k.integer("vocab_size_per_layer_input")
    mixers = _gemma4_mixers(k, row, names)
    return Parts(list(zip(names, ffn_names, strict=True)), mixers, ffns, spec)


def _gemma4_mixers(k: Keys, row: FamilyRow, names: list[str]) -> dict[str, AnyMixer]:
    equal = k.flag("attention_k_eq_v")
    sliding = attention(k, row, window_tokens=k.integer("sliding_window"))
    kv = k.optional("num_global_key_value_heads") if equal else None
    full = attention(
        k,
        row,
        head_dim=k.integer("global_head_dim", 512),
        shared_kv=equal,
        n_kv_heads=kv or sliding.n_kv_heads,
    )
    return {
        name: replace(
            sliding if name.startswith("sliding") else full, reuses_kv=name.endswith("-reuse")
        )
        for name in dict.fromkeys(names)
    }


def _gemma4_ffn(k: Keys, name: str) -> DenseFfn | MoeFfn:
    width = k.integer("intermediate_size") * (2 if name.endswith("-wide") else 1)
    if name.startswith("dense"):
        return DenseFfn(ffn_hidden_size=width)
    h, experts = k.integer("hidden_size"), k.integer("num_local_experts")
    return MoeFfn(
        n_experts=experts,
        top_k=k.integer("num_experts_per_tok"),
        expert_ffn_hidden_size=k.integer("moe_intermediate_size"),
        dense_ffn_hidden_size=width,
        extra_params=3 * h + h + experts,  # three more norms, router scale, scale per expert
    )


def _dbrx(k: Keys, row: FamilyRow) -> Parts:
    """DBRX: LayerNorm without bias, experts in every layer; nested configs."""
    n, h, heads = orders.n_layers(k), k.integer("hidden_size"), k.integer("num_attention_heads")
    kv_heads = k.below("attn_config").integer("kv_n_heads", 1)
    ffn = k.below("ffn_config")
    experts = MoeFfn(
        n_experts=ffn.integer("moe_num_experts", 4),
        top_k=ffn.integer("moe_top_k", 1),
        expert_ffn_hidden_size=ffn.integer("ffn_hidden_size", 3584),
    )
    full = Attention(n_heads=heads, n_kv_heads=kv_heads, head_dim=h // heads)
    spec = {"norm": "layernorm-nobias"}
    return Parts([("full", "moe")] * n, {"full": full}, {"moe": experts}, spec)


UNGATED = ("relu", "relu2", "xielu", "gelu", "gelu_new", "gelu_fast")
"""Activations (`hidden_act`) of MLPs without a gate, where the type of a model is not known."""


def _any(k: Keys, row: FamilyRow) -> Parts:
    """Unknown model type: a plain decoder from the keys there are."""
    n = orders.n_layers(k)
    act, shared = k.table.get("hidden_act"), "shared_expert_intermediate_size"
    row = replace(row, gated=act not in UNGATED, shared=shared if k.given(shared) else None)
    if k.given("kv_lora_rank"):
        return _parts(k, row, ["mla"] * n, orders.after_first(k, n, row), {})
    types = orders.layer_types(k, n) if k.given("layer_types") else ["full_attention"] * n
    for kind in types:
        if kind != "full_attention" and kind not in orders.SLIDING:
            raise k.error("layer_types", f"layers of kind {kind[:40]!r} are not known")
    names = ["dense"] * n
    if k.given("num_local_experts") and k.given("num_experts_per_tok"):
        names = orders.after_first(k, n, row)
    if not k.given("moe_intermediate_size"):
        row = replace(row, expert_width="intermediate_size")
    return _parts(k, row, orders.names_of(types), names, {})


WHOLE: dict[str, Callable[[Keys, FamilyRow], Parts]] = {
    "nemotron_h": _nemotron_h,
    "gemma4": _gemma4,
    "dbrx": _dbrx,
    "any": _any,
}
"""Family -> reader of all its layers."""
