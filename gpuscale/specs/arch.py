"""Calibration of one GPU architecture, as presets/arch/*.toml holds it."""

from __future__ import annotations

from pydantic import Field

from gpuscale.core.kernel.calibration import ArchCalibration, MatmulCalibration
from gpuscale.core.kernel.power import Board, PowerReference
from gpuscale.specs.fields import FlopPerS, Spec, Watts


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
    matmul: dict[str, MatmulCalibration] = Field(default_factory=dict)

    def to_core(self) -> ArchCalibration:
        """Record for the formulas."""
        return ArchCalibration(name=self.name, matmul=self.matmul, source=self.source)
