"""Widths of a model's main layer, for rooflines that take one layer for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.model.flops import ffn_matrix_weights

if TYPE_CHECKING:
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.specs.model import ModelSpec


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

    Raises ValueError if no layer has an FFN.
    """
    h = model.hidden_size
    groups = [g for g in model.layer_groups if g.ffn.kind != "none"]
    if not groups:
        raise ValueError(f"{model.name} has no FFN layer: the MLP's limits do not apply")
    main = max(groups, key=lambda g: g.n * ffn_matrix_weights(g.ffn, h))
    mixers = [g.mixer for g in model.layer_groups]
    weights = sum(
        g.n * (g.mixer.weights(h)[0] + ffn_matrix_weights(g.ffn, h)) for g in model.layer_groups
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
        hidden_size=h,
        ffn_hidden_size=width,
        n_matrices=3 if gated else 2,
        n_experts=experts,
        top_k=k,
        shared_width=shared,
        n_route_groups=groups_chosen,
        n_layers=model.n_layers,
        mixer_weights=max(float(m.weights(h)[0]) for m in mixers),
        layer_weights=weights / model.n_layers,
        q_width=q_width,
        kv_width=kv_width,
    )


def _attention_widths(mixer: AnyMixer) -> tuple[float, float]:
    """(width of QK and PV products, half the elements cached per token); 0 if not softmax."""
    q_width, cache = mixer.flop_per_key(False) / 4.0, mixer.cache()
    kept = (cache.elements_per_token + cache.window_elements_per_token) / 2.0
    return (q_width, kept) if q_width else (0.0, 0.0)
