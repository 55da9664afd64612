"""A language model described by layer patterns: named mixers, named FFNs, and their order."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from gpuscale.core.bounds import Count, NonNegativeInt, PositiveInt
from gpuscale.core.model.mixers import AnyMixer
from gpuscale.specs.fields import Name, Spec, Tokens
from gpuscale.specs.pattern import expand


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

    name: Name
    title: str = ""
    family: str = ""
    hub: Name = ""  # a checkpoint of it, as Hugging Face names it
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
    training_seq_len: PositiveInt | None = None  # of most of its pretraining, where published
    weight_bits: float | None = Field(default=None, gt=0, le=64)  # as published, if quantised
    weight_format: str = ""  # the same by name, where the bits do not tell
    fp8_keeps_attention: bool = False  # its makers' fp8 checkpoint has attention in 16 bits
    fp8_whole_layers: NonNegativeInt = 0  # and so many layers have their MLP in 16 bits too
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

    @property
    def published_format(self) -> str:
        """Number format of the published weights."""
        by_bits = {8.0: "fp8", 4.25: "mxfp4", 4.5: "nvfp4", 4.16: "int4-g128"}
        return self.weight_format or by_bits.get(self.weight_bits or 16.0, "bf16")

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
    def has_experts(self) -> bool:
        """Whether some layer has routed experts."""
        return any(ffn.kind == "moe" for ffn in self.ffns.values())

    @property
    def n_layers(self) -> int:
        """Number of layers (without multi-token prediction)."""
        return len(self.layer_sequence)
