"""Records of the search: what was found, families, groups, counts; and what can matter yet."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from gpuscale.core.layout import Layout
from gpuscale.core.records import NamedTuple, dataclass, field
from gpuscale.core.rules import RuleFacts
from gpuscale.core.search.space import ProcessGrid, Tail

INFINITY = float("inf")
FAMILY_CUTOFF = 1.5
"""A family is searched for its exact best up to this multiple of the best of all."""


class FoundLayout(NamedTuple):
    """A layout with its time and memory; the first three fields order two of them."""

    weighed_s: float  # time of a step, more by the burden of the layout
    step_s: float
    peak_bytes: float
    layout: Layout
    family: str


class LayoutGroup(NamedTuple):
    """Layouts that share all blocks but recomputation, overlap and assembly."""

    grid: ProcessGrid
    ep: int
    etp: int
    micro_batch_size: int
    sequence_parallel: bool
    precision: str
    order: str


class Tails(NamedTuple):
    """Assemblies of a group."""

    n_all: int
    schedules: list[tuple[str, int]]
    dealt: dict[int, list[tuple[str, int]]]  # vpp -> schedules whose layers are dealt as with it
    exchanges: list[Tail]  # the rest of the dimensions; times `schedules` gives what is kept
    states: tuple[Tail, ...]  # ways to shard that can need least memory
    fill: float  # smallest bubble
    least: Tail  # the one with the least activations, for bounds
    fully_sharded: tuple[int, ...]  # ZeRO-3: yes, no or both, as `grid_of` says it


@dataclass(slots=True)
class Counts:
    """How many layouts were declared, and what became of each."""

    declared: int = 0
    evaluated: int = 0
    too_large: int = 0  # do not fit in memory
    dominated: int = 0  # another layout of the same blocks is never worse
    bounded: int = 0  # a lower bound of the time is above what was found


@dataclass(slots=True)
class SearchResult:
    """Best layout, best of each family, next best grids, by their weighed time; and the fastest."""

    best: FoundLayout | None = None
    fastest: FoundLayout | None = None  # whatever its burden
    families: dict[str, FoundLayout] = field(default_factory=dict)
    next_best: list[FoundLayout] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    slower: tuple[str, ...] = ()  # families without a layout that fits within FAMILY_CUTOFF
    interrupted: bool = False


def grid_of(layout: Layout) -> tuple[int, ...]:
    """Process grid of a layout: what tells one of the next best from another."""
    return (layout.tp, layout.cp, layout.pp, layout.ep, layout.etp, int(layout.zero_stage == 3))


@cache
def _fields(record: ProcessGrid | Tail) -> dict[str, Any]:
    return record._asdict()


def make_layout(
    facts: RuleFacts, grid: ProcessGrid, tail: Tail, recompute: tuple[str, int | None], **rest: Any
) -> Layout:
    """Write the dimensions of the walk as a layout; `rest`: fields that neither of them has."""
    return Layout(
        seq_len=facts.seq_len,
        global_batch_size=facts.global_batch_size,
        recompute=recompute[0],
        recompute_layers=recompute[1],
        stage_layers=facts.stages_given(grid.pp, tail.vpp),
        **_fields(grid),
        **_fields(tail),
        **rest,
    )


def family(tp: int, pp: int, cp: int, ep: int, zero_stage: int, shard_group: int | None) -> str:
    """Name the family of a layout.

    >>> family(8, 16, 1, 1, 1, None), family(1, 1, 1, 1, 3, 64), family(1, 1, 1, 8, 0, None)
    ('TP + PP + DP', 'HSDP', 'EP + DP')
    """
    if cp > 1:
        name = "with CP"
    elif tp == 1 and pp == 1:
        name = data_parallel(zero_stage, shard_group)
    elif pp == 1:
        name = "TP + " + data_parallel(zero_stage, shard_group)
    elif tp == 1:
        name = "PP + DP"
    else:
        name = "TP + PP + DP"
    return f"EP + {name}" if ep > 1 else name


def data_parallel(zero_stage: int, shard_group: int | None) -> str:
    """DP (states replicated or sharded once a step), FSDP (ZeRO-3) or HSDP."""
    if zero_stage < 3:
        return "DP"
    return "FSDP" if shard_group is None else "HSDP"


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
