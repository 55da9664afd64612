"""Chips and kernels: formulas that only the documents ask for."""

from __future__ import annotations


def vpu_alus(n_tensor_cores: int, sublanes: int = 8, lanes: int = 128, alus: int = 4) -> int:
    """Vector ALUs of a TPU: TensorCores x (sublanes x lanes) x ALUs per lane.

    Examples
    --------
    >>> vpu_alus(2)
    8192
    """
    return n_tensor_cores * sublanes * lanes * alus


def tensor_flop_per_cycle_from_fma(fma_per_cycle: float) -> float:
    """FLOP per cycle of a matrix unit that does `fma_per_cycle` multiply-adds (V100: 64)."""
    return 2.0 * fma_per_cycle


def register_file_bytes(
    subpartitions: int = 4, n_registers: int = 16384, register_bytes: float = 4.0
) -> float:
    """Register file of one compute unit. [byte].

    Examples
    --------
    >>> from gpuscale.core.kernel.chip import KIB
    >>> register_file_bytes() / KIB
    256.0
    """
    return subpartitions * n_registers * register_bytes


def practical_time_s(
    flop: float,
    moved_bytes: float,
    flop_per_s: float,
    bytes_per_s: float,
    compute_efficiency_frac: float = 1.0,
    memory_efficiency_frac: float = 1.0,
    launch_s: float = 0.0,
) -> float:
    """Roofline with fractions of the peaks that a kernel reaches, not below the launch time. [s].

    Examples
    --------
    >>> round(practical_time_s(0, 68681728, 2250e12, 8e12, 1.0, 0.78) * 1e6, 2)
    11.01
    """
    if not (0 < compute_efficiency_frac <= 1 and 0 < memory_efficiency_frac <= 1):
        raise ValueError("efficiencies must be above 0 and at most 1")
    compute_s = flop / (compute_efficiency_frac * flop_per_s)
    memory_s = moved_bytes / (memory_efficiency_frac * bytes_per_s)
    return max(compute_s, memory_s, launch_s)


def matmul_exact_operations(m: float, k: float, n: float) -> float:
    """Multiplications and additions of one product: m n (2 k - 1).

    Examples
    --------
    >>> matmul_exact_operations(3, 3, 3)
    45
    """
    return 2 * m * k * n - m * n
