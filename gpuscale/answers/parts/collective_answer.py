"""What `gpuscale collective` prints: levels, bandwidths, the expected time beside the ideal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpuscale.answers.summary import changed
from gpuscale.core.network.calibration import collective_interval_s
from gpuscale.core.network.collective import (
    ALGORITHMS,
    bandwidths_bytes_per_s,
    busbw_factor,
    traffic_factor,
)
from gpuscale.core.network.expected import RankGroup, deduplicated_frac, group_time_s
from gpuscale.core.network.hierarchy import Level, LevelTime, hierarchical_time_s
from gpuscale.core.network.ideal import SOURCE, CollectiveTime
from gpuscale.core.quantity import format_si
from gpuscale.core.records import NamedTuple, Term, dataclass, term_of
from gpuscale.io.calibration import load_fabric
from gpuscale.render.document import Block, Column, Document, Facts, Table, Text
from gpuscale.specs.hardware import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscale.answers.parts.collective_case import CollectiveCase


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


COUNTED = {
    "all-gather": "the gathered result (nccl-tests: the same)",
    "reduce-scatter": "the full input of one GPU (nccl-tests: the same)",
    "all-reduce": "the buffer of one GPU (nccl-tests: the same)",
    "all-to-all": "the whole array over all GPUs (nccl-tests: one GPU's 1/n of it, --per-gpu)",
    "broadcast": "the buffer sent (nccl-tests: the same)",
    "send-recv": "the buffer sent (nccl-tests: the same)",
}
"""What --bytes counts, per operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAnswer(CollectiveTime):
    """Ideal time of a collective, and what is expected of it."""

    expected: ExpectedCollective | None
    ring_s: float | None
    switch_bytes: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class SizesAnswer:
    """The same over sizes."""

    rows: tuple[CollectiveAnswer, ...]


def _level_term(found: CollectiveTime, level: LevelTime, key: str) -> Term:
    """Array bandwidth of a level from its links."""
    used = level.algorithm if level.algorithm in ALGORITHMS else "ring"
    formula = "gpus_below * bytes_per_s_per_gpu / traffic_factor"
    factor = traffic_factor(found.op, level.n_children, used)
    values = {key: level.bandwidth_bytes_per_s, "traffic_factor": factor}
    return term_of(key, "bytes_per_s", formula, SOURCE, level, **values)


def _terms(found: CollectiveTime, told: Told | None, hop_s: float) -> tuple[Term, ...]:
    """Time, bandwidths, and the expected time with its origin."""
    terms = [_term(found, hop_s)]
    if found.time_s > 0:
        nccl, factor = "nccl-tests, doc/PERFORMANCE.md", busbw_factor(found.op, found.n_ranks)
        algbw, unit = "nccl_size_bytes / time_s", "bytes_per_s"
        busbw = f"{algbw} * busbw_factor"
        terms += [
            term_of("algbw_bytes_per_s", unit, algbw, nccl, found),
            term_of("busbw_bytes_per_s", unit, busbw, nccl, found, busbw_factor=factor),
        ]
    if told:
        terms.append(told.term())
    return tuple(terms)


def _term(found: CollectiveTime, hop_s: float) -> Term:
    """Time as arithmetic over the levels' bandwidths."""
    inputs = {"array_bytes": found.array_bytes, "steps": float(found.steps), "hop_s": hop_s}
    parts: list[str] = []
    children: list[Term] = []
    for level in found.levels:
        if level.bandwidth_bytes_per_s > 0:
            key = f"bandwidth_{level.name.replace('-', '_').replace(' ', '_')}_bytes_per_s"
            inputs[key] = level.bandwidth_bytes_per_s
            parts.append(f"array_bytes / {key}")
            if found.op != "all-to-all":
                children.append(_level_term(found, level, key))
    slowest = f"max({', '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0 * array_bytes"
    formula = f"steps * hop_s + {slowest}"
    return Term("time_s", found.time_s, "s", formula, inputs, SOURCE, children=tuple(children))


def document(case: CollectiveCase, found: CollectiveAnswer, told: Told | None) -> Document:
    """One size: answer, levels, and on request the bytes through the switches."""
    expected, asked, loaded = found.expected, case.asked, case.loaded
    op, n = found.op, found.n_gpus
    kind = "" if op != "all-reduce" else f" ({case.algorithm})"
    title = f"{op}{kind} of {_size(found.array_bytes)} on {n:,} GPU{'s' * (n > 1)} of "
    title += loaded.cluster.name
    if asked.inner > 1:
        title += f", array sharded {asked.inner} ways on an inner axis"
    said = f"{time(expected.time_s)} expected" if expected else f"{time(found.time_s)}, the ideal"
    ring_bytes_per_s = as_ring(told.group) if told and not asked.algorithm else None
    details: dict[str, list[Block]] = {
        "figures": [
            Text(f"{title}: {said}."),
            *_figures(found, ring_bytes_per_s, asked.hop_latency),
            *changed(loaded),
        ],
        "levels": [_level_table(found)] if found.levels else [],
    }
    if found.switch_bytes:
        facts = [
            (key.removesuffix("_bytes").replace("_", " "), format_si(v, "bytes"), "")
            for key, v in found.switch_bytes.items()
        ]
        details["switches"] = [Facts(facts, "Bytes through the switches")]
    return Document.layered(
        "collective",
        case.inputs | {"array_bytes": found.array_bytes},
        found,
        (),
        details,
        warnings=case.warnings,
        terms=_terms(found, told, asked.hop_latency),
        csv_table=_table([found]),
    )


