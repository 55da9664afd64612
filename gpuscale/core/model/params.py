"""Parameter counts of a model, exact, from its layer patterns.

Every count is the number of trained scalars: weights, biases, norm weights, sinks. A tied output
head is counted once. Buffers that are not trained (rotary tables) are not counted.

Layers of Vaswani et al. 2017 (arXiv:1706.03762); gated MLPs Shazeer 2020 (arXiv:2002.05202);
experts Fedus et al. 2021 (arXiv:2101.03961), section 2. Held against transformers 5.23 by tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.records import dataclass

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.specs.model import AnyFfn, ModelSpec, MoeFfn

NORM_WEIGHTS = {"rmsnorm": 1, "layernorm": 2, "layernorm-nobias": 1, "none": 0}
"""Learned vectors of one norm layer; each has the width of its input."""


EXPERT_BALANCE = 2.0
"""Time of a routed expert's weight over that of a dense one, for balance: with it the head of
DeepSeek-V3 counts as one layer, as in the layouts of Megatron-Bridge's recipes (8 x 7, 5 layers,
prediction layer and loss on 8 stages; 16 x 3, 13 on 4)."""


@dataclass(frozen=True, slots=True)
class GroupParams:
    """Parameters of `n_layers` equal layers."""

    mixer_name: str
    ffn_name: str
    n_layers: int
    mixer_params: float  # of one layer
    ffn_params: float  # of one layer, all experts
    ffn_active_params: float  # of one layer, experts that one token meets
    norm_params: float  # of one layer; with hyper-connections and per-layer embeddings

    @property
    def layer_params(self) -> float:
        """Parameters of one layer."""
        return self.mixer_params + self.ffn_params + self.norm_params

    @property
    def active_layer_params(self) -> float:
        """Parameters of one layer that one token meets."""
        return self.mixer_params + self.ffn_active_params + self.norm_params

    @property
    def params(self) -> float:
        """Parameters of all layers of the group."""
        return self.n_layers * self.layer_params


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Where the parameters of a model are. All counts are for one copy of the model."""

    total_params: float  # with vision, without multi-token prediction
    active_params: float  # met by one token, input embedding included
    active_params_excl_embedding: float  # the same without the input embedding lookup
    embedding_params: float  # input embedding, learned positions, per-layer embeddings
    head_params: float  # output head; 0 when tied
    mixer_params: float
    ffn_params: float
    norm_params: float  # all norms, hyper-connections
    vision_params: float
    extra_params: float
    mtp_params: float  # multi-token prediction, not in `total_params`
    groups: tuple[GroupParams, ...]


def count_params(model: ModelSpec) -> ModelParams:
    """Count the parameters of a model by part.

    Returns: totals and the groups of equal layers [1].

    Conventions: `total_params` counts a tied head once, the vision tower, and no multi-token
    prediction layers. `active_params` counts of each MoE layer the router, the chosen and the
    shared experts; `active_params_excl_embedding` leaves out the input embedding, which is a
    lookup and costs no FLOP, but keeps the head: a tied embedding is kept too, since it works as
    the head. The vision tower is in no active count: a text token does not meet it.
    """
    groups = tuple(
        _group(model, mixer_name, ffn_name, n) for mixer_name, ffn_name, n in model.named_groups
    )
    embedding = embedding_params(model)
    head = head_params(model)
    top_norms = top_norm_params(model)
    mixers = sum(g.n_layers * g.mixer_params for g in groups)
    ffns = sum(g.n_layers * g.ffn_params for g in groups)
    norms = sum(g.n_layers * g.norm_params for g in groups) + top_norms
    text = embedding + head + mixers + ffns + norms + model.extra_params
    idle = sum(g.n_layers * (g.ffn_params - g.ffn_active_params) for g in groups)
    active = text - idle
    lookup = embedding - (model.vocab_size * model.hidden_size if model.tie_embeddings else 0)
    return ModelParams(
        total_params=text + model.vision_params,
        active_params=active,
        active_params_excl_embedding=active - lookup,
        embedding_params=embedding,
        head_params=head,
        mixer_params=mixers,
        ffn_params=ffns,
        norm_params=norms,
        vision_params=model.vision_params,
        extra_params=model.extra_params,
        mtp_params=mtp_params(model),
        groups=groups,
    )


