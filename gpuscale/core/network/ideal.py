"""One ideal collective on a cluster: the levels, the latency, the bandwidths, the rounded form.

Of an all-to-all (dense, top-k or ragged) `array_bytes` is the whole array over all ranks: each
holds 1/n of it and sends 1/n of that to every other, so a rank's buffer (the size in nccl-tests)
is `array_bytes / n`. "How to Scale Your Model", GPU chapter, "Collectives" and appendix B.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, lgamma, prod

from gpuscale.core.network.collective import (
    approximate_time_s,
    bandwidths_bytes_per_s,
    check_ranks,
    latency_steps,
    nccl_size_bytes,
)
from gpuscale.core.network.hierarchy import (
    Level,
    LevelSpan,
    LevelTime,
    approximate_hierarchical_time_s,
    check_span,
    level_time,
    level_times,
    spans,
)
from gpuscale.core.records import NamedTuple, dataclass

KINDS = ("dense", "top-k", "with-replacement", "without-replacement")


def reached_frac(
    n_ranks: int, top_k: int | None, kind: str = "top-k", n_experts: int | None = None
) -> float:
    """Share of the ranks that a token is sent to.

    `n_ranks`: ranks (or nodes) among which the experts are spread evenly [1]. `top_k`: experts per
    token; None is dense [1]. `kind`: ``top-k``: min(k/n, 1), the upper bound; ``with-replacement``:
    k independent draws, the expected share 1 - ((n-1)/n)^k; ``without-replacement``: k distinct
    experts of `n_experts`, 1 - C(E - E/n, k) / C(E, k).

    >>> reached_frac(8, 4)
    0.5
    >>> round(reached_frac(8, 4, "with-replacement"), 4)
    0.4138
    >>> round(reached_frac(8, 4, "without-replacement", 8), 4)
    0.5
    """
    check_ranks(n_ranks)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if top_k is None or kind == "dense":
        return 1.0
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if kind == "top-k":
        return min(top_k / n_ranks, 1.0)
    if kind == "with-replacement":
        return float(1.0 - ((n_ranks - 1) / n_ranks) ** top_k)
    if n_experts is None or n_experts < top_k:
        raise ValueError("draws without replacement need n_experts of at least top_k")
    return 1.0 - _choose_ratio(n_experts - n_experts / n_ranks, n_experts, top_k)


def _choose_ratio(of: float, total: float, k: int) -> float:
    """C(of, k) / C(total, k), in logarithms; 0 where fewer than k remain."""
    if of - k < 0:
        return 0.0
    from math import exp

    return exp(lgamma(of + 1) - lgamma(of - k + 1) - lgamma(total + 1) + lgamma(total - k + 1))


def approximate_all_to_all_s(
    array_bytes: float, n_ranks: int, link_bytes_per_s: float, reached: float = 1.0
) -> float:
    """All-to-all as the documents round it for many ranks: ``reached * array / (n link)``. [s]."""
    check_ranks(n_ranks, link_bytes_per_s, array_bytes)
    return reached * array_bytes / (n_ranks * link_bytes_per_s)


def torus_bisection_time_s(
    array_bytes: float, dims: Sequence[int], link_bytes_per_s: float
) -> float:
    """All-to-all on a torus, by the cut through its longest axis. [s].

    A quarter of the array crosses each way, over 2 n / s links (s: longest side, with the links
    that close the ring): ``array s / (8 n link)``.

    `array_bytes`: the whole array over all chips [byte]. `dims`: sides of the torus [1].
    `link_bytes_per_s`: one link, one direction [byte/s].
    """
    check_ranks(min(dims), link_bytes_per_s, array_bytes)
    chips = prod(dims)
    return 0.0 if chips == 1 else array_bytes * max(dims) / (8 * chips * link_bytes_per_s)


def level_all_to_all_times_s(
    array_bytes: float,
    n_ranks: int,
    levels: Sequence[Level],
    top_k: int | None = None,
    kind: str = "top-k",
    n_experts: int | None = None,
    once_per_node: bool = False,
) -> tuple[float, ...]:
    """Time that an all-to-all needs on each level; the whole takes the longest. [s].

    A rank's buffer (array/n) goes in equal parts to the n ranks. Inside the scale-up domain it
    carries the parts of the domain's own ranks; a link above a unit of S ranks carries the share
    of each of them that leaves the unit, (1 - S/n). All-to-all gains nothing from hierarchy.

    `array_bytes`: the whole array over all ranks [byte]. `n_ranks`: ranks [1]. `levels`: innermost
    first. `top_k, kind, n_experts`: as in `reached_frac`. `once_per_node`: a token bound for
    several ranks of a node crosses the network once (as DeepEP does).

    >>> node, net = Level("node", 8, 450e9), Level("network", None, 50e9)
    >>> [round(t * 1e6, 2) for t in level_all_to_all_times_s(1e9, 16, (node, net))]
    [60.76, 625.0]
    """
    check_ranks(n_ranks, 1.0, array_bytes)
    held = array_bytes / n_ranks
    times = []
    for i, (level, span) in enumerate(zip(levels, spans(n_ranks, levels), strict=True)):
        if span.n_children <= 1:
            times.append(0.0)
            continue
        domain = min(n_ranks, levels[0].gpus or n_ranks)
        reached, leaving = reached_frac(n_ranks, top_k, kind, n_experts), (domain - 1) / n_ranks
        if i > 0:
            leaving = 1.0 - span.gpus_below / n_ranks
        if i > 0 and once_per_node:
            n_nodes = -(-n_ranks // domain)
            reached = reached_frac(n_nodes, top_k, kind, n_experts) * n_nodes / n_ranks
        times.append(reached * held * leaving / level.bytes_per_s_per_gpu)
    return tuple(times)


SOURCE = 'How to Scale Your Model, GPU chapter, "Collectives on GPUs"'


MOST_SIZES = 1000
"""Longest table of sizes."""


class Routing(NamedTuple):
    """How an all-to-all is sparse; dense without `top_k`."""

    top_k: int | None = None
    kind: str = "top-k"
    n_experts: int | None = None
    once_per_node: bool = False


@dataclass(frozen=True, slots=True)
class Torus:
    """Sides of a torus and one of its links, one direction."""

    dims: tuple[int, ...]
    link_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Ideal time of a collective."""

    op: str
    array_bytes: float
    nccl_size_bytes: float  # what nccl-tests calls the size, of one slice, sparse if it is
    n_gpus: int
    n_ranks: int  # GPUs of the collective's own axis: n_gpus / inner
    time_s: float
    bandwidth_s: float
    latency_s: float
    steps: int
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    approximate_s: float  # as the documents round it
    binding_level: str
    levels: tuple[LevelTime, ...]


