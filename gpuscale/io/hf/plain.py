"""Dense decoders: one attention and one MLP in every layer, with the family's biases and norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuscale.core.model.mixers import AnyMixer, Attention
from gpuscale.io.hf.keys import Keys
from gpuscale.io.hf.parts import (
    Family,
    Parts,
    attention,
    dense,
    layer_types,
    mixer_names,
    n_layers,
    windowed,
)
from gpuscale.specs.model import DenseFfn


def _build(k: Keys, full: Attention, ffn: DenseFfn, types: list[str], **spec: Any) -> Parts:
    layers = [(name, "dense") for name in mixer_names(types)]
    return Parts(layers, windowed(k, full, types), {"dense": ffn}, spec)


def _all_window(k: Keys, full: Attention) -> tuple[dict[str, AnyMixer], str]:
    window = k.optional("sliding_window")
    if window:
        return {"sliding": replace(full, window_tokens=window)}, "sliding"
    return {"full": full}, "full"


def llama(k: Keys) -> Parts:
    """Llama, Granite, SmolLM3, InternLM3: optional biases."""
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias)
    return _build(k, full, dense(k, bias=k.flag("mlp_bias")), ["full_attention"] * n_layers(k))


def mistral(k: Keys) -> Parts:
    """Mistral, Phi-3: no biases, one window for all layers, if any."""
    mixers, name = _all_window(k, attention(k))
    return Parts([(name, "dense")] * n_layers(k), mixers, {"dense": dense(k)})


def _max_window(k: Keys, n: int) -> list[str]:
    start = k.integer("max_window_layers", 0, least=0)
    slides = k.flag("use_sliding_window") and k.optional("sliding_window") is not None
    return layer_types(k, n, lambda i: not (slides and i >= start))


def qwen2(k: Keys) -> Parts:
    """Qwen2 and Qwen2.5: biases on Q, K, V."""
    n = n_layers(k)
    return _build(k, attention(k, qkv_bias=True), dense(k), _max_window(k, n))


def qwen3(k: Keys) -> Parts:
    """Qwen3 and the text part of Qwen3-VL: a norm per head of Q and K."""
    bias, n = k.flag("attention_bias"), n_layers(k)
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm="head")
    return _build(k, full, dense(k), _max_window(k, n))


def olmo(k: Keys) -> Parts:
    """OLMo: norms without weights."""
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias)
    return _build(k, full, dense(k), ["full_attention"] * n_layers(k), norm="none")


def olmo2(k: Keys) -> Parts:
    """OLMo 2 and 3: norms after the blocks, Q and K normed at full width."""
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm="full")
    olmo3 = k.optional("sliding_window") is not None
    types = layer_types(k, n_layers(k), lambda i: not olmo3 or (i + 1) % 4 == 0)
    return _build(k, full, dense(k), types)


def cohere(k: Keys) -> Parts:
    """Command R: one norm without bias for both parallel blocks."""
    bias = k.flag("attention_bias")
    qk_norm = "full" if k.flag("use_qk_norm") else "none"
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm)
    pattern = k.integer("sliding_window_pattern", 4)
    slides = k.optional("sliding_window") is not None
    types = layer_types(k, n_layers(k), lambda i: not slides or (i + 1) % pattern == 0)
    return _build(k, full, dense(k), types, norm="layernorm-nobias", norms_per_layer=1)


def starcoder2(k: Keys) -> Parts:
    """StarCoder2: LayerNorm, biases, a plain MLP."""
    bias = k.flag("use_bias", True)
    mixers, name = _all_window(k, attention(k, qkv_bias=bias, out_bias=bias))
    ffn = dense(k, gated=False, bias=bias)
    return Parts([(name, "dense")] * n_layers(k), mixers, {"dense": ffn}, {"norm": "layernorm"})


def stablelm(k: Keys) -> Parts:
    """StableLM: LayerNorm, optional QKV bias and Q, K norms per head."""
    qk_norm = "full" if k.flag("qk_layernorm") else "none"
    full = attention(k, qkv_bias=k.flag("use_qkv_bias"), qk_norm=qk_norm)
    norms = 1 if k.flag("use_parallel_residual") else 2
    types = ["full_attention"] * n_layers(k)
    return _build(k, full, dense(k), types, norm="layernorm", norms_per_layer=norms)


def ernie(k: Keys) -> Parts:
    """ERNIE 4.5 dense: one switch for all biases."""
    bias = k.flag("use_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias)
    return _build(k, full, dense(k, bias=bias), ["full_attention"] * n_layers(k))


def hunyuan(k: Keys) -> Parts:
    """Hunyuan dense: Q and K norms per head."""
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm="head")
    return _build(k, full, dense(k), ["full_attention"] * n_layers(k))


def seed_oss(k: Keys) -> Parts:
    """Seed-OSS: QKV bias and output bias have keys of their own."""
    full = attention(k, qkv_bias=k.flag("attention_bias"), out_bias=k.flag("attention_out_bias"))
    return _build(k, full, dense(k, bias=k.flag("mlp_bias")), ["full_attention"] * n_layers(k))


def nemotron(k: Keys) -> Parts:
    """Nemotron-4: LayerNorm, squared ReLU."""
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias)
    ffn = dense(k, gated=False, bias=k.flag("mlp_bias"))
    return _build(k, full, ffn, ["full_attention"] * n_layers(k), norm="layernorm")


def exaone4(k: Keys) -> Parts:
    """EXAONE 4: norms after the blocks, Q and K norms per head, 3 sliding layers to 1 full."""
    pattern = k.find("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        kinds = [c == "G" for c in pattern]
        types = layer_types(k, n_layers(k), lambda i: kinds[i % len(kinds)])
    else:
        every = k.integer("sliding_window_pattern", 4)
        slides = k.table.get("sliding_window", 1) is not None
        types = layer_types(k, n_layers(k), lambda i: not slides or (i + 1) % every == 0)
    return _build(k, attention(k, qk_norm="head"), dense(k), types)


def glm(k: Keys) -> Parts:
    """GLM: QKV bias."""
    full = attention(k, qkv_bias=k.flag("attention_bias"))
    return _build(k, full, dense(k), ["full_attention"] * n_layers(k))


def glm4(k: Keys) -> Parts:
    """GLM-4-0414: as GLM, with norms before and after both blocks."""
    parts = glm(k)
    parts.spec["norms_per_layer"] = 4
    return parts


def gpt2(k: Keys) -> Parts:
    """GPT-2: learned positions, LayerNorm, biases everywhere."""
    width = k.optional("intermediate_size") or 4 * k.integer("hidden_size")
    full = attention(k, qkv_bias=True, out_bias=True)
    ffn = DenseFfn(ffn_hidden_size=width, gated=False, bias=True)
    types = ["full_attention"] * n_layers(k)
    return _build(k, full, ffn, types, norm="layernorm", position="learned")


def gpt_neox(k: Keys) -> Parts:
    """GPT-NeoX, Pythia: LayerNorm, biases, untied."""
    bias = k.flag("attention_bias", True)
    ffn = dense(k, gated=False, bias=True)
    full = attention(k, qkv_bias=bias, out_bias=bias)
    return _build(k, full, ffn, ["full_attention"] * n_layers(k), norm="layernorm")


def bloom(k: Keys) -> Parts:
    """BLOOM: ALiBi, a norm after the embedding."""
    full = attention(k, n_kv_heads=k.integer("num_attention_heads"), qkv_bias=True, out_bias=True)
    ffn = DenseFfn(ffn_hidden_size=4 * k.integer("hidden_size"), gated=False, bias=True)
    types = ["full_attention"] * n_layers(k)
    spec = {"norm": "layernorm", "position": "alibi", "embedding_norm": True}
    return _build(k, full, ffn, types, **spec)


def opt(k: Keys) -> Parts:
    """OPT: learned positions with two extra rows."""
    bias, h = k.flag("enable_bias", True), k.integer("hidden_size")
    if (k.optional("word_embed_proj_dim") or h) != h:
        raise k.error("word_embed_proj_dim", "an embedding narrower than the model is not modelled")
    full = attention(k, qkv_bias=bias, out_bias=bias)
    ffn = dense(k, gated=False, bias=bias)
    types = ["full_attention"] * n_layers(k)
    final = k.flag("do_layer_norm_before", True) and not k.flag("_remove_final_layer_norm")
    spec = {"norm": "layernorm", "position": "learned", "extra_params": 2 * h, "final_norm": final}
    return _build(k, full, ffn, types, **spec)


def phi(k: Keys) -> Parts:
    """Phi-1 and Phi-2: parallel blocks with one LayerNorm, biases everywhere."""
    full = attention(k, qkv_bias=True, out_bias=True)
    if k.flag("qk_layernorm"):
        full = replace(full, extra_params=4 * full.head_dim)
    ffn = dense(k, gated=False, bias=True)
    types = ["full_attention"] * n_layers(k)
    spec = {"norm": "layernorm", "norms_per_layer": 1, "lm_head_bias": True}
    return _build(k, full, ffn, types, **spec)


def falcon(k: Keys) -> Parts:
    """Falcon: parallel blocks; multi-query, or grouped heads in the new architecture."""
    heads, h = k.integer("num_attention_heads"), k.integer("hidden_size")
    new, bias = k.flag("new_decoder_architecture"), k.flag("bias")
    if new:
        kv_heads = k.integer("num_key_value_heads", heads)
    else:
        kv_heads = 1 if k.flag("multi_query", True) else heads
    parallel = k.flag("parallel_attn", True)
    norms = 2 if (not parallel or (new and k.integer("num_ln_in_parallel_attn", 2) == 2)) else 1
    full = Attention(
        n_heads=heads, n_kv_heads=kv_heads, head_dim=h // heads, qkv_bias=bias, out_bias=bias
    )
    width = k.optional("intermediate_size") or 4 * h
    ffn = DenseFfn(ffn_hidden_size=width, gated=False, bias=bias)
    spec = {
        "norm": "layernorm",
        "norms_per_layer": norms,
        "position": "alibi" if k.flag("alibi") else "rope",
    }
    return _build(k, full, ffn, ["full_attention"] * n_layers(k), **spec)


FAMILIES: dict[str, Family] = {
    "llama": llama,
    "granite": llama,
    "smollm3": llama,
    "mistral": mistral,
    "ministral3": mistral,
    "phi3": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_vl_text": qwen3,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo2,
    "cohere": cohere,
    "cohere2": cohere,
    "starcoder2": starcoder2,
    "stablelm": stablelm,
    "ernie4_5": ernie,
    "hunyuan_v1_dense": hunyuan,
    "seed_oss": seed_oss,
    "nemotron": nemotron,
    "exaone4": exaone4,
    "glm": glm,
    "glm4": glm4,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "bloom": bloom,
    "opt": opt,
    "phi": phi,
    "falcon": falcon,
}
"""Model type -> function; keys are those of transformers."""
