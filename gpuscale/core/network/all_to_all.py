"""Ideal all-to-all: dense, top-k and ragged, on one level and over nodes.

`array_bytes` is the whole array over all ranks: each rank holds 1/n of it and sends 1/n of that
to every other rank, so a rank's buffer (the size in nccl-tests) is `array_bytes / n`.
"How to Scale Your Model", GPU chapter, "Collectives" and appendix B.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, prod

from gpuscale.core.network.collective import check_ranks
from gpuscale.core.network.hierarchy import Level, spans

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
