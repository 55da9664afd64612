"""A language model described by layer patterns: named mixers, named FFNs, and their order.

The language of patterns: `3 x mla+dense, 10 x (5 x sliding+moe, full+moe)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from gpuscale.core.bounds import Count, NonNegativeInt, PositiveInt, Within
from gpuscale.core.model.mixers import AnyMixer
from gpuscale.core.records import NamedTuple, field
from gpuscale.specs.fields import Name, Spec, Tokens

MAX_LAYERS = 10_000
MAX_PERIOD = 64

_TOKEN = re.compile(r"\s*(?:(\d+)\s*x\s*|([A-Za-z0-9_.-]+\+[A-Za-z0-9_.-]+)|([(),]))")


def expand(pattern: str) -> tuple[tuple[str, str], ...]:
    """List the (mixer, ffn) names of every layer, in order.

    Raises ValueError if the pattern does not parse or has more than `MAX_LAYERS` layers.

    >>> expand("2 x (2 x local+dense, global+dense)")[2:4]
    (('global', 'dense'), ('local', 'dense'))
    """
    outer: list[tuple[list[tuple[str, str]], int]] = []  # layers before each open `(`, its repeat
    layers, repeat, wanted = list[tuple[str, str]](), 1, True
    for token in _tokens(pattern):
        if wanted and isinstance(token, int) and token:
            repeat = min(repeat * token, MAX_LAYERS + 1)
        elif wanted and token == "(":
            outer.append((layers, repeat))
            layers, repeat = [], 1
        elif token == "," and not wanted:
            wanted = True
        elif isinstance(token, tuple) and wanted:
            layers, repeat, wanted = _repeated(layers, [token], repeat), 1, False
        elif token == ")" and outer and not wanted:
            before, times = outer.pop()
            layers = _repeated(before, layers, times)
        else:
            raise ValueError(f"layer pattern {pattern[:60]!r}: unexpected {token!r}")
    if wanted or outer:
        end = "a layer `mixer+ffn`" if wanted else "a `)`"
        raise ValueError(f"layer pattern ends where {end} is expected")
    return tuple(layers)


def _repeated(
    before: list[tuple[str, str]], layers: list[tuple[str, str]], times: int
) -> list[tuple[str, str]]:
    if len(before) + times * len(layers) > MAX_LAYERS:
        raise ValueError(f"layer pattern has more than {MAX_LAYERS} layers")
    before += layers * times
    return before


def compress(layers: Sequence[tuple[str, str]]) -> str:
    """Shortest-looking pattern of a list of layers; `expand` gives the list back.

    >>> compress([("a", "m"), ("a", "d"), ("b", "d"), ("a", "d"), ("b", "d"), ("b", "d")])
    'a+m, 2 x (a+d, b+d), b+d'
    """
    parts: list[str] = []
    at = 0
    while at < len(layers):
        period, repeats = _best_period(layers, at)
        block = layers[at : at + period]
        text = ", ".join(f"{mixer}+{ffn}" for mixer, ffn in block)
        if repeats > 1 and period > 1:
            text = compress(block)
            text = f"({text})"
        parts.append(f"{repeats} x {text}" if repeats > 1 else text)
        at += period * repeats
    return ", ".join(parts)


def _best_period(layers: Sequence[tuple[str, str]], at: int) -> tuple[int, int]:
    """Period and repeats, from `at`, that cover most layers; the shorter period on a tie."""
    best, best_cover = (1, 1), 1
    for period in range(1, min(MAX_PERIOD, (len(layers) - at) // 2) + 1):
        end = at + period
        while end < len(layers) and layers[end] == layers[end - period]:
            end += 1
        repeats = (end - at) // period
        if repeats > 1 and repeats * period > best_cover:
            best, best_cover = (period, repeats), repeats * period
    return best


def _tokens(pattern: str) -> list[str | int | tuple[str, str]]:
    tokens: list[str | int | tuple[str, str]] = []
    at = 0
    pattern = pattern.strip()
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None or match.end() == at:
            raise ValueError(
                f"layer pattern: cannot read {pattern[at : at + 30]!r}; write for example "
                "`3 x full+dense, 10 x (5 x local+moe, full+moe)`"
            )
        if match[1]:
            tokens.append(int(match[1][:9]))
        elif match[2]:
            mixer, ffn = match[2].split("+", 1)
            tokens.append((mixer, ffn))
        else:
            tokens.append(match[3])
        at = match.end()
    return tokens


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

    def __post_init__(self) -> None:
        """Refuse to choose more experts than there are."""
        if self.top_k > self.n_experts:
            raise ValueError(f"top_k {self.top_k} is more than the {self.n_experts} experts")


class NoFfn(Spec):
    """A layer without FFN (the mixer-only layers of Nemotron-H)."""

    kind: Literal["none"] = "none"


AnyFfn = DenseFfn | MoeFfn | NoFfn


class ByKind(NamedTuple):
    """One of several records, told apart by their `kind`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Give pydantic its schema."""
        from pydantic import Field

        return handler.generate_schema(Annotated[source, Field(discriminator="kind")])


Bits = Annotated[float, Within(0, 64, above=True)]
Mixer = Annotated[AnyMixer, ByKind()]
Ffn = Annotated[AnyFfn, ByKind()]


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
    weight_bits: Bits | None = None  # as published, if quantised
    weight_format: str = ""  # the same by name, where the bits do not tell
    fp8_keeps_attention: bool = False  # its makers' fp8 checkpoint has attention in 16 bits
    fp8_whole_layers: NonNegativeInt = 0  # and so many layers have their MLP in 16 bits too
    notes: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse layers of names that are not there."""
        for mixer, ffn in set(self.layer_sequence):
            if mixer not in self.mixers:
                raise ValueError(f"layers: mixer {mixer!r} is not in [mixers]")
            if ffn not in self.ffns:
                raise ValueError(f"layers: ffn {ffn!r} is not in [ffns]")

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
    def fuses_attention(self) -> bool:
        """Whether fused kernels of attention have all of it: neither ALiBi nor sinks."""
        sinks = any(getattr(m, "sinks", False) for m in self.mixers.values())
        return not sinks and self.position != "alibi"

    @property
    def expert_ffns(self) -> tuple[MoeFfn, ...]:
        """Kinds of feed-forward parts with routed experts."""
        return tuple(ffn for ffn in self.ffns.values() if ffn.kind == "moe")

    @property
    def has_experts(self) -> bool:
        """Whether some layer has routed experts."""
        return bool(self.expert_ffns)

    @property
    def n_expert_layers(self) -> int:
        """Layers with routed experts. [1]."""
        return sum(group.n for group in self.layer_groups if group.ffn.kind == "moe")

    @property
    def n_layers(self) -> int:
        """Number of layers (without multi-token prediction)."""
        return len(self.layer_sequence)
