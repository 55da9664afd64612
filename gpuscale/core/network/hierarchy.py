"""Ideal collectives over several network levels: the slowest level sets the time.

"How to Scale Your Model", GPU chapter, "Collectives across nodes". The links' bandwidths are the
share of ONE GPU (450 GB/s into NVLink, 50 GB/s into the network), so that a unit of S GPUs has
S times that (errata of the chapter's notes: with the node's 400 GB/s the precise form for arrays
sharded on another axis would come out S times too small).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscale.core.network import collective
from gpuscale.core.network.collective import ALGORITHMS
from gpuscale.core.records import dataclass, made_of

if TYPE_CHECKING:
    from gpuscale.specs.hardware import ClusterSpec


@dataclass(frozen=True, slots=True)
class Level:
    """One switch level: `gpus` under one of its units, and the link of its children into it."""

    name: str
    gpus: int | None  # GPUs under one unit; None: all that there are
    bytes_per_s_per_gpu: float  # share of one GPU of a child's link into this level, one direction
    reduces: bool = False  # switches of this level can reduce (NVLS, SHARP)


@dataclass(frozen=True, slots=True)
class LevelSpan:
    """How the ranks lie on a level: children that take part, and GPUs under one child."""

    n_children: int
    gpus_below: int


@dataclass(frozen=True, slots=True)
class LevelTime:
    """Time that a collective needs on one level."""

    name: str
    n_children: int  # D_i: children that the collective's axis spans
    gpus_below: int  # max(Y, S_(i-1)): GPUs that share the link of one child
    bytes_per_s_per_gpu: float
    bandwidth_bytes_per_s: float  # array bytes per second that this level allows
    algorithm: str
    steps: int
    time_s: float


def level_time(
    level: Level, span: LevelSpan, bandwidth: float, algorithm: str, *, steps: int, time_s: float
) -> LevelTime:
    """Time of a level with how the ranks lie on it; `bandwidth` of array bytes [byte/s]."""
    rate = level.bytes_per_s_per_gpu
    lies = level.name, span.n_children, span.gpus_below, rate
    return LevelTime(*lies, bandwidth, algorithm, steps=steps, time_s=time_s)


def network_levels(cluster: ClusterSpec) -> tuple[Level, ...]:
    """Levels of a cluster, innermost (the scale-up domain) first.

    A level's `oversubscription` divides the share of the node's egress that reaches it.
    """
    domain = cluster.scaleup_domain_gpus
    scaleup = cluster.scaleup_bytes_per_s or cluster.gpu.scaleup_bytes_per_s
    egress = cluster.egress_bytes_per_s_per_gpu
    levels: list[Level] = []
    if scaleup is not None and domain > 1:
        reduces = cluster.in_switch_reduction_scaleup
        levels.append(Level("node", domain, scaleup, reduces))
    if egress is None:
        return tuple(levels)
    if not levels:
        levels.append(Level("node", 1, egress))
    reduces = cluster.in_switch_reduction_scaleout
    for level in cluster.levels:
        rate = egress / level.oversubscription
        levels.append(Level(level.name, level.gpus, rate, reduces))
    if not cluster.levels:
        levels.append(Level("network", None, egress, reduces))
    return tuple(levels)


def spans(n_ranks: int, levels: Sequence[Level], inner: int = 1) -> tuple[LevelSpan, ...]:
    """Children that each level's units have among the ranks of a job.

    `n_ranks`: GPUs of the whole job: the ranks of the collective times `inner` [1]. `levels`:
    innermost first. `inner`: GPUs of another axis that lie innermost (Y); levels wholly inside it
    drop out [1].

    >>> pod = (Level("node", 8, 450e9), Level("leaf", 256, 50e9), Level("spine", None, 50e9))
    >>> [s.n_children for s in spans(1024, pod)], [s.n_children for s in spans(1024, pod, 16)]
    ([8, 32, 4], [1, 16, 4])
    """
    collective.check_ranks(n_ranks)
    result, below = [], 1
    for level in levels:
        size = n_ranks if level.gpus is None else min(level.gpus, n_ranks)
        size = max(size, below)
        shared = max(inner, below)
        result.append(LevelSpan(max(1, math.ceil(size / shared)), shared))
        below = size
    return tuple(result)


def level_times(
    op: str,
    array_bytes: float,
    n_ranks: int,
    levels: Sequence[Level],
    algorithm: str = "ring",
    inner: int = 1,
    hop_s: float = 0.0,
) -> tuple[LevelTime, ...]:
    """Time that a collective needs on each level that it spans.

    ``array * factor(D_i) / (max(Y, S_(i-1)) * w_i)``: D_i children take part, the GPUs under each
    share their links, and inner sharding (Y) leaves each link 1/Y of the array. SHARP applies on
    levels whose switches reduce; the others use a ring.

    `op`: all-gather, reduce-scatter, all-reduce, broadcast or send-recv. `array_bytes`: the full
    array, before sharding over `inner` [byte]. `n_ranks`: GPUs spanned: the collective's ranks
    times `inner` [1]. `levels`: innermost first. `algorithm`: ring, tree or sharp, on every level.
    `inner`: Y: ways in which the array is sharded on another axis that lies innermost [1]. `hop_s`:
    latency of one hop [s]. Raises ValueError if the ranks do not fit under the levels, or `inner`
    exceeds them.

    >>> pod = (Level("node", 8, 450e9), Level("leaf", 256, 50e9), Level("spine", None, 50e9))
    >>> times = level_times("all-gather", 1e9, 1024, pod)
    >>> [round(t.bandwidth_bytes_per_s / 1e9, 1) for t in times]
    [514.3, 412.9, 17066.7]
    """
    collective.check_ranks(n_ranks, 1.0, array_bytes)
    check_span(n_ranks, levels, inner)
    if op == "send-recv":
        return _send_levels(array_bytes, n_ranks, levels, hop_s)
    found = []
    for level, span in zip(levels, spans(n_ranks, levels, inner), strict=True):
        if span.n_children <= 1:
            continue
        in_switch = algorithm in ALGORITHMS and ALGORITHMS[algorithm].in_switch
        used = "ring" if in_switch and not level.reduces else algorithm
        factor = collective.traffic_factor(op, span.n_children, used)
        link = span.gpus_below * level.bytes_per_s_per_gpu
        steps = collective.latency_steps(op, span.n_children, used)
        time_s = array_bytes * factor / link + steps * hop_s
        found.append(level_time(level, span, link / factor, used, steps=steps, time_s=time_s))
    return tuple(found)


def check_span(n_ranks: int, levels: Sequence[Level], inner: int = 1) -> None:
    """Raise ValueError if the ranks do not fit under the levels or `inner` exceeds them."""
    if inner < 1 or inner > n_ranks:
        raise ValueError(f"the inner axis must have 1 to {n_ranks} GPUs, got {inner}")
    if n_ranks > 1:
        if not levels:
            raise ValueError("no link between GPUs is known")
        top = levels[-1].gpus
        if top is not None and n_ranks > top:
            raise ValueError(f"the network joins at most {top} GPUs, got {n_ranks}")


def _send_levels(
    array_bytes: float, n_ranks: int, levels: Sequence[Level], hop_s: float
) -> tuple[LevelTime, ...]:
    """One GPU to the farthest one: through the link of the highest level that is spanned."""
    for level, span in reversed(list(zip(levels, spans(n_ranks, levels), strict=True))):
        if span.n_children > 1:
            rate = level.bytes_per_s_per_gpu
            time_s = array_bytes / rate + hop_s
            return (level_time(level, LevelSpan(2, 1), rate, "direct", steps=1, time_s=time_s),)
    return ()


def hierarchical_time_s(
    op: str,
    array_bytes: float,
    n_ranks: int,
    levels: Sequence[Level],
    algorithm: str = "ring",
    inner: int = 1,
) -> float:
    """Ideal time over all levels, pipelined: the slowest level's bandwidth time. [s].

    >>> pod = (Level("node", 8, 450e9), Level("leaf", 256, 50e9), Level("spine", None, 50e9))
    >>> hierarchical_time_s("all-gather", 1e9, 1024, pod)
    0.002421875
    >>> round(hierarchical_time_s("all-gather", 8192 * 32768 * 2, 256, pod, inner=8) * 1e3, 4)
    1.3002
    """
    times = level_times(op, array_bytes, n_ranks, levels, algorithm, inner)
    return max((t.time_s for t in times), default=0.0)


def approximate_hierarchical_time_s(
    op: str,
    array_bytes: float,
    gpu_egress_bytes_per_s: float,
    node_egress_bytes_per_s: float,
    node_gpus: int = 8,
    inner: int = 1,
    algorithm: str = "ring",
) -> float:
    """Time over nodes as the documents round it. [s].

    ``max(B / (W_gpu min(Y, D)), B D / (W_node max(D, Y)))``, twice for all-reduce without SHARP.

    `op`: all-gather, reduce-scatter or all-reduce. `array_bytes`: the full array, before sharding
    over `inner` (Y) [byte]. `gpu_egress_bytes_per_s, node_egress_bytes_per_s`: out of one GPU, out
    of one node; one direction [byte/s]. `node_gpus`: D [1].

    >>> [approximate_hierarchical_time_s("reduce-scatter", 1e9, 450e9, 400e9, inner=y)
    ...  for y in (4, 16)]
    [0.0025, 0.00125]
    """
    collective.check_ranks(1, min(gpu_egress_bytes_per_s, node_egress_bytes_per_s), array_bytes)
    factor = collective.approximate_factor(op, algorithm)
    node_s = array_bytes / gpu_egress_bytes_per_s / min(inner, node_gpus)
    out_s = array_bytes / node_egress_bytes_per_s * node_gpus / max(node_gpus, inner)
    return factor * max(node_s, out_s)


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
