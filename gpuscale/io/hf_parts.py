"""Parts of a model from the keys of a config: attention, MLPs, experts; towers and projectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gpuscale.core.dataclasses import dataclass, field, replace
from gpuscale.core.model.mixers import (
    AnyMixer,
    Attention,
    CompressedAttention,
    GatedDelta,
    LightningAttention,
    Mamba2,
    Mla,
    NoMixer,
    ShortConv,
)
from gpuscale.io.hf_keys import Keys, family_tables
from gpuscale.io.presets import made
from gpuscale.io.text import Table
from gpuscale.specs.model import AnyFfn, DenseFfn, MoeFfn

YesNo = bool | str
"""True, or the key that says it."""


@dataclass(frozen=True, kw_only=True)
class FamilyRow:
    """A family as `families.toml` has it; its head says what the columns mean."""

    types: tuple[str, ...] = ()
    bias: YesNo = False
    qkv_bias: YesNo = False
    out_bias: YesNo = False
    qk_norm: str = "none"
    qk_norm_if: tuple[str, bool] | None = None
    output_gate: bool = False
    sinks: bool = False
    layers: str = "full"
    window: tuple[str, ...] = ("sliding_window", "attention_chunk_size")
    every: tuple[str, int] = ("", 1)
    gated: bool = True
    mlp_bias: YesNo = False
    mlp_width: str = "intermediate_size"
    mlp_of_width: int = 0  # times the model's where the key is missing
    experts: str = "none"
    first_dense: int = 0
    expert_width: str = "moe_intermediate_size"
    expert_lists: bool = False  # counts may be lists, the largest is taken
    expert_bias: bool = False
    router_bias: bool = False
    shared: str | None = None
    shared_gate: bool = False
    spec: Table = field(default_factory=dict)


@lru_cache(maxsize=1)
def rows() -> dict[str, FamilyRow]:
    """Family -> row."""
    return {name: made(FamilyRow, row) for name, row in family_tables()["family"].items()}


@dataclass
class Parts:
    """What a config says of its layers: keys of a `ModelSpec`."""

    layers: list[tuple[str, str]]
    mixers: dict[str, AnyMixer]
    ffns: dict[str, AnyFfn]
    spec: Table


def head_dim(k: Keys) -> int:
    """Width of a head: the key, or hidden_size / num_attention_heads."""
    given = k.optional("head_dim")
    if given:
        return given
    width, heads = k.integer("hidden_size"), k.integer("num_attention_heads")
    if width < heads:
        raise k.error("num_attention_heads", f"{heads} heads in a hidden_size of {width}")
    return width // heads


def yes(k: Keys, said: YesNo) -> bool:
    """Read a switch of a row."""
    return k.flag(said) if isinstance(said, str) else said


def attention(k: Keys, row: FamilyRow, **more: Any) -> Attention:
    """Build grouped attention from the usual keys; `more` adds or overrides fields."""
    heads = k.integer("num_attention_heads")
    normed = row.qk_norm_if is None or k.flag(*row.qk_norm_if)
    fields: Table = {
        "n_heads": heads,
        "n_kv_heads": k.integer("num_key_value_heads", heads),
        "qkv_bias": yes(k, row.qkv_bias or row.bias),
        "out_bias": yes(k, row.out_bias or row.bias),
        "qk_norm": row.qk_norm if normed else "none",
        "output_gate": row.output_gate,
        "sinks": row.sinks,
    }
    if "head_dim" not in more:
        fields["head_dim"] = head_dim(k)
    return Attention(**{**fields, **more})


def window_tokens(k: Keys, row: FamilyRow) -> int | None:
    """Tokens of the window, by the first of its keys that says them."""
    return next((n for n in map(k.optional, row.window) if n), None)


def latent(k: Keys, **more: Any) -> Mla:
    """Multi-head latent attention from the usual keys."""
    plain_query = "q_lora_rank" in k.table and k.table["q_lora_rank"] is None
    return Mla(
        n_heads=k.integer("num_attention_heads"),
        q_lora_rank=None if plain_query else k.optional("q_lora_rank"),
        kv_lora_rank=k.integer("kv_lora_rank"),
        qk_nope_head_dim=k.integer("qk_nope_head_dim"),
        qk_rope_head_dim=k.integer("qk_rope_head_dim"),
        v_head_dim=k.integer("v_head_dim"),
        bias=k.flag("attention_bias"),
        **more,
    )


def _indexed(k: Keys) -> Mla:
    """Latent attention on the keys that an indexer chooses."""
    return latent(
        k,
        sparse_top_k_tokens=k.optional("index_topk"),
        index_n_heads=k.integer("index_n_heads"),
        index_head_dim=k.integer("index_head_dim"),
    )


def _block_sparse(k: Keys, row: FamilyRow) -> Attention:
    """Attention on the blocks that an indexer chooses (MiniMax-M3)."""
    sparse = k.below("sparse_attention_config")

    def key(modern: str, legacy: str) -> int:
        return sparse.optional(legacy) or k.integer(modern)

    blocks = key("index_topk_blocks", "sparse_topk_blocks")
    return attention(
        k,
        row,
        index_n_heads=key("index_n_heads", "sparse_num_index_heads"),
        index_head_dim=key("index_head_dim", "sparse_index_dim"),
        sparse_top_k_tokens=blocks * key("index_block_size", "sparse_block_size"),
    )


def _compressed(k: Keys) -> CompressedAttention:
    """Window layers of DeepSeek-V4."""
    return CompressedAttention(
        n_heads=k.integer("num_attention_heads"),
        head_dim=k.integer("head_dim"),
        q_lora_rank=k.integer("q_lora_rank"),
        o_lora_rank=k.integer("o_lora_rank"),
        o_groups=k.integer("o_groups"),
        window_tokens=k.integer("sliding_window"),
    )


def _rate(k: Keys, kind: str, default: int) -> Any:
    rates = k.table.get("compress_rates")
    return rates.get(kind, default) if isinstance(rates, dict) else default


MIXERS: dict[str, Callable[[Keys, FamilyRow], AnyMixer]] = {
    "none": lambda k, row: NoMixer(),
    "full": attention,
    "sliding": lambda k, row: attention(k, row, window_tokens=window_tokens(k, row)),
    "mla": lambda k, row: latent(k),
    "dsa": lambda k, row: _indexed(k),
    "dsa-shared": lambda k, row: replace(_indexed(k), index_n_heads=0, index_head_dim=0),
    "sparse": _block_sparse,
    "window": lambda k, row: _compressed(k),
    "csa": lambda k, row: replace(
        _compressed(k),
        compress_rate=_rate(k, "compressed_sparse_attention", 4),
        sparse_top_k_tokens=k.integer("index_topk"),
        index_n_heads=k.integer("index_n_heads"),
        index_head_dim=k.integer("index_head_dim"),
    ),
    "hca": lambda k, row: replace(
        _compressed(k), compress_rate=_rate(k, "heavily_compressed_attention", 128)
    ),
    "delta": lambda k, row: GatedDelta(
        n_k_heads=k.integer("linear_num_key_heads"),
        n_v_heads=k.integer("linear_num_value_heads"),
        k_head_dim=k.integer("linear_key_head_dim"),
        v_head_dim=k.integer("linear_value_head_dim"),
        conv_kernel=k.integer("linear_conv_kernel_dim"),
    ),
    "lightning": lambda k, row: LightningAttention(
        n_heads=k.integer("num_attention_heads"), head_dim=head_dim(k)
    ),
    "conv": lambda k, row: ShortConv(
        width=k.optional("conv_dim") or k.integer("hidden_size"),
        conv_kernel=k.integer("conv_L_cache", 3),
        bias=k.flag("conv_bias"),
    ),
    "mamba": lambda k, row: Mamba2(
        n_heads=k.integer("mamba_num_heads"),
        head_dim=k.integer("mamba_head_dim"),
        state_size=k.integer("ssm_state_size"),
        n_groups=k.integer("n_groups"),
        conv_kernel=k.integer("conv_kernel"),
        conv_bias=k.flag("use_conv_bias", True),
        proj_bias=k.flag("use_bias"),
    ),
}
"""Kind of mixer, as an order of layers names it -> how it is read."""


def dense(k: Keys, row: FamilyRow) -> DenseFfn:
    """Build the MLP."""
    width = k.optional(row.mlp_width) if row.mlp_of_width else k.integer(row.mlp_width)
    width = width or row.mlp_of_width * k.integer("hidden_size")
    return DenseFfn(ffn_hidden_size=width, gated=row.gated, bias=yes(k, row.mlp_bias))


def moe(k: Keys, row: FamilyRow, **more: Any) -> MoeFfn:
    """Build the experts; `more` adds or overrides fields."""
    width = k.integer(row.expert_width)
    count = k.largest if row.expert_lists else k.integer
    if row.shared is None:
        shared = (k.optional("n_shared_experts") or 0) * width
    else:
        shared = k.integer(row.shared, 0, least=0) if row.shared else 0
    fields: Table = {
        "n_experts": count("num_local_experts"),
        "top_k": count("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
        "shared_ffn_hidden_size": shared,
        "shared_gate": row.shared_gate and shared > 0,
        "bias": row.expert_bias,
        "router_bias": row.router_bias,
        "n_route_groups": (k.optional("topk_group") or 0) if k.integer("n_group", 1) > 1 else 0,
    }
    return MoeFfn(**{**fields, **more})


Tower = Callable[[Keys, Keys, int], int]
"""(vision keys, wrapper keys, hidden_size of the text model) -> parameters."""


def _block(h: int, width: int, bias: bool = True, norm_vectors: int = 4) -> int:
    """One encoder layer: attention of full width, plain MLP, two norms of h."""
    weights = 4 * h * h + 2 * h * width
    return weights + ((5 * h + width) if bias else 0) + norm_vectors * h


def qwen_vl(v: Keys, k: Keys, text_width: int) -> int:
    """Qwen3-VL and Qwen3.5: 3D patches, learned positions, one merger per deep-stack level."""
    h, width = v.integer("hidden_size", 1152), v.integer("intermediate_size", 4304)
    depth = v.integer("depth", 27)
    merged = h * v.integer("spatial_merge_size", 2) ** 2
    out = v.integer("out_hidden_size", text_width)
    patch = v.integer("patch_size", 16) ** 2 * v.integer("temporal_patch_size", 2)
    levels = v.sequence("deepstack_visual_indexes")
    merger = merged * merged + merged + merged * out + out
    count = v.integer("in_channels", 3) * patch * h + h
    count += v.integer("num_position_embeddings", 2304) * h + depth * _block(h, width)
    return count + merger + 2 * h + len(levels or ()) * (merger + 2 * merged)


def siglip_gemma3(v: Keys, k: Keys, text_width: int) -> int:
    """Gemma 3: SigLIP and a linear projection."""
    h, width = v.integer("hidden_size", 768), v.integer("intermediate_size", 3072)
    patch = v.integer("patch_size", 16)
    count = 3 * patch * patch * h + h + (v.integer("image_size", 224) // patch) ** 2 * h
    count += v.integer("num_hidden_layers", 12) * _block(h, width) + 2 * h
    if v.flag("vision_use_head", True):  # probe, attention, norm, MLP
        count += h + 4 * h * h + 4 * h + 2 * h + 2 * h * width + width + h
    return count + h * text_width + h


def gemma4(v: Keys, k: Keys, text_width: int) -> int:
    """Gemma 4: gated MLPs, norms before and after, Q and K norms, two position tables."""
    h, width = v.integer("hidden_size", 768), v.integer("intermediate_size", 3072)
    heads = v.integer("num_attention_heads", 12)
    kv_heads = v.integer("num_key_value_heads", heads)
    d = v.integer("head_dim", 64)
    layer = 2 * h * heads * d + 2 * h * kv_heads * d + 3 * h * width + 4 * h + 2 * d
    count = 3 * v.integer("patch_size", 16) ** 2 * h
    count += 2 * v.integer("position_embedding_size", 10240) * h
    return count + v.integer("num_hidden_layers", 16) * layer + h * text_width


def gemma4_audio(a: Keys, text_width: int) -> int:
    """Gemma 4 audio: two strided convolutions, conformer layers, two projections."""
    h, out = a.integer("hidden_size", 1024), a.integer("output_proj_dims", 1536)
    channels = a.sequence("subsampling_conv_channels") or [128, 32]
    if len(channels) != 2 or not all(type(c) is int and 0 < c < 10**6 for c in channels):
        raise a.error("subsampling_conv_channels", "two whole numbers are wanted")
    first, second = int(channels[0]), int(channels[1])
    count = 9 * first + first + 9 * first * second + second + first // 4 * second * h
    heads = a.integer("num_attention_heads", 8)
    layer = 2 * (8 * h * h + 2 * h)  # two MLPs of four times the width, norms before and after
    layer += 5 * h * h + h // heads + 3 * h  # attention with relative keys, three norms
    layer += 3 * h * h + a.integer("conv_kernel_size", 5) * h + 2 * h
    return count + a.integer("num_hidden_layers", 12) * layer + h * out + out + out * text_width


def kimi(v: Keys, k: Keys, text_width: int) -> int:
    """Kimi K2.5: MoonViT and a merging projector."""

    def key(name: str, default: int) -> int:
        old = v.optional("vt_" + name)
        return old or v.integer(name, default)

    h, width = key("hidden_size", 1152), key("intermediate_size", 4304)
    rows = v.optional("init_pos_emb_height") or v.integer("pos_emb_height", 64)
    columns = v.optional("init_pos_emb_width") or v.integer("pos_emb_width", 64)
    merged = h * v.largest("merge_kernel_size") ** 2 if v.given("merge_kernel_size") else 4 * h
    count = 3 * v.integer("patch_size", 14) ** 2 * h + h + rows * columns * h
    count += key("num_hidden_layers", 27) * _block(h, width) + 2 * h
    return count + 2 * h + merged * merged + merged + merged * text_width + text_width


def pixtral(v: Keys, k: Keys, text_width: int) -> int:
    """Mistral 3: Pixtral (gated, no biases), patch merger, two-layer projector."""
    h, width = v.integer("hidden_size", 1024), v.integer("intermediate_size", 4096)
    layer = 4 * h * h + 3 * h * width + 2 * h
    count = v.integer("num_channels", 3) * v.integer("patch_size", 16) ** 2 * h + h
    count += v.integer("num_hidden_layers", 24) * layer
    count += h + h * h * k.integer("spatial_merge_size", 2) ** 2
    count += h * text_width + text_width * text_width
    return count + (2 * text_width if k.flag("multimodal_projector_bias") else 0)


def minimax_m3(v: Keys, k: Keys, text_width: int) -> int:
    """MiniMax-M3: 3D patches, rotary positions, two projector MLPs."""
    h, width = v.integer("hidden_size", 1280), v.integer("intermediate_size", 5120)
    inner = k.integer("projector_hidden_size", 6144)
    merged = text_width * v.integer("spatial_merge_size", 2) ** 2
    patch = v.integer("patch_size", 14) ** 2 * v.integer("temporal_patch_size", 2)
    count = v.integer("num_channels", 3) * patch * h + 2 * h
    count += v.integer("num_hidden_layers", 32) * _block(h, width)
    count += h * inner + inner + inner * text_width + text_width
    return count + merged * inner + inner + inner * text_width + text_width


def step3p7(v: Keys, k: Keys, text_width: int) -> int:
    """Step-3.7: layer scales, learned positions, two strided convolutions, one projection."""
    h = v.optional("width") or v.integer("hidden_size", 1536)
    ratio = v.table.get("mlp_ratio", 8960 / 1536)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < 1000:
        raise v.error("mlp_ratio", "a number from 0 to 1000 is wanted")
    width = int(h * ratio)
    layers = v.optional("layers") or v.integer("num_hidden_layers", 47)
    patch = v.integer("patch_size", 14)
    count = v.integer("num_channels", 3) * patch * patch * h
    count += (v.integer("image_size", 728) // patch) ** 2 * h + 2 * h
    count += layers * _block(h, width, norm_vectors=6)
    count += 9 * h * 2 * h + 2 * h + 9 * 2 * h * 4 * h + 4 * h
    return count + 4 * h * text_width + (text_width if k.flag("projector_bias") else 0)


TOWERS: dict[str, Tower] = {
    "qwen3_vl": qwen_vl,
    "qwen3_vl_moe": qwen_vl,
    "qwen3_5": qwen_vl,
    "qwen3_5_moe": qwen_vl,
    "gemma3": siglip_gemma3,
    "gemma4": gemma4,
    "kimi_k25": kimi,
    "mistral3": pixtral,
    "minimax_m3_vl": minimax_m3,
    "minimax_m3": minimax_m3,
    "step3p7": step3p7,
}
"""Wrapper model type -> function."""

TEXT_ONLY = ("llama4", "qwen3_5", "qwen3_5_moe")
"""Wrappers that transformers loads as a language model alone: the tower is not in the count."""
