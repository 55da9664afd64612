"""Roofline of one kernel: matrix products and elementwise operations.

"How to Scale Your Model", roofline chapter and GPU chapter quiz 1. One read or write per operand,
perfect overlap of compute and memory, no tile quantisation, no launch time: a lower bound.
"""

from __future__ import annotations

from gpuscale.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RooflineTime:
    """Time of a kernel that reaches both peaks."""

    time_s: float
    compute_s: float
    memory_s: float
    bound: str  # "compute" | "memory"
    flop: float
    bytes: float
    intensity_flop_per_byte: float
    ridge_flop_per_byte: float


def roofline(
    flop: float, moved_bytes: float, flop_per_s: float, bytes_per_s: float
) -> RooflineTime:
    """Time of a kernel: the slower of its arithmetic and its memory traffic.

    ``max(flop / flop_per_s, bytes / bytes_per_s)``

    `flop`: operations, a multiply-add counted as 2 [FLOP]. `moved_bytes`: bytes read and written
    [byte]. `flop_per_s, bytes_per_s`: peaks of the unit that computes and of the memory [FLOP/s],
    [byte/s]. Raises ValueError if a peak is not positive or a count is negative.

    >>> t = roofline(matmul_flop(64, 4096, 8192), matmul_bytes(64, 4096, 8192), 2250e12, 8e12)
    >>> round(t.time_s * 1e6, 3), t.bound
    (8.585, 'memory')
    """
    if flop_per_s <= 0 or bytes_per_s <= 0:
        raise ValueError("peak rates must be positive")
    if flop < 0 or moved_bytes < 0:
        raise ValueError("FLOP and bytes must not be negative")
    compute_s, memory_s = flop / flop_per_s, moved_bytes / bytes_per_s
    return RooflineTime(
        time_s=max(compute_s, memory_s),
        compute_s=compute_s,
        memory_s=memory_s,
        bound="compute" if compute_s >= memory_s else "memory",
        flop=flop,
        bytes=moved_bytes,
        intensity_flop_per_byte=flop / moved_bytes if moved_bytes else 0.0,
        ridge_flop_per_byte=flop_per_s / bytes_per_s,
    )


def matmul_flop(m: float, k: float, n: float, batch: float = 1) -> float:
    """FLOP of `batch` products (m, k) @ (k, n): 2 m k n each.

    A grouped product (rows split over groups with a weight each) has the FLOP of the whole m.
    """
    return 2 * m * k * n * batch


def matmul_bytes(
    m: float,
    k: float,
    n: float,
    x_bytes: float = 2.0,
    w_bytes: float = 2.0,
    out_bytes: float = 2.0,
    batch: float = 1,
    groups: float = 1,
) -> float:
    """Bytes of x (m, k), w (k, n) and the result (m, n), each moved once. [byte].

    `m, k, n`: shape; with groups, m is the rows of all groups together [1]. `x_bytes, w_bytes,
    out_bytes`: bytes per element of each operand [byte]. `batch`: independent products, each with
    its own three operands [1]. `groups`: weights that the rows of x are divided among (a mixture of
    experts) [1].
    """
    return batch * (x_bytes * m * k + groups * w_bytes * k * n + out_bytes * m * n)


def critical_batch(
    k: float,
    n: float,
    ridge_flop_per_byte: float,
    x_bytes: float = 2.0,
    w_bytes: float = 2.0,
    out_bytes: float = 2.0,
    groups: float = 1,
) -> float | None:
    """Rows m from which (m, k) @ (k, n) is compute-bound; None if it never is.

    Solves ``2 m k n = ridge * bytes``. With 2-byte operands: ``1/m = 1/ridge - 1/k - 1/n``.

    >>> round(critical_batch(4096, 8192, 281.25), 4)
    313.544
    >>> critical_batch(128, 128, 281.25) is None
    True
    """
    room = 2 * k * n - ridge_flop_per_byte * (x_bytes * k + out_bytes * n)
    if room <= 0:
        return None
    return ridge_flop_per_byte * w_bytes * groups * k * n / room


def critical_batch_rule(ridge_flop_per_byte: float, w_bytes: float = 2.0) -> float:
    """Rule of thumb for `critical_batch` that counts the weights alone: ``ridge * w_bytes / 2``."""
    return ridge_flop_per_byte * w_bytes / 2


@dataclass(frozen=True, slots=True)
class ElementwiseOp:
    """Arrays read, arrays written and FLOP per element; `fused`: the FLOP pair up as FMA."""

    reads: int
    writes: int
    flop: int
    fused: bool
    meaning: str


ELEMENTWISE: dict[str, ElementwiseOp] = {
    "add": ElementwiseOp(2, 1, 1, False, "z = x + y"),
    "mul": ElementwiseOp(2, 1, 1, False, "z = x * y"),
    "scale": ElementwiseOp(1, 1, 1, False, "z = a * x"),
    "relu": ElementwiseOp(1, 1, 1, False, "z = max(x, 0)"),
    "axpy": ElementwiseOp(2, 1, 2, True, "z = a * x + y"),
    "fma": ElementwiseOp(3, 1, 2, True, "z = x * y + w"),
    "copy": ElementwiseOp(1, 1, 0, False, "z = x"),
    "sum": ElementwiseOp(1, 0, 1, False, "s = sum of x"),
    "dot": ElementwiseOp(2, 0, 2, True, "s = sum of x * y"),
}
"""Operations on vectors."""


def elementwise_flop(op: str, n_elements: float) -> float:
    """FLOP of an elementwise operation over `n_elements`."""
    return ELEMENTWISE[op].flop * n_elements


def elementwise_bytes(op: str, n_elements: float, element_size_bytes: float = 4.0) -> float:
    """Bytes that an elementwise operation moves. [byte]."""
    spec = ELEMENTWISE[op]
    return (spec.reads + spec.writes) * element_size_bytes * n_elements
