"""Calibration of one class of link, as presets/fabric/*.toml holds it."""

from __future__ import annotations

from pydantic import Field

from gpuscale.core.network.calibration import LinkCalibration, OpCalibration
from gpuscale.specs.fields import BytesPerS, Spec


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
    ops: dict[str, OpCalibration] = Field(default_factory=dict)

    def to_core(self) -> LinkCalibration:
        """Record for the formulas."""
        cap = self.tree_channel_bytes_per_s or (0.0, 0.0)
        return LinkCalibration(
            name=self.name,
            ops=self.ops,
            source=self.source,
            mesh_ranks=self.mesh_ranks,
            tree_channel_bytes_per_s=cap,
            shared_bytes_per_s=self.shared_bytes_per_s or 0.0,
            custom_ranks=self.custom_ranks,
        )
