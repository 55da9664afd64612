"""Hybrids: gated delta, Mamba-2 and lightning attention beside softmax attention; Gemma."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuscale.core.model.mixers import (
    AnyMixer,
    GatedDelta,
    LightningAttention,
    Mamba2,
    NoMixer,
    ShortConv,
)
from gpuscale.io.hf.experts import qwen_ffns
from gpuscale.io.hf.keys import Keys
from gpuscale.io.hf.parts import (
    Family,
    Parts,
    attention,
    dense,
    head_dim,
    layer_types,
    mixer_names,
    moe,
    n_layers,
    sparse_step,
    used,
    windowed,
)
from gpuscale.specs.model import AnyFfn, DenseFfn, MoeFfn, NoFfn


def _delta_mixers(k: Keys, n: int) -> tuple[list[str], dict[str, AnyMixer]]:
    every = k.integer("full_attention_interval", 4)
    types = k.per_layer("layer_types", n) or [
        "full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(n)
    ]
    bias = k.flag("attention_bias")
    names = ["delta" if kind == "linear_attention" else "full" for kind in types]
    mixers = used(
        names,
        {
            "delta": lambda: GatedDelta(
                n_k_heads=k.integer("linear_num_key_heads"),
                n_v_heads=k.integer("linear_num_value_heads"),
                k_head_dim=k.integer("linear_key_head_dim"),
                v_head_dim=k.integer("linear_value_head_dim"),
                conv_kernel=k.integer("linear_conv_kernel_dim"),
            ),
            "full": lambda: attention(
                k, qkv_bias=bias, out_bias=bias, qk_norm="head", output_gate=True
            ),
        },
    )
    return names, mixers


def qwen3_next(k: Keys) -> Parts:
    """Qwen3-Next and Qwen3.5 MoE: three gated-delta layers to one of gated attention."""
    n = n_layers(k)
    names, mixers = _delta_mixers(k, n)
    ffns = sparse_step(k, n)
    return Parts(list(zip(names, ffns, strict=True)), mixers, qwen_ffns(k, ffns, True))


def lfm2(k: Keys) -> Parts:
    """LFM2: gated short convolutions, and some layers of attention; the MLP's width is adjusted."""
    n = n_layers(k)
    ffn = k.optional("block_ff_dim") or k.integer("intermediate_size")
    if k.flag("block_auto_adjust_ff_dim", True):
        multiple = k.integer("block_multiple_of", 256)
        ffn = multiple * -(-(2 * ffn // 3) // multiple)
    full = k.layer_numbers("full_attn_idxs") or set()
    types = k.per_layer("layer_types", n) or [
        "full_attention" if i in full else "conv" for i in range(n)
    ]
    names = ["conv" if kind == "conv" else "full" for kind in types]
    conv = ShortConv(
        width=k.optional("conv_dim") or k.integer("hidden_size"),
        conv_kernel=k.integer("conv_L_cache", 3),
        bias=k.flag("conv_bias"),
    )
    mixers = used(names, {"conv": lambda: conv, "full": lambda: attention(k, qk_norm="head")})
    ffns: dict[str, AnyFfn] = {"dense": DenseFfn(ffn_hidden_size=ffn)}
    return Parts([(name, "dense") for name in names], mixers, ffns)


def qwen3_5(k: Keys) -> Parts:
    """Qwen3.5 dense."""
    n = n_layers(k)
    names, mixers = _delta_mixers(k, n)
    return Parts([(name, "dense") for name in names], mixers, {"dense": dense(k)})


_NEMOTRON = {
    "M": "mamba",
    "mamba": "mamba",
    "linear_attention": "mamba",
    "mamba2": "mamba",
    "*": "full",
    "attention": "full",
    "full_attention": "full",
    "E": "moe",
    "moe": "moe",
    "-": "dense",
    "mlp": "dense",
}


def nemotron_h(k: Keys) -> Parts:
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
    return Parts(
        [("none", name) if name in ("moe", "dense") else (name, "none") for name in order],
        used([n if n in ("mamba", "full") else "none" for n in order], _nemotron_mixers(k)),
        used([n if n in ("moe", "dense") else "none" for n in order], _nemotron_ffns(k)),
        {"norms_per_layer": 1, "position": "none", "tie_embeddings": False},
    )


def _nemotron_mixers(k: Keys) -> dict[str, Any]:
    width = k.optional("head_dim") if k.table.get("head_dim") else k.optional("attention_head_dim")
    return {
        "none": NoMixer,
        "full": lambda: attention(k, head_dim=width or k.integer("head_dim")),
        "mamba": lambda: Mamba2(
            n_heads=k.integer("mamba_num_heads"),
            head_dim=k.integer("mamba_head_dim"),
            state_size=k.integer("ssm_state_size"),
            n_groups=k.integer("mamba_n_groups" if k.given("mamba_n_groups") else "n_groups"),
            conv_kernel=k.integer("mamba_d_conv" if k.given("mamba_d_conv") else "conv_kernel"),
            conv_bias=k.flag("use_conv_bias", True),
            proj_bias=k.flag("use_bias"),
        ),
    }


def _nemotron_ffns(k: Keys) -> dict[str, Any]:
    bias = k.flag("mlp_bias")

    def experts() -> MoeFfn:
        n_shared = k.integer("n_shared_experts", 1, least=0)
        shared = k.integer("moe_shared_expert_intermediate_size", 0, least=0) if n_shared else 0
        latent = k.optional("moe_latent_size")
        h = k.integer("hidden_size")
        biases = (shared + h if shared else 0) + (latent + h if latent else 0)
        return moe(
            k,
            shared_ffn_hidden_size=shared,
            gated=False,
            latent_size=latent,
            extra_params=biases if bias else 0,
        )

    return {"none": NoFfn, "dense": lambda: dense(k, gated=False, bias=bias), "moe": experts}


def minimax(k: Keys) -> Parts:
    """MiniMax-01: lightning attention with a softmax layer now and then."""
    n = n_layers(k)
    old = k.per_layer("attn_type_list", n)
    if old is not None and k.table.get("layer_types") is None:
        types = ["full_attention" if kind else "linear_attention" for kind in old]
    else:
        types = (
            layer_types(k, n)
            if k.given("layer_types")
            else ["linear_attention" if i % 2 else "full_attention" for i in range(n)]
        )
    names = ["full" if kind == "full_attention" else "lightning" for kind in types]
    mixers = used(
        names,
        {
            "full": lambda: attention(k),
            "lightning": lambda: LightningAttention(
                n_heads=k.integer("num_attention_heads"), head_dim=head_dim(k)
            ),
        },
    )
    ffn = moe(k, "intermediate_size", shared_ffn_hidden_size=0)
    return Parts([(name, "moe") for name in names], mixers, {"moe": ffn})


def gemma(k: Keys) -> Parts:
    """Gemma: MQA or MHA with wide heads."""
    bias, n = k.flag("attention_bias"), n_layers(k)
    full = attention(k, qkv_bias=bias, out_bias=bias)
    return Parts([("full", "dense")] * n, {"full": full}, {"dense": dense(k)})


def gemma2(k: Keys) -> Parts:
    """Gemma 2: every other layer slides, norms before and after both blocks."""
    return _gemma_windows(k, 2, "none")


def gemma3(k: Keys) -> Parts:
    """Gemma 3: five sliding layers to one full, Q and K norms per head."""
    return _gemma_windows(k, k.integer("sliding_window_pattern", 6), "head")


def _gemma_windows(k: Keys, every: int, qk_norm: str) -> Parts:
    bias = k.flag("attention_bias")
    full = attention(k, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm)
    types = layer_types(k, n_layers(k), lambda i: (i + 1) % every == 0)
    layers = [(name, "dense") for name in mixer_names(types)]
    spec = {"norms_per_layer": 4}
    return Parts(layers, windowed(k, full, types), {"dense": dense(k)}, spec)


def gemma4(k: Keys) -> Parts:
    """Gemma 4: wider full layers, K=V, shared KV, per-layer embeddings, experts beside the MLP."""
    n = n_layers(k)
    types = layer_types(k, n, lambda i: (i + 1) % 6 == 0)
    types[-1] = "full_attention"
    shared = k.integer("num_kv_shared_layers", 0, least=0)
    reuse = [shared > 0 and i >= n - shared for i in range(n)]
    names = [
        name + ("-reuse" if again else "")
        for name, again in zip(mixer_names(types), reuse, strict=True)
    ]
    wide = k.flag("use_double_wide_mlp")
    with_experts = k.flag("enable_moe_block")
    ffn_names = [
        ("moe" if with_experts else "dense") + ("-wide" if wide and again else "")
        for again in reuse
    ]
    ffns: dict[str, AnyFfn] = {name: _gemma4_ffn(k, name) for name in dict.fromkeys(ffn_names)}
    spec: dict[str, Any] = {"norms_per_layer": 4}
    width = k.integer("hidden_size_per_layer_input", 0, least=0)
    if width:
        spec["ple_hidden_size"] = width
        spec["ple_vocab_size"] = k.integer("vocab_size_per_layer_input")
    return Parts(list(zip(names, ffn_names, strict=True)), _gemma4_mixers(k, names), ffns, spec)


def _gemma4_mixers(k: Keys, names: list[str]) -> dict[str, AnyMixer]:
    bias = k.flag("attention_bias")
    equal = k.flag("attention_k_eq_v")
    common: dict[str, Any] = {"qkv_bias": bias, "out_bias": bias, "qk_norm": "head"}
    sliding = attention(k, window_tokens=k.integer("sliding_window"), **common)
    kv = k.optional("num_global_key_value_heads") if equal else None
    full = attention(
        k,
        head_dim=k.integer("global_head_dim", 512),
        shared_kv=equal,
        n_kv_heads=kv or sliding.n_kv_heads,
        **common,
    )
    mixers: dict[str, AnyMixer] = {}
    for name in dict.fromkeys(names):
        mixer = sliding if name.startswith("sliding") else full
        mixers[name] = replace(mixer, reuses_kv=name.endswith("-reuse"))
    return mixers


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


FAMILIES: dict[str, Family] = {
    "lfm2": lfm2,
    "qwen3_next": qwen3_next,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_5,
    "nemotron_h": nemotron_h,
    "minimax": minimax,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma4_text": gemma4,
}
"""Model type -> function; keys are those of transformers."""
