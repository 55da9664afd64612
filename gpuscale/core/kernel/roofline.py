"""Roofline of one kernel: matrix products and elementwise operations.

"How to Scale Your Model", roofline chapter and GPU chapter quiz 1. One read or write per operand,
perfect overlap of compute and memory, no tile quantisation, no launch time: a lower bound.
"""

from __future__ import annotations

import math

from gpuscale.core.formats import compute_dtype, element_bytes
from gpuscale.core.kernel.expected import ProductRows
from gpuscale.core.records import asdict, dataclass


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


SOURCE = "How to Scale Your Model, rooflines and GPU chapter, quiz 1"


@dataclass(frozen=True, slots=True)
class KernelTime(RooflineTime):
    """Roofline of a kernel, and the rates that it was computed with."""

    kind: str  # "matmul" or the name of an elementwise operation
    flop_per_s: float | None  # None: not known, memory alone counts
    bytes_per_s: float
    compute_dtype: str
    critical_m: float | None = None  # rows from which it is compute-bound; None: never
    critical_m_rule: float | None = None  # the same by the weights alone
    smallest_compute_bound_m: int | None = None


def elementwise_time(
    op: str, n_elements: int, dtype: str, fma_flop_per_s: float | None, bytes_per_s: float
) -> KernelTime:
    """Roofline of an elementwise operation on the vector units.

    `op`: a key of `core.roofline.ELEMENTWISE`. `n_elements`: elements of each array [1]. `dtype`:
    their number format. `fma_flop_per_s`: vector rate with a multiply-add counted as 2, as data
    sheets print it; operations that are not multiply-adds reach half. None: only memory counts
    [FLOP/s]. `bytes_per_s`: memory bandwidth [byte/s].

    >>> t = elementwise_time("add", 65536, "fp32", 66.9e12, 3.35e12)
    >>> round(t.time_s * 1e6, 4), t.bound, round(t.intensity_flop_per_byte, 4)
    (0.2348, 'memory', 0.0833)
    """
    spec = ELEMENTWISE[op]
    rate = None if fma_flop_per_s is None else fma_flop_per_s * (1.0 if spec.fused else 0.5)
    found = roofline(
        elementwise_flop(op, n_elements),
        elementwise_bytes(op, n_elements, element_bytes(dtype)),
        rate or math.inf,
        bytes_per_s,
    )
    ridge = {"ridge_flop_per_byte": found.ridge_flop_per_byte if rate else 0.0}
    own = {"kind": op, "flop_per_s": rate, "bytes_per_s": bytes_per_s, "compute_dtype": dtype}
    return KernelTime(**asdict(found) | ridge | own)


@dataclass(frozen=True, slots=True)
class MixedProduct:
    """(m, k) @ (k, n), `batch` times, the rows shared out over `groups` weights."""

    m: int  # with groups, the rows of all of them together
    k: int
    n: int
    x_dtype: str
    w_dtype: str
    out_dtype: str
    batch: int = 1  # independent products
    groups: int = 1  # weights among which the rows are divided

    def roofline(self, flop_per_s: float, bytes_per_s: float) -> KernelTime:
        """Roofline of the product.

        `flop_per_s`: dense peak in the format that it runs in [FLOP/s]. `bytes_per_s`: memory
        bandwidth [byte/s].

        >>> t = MixedProduct(512, 4096, 8192, "bf16", "bf16", "bf16").roofline(2250e12, 8e12)
        >>> round(t.time_s * 1e6, 3), t.bound, t.smallest_compute_bound_m
        (15.271, 'compute', 314)
        """
        x, w, out = map(element_bytes, (self.x_dtype, self.w_dtype, self.out_dtype))
        work = matmul_flop(self.m, self.k, self.n, self.batch)
        sizes, many = (self.m, self.k, self.n), {"batch": self.batch, "groups": self.groups}
        moved = matmul_bytes(*sizes, x, w, out, **many)
        found = roofline(work, moved, flop_per_s, bytes_per_s)
        ridge = found.ridge_flop_per_byte
        critical = critical_batch(self.k, self.n, ridge, x, w, out, groups=self.groups)
        return KernelTime(
            **asdict(found),
            kind="matmul",
            flop_per_s=flop_per_s,
            bytes_per_s=bytes_per_s,
            compute_dtype=compute_dtype(self.x_dtype, self.w_dtype),
            critical_m=critical,
            critical_m_rule=critical_batch_rule(ridge, w) * self.groups,
            smallest_compute_bound_m=None if critical is None else math.ceil(critical),
        )

    @property
    def unseen(self) -> str:
        """Form of product that the measurements do not hold; empty where they do."""
        forms = {
            "a batched product": self.batch > 1,
            "a grouped product": self.groups > 1,
            "a product of mixed formats": self.x_dtype != self.w_dtype,
        }
        return next((form for form, given in forms.items() if given), "")

    def single(
        self,
        compute_dtype: str,
        flop_per_s: float,
        hbm_bytes_per_s: float,
        n_units: int | None,
        l2_bytes: float | None,
    ) -> tuple[float, ProductRows]:
        """Rows, and launch of equal products of one format, the narrower operand second.

        That is widened on the way; where it is the first, the product is the transposed one: the
        same work with the operands swapped. A grouped product is one launch of equal products, the
        rows shared out evenly.

        `compute_dtype`: format in which it is multiplied. `flop_per_s, hbm_bytes_per_s`: peaks of
        the GPU [FLOP/s, byte/s]. `n_units`: compute units [1]. `l2_bytes`: L2 cache [byte].
        """
        rows, columns, narrow = self.m / self.groups, float(self.n), self.w_dtype
        if self.x_dtype != compute_dtype:
            rows, columns, narrow = columns, rows, self.x_dtype
        return rows, ProductRows(
            n=columns,
            k=self.k,
            in_bytes=element_bytes(compute_dtype),
            peak_flop_per_s=flop_per_s,
            hbm_bytes_per_s=hbm_bytes_per_s,
            n_units=n_units or 1,
            l2_bytes=l2_bytes or 0.0,
            out_bytes=element_bytes(self.out_dtype),
            weight_bytes=None if self.x_dtype == self.w_dtype else element_bytes(narrow),
            products=float(self.groups * self.batch),
        )
