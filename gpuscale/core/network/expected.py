"""Expected (calibrated) time of one collective over up to two levels of a cluster.

Hierarchical alpha-beta model: latency of every hop, inside the scale-up domain and between
domains; the bytes of the busiest link of each level over its bandwidth times an efficiency; and
two protocols, the low-latency one (LL: little start-up, a fraction of the bandwidth) and the
bulk one (Simple: more start-up, a pipeline that needs size to fill), of which the library takes
the faster. On top of it a smooth correction from measurements inside one domain.

Use::

    fabric = load_fabric(cluster)            # gpuscale.io.calibration
    time_s = group_time_s(RankGroup("all-reduce", size_bytes, n, n_in, fabric, up, out))

`n_in` is the number of the group's `n` ranks that share a scale-up domain; bandwidths are per GPU,
one direction. All functions are pure, sizes are floats.
"""

from __future__ import annotations

from math import exp, log2

from gpuscale.core.network.calibration import KIND, FabricCalibration
from gpuscale.core.network.collective import ALGORITHMS as NAMED
from gpuscale.core.network.collective import OPS as ONE_ARRAY
from gpuscale.core.records import NamedTuple, dataclass, replace

EXCHANGES = ("all-to-all", "moe-dispatch", "moe-combine")


def bound_s(
    op: str,
    size_bytes: float,
    n_ranks: float,
    n_in_domain: float,
    scaleup_bytes_per_s: float,
    scaleout_bytes_per_s: float,
    *,
    in_switch: bool = False,
) -> float:
    """Roofline of a collective: the slower of the scale-up domain and the network. [s].

    `op`: a name of `core.network.expected.OPS`. `size_bytes`: size as `RankGroup`
    counts it [byte]. `n_ranks, n_in_domain`: ranks of the group, and those that share a scale-up
    domain [1]. `scaleup_bytes_per_s, scaleout_bytes_per_s`: egress of one GPU inside and out of its
    domain, one direction [byte/s]. `in_switch`: the switches of the domain reduce, so that a buffer
    crosses a link once instead of 2 (n-1)/n times ("How to Scale Your Model", GPU chapter, "In
    network reductions").

    >>> round(1e3 * bound_s("all-reduce", 1e9, 8, 8, 450e9, 50e9), 3)  # ms
    3.889
    >>> round(1e3 * bound_s("all-reduce", 1e9, 8, 8, 450e9, 50e9, in_switch=True), 3)
    2.222
    """
    n, n_in = float(n_ranks), float(n_in_domain)
    n_out = n / n_in
    size, up, out = size_bytes, scaleup_bytes_per_s, scaleout_bytes_per_s
    if op in EXCHANGES:
        inner, outer = (n_in - 1.0) / n, (n - n_in) / n
    elif op in ("broadcast", "send-recv"):
        inner, outer = 1.0 if n_out == 1.0 or op == "broadcast" else 0.0, 1.0 / n_in
    else:
        passes = 2.0 if op == "all-reduce" else 1.0
        inner, outer = passes * (n_in - 1.0) / n_in, passes * (n_out - 1.0) / n_out / n_in
        if op == "all-reduce" and in_switch:
            inner = min(inner, 1.0)
    inner_s = inner * size / up if n_in > 1.0 and up > 0.0 else 0.0
    return max(inner_s, outer * size / out if n_out > 1.0 else 0.0)


OPS = (*ONE_ARRAY, "moe-dispatch", "moe-combine")
ALGORITHMS = ("auto", "ring", "tree", "nvls", "custom")

NVLS_MIN_RANKS = 8
"""Fewest ranks of a domain for which the in-switch reduction is used."""

LEVEL_BLEND = 6.0
"""Exponent with which the times of two levels add up (form)."""


