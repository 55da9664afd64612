"""Modules, power and price of a designed network.

Prices and powers are inputs with their source; a part without one is named, never guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuscale.core.fabric.records import Design


@dataclass(frozen=True, slots=True)
class Module:
    """A pluggable optical module."""

    name: str
    links: int  # links that one module carries: 2 in a twin-port cage
    power_w: float


@dataclass(frozen=True, slots=True)
class PartTotals:
    """What the parts of a network draw and cost; None where nothing is known."""

    switch: str = "switch"
    switch_usd: float | None = None
    switch_w: tuple[float, float] | None = None  # lowest and highest figure of the chassis
    link_usd: float | None = None  # optical link: fibre and the modules of both ends
    copper_usd: float | None = None
    switch_module: Module | None = None
    host_module: Module | None = None
    copper_w: float = 0.1  # passive copper cable, both ends


@dataclass(frozen=True, slots=True)
class Item:
    """A line of the bill of materials."""

    item: str
    n: int
    power_w: float | None  # of all, at the middle of its range
    unit_usd: float | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class NetworkBill:
    """Bill of materials of a network."""

    items: tuple[Item, ...]
    power_low_w: float | None  # None: a part's power is not known
    power_high_w: float | None
    usd: float | None  # None: a part's price is not known
    unpriced: tuple[str, ...]
    unmeasured: tuple[str, ...]  # parts whose power is not known


def modules(made: Design, switch_links: int = 2, host_links: int = 1) -> tuple[int, int]:
    """Optical modules at switches and at hosts.

    A switch's modules carry `switch_links` links each, so a switch with an odd number of used
    ports needs one more than half.

    >>> from gpuscale.core.fabric.clos import design
    >>> from gpuscale.core.fabric.records import Hosts, Wish, equal_ports
    >>> modules(design(Hosts(64, 8, 8), equal_ports(64), Wish()))
    (768, 512)
    """
    ends = at_hosts = 0
    for group in made.links:
        if not group.optical:
            continue
        if group.lower == "host":
            at_hosts += math.ceil(group.n_links / host_links)
            ends += group.n_links
        else:
            ends += 2 * group.n_links
    return math.ceil(ends / switch_links), at_hosts


def bill(made: Design, parts: PartTotals) -> NetworkBill:
    """Bill of materials.

    `made`: the network. `parts`: prices and powers.

    >>> from gpuscale.core.fabric.clos import design
    >>> from gpuscale.core.fabric.records import Hosts, Wish, equal_ports
    >>> made = design(Hosts(65536, 1, 1), equal_ports(64), Wish("fat-tree"))
    >>> priced = PartTotals(switch_usd=83.0e3, link_usd=504.0)
    >>> hosts = sum(g.n_links for g in made.links if g.lower == "host")
    >>> round((bill(made, priced).usd - hosts * 504.0) / 1e6)  # switch links alone: DeepSeek 491
    491
    """
    optical = sum(g.n_links for g in made.links if g.optical)
    copper = sum(g.n_links for g in made.links if not g.optical)
    switch, host = parts.switch_module, parts.host_module
    at_switch, at_host = modules(made, switch.links if switch else 1, host.links if host else 1)
    chassis = parts.switch_w
    middle = None if chassis is None else sum(chassis) / 2
    rows: list[tuple[str, int, float | None, float | None]] = [
        (parts.switch, made.n_switches, middle, parts.switch_usd),
        ("optical link (fibre, both modules)", optical, 0.0, parts.link_usd),
        ("copper link", copper, parts.copper_w, parts.copper_usd),
    ]
    for kind, n, module in (("switch module", at_switch, switch), ("host module", at_host, host)):
        name, each_w = (f"{kind} {module.name}", module.power_w) if module else (kind, None)
        rows.append((name, n, each_w, 0.0))
    rows = [row for row in rows if row[1]]
    items = tuple(
        Item(name, n, watts and n * watts, unit, unit and n * unit) for name, n, watts, unit in rows
    )
    spread = made.n_switches * (chassis[1] - chassis[0]) / 2 if chassis else 0.0
    total = _sum([i.power_w for i in items])
    return NetworkBill(
        items,
        None if total is None else total - spread,
        None if total is None else total + spread,
        _sum([i.usd for i in items]),
        tuple(i.item for i in items if i.usd is None),
        tuple(i.item for i in items if i.power_w is None),
    )


def _sum(values: list[float | None]) -> float | None:
    """Sum; None where one of them is not known."""
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None
