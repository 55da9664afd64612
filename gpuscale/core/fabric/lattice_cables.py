"""Cable list of a dragonfly: Kim et al. 2008 (ISCA), doi:10.1109/ISCA.2008.19."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gpuscale.core.fabric.cables import Cable
from gpuscale.core.fabric.records import Design, Hosts


def dragonfly_pairs(a: int, h: int, g: int) -> Iterator[tuple[int, int]]:
    """Global links of a dragonfly as pairs of global port numbers ``group * a h + port``.

    Every two groups get as many links as every other; ports left over go round the groups.

    >>> sorted(dragonfly_pairs(1, 2, 3))
    [(0, 2), (1, 4), (3, 5)]
    """
    ports = a * h
    if g < 2:
        return
    rounds, rest = divmod(ports, g - 1)
    for i, j in combinations(range(g), 2):
        for r in range(rounds):
            yield i * ports + r * (g - 1) + j - 1, j * ports + r * (g - 1) + i
    first = rounds * (g - 1)
    for step in range(rest // 2):
        for i in range(g):
            yield i * ports + first + 2 * step, (i + step + 1) % g * ports + first + 2 * step + 1
    if rest % 2:
        half = g // 2
        for i in range(half):
            yield i * ports + first + rest - 1, (i + half) * ports + first + rest - 1


def dragonfly_cables(made: Design, hosts: Hosts) -> Iterator[Cable]:
    """Links of a dragonfly: hosts, inside groups, between groups."""
    shape = dict(made.parameters)
    p, a, h, g = (shape[k] for k in "pahg")
    yield from _host_cables(hosts, p)
    for group in range(g):
        for i, j in combinations(range(a), 2):
            yield _between(group * a + i, p + j, group * a + j, p + i + 1, "row")
    for one, two in dragonfly_pairs(a, h, g):
        (s, k), (t, m) = divmod(one, h), divmod(two, h)
        yield _between(s, p + a + k, t, p + a + m, "hall")


def _host_cables(hosts: Hosts, p: int) -> Iterator[Cable]:
    each = hosts.nics_per_node * hosts.ports_per_nic
    for link in range(hosts.n_links):
        (node, rest), (switch, port) = divmod(link, each), divmod(link, p)
        nic, nic_port = divmod(rest, hosts.ports_per_nic)
        name = f"nic{nic + 1}" + (f"/{nic_port + 1}" if hosts.ports_per_nic > 1 else "")
        yield Cable(f"node-{node + 1:04d}", name, f"switch-{switch + 1:04d}", f"{port + 1}", "row")


def _between(one: int, one_port: int, two: int, two_port: int, length: str) -> Cable:
    return Cable(
        f"switch-{one + 1:04d}", f"{one_port}", f"switch-{two + 1:04d}", f"{two_port}", length
    )
