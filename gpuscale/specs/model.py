"""A language model described by layer patterns: named mixers, named FFNs, and their order."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from gpuscale.specs.fields import Count, NonNegativeInt, PositiveInt, Spec, Tokens
from gpuscale.specs.pattern import expand


class Attention(Spec):
    """Softmax attention with grouped heads: MHA, GQA, MQA; full, sliding-window or chunked."""

    kind: Literal["attention"] = "attention"
    n_heads: PositiveInt
    n_kv_heads: PositiveInt
    head_dim: PositiveInt
    v_head_dim: PositiveInt | None = None  # None: as head_dim
    window_tokens: PositiveInt | None = None  # sliding window or chunk; None: full
    sparse_top_k_tokens: PositiveInt | None = None  # indexed sparse attention: keys kept
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"  # weights: head_dim, or the whole width
    output_gate: bool = False  # query projection doubled by a gate
    sinks: bool = False  # one learned logit per head
    shared_kv: bool = False  # V is K: one projection, still two caches
    head_gate: bool = False  # one output gate per head
    q_lora_rank: PositiveInt | None = None  # low-rank query with a norm (Step-3)
    reuses_kv: bool = False  # K and V of an earlier layer: no projections, no cache of its own
    index_n_heads: NonNegativeInt = 0  # sparse attention: heads of the indexer
    index_head_dim: NonNegativeInt = 0
    extra_params: Count = 0  # vectors that no other key explains


class Mla(Spec):
    """Multi-head latent attention (DeepSeek-V2); `index_*` describe the sparse indexer of V3.2."""

    kind: Literal["mla"] = "mla"
    n_heads: PositiveInt
    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt
    sparse_top_k_tokens: PositiveInt | None = None
    index_n_heads: NonNegativeInt = 0
    index_head_dim: NonNegativeInt = 0
    bias: bool = False  # on the two down projections and the output
    extra_params: Count = 0


class CompressedAttention(Spec):
    """Attention of DeepSeek-V4: one shared K=V head, a window, and a compressed far context."""

    kind: Literal["compressed"] = "compressed"
    n_heads: PositiveInt
    head_dim: PositiveInt
    q_lora_rank: PositiveInt
    o_lora_rank: PositiveInt
    o_groups: PositiveInt
    window_tokens: PositiveInt
    compress_rate: PositiveInt | None = None  # tokens per compressed entry; None: window only
    sparse_top_k_tokens: PositiveInt | None = None  # entries kept by the indexer; None: all
    index_n_heads: NonNegativeInt = 0
    index_head_dim: NonNegativeInt = 0


class LightningAttention(Spec):
    """Linear attention with decay (MiniMax-01): QKV, an output gate and a norm."""

    kind: Literal["lightning"] = "lightning"
    n_heads: PositiveInt
    head_dim: PositiveInt


class GatedDelta(Spec):
    """Gated linear attention (Gated DeltaNet of Qwen3-Next and Qwen3.5)."""

    kind: Literal["gated-delta"] = "gated-delta"
    n_k_heads: PositiveInt
    n_v_heads: PositiveInt
    k_head_dim: PositiveInt
    v_head_dim: PositiveInt
    conv_kernel: PositiveInt = 4


class Mamba2(Spec):
    """Mamba-2 state space mixer (Nemotron-H)."""

    kind: Literal["mamba2"] = "mamba2"
    n_heads: PositiveInt
    head_dim: PositiveInt
    state_size: PositiveInt
    n_groups: PositiveInt
    conv_kernel: PositiveInt = 4
    conv_bias: bool = True
    proj_bias: bool = False


class NoMixer(Spec):
    """A layer without token mixing (the FFN-only layers of Nemotron-H)."""

    kind: Literal["none"] = "none"


class DenseFfn(Spec):
    """One MLP; gated ones have three matrices, plain ones two."""

    kind: Literal["dense"] = "dense"
    ffn_hidden_size: PositiveInt
    gated: bool = True
    bias: bool = False
    extra_params: Count = 0


class MoeFfn(Spec):
    """Routed experts, and optionally shared ones."""

    kind: Literal["moe"] = "moe"
    n_experts: PositiveInt
    top_k: PositiveInt
    expert_ffn_hidden_size: PositiveInt
    shared_ffn_hidden_size: NonNegativeInt = 0  # all shared experts together
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bias: bool = False  # a correction or bias term, one per expert
    n_route_groups: NonNegativeInt = 0  # node-limited routing: groups chosen (0: unlimited)
    latent_size: PositiveInt | None = None  # width at which the routed experts work
    dense_ffn_hidden_size: NonNegativeInt = 0  # an MLP beside the experts (Gemma 4)
    extra_params: Count = 0

    @model_validator(mode="after")
    def _has_the_chosen(self) -> MoeFfn:
        if self.top_k > self.n_experts:
            raise ValueError(f"top_k {self.top_k} is more than the {self.n_experts} experts")
        return self


class NoFfn(Spec):
    """A layer without FFN (the mixer-only layers of Nemotron-H)."""

    kind: Literal["none"] = "none"


AnyMixer = (
    Attention | Mla | CompressedAttention | LightningAttention | GatedDelta | Mamba2 | NoMixer
)
AnyFfn = DenseFfn | MoeFfn | NoFfn
Mixer = Annotated[AnyMixer, Field(discriminator="kind")]
Ffn = Annotated[AnyFfn, Field(discriminator="kind")]


class LayerGroup(NamedTuple):
    """`n` layers of the same mixer and FFN."""

    n: int
    mixer: AnyMixer
    ffn: AnyFfn


class ModelSpec(Spec):
    """A decoder-only language model."""

    name: str
    title: str = ""
    family: str = ""
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    layers: str  # pattern over the names in `mixers` and `ffns`
    mixers: dict[str, Mixer]
    ffns: dict[str, Ffn]
    tie_embeddings: bool = False
    # layernorm has a bias, layernorm-nobias none; "none": no learned norm weights at all
    norm: Literal["rmsnorm", "layernorm", "layernorm-nobias", "none"] = "rmsnorm"
    norms_per_layer: NonNegativeInt = 2
    final_norm: bool = True
    embedding_norm: bool = False
    position: Literal["rope", "learned", "alibi", "none"] = "rope"
    max_position: PositiveInt | None = None
    lm_head_bias: bool = False
    n_mtp_layers: NonNegativeInt = 0  # multi-token prediction, kept out of `params`
    hc_mult: NonNegativeInt = 0  # hyper-connections: residual streams (0: one plain residual)
    ple_hidden_size: NonNegativeInt = 0  # per-layer embeddings (Gemma 3n, Gemma 4): width
    ple_vocab_size: NonNegativeInt = 0
    vision_params: Count = 0  # vision and audio towers with their projectors
    extra_params: Count = 0  # what no other key explains; `notes` says what
    published_params: Count | None = None
    published_active_params: Count | None = None
    training_tokens: Tokens | None = None
    batch_tokens: Tokens | None = None
    weight_bits: float | None = Field(default=None, gt=0, le=64)  # as published, if quantised
    notes: str = ""
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_exist(self) -> ModelSpec:
        for mixer, ffn in set(self.layer_sequence):
            if mixer not in self.mixers:
                raise ValueError(f"layers: mixer {mixer!r} is not in [mixers]")
            if ffn not in self.ffns:
                raise ValueError(f"layers: ffn {ffn!r} is not in [ffns]")
        return self

    @cached_property
    def layer_sequence(self) -> tuple[tuple[str, str], ...]:
        """(mixer, ffn) names of each layer, first to last."""
        return expand(self.layers)

    @cached_property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """Distinct layers with their counts, in order of first appearance."""
        counts = Counter(self.layer_sequence)
        return tuple(
            LayerGroup(n, self.mixers[mixer], self.ffns[ffn]) for (mixer, ffn), n in counts.items()
        )

    @cached_property
    def named_groups(self) -> tuple[tuple[str, str, int], ...]:
        """(mixer name, ffn name, count) of the distinct layers, as in `layer_groups`."""
        counts = Counter(self.layer_sequence)
        return tuple((mixer, ffn, n) for (mixer, ffn), n in counts.items())

    @property
    def n_layers(self) -> int:
        """Number of layers (without multi-token prediction)."""
        return len(self.layer_sequence)
