"""Networks: bandwidth of every level, and the design: switches, cables, power, price, losses."""

from __future__ import annotations

from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Swept, amount, flag, text, whole
from gpuscale.core.dataclasses import KW_ONLY, dataclass
from gpuscale.core.fabric import TOPOLOGIES
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document

MOST_GPUS = 10_000_000
TOPOLOGY_WORDS = {
    "rail-optimized": "rail-optimised",
    "rail": "rail-optimised",
    "fattree": "fat-tree",
    "clos": "fat-tree",
    "leaf-spine": "fat-tree",
    "spine-leaf": "fat-tree",
}


@dataclass
class Network(Swept):
    """Design of a network: bandwidth of every level, switches, cables, power, price, failures.

    Of a preset, a cluster file, or a wish: `--gpus 8192 --oversubscription 7 --switch QM9700`.
    `network check FILE` holds a cable list (CSV) against ports, evenness, rails, planes.
    Bandwidths are one direction, except the bisection per level, which adds both.
    """

    NAME: ClassVar[str] = "network"
    EXAMPLE: ClassVar[str] = "gpuscale network h100-superpod --gpus 1024"
    RESULTS: ClassVar[str] = "parts.network_blocks:NetworkAnswer parts.network_blocks:CableCheck"
    HEADLINES: ClassVar[str] = (
        "collective_bytes_per_s slowest_level n_switches n_leaf_switches n_spine_switches "
        "n_core_switches n_cables"
    )
    cluster: Asked[str | None] = text(
        f"{options.CLUSTER} Or `check` and a file. [default: {options.DEFAULT_CLUSTER}]",
        complete="cluster",
        flags=("--gpu",),
    )
    file: Asked[str | None] = text("Cable list to check, as CSV.")
    _: KW_ONLY
    gpus: Asked[int | None] = whole("GPUs in use; default: all, or 1024.", most=MOST_GPUS)
    hosts: Asked[int | None] = whole(
        "Hosts of one port each instead of GPUs in nodes, as of any network.", most=MOST_GPUS
    )
    switch: Asked[str | None] = text("Switch preset, e.g. QM9700, or a TOML file.")
    radix: Asked[int | None] = whole(
        "Ports of a switch, instead of its own.", least=2, most=10_000, flags=("--ports",)
    )
    topology: Asked[str | None] = text(
        f"{', '.join(TOPOLOGIES)}.", known=TOPOLOGIES, same=TOPOLOGY_WORDS
    )
    oversubscription: Asked[str | None] = text(
        "Bandwidth down over up, of the leaf, or of each tier from the leaf up: 7, or 1,7."
    )
    tiers: Asked[int | None] = whole("Tiers of switches, instead of as few as reach.", most=5)
    planes: Asked[int | None] = whole(
        "Separate networks over which the ports of a NIC are spread.", most=64
    )
    dual_tor: Asked[bool] = flag("Two ports of a NIC end on the two leafs of a pair.")
    nics: Asked[int | None] = whole("NICs of a node (rails).", most=256)
    ports_per_nic: Asked[int | None] = whole("Ports of a NIC, one link each.", most=64)
    gpus_per_node: Asked[int | None] = whole("GPUs of a node.", most=4096)
    link: Asked[float | None] = amount("Speed of one port of a NIC, e.g. 400Gb/s.", "bytes_per_s")
    uplink: Asked[float | None] = amount("Speed of a link between switches.", "bytes_per_s")
    rack: Asked[int | None] = whole(
        "GPUs of a rack: leafs on top of racks, one each.", most=100_000
    )
    zones: Asked[int | None] = whole("Separate copies of the network.", most=1000)
    zone_switches: Asked[int | None] = whole("Switches that join the zones.", least=0, most=1e6)
    manager_ports: Asked[int | None] = whole(
        "Host ports that the fabric manager takes.", least=0, most=1e4
    )
    shape: Asked[str | None] = text("Torus: 16x16x16; dragonfly: p,a,h,g; dragonfly+: groups.")
    switch_price: Asked[str | None] = text("Price of a switch, e.g. '36000 USD'.")
    link_price: Asked[str | None] = text("Price of an optical link with both modules, in USD.")
    switch_power: Asked[float | None] = amount("Power of a switch's chassis, e.g. '900 W'.", "w")
    cables: Asked[bool] = flag("List the cables, end by end; with --format csv alone.")
    catalogue: Asked[str] = options.catalogue()

    def answer(self) -> Document:
        """Design the network, or check a cable list."""
        if self.cluster == "check":
            from gpuscale.answers.parts.network_check import check_document

            return check_document(self)
        if self.file is not None:
            raise GpuscaleError(
                f"`{self.file[:60]}`: one cluster is designed at a time",
                "a cable list is checked by `gpuscale network check FILE`",
            )
        from gpuscale.answers.parts.network_answer import network_document

        return network_document(self)
