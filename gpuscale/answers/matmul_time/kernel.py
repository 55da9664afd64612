"""A matrix product or an elementwise operation: its roofline and the terms of it."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING

from gpuscale.answers.matmul_time.document import kernel_document
from gpuscale.answers.rates import check_dtype, formats_of, matrix_rate
from gpuscale.core.formats import compute_dtype, element_bytes
from gpuscale.core.kernel.ideal import SOURCE, KernelTime, elementwise_time
from gpuscale.core.kernel.ideal import matmul_time as compute
from gpuscale.core.kernel.mixed import MixedProduct
from gpuscale.core.kernel.roofline import ELEMENTWISE
from gpuscale.core.records import Term, term_of
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.answers.matmul_time import MatmulTime
    from gpuscale.io.inputs import Loaded
    from gpuscale.render.document import Document


def matmul_document(asked: MatmulTime, loaded: Loaded, sizes: list[int]) -> Document:
    """Time a matrix product."""
    spec = loaded.gpu
    m, k, n = sizes
    x, w, out = formats_of(spec, asked.dtype, asked.dtypes)
    batch, groups = asked.batch, asked.groups
    if groups > m:
        raise GpuscaleError(f"--groups {groups} is more than the {m} rows to divide")
    rate_dtype = compute_dtype(x, w)
    rate = matrix_rate(spec, rate_dtype)
    found = compute(
        m,
        k,
        n=n,
        x_dtype=x,
        w_dtype=w,
        out_dtype=out,
        flop_per_s=rate,
        bytes_per_s=spec.hbm_bytes_per_s,
        batch=batch,
        groups=groups,
    )
    made = MixedProduct(
        m=m, k=k, n=n, x_dtype=x, w_dtype=w, out_dtype=out, batch=batch, groups=groups
    )
    shown = x if x == w == out else f"{x} x {w} -> {out}"
    product = f"[{m:,}, {k:,}] x [{k:,}, {n:,}]"
    more = (f", {batch:,} products" if batch > 1 else "") + (
        f", rows over {groups:,} weights" if groups > 1 else ""
    )
    return kernel_document(
        asked,
        loaded,
        found=found,
        inputs={"gpu": spec.name, "catalogue": asked.catalogue, **asdict(made)},
        title=f"{spec.name}  {product}  {shown}{more}",
        terms=_terms(found, made, rate, spec.hbm_bytes_per_s),
        product=made,
    )


def _terms(
    found: KernelTime, p: MixedProduct, flop_per_s: float, bytes_per_s: float
) -> tuple[Term, ...]:
    """Time and intensity as arithmetic over the sizes."""
    return (
        term_of(
            "time_s",
            "s",
            "max(2 * m * k * n * batch / flop_per_s, batch * (x_bytes * m * k + groups * w_bytes"
            " * k * n + out_bytes * m * n) / bytes_per_s)",
            SOURCE,
            p,
            time_s=found.time_s,
            x_bytes=element_bytes(p.x_dtype),
            w_bytes=element_bytes(p.w_dtype),
            out_bytes=element_bytes(p.out_dtype),
            flop_per_s=flop_per_s,
            bytes_per_s=bytes_per_s,
        ),
        term_of("intensity_flop_per_byte", "", "flop / bytes", SOURCE, found),
    )


def elementwise_document(asked: MatmulTime, loaded: Loaded, op: str, sizes: list[int]) -> Document:
    """Time an elementwise operation."""
    spec = loaded.gpu
    op, dtype = op.strip().lower(), (asked.dtype or "fp32").strip().lower()
    if op not in ELEMENTWISE:
        raise unknown_name("operation", op, ELEMENTWISE, f"known: {', '.join(ELEMENTWISE)}")
    check_dtype(dtype)
    n = prod(sizes)
    if n > 1e15:
        raise GpuscaleError(f"{n:.3g} elements are more than any memory holds", "at most 1e15")
    found = elementwise_time(op, n, dtype, spec.fp32_flop_per_s, spec.hbm_bytes_per_s)
    arrays = ELEMENTWISE[op]
    moved, compute = "arrays * element_bytes * elements / bytes_per_s", ""
    work: dict[str, float] = {}
    if found.flop_per_s and arrays.flop:
        compute = "flop_per_element * elements / flop_per_s"
        work = {"flop_per_element": float(arrays.flop), "flop_per_s": found.flop_per_s}
    term = Term(
        "time_s",
        found.time_s,
        "s",
        f"max({compute}, {moved})" if work else moved,
        work
        | {
            "elements": float(n),
            "arrays": float(arrays.reads + arrays.writes),
            "element_bytes": element_bytes(dtype),
            "bytes_per_s": spec.hbm_bytes_per_s,
        },
        SOURCE,
    )
    inputs = {
        "gpu": spec.name,
        "catalogue": asked.catalogue,
        "op": op,
        "elements": n,
        "dtype": dtype,
    }
    title = f"{spec.name}  {op} ({arrays.meaning})  {n:,} elements  {dtype}"
    return kernel_document(asked, loaded, found, inputs, title, (term,))
