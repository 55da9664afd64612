"""Looking for a size: which numbers of GPUs to try, so that the one found is the one there is.

Whether a size meets conditions is no monotone function of it: a batch divides by some sizes and not
by others. So every multiple of a node is tried where there are not too many; where there are,
powers of two and some between them, and it is told that there are gaps. A plain search over the
integers; it has no physics and no source.

The searches are generators: they yield ``(size, shown)`` and are sent a `SizeVerdict`; ``shown``
says that the size is wanted in the answer whatever its verdict, else only if it meets them.
What they return is whether sizes were left out that might have been the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from enum import IntEnum

MOST_SIZES = 64
"""Most sizes tried between those that are doubled; where there are more, some are left out."""


class SizeVerdict(IntEnum):
    """What trying a size said: more GPUs are needed, it meets the conditions, fewer are needed."""

    MORE = -1
    MEETS = 0
    FEWER = 1


Seek = Generator[tuple[int, bool], SizeVerdict, bool]
Pass = Generator[tuple[int, bool], SizeVerdict, tuple[bool, bool]]


def doubled_sizes(node: int, most: int) -> Iterator[int]:
    """Parts of a node, then nodes, doubled; the last is `most`.

    >>> list(doubled_sizes(8, 80)), list(doubled_sizes(8, 3))
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 2, 3])
    """
    n = 1
    while n < min(node, most):
        yield n
        n *= 2
    n = min(node, most)
    while n < most:
        yield n
        n *= 2
    yield most


def _between(node: int, low: float, high: int) -> list[int]:
    """Multiples of a node above `low` (or at it) and below `high` that are not doubled."""
    first = max(1, -(-int(low) // node))
    return [k * node for k in range(first, -(-high // node)) if k & (k - 1)]


def _first(sizes: Sequence[int]) -> Pass:
    """First of some sizes that meets, a coarse pass first where there are many: (found, gaps)."""
    stride = -(-len(sizes) // MOST_SIZES) or 1
    for i in range(0, len(sizes), stride):
        if (yield sizes[i], False) == SizeVerdict.MEETS:
            missed = sizes[max(0, i - stride + 1) : i] if stride > 1 else ()
            yield from _first(missed)
            return True, stride > 1
    return False, stride > 1


def smallest(node: int, most: int, least: float = 0.0) -> Seek:
    """Smallest size that meets: doubled sizes until one is not too small, then those below it.

    `node`: GPUs of a node [1]. `most`: largest size [1]. `least`: sizes below it cannot meet [1].
    """
    tried, gaps = least, False
    for n in doubled_sizes(node, most):
        if n < least and n != most:
            continue
        verdict = yield n, True
        if verdict == SizeVerdict.MORE and n != most:
            continue
        below = _between(node, tried, n)
        if len(below) > MOST_SIZES and n // 2 > tried:
            below, gaps = _between(node, n // 2, n), True
        found, strided = yield from _first(below)
        gaps |= strided
        if found or verdict == SizeVerdict.MEETS:
            break
        tried = n
    return gaps


def largest(node: int, most: int, *, fastest: bool = False) -> Seek:
    """Largest size that meets: doubled sizes, then those above the last that meets, downwards.

    `node, most`: GPUs of a node, and the largest size [1]. `fastest`: whether a smaller size could
    be the answer too, because it is faster.
    """
    met = 0
    for n in doubled_sizes(node, most):
        if (yield n, False) == SizeVerdict.MEETS:
            met = n
    few = most <= MOST_SIZES * node
    top = most if few else min(most, 4 * max(met, MOST_SIZES // 4 * node))
    rest = _between(node, 0 if few and fastest else met + 1, top)[::-1]
    if few and fastest:
        for n in rest:
            yield n, False
        return False
    _, gaps = yield from _first(rest)
    return gaps or top < most or fastest
