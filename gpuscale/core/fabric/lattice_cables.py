"""Cable lists of networks that are no trees: dragonfly, Slim Fly, torus.

Kim et al. 2008 (dragonfly, ISCA); Besta and Hoefler 2014 (Slim Fly, arXiv:1912.08968).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product

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


def slim_fly_sets(q: int) -> tuple[frozenset[int], frozenset[int]]:
    """Make the generator sets X and X' of the McKay-Miller-Siran graph for a prime q.

    Raises ValueError if q is no prime (prime powers need a finite field's arithmetic).

    References
    ----------
    M. Besta, T. Hoefler, "Slim Fly", SC 2014, section II-B; P. Hafner, "Geometric realisation of
    the graphs of McKay-Miller-Siran", JCTB 90, 2004, doi:10.1016/j.jctb.2003.07.002.
    """
    if q < 3 or any(q % f == 0 for f in range(2, math.isqrt(q) + 1)):
        raise ValueError(f"a cable list of a Slim Fly is written for a prime q, got {q}")
    xi = next(x for x in range(2, q) if len({pow(x, e, q) for e in range(q - 1)}) == q - 1)
    powers = [pow(xi, e, q) for e in range(q - 1)]
    if q % 4 == 1:
        return frozenset(powers[0::2]), frozenset(powers[1::2])
    w = q // 4 + 1
    even = [*powers[0 : 2 * w - 1 : 2], *powers[2 * w - 1 :: 2]]
    odd = [*powers[1 : 2 * w : 2], *powers[2 * w :: 2], 1]
    return frozenset(even), frozenset(odd)


def slim_fly_pairs(q: int) -> Iterator[tuple[int, int]]:
    """Pairs of joined switches, numbered ``s q^2 + x q + y``; each set holds its negatives."""
    one, two = slim_fly_sets(q)
    for x, (y, z) in product(range(q), combinations(range(q), 2)):
        if (z - y) % q in one:
            yield x * q + y, x * q + z
        if (z - y) % q in two:
            yield q * q + x * q + y, q * q + x * q + z
    for x, m, c in product(range(q), repeat=3):
        yield x * q + (m * x + c) % q, q * q + m * q + c


def slim_fly_cables(made: Design, hosts: Hosts) -> Iterator[Cable]:
    """Links of a Slim Fly: hosts, then switches."""
    shape = dict(made.parameters)
    q, p = shape["q"], shape["p"]
    yield from _host_cables(hosts, p)
    used = [p] * (2 * q * q)
    for one, two in slim_fly_pairs(q):
        used[one] += 1
        used[two] += 1
        length = "row" if one // (q * q) == two // (q * q) else "hall"
        yield _between(one, used[one], two, used[two], length)


def torus_cables(
    shape: Sequence[int], wrapped: Sequence[bool], cube: int | None = None
) -> Iterator[Cable]:
    """Links of a torus; those that leave a cube go through a circuit switch."""
    axes = "xyzw"
    for place in product(*(range(size) for size in shape)):
        for axis, size in enumerate(shape):
            last = place[axis] == size - 1
            if size == 1 or (last and not wrapped[axis]):
                continue
            to = list(place)
            to[axis] = (place[axis] + 1) % size
            outside = cube is not None and (place[axis] + 1) % cube == 0
            yield Cable(
                "chip-" + ".".join(map(str, place)),
                f"+{axes[axis]}",
                "chip-" + ".".join(map(str, to)),
                f"-{axes[axis]}",
                "hall" if outside or last else "rack",
            )


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
