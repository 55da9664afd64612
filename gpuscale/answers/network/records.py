"""What `network` answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpuscale.answers.collective.expected import ExpectedCollective
from gpuscale.core.fabric.bill import NetworkBill
from gpuscale.core.fabric.cables import Cable
from gpuscale.core.fabric.check import CableReport
from gpuscale.core.fabric.faults import Loss
from gpuscale.core.fabric.of_cluster import NetworkPlan
from gpuscale.core.fabric.records import Design
from gpuscale.core.network.levels import NetworkReport
from gpuscale.specs.cluster import ClusterSpec
from gpuscale.specs.run import SwitchSpec


class Planned(NamedTuple):
    """What a network is designed from; without a plan one scale-up domain is enough."""

    spec: ClusterSpec
    switch: SwitchSpec | None
    plan: NetworkPlan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAnswer(NetworkReport):
    """Levels of a cluster and the design of its network."""

    scaleup: Design | None  # of one NVLink domain
    design: Design | None
    n_switches: int | None
    n_switches_by_ports: int | None  # least that have ports enough, as cost sheets count
    n_leaf_switches: int | None
    n_spine_switches: int | None
    n_core_switches: int | None
    n_links: int | None
    n_cables: int | None
    bill: NetworkBill | None
    losses: tuple[Loss, ...]
    failure_s: float | None  # mean time between failures of a link or switch
    all_reduce: ExpectedCollective | None  # of 1 GB per GPU
    cables: tuple[Cable, ...] = ()


@dataclass(frozen=True, slots=True)
class CableCheck:
    """A cable list held against what a network must be."""

    ok: bool
    report: CableReport
