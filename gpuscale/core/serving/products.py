"""Matrix products of serving: formats, missing hardware support, memo.

Weights narrower than the products: Frantar et al. 2024 (Marlin, arXiv:2408.11743), section 3.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.expected import expected_elementwise_time_s, expected_matmul_time_s

if TYPE_CHECKING:
    from gpuscale.core.serving.records import ServingSite

GRID = 32
"""Steps per doubling to which token counts and sizes are rounded, so that products repeat."""

WIDENED = ("mxfp4", "int4")
"""Formats with a rate whose weights serving frameworks still widen to bf16."""


def rounded(tokens: float) -> float:
    """Token count to 1 %: whole up to 32, above on a grid of `GRID` steps per doubling.

    >>> rounded(0.2), rounded(3.14), rounded(8191.0), round(rounded(1000.0))
    (1.0, 3.0, 8192.0, 1002)
    """
    if tokens <= GRID:
        return max(1.0, float(round(tokens)))
    return float(2.0 ** (round(GRID * log2(tokens)) / GRID))


def multiplied_in(site: ServingSite, fmt: str) -> str:
    """Format in which weights of `fmt` are multiplied: itself, or what the GPU offers.

    Blackwell multiplies mxfp4 weights by mxfp8 activations (gpt-oss); other narrow weights, and
    formats that a GPU lacks, are widened to bf16.
    """
    if fmt == "fp4" and "nvfp4" in site.peaks:
        return "nvfp4"
    if fmt == "mxfp4" and "nvfp4" in site.peaks and "mxfp8" in site.peaks:
        return "mxfp8"
    return "bf16" if fmt in WIDENED or fmt not in site.peaks else fmt


def widened_peak(site: ServingSite, peak: float) -> float:
    """Rate of products whose weights are unpacked on the way, of a 16-bit one of `peak`. [FLOP/s].

    In 16 bits, or in 8-bit integers with activations rounded to blocks of them, the faster.
    """
    integer = site.software.integer_rate * site.vector_flop_per_s
    return max(peak * site.kernels.widened_compute_eff, integer)


def product_s(
    site: ServingSite, m: float, n: float, k: float, fmt: str, *, quantised: bool = True
) -> float:
    """Time of (m, k) @ (k, n) with weights in `fmt`; 0 for no output.

    A format that the GPU does not multiply is multiplied in bf16, its weights read as stored.
    Activations in fp8 blocks are quantised by a kernel of their own; other formats within another.
    Widening weights on the way costs part of the 16-bit product's rate and bandwidth; on the vector
    units few rows are multiplied as stored, after a small kernel that quantises them.
    """
    if n <= 0.0 or k <= 0.0:
        return 0.0
    m, n, k = rounded(m), max(1.0, n), max(1.0, k)
    dtype = multiplied_in(site, fmt)
    peak, hbm, soft = site.peaks[dtype], site.hbm_bytes_per_s, site.software
    widened = dtype != fmt and dtype in ("bf16", "fp16")
    few, extra = m <= soft.vector_rows, 0.0
    if widened and few:
        extra = site.kernels.small_kernel_s * soft.small_factor
    elif widened:
        peak = widened_peak(site, peak)
        hbm *= site.kernels.widened_memory_eff
    if soft.vector_rate > 0.0:
        peak = min(peak, soft.vector_rate * site.vector_flop_per_s)
    key = (m, n, k, fmt, quantised, peak, hbm, soft.vector_rows, extra)
    found = site.memo.get(key)
    if found is not None:
        return found
    time_s = expected_matmul_time_s(
        m,
        n,
        k=k,
        dtype=dtype,
        arch=site.arch,
        peak_flop_per_s=peak,
        hbm_bytes_per_s=hbm,
        n_units=site.n_units,
        l2_bytes=site.l2_bytes,
        include_quant=quantised and dtype == "fp8-block",
        weight_bytes=None if dtype == fmt else element_bytes(fmt),
    )
    if few:
        moved = element_bytes(fmt) * n * k + 2.0 * m * (n + k)
        time_s = min(time_s, expected_elementwise_time_s(moved, 0.0, site.arch, hbm)) + extra
    site.memo[key] = time_s
    return time_s
