"""What `network` answers with."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.answers.collective.expected import Expected
from gpuscale.core.fabric.bill import Bill
from gpuscale.core.fabric.cables import Cable
from gpuscale.core.fabric.check import CableReport
from gpuscale.core.fabric.faults import Loss
from gpuscale.core.fabric.records import Design
from gpuscale.core.network.levels import LevelBandwidth


@dataclass(frozen=True, slots=True)
class NetworkAnswer:
    """Levels of a cluster and the design of its network."""

    n_gpus: int
    n_nodes: int
    levels: tuple[LevelBandwidth, ...]
    collective_bytes_per_s: float | None  # of the slowest level
    slowest_level: str
    n_scaleup_switches: int | None  # NVSwitch chips of all domains
    scaleup: Design | None  # of one NVLink domain
    design: Design | None
    n_switches: int | None
    n_switches_by_ports: int | None  # least that have ports enough, as cost sheets count
    n_leaf_switches: int | None
    n_spine_switches: int | None
    n_core_switches: int | None
    n_links: int | None
    n_cables: int | None
    bill: Bill | None
    losses: tuple[Loss, ...]
    failure_s: float | None  # mean time between failures of a link or switch
    all_reduce: Expected | None  # of 1 GB per GPU
    cables: tuple[Cable, ...] = ()


@dataclass(frozen=True, slots=True)
class CableCheck:
    """A cable list held against what a network must be."""

    ok: bool
    report: CableReport
