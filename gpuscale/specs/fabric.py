"""Calibration of one class of link, as presets/fabric/*.toml holds it."""

from __future__ import annotations

from pydantic import Field, model_validator

from gpuscale.core.kernel.residual_table import Axis, PlaneTable
from gpuscale.core.network.calibration import LinkCalibration, OpCalibration
from gpuscale.specs.arch import AxisSpec, thousandths
from gpuscale.specs.fields import BytesPerS, Seconds, Spec

_DEFAULT = OpCalibration()


class PlaneSpec(Spec):
    """Corrections in thousandths of a natural logarithm, fastest in ranks, then size."""

    size_bytes: AxisSpec
    n_ranks: AxisSpec
    values: str

    @model_validator(mode="after")
    def _complete(self) -> PlaneSpec:
        thousandths(self.values, self.size_bytes.n * self.n_ranks.n)
        return self

    def to_core(self) -> PlaneTable:
        """Table of floats."""
        size, ranks = (Axis(a.start, a.step, a.n) for a in (self.size_bytes, self.n_ranks))
        return PlaneTable(size, ranks, thousandths(self.values, size.n * ranks.n))


class OpSpec(Spec):
    """Constants of one kind of collective; see `core.expected_collective.OpCalibration`."""

    base_s: Seconds = _DEFAULT.base_s
    hop_s: Seconds = _DEFAULT.hop_s
    eff_frac: float = Field(default=_DEFAULT.eff_frac, gt=0, le=1)
    small_group_loss: float = Field(default=_DEFAULT.small_group_loss, ge=0, le=2)
    ll_eff_frac: float = Field(default=_DEFAULT.ll_eff_frac, gt=0, le=1)
    bulk_factor: float = Field(default=_DEFAULT.bulk_factor, ge=1, le=1000)
    ramp_s: Seconds = _DEFAULT.ramp_s
    table: PlaneSpec | None = None
    low_frac: float = Field(default=_DEFAULT.low_frac, gt=0, le=1)
    high_frac: float = Field(default=_DEFAULT.high_frac, ge=1, le=10)
    n_rows: int = Field(default=0, ge=0)
    source: str = ""

    def to_core(self) -> OpCalibration:
        """Record for the formulas."""
        table = None if self.table is None else self.table.to_core()
        return OpCalibration(**self.model_dump(exclude={"table", "n_rows"}), table=table)


class LinkSpec(Spec):
    """One class of link; what is absent is taken from `nearest`."""

    name: str
    nearest: str = ""
    notes: str = ""
    source: str = ""
    mesh_ranks: int = Field(default=0, ge=0, le=1000)
    shared_bytes_per_s: BytesPerS | None = None  # most that all ranks send together
    nic_eff_frac: float | None = Field(default=None, gt=0, le=1)  # of a slot's rate, to a NIC
    custom_ranks: int = Field(default=1024, ge=0)  # most for a serving library's own all-reduce
    tree_channel_bytes_per_s: tuple[BytesPerS, BytesPerS] | None = None  # of two nodes, of more
    ops: dict[str, OpSpec] = Field(default_factory=dict)

    def to_core(self) -> LinkCalibration:
        """Record for the formulas."""
        ops = {name: spec.to_core() for name, spec in self.ops.items()}
        cap = self.tree_channel_bytes_per_s or (0.0, 0.0)
        return LinkCalibration(
            name=self.name,
            ops=ops,
            source=self.source,
            mesh_ranks=self.mesh_ranks,
            tree_channel_bytes_per_s=cap,
            shared_bytes_per_s=self.shared_bytes_per_s or 0.0,
            custom_ranks=self.custom_ranks,
        )
