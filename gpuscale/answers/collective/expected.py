"""The expected time of a collective, from the calibration of its fabric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpuscale.core.network.algorithms import ALGORITHMS
from gpuscale.core.network.calibration import collective_interval_s
from gpuscale.core.network.collective import bandwidths_bytes_per_s
from gpuscale.core.network.expected import RankGroup, deduplicated_frac, group_time_s
from gpuscale.core.network.hierarchy import Level, hierarchical_time_s
from gpuscale.core.network.ideal import CollectiveTime
from gpuscale.core.records import Term
from gpuscale.io.calibration import load_fabric
from gpuscale.specs.cluster import ClusterSpec


@dataclass(frozen=True, slots=True)
class ExpectedCollective:
    """Calibrated time of a collective, its interval and bandwidths."""

    time_s: float
    low_s: float
    high_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    algorithm: str
    source: str


class Told(NamedTuple):
    """An expected time, with what it was made from."""

    answer: ExpectedCollective
    group: RankGroup
    floor_s: float

    def term(self) -> Term:
        """Explain the time: that of the links, never below the roofline of the levels."""
        from gpuscale.core.network.terms import collective_term
        from gpuscale.core.records import Term

        links = collective_term(self.group)
        inputs = {"links_s": links.value, "levels_s": self.floor_s}
        formula, e = "max(links_s, levels_s)", self.answer
        return Term("expected_time_s", e.time_s, "s", formula, inputs, e.source, children=(links,))


def expected_time(
    found: CollectiveTime,
    spec: ClusterSpec,
    levels: tuple[Level, ...],
    inner: int,
    algorithm: str | None,
    calibration: str | None,
    once_per_node_of: int = 1,
) -> Told | None:
    """Return the expected time; None for a single GPU, and for all-to-all on a torus.

    Without `algorithm` it is the one that the library would choose. `once_per_node_of` experts
    per token share one copy per node.
    """
    if found.n_gpus == inner or any(level.name == "torus" for level in found.levels):
        return None
    fabric = load_fabric(spec, calibration)
    ranks = found.n_ranks
    in_domain = max(1, min(levels[0].gpus or ranks * inner, ranks * inner) // inner)
    outs = [level.bytes_per_s_per_gpu for level in levels[1:]]
    slowest = [t.bytes_per_s_per_gpu for t in found.levels if t.name != levels[0].name]
    kind = ALGORITHMS[algorithm].measured_as if algorithm else "auto"
    if kind is None:
        return None
    source = f"calibration `{fabric.inner.name}` and `{spec.fabric_class}`"
    group = RankGroup(
        op=found.op,
        size_bytes=found.nccl_size_bytes,
        n=float(ranks),
        n_in=float(min(in_domain, ranks)),
        fabric=fabric,
        up=levels[0].bytes_per_s_per_gpu,
        out=min(slowest) if slowest else (outs[0] if outs else 0.0),
        algorithm=kind,
        network_frac=deduplicated_frac(once_per_node_of, max(1.0, ranks / in_domain)),
        source=source,
    )
    floor_s = found.bandwidth_s
    if found.op == "all-reduce" and algorithm is None and any(v.reduces for v in levels):
        floor_s = _in_switch_s(found, levels, inner)
    time_s = max(group_time_s(group), floor_s)
    low, high = collective_interval_s(time_s, found.op, ranks, min(in_domain, ranks), fabric, kind)
    size = found.nccl_size_bytes * (ranks if found.op == "all-to-all" else 1)
    algbw, busbw = bandwidths_bytes_per_s(found.op, size, ranks, time_s)
    answer = ExpectedCollective(
        time_s, max(low, floor_s), high, algbw, busbw, algorithm=kind, source=source
    )
    return Told(answer, group, floor_s)


def as_ring(group: RankGroup) -> float | None:
    """Bus bandwidth of an all-reduce as a ring between nodes; None inside a node. [byte/s]."""
    if group.op != "all-reduce" or group.n_in >= group.n:
        return None
    time_s = group_time_s(group._replace(algorithm="ring"))
    return bandwidths_bytes_per_s(group.op, group.size_bytes, int(group.n), time_s)[1]


def _in_switch_s(found: CollectiveTime, levels: tuple[Level, ...], inner: int) -> float:
    """Ideal of the same all-reduce in the switches, where they reduce."""
    args = found.op, found.array_bytes, found.n_gpus, levels
    return min(found.bandwidth_s, hierarchical_time_s(*args, "sharp", inner))
