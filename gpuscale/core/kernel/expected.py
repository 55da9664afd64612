"""Expected (calibrated) time of one matrix product.

An analytic form with a few physical constants per architecture and number format (kernel floor,
latency of the K loop, wave quantisation over tiles, saturating compute and memory efficiency)
times a smooth table of what remains, derived from published measurements and held at its edges.
The time never falls where the rows m grow. Compute against memory: Williams et al. 2009, Roofline
(doi:10.1145/1498765.1498785); tiles and waves: NVIDIA's guide to matrix multiplication
(https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/).

Use::

    rows = ProductRows(n, k, 2.0, gpu.bf16_flop_per_s, gpu.hbm_bytes_per_s, gpu.n_compute_units)
    time_s = product_time_s(m, rows, "bf16", arch)

`arch` is an `ArchCalibration`, from `gpuscale.io.calibration.load_arch(gpu)`. The functions are
pure and take float m, n, k, so they may be memoised. `matmul-time`, serving and the training step
all call this one; a step adds named parameters of its own (`core.step.operators.matmul_s`).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from math import ceil, exp, floor, log, tanh

from gpuscale.core.kernel.calibration import (
    GENERAL,
    ArchCalibration,
    MatmulCalibration,
    measured_format,
)
from gpuscale.core.records import NamedTuple

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
"""Output tiles of one thread block that libraries choose from."""

NARROW_TILES = ((16, 128), (16, 256), (32, 256))
"""More of them where weights are stored more narrowly than they are multiplied: such kernels are
made for few rows, in tiles of 16 (Marlin, arXiv:2408.11743, section 3)."""

LARGEST_TILE = 128 * 256
SPLIT_K = 512
"""Shortest K loop that a split product leaves to one block."""

SUSTAINED_REF_S = 1e-4
"""Ideal time at which `compute_eff_frac` holds; longer products sag under the power limit."""

SUSTAINED_WIDTH = 3.0
"""Factors e of ideal time over which the sag sets in (form)."""

LATENCY_K = 1024.0
"""Inner dimension at which `latency_s` holds (form)."""

L2_SHARE = 0.6
"""Share of the cache that operands of this size half stay in; the rest is other lines (form)."""

L2_EDGE = 3.0
"""Exponent with which operands beyond that size leave the cache (form)."""


class ProductRows(NamedTuple):
    """Everything of a product (m, k) @ (k, n) and its GPU but the rows m.

    `n, k`: columns and inner dimension, at least 1 [1]. `peak_flop_per_s`: dense data-sheet peak of
    its format [FLOP/s]. `hbm_bytes_per_s`: data-sheet memory bandwidth [byte/s]. `n_units`: SMs or
    compute units, for the waves of tiles; at 1 waves do not count [1]. `l2_bytes`: last-level cache
    [byte]. `include_quant`: add the kernel that quantises bf16 activations of m * k elements.
    `out_bytes`: bytes moved per output element; 8 where an fp32 gradient is read and written
    [byte]. `warm_l2`: operands may still lie in the L2 cache from the call before, as in a
    benchmark's loop; without it the result is never below the roofline. `weight_bytes`: bytes per
    element of the (k, n) operand where it is stored more narrowly than it is multiplied
    (weight-only quantisation) [byte]. `products`: products of this shape in one launch, each with
    its own operands (batched or grouped); the correction, measured on single products, is left out
    for more than one [1].
    """

    n: float
    k: float
    in_bytes: float  # per element of both operands
    peak_flop_per_s: float
    hbm_bytes_per_s: float
    n_units: int = 1
    l2_bytes: float = 0.0
    include_quant: bool = False
    out_bytes: float = 2.0
    warm_l2: bool = False
    weight_bytes: float | None = None
    products: float = 1.0

    def moved_bytes(self, m: float) -> float:
        """Bytes of (m, k), (k, n) and the result of one product, each moved once."""
        w = self.in_bytes if self.weight_bytes is None else self.weight_bytes
        return self.in_bytes * m * self.k + w * self.n * self.k + self.out_bytes * m * self.n

    def ideal_s(self, m: float) -> float:
        """Roofline of all products [1]_ of `product_time_s`. [s]."""
        compute_s = 2.0 * m * self.n * self.k / self.peak_flop_per_s
        return self.products * max(compute_s, self.moved_bytes(m) / self.hbm_bytes_per_s)


class Tiling(NamedTuple):
    """The tile that takes least, and how often the units are filled with it."""

    cost: float  # waves times the output of a tile and what it costs beside
    rows: int
    columns: int
    per_unit: float  # tiles
    waves: float


def most_split(k: float) -> float:
    """Blocks over which the K loop of a product can be split. [1]."""
    return max(1.0, floor(k / SPLIT_K))


def best_tiling(m: float, p: ProductRows, c: MatmulCalibration) -> Tiling:
    """Whole waves of the best tile over the units; fewer tiles than units may split K.

    The tiles of equal products in one launch share the waves. NVIDIA, "Matrix Multiplication
    Background User's Guide": tile and wave quantisation.
    """
    best, split = (float("inf"), 0, 0, 0.0, 0.0), most_split(p.k)
    widened = p.weight_bytes is not None and p.weight_bytes < p.in_bytes
    n, products, area = p.n, p.products, c.tile_area
    for rows, columns in NARROW_TILES + TILES if widened else TILES:
        tiles = products * ceil(m / rows) * ceil(n / columns) / p.n_units
        if tiles <= 1.0:
            waves = 1.0 / min(floor(1.0 / tiles), split)
        else:
            waves = tiles * (ceil(tiles) / tiles) ** c.wave_exponent
        cost = waves * (rows * columns + area)
        if cost < best[0]:
            best = cost, rows, columns, tiles, waves
    return Tiling(*best)


def compute_time_s(m: float, p: ProductRows, c: MatmulCalibration) -> float:
    """Time on the matrix units, in whole waves of the best tile. [s].

    ``waves * tile * 2 (k + ramp_k) / (peak / units * eff)``
    """
    cost = best_tiling(m, p, c).cost * (LARGEST_TILE / (LARGEST_TILE + c.tile_area))
    peak = p.peak_flop_per_s * c.clock_frac
    time_s = cost * p.n_units * 2.0 * (p.k + c.ramp_k) / (peak * c.compute_eff_frac)
    ideal_s = 2.0 * m * p.n * p.k * p.products / peak
    return time_s * (
        1.0 + c.sustained_slope * tanh(log(ideal_s / SUSTAINED_REF_S) / SUSTAINED_WIDTH)
    )


def memory_time_s(m: float, p: ProductRows, c: MatmulCalibration) -> float:
    """Time on the memory; operands that fit the L2 cache run at `l2_gain` times the speed. [s]."""
    moved = p.products * p.moved_bytes(m)
    rate = p.hbm_bytes_per_s * c.memory_eff_frac
    if p.l2_bytes > 0.0 and (p.warm_l2 or c.l2_gain < 1.0):
        resident = 1.0 / (1.0 + (moved / (L2_SHARE * p.l2_bytes)) ** L2_EDGE)
        rate *= 1.0 + (c.l2_gain - 1.0) * resident
    return moved / rate


def quantise_time_s(m: float, p: ProductRows, c: MatmulCalibration) -> float:
    """Time to quantise bf16 activations: read 2 bytes, write the narrow format. [s]."""
    n_elements = p.products * m * p.k
    rate = p.hbm_bytes_per_s * c.quant_eff_frac
    return c.quant_floor_s + n_elements * (2.0 + p.in_bytes) / rate


def analytic_time_s(m: float, p: ProductRows, c: MatmulCalibration) -> float:
    """Time without the table: ``floor + (compute^b + memory^b + latency^b)^(1/b)``. [s].

    It never falls with m: each part is a growing function of it.
    """
    b = c.blend
    compute_s, memory_s = compute_time_s(m, p, c), memory_time_s(m, p, c)
    latency_s = c.latency_s * (p.k / LATENCY_K) ** c.latency_exponent
    top = max(compute_s, memory_s, latency_s)
    sum_b = (compute_s / top) ** b + (memory_s / top) ** b + (latency_s / top) ** b
    time_s = float(c.floor_s + top * sum_b ** (1.0 / b))
    return time_s + quantise_time_s(m, p, c) if p.include_quant else time_s


ROWS = tuple(float(m) for i in range(17) for m in (2**i, 3 * 2 ** (i - 1)) if m >= 1 and m != 1.5)
"""Rows m at which a corrected time is computed; between them it is interpolated."""


@lru_cache(maxsize=16384)
def _ladder(p: ProductRows, c: MatmulCalibration) -> tuple[dict[int, tuple[float, float]], float]:
    """Keep times at `ROWS`, analytic and corrected; the factor of the largest correction."""
    assert c.table is not None
    return {}, exp(max(c.table.values))


def _rung_s(i: int, p: ProductRows, c: MatmulCalibration) -> float:
    """Corrected time at one of `ROWS`, where it would fall the largest of fewer rows. [s].

    Analytic times never fall with the rows: it looks back while a correction could make up for it.
    """
    assert c.table is not None
    known, largest = _ladder(p, c)
    most = 0.0
    for j in range(i, -1, -1):
        if j not in known:
            time_s = analytic_time_s(ROWS[j], p, c)
            known[j] = time_s, time_s * exp(c.table.at(ROWS[j], p.n, p.k))
        time_s, corrected_s = known[j]
        most = max(most, corrected_s)
        if time_s * largest <= most:
            break
    return most


def corrected_time_s(m: float, p: ProductRows, c: MatmulCalibration) -> float:
    """Analytic time and the table's correction; never falls with m, nor with slower hardware. [s].

    The largest time of any fewer rows, on a grid of two rows per doubling.
    """
    if c.table is None:
        return analytic_time_s(m, p, c)
    i = bisect_right(ROWS, m) - 1
    low_s = _rung_s(i, p, c)
    if m >= ROWS[-1]:
        return max(low_s, analytic_time_s(m, p, c) * exp(c.table.at(m, p.n, p.k)))
    share = (m - ROWS[i]) / (ROWS[i + 1] - ROWS[i])
    return low_s + share * (_rung_s(i + 1, p, c) - low_s) if share else low_s


def product_time_s(
    m: float, p: ProductRows, dtype: str, arch: ArchCalibration, kernels: str = ""
) -> float:
    """Time expected of a product of m rows: the analytic form times the measured correction. [s].

    `m`: rows, at least 1 (fractions are allowed) [1]. `dtype`: format of both inputs: bf16, fp16,
    fp8, fp8-block, mxfp8, nvfp4 ... `arch`: constants of the GPU's architecture. `kernels`: kernel
    library with constants of its own, such as "te"; "" is the usual one. Raises ValueError if a
    dimension is below 1 or a rate is not positive.

    .. [1] S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
    .. [2] NVIDIA, "Matrix Multiplication Background User's Guide": tile and wave quantisation.
    """
    if not (m >= 1.0 and p.n >= 1.0 and p.k >= 1.0):
        raise ValueError(f"m, n and k must be at least 1, got {m}, {p.n}, {p.k}")
    if not p.products >= 1.0:
        raise ValueError(f"products must be at least 1, got {p.products}")
    if not (p.peak_flop_per_s > 0.0 and p.hbm_bytes_per_s > 0.0):
        raise ValueError("peak rate and memory bandwidth must be positive")
    used = arch.format_used(dtype, kernels)
    c = arch.matmul.get(used, GENERAL)
    measured = p.products == 1.0 and measured_format(used, dtype, kernels)
    time_s = corrected_time_s(m, p, c) if measured else analytic_time_s(m, p, c)
    return time_s if p.warm_l2 else max(time_s, p.ideal_s(m))


def expected_elementwise_time_s(
    moved: float, compute_s: float, arch: ArchCalibration, hbm_bytes_per_s: float
) -> float:
    """Time expected of an elementwise kernel: the kernel floor, then memory or vector units. [s].

    ``floor + max(compute, bytes / (memory_eff * bandwidth))``, with the floor and the memory
    efficiency that bf16 products have on the architecture; operands come from memory.

    `moved`: bytes read and written [byte]. `compute_s`: time on the vector units at their peak [s].
    `arch`: constants of the GPU's architecture. `hbm_bytes_per_s`: data-sheet memory bandwidth
    [byte/s].
    """
    if not (hbm_bytes_per_s > 0.0 and moved >= 0.0 and compute_s >= 0.0):
        raise ValueError("bytes and times must not be negative, the bandwidth must be positive")
    c = arch.for_dtype("bf16")
    return c.floor_s + max(compute_s, moved / (c.memory_eff_frac * hbm_bytes_per_s))