def ideal_collective(
    op: str,
    array_bytes: float,
    n_gpus: int,
    levels: Sequence[Level],
    algorithm: str = "ring",
    inner: int = 1,
    hop_s: float = 0.0,
    routing: Routing | None = None,
    torus: Torus | None = None,
) -> CollectiveTime:
    """Ideal time of a collective over the levels of a cluster.

    `op`: a name of `core.collective.OPS`. `array_bytes`: the full array: gathered (all-gather), one
    rank's input (reduce-scatter, all-reduce, broadcast, send-recv), over all ranks (all-to-all)
    [byte]. `n_gpus`: GPUs spanned, inner axis included [1]. `levels`: from
    `core.hierarchy.network_levels`. `algorithm`: ring, tree or sharp, for all-reduce. `inner`: ways
    in which the array is sharded on another, innermost axis [1]. `hop_s`: latency of one hop; steps
    follow each other level by level [s]. `routing`: for all-to-all; None is dense. `torus`: links
    of a torus, which bound an all-to-all by its bisection.

    >>> pod = (Level("node", 8, 450e9), Level("leaf", 256, 50e9), Level("spine", None, 50e9))
    >>> t = ideal_collective("all-gather", 1e9, 1024, pod)
    >>> t.time_s, t.approximate_s, t.binding_level
    (0.002421875, 0.0025, 'leaf')
    """
    check_span(n_gpus, levels, inner)
    n_ranks, exchanged = n_gpus // inner, op == "all-to-all"
    if exchanged and inner > 1:
        raise ValueError("all-to-all with an inner axis: give the bytes of one slice instead")
    if exchanged:
        found = _all_to_all_levels(array_bytes, n_gpus, levels, routing or Routing(), hop_s)
        steps = 1 if found else 0
        if torus and n_gpus > 1:
            found = (_torus_level(array_bytes, n_gpus, torus, hop_s),)
    else:
        found = level_times(op, array_bytes, n_gpus, levels, algorithm, inner, hop_s=hop_s)
        steps = sum(t.steps for t in found)
    slowest = max(found, key=lambda t: t.time_s - t.steps * hop_s, default=None)
    bandwidth_s = slowest.time_s - slowest.steps * hop_s if slowest else 0.0
    time_s = steps * hop_s + bandwidth_s
    moved_bytes = array_bytes / inner
    if exchanged and routing:
        moved_bytes *= reached_frac(n_ranks, *routing[:3])
    algbw, busbw = bandwidths_bytes_per_s(op, moved_bytes, n_ranks, time_s)
    rounded_s = bandwidth_s
    if not torus or not exchanged:
        used, route = slowest.algorithm if slowest else algorithm, routing or Routing()
        rounded_s = _approximate(
            op, array_bytes, n=n_gpus, levels=levels, algorithm=used, inner=inner, routing=route
        )
    return CollectiveTime(
        op=op,
        array_bytes=array_bytes,
        nccl_size_bytes=nccl_size_bytes(op, moved_bytes, n_ranks),
        n_gpus=n_gpus,
        n_ranks=n_ranks,
        time_s=time_s,
        bandwidth_s=bandwidth_s,
        latency_s=steps * hop_s,
        steps=steps,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=busbw,
        approximate_s=rounded_s,
        binding_level=slowest.name if slowest else "",
        levels=found,
    )


