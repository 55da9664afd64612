"""What the memory of a model depends on: weights, and elements of its kinds of layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscale.core.stages import ModelWeights, model_weights

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class MixerElements:
    """Elements per token that the backward pass of a mixer needs."""

    latent: float = 0.0  # not split by TP (MLA latents before and after their norms)
    split: float = 0.0  # split by TP: q, k, v, output
    up_projected: float = 0.0  # those of `split` that come from the latents
    score_heads: float = 0.0  # heads with a score matrix, if attention is not fused
    window_tokens: float = 0.0  # 0: the whole sequence


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One kind of layer: elements per token that the backward pass needs."""

    n_sublayers: int  # mixer and FFN, those present
    mixer: MixerElements
    ffn: float  # elements of dense and shared FFN, split by TP
    n_experts: int
    top_k: float  # routed copies of a token
    expert_width: float  # hidden elements of one routed copy
    expert_ffn: float  # FFN elements of one routed copy


@dataclass(frozen=True, slots=True, eq=False)
class ModelFacts:
    """A model, as far as memory is concerned; compared by identity, so that caches are cheap."""

    hidden_size: int
    vocab_size: int
    weights: ModelWeights
    kinds: tuple[LayerFacts, ...]  # as numbered by `weights.sequence`
    n_mtp_layers: int


def _attention(m: Any) -> MixerElements:
    value = m.v_head_dim or m.head_dim
    q, out = m.n_heads * m.head_dim, m.n_heads * value
    kv = 0 if m.reuses_kv else m.n_kv_heads * (m.head_dim + (0 if m.shared_kv else value))
    gate = q if m.output_gate else 0
    return MixerElements(
        split=float(q + gate + kv + out),
        score_heads=float(m.n_heads),
        window_tokens=float(m.window_tokens or 0),
    )


def _mla(m: Any) -> MixerElements:
    qk = m.qk_nope_head_dim + m.qk_rope_head_dim
    up = float(m.n_heads * (2 * qk + m.v_head_dim))  # q, k, v
    latent = 2.0 * ((m.q_lora_rank or 0) + m.kv_lora_rank) + m.qk_rope_head_dim
    return MixerElements(
        latent=latent,
        split=up + m.n_heads * m.v_head_dim,
        up_projected=up,
        score_heads=float(m.n_heads),
    )


def _compressed(m: Any) -> MixerElements:
    q = m.n_heads * m.head_dim
    latent = 2.0 * m.q_lora_rank + 3.0 * m.head_dim
    return MixerElements(latent=latent, split=2.0 * q + m.o_groups * m.o_lora_rank)


def _lightning(m: Any) -> MixerElements:
    return MixerElements(split=6.0 * m.n_heads * m.head_dim)  # q, k, v, gate, output, its norm


def _gated_delta(m: Any) -> MixerElements:
    k, v = m.n_k_heads * m.k_head_dim, m.n_v_heads * m.v_head_dim
    chunk = 64 * m.n_v_heads  # one row of the chunk matrices
    return MixerElements(split=2.0 * (2 * k + v) + 3.0 * v + chunk)


def _mamba2(m: Any) -> MixerElements:
    inner = m.n_heads * m.head_dim
    projected = 2 * inner + 2 * m.n_groups * m.state_size + m.n_heads
    return MixerElements(split=projected + 2.0 * inner)


_MIXERS = {
    "attention": _attention,
    "mla": _mla,
    "compressed": _compressed,
    "lightning": _lightning,
    "gated-delta": _gated_delta,
    "mamba2": _mamba2,
}


def mixer_elements(mixer: Any) -> MixerElements:
    """Elements per token kept by one mixer, beside the norm before it.

    Attention: q, k, v and output (flash attention keeps nothing else of size). MLA: the latents
    before and after their norms, q, k and v of each head, the output. Gated delta: projections
    before and after the convolution, gate, output and its norm, chunk matrices. Mamba-2: the
    input projection, the output and its norm (the scan is recomputed by its kernel).
    """
    count = _MIXERS.get(mixer.kind)
    return count(mixer) if count else MixerElements()


def layer_facts(mixer: Any, ffn: Any, hidden_size: int) -> LayerFacts:
    """Count one kind of layer from its specs."""
    ffn_elements = top_k = expert_width = expert_ffn = 0.0
    n_experts = 1
    if ffn.kind == "dense":
        ffn_elements = (3.0 if ffn.gated else 2.0) * ffn.ffn_hidden_size
    elif ffn.kind == "moe":
        matrices = 3.0 if ffn.gated else 2.0
        ffn_elements = matrices * (ffn.shared_ffn_hidden_size + ffn.dense_ffn_hidden_size)
        n_experts, top_k = ffn.n_experts, float(min(ffn.top_k, ffn.n_experts))
        expert_width = float(ffn.latent_size or hidden_size)
        expert_ffn = matrices * ffn.expert_ffn_hidden_size
    return LayerFacts(
        n_sublayers=(mixer.kind != "none") + (ffn.kind != "none"),
        mixer=mixer_elements(mixer),
        ffn=ffn_elements,
        n_experts=n_experts,
        top_k=top_k,
        expert_width=expert_width,
        expert_ffn=expert_ffn,
    )


def model_facts(model: ModelSpec) -> ModelFacts:
    """Count a model once; everything else in this package works on the result."""
    weights = model_weights(model)
    kinds = tuple(
        layer_facts(model.mixers[mixer], model.ffns[ffn], model.hidden_size)
        for mixer, ffn in weights.names
    )
    return ModelFacts(model.hidden_size, model.vocab_size, weights, kinds, model.n_mtp_layers)
