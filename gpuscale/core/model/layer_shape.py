"""Widths of a model's main layer, for rooflines that take one layer for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.model.flops import ffn_matrix_weights
from gpuscale.core.model.params import mixer_weights

if TYPE_CHECKING:
    from gpuscale.specs.model import AnyMixer, ModelSpec, NoMixer


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Widths of the layer that holds most of the model's weights."""

    hidden_size: int
    ffn_hidden_size: int  # of the MLP, or of one expert
    n_matrices: int  # 2, gated 3
    n_experts: int  # 1: dense
    top_k: int
    shared_width: float  # shared experts, beside the routed ones
    n_route_groups: int
    n_layers: int
    mixer_weights: float  # matrix weights of the mixer
    layer_weights: float  # matrix weights that one token meets
    q_width: float  # width of the attention's products; 0: no softmax attention
    kv_width: float  # half the width of what a ring passes on per token


def layer_shape(model: ModelSpec) -> LayerShape:
    """Shape of the layers that hold most FFN weights, and the average layer's matrix weights.

    Raises
    ------
    ValueError
        If no layer has an FFN.
    """
    h = model.hidden_size
    groups = [g for g in model.layer_groups if g.ffn.kind != "none"]
    if not groups:
        raise ValueError(f"{model.name} has no FFN layer: the MLP's limits do not apply")
    main = max(groups, key=lambda g: g.n * ffn_matrix_weights(g.ffn, h))
    mixers = [g.mixer for g in model.layer_groups]
    weights = sum(
        g.n * (_weights(g.mixer, h) + ffn_matrix_weights(g.ffn, h)) for g in model.layer_groups
    )
    q_width, kv_width = max((_attention_widths(m) for m in mixers), default=(0.0, 0.0))
    if main.ffn.kind == "moe":
        width, experts, k = main.ffn.expert_ffn_hidden_size, main.ffn.n_experts, main.ffn.top_k
        shared = float(main.ffn.shared_ffn_hidden_size + main.ffn.dense_ffn_hidden_size)
        groups_chosen, gated = main.ffn.n_route_groups, main.ffn.gated
    elif main.ffn.kind == "dense":
        width, experts, k, shared = main.ffn.ffn_hidden_size, 1, 1, 0.0
        groups_chosen, gated = 0, main.ffn.gated
    return LayerShape(
        h,
        width,
        3 if gated else 2,
        experts,
        k,
        shared,
        groups_chosen,
        model.n_layers,
        max(_weights(m, h) for m in mixers),
        weights / model.n_layers,
        q_width,
        kv_width,
    )


def _weights(mixer: AnyMixer | NoMixer, hidden_size: int) -> float:
    """Matrix weights of a mixer; 0 where there is none."""
    return 0.0 if mixer.kind == "none" else mixer_weights(mixer, hidden_size)[0]


def _attention_widths(mixer: AnyMixer | NoMixer) -> tuple[float, float]:
    """(width of QK and PV products, half the bytes/2 of K and V per token); 0 if not softmax."""
    if mixer.kind == "attention":
        v = mixer.v_head_dim or mixer.head_dim
        mean = (mixer.head_dim + v) / 2
        return mixer.n_heads * mean, mixer.n_kv_heads * mean
    if mixer.kind == "mla":
        qk = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        passed = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) / 2  # the latent is passed on
        return mixer.n_heads * (qk + mixer.v_head_dim) / 2, passed
    return 0.0, 0.0
