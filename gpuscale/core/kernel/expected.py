"""Expected (calibrated) time of one matrix product.

An analytic form with a few physical constants per architecture and number format (kernel floor,
latency of the K loop, wave quantisation over tiles, saturating compute and memory efficiency)
times a smooth table of what remains, derived from published measurements and held at its edges.

Use::

    time_s = expected_matmul_time_s(m, n, k, "bf16", arch, gpu.bf16_flop_per_s,
                                    gpu.hbm_bytes_per_s, n_units=gpu.n_compute_units,
                                    l2_bytes=gpu.l2_bytes)
    util = expected_matmul_utilisation(...)   # same arguments: 2mnk / (peak * time)

`arch` is an `ArchCalibration`, from `gpuscale.io.calibration.load_arch(gpu)`. The functions are
pure and take float m, n, k, so they may be memoised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, exp, floor, log, tanh

from gpuscale.core.formats import element_bytes, number_format
from gpuscale.core.residual_table import ResidualTable

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
"""Output tiles of one thread block that libraries choose from."""

LARGEST_TILE = 128 * 256
SPLIT_K = 512
"""Shortest K loop that a split product leaves to one block."""

SUSTAINED_REF_S = 1e-4
"""Ideal time at which `compute_eff_frac` holds; longer products sag under the power limit."""


@dataclass(frozen=True, slots=True)
class MatmulCalibration:
    """Constants of matrix products in one number format on one architecture.

    The defaults are the medians over the measured architectures.
    """

    floor_s: float = 2.3e-6  # launch, prologue and epilogue of one kernel
    latency_s: float = 1.5e-6  # the K loop of one block at k = 1024
    latency_exponent: float = 0.55  # 1: no split-K; the loop's time grows as k**exponent
    compute_eff_frac: float = 0.74  # of the data-sheet peak, at an ideal time of 0.1 ms
    ramp_k: float = 100.0  # filling the pipeline costs as much as this many more k
    memory_eff_frac: float = 0.86  # of the data-sheet memory bandwidth
    blend: float = 2.0  # exponent with which compute, memory and latency add up
    wave_exponent: float = 0.35  # 1: a partial last wave costs a whole one; 0: nothing
    tile_area: float = 1200.0  # output elements at which a tile reaches half efficiency
    l2_gain: float = 0.85  # memory speed of operands that stay in the L2 cache, over HBM
    sustained_slope: float = 0.13  # slowing per factor e**3 of ideal time (clocks under load)
    quant_floor_s: float = 1.5e-6  # the kernel that quantises the activations
    quant_eff_frac: float = 0.6  # of memory bandwidth, in that kernel
    table: ResidualTable | None = None  # log corrections
    low_frac: float = 0.7  # 80 % interval: measured / expected
    high_frac: float = 1.4
    borrowed: bool = False  # measured on another architecture
    source: str = ""


@dataclass(frozen=True, slots=True)
class ArchCalibration:
    """What is calibrated for one GPU architecture."""

    name: str
    matmul: Mapping[str, MatmulCalibration] = field(default_factory=dict)
    source: str = ""

    def format_used(self, dtype: str, kernels: str = "") -> str:
        """Key of `matmul` that serves a number format, "" for the general constants."""
        for name in (dtype, *number_format(dtype).measured_as):
            for key in (f"{name}-{kernels}", name) if kernels else (name,):
                if key in self.matmul:
                    return key
        return ""

    def for_dtype(self, dtype: str, kernels: str = "") -> MatmulCalibration:
        """Constants of a number format; of the nearest measured one where it has none."""
        return self.matmul.get(self.format_used(dtype, kernels), GENERAL)


GENERAL = MatmulCalibration()


def compute_time_s(
    m: float,
    n: float,
    k: float,
    c: MatmulCalibration,
    peak_flop_per_s: float,
    n_units: int,
    products: float = 1.0,
) -> float:
    """Time on the matrix units: the best tile, whole waves of tiles over the units.

    ``waves * tile * 2 (k + ramp_k) / (peak / units * eff)``; fewer tiles than units may split K.
    The tiles of `products` equal products in one launch share the waves.
    """
    best = float("inf")
    area0 = c.tile_area
    most_split = max(1.0, floor(k / SPLIT_K))
    for rows, columns in TILES:
        tiles = products * ceil(m / rows) * ceil(n / columns) / n_units
        area = rows * columns
        if tiles <= 1.0:
            waves = 1.0 / min(max(1.0, floor(1.0 / tiles)), most_split)
        else:
            waves = tiles * (ceil(tiles) / tiles) ** c.wave_exponent
        cost = waves * (area + area0)
        best = min(best, cost)
    best *= LARGEST_TILE / (LARGEST_TILE + area0)
    time_s = best * n_units * 2.0 * (k + c.ramp_k) / (peak_flop_per_s * c.compute_eff_frac)
    ideal_s = 2.0 * m * n * k * products / peak_flop_per_s
    return time_s * (1.0 + c.sustained_slope * tanh(log(ideal_s / SUSTAINED_REF_S) / 3.0))


def memory_time_s(
    moved_bytes: float, c: MatmulCalibration, hbm_bytes_per_s: float, l2_bytes: float, warm: bool
) -> float:
    """Time on the memory; operands that fit the L2 cache run at `l2_gain` times the speed."""
    rate = hbm_bytes_per_s * c.memory_eff_frac
    if l2_bytes > 0.0 and (warm or c.l2_gain < 1.0):
        resident = 1.0 / (1.0 + (moved_bytes / (0.6 * l2_bytes)) ** 3)
        rate *= 1.0 + (c.l2_gain - 1.0) * resident
    return moved_bytes / rate


def quantise_time_s(
    n_elements: float, in_bytes: float, c: MatmulCalibration, hbm_bytes_per_s: float
) -> float:
    """Time to quantise bf16 activations: read 2 bytes, write `in_bytes` each."""
    return c.quant_floor_s + n_elements * (2.0 + in_bytes) / (hbm_bytes_per_s * c.quant_eff_frac)


def analytic_time_s(
    m: float,
    n: float,
    k: float,
    dtype: str,
    c: MatmulCalibration,
    peak_flop_per_s: float,
    hbm_bytes_per_s: float,
    n_units: int = 1,
    l2_bytes: float = 0.0,
    include_quant: bool = False,
    out_bytes: float = 2.0,
    warm_l2: bool = False,
    weight_bytes: float | None = None,
    products: float = 1.0,
) -> float:
    """Time of one product without the table: ``floor + (compute^p + memory^p + latency^p)^(1/p)``.

    The arguments are those of `expected_matmul_time_s`.
    """
    in_bytes = element_bytes(dtype)
    moved = products * moved_bytes(m, n, k, in_bytes, out_bytes, weight_bytes)
    p = c.blend
    compute_s = compute_time_s(m, n, k, c, peak_flop_per_s, n_units, products)
    memory_s = memory_time_s(moved, c, hbm_bytes_per_s, l2_bytes, warm_l2)
    latency_s = c.latency_s * (k / 1024.0) ** c.latency_exponent
    top = max(compute_s, memory_s, latency_s)
    sum_p = (compute_s / top) ** p + (memory_s / top) ** p + (latency_s / top) ** p
    time_s = float(c.floor_s + top * sum_p ** (1.0 / p))
    if include_quant:
        time_s += quantise_time_s(products * m * k, in_bytes, c, hbm_bytes_per_s)
    return time_s


def moved_bytes(
    m: float, n: float, k: float, in_bytes: float, out_bytes: float, weight_bytes: float | None
) -> float:
    """Bytes of (m, k), (k, n) and the result, each moved once."""
    w = in_bytes if weight_bytes is None else weight_bytes
    return in_bytes * m * k + w * n * k + out_bytes * m * n


def expected_matmul_time_s(
    m: float,
    n: float,
    k: float,
    dtype: str,
    arch: ArchCalibration,
    peak_flop_per_s: float,
    hbm_bytes_per_s: float,
    *,
    n_units: int | None = None,
    l2_bytes: float | None = None,
    include_quant: bool = False,
    out_bytes: float = 2.0,
    warm_l2: bool = False,
    kernels: str = "",
    weight_bytes: float | None = None,
    products: float = 1.0,
) -> float:
    """Time expected of (m, k) @ (k, n): the analytic form times the measured correction.

    Parameters
    ----------
    m, n, k : float
        Rows, columns and inner dimension, at least 1 (fractions are allowed). [1]
    dtype : str
        Format of both inputs: bf16, fp16, fp8, fp8-block, mxfp8, nvfp4 ...
    arch : ArchCalibration
        Constants of the GPU's architecture.
    peak_flop_per_s : float
        Dense data-sheet peak of that format. [FLOP/s]
    hbm_bytes_per_s : float
        Data-sheet memory bandwidth. [byte/s]
    n_units : int, optional
        SMs or compute units, for the waves of tiles; left out, waves do not count. [1]
    l2_bytes : float, optional
        Last-level cache. [byte]
    include_quant : bool
        Add the kernel that quantises bf16 activations of m * k elements.
    out_bytes : float
        Bytes moved per output element; 8 where an fp32 gradient is read and written. [byte]
    warm_l2 : bool
        Operands may still lie in the L2 cache from the call before, as in a benchmark's loop.
        Without it the result is never below the roofline.
    kernels : str
        Kernel library with constants of its own, such as "te"; "" is the usual one.
    weight_bytes : float, optional
        Bytes per element of the (k, n) operand where it is stored more narrowly than it is
        multiplied (weight-only quantisation); left out, as `dtype`. [byte]
    products : float
        Products of this shape in one launch, each with its own operands (batched or grouped); the
        correction, measured on single products, is left out for more than one. [1]

    Returns
    -------
    float
        Time of the kernel, and of the quantisation where asked. [s]

    Raises
    ------
    ValueError
        If a dimension is below 1 or a rate is not positive.

    Examples
    --------
    >>> arch = ArchCalibration("none")
    >>> t = expected_matmul_time_s(8192, 8192, 8192, "bf16", arch, 989.4e12, 3.35e12, n_units=132)
    >>> round(1e3 * t, 1)
    1.7

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
    .. [2] NVIDIA, "Matrix Multiplication Background User's Guide": tile and wave quantisation.
    """
    if not (m >= 1.0 and n >= 1.0 and k >= 1.0):
        raise ValueError(f"m, n and k must be at least 1, got {m}, {n}, {k}")
    if not products >= 1.0:
        raise ValueError(f"products must be at least 1, got {products}")
    if not (peak_flop_per_s > 0.0 and hbm_bytes_per_s > 0.0):
        raise ValueError("peak rate and memory bandwidth must be positive")
    used = arch.format_used(dtype, kernels)
    c = arch.matmul.get(used, GENERAL)
    time_s = analytic_time_s(
        m,
        n,
        k,
        dtype,
        c,
        peak_flop_per_s,
        hbm_bytes_per_s,
        n_units or 1,
        l2_bytes or 0.0,
        include_quant,
        out_bytes,
        warm_l2,
        weight_bytes,
        products,
    )
    if c.table is not None and products == 1.0 and measured_format(used, dtype, kernels):
        time_s *= exp(c.table.at(m, n, k))
    if warm_l2:
        return time_s
    moved = moved_bytes(m, n, k, element_bytes(dtype), out_bytes, weight_bytes)
    ideal_s = max(2.0 * m * n * k / peak_flop_per_s, moved / hbm_bytes_per_s)
    return max(time_s, products * ideal_s)


def expected_elementwise_time_s(
    moved: float, compute_s: float, arch: ArchCalibration, hbm_bytes_per_s: float
) -> float:
    """Time expected of an elementwise kernel: the kernel floor, then memory or vector units. [s].

    ``floor + max(compute, bytes / (memory_eff * bandwidth))``, with the floor and the memory
    efficiency that bf16 products have on the architecture; operands come from memory.

    Parameters
    ----------
    moved : float
        Bytes read and written. [byte]
    compute_s : float
        Time on the vector units at their peak. [s]
    arch : ArchCalibration
        Constants of the GPU's architecture.
    hbm_bytes_per_s : float
        Data-sheet memory bandwidth. [byte/s]

    Examples
    --------
    >>> t = expected_elementwise_time_s(12 * 65536, 0.0, ArchCalibration("none"), 3.35e12)
    >>> round(1e6 * t, 2)
    2.57
    """
    if not (hbm_bytes_per_s > 0.0 and moved >= 0.0 and compute_s >= 0.0):
        raise ValueError("bytes and times must not be negative, the bandwidth must be positive")
    c = arch.for_dtype("bf16")
    return c.floor_s + max(compute_s, moved / (c.memory_eff_frac * hbm_bytes_per_s))


def expected_matmul_utilisation(
    m: float,
    n: float,
    k: float,
    dtype: str,
    arch: ArchCalibration,
    peak_flop_per_s: float,
    hbm_bytes_per_s: float,
    *,
    n_units: int | None = None,
    l2_bytes: float | None = None,
    include_quant: bool = False,
    out_bytes: float = 2.0,
    warm_l2: bool = False,
    kernels: str = "",
) -> float:
    """Fraction of the peak rate that the product is expected to reach; see the time's arguments."""
    time_s = expected_matmul_time_s(
        m,
        n,
        k,
        dtype,
        arch,
        peak_flop_per_s,
        hbm_bytes_per_s,
        n_units=n_units,
        l2_bytes=l2_bytes,
        include_quant=include_quant,
        out_bytes=out_bytes,
        warm_l2=warm_l2,
        kernels=kernels,
    )
    return 2.0 * m * n * k / (peak_flop_per_s * time_s)


def matmul_interval_s(
    time_s: float, dtype: str, arch: ArchCalibration, kernels: str = "", unseen: bool = False
) -> tuple[float, float]:
    """80 % interval of an expected matmul time, from the validation of its class. [s].

    `unseen`: a kind of kernel that was not measured, such as batched or grouped products.
    """
    c = arch.for_dtype(dtype, kernels)
    low, high = c.low_frac, c.high_frac
    own = measured_format(arch.format_used(dtype, kernels), dtype, kernels)
    if unseen or c.borrowed or not own:
        low, high = min(low, UNSEEN_LOW_FRAC), max(high, UNSEEN_HIGH_FRAC)
    return time_s * low, time_s * high


def measured_format(used: str, dtype: str, kernels: str = "") -> bool:
    """Whether the constants in use come from this format; fp16 runs as bf16 does."""
    return used in (dtype, f"{dtype}-{kernels}") or (used, dtype) == ("bf16", "fp16")


UNSEEN_LOW_FRAC = 0.75
UNSEEN_HIGH_FRAC = 1.4
"""Interval where another format or architecture serves: 10 and 90 % quantiles when the constants
of one architecture or format predict the measurements of another (medians of 9 to 15 %)."""
