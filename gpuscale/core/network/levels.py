"""Bandwidth of every network level of a cluster.

"How to Scale Your Model", GPU chapter, "Networking", quiz 3; bandwidths are one direction except
the bisection, which adds both as the chapter does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.network.hierarchy import level_times, network_levels, spans
from gpuscale.core.records import made_of

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec


def bisection_bytes_per_s(n_gpus: int, gpu_egress_bytes_per_s: float) -> float:
    """Bandwidth between two halves of a node, both directions added. [byte/s]."""
    return 2 * (n_gpus // 2) * gpu_egress_bytes_per_s


@dataclass(frozen=True, slots=True)
class LevelBandwidth:
    """One level of the network as `n_gpus` GPUs use it."""

    name: str
    n_children: int  # units of the level below under one unit of this level
    gpus_below: int  # GPUs under one child
    gpus_under: int  # GPUs under one unit of this level
    bytes_per_s_per_gpu: float
    bytes_per_s_per_node: float
    child_bytes_per_s: float  # link of one child into this level (W_i)
    total_bytes_per_s: float  # of all children of one unit
    bisection_bytes_per_s: float  # between two halves of the unit, both directions
    collective_bytes_per_s: float | None  # D_i W_i / (D_i - 1); None: one child, no traffic


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """Levels for a number of GPUs."""

    n_gpus: int
    n_nodes: int
    levels: tuple[LevelBandwidth, ...]
    collective_bytes_per_s: float | None  # of the slowest level
    slowest_level: str
    n_scaleup_switches: int | None  # NVSwitch chips of all domains


def network_report(cluster: ClusterSpec, n_gpus: int) -> NetworkReport:
    """Bandwidths per level.

    `cluster`: nodes, links and levels. `n_gpus`: GPUs in use, filled from the inside out [1].
    Raises ValueError if `n_gpus` is below 1 or does not fit under the levels.
    """
    levels = bandwidths(cluster, n_gpus)
    used = [level for level in levels if level.collective_bytes_per_s is not None]
    slowest = min(used, key=lambda level: level.collective_bytes_per_s or 0.0, default=None)
    domain = cluster.scaleup_domain_gpus
    per_domain = cluster.n_scaleup_switches
    return NetworkReport(
        n_gpus=n_gpus,
        n_nodes=-(-n_gpus // cluster.gpus_per_node),
        levels=levels,
        collective_bytes_per_s=slowest.collective_bytes_per_s if slowest else None,
        slowest_level=slowest.name if slowest else "",
        n_scaleup_switches=None if per_domain is None else per_domain * -(-n_gpus // domain),
    )


def bandwidths(cluster: ClusterSpec, n_gpus: int) -> tuple[LevelBandwidth, ...]:
    """Bandwidth of each level, innermost first; see `LevelBandwidth`."""
    levels = network_levels(cluster)
    if not levels:
        return ()
    times = level_times("all-gather", 1.0, n_gpus, levels) if n_gpus > 1 else ()
    allowed = {t.name: t.bandwidth_bytes_per_s for t in times if t.n_children > 1}
    result = []
    for level, span in zip(levels, spans(n_gpus, levels), strict=True):
        under = min(n_gpus, level.gpus or n_gpus)
        child = span.gpus_below * level.bytes_per_s_per_gpu
        result.append(
            made_of(
                LevelBandwidth,
                level,
                span,
                gpus_under=under,
                bytes_per_s_per_node=cluster.gpus_per_node * level.bytes_per_s_per_gpu,
                child_bytes_per_s=child,
                total_bytes_per_s=span.n_children * child,
                bisection_bytes_per_s=bisection_bytes_per_s(under, level.bytes_per_s_per_gpu),
                collective_bytes_per_s=allowed.get(level.name),
            )
        )
    return tuple(result)
