"""Latent and compressed attention: DeepSeek, Kimi, and the GLM models that follow them."""

from __future__ import annotations

from dataclasses import replace

from gpuscale.core.model.mixers import CompressedAttention
from gpuscale.io.hf.keys import Keys
from gpuscale.io.hf.parts import (
    Family,
    Parts,
    dense,
    dense_first,
    latent_attention,
    layer_list,
    moe,
    n_layers,
    used,
)


def deepseek(k: Keys) -> Parts:
    """DeepSeek-V2 and V3, Kimi K2, GLM-4.7-Flash: latent attention."""
    n = n_layers(k)
    experts = k.find("num_local_experts") if "n_routed_experts" in k.table else True
    names = dense_first(k, n) if experts else ["dense"] * n
    stated = ("mlp_layer_types", "first_k_dense_replace")
    if k.model_type == "glm4_moe_lite" and not any(k.given(key) for key in stated):
        names = ["dense"] + ["moe"] * (n - 1)
    ffns = used(names, {"moe": lambda: moe(k), "dense": lambda: dense(k)})
    return Parts(layer_list(["mla"] * n, names), {"mla": latent_attention(k)}, ffns)


def deepseek_sparse(k: Keys) -> Parts:
    """DeepSeek-V3.2, GLM-5: latent attention on the keys that an indexer chooses."""
    n = n_layers(k)
    names = dense_first(k, n)
    kept = k.optional("index_topk")
    indexed = latent_attention(
        k,
        sparse_top_k_tokens=kept,
        index_n_heads=k.integer("index_n_heads"),
        index_head_dim=k.integer("index_head_dim"),
    )
    shared = replace(indexed, index_n_heads=0, index_head_dim=0)
    owns = [kind != "shared" for kind in _indexer_types(k, n)]
    mixer_list = ["dsa" if own else "dsa-shared" for own in owns]
    mixers = used(mixer_list, {"dsa": lambda: indexed, "dsa-shared": lambda: shared})
    ffns = used(names, {"moe": lambda: moe(k), "dense": lambda: dense(k)})
    return Parts(layer_list(mixer_list, names), mixers, ffns)


def _indexer_types(k: Keys, n: int) -> list[str]:
    given = k.per_layer("indexer_types", n)
    if given is not None:
        return [str(kind) for kind in given]
    order = k.table.get("index_topk_pattern")
    if isinstance(order, str | list) and len(order) >= n:
        return ["shared" if c in ("S", "shared") else "full" for c in order[:n]]
    freq = k.integer("index_topk_freq", 1)
    offset = k.integer("index_skip_topk_offset", 2, least=0)
    return ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(n)]


_V4_NAMES = {
    "sliding_attention": "window",
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
}
_V4_RATIOS = {
    0: "sliding_attention",
    4: "compressed_sparse_attention",
    128: "heavily_compressed_attention",
}


def deepseek_v4(k: Keys) -> Parts:
    """DeepSeek-V4: window, compressed-sparse and heavily compressed layers, hyper-connections."""
    n = n_layers(k)
    types = _v4_types(k, n)
    base = CompressedAttention(
        n_heads=k.integer("num_attention_heads"),
        head_dim=k.integer("head_dim"),
        q_lora_rank=k.integer("q_lora_rank"),
        o_lora_rank=k.integer("o_lora_rank"),
        o_groups=k.integer("o_groups"),
        window_tokens=k.integer("sliding_window"),
    )
    rates = k.table.get("compress_rates")
    rates = rates if isinstance(rates, dict) else {}
    indexed = {
        "compress_rate": rates.get("compressed_sparse_attention", 4),
        "sparse_top_k_tokens": k.integer("index_topk"),
        "index_n_heads": k.integer("index_n_heads"),
        "index_head_dim": k.integer("index_head_dim"),
    }
    heavy = {"compress_rate": rates.get("heavily_compressed_attention", 128)}
    names = [_V4_NAMES[kind] for kind in types]
    mixers = used(
        names,
        {
            "window": lambda: base,
            "csa": lambda: replace(base, **indexed),
            "hca": lambda: replace(base, **heavy),
        },
    )
    spec = {"hc_mult": k.integer("hc_mult")}
    return Parts(layer_list(names, ["moe"] * n), mixers, {"moe": moe(k)}, spec)


def _v4_types(k: Keys, n: int) -> list[str]:
    ratios = k.per_layer("compress_ratios", n)
    types = k.per_layer("layer_types", n)
    if types is None and ratios is not None:
        types = [_V4_RATIOS.get(r, str(r)) if isinstance(r, int) else "?" for r in ratios]
    if types is None:
        first = min(n, 2)
        types = [
            "compressed_sparse_attention"
            if i >= first and (i - first) % 2
            else "heavily_compressed_attention"
            for i in range(n)
        ]
    for kind in types:
        if not isinstance(kind, str) or kind not in _V4_NAMES:
            raise k.error("layer_types", f"unknown kind of layer {str(kind)[:40]!r}")
    return types


FAMILIES: dict[str, Family] = {
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "kimi_k2": deepseek,
    "glm4_moe_lite": deepseek,
    "deepseek_v32": deepseek_sparse,
    "glm_moe_dsa": deepseek_sparse,
    "deepseek_v4": deepseek_v4,
}
"""Model type -> function; keys are those of transformers."""