def _group(model: ModelSpec, mixer_name: str, ffn_name: str, n: int) -> GroupParams:
    ffn = model.ffns[ffn_name]
    return GroupParams(
        mixer_name=mixer_name,
        ffn_name=ffn_name,
        n_layers=n,
        mixer_params=mixer_params(model.mixers[mixer_name], model.hidden_size),
        ffn_params=ffn_params(ffn, model.hidden_size),
        ffn_active_params=ffn_active_params(ffn, model.hidden_size),
        norm_params=layer_norm_params(model),
    )


def embedding_params(model: ModelSpec) -> float:
    """Token embedding, its norm, learned positions and per-layer embedding tables."""
    h = model.hidden_size
    positions = (model.max_position or 0) * h if model.position == "learned" else 0
    per_layer = model.ple_vocab_size * model.ple_hidden_size * model.n_layers
    return model.vocab_size * h + positions + per_layer


def head_params(model: ModelSpec) -> float:
    """Output head; a tied one has only its bias, if any."""
    bias = model.vocab_size if model.lm_head_bias else 0
    return bias + (0 if model.tie_embeddings else model.vocab_size * model.hidden_size)


def top_norm_params(model: ModelSpec) -> float:
    """Weights outside the layers: final and embedding norm, PLE projection, hyper-head."""
    h = model.hidden_size
    norm = NORM_WEIGHTS[model.norm] * h
    count = norm * (int(model.final_norm) + int(model.embedding_norm))
    if model.ple_hidden_size:
        count += model.ple_hidden_size * (h * model.n_layers + 1)
    if model.hc_mult:
        count += model.hc_mult * model.hc_mult * h + model.hc_mult + 1
    return count


def layer_norm_params(model: ModelSpec) -> float:
    """Norms of one layer, with its hyper-connections and per-layer embedding weights."""
    h = model.hidden_size
    count = NORM_WEIGHTS[model.norm] * h * model.norms_per_layer
    if model.hc_mult:  # one connection before the mixer, one before the FFN
        mixes = (2 + model.hc_mult) * model.hc_mult
        count += 2 * (mixes * model.hc_mult * h + mixes + 3)
    if model.ple_hidden_size:  # gate, projection back, norm
        count += 2 * model.ple_hidden_size * h + h
    return count


def mixer_params(mixer: AnyMixer, hidden_size: int) -> float:
    """Parameters of one mixer, without the norm before it."""
    return sum(mixer.weights(hidden_size))


def ffn_params(ffn: AnyFfn, hidden_size: int) -> float:
    """Parameters of one FFN, all experts, router included."""
    if ffn.kind == "dense":
        return _mlp(hidden_size, ffn.ffn_hidden_size, ffn.gated, ffn.bias) + ffn.extra_params
    if ffn.kind == "moe":
        return _moe(ffn, hidden_size, ffn.n_experts)
    return 0


def ffn_active_params(ffn: AnyFfn, hidden_size: int) -> float:
    """Parameters of one FFN that one token meets: router, chosen and shared experts."""
    if ffn.kind == "moe":
        return _moe(ffn, hidden_size, min(ffn.top_k, ffn.n_experts))
    return ffn_params(ffn, hidden_size)


def experts_met_frac(n_experts: float, top_k: float, n_tokens: float) -> float:
    """Compute the expected share of the experts that any of `n_tokens` tokens chooses. [1].

    ``1 - (1 - k/E)^n``, evenly routed.

    >>> experts_met_frac(256, 8, 1), round(experts_met_frac(256, 8, 32), 3)
    (0.03125, 0.638)
    """
    return 1.0 - float((1.0 - min(1.0, top_k / n_experts)) ** n_tokens)


def expert_params(ffn: MoeFfn, hidden_size: int) -> float:
    """Parameters of one routed expert."""
    width = ffn.latent_size or hidden_size
    return _mlp(width, ffn.expert_ffn_hidden_size, ffn.gated, ffn.bias)