def _torus_level(array_bytes: float, n: int, torus: Torus, hop_s: float) -> LevelTime:
    """Bisection of the torus, or of a nearly cubic slice of it."""
    dims = torus.dims
    if prod(dims) != n:
        dims = (ceil(n ** (1 / len(dims)) - 1e-9),) * (len(dims) - 1)
        dims = (*dims, ceil(n / prod(dims)))
    time_s = torus_bisection_time_s(array_bytes, dims, torus.link_bytes_per_s)
    rate = array_bytes / time_s if time_s > 0 else 0.0
    level = Level("torus", None, torus.link_bytes_per_s)
    return level_time(level, LevelSpan(n, 1), rate, "direct", steps=1, time_s=time_s + hop_s)


def _all_to_all_levels(
    array_bytes: float, n: int, levels: Sequence[Level], routing: Routing, hop_s: float
) -> tuple[LevelTime, ...]:
    times = level_all_to_all_times_s(array_bytes, n, levels, *routing)
    found = []
    for level, span, time_s in zip(levels, spans(n, levels), times, strict=True):
        if span.n_children > 1:
            steps, rate = latency_steps("all-to-all", span.n_children), 0.0
            if time_s > 0:
                rate = array_bytes / time_s
            whole = time_s + steps * hop_s
            found.append(level_time(level, span, rate, "direct", steps=steps, time_s=whole))
    return tuple(found)


def _approximate(
    op: str,
    array_bytes: float,
    n: int,
    levels: Sequence[Level],
    algorithm: str,
    inner: int,
    routing: Routing,
) -> float:
    """Time by the documents' rounded form: inside a node, or over nodes by the node's egress."""
    if n <= 1:
        return 0.0
    domain = levels[0].gpus or n
    if op == "all-to-all":
        ranks, rate = n, levels[0].bytes_per_s_per_gpu
        if n > domain:
            ranks, rate = -(-n // domain), levels[1].bytes_per_s_per_gpu * domain
        kind = "top-k" if routing.kind == "without-replacement" else routing.kind
        reached = reached_frac(ranks, routing.top_k, kind)
        return approximate_all_to_all_s(array_bytes, ranks, rate, reached)
    if n <= domain or op in ("broadcast", "send-recv"):
        top = max(i for i, s in enumerate(spans(n, levels)) if s.n_children > 1)
        rate = levels[top].bytes_per_s_per_gpu
        if op == "broadcast" and top > 0:
            rate = min(levels[0].bytes_per_s_per_gpu, rate * domain)
        return approximate_time_s(op, array_bytes / inner, rate, algorithm)
    egress = levels[0].bytes_per_s_per_gpu, levels[1].bytes_per_s_per_gpu * domain
    return approximate_hierarchical_time_s(op, array_bytes, *egress, domain, inner, algorithm)


def sweep_sizes(first_bytes: float, last_bytes: float, factor: float = 4.0) -> tuple[float, ...]:
    """Sizes from the first to the last, each `factor` times the one before, the last included.

    >>> sweep_sizes(1024.0, 40000.0)
    (1024.0, 4096.0, 16384.0, 40000.0)
    """
    sizes: list[float] = []
    size = first_bytes
    while size < last_bytes * (1 - 1e-9) and len(sizes) < MOST_SIZES:
        sizes.append(size)
        size *= factor
    return (*sizes, last_bytes)
