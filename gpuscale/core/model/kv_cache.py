"""Cache of past tokens: KV of attention layers, latent of MLA, state of linear layers.

Pope et al. 2022 (arXiv:2211.05102), section 2; of latents DeepSeek-V2 (arXiv:2405.04434), section
2.1.2.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.core.model.mixers.kind import CacheShape
    from gpuscale.specs.model import ModelSpec

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