time, rate = (partial(format_si, dim=dim) for dim in ("s", "bytes_per_s"))

RING_SHOWN = 1.05
"""Times the bandwidth of a ring from which, by another algorithm, the ring is told of."""


def _figures(found: CollectiveAnswer, ring_bytes_per_s: float | None, hop_s: float) -> list[Block]:
    """Time and bandwidths: expected where that is known, and by the roofline."""
    e = found.expected
    single = found.n_ranks == 1
    over = 100 * (found.approximate_s / found.bandwidth_s - 1) if found.bandwidth_s else 0.0
    steps = f"{found.steps} step{'s' * (found.steps != 1)}"
    latency = f"{steps} of {time(hop_s)}" if hop_s else f"{steps}; --hop-latency gives each a time"
    where = "one GPU: nothing to do" if single else f"ideal, bound by the {found.binding_level}"
    rows: list[tuple[str, str, str]] = []
    if e:
        chosen = "as the library chooses" if e.algorithm == "auto" else e.algorithm
        note = f"expected (80 %: {time(e.low_s)} to {time(e.high_s)}), {chosen}"
        rows.append(("time", time(e.time_s), note))
    rows.append(("roofline", time(found.time_s), where))
    if found.ring_s is not None:
        note = "ideal without reduction in the switches: --algorithm ring"
        rows.append(("ring", time(found.ring_s), note))
    for name, said in (("busbw", "as nccl-tests has it"), ("algbw", "size / time")):
        ideal = rate(getattr(found, f"{name}_bytes_per_s"))
        got = rate(getattr(e, f"{name}_bytes_per_s")) if e else ideal
        rows.append((name, got, f"{said}; roofline {ideal}" if e else said))
    if e and ring_bytes_per_s and RING_SHOWN * ring_bytes_per_s < e.busbw_bytes_per_s:
        note = "busbw with NCCL_ALGO=Ring: what the NICs carry"
        rows.append(("as a ring", rate(ring_bytes_per_s), note))
    more = [
        ("rounded", time(found.approximate_s), f"the documents' form, {over:+.1f} %"),
        ("latency", time(found.latency_s), latency),
    ]
    return [Facts([*rows, ("counted", _size(found.array_bytes), COUNTED[found.op])]), Facts(more)]


def _level_table(found: CollectiveTime) -> Table:
    columns = {
        "name": "level",
        "n_children": "children",
        "gpus_below": "GPUs below",
        "bytes_per_s_per_gpu": "link per GPU",
        "bandwidth_bytes_per_s": "array bandwidth",
        "algorithm": "algorithm",
        "time_s": "time",
    }
    return Table.of(columns, found.levels, "Levels")


def _size(value: float) -> str:
    """Bytes, in binary units where they are exact."""
    for unit, factor in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 1024.0)):
        if value >= factor and value % factor == 0 and value < 1024 * factor:
            return f"{value / factor:g} {unit}"
    return format_si(value, "bytes")


def _table(rows: Sequence[CollectiveAnswer]) -> Table:
    columns: dict[str, str | Column] = {
        "array_bytes": Column("array_bytes", "bytes", _size),
        "nccl_size_bytes": Column("nccl_size_bytes", "nccl-tests size", _size),
        "time_s": "time",
        "latency_s": "latency",
        "bandwidth_s": "bandwidth",
        "approximate_s": "rounded",
        "algbw_bytes_per_s": "algbw",
        "busbw_bytes_per_s": "busbw",
        "binding_level": "bound by",
    }
    values = [{k: getattr(r, k) for k in columns} for r in rows]
    if any(r.expected for r in rows):
        more = {"expected_s": "time_s", "expected_busbw_bytes_per_s": "busbw_bytes_per_s"}
        columns |= {"expected_s": "expected", "expected_busbw_bytes_per_s": "expected busbw"}
        for value, r in zip(values, rows, strict=True):
            value |= {name: getattr(r.expected, key, None) for name, key in more.items()}
    return Table.of(columns, values)


def sweep_document(
    case: CollectiveCase, rows: Sequence[CollectiveAnswer], told: Told | None
) -> Document:
    """Table over sizes, and how the last was made."""
    op = rows[0].op
    title = (
        f"{op} on {rows[0].n_gpus:,} GPUs of {case.loaded.cluster.name}; roofline (ideal)"
        + (", and expected apart" if any(r.expected for r in rows) else "")
        + f"\nbytes counted: {COUNTED[op]}"
    )
    return Document(
        "collective",
        case.inputs,
        SizesAnswer(tuple(rows)),
        [Text(title), _table(rows), *changed(case.loaded)],
        case.warnings,
        terms=_terms(rows[-1], told, case.asked.hop_latency),
    )
