"""The global batch as a number of sequences."""

from __future__ import annotations

TOLERANCE = 0.05
"""How far a batch that is given in tokens may be rounded, so that many layouts divide it."""


def sequences_for(
    batch_tokens: float,
    seq_len: int,
    tolerance: float = TOLERANCE,
    n_gpus: int = 1,
    micro_batch: int = 1,
) -> int:
    """Sequences of a batch given in tokens, rounded so that many layouts divide it.

    An exact multiple is kept where the GPUs' powers of two divide it. Otherwise the nearest
    multiple of the largest power of two that changes the batch by at most `tolerance`: batches of
    real runs are highly divisible, and half a million tokens are 256 sequences of 2,048.

    `batch_tokens`: tokens of one step [1]. `seq_len`: tokens of a sequence [1]. `tolerance`:
    largest relative change [1]. `n_gpus`: GPUs that share the batch: where an odd number of ranks
    is in them, a batch that it divides too, if one is within the tolerance [1]. `micro_batch`:
    sequences of a micro-batch that the batch must be a multiple of [1]. Returns: at least 1.

    >>> sequences_for(4e6, 8192), sequences_for(16e6, 8192), sequences_for(62914560, 4096)
    (512, 2048, 15360)
    >>> sequences_for(1e3, 8192), sequences_for(4e6, 8192, n_gpus=1000)
    (1, 500)
    >>> sequences_for(4e6, 1024, n_gpus=8, micro_batch=44), sequences_for(512e3, 2048, n_gpus=8)
    (3872, 256)
    """
    exact = batch_tokens / seq_len
    if exact <= micro_batch:
        return micro_batch
    even = n_gpus & -n_gpus
    for unit in (n_gpus // even * micro_batch, micro_batch):
        shared = unit * _divisible(exact / unit, tolerance, even)
        if abs(shared / exact - 1.0) <= tolerance:
            return shared
    return micro_batch * max(1, round(exact / micro_batch))


def _divisible(exact: float, tolerance: float, even: int) -> int:
    """Nearest multiple of the largest power of two that is within the tolerance."""
    if exact % even == 0:
        return int(exact)
    step = 1 << int(exact).bit_length()
    while step > 1:
        nearest = max(1, round(exact / step)) * step
        if abs(nearest / exact - 1.0) <= tolerance:
            return nearest
        step //= 2
    return max(1, round(exact))
