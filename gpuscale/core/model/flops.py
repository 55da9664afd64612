"""Model FLOPs: what a model computes, whatever the machine, the numerator of MFU; and its cache.

The cache of past tokens: KV of attention layers, latent of MLA, state of linear layers.
One multiply-add is 2 FLOP. Recomputation is not counted: HFU is `(4 or so) / 3` of MFU.

Chowdhery et al. 2022 (PaLM, arXiv:2204.02311), appendix B; Narayanan et al. 2021
(arXiv:2104.04473), appendix. Cache: Pope et al. 2022 (arXiv:2211.05102), section 2; of latents
DeepSeek-V2 (arXiv:2405.04434), section 2.1.2.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.model.params import expert_params

if TYPE_CHECKING:
    from gpuscale.core.model.mixers.kind import CacheShape
    from gpuscale.specs.model import AnyFfn, ModelSpec


STATE_BYTES_PER_ELEMENT = 4.0
"""Recurrent states are kept in fp32 (`mamba_ssm_dtype` of the released configs)."""


def kv_bytes_per_token(model: ModelSpec, bytes_per_element: float = 2.0) -> float:
    """Cache that one more token adds while no window is full.

    `bytes_per_element`: 2 for bf16, 1 for fp8 [byte]. Returns: of all layers, one copy of the model
    [byte per token].
    """
    return bytes_per_element * cached_elements(model)


def cached_elements(model: ModelSpec) -> float:
    """Elements that one more token adds to the caches of all layers. [1]."""
    shapes = _shapes(model)
    return fsum(n * (c.elements_per_token + c.window_elements_per_token) for n, c in shapes)


def kv_cache_bytes(
    model: ModelSpec, context_tokens: float, bytes_per_element: float = 2.0
) -> float:
    """Cache of one sequence of `context_tokens` tokens, windows filled, states included.

    `context_tokens`: tokens in the cache [1]. `bytes_per_element`: 2 for bf16, 1 for fp8; recurrent
    states stay at `STATE_BYTES_PER_ELEMENT` [byte]. Returns: of all layers, one copy of the model,
    one sequence [byte].
    """
    if context_tokens < 0:
        raise ValueError(f"context_tokens must not be negative, got {context_tokens}")
    elements = fsum(
        n
        * (
            c.elements_per_token * context_tokens
            + c.window_elements_per_token * min(context_tokens, c.window_tokens)
        )
        for n, c in _shapes(model)
    )
    return bytes_per_element * elements + state_bytes(model, bytes_per_element)


def state_bytes(model: ModelSpec, bytes_per_element: float = 2.0) -> float:
    """Constant recurrent and convolution state of one sequence, all layers. [byte]."""
    return fsum(
        n * (c.state_elements * STATE_BYTES_PER_ELEMENT + c.conv_elements * bytes_per_element)
        for n, c in _shapes(model)
    )


def _shapes(model: ModelSpec) -> list[tuple[int, CacheShape]]:
    return [(group.n, group.mixer.cache()) for group in model.layer_groups]


BACKWARD_PER_FORWARD = 2.0
"""Gradients with respect to input and weight: two products for each of the forward pass."""


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """Forward FLOP of one token, mean over the positions of a sequence."""

    mixer_linear_flop: float  # projections of all mixers
    attention_flop: float  # scores and values, indexers, recurrences: what grows with the context
    ffn_flop: float  # chosen and shared experts, routers
    head_flop: float
    other_flop: float = 0.0  # hyper-connections, per-layer embeddings

    @property
    def forward_flop(self) -> float:
        """All of the forward pass."""
        return (
            self.mixer_linear_flop
            + self.attention_flop
            + self.ffn_flop
            + self.head_flop
            + self.other_flop
        )

    @property
    def backward_flop(self) -> float:
        """All of the backward pass."""
        return BACKWARD_PER_FORWARD * self.forward_flop

    @property
    def training_flop(self) -> float:
        """Forward and backward."""
        return self.forward_flop + self.backward_flop


def flop_per_token(model: ModelSpec, seq_len: int, causal: bool = True) -> ModelFlops:
    """FLOP per token, operator by operator.

    `seq_len`: tokens of a training sequence, or of a prompt [1]. `causal`: count only the keys that
    the mask leaves, `(s + 1) / 2` on average; False counts all `s`, the convention of PaLM appendix
    B and of Megatron-LM. Returns: of one token, forward [FLOP]. Raises ValueError if `seq_len` < 1.
    """
    if seq_len < 1:
        raise ValueError(f"seq_len must be at least 1, got {seq_len}")
    h = model.hidden_size
    linear = attention = ffn = 0.0
    for group in model.layer_groups:
        linear += group.n * 2 * group.mixer.weights(h)[0]
        attention += group.n * group.mixer.flop(seq_len, causal)
        ffn += group.n * 2 * ffn_matrix_weights(group.ffn, h)
    other = 0.0
    if model.hc_mult:
        mixes = (2 + model.hc_mult) * model.hc_mult
        other += 2 * (2 * mixes * model.n_layers + model.hc_mult) * model.hc_mult * h
    if model.ple_hidden_size:
        other += 2 * 3 * model.ple_hidden_size * h * model.n_layers
    return ModelFlops(linear, attention, ffn, 2.0 * model.vocab_size * h, other)


def six_p_flop_per_token(params: float) -> float:
    """Training FLOP per token by the rule 6P: forward 2P, backward 4P.

    `params` is the active count; Kaplan et al. 2020 leave the embedding out, Hoffmann et al. 2022
    (Chinchilla, appendix F) count it.
    """
    return 6.0 * params


def ffn_matrix_weights(ffn: AnyFfn, hidden_size: int) -> float:
    """Matrix weights of one FFN that one token meets: chosen and shared experts, router."""
    if ffn.kind == "dense":
        return (3 if ffn.gated else 2) * hidden_size * ffn.ffn_hidden_size
    if ffn.kind == "none":
        return 0.0
    matrices = 3 if ffn.gated else 2
    plain = ffn.model_copy(update={"bias": False}) if ffn.bias else ffn
    routed = min(ffn.top_k, ffn.n_experts) * expert_params(plain, hidden_size)
    beside = matrices * hidden_size * (ffn.shared_ffn_hidden_size + ffn.dense_ffn_hidden_size)
    latent = 2 * hidden_size * (ffn.latent_size or 0)
    router = ffn.n_experts * hidden_size + (hidden_size if ffn.shared_gate else 0)
    return routed + beside + latent + router


def model_flop_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward FLOP of one token, causal, prediction layers included. [FLOP]."""
    flops = flop_per_token(model, seq_len)
    per_layer = (flops.forward_flop - flops.head_flop) / model.n_layers
    mtp = model.n_mtp_layers * (per_layer + flops.head_flop + 4.0 * model.hidden_size**2)
    return flops.training_flop + 3.0 * mtp
