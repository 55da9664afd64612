"""Lines of a large piece of a log that may hold a literal: four bytes of each, looked up at once.

A log of gigabytes is mostly lines that say nothing; this finds the others at memory speed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_BITS = 20
_FACTOR = 2654435761


class Screen:
    """The rarest four bytes of every literal, as a table of hashes."""

    def __init__(self, literals: Collection[bytes], sample: bytes) -> None:
        import numpy

        self.np = numpy
        found = numpy.bincount(self._hashes(sample), minlength=1 << _BITS)
        self.table = numpy.zeros(1 << _BITS, dtype=bool)
        for literal in literals:
            grams = self._hashes(literal)
            self.table[min(grams, key=lambda h: int(found[h]))] = True

    def _hashes(self, piece: bytes) -> Any:
        np, n = self.np, len(piece)
        parts = []
        for k in range(min(4, n - 3)):
            words = np.frombuffer(piece, dtype="<u4", offset=k, count=(n - k) // 4)
            parts.append((words * np.uint32(_FACTOR)) >> np.uint32(32 - _BITS))
        return np.concatenate(parts)

    def lines(self, piece: bytes) -> list[int]:
        """Indexes of the lines that may hold a literal, in order."""
        np, n = self.np, len(piece)
        hits = []
        for k in range(min(4, n - 3)):
            words = np.frombuffer(piece, dtype="<u4", offset=k, count=(n - k) // 4)
            found = self.table[(words * np.uint32(_FACTOR)) >> np.uint32(32 - _BITS)]
            hits.append(np.flatnonzero(found) * 4 + k)
        ends = np.flatnonzero(np.frombuffer(piece, dtype=np.uint8) == 10)
        rows = np.unique(np.searchsorted(ends, np.concatenate(hits)))
        return [int(r) for r in rows]
