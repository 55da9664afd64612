"""What a cluster file may say of its network, table `[network]`."""

from __future__ import annotations

from typing import Annotated

from gpuscale.core.bounds import Among, NonNegativeInt, PositiveInt, Within
from gpuscale.core.fabric.records import TOPOLOGIES
from gpuscale.specs.fields import BytesPerS, Spec

Oversubscription = Annotated[float, Within(1, 1000)]


class NetworkSpec(Spec):
    """How a cluster is wired; what is left out is designed."""

    topology: Annotated[str, Among(TOPOLOGIES)] = "rail-optimised"
    switch: str = ""  # preset name; else `switch_radix` ports
    tiers: PositiveInt | None = None
    oversubscription: tuple[Oversubscription, ...] = ()  # of each tier from the leaf up
    ports_per_nic: PositiveInt | None = None
    dual_tor: bool = False  # the ports of a NIC end on the two leafs of a pair
    uplink_bytes_per_s: BytesPerS | None = None  # of a link between switches; as the hosts'
    rack_gpus: PositiveInt | None = None  # GPUs of a rack, all behind leafs in the rack
    top_of_rack: bool = False  # leafs stand in the racks and take one rack each
    zones: PositiveInt = 1
    zone_switches: NonNegativeInt = 0
    manager_ports: NonNegativeInt = 0
    links_per_cable: PositiveInt = 1
    shape: tuple[PositiveInt, ...] = ()  # torus: chips along each axis of the whole pod
    wrap_every: PositiveInt = 1  # an axis is closed where it is a multiple of this
    cube: PositiveInt | None = None  # side of the blocks joined by circuit switches