def _mlp(h: int, width: int, gated: bool, bias: bool) -> float:
    return (3 if gated else 2) * h * width + (((2 if gated else 1) * width + h) if bias else 0)


def _moe(ffn: MoeFfn, h: int, n_experts: int) -> float:
    count = n_experts * expert_params(ffn, h)
    count += ffn.n_experts * (h + int(ffn.router_bias)) + ffn.extra_params
    if ffn.latent_size:
        count += 2 * h * ffn.latent_size
    for width in (ffn.shared_ffn_hidden_size, ffn.dense_ffn_hidden_size):
        count += _mlp(h, width, ffn.gated, False) if width else 0
    return count + (h if ffn.shared_gate else 0)


def mtp_params(model: ModelSpec) -> float:
    """Parameters of the multi-token prediction layers, which share embedding and head.

    Each is a layer like the last one, three norms and a projection from 2h to h
    (DeepSeek-V3 technical report, section 2.2).
    """
    if not model.n_mtp_layers:
        return 0
    h = model.hidden_size
    mixer_name, ffn_name = model.layer_sequence[-1]
    layer = _group(model, mixer_name, ffn_name, 1).layer_params
    return model.n_mtp_layers * (layer + 2 * h * h + 3 * NORM_WEIGHTS[model.norm] * h)


@dataclass(frozen=True, slots=True)
class KindWeights:
    """Parameters of one kind of layer. [1]."""

    dense_params: float  # everything outside the routed experts, divided by tp
    expert_params: float  # all routed experts, divided by ep * etp
    balance_params: float  # weights that a token meets, those of experts `EXPERT_BALANCE` times


@dataclass(frozen=True, slots=True, eq=False)
class ModelWeights:
    """Weights of a model by layer; compared by identity, so that caches are cheap."""

    kinds: tuple[KindWeights, ...]
    names: tuple[tuple[str, str], ...]  # (mixer, ffn) of each kind
    sequence: tuple[int, ...]  # kind of each layer
    embedding_params: float  # input side: tokens, learned positions, vision, extras
    head_params: float  # output side, also when tied
    tied: bool
    mtp_dense_params: float
    mtp_expert_params: float
    head_layers: float  # head and prediction layers of the last stage, in layers

    @property
    def n_layers(self) -> int:
        """Layers, those of multi-token prediction apart. [1]."""
        return len(self.sequence)


def kind_weights(mixer: Any, ffn: Any, hidden_size: int, norm_params: float = 0.0) -> KindWeights:
    """Count one kind of layer from its specs. [1]."""
    dense = mixer_params(mixer, hidden_size) + norm_params
    dense += ffn_params(ffn, hidden_size)
    if ffn.kind != "moe":
        return KindWeights(dense, 0.0, dense)
    experts = ffn.n_experts * expert_params(ffn, hidden_size)
    met = experts * min(ffn.top_k, ffn.n_experts) / ffn.n_experts
    return KindWeights(dense - experts, experts, dense - experts + EXPERT_BALANCE * met)


def model_weights(model: ModelSpec) -> ModelWeights:
    """Count the weights of a model once."""
    norm = layer_norm_params(model)
    names = tuple(dict.fromkeys(model.layer_sequence))
    number = {name: i for i, name in enumerate(names)}
    kinds = tuple(
        kind_weights(model.mixers[m], model.ffns[f], model.hidden_size, norm) for m, f in names
    )
    sequence = tuple(number[name] for name in model.layer_sequence)
    last = kinds[sequence[-1]]
    head = float(model.vocab_size * model.hidden_size)
    mtp = model.n_mtp_layers
    return ModelWeights(
        kinds=kinds,
        names=names,
        sequence=sequence,
        embedding_params=embedding_params(model) + model.vision_params + model.extra_params,
        head_params=head + top_norm_params(model),
        tied=model.tie_embeddings,
        mtp_dense_params=mtp_params(model) - mtp * last.expert_params,
        mtp_expert_params=mtp * last.expert_params,
        head_layers=mtp + (1 + mtp) * head / max(1.0, last.balance_params),
    )
