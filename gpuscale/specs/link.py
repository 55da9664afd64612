"""A link between devices or nodes: bandwidth, latency, price of a card."""

from __future__ import annotations

from pydantic import Field

from gpuscale.specs.fields import BytesPerS, Count, Seconds, Spec


class LinkSpec(Spec):
    """One kind of link; bandwidth one direction, latency as a range."""

    name: str
    title: str = ""
    kind: str  # nvlink, pcie, infiniband, ethernet
    scope: str = "port"  # what the bandwidth is of: port, slot, or all links of a GPU
    bytes_per_s: BytesPerS
    latency_low_s: Seconds | None = None
    latency_high_s: Seconds | None = None
    card_price_usd: Count | None = None
    notes: str = ""
    sources: dict[str, str] = Field(default_factory=dict)
