"""Mixture-of-experts decoders with grouped or latent attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuscale.core.model.mixers import AnyMixer, Attention
from gpuscale.io.hf.deepseek import deepseek
from gpuscale.io.hf.keys import Keys
from gpuscale.io.hf.parts import (
    SLIDING,
    Family,
    Parts,
    attention,
    dense,
    dense_first,
    head_dim,
    layer_list,
    layer_types,
    mixer_names,
    moe,
    n_layers,
    sparse_step,
    used,
    windowed,
)
from gpuscale.specs.model import DenseFfn, MoeFfn


def mixtral(k: Keys) -> Parts:
    """Mixtral: experts in every layer."""
    window = k.optional("sliding_window")
    full = attention(k, window_tokens=window)
    ffn = moe(k, "intermediate_size", shared_ffn_hidden_size=0)
    return Parts([("full", "moe")] * n_layers(k), {"full": full}, {"moe": ffn})


def granite_moe(k: Keys) -> Parts:
    """Granite MoE: as Mixtral, with optional biases and a shared MLP."""
    bias = k.flag("attention_bias")
    shared = k.integer("shared_intermediate_size", 0, least=0)
    ffn = moe(k, "intermediate_size", shared_ffn_hidden_size=shared)
    full = attention(k, qkv_bias=bias, out_bias=bias)
    return Parts([("full", "moe")] * n_layers(k), {"full": full}, {"moe": ffn})


def qwen_ffns(k: Keys, names: list[str], shared: bool) -> dict[str, Any]:
    """FFNs of the Qwen MoE models, with or without a gated shared expert."""

    def experts() -> MoeFfn:
        width = k.integer("shared_expert_intermediate_size", 0, least=0) if shared else 0
        return moe(k, shared_ffn_hidden_size=width, shared_gate=bool(width))

    return used(names, {"moe": experts, "dense": lambda: dense(k)})


def qwen2_moe(k: Keys) -> Parts:
    """Qwen2 MoE (Qwen1.5-MoE, Qwen2-57B): QKV bias, a gated shared expert."""
    n = n_layers(k)
    ffns = sparse_step(k, n)
    full = attention(k, qkv_bias=k.flag("qkv_bias", True))
    types = layer_types(k, n)
    return Parts(
        layer_list(mixer_names(types), ffns), windowed(k, full, types), qwen_ffns(k, ffns, True)
    )


def qwen3_moe(k: Keys) -> Parts:
    """Qwen3 MoE and the text part of Qwen3-VL MoE: no shared expert."""
    n, bias = n_layers(k), k.flag("attention_bias")
    ffns = sparse_step(k, n)
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm="head")
    return Parts(layer_list(["full"] * n, ffns), {"full": full}, qwen_ffns(k, ffns, False))


def llama4(k: Keys) -> Parts:
    """Llama 4: chunked attention with a full layer every fourth; experts in every n-th layer."""
    n = n_layers(k)
    no_rope = k.per_layer("no_rope_layers", n)
    interval = k.integer("no_rope_layer_interval", 4)
    types = layer_types(k, n, lambda i: not (no_rope[i] if no_rope else (i + 1) % interval))
    step = k.integer("interleave_moe_layer_step", 1)
    chosen = k.layer_numbers("moe_layers")
    moe_layers = chosen if chosen is not None else set(range(step - 1, n, step))
    names = ["moe" if i in moe_layers else "dense" for i in range(n)]
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias)
    width = k.integer("intermediate_size")
    ffns = used(
        names,
        {
            "moe": lambda: moe(k, "intermediate_size", shared_ffn_hidden_size=width),
            "dense": lambda: dense(k, "intermediate_size_mlp"),
        },
    )
    mixers: dict[str, AnyMixer] = {}
    for kind in types:
        if kind in SLIDING:
            chunk = k.optional("attention_chunk_size")
            mixers["sliding"] = replace(full, window_tokens=chunk)
        else:
            mixers["full"] = full
    return Parts(layer_list(mixer_names(types), names), mixers, ffns)


def glm4_moe(k: Keys) -> Parts:
    """GLM-4.5 to 4.7: grouped attention with QKV bias, dense layers first, a shared expert."""
    n = n_layers(k)
    names = dense_first(k, n)
    qk_norm = "head" if k.flag("use_qk_norm") else "none"
    full = attention(k, qkv_bias=k.flag("attention_bias"), qk_norm=qk_norm)
    ffns = used(names, {"moe": lambda: moe(k), "dense": lambda: dense(k)})
    return Parts(layer_list(["full"] * n, names), {"full": full}, ffns)


def gpt_oss(k: Keys) -> Parts:
    """gpt-oss: window and full layers by turns, sinks, biases everywhere."""
    n = n_layers(k)
    bias = k.flag("attention_bias", True)
    full = attention(k, qkv_bias=bias, out_bias=bias, sinks=True)
    types = layer_types(k, n, lambda i: i % 2 == 1)
    ffn = moe(k, "intermediate_size", bias=True, router_bias=True)
    return Parts(
        layer_list(mixer_names(types), ["moe"] * n), windowed(k, full, types), {"moe": ffn}
    )


def minimax_m2(k: Keys) -> Parts:
    """MiniMax-M2: Q and K normed at full width, experts in every layer."""
    full = attention(k, qk_norm="full" if k.flag("use_qk_norm", True) else "none")
    shared = k.integer("shared_intermediate_size", 0, least=0)
    ffn = moe(k, "intermediate_size", shared_ffn_hidden_size=shared)
    return Parts([("full", "moe")] * n_layers(k), {"full": full}, {"moe": ffn})


def minimax_m3(k: Keys) -> Parts:
    """MiniMax-M3: block-sparse layers chosen by an indexer, one shared expert."""
    n = n_layers(k)
    sparse = k.sub("sparse_attention_config") or Keys({}, "", k.where)
    freq = sparse.per_layer("sparse_attention_freq", n)
    types = layer_types(k, n, lambda i: True)
    if freq is not None and k.table.get("layer_types") is None:
        types = ["minimax_m3_sparse" if f else "full_attention" for f in freq]

    def key(modern: str, legacy: str) -> int:
        return sparse.optional(legacy) or k.integer(modern)

    full = attention(k, qk_norm="head")
    block: dict[str, Any] = {
        "index_n_heads": key("index_n_heads", "sparse_num_index_heads"),
        "index_head_dim": key("index_head_dim", "sparse_index_dim"),
        "sparse_top_k_tokens": key("index_topk_blocks", "sparse_topk_blocks")
        * key("index_block_size", "sparse_block_size"),
    }
    names = ["full" if kind == "full_attention" else "sparse" for kind in types]
    ffn_names = dense_first(k, n)
    shared = k.integer("shared_intermediate_size", 0, least=0)
    ffns = used(
        ffn_names,
        {
            "moe": lambda: moe(k, "intermediate_size", shared_ffn_hidden_size=shared),
            "dense": lambda: dense(k, "dense_intermediate_size"),
        },
    )
    mixers = used(names, {"full": lambda: full, "sparse": lambda: replace(full, **block)})
    return Parts(layer_list(names, ffn_names), mixers, ffns)


def mimo_v2(k: Keys) -> Parts:
    """MiMo-V2: window layers with twice the KV heads and sinks, V narrower than Q and K."""
    n = n_layers(k)
    order = k.per_layer("hybrid_layer_pattern", n)
    types = layer_types(k, n, lambda i: not order[i] if order else i == 0 or (i + 1) % 6 == 0)
    d, v = k.integer("head_dim"), k.integer("v_head_dim")
    kv = k.integer("num_key_value_heads")
    bias = k.flag("attention_bias")
    window = k.optional("sliding_window_size") or k.optional("sliding_window")
    full = attention(
        k,
        n_kv_heads=kv,
        head_dim=d,
        v_head_dim=v,
        qkv_bias=bias,
        sinks=k.flag("add_full_attention_sink_bias"),
    )
    sliding = attention(
        k,
        n_heads=k.integer("swa_num_attention_heads", full.n_heads),
        n_kv_heads=k.integer("swa_num_key_value_heads", 2 * kv),
        head_dim=k.integer("swa_head_dim", d),
        v_head_dim=k.integer("swa_v_head_dim", v),
        qkv_bias=bias,
        sinks=k.flag("add_swa_attention_sink_bias", True),
        window_tokens=window,
    )
    names = mixer_names(types)
    ffn_names = dense_first(k, n)
    if not any(k.given(key) for key in ("mlp_layer_types", "moe_layer_freq")):
        ffn_names = ["dense"] + ["moe"] * (n - 1)
    mixers = used(names, {"full": lambda: full, "sliding": lambda: sliding})
    ffns = used(ffn_names, {"moe": lambda: moe(k), "dense": lambda: dense(k)})
    return Parts(layer_list(names, ffn_names), mixers, ffns)


def step3(k: Keys) -> Parts:
    """Step-3: multi-matrix factorised attention (low-rank query, one KV head)."""
    n = n_layers(k)
    full = attention(
        k, n_kv_heads=k.integer("num_key_value_heads", 1), q_lora_rank=k.integer("share_q_dim")
    )
    return _step(k, n, ["full"] * n, {"full": full})


def step3p5(k: Keys) -> Parts:
    """Step-3.5 and 3.7: gated grouped attention, window layers with their own head count."""
    n = n_layers(k)
    types = layer_types(k, n)
    other = k.sub("attention_other_setting") or Keys({}, "", k.where)
    heads = k.integer("num_attention_heads")
    bias = k.flag("attention_bias")
    gate = k.table.get("gating", True)
    per_head = gate is True or gate == "per-head"
    common: dict[str, Any] = {
        "qkv_bias": bias,
        "out_bias": bias,
        "qk_norm": "head",
        "head_gate": per_head,
        "output_gate": not per_head,
    }
    full = attention(k, **common)
    own = k.optional("num_sliding_attention_heads") or other.optional("num_attention_heads")
    sliding = attention(
        k, n_heads=own or heads, window_tokens=k.optional("sliding_window"), **common
    )
    names = mixer_names(types)
    mixers = used(names, {"full": lambda: full, "sliding": lambda: sliding})
    return _step(k, n, names, mixers)


def _step(k: Keys, n: int, names: list[str], mixers: dict[str, AnyMixer]) -> Parts:
    chosen = k.layer_numbers("moe_layers_enum")
    kinds = k.per_layer("mlp_layer_types", n)
    first = k.integer("first_k_dense_replace", 4 if "share_q_dim" in k.table else 3, least=0)
    if kinds is not None:
        ffn_names = ["dense" if kind == "dense" else "moe" for kind in kinds]
    else:
        moe_layers = chosen if chosen is not None else set(range(first, n))
        ffn_names = ["moe" if i in moe_layers else "dense" for i in range(n)]
    shared = k.optional("share_expert_dim") or k.optional("share_expert_dims") or 0
    bias = k.flag("mlp_bias")
    ffns = used(
        ffn_names,
        {
            "moe": lambda: moe(k, shared_ffn_hidden_size=shared),
            "dense": lambda: dense(k, bias=bias),
        },
    )
    return Parts(layer_list(names, ffn_names), mixers, ffns)


def dbrx(k: Keys) -> Parts:
    """DBRX: LayerNorm without bias, experts in every layer; nested configs."""
    n, h = n_layers(k), k.integer("hidden_size")
    attn = k.sub("attn_config") or Keys({}, "", k.where)
    ffn = k.sub("ffn_config") or Keys({}, "", k.where)
    heads = k.integer("num_attention_heads")
    full = Attention(n_heads=heads, n_kv_heads=attn.integer("kv_n_heads", 1), head_dim=h // heads)
    experts = MoeFfn(
        n_experts=ffn.integer("moe_num_experts", 4),
        top_k=ffn.integer("moe_top_k", 1),
        expert_ffn_hidden_size=ffn.integer("ffn_hidden_size", 3584),
    )
    spec = {"norm": "layernorm-nobias"}
    return Parts([("full", "moe")] * n, {"full": full}, {"moe": experts}, spec)


def ernie_moe(k: Keys) -> Parts:
    """ERNIE 4.5 MoE: dense layers before and after a range of expert layers."""
    n, bias = n_layers(k), k.flag("use_bias")
    start = k.integer("moe_layer_start_index", 1, least=0)
    end = k.find("moe_layer_end_index")
    last = n - 1 if not isinstance(end, int) or end < 0 else end
    step = k.integer("moe_layer_interval", 1)
    names = ["moe" if (i + 1) % step == 0 and start <= i <= last else "dense" for i in range(n)]
    width = k.integer("moe_intermediate_size")
    shared = k.integer("moe_num_shared_experts", 0, least=0) * width
    shared_bias = 2 * shared + k.integer("hidden_size") if bias and shared else 0
    ffns = used(
        names,
        {
            "moe": lambda: moe(
                k, shared_ffn_hidden_size=shared, router_bias=True, extra_params=shared_bias
            ),
            "dense": lambda: dense(k, bias=bias),
        },
    )
    full = attention(k, qkv_bias=bias, out_bias=bias)
    spec = {"lm_head_bias": bias}
    return Parts(layer_list(["full"] * n, names), {"full": full}, ffns, spec)


def hunyuan_moe(k: Keys) -> Parts:
    """Hunyuan MoE: Q and K norms per head, one shared MLP as wide as an expert."""
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm="head")
    width = k.integer("intermediate_size")
    ffn = MoeFfn(
        n_experts=k.largest("num_local_experts"),
        top_k=k.largest("num_experts_per_tok"),
        expert_ffn_hidden_size=width,
        shared_ffn_hidden_size=width,
    )
    return Parts([("full", "moe")] * n_layers(k), {"full": full}, {"moe": ffn})


def any_decoder(k: Keys) -> Parts:
    """Unknown model type: a plain decoder from the keys there are."""
    n = n_layers(k)
    if k.given("kv_lora_rank"):
        return deepseek(k)
    bias = k.flag("attention_bias")
    types = layer_types(k, n) if k.given("layer_types") else ["full_attention"] * n
    for kind in types:
        if kind != "full_attention" and kind not in SLIDING:
            raise k.error("layer_types", f"layers of kind {kind[:40]!r} are not known")
    full = attention(k, head_dim=head_dim(k), qkv_bias=bias, out_bias=bias)
    names = ["dense"] * n
    if k.given("num_local_experts") and k.given("num_experts_per_tok"):
        names = dense_first(k, n)
    width = "moe_intermediate_size" if k.given("moe_intermediate_size") else "intermediate_size"
    ffns = used(
        names,
        {
            "moe": lambda: moe(k, width),
            "dense": lambda: DenseFfn(ffn_hidden_size=k.integer("intermediate_size")),
        },
    )
    return Parts(layer_list(mixer_names(types), names), windowed(k, full, types), ffns)


FAMILIES: dict[str, Family] = {
    "mixtral": mixtral,
    "granitemoe": granite_moe,
    "granitemoeshared": granite_moe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "llama4_text": llama4,
    "glm4_moe": glm4_moe,
    "gpt_oss": gpt_oss,
    "minimax_m2": minimax_m2,
    "minimax_m3_vl_text": minimax_m3,
    "minimax_m3": minimax_m3,
    "mimo_v2_flash": mimo_v2,
    "mimo_v2": mimo_v2,
    "step3_text": step3,
    "step3p5": step3p5,
    "dbrx": dbrx,
    "ernie4_5_moe": ernie_moe,
    "hunyuan_v1_moe": hunyuan_moe,
}
"""Model type -> function; keys are those of transformers."""