def blend_levels(a: float, b: float) -> float:
    """Time of two levels that work at once: the longer one, and a little of the other."""
    high, low = (a, b) if a > b else (b, a)
    if low <= 0.0:
        return high
    return float(high * (1.0 + (low / high) ** LEVEL_BLEND) ** (1.0 / LEVEL_BLEND))


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """Bytes on the busiest link of each level and hops, of one algorithm."""

    inner_bytes: float
    outer_bytes: float  # per GPU: the ranks of a domain use their own NICs
    inner_hops: float
    outer_hops: float


def ring_traffic(size_bytes: float, n: float, n_in: float, passes: float) -> LinkTraffic:
    """Ring over all ranks: every link carries (n-1)/n of the size, in each of `passes`."""
    n_out = n / n_in
    moved = passes * size_bytes * (n - 1.0) / n
    crossings = passes * (n - 1.0) * n_out / n if n_out > 1.0 else 0.0
    outer = moved / n_in if n_out > 1.0 else 0.0
    return LinkTraffic(
        moved if n_in > 1.0 else 0.0, outer, passes * (n - 1.0) - crossings, crossings
    )


def tree_traffic(size_bytes: float, n: float, n_in: float, in_switch: bool) -> LinkTraffic:
    """All-reduce by chains inside the domains and a double tree between them.

    Inside, a rank passes the buffer up and down; with in-switch reduction it crosses once.
    """
    n_out = n / n_in
    inner = size_bytes * (1.0 if in_switch else 2.0) if n_in > 1.0 else 0.0
    outer = size_bytes * NAMED["tree"].sent(n_out) / n_in if n_out > 1.0 else 0.0
    inner_hops = 2.0 * (n_in - 1.0)
    return LinkTraffic(inner, outer, inner_hops, 2.0 * log2(n_out) if n_out > 1.0 else 0.0)


def exchange_traffic(size_bytes: float, n: float, n_in: float) -> LinkTraffic:
    """All-to-all of `size_bytes` per rank: 1/n of it to each peer, directly."""
    n_out = n / n_in
    return LinkTraffic(
        size_bytes * (n_in - 1.0) / n,
        size_bytes * (n - n_in) / n,
        log2(n_in),
        log2(n_out) if n_out > 1.0 else 0.0,
    )


def tree_channels_s(size_bytes: float, n: float, n_in: float, fabric: FabricCalibration) -> float:
    """Least time of a tree between nodes through the channels that the library gives it. [s].

    A channel a NIC, each with the buffer's share up and down again; NCCL's tuning table of GPU
    generations (`perChMaxTreeBws`, src/graph/tuning.cc) caps what one carries, which is why two
    A100 nodes with four NICs use a ring. 0 where no cap is known, or inside one domain.
    """
    two, more = fabric.inner.tree_channel_bytes_per_s
    channel = two if n / n_in <= 2.0 else more
    if n_in <= 1.0 or n_in >= n or channel <= 0.0:
        return 0.0
    return 2.0 * size_bytes / (channel * fabric.nics_per_gpu * n_in)


def reduces_in_switch(fabric: FabricCalibration, n_in_domain: float) -> bool:
    """Whether the library lets the switches of the domain reduce (NVLS)."""
    return "nvls" in fabric.inner.ops and n_in_domain >= NVLS_MIN_RANKS


