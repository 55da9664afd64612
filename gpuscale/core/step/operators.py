"""Single kernels of a training step: multiplies, grouped multiplies and memory-bound passes.

A multiply is the product model of `core.kernel.expected` that `matmul-time` and serving use; what
a training step adds are the named parameters of `Hardware` that this module reads.
"""

from __future__ import annotations

from functools import lru_cache

from gpuscale.core.formats import element_bytes, is_narrow
from gpuscale.core.kernel.expected import ProductRows, product_time_s
from gpuscale.core.kernel.roofline import matmul_bytes, matmul_flop
from gpuscale.core.step.records import Hardware

ALIGNMENT = 64
"""Elements that dimensions must be a multiple of for full tiles: 128 bytes of 16 bits (NVIDIA's
guide to matrix multiplication)."""

NARROW_TILE = 128
"""The same for 8-bit and grouped products: their tiles are twice as wide."""

WIDE = ("bf16", "fp16")
"""Formats of linear layers of 16 bits."""


def multiplied_in(hw: Hardware, precision: str) -> str:
    """Format in which a linear is multiplied: its own, or the next wider one that is offered.

    >>> a100 = Hardware("a100", "ampere", 312e12, 0, 0, 8e10, 2e12, 108, 8, 8, 3e11, 2.5e10)
    >>> multiplied_in(a100, "fp8"), multiplied_in(a100, "fp16")
    ('bf16', 'fp16')
    """
    return _offered(precision, hw.fp8_flop_per_s > 0.0, hw.fp4_flop_per_s > 0.0)


@lru_cache(maxsize=64)
def _offered(precision: str, has_fp8: bool, has_fp4: bool) -> str:
    if not is_narrow(precision) or (precision == "nvfp4" and has_fp4):
        return precision
    if not has_fp8:
        return "bf16"
    return "fp8" if precision == "nvfp4" else precision


def peak_flop_per_s(hw: Hardware, precision: str) -> float:
    """Peak rate of the format that a precision is multiplied in. [FLOP/s]."""
    used = multiplied_in(hw, precision)
    if used == "nvfp4":
        return hw.fp4_flop_per_s
    return hw.bf16_flop_per_s if used in WIDE else hw.fp8_flop_per_s


def training_frac(hw: Hardware, precision: str) -> float:
    """Speed of a product in a training step over that of the same kernel alone. [1]."""
    used = multiplied_in(hw, precision)
    if used == "nvfp4":
        return hw.product_fp4_frac
    if used not in WIDE:
        return hw.product_fp8_frac / (hw.mxfp8_slowdown if used == "mxfp8" else 1.0)
    return hw.product_bf16_frac


_alone_s = lru_cache(maxsize=65536)(product_time_s)
"""Time of the kernel alone, as `matmul-time` gives it. [s]."""


def matmul_s(
    hw: Hardware, m: float, n: float, k: float, precision: str = "bf16", groups: int = 1
) -> float:
    """Time of one (m, k) x (k, n) multiply in a step, or of `groups` of them in one kernel.

    ``kernel gap + max(roofline, isolated kernel / (training_frac alignment))``

    `hw`: rates and calibration; without an architecture's constants, the roofline. `m, n, k`: shape
    after all parallel splits. `precision`: format of the inputs. `groups`: multiplies of that shape
    in one launch; 2 bytes are moved per element of the result. Returns: time; 0 where a size is 0
    [s].
    """
    if m <= 0.0 or n <= 0.0 or k <= 0.0:
        return 0.0
    peak = peak_flop_per_s(hw, precision)
    used = multiplied_in(hw, precision)
    width = element_bytes(used)
    moved = groups * matmul_bytes(m, k, n, width, width, 2.0)
    ideal_s = max(matmul_flop(m, k, n, groups) / peak, moved / hw.hbm_bytes_per_s)
    if hw.arch is None:
        return ideal_s
    rates = peak, hw.hbm_bytes_per_s, hw.n_compute_units, hw.l2_bytes
    rows = ProductRows(max(1.0, n), max(1.0, k), width, *rates, products=groups)
    time_s = _alone_s(max(1.0, m), rows, used, hw.arch)
    frac = training_frac(hw, precision)
    if n % ALIGNMENT or k % ALIGNMENT:
        frac *= hw.misaligned_eff
    elif (
        (groups > 1 or width < 2.0)
        and hw.fp8_flop_per_s > 0.0
        and (n % NARROW_TILE or k % NARROW_TILE)
    ):
        frac *= hw.half_tile_eff
    return hw.kernel_gap_s + max(ideal_s, time_s / frac)


@lru_cache(maxsize=65536)
def linear_s(
    hw: Hardware, m: float, n: float, k: float, precision: str = "bf16", groups: int = 1
) -> tuple[float, float]:
    """(forward, backward) time of a linear layer: fprop, dgrad, wgrad and the casts of fp8. [s].

    Three multiplies of equal FLOP (Korthikanti et al. 2022, arXiv:2205.05198, appendix A); an
    8- or 4-bit linear also casts its input and its output gradient, the latter twice.
    """
    forward = matmul_s(hw, m, n, k, precision, groups)
    backward = matmul_s(hw, m, k, n, precision, groups) + matmul_s(hw, n, k, m, precision, groups)
    if hw.cast_passes and multiplied_in(hw, precision) not in WIDE:
        forward += stream_s(hw, 3.0 * hw.cast_passes * groups * m * k)
        backward += stream_s(hw, 6.0 * hw.cast_passes * groups * m * n)
    return forward, backward


def stream_s(hw: Hardware, n_bytes: float) -> float:
    """Time to move `n_bytes` through HBM. [s]."""
    return n_bytes / (hw.hbm_bytes_per_s * hw.hbm_eff)
