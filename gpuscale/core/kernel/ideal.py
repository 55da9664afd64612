"""One matrix product or elementwise operation on one GPU, with all that explains its time."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from gpuscale.core.formats import compute_dtype, element_bytes
from gpuscale.core.kernel import roofline as rl

SOURCE = "How to Scale Your Model, rooflines and GPU chapter, quiz 1"


@dataclass(frozen=True, slots=True)
class KernelTime(rl.RooflineTime):
    """Roofline of a kernel, and the rates that it was computed with."""

    kind: str  # "matmul" or the name of an elementwise operation
    flop_per_s: float | None  # None: not known, memory alone counts
    bytes_per_s: float
    compute_dtype: str
    critical_m: float | None = None  # rows from which it is compute-bound; None: never
    critical_m_rule: float | None = None  # the same by the weights alone
    smallest_compute_bound_m: int | None = None


def matmul_time(
    m: int,
    k: int,
    n: int,
    x_dtype: str,
    w_dtype: str,
    out_dtype: str,
    flop_per_s: float,
    bytes_per_s: float,
    batch: int = 1,
    groups: int = 1,
) -> KernelTime:
    """Roofline of (m, k) @ (k, n).

    `m, k, n`: shape; with `groups`, m is the rows of all groups together [1]. `x_dtype, w_dtype,
    out_dtype`: number formats of the operands and the result. `flop_per_s`: dense peak in the
    format that the product runs in [FLOP/s]. `bytes_per_s`: memory bandwidth [byte/s]. `batch,
    groups`: independent products; weights among which the rows are divided [1].

    >>> t = matmul_time(512, 4096, 8192, "bf16", "bf16", "bf16", 2250e12, 8e12)
    >>> round(t.time_s * 1e6, 3), t.bound, t.smallest_compute_bound_m
    (15.271, 'compute', 314)
    """
    x, w, out = element_bytes(x_dtype), element_bytes(w_dtype), element_bytes(out_dtype)
    found = rl.roofline(
        rl.matmul_flop(m, k, n, batch),
        rl.matmul_bytes(m, k, n=n, x_bytes=x, w_bytes=w, out_bytes=out, batch=batch, groups=groups),
        flop_per_s,
        bytes_per_s,
    )
    critical = rl.critical_batch(
        k,
        n,
        ridge_flop_per_byte=found.ridge_flop_per_byte,
        x_bytes=x,
        w_bytes=w,
        out_bytes=out,
        groups=groups,
    )
    return KernelTime(
        **asdict(found),
        kind="matmul",
        flop_per_s=flop_per_s,
        bytes_per_s=bytes_per_s,
        compute_dtype=compute_dtype(x_dtype, w_dtype),
        critical_m=critical,
        critical_m_rule=rl.critical_batch_rule(found.ridge_flop_per_byte, w) * groups,
        smallest_compute_bound_m=None if critical is None else math.ceil(critical),
    )


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
    spec = rl.ELEMENTWISE[op]
    rate = None if fma_flop_per_s is None else fma_flop_per_s * (1.0 if spec.fused else 0.5)
    found = rl.roofline(
        rl.elementwise_flop(op, n_elements),
        rl.elementwise_bytes(op, n_elements, element_bytes(dtype)),
        rate or math.inf,
        bytes_per_s,
    )
    ridge = {"ridge_flop_per_byte": found.ridge_flop_per_byte if rate else 0.0}
    own = {"kind": op, "flop_per_s": rate, "bytes_per_s": bytes_per_s, "compute_dtype": dtype}
    return KernelTime(**asdict(found) | ridge | own)