class RankGroup(NamedTuple):
    """A collective among ranks, and the links that they have.

    `op`: one of `OPS`. `size_bytes`: all-gather: the gathered result; reduce-scatter: the input of
    one rank; all-reduce, broadcast, send-recv: the buffer of one rank; all-to-all, moe-dispatch,
    moe-combine: what one rank sends, its own part included (for the last two tokens * top_k *
    hidden_size * bytes; de-duplication per node is `network_frac`'s) [byte]. `n`: ranks of the
    group; `n_in`: those in one scale-up domain, 1 to n [1]. `fabric`: constants of the links. `up,
    out`: egress of one GPU inside and out of its domain, one direction [byte/s]. `algorithm`: one
    of `ALGORITHMS`; "custom" is the small-message kernel of serving libraries. `network_frac`:
    all-to-all and moe ops: share of the bytes for other domains that crosses the network, below 1
    where a token is sent once per node and fanned out inside, as DeepEP does (`deduplicated_frac`)
    [1].
    """

    op: str
    size_bytes: float
    n: float
    n_in: float
    fabric: FabricCalibration
    up: float
    out: float = 0.0
    algorithm: str = "auto"
    network_frac: float = 1.0
    source: str = ""

    @property
    def settled(self) -> RankGroup:
        """The same with the bridge of a pair, and no link that is missing where none is needed."""
        x = self._replace(up=self.up or 1.0, out=self.out or 1.0)
        if x.fabric.bridge is None or x.n_in != 2.0:
            return x
        fabric = replace(x.fabric, inner=x.fabric.bridge)
        return x._replace(fabric=fabric, up=x.fabric.bridge_bytes_per_s)

    @property
    def in_switch(self) -> bool:
        """Whether the switches of the domain may reduce."""
        asked = self.algorithm in ("auto", "custom")
        return self.algorithm == "nvls" or (asked and reduces_in_switch(self.fabric, self.n_in))

    @property
    def kind(self) -> str:
        """Operation whose measurements count, for correction and links."""
        if self.op == "all-reduce" and self.algorithm == "custom":
            return "custom"
        return KIND.get(self.op, self.op)

    @property
    def correction(self) -> float | None:
        """Logarithm of what measurements inside one domain add; None where there are none."""
        table = self.fabric.inner.op(self.kind).table
        if table is None or self.n_in < self.n or self.size_bytes < 1.0:
            return None
        return table.at(self.size_bytes, self.n)

    @property
    def least_s(self) -> float:
        """Roofline of the links. [s]."""
        out, switch = self.out / self.network_frac, self.in_switch
        return bound_s(self.op, self.size_bytes, self.n, self.n_in, self.up, out, in_switch=switch)

    def way_s(self, traffic: LinkTraffic, kind: str) -> float:
        """Time of one algorithm's traffic. [s]."""
        fabric, n_in = self.fabric, self.n_in
        inner, outer = fabric.inner.op(kind), fabric.outer.op(kind)
        latency_s = inner.base_s + inner.hop_s * traffic.inner_hops
        transfer_s = fabric.inner.transfer_s(kind, traffic.inner_bytes, n_in, self.up)
        if n_in >= self.n:
            return inner.protocol_s(latency_s, transfer_s)
        latency_s += outer.hop_s * traffic.outer_hops
        out_s = outer.transfer_s(traffic.outer_bytes, self.n / n_in, self.out)
        return outer.protocol_s(latency_s, blend_levels(transfer_s, out_s))


def ways_of(x: RankGroup) -> dict[str, tuple[LinkTraffic, str]]:
    """Ways through the links that the library may take: traffic, and kind of its measurements."""
    size, n, n_in, named = x.size_bytes, x.n, x.n_in, x.algorithm
    if x.op != "all-reduce":
        return {"algorithm_s": (traffic_of(x.op, size, n, n_in, x.network_frac), x.kind)}
    switch = reduces_in_switch(x.fabric, n_in)
    found: dict[str, tuple[LinkTraffic, str]] = {}
    if named in ("auto", "ring", "custom"):
        found["ring_s"] = ring_traffic(size, n, n_in, 2.0), "all-reduce"
    if named == "nvls" or (named in ("auto", "custom") and switch):
        found["in_switch_s"] = tree_traffic(size, n, n_in, True), "nvls"
    if named == "tree" or (named == "auto" and n_in < n and not switch):
        found["tree_s"] = tree_traffic(size, n, n_in, False), "all-reduce"
    return found


def custom_s(x: RankGroup) -> tuple[float, ...]:
    """Kernels of serving libraries: every rank reads all, or its part and the sums. [s]."""
    custom = x.op == "all-reduce" and x.algorithm == "custom"
    if not custom or x.n_in < x.n or x.n > x.fabric.inner.custom_ranks:
        return ()
    c, n = x.fabric.inner.op("custom"), x.n
    latency_s = c.base_s + c.hop_s * (n - 1.0)
    one = latency_s + c.transfer_s(x.size_bytes * (n - 1.0), n, x.up)
    moved = 2.0 * x.size_bytes * (n - 1.0) / n
    return one, latency_s * c.bulk_factor + c.transfer_s(moved, n, x.up)


