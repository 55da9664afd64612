"""How tensors are cut: widths, shapes, block scales, the bytes that tensor parallelism moves."""

from __future__ import annotations

import math
from collections.abc import Sequence


def shard_width(width: int, degree: int) -> int:
    """Columns or rows of one rank; the width must divide. [1].

    Examples
    --------
    >>> shard_width(4096, 2)
    2048
    """
    if degree < 1 or width % degree:
        raise ValueError(f"a width of {width} does not divide by {degree}")
    return width // degree


def tensor_bytes(shape: Sequence[float], element_bytes: float = 2.0) -> float:
    """Bytes of a tensor. [byte].

    Examples
    --------
    >>> tensor_bytes((129280, 7168))
    1853358080.0
    """
    return math.prod(shape) * element_bytes


def product_shape(left: Sequence[str], right: Sequence[str]) -> str:
    """Shape of a matrix product, in names: rows of the left by columns of the right.

    Raises ValueError if the inner dimensions differ.

    Examples
    --------
    >>> product_shape(("N", "D"), ("D", "D"))
    '[N x D]'
    """
    if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
        raise ValueError(f"inner dimensions of {tuple(left)} and {tuple(right)} differ")
    return f"[{left[0]} x {right[1]}]"


def block_of_scales(shape: Sequence[int], scales: Sequence[int]) -> tuple[int, ...]:
    """Block that one scale covers, from the shapes of a weight and of its scales.

    Examples
    --------
    >>> block_of_scales((7168, 18432), (56, 144))
    (128, 128)
    """
    if len(shape) != len(scales) or min(scales) < 1:
        raise ValueError("weight and scales must have the same number of dimensions")
    return tuple(-(-n // s) for n, s in zip(shape, scales, strict=True))


def tp_all_reduce_bytes(
    n_tokens: float, hidden_size: float, element_bytes: float = 2.0, n_all_reduces: int = 2
) -> float:
    """Bytes all-reduced per transformer layer by tensor parallelism, one pass.

    Two all-reduces of ``b s h`` forward (attention, MLP) and two backward [1]_; with sequence
    parallelism each becomes an all-gather and a reduce-scatter of the same bytes.

    Parameters
    ----------
    n_tokens : float
        Tokens of a micro-batch, b s. [1]
    hidden_size : float
        h. [1]
    element_bytes : float
        Bytes of one activation. [byte]
    n_all_reduces : int
        2 for one pass, 4 for forward and backward. [1]

    Returns
    -------
    float
        Sum of the buffers. [byte]

    Examples
    --------
    >>> tp_all_reduce_bytes(4096, 8192)
    134217728.0

    References
    ----------
    .. [1] M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
    """
    return n_all_reduces * n_tokens * hidden_size * element_bytes
