"""One chip: cores, matrix units, vector rate, clock, on-chip memory, critical intensity.

Formulas of "How to Scale Your Model", GPU chapter, section "What is a GPU?" and quiz 1.
"""

from __future__ import annotations

from typing import ClassVar

from gpuscale.core.bounds import STRICT, PositiveInt
from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """What sits in one compute unit (SM, CU, TensorCore), as presets/run/units.toml has it."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    lanes: PositiveInt  # fp32 lanes ("CUDA cores"; a TPU's vector ALUs)
    matrix_units: PositiveInt  # tensor cores, matrix cores, MXUs
    source: str
    subpartitions: int = 4
    max_warps: int | None = None
    flop_per_lane_cycle: int = 2  # with FMA
    fast_cache_bytes_per_s: float | None = None  # L2 (GPU, measured) or VMEM (TPU)
    vmem_bytes: float | None = None  # a TPU's programmable on-chip memory, per TensorCore
    register_bytes: float | None = None  # where the data sheet does not give them


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
