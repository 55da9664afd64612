"""Single kernels: matrix multiplies, grouped multiplies and memory-bound passes."""

from __future__ import annotations

import math

from gpuscale.core.formats import element_bytes, is_narrow
from gpuscale.core.step.records import Hardware


def peak_flop_per_s(hw: Hardware, precision: str) -> float:
    """Peak rate of a number format; bf16 where the format is not offered. [FLOP/s]."""
    if precision == "nvfp4" and hw.fp4_flop_per_s > 0.0:
        return hw.fp4_flop_per_s
    if is_narrow(precision) and hw.fp8_flop_per_s > 0.0:
        return hw.fp8_flop_per_s
    return hw.bf16_flop_per_s


def gemm_rate(hw: Hardware, precision: str) -> float:
    """Attained rate of a large, aligned multiply in training. [FLOP/s]."""
    if precision in ("bf16", "fp16"):
        return hw.bf16_flop_per_s * hw.gemm_bf16_eff
    if precision == "nvfp4" and hw.fp4_flop_per_s > 0.0:
        return hw.fp4_flop_per_s * hw.gemm_fp4_eff
    if hw.fp8_flop_per_s <= 0.0:
        return hw.bf16_flop_per_s * hw.gemm_bf16_eff
    rate = hw.fp8_flop_per_s * hw.gemm_fp8_eff
    return rate / hw.mxfp8_slowdown if precision == "mxfp8" else rate


def wave_fill(m: float, n: float, n_units: int, groups: int = 1) -> float:
    """Fraction of the tile slots that carry work: tile and wave quantisation.

    The better of 128x256 and 128x128 output tiles (the smaller at 93 % of the rate), over whole
    waves of `n_units` tiles ("How to Scale Your Model", GPU chapter; matrix multiplication guide
    of the vendor). `groups` multiplies share the waves.

    Examples
    --------
    >>> wave_fill(128 * 132, 256, 132)
    1.0
    """
    rows = -(-m // 128) * groups
    work = m * n * groups / n_units
    large = work / (128 * 256 * math.ceil(rows * -(-n // 256) / n_units))
    small = 0.93 * work / (128 * 128 * math.ceil(rows * -(-n // 128) / n_units))
    return min(1.0, max(large, small))


def matmul_s(
    hw: Hardware, m: float, n: float, k: float, precision: str = "bf16", groups: int = 1
) -> float:
    """Time of one (m, k) x (k, n) multiply, or of `groups` of them in one grouped kernel.

    ``floor + max(2mnk / (rate fill^w align) (1 + k0/k), (w(mk + nk) + 2mn) / HBM)``

    Parameters
    ----------
    hw : Hardware
        Rates and calibration.
    m, n, k : float
        Shape after all parallel splits.
    precision : str
        Format of the inputs; the output has 2 bytes.
    groups : int
        Multiplies of that shape in one launch.

    Returns
    -------
    float
        Time. [s]
    """
    if m <= 0.0 or n <= 0.0 or k <= 0.0:
        return 0.0
    rate = gemm_rate(hw, precision)
    if hw.wave_exponent:
        rate *= wave_fill(m, n, hw.n_compute_units, groups) ** hw.wave_exponent
    if n % 64 or k % 64:
        rate *= hw.misaligned_eff
    elif hw.fp8_flop_per_s > 0.0 and (n % 128 or k % 128):
        rate *= hw.half_tile_eff
    compute = 2.0 * m * n * k * groups / rate * (1.0 + hw.k_ramp / k)
    width = element_bytes(precision)
    traffic = groups * (width * (m * k + n * k) + 2.0 * m * n)
    return hw.kernel_floor_s + max(compute, traffic / (hw.hbm_bytes_per_s * hw.hbm_eff))


def linear_s(
    hw: Hardware, m: float, n: float, k: float, precision: str = "bf16", groups: int = 1
) -> tuple[float, float]:
    """(forward, backward) time of a linear layer: fprop, dgrad, wgrad and the casts of fp8. [s]."""
    forward = matmul_s(hw, m, n, k, precision, groups)
    backward = matmul_s(hw, m, k, n, precision, groups) + matmul_s(hw, n, k, m, precision, groups)
    if hw.cast_passes and is_narrow(precision) and hw.fp8_flop_per_s > 0.0:
        per_element = 3.0 * hw.cast_passes * groups / (hw.hbm_bytes_per_s * hw.hbm_eff)
        forward += per_element * m * k
        backward += 2.0 * per_element * m * n
    return forward, backward


def stream_s(hw: Hardware, n_bytes: float) -> float:
    """Time to move `n_bytes` through HBM. [s]."""
    return n_bytes / (hw.hbm_bytes_per_s * hw.hbm_eff)
