"""What a search knows so far: the best of all, of each family and grid, and what can matter yet."""

from __future__ import annotations

from collections.abc import Iterable

from gpuscale.core.search.results import FAMILY_CUTOFF, INFINITY, FoundLayout, SearchResult, grid_of

Grid = tuple[int, ...]
"""What `grid_of` says of a layout."""

Reach = tuple[Iterable[str], tuple[Grid, ...]]
"""Families and grids that some layouts can be the best of; no grids: any."""

ALIKE = 1.0 + 1e-12
"""Times whose ratio is less are the same but for rounding."""


class Incumbents:
    """Best layouts so far, and the times above which others can no longer matter."""

    def __init__(
        self, n_next: int, follow_families: bool = True, limit_s: float = INFINITY
    ) -> None:
        self.n_next, self.follow_families = n_next, follow_families
        self.result = SearchResult()
        self.grids: dict[Grid, FoundLayout] = {}
        self.limits: dict[object, float] = {}  # by families and grids, as of the last found
        self.slowest_s = self.highest_s = limit_s
        self.kth_s = self.fastest_s = self.cutoff_s = INFINITY
        self.all_families: frozenset[str] = frozenset()

    def follow(self, names: frozenset[str]) -> None:
        """Look for the best of these families too."""
        self.all_families |= names
        self.highest_s = min(self.slowest_s, self._limit(self.all_families, ()) * ALIKE)

    def _limit(self, names: Iterable[str], grids: Iterable[Grid]) -> float:
        """Weighed time above which a layout of these families and grids cannot matter. [s]."""
        best = [self.grids[g].weighed_s if g in self.grids else INFINITY for g in grids]
        limit = min(self.kth_s, max(best, default=INFINITY))
        for name in names if self.follow_families else ():
            known = self.result.families.get(name)
            limit = max(limit, known.weighed_s if known else self.cutoff_s)
        return limit

    def hopeless(self, time_s: float, share: float, reach: Reach) -> bool:
        """Whether layouts that take at least so long, with such burdens, can no longer matter.

        Those that are as good as what is known may: of them the one with least memory is wanted.
        """
        if time_s >= self.slowest_s:
            return True
        if time_s <= self.fastest_s * ALIKE:
            return False
        limit = self.limits.get(reach)
        if limit is None:
            limit = self.limits[reach] = self._limit(*reach)
        return time_s * (1.0 + share) > limit * ALIKE

    def note(self, found: FoundLayout) -> None:
        """Keep a layout that is the best of something."""
        result = self.result
        self.limits.clear()
        if result.fastest is None or found[1:3] < result.fastest[1:3]:
            result.fastest = found
            self.fastest_s = found.step_s
        if result.best is None or found[:3] < result.best[:3]:
            result.best = found
            self.cutoff_s = FAMILY_CUTOFF * found.weighed_s
        old = result.families.get(found.family)
        if old is None or found[:3] < old[:3]:
            result.families[found.family] = found
        key = grid_of(found.layout)
        seen = self.grids.get(key)
        if seen is None or found[:3] < seen[:3]:
            self.grids[key] = found
            ordered = sorted(f.weighed_s for f in self.grids.values())
            if len(ordered) > self.n_next:
                self.kth_s = ordered[self.n_next]
        self.follow(frozenset())

    def finish(self) -> SearchResult:
        """Put the result together."""
        result = self.result
        ranked = sorted(self.grids.values(), key=lambda f: f[:3])
        result.next_best = ranked[1 : self.n_next + 1]
        result.families = {k: v for k, v in result.families.items() if v.weighed_s <= self.cutoff_s}
        result.slower = tuple(sorted(self.all_families - set(result.families)))
        counts = result.counts
        seen = counts.evaluated + counts.too_large + counts.dominated
        counts.bounded = counts.declared - seen
        return result
