"""What is calibrated of matrix products: constants and corrections per architecture and format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.core.formats import number_format
from gpuscale.core.kernel.residual_table import ResidualTable


@dataclass(frozen=True, slots=True)
class MatmulCalibration:
    """Constants of matrix products in one number format on one architecture.

    The defaults are the medians over the measured architectures.
    """

    floor_s: float = 2.3e-6  # launch, prologue and epilogue of one kernel
    latency_s: float = 1.5e-6  # the K loop of one block at k = 1024
    latency_exponent: float = 0.55  # 1: no split-K; the loop's time grows as k**exponent
    compute_eff_frac: float = 0.74  # of the data-sheet peak, at an ideal time of 0.1 ms
    clock_frac: float = 1.0  # of the data-sheet clock that the board's power sustains
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

    __hash__ = object.__hash__  # by identity: the table is large, and keys of memos are records


@dataclass(frozen=True, slots=True)
class ArchCalibration:
    """What is calibrated for one GPU architecture."""

    name: str
    matmul: Mapping[str, MatmulCalibration] = field(default_factory=dict)
    source: str = ""

    __hash__ = object.__hash__

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


UNSEEN_LOW_FRAC, UNSEEN_HIGH_FRAC = 0.75, 1.4
"""Interval where another format or architecture serves: 10 and 90 % quantiles when the constants
of one architecture or format predict the measurements of another (medians of 9 to 15 %)."""
