"""Parts that most families share: grouped attention, MLPs, experts, and the layer order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gpuscale.core.model.mixers import AnyMixer, Attention, Mla
from gpuscale.io.hf.keys import Keys
from gpuscale.specs.model import AnyFfn, DenseFfn, MoeFfn
from gpuscale.specs.pattern import MAX_LAYERS, compress

SLIDING = ("sliding_attention", "chunked_attention", "sliding", "local")


@dataclass
class Parts:
    """What a family function returns: the keys of a `ModelSpec`."""

    layers: list[tuple[str, str]]
    mixers: dict[str, AnyMixer]
    ffns: dict[str, AnyFfn]
    spec: dict[str, Any] = field(default_factory=dict)


Family = Callable[[Keys], Parts]


def layer_list(mixers: list[str], ffns: list[str]) -> list[tuple[str, str]]:
    """(mixer, ffn) names of each layer."""
    return list(zip(mixers, ffns, strict=True))


def n_layers(k: Keys) -> int:
    """Read the number of layers, refused when absurd."""
    n = k.integer("num_hidden_layers")
    if n > MAX_LAYERS:
        raise k.error("num_hidden_layers", f"more than {MAX_LAYERS} layers, got {n}")
    return n


def head_dim(k: Keys) -> int:
    """Width of a head: the key, or hidden_size / num_attention_heads."""
    given = k.optional("head_dim")
    if given:
        return given
    width, heads = k.integer("hidden_size"), k.integer("num_attention_heads")
    if width < heads:
        raise k.error("num_attention_heads", f"{heads} heads in a hidden_size of {width}")
    return width // heads


def attention(k: Keys, **more: Any) -> Attention:
    """Build grouped attention from the usual keys; `more` adds or overrides fields."""
    heads = k.integer("num_attention_heads")
    fields: dict[str, Any] = {
        "n_heads": heads,
        "n_kv_heads": k.integer("num_key_value_heads", heads),
    }
    if "head_dim" not in more:
        fields["head_dim"] = head_dim(k)
    return Attention(**{**fields, **more})


def windowed(k: Keys, full: Attention, layer_types: list[str]) -> dict[str, AnyMixer]:
    """Mixers `full` and `sliding`, as many as the layers use."""
    mixers: dict[str, AnyMixer] = {}
    for kind in layer_types:
        if kind in SLIDING:
            window = k.optional("sliding_window") or k.optional("attention_chunk_size")
            mixers["sliding"] = replace(full, window_tokens=window)
        else:
            mixers["full"] = full
    return mixers


def mixer_names(layer_types: Iterable[str]) -> list[str]:
    """`sliding` or `full` for each layer."""
    return ["sliding" if kind in SLIDING else "full" for kind in layer_types]


def layer_types(k: Keys, n: int, default: Callable[[int], bool] | None = None) -> list[str]:
    """`layer_types` of the file, or from `default`: is layer i full attention."""
    given = k.per_layer("layer_types", n)
    if given is not None:
        if not all(isinstance(kind, str) for kind in given):
            raise k.error("layer_types", "a list of names is wanted")
        return given
    full = default or (lambda i: True)
    return ["full_attention" if full(i) else "sliding_attention" for i in range(n)]


def dense(k: Keys, key: str = "intermediate_size", **more: Any) -> DenseFfn:
    """Gated MLP of the usual width."""
    return DenseFfn(ffn_hidden_size=k.integer(key), **more)


def moe(k: Keys, width_key: str = "moe_intermediate_size", **more: Any) -> MoeFfn:
    """Experts from the usual keys; `n_shared_experts` of them are shared."""
    width = k.integer(width_key)
    fields: dict[str, Any] = {
        "n_experts": k.integer("num_local_experts"),
        "top_k": k.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
        "shared_ffn_hidden_size": (k.optional("n_shared_experts") or 0) * width,
        "n_route_groups": (k.optional("topk_group") or 0) if k.integer("n_group", 1) > 1 else 0,
    }
    return MoeFfn(**{**fields, **more})


def dense_first(k: Keys, n: int) -> list[str]:
    """`dense` or `moe` per layer by mlp_layer_types, or first_k_dense_replace and a frequency."""
    kinds = k.per_layer("mlp_layer_types", n)
    if kinds is not None:
        return ["dense" if kind == "dense" else "moe" for kind in kinds]
    freq = k.table.get("moe_layer_freq")
    if isinstance(freq, list):
        values = k.per_layer("moe_layer_freq", n) or []
        return ["moe" if v else "dense" for v in values]
    first = k.integer("first_k_dense_replace", 0, least=0)
    every = k.integer("moe_layer_freq", 1)
    return ["moe" if i >= first and i % every == 0 else "dense" for i in range(n)]


def sparse_step(k: Keys, n: int) -> list[str]:
    """`dense` or `moe` per layer by mlp_only_layers and decoder_sparse_step (Qwen)."""
    only = k.layer_numbers("mlp_only_layers") or set()
    step = k.integer("decoder_sparse_step", 1)
    experts = k.integer("num_local_experts", 0, least=0)
    return [
        "moe" if i not in only and experts and (i + 1) % step == 0 else "dense" for i in range(n)
    ]


def latent_attention(k: Keys, **more: Any) -> Mla:
    """Multi-head latent attention from the usual keys."""
    return Mla(
        n_heads=k.integer("num_attention_heads"),
        q_lora_rank=k.optional("q_lora_rank") if _has_q_rank(k) else None,
        kv_lora_rank=k.integer("kv_lora_rank"),
        qk_nope_head_dim=k.integer("qk_nope_head_dim"),
        qk_rope_head_dim=k.integer("qk_rope_head_dim"),
        v_head_dim=k.integer("v_head_dim"),
        bias=k.flag("attention_bias"),
        **more,
    )


def _has_q_rank(k: Keys) -> bool:
    """`"q_lora_rank": null` in the file means a plain query, whatever the default is."""
    return "q_lora_rank" not in k.table or k.table["q_lora_rank"] is not None


def used(names: Iterable[str], table: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Build only the entries that the layers name, so that no unused key is asked for."""
    return {name: table[name]() for name in dict.fromkeys(names)}


def pattern(layers: list[tuple[str, str]]) -> str:
    """Layer pattern of a list of layers."""
    return compress(layers)
