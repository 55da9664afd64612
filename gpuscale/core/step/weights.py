"""Weights of one layer by how they are cut: over tensor parallelism, and over experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.model.flops import flop_per_token
from gpuscale.core.model.params import expert_params, ffn_params, mixer_params

if TYPE_CHECKING:
    from gpuscale.specs.model import AnyFfn, AnyMixer, ModelSpec


class LayerWeights(NamedTuple):
    """Weights of one layer, whole model width."""

    dense: float  # divided by tp
    experts: float  # divided by ep * etp


def layer_weights(mixer: AnyMixer, ffn: AnyFfn, hidden_size: int) -> LayerWeights:
    """Weights of one layer: those of routed experts apart. [1]."""
    experts = 0.0
    if ffn.kind == "moe":
        experts = ffn.n_experts * expert_params(ffn, hidden_size)
    dense = mixer_params(mixer, hidden_size) + ffn_params(ffn, hidden_size) - experts
    return LayerWeights(dense, experts)


def model_flop_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward FLOP of one token, causal, prediction layers included. [FLOP]."""
    flops = flop_per_token(model, seq_len)
    per_layer = (flops.forward_flop - flops.head_flop) / model.n_layers
    mtp = model.n_mtp_layers * (per_layer + flops.head_flop + 4.0 * model.hidden_size**2)
    return flops.training_flop + 3.0 * mtp
