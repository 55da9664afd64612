"""Memory of serving: weights by number format, KV cache, the concurrency that fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

WEIGHT_BITS: dict[str, float] = {
    "fp32": 32,
    "tf32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "fp4": 4,
    "int4": 4,
    "mxfp8": 8,
    "mxfp4": 4,
    "nvfp4": 4,
}
"""Bits of one element of each number format, without scales."""

SCALE_BITS: dict[str, float] = {
    "fp8": 32 / 128**2,  # DeepSeek-V3: one fp32 per 128x128 block
    "mxfp8": 8 / 32,  # OCP Microscaling: one E8M0 per 32
    "mxfp4": 8 / 32,
    "nvfp4": 8 / 16,  # one E4M3 per 16
    "int4": 16 / 128,  # group size 128, fp16 scale (GPTQ, AWQ)
}
"""Bits of scale per element, for the block formats."""


def weight_bytes(n_params: float, dtype: str, *, scales: bool = False) -> float:
    """Bytes of weights in a number format; with `scales`, those of the block formats too. [byte].

    >>> [weight_bytes(671e9, d) / 1e9 for d in ("bf16", "fp8", "int4")]
    [1342.0, 671.0, 335.5]
    >>> round(100 * (weight_bytes(1, "fp8", scales=True) - 1), 3)  # percent
    0.024
    """
    bits = WEIGHT_BITS.get(dtype)
    if bits is None:
        raise ValueError(f"dtype must be one of {', '.join(WEIGHT_BITS)}, got {dtype!r}")
    if scales:
        bits += SCALE_BITS.get(dtype, 0.0)
    return n_params * bits / 8


def block_scales(shape: tuple[int, int], block: tuple[int, int] = (128, 128)) -> tuple[int, int]:
    """Shape of the scale tensor of a block-quantised matrix.

    >>> block_scales((7168, 18432))
    (56, 144)
    """
    return math.ceil(shape[0] / block[0]), math.ceil(shape[1] / block[1])


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
        most = int(min(room / kv_bytes_per_sequence, 1e12))
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
        fits=fixed + kv_cache <= usable_bytes,
    )
