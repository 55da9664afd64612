"""What the options of a collective change of the cluster that it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster
from gpuscale.specs.cluster import NetworkLevel

if TYPE_CHECKING:
    from gpuscale.answers.collective import Collective
    from gpuscale.specs.cluster import ClusterSpec


@dataclass(frozen=True, slots=True)
class Changed:
    """Settings of a question with those that its options stand for."""

    settings: tuple[str, ...]
    calibration: str | None


def machine(asked: Collective) -> Changed:
    """List the settings that the options stand for, after those given by hand.

    Raises GpuscaleError if the network is changed of a cluster that has none.
    """
    own: list[str] = []
    if asked.peer == "bridge":
        own.append("gpu.bridged=true")
    elif asked.peer:
        own.append(f"gpu.peer={asked.peer}")
    if asked.nics or asked.link:
        own += _network(asked, load_cluster(asked.cluster, asked.catalogue))
    if asked.gpus_per_node:
        own.append(f"cluster.gpus_per_node={asked.gpus_per_node}")
        own.append(f"cluster.scaleup_domain_gpus={asked.gpus_per_node}")
    by_hand = {text.partition("=")[0].strip() for text in asked.settings}
    kept = [text for text in own if text.partition("=")[0] not in by_hand]
    return Changed((*asked.settings, *kept), asked.calibration)


def _network(asked: Collective, spec: ClusterSpec) -> list[str]:
    """NICs of a node, as many or as fast as before where not said."""
    before = spec.nics_per_node or spec.gpus_per_node
    nics, egress = asked.nics or before, spec.node_egress_bytes_per_s
    link = asked.link or (egress / before if egress else None)
    if link is None:
        raise GpuscaleError(f"{spec.name} has no network of its own", "give --link too")
    return [
        f"cluster.nics_per_node={nics}",
        f"cluster.node_egress_bytes_per_s={nics * link:.17g} B/s",
    ]


def oversubscribed(spec: ClusterSpec, down_over_up: float | None) -> ClusterSpec:
    """Cluster whose outermost switches pass on only a part of what comes from the nodes.

    Raises GpuscaleError if more were to go up than comes from below.
    """
    if down_over_up is None:
        return spec
    if down_over_up < 1.0:
        raise GpuscaleError(
            f"--oversubscription must be at least 1, got {down_over_up:g}",
            "it is the bandwidth down over the bandwidth up: 1 is full bisection, 4 a quarter",
        )
    top = spec.levels[-1] if spec.levels else NetworkLevel(name="network")
    top = top.model_copy(update={"oversubscription": down_over_up})
    return spec.model_copy(update={"levels": (*spec.levels[:-1], top)})
