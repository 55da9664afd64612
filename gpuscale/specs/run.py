"""What files may say of switches, failures, saves, power, sites and parts."""

from __future__ import annotations

from typing import Annotated

from gpuscale.core import bounds
from gpuscale.core.quantity import MAX_ABS
from gpuscale.core.records import field
from gpuscale.specs.fields import BytesPerS, Spec

NonNegative = Annotated[float, bounds.Within(0, MAX_ABS)]


class SwitchSpec(Spec):
    """A switch: cages, how a cage is split into ports, modules, power and price."""

    name: str
    title: str = ""
    fabric: str = ""
    n_cages: bounds.PositiveInt
    cage_bytes_per_s: BytesPerS  # one direction
    splits: tuple[bounds.PositiveInt, ...] = (1,)  # ports that a cage can be
    manager_takes_ports: bool = True  # the fabric manager uses host ports
    module_limit_w: bounds.Watts | None = None
    switch_module: str = ""
    host_module: str = ""
    chassis_low_w: bounds.Watts | None = None
    chassis_high_w: bounds.Watts | None = None
    price_usd: bounds.Usd | None = None
    price_date: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def native_bytes_per_s(self) -> float:
        """Fastest port. [byte/s]."""
        return self.cage_bytes_per_s / min(self.splits)

    def ports_at(self, link_bytes_per_s: float) -> int | None:
        """Ports at a link speed; None where a cage cannot be split so. [1]."""
        for split in sorted(self.splits):
            if abs(self.cage_bytes_per_s / split / link_bytes_per_s - 1) < 1e-6:
                return self.n_cages * split
        return None


class FleetRow(Spec):
    """A failure rate with its range."""

    per_1000_node_days: NonNegative
    low: NonNegative
    high: NonNegative
    source: str


class RecoveryRow(Spec):
    """Time from a failure until the job runs again."""

    detect_s: bounds.Seconds
    restart_s: bounds.Seconds
    at_gpus: bounds.PositiveInt
    per_doubling_s: bounds.Seconds
    least_s: bounds.Seconds
    hang_frac: bounds.Fraction  # of the stops
    hang_s: bounds.Seconds  # until one is seen
    source: str


class StoreRow(Spec):
    """Bandwidth of a store, both ways, per 8 GPUs that use it."""

    write_bytes_per_s: BytesPerS
    low_bytes_per_s: BytesPerS
    high_bytes_per_s: BytesPerS
    source: str


class PeopleRow(Spec):
    """Share of the time that people cost, with its range."""

    frac: bounds.Share
    low: bounds.Share
    high: bounds.Share
    source: str


class PowerRow(Spec):
    """AC power of a kind of node."""

    load: bounds.Fraction
    per_tdp: NonNegative
    low: NonNegative
    high: NonNegative
    source: str


class SiteRow(Spec):
    """A place: its grid, its PUE."""

    grid_g_per_kwh: NonNegative
    year: str = ""
    pue: bounds.Pue
    usd_per_kwh: bounds.UsdPerKwh | None = None
    market_g_per_kwh: NonNegative | None = None
    place: str = ""
    source: str


class EmbodiedRow(Spec):
    """Carbon of making a GPU."""

    kg_per_gpu: NonNegative
    source: str


class ModuleRow(Spec):
    """A pluggable module."""

    links: bounds.PositiveInt
    link_bytes_per_s: BytesPerS
    power_w: bounds.Watts
    source: str


class LinkRow(Spec):
    """Price of an optical link."""

    link_bytes_per_s: BytesPerS
    price_usd: bounds.Usd
    price_date: str
    source: str


class NvlinkRow(Spec):
    """A generation of NVLink."""

    links_per_gpu: bounds.PositiveInt
    ports_per_chip: bounds.PositiveInt
    source: str


class PartRow(Spec):
    """How often a part fails."""

    per_month: NonNegative
    source: str


class PurchaseRow(Spec):
    """Price of a machine to buy."""

    node_usd: bounds.Usd
    gpus_per_node: bounds.PositiveInt
    date: str
    source: str
