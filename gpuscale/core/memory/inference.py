"""Memory of serving: weights by number format, KV cache, the concurrency that fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_SEQUENCES = 1e12
"""Where a cache takes nothing, more fit than anyone counts."""


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Memory of one GPU while serving, and the concurrency that fits. [byte]."""

    weights_bytes: float
    kv_cache_bytes: float  # of `concurrency` sequences
    activations_bytes: float
    overhead_bytes: float
    total_bytes: float
    usable_bytes: float
    kv_bytes_per_token_all_gpus: float
    kv_bytes_per_sequence_per_gpu: float
    concurrency: int
    max_concurrency: int
    cache_tokens: float  # that the cache of one rank holds, in sequences of the asked length
    fits: bool


def serving_memory(
    weights_bytes: float,
    kv_bytes_per_sequence: float,
    concurrency: int,
    usable_bytes: float,
    *,
    activations_bytes: float = 0.0,
    overhead_bytes: float = 0.0,
    kv_bytes_per_token_all_gpus: float = 0.0,
    context_tokens: float = 0.0,
) -> ServingMemory:
    """Add up the memory of one serving GPU; the arguments are shares of that GPU.

    Examples
    --------
    >>> m = serving_memory(40e9, 0.5e9, 64, 80e9, overhead_bytes=5e9)
    >>> m.total_bytes / 1e9, m.max_concurrency, m.fits
    (77.0, 70, True)
    """
    if concurrency < 0:
        raise ValueError(f"concurrency must not be negative, got {concurrency}")
    fixed = weights_bytes + activations_bytes + overhead_bytes
    kv_cache = kv_bytes_per_sequence * concurrency
    room = usable_bytes - fixed
    if room < 0:
        most = 0
    elif kv_bytes_per_sequence > 0:
        most = int(min(room / kv_bytes_per_sequence, MOST_SEQUENCES))
    else:
        most = concurrency
    return ServingMemory(
        weights_bytes=weights_bytes,
        kv_cache_bytes=kv_cache,
        activations_bytes=activations_bytes,
        overhead_bytes=overhead_bytes,
        total_bytes=fixed + kv_cache,
        usable_bytes=usable_bytes,
        kv_bytes_per_token_all_gpus=kv_bytes_per_token_all_gpus,
        kv_bytes_per_sequence_per_gpu=kv_bytes_per_sequence,
        concurrency=concurrency,
        max_concurrency=most,
        cache_tokens=context_tokens * max(0.0, room) / (kv_bytes_per_sequence or math.inf),
        fits=fixed + kv_cache <= usable_bytes,
    )
