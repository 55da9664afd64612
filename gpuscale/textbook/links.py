"""Links between devices: one-way bandwidth, latency, price of a card."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.textbook.networks import NVLINK_LINKS, bits_to_bytes_per_s, links_bytes_per_s


@dataclass(frozen=True, slots=True)
class Link:
    """One kind of link between two devices."""

    name: str
    bytes_per_s: float  # one direction; of one GPU (NVLink), slot (PCIe, x16) or port
    latency_s: tuple[float, float] | None  # usual range
    card_usd: float | None = None
    source: str = "multi-GPU Q&A, interconnect comparison"


def _nvlink(generation: int, latency_s: tuple[float, float] | None) -> Link:
    rate = links_bytes_per_s(*NVLINK_LINKS[generation])
    source = "How to Scale Your Model, GPU chapter, NVLink table; latency: multi-GPU Q&A"
    return Link(f"nvlink{generation}", rate, latency_s, source=source)


LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        _nvlink(2, (1e-6, 2e-6)),
        _nvlink(3, (1e-6, 2e-6)),
        _nvlink(4, (0.0, 1e-6)),
        _nvlink(5, None),
        Link("pcie3", 16e9, (10e-6, 10e-6)),
        Link("pcie4", 32e9, (5e-6, 5e-6)),
        Link("pcie5", 64e9, (3e-6, 5e-6)),
        Link("hdr", bits_to_bytes_per_s(200e9), (1e-6, 2e-6), 5000.0),
        Link("ndr", bits_to_bytes_per_s(400e9), None, source="FSDP and deployment notes"),
        Link("eth100", bits_to_bytes_per_s(100e9), (10e-6, 50e-6), 1000.0),
        Link("eth400", bits_to_bytes_per_s(400e9), (5e-6, 20e-6), 3000.0),
    )
}
"""Links by name; PCIe is x16 before its 128b/130b code, as the documents round it."""


def link(name: str) -> Link:
    """Link of that name.

    Raises ValueError if there is none.

    Examples
    --------
    >>> link("nvlink3").bytes_per_s, link("hdr").bytes_per_s
    (300000000000.0, 25000000000.0)
    """
    if name not in LINKS:
        raise ValueError(f"link must be one of {', '.join(LINKS)}, got {name!r}")
    return LINKS[name]