def group_time_s(given: RankGroup) -> float:
    """Time expected of one collective until the last rank has its result; 0 for one rank. [s].

    Raises ValueError for an unknown name, fewer ranks than 1, or a missing bandwidth.

    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.
    .. [2] Z. Hu et al., "Demystifying NCCL", arXiv:2507.04786: protocols, rings and trees.
    """
    _check(given)
    if given.n == 1.0:
        return 0.0
    x = given.settled
    times = list(custom_s(x))
    for name, (traffic, kind) in ways_of(x).items():
        time_s = x.way_s(traffic, kind)
        if name == "tree_s":
            time_s = max(time_s, tree_channels_s(x.size_bytes, x.n, x.n_in, x.fabric))
        times.append(time_s)
    correction = x.correction
    time_s = min(times) * (1.0 if correction is None else exp(correction))
    return max(time_s, x.least_s)


def traffic_of(
    op: str, size_bytes: float, n: float, n_in: float, network_frac: float = 1.0
) -> LinkTraffic:
    """Bytes and hops of an operation that has one algorithm, all but all-reduce."""
    if op in ("all-gather", "reduce-scatter"):
        return ring_traffic(size_bytes, n, n_in, 1.0)
    if op == "broadcast":
        outer = size_bytes / n_in if n_in < n else 0.0
        hops = log2(n / n_in) if n_in < n else 0.0
        return LinkTraffic(size_bytes if n_in > 1.0 else 0.0, outer, log2(n_in), hops)
    if op == "send-recv":
        away = n_in < n
        return LinkTraffic(
            0.0 if away else size_bytes, size_bytes if away else 0.0, float(not away), float(away)
        )
    direct = exchange_traffic(size_bytes, n, n_in)
    if network_frac == 1.0:
        return direct
    fanned_out = size_bytes * (n - n_in) / n * (n_in - 1.0) / n_in
    inner, outer = direct.inner_bytes + fanned_out, direct.outer_bytes * network_frac
    return replace(direct, inner_bytes=inner, outer_bytes=outer)


def _check(x: RankGroup) -> None:
    if x.op not in OPS:
        raise ValueError(f"unknown collective {x.op!r}; known: {', '.join(OPS)}")
    if x.algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {x.algorithm!r}; known: {', '.join(ALGORITHMS)}")
    if not (x.n >= 1.0 and 1.0 <= x.n_in <= x.n and x.size_bytes >= 0.0):
        raise ValueError(f"bad group: size {x.size_bytes}, {x.n:g} ranks, {x.n_in:g} in a domain")
    if x.n_in > 1.0 and not x.up > 0.0:
        raise ValueError("a scale-up bandwidth is needed")
    if x.n_in < x.n and not x.out > 0.0:
        raise ValueError("a scale-out bandwidth is needed for a group of several domains")
    if not 0.0 < x.network_frac <= 1.0:
        raise ValueError(f"network_frac must lie in (0, 1], got {x.network_frac}")


def destination_nodes(top_k: float, n_nodes: float, limit: float | None = None) -> float:
    """Mean number of distinct nodes among a token's experts, uniform routing."""
    nodes = n_nodes if limit is None else min(n_nodes, limit)
    return float(nodes * (1.0 - (1.0 - 1.0 / nodes) ** top_k)) if nodes > 1.0 else 1.0


def deduplicated_frac(top_k: float, n_nodes: float, limit: float | None = None) -> float:
    """Bytes on the network with one copy of a token per node, over one copy per expert.

    Libraries such as DeepEP send a token once to each node and fan it out over the scale-up
    links. Uniform routing; 1 for one expert per token.

    >>> round(deduplicated_frac(8, 4), 3)
    0.45
    """
    return min(1.0, destination_nodes(top_k, n_nodes, limit) / top_k)
