"""Calibration of one GPU architecture, as presets/arch/*.toml holds it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from gpuscale.core.kernel.calibration import ArchCalibration, MatmulCalibration
from gpuscale.core.kernel.power import Board, PowerReference
from gpuscale.core.kernel.residual_table import Axis, ResidualTable
from gpuscale.specs.fields import FlopPerS, Seconds, Spec, Watts

Positive = Annotated[float, Field(gt=0, le=1e6)]
Efficiency = Annotated[float, Field(gt=0, le=1.5)]  # of a data-sheet rate that clocks can exceed
_DEFAULT = MatmulCalibration()


class AxisSpec(Spec):
    """Grid of one dimension: `n` points from 2**start in steps of 2**step."""

    start: float = Field(ge=-1, le=40)
    step: float = Field(gt=0, le=10)
    n: int = Field(ge=2, le=40)


MAX_THOUSANDTHS = 3000
"""Largest correction of a table, a factor of 20."""


def thousandths(values: str, n: int) -> tuple[float, ...]:
    """Read `n` whole numbers as thousandths.

    Raises ValueError if there are more or fewer, or one is no whole number or too large.
    """
    words = values.split()
    if len(words) != n:
        raise ValueError(f"values: {n} numbers are wanted, there are {len(words)}")
    try:
        found = [int(word) for word in words]
    except ValueError:
        raise ValueError("values: whole numbers (thousandths) are wanted") from None
    if any(abs(v) > MAX_THOUSANDTHS for v in found):
        raise ValueError(f"values: corrections go up to {MAX_THOUSANDTHS} thousandths")
    return tuple(v * 1e-3 for v in found)


class TableSpec(Spec):
    """Corrections in thousandths of a natural logarithm, fastest in k, then n, then m."""

    m: AxisSpec
    n: AxisSpec
    k: AxisSpec
    values: str

    @model_validator(mode="after")
    def _complete(self) -> TableSpec:
        thousandths(self.values, self.m.n * self.n.n * self.k.n)
        return self

    def to_core(self) -> ResidualTable:
        """Table of floats."""
        m, n, k = (Axis(a.start, a.step, a.n) for a in (self.m, self.n, self.k))
        return ResidualTable(m, n, k, thousandths(self.values, m.n * n.n * k.n))


class MatmulSpec(Spec):
    """Constants of matrix products in one number format; see `core.expected_matmul`."""

    floor_s: Seconds = _DEFAULT.floor_s
    latency_s: Seconds = _DEFAULT.latency_s
    latency_exponent: float = Field(default=_DEFAULT.latency_exponent, ge=0, le=2)
    compute_eff_frac: Efficiency = _DEFAULT.compute_eff_frac
    ramp_k: float = Field(default=_DEFAULT.ramp_k, ge=0, le=1e5)
    memory_eff_frac: Efficiency = _DEFAULT.memory_eff_frac
    blend: float = Field(default=_DEFAULT.blend, ge=1, le=100)
    wave_exponent: float = Field(default=_DEFAULT.wave_exponent, ge=0, le=1)
    tile_area: float = Field(default=_DEFAULT.tile_area, ge=0, le=1e6)
    l2_gain: Positive = _DEFAULT.l2_gain
    sustained_slope: float = Field(default=_DEFAULT.sustained_slope, ge=-0.5, le=0.9)
    quant_floor_s: Seconds = _DEFAULT.quant_floor_s
    quant_eff_frac: Efficiency = _DEFAULT.quant_eff_frac
    table: TableSpec | None = None
    low_frac: float = Field(default=_DEFAULT.low_frac, gt=0, le=1)
    high_frac: float = Field(default=_DEFAULT.high_frac, ge=1, le=10)
    n_rows: int = Field(default=0, ge=0)  # measurements behind it
    borrowed: bool = False  # measured on another architecture
    error_median_frac: float | None = None  # leave-shape-out
    error_p90_frac: float | None = None
    source: str = ""

    def to_core(self) -> MatmulCalibration:
        """Record for the formulas."""
        fields = self.model_dump(exclude={"table", "n_rows", "error_median_frac", "error_p90_frac"})
        table = None if self.table is None else self.table.to_core()
        return MatmulCalibration(**fields, table=table)


class PowerSpec(Spec):
    """Board that was measured, and how the clock follows the power; see `core.kernel.power`."""

    tdp_w: Watts
    n_units: int = Field(gt=0)
    flop_per_s: FlopPerS
    exponent: float = Field(gt=0, le=1)
    headroom: float = Field(ge=1, le=10)
    most_eff_frac: float = Field(gt=0, le=1)
    source: str

    def to_core(self) -> PowerReference:
        """Record for the formulas."""
        board = Board(self.tdp_w, self.n_units, self.flop_per_s)
        return PowerReference(board, self.exponent, self.headroom, self.most_eff_frac)


class ArchSpec(Spec):
    """One architecture; what is absent is taken from `nearest`, then from the general constants."""

    name: str
    nearest: str = ""
    notes: str = ""
    source: str = ""
    power: PowerSpec | None = None  # without it products are as fast on every board
    matmul: dict[str, MatmulSpec] = Field(default_factory=dict)

    def to_core(self) -> ArchCalibration:
        """Record for the formulas."""
        return ArchCalibration(
            name=self.name,
            matmul={name: spec.to_core() for name, spec in self.matmul.items()},
            source=self.source,
        )
