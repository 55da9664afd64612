"""One chip: cores, matrix units, vector rate, clock, on-chip memory, critical intensity.

Formulas of "How to Scale Your Model", GPU chapter, section "What is a GPU?" and quiz 1.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024.0


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """What sits in one compute unit (SM, CU, TensorCore) of an architecture."""

    lanes: int  # fp32 lanes ("CUDA cores"; a TPU's vector ALUs)
    matrix_units: int  # tensor cores, matrix cores, MXUs
    source: str
    subpartitions: int = 4
    max_warps: int | None = None
    flop_per_lane_cycle: int = 2  # with FMA
    fast_cache_bytes_per_s: float | None = None  # L2 (GPU, measured) or VMEM (TPU)
    vmem_bytes: float | None = None  # a TPU's programmable on-chip memory, per TensorCore
    register_bytes: float | None = None  # where the data sheet does not give them


_BOOK = "How to Scale Your Model, GPU chapter"
_TPU = "How to Scale Your Model, TPU chapter"
_CDNA3 = "AMD CDNA 3 architecture white paper, table of compute unit rates"

UNIT_LAYOUTS: dict[str, UnitLayout] = {
    "volta": UnitLayout(
        64, 8, "NVIDIA V100 white paper: 64 fp32 cores, 8 tensor cores per SM", max_warps=64
    ),
    "turing": UnitLayout(
        64, 8, "NVIDIA Turing white paper: 64 fp32 cores, 8 tensor cores per SM", max_warps=32
    ),
    "ampere": UnitLayout(
        64, 4, "NVIDIA A100 white paper: 64 fp32 cores, 4 tensor cores per SM", max_warps=64
    ),
    "ampere-ga102": UnitLayout(128, 4, "NVIDIA GA102 white paper", max_warps=48),
    "ada": UnitLayout(
        128, 4, "NVIDIA Ada white paper: 128 fp32 cores, 4 tensor cores per SM", max_warps=48
    ),
    "hopper": UnitLayout(
        128,
        4,
        f"{_BOOK}, SM; L2 rate measured (Chips and Cheese)",
        max_warps=64,
        fast_cache_bytes_per_s=5.5e12,
    ),
    "blackwell": UnitLayout(128, 4, f"{_BOOK}, SM", max_warps=64),
    "blackwell-ultra": UnitLayout(128, 4, f"{_BOOK}, SM", max_warps=64),
    "cdna2": UnitLayout(64, 4, "AMD CDNA 2 white paper", flop_per_lane_cycle=4),
    "cdna3": UnitLayout(64, 4, _CDNA3, flop_per_lane_cycle=4),
    "cdna4": UnitLayout(64, 4, "AMD CDNA 4 white paper", flop_per_lane_cycle=4),
    "tpu-v4": UnitLayout(4096, 4, _TPU, subpartitions=1),
    "tpu-v5e": UnitLayout(
        4096, 4, f"{_TPU}: 128 MiB of VMEM", subpartitions=1, vmem_bytes=128 * 2**20
    ),
    "tpu-v5p": UnitLayout(
        4096,
        4,
        f"{_TPU} and {_BOOK}: (8, 128) lanes x 4 ALUs, 4 MXUs per "
        "TensorCore, 128 MiB of VMEM and 256 KiB of registers per chip",
        subpartitions=1,
        fast_cache_bytes_per_s=40e12,
        vmem_bytes=64 * 2**20,
        register_bytes=128 * KIB,
    ),
    "tpu-v6e": UnitLayout(4096, 2, _TPU, subpartitions=1),
}
"""Architecture -> layout of its compute unit."""

_SAME_UNITS = {
    "grace-hopper": "hopper",
    "grace-blackwell": "blackwell",
    "grace-blackwell-ultra": "blackwell-ultra",
    "blackwell-gb202": "blackwell",
}


def unit_layout(architecture: str) -> UnitLayout | None:
    """Layout of the compute unit of an architecture, None if it is not known.

    >>> unit_layout("hopper").lanes, unit_layout("Grace Hopper").lanes
    (128, 128)
    """
    slug = "-".join(architecture.lower().replace("(", " ").replace(")", " ").split())
    return UNIT_LAYOUTS.get(_SAME_UNITS.get(slug, slug))


def cuda_cores(n_units: int, subpartitions: int = 4, lanes: int = 32) -> int:
    """Vector lanes of a chip: units x subpartitions x lanes each."""
    return n_units * subpartitions * lanes


def tensor_cores(n_units: int, per_unit: int = 4) -> int:
    """Matrix units of a chip."""
    return n_units * per_unit


def vector_flop_per_s(n_lanes: float, clock_hz: float, flop_per_lane_cycle: float = 1.0) -> float:
    """Rate of the vector lanes. [FLOP/s].

    `flop_per_lane_cycle` is 1 without fused multiply-add, 2 with it (4 for AMD's packed fp32).
    """
    return n_lanes * clock_hz * flop_per_lane_cycle


def clock_from_vector_hz(
    vector_rate_flop_per_s: float, n_lanes: float, flop_per_lane_cycle: float = 2.0
) -> float:
    """Clock that a vector rate implies. [Hz]."""
    return vector_rate_flop_per_s / (n_lanes * flop_per_lane_cycle)


def tensor_flop_per_cycle(peak_flop_per_s: float, n_tensor_cores: float, clock_hz: float) -> float:
    """FLOP of one matrix unit in one cycle, from the dense peak."""
    return peak_flop_per_s / (n_tensor_cores * clock_hz)


def chip_total_bytes(n_units: int, bytes_per_unit: float) -> float:
    """On-chip memory of all units: registers or shared memory. [byte]."""
    return n_units * bytes_per_unit


def critical_intensity(flop_per_s: float, bytes_per_s: float) -> float:
    """Ridge of the roofline: FLOP per byte above which a kernel is compute-bound. [FLOP/byte]."""
    return flop_per_s / bytes_per_s
