"""Cache of past tokens: KV of attention layers, latent of MLA, state of linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.specs.model import AnyMixer, ModelSpec

STATE_BYTES_PER_ELEMENT = 4.0
"""Recurrent states are kept in fp32 (`mamba_ssm_dtype` of the released configs)."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Elements that one layer keeps of one sequence."""

    elements_per_token: float = 0.0  # grows with the context
    window_elements_per_token: float = 0.0  # grows until the window is full
    window_tokens: float = 0.0
    state_elements: float = 0.0  # constant, kept at `STATE_BYTES_PER_ELEMENT`
    conv_elements: float = 0.0  # constant, kept at the element size of the cache


def mixer_cache(mixer: AnyMixer) -> CacheShape:
    """Say what one layer keeps of a sequence.

    Notes
    -----
    Attention keeps K and V of each KV head; MLA the latent and the rotary key (DeepSeek-V2,
    section 2.1.2); sparse attention with an indexer also the indexer's key; a sliding window no
    more than its tokens; linear attention and state-space layers a state and the last inputs of
    the convolution, whatever the context is.
    """
    if mixer.kind == "attention":
        if mixer.reuses_kv:
            return CacheShape()
        kv = mixer.n_kv_heads * (mixer.head_dim + (mixer.v_head_dim or mixer.head_dim))
        kv += mixer.index_head_dim
        if mixer.window_tokens:
            return CacheShape(window_elements_per_token=kv, window_tokens=mixer.window_tokens)
        return CacheShape(elements_per_token=kv)
    if mixer.kind == "mla":
        latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
        return CacheShape(elements_per_token=latent + mixer.index_head_dim)
    if mixer.kind == "compressed":
        rate = mixer.compress_rate
        far = (mixer.head_dim + mixer.index_head_dim) / rate if rate else 0.0
        return CacheShape(far, mixer.head_dim, mixer.window_tokens)
    if mixer.kind == "lightning":
        return CacheShape(state_elements=mixer.n_heads * mixer.head_dim**2)
    if mixer.kind == "gated-delta":
        width = 2 * mixer.n_k_heads * mixer.k_head_dim + mixer.n_v_heads * mixer.v_head_dim
        return CacheShape(
            state_elements=mixer.n_v_heads * mixer.k_head_dim * mixer.v_head_dim,
            conv_elements=(mixer.conv_kernel - 1) * width,
        )
    if mixer.kind == "mamba2":
        inner = mixer.n_heads * mixer.head_dim
        width = inner + 2 * mixer.n_groups * mixer.state_size
        return CacheShape(
            state_elements=inner * mixer.state_size, conv_elements=(mixer.conv_kernel - 1) * width
        )
    return CacheShape()


def kv_bytes_per_token(model: ModelSpec, bytes_per_element: float = 2.0) -> float:
    """Cache that one more token adds while no window is full.

    Parameters
    ----------
    model : ModelSpec
        The model.
    bytes_per_element : float
        2 for bf16, 1 for fp8. [byte]

    Returns
    -------
    float
        Of all layers, one copy of the model. [byte per token]
    """
    return bytes_per_element * sum(
        n * (c.elements_per_token + c.window_elements_per_token) for n, c in _shapes(model)
    )


def kv_cache_bytes(
    model: ModelSpec, context_tokens: float, bytes_per_element: float = 2.0
) -> float:
    """Cache of one sequence of `context_tokens` tokens, windows filled, states included.

    Parameters
    ----------
    model : ModelSpec
        The model.
    context_tokens : float
        Tokens in the cache. [1]
    bytes_per_element : float
        2 for bf16, 1 for fp8; recurrent states stay at `STATE_BYTES_PER_ELEMENT`. [byte]

    Returns
    -------
    float
        Of all layers, one copy of the model, one sequence. [byte]
    """
    if context_tokens < 0:
        raise ValueError(f"context_tokens must not be negative, got {context_tokens}")
    elements = sum(
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
    return sum(
        n * (c.state_elements * STATE_BYTES_PER_ELEMENT + c.conv_elements * bytes_per_element)
        for n, c in _shapes(model)
    )


def _shapes(model: ModelSpec) -> list[tuple[int, CacheShape]]:
    return [(group.n, mixer_cache(group.mixer)) for group in model.layer_groups]
