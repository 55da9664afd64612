"""Parts of a model from the keys of a config: attention, MLPs, experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

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
from gpuscale.core.records import dataclass, field, replace
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
    head_gate: YesNo = False
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
    latent: str = ""  # key of the width at which the experts work
    counts: tuple[str, ...] = ()  # keys of the model that the file must give
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
        "head_gate": yes(k, row.head_gate),
        "sinks": row.sinks,
    }
    if "head_dim" not in more:
        fields["head_dim"] = head_dim(k)
    return Attention(**{**fields, **more})


def window_tokens(k: Keys, row: FamilyRow) -> int | None:
    """Tokens of the window, by the first of its keys that says them."""
    return k.first(*row.window)


def latent(k: Keys, row: FamilyRow, **more: Any) -> Mla:
    """Multi-head latent attention from the usual keys."""
    plain_query = "q_lora_rank" in k.table and k.table["q_lora_rank"] is None
    return Mla(
        n_heads=k.integer("num_attention_heads"),
        q_lora_rank=None if plain_query else k.optional("q_lora_rank"),
        kv_lora_rank=k.integer("kv_lora_rank"),
        qk_nope_head_dim=k.integer("qk_nope_head_dim"),
        qk_rope_head_dim=k.integer("qk_rope_head_dim", least=0),
        v_head_dim=k.integer("v_head_dim"),
        bias=k.flag("attention_bias"),
        output_gate=row.output_gate,
        **more,
    )


def _indexed(k: Keys, row: FamilyRow) -> Mla:
    """Latent attention on the keys that an indexer chooses."""
    return latent(
        k,
        row,
        sparse_top_k_tokens=k.optional("index_topk"),
        index_n_heads=k.integer("index_n_heads"),
        index_head_dim=k.integer("index_head_dim"),
        index_pool_tokens=k.integer("index_kpool", 1),
    )


def _delta(k: Keys) -> GatedDelta:
    return GatedDelta(
        n_k_heads=k.integer("linear_num_key_heads"),
        n_v_heads=k.integer("linear_num_value_heads"),
        k_head_dim=k.integer("linear_key_head_dim"),
        v_head_dim=k.integer("linear_value_head_dim"),
        conv_kernel=k.integer("linear_conv_kernel_dim"),
    )


def _kimi_delta(k: Keys) -> GatedDelta:
    """Kimi Delta Attention: one width of heads; in a table of its own in the files of the hub."""
    own = k.below("linear_attn_config")
    heads = own.optional("num_heads") or k.integer("linear_num_heads")
    width = own.optional("head_dim") or k.integer("linear_head_dim")
    taps = own.optional("short_conv_kernel_size") or k.integer("linear_conv_kernel_dim", 4)
    return GatedDelta(
        n_k_heads=heads,
        n_v_heads=heads,
        k_head_dim=width,
        v_head_dim=width,
        conv_kernel=taps,
        gate_rank=width,
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
    "mla": latent,
    "dsa": _indexed,
    "dsa-shared": lambda k, row: replace(_indexed(k, row), index_n_heads=0, index_head_dim=0),
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
    "delta": lambda k, row: _delta(k),
    "kda": lambda k, row: _kimi_delta(k),
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
    if row.latent:
        more = {"latent_size": k.optional(row.latent), **more}
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
