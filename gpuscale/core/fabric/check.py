"""Hold a given cable list against port budget, evenness, rail purity, planes and bisection."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpuscale.core.fabric.bill import Cable
from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class CableReport:
    """What a cable list is."""

    n_cables: int
    n_hosts: int
    n_switches: int
    tiers: tuple[tuple[str, int], ...]  # "tier 1": switches
    n_planes: int  # networks without a common switch
    worst_oversubscription: float | None  # host links over uplinks of the worst leaf
    link_loss_frac: float  # of one host's bandwidth, when one of its links fails
    leaf_loss_frac: float  # of all host links, when the fullest leaf fails
    spine_loss_frac: float | None  # of all leaf uplinks, when the fullest spine fails
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(f.ok for f in self.findings)


def check_cables(cables: Iterable[Cable], max_ports: int | None = None) -> CableReport:
    """Check a list whose A devices lie below their B devices; hosts are never B.

    `cables`: the list. `max_ports`: ports of a switch; not checked if not given [1]. Raises
    ValueError if the list is empty.

    >>> report = check_cables([Cable("h1", "1", "s1", "1", "row"), Cable("h2", "1", "s1", "1", "")])
    >>> [f.detail for f in report.findings if not f.ok]
    ['s1 port 1 has 2 cables']
    """
    rows = list(cables)
    if not rows:
        raise ValueError("the list holds no cable")
    level = _levels(rows)
    hosts = {d for d, n in level.items() if n == 0}
    switches = [d for d in level if d not in hosts]
    tiers = Counter(level[d] for d in switches)
    down, up = Counter(c.b_device for c in rows), Counter(c.a_device for c in rows)
    leafs = [d for d in switches if level[d] == 1]
    spines = [d for d in switches if level[d] == 2]
    ratios = [down[d] / up[d] for d in leafs if up[d]]
    planes = _components(rows, hosts)
    n_host_links = sum(down[d] for d in leafs)
    n_uplinks = sum(down[d] for d in spines)
    findings = [
        _twice(rows),
        *([_budget(switches, down, up, max_ports)] if max_ports else []),
        _even(rows, level),
        _same(leafs, down, "host links per leaf", spare=True),
        _same(sorted(hosts), up, "links per host"),
        _rails(rows, hosts),
        _planes(rows, hosts, planes),
        _uplinks(leafs, down, up, bool(spines)),
    ]
    return CableReport(
        n_cables=len(rows),
        n_hosts=len(hosts),
        n_switches=len(switches),
        tiers=tuple((f"tier {n}", tiers[n]) for n in sorted(tiers)),
        n_planes=len(set(planes.values())),
        worst_oversubscription=max(ratios, default=None),
        link_loss_frac=max(1 / up[h] for h in hosts),
        leaf_loss_frac=max(down[d] for d in leafs) / n_host_links,
        spine_loss_frac=max(down[d] for d in spines) / n_uplinks if spines else None,
        findings=tuple(findings),
    )


def _levels(rows: Sequence[Cable]) -> dict[str, int]:
    """Tier of every device: hosts 0, a switch with hosts 1, and one more each step from there."""
    above: dict[str, set[str]] = defaultdict(set)
    for c in rows:
        above[c.a_device].add(c.b_device)
    uppers = {c.b_device for c in rows}
    level = {c.a_device: 0 for c in rows if c.a_device not in uppers}
    if not level:
        raise ValueError("no host: every device is the upper end of a cable")
    front = list(level)
    while front:
        found = sorted({d for lower in front for d in above[lower] if d not in level})
        level.update({d: level[front[0]] + 1 for d in found})
        front = found
    return level


def _twice(rows: Sequence[Cable]) -> Finding:
    ends = Counter((c.a_device, c.a_port) for c in rows)
    ends.update((c.b_device, c.b_port) for c in rows)
    (device, port), n = ends.most_common(1)[0]
    if n > 1:
        return Finding("one cable per port", False, f"{device} port {port} has {n} cables")
    return Finding("one cable per port", True, f"{len(ends):,} ports")


def _budget(
    switches: Sequence[str], down: Mapping[str, int], up: Mapping[str, int], ports: int
) -> Finding:
    worst = max(switches, key=lambda d: down[d] + up[d])
    n = down[worst] + up[worst]
    text = f"{worst} uses {n} of {ports} ports"
    return Finding("port budget", n <= ports, text)


def _even(rows: Sequence[Cable], level: Mapping[str, int]) -> Finding:
    """Every switch has as many links to each switch above it as to the next."""
    pairs = Counter((c.a_device, c.b_device) for c in rows if level[c.a_device] > 0)
    of: dict[str, set[int]] = defaultdict(set)
    for (lower, _), n in pairs.items():
        of[lower].add(n)
    bad = next((d for d, ns in of.items() if len(ns) > 1), None)
    if bad is not None:
        low, high = min(of[bad]), max(of[bad])
        text = f"{bad} has {low} to {high} links to the switches above it"
        return Finding("even spread", False, text)
    every = sorted({n for ns in of.values() for n in ns})
    text = "links per pair of switches: " + ", ".join(map(str, every)) if every else "one tier"
    return Finding("even spread", len(every) <= 1, text)


def _same(devices: Sequence[str], n: Mapping[str, int], what: str, spare: bool = False) -> Finding:
    """All devices have one count; with `spare`, less is allowed where a unit is not full."""
    counts = Counter(n[d] for d in devices)
    low, high = min(counts), max(counts)
    text = f"{high}" if low == high else f"{low} to {high}"
    return Finding(what, spare or low == high, text)


def _rails(rows: Sequence[Cable], hosts: set[str]) -> Finding:
    """Leafs that hold one NIC of every host, or all of every host: both are pure."""
    nics: dict[str, set[str]] = defaultdict(set)
    for c in rows:
        if c.a_device in hosts:
            nics[c.b_device].add(c.a_port.split("/")[0])
    pure = sum(len(v) == 1 for v in nics.values())
    text = f"{pure} of {len(nics)} leafs hold one rail"
    return Finding("rail purity", pure in (0, len(nics)), text)


def _components(rows: Sequence[Cable], hosts: set[str]) -> dict[str, str]:
    """Switch -> a name for the network it is part of."""
    root: dict[str, str] = {}

    def find(d: str) -> str:
        root.setdefault(d, d)
        while root[d] != d:
            root[d] = root[root[d]]
            d = root[d]
        return d

    for c in rows:
        if c.a_device in hosts:
            find(c.b_device)
        else:
            root[find(c.a_device)] = find(c.b_device)
    return {d: find(d) for d in list(root)}


def _planes(rows: Sequence[Cable], hosts: set[str], planes: Mapping[str, str]) -> Finding:
    """Networks have the same hosts (planes, rails) or none in common (zones)."""
    of: dict[str, set[str]] = defaultdict(set)
    for c in rows:
        if c.a_device in hosts:
            of[planes[c.b_device]].add(c.a_device)
    groups = {frozenset(v) for v in of.values()}
    apart = sum(map(len, groups)) == len(hosts)
    text = f"{len(of)} network{'s' * (len(of) > 1)}"
    text += "" if len(groups) == 1 else f" over {len(groups)} sets of hosts"
    return Finding("planes", apart, text)


def _uplinks(
    leafs: Sequence[str], down: Mapping[str, int], up: Mapping[str, int], tiers: bool
) -> Finding:
    if not tiers:
        return Finding("bisection", True, "one tier: every host link is switched at full speed")
    cut = [d for d in leafs if not up[d]]
    if cut:
        return Finding("bisection", False, f"{cut[0]} has no uplink")
    worst = max(leafs, key=lambda d: down[d] / up[d])
    text = f"{worst}: {down[worst]} host links over {up[worst]} uplinks"
    return Finding("bisection", True, text)
