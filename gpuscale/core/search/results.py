"""Records of the search: what was found, groups of layouts, counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpuscale.core.layout import Layout
from gpuscale.core.search.space import Grid, Tail

INFINITY = float("inf")
FAMILY_CUTOFF = 1.5
"""A family is searched for its exact best up to this multiple of the best of all."""

NO_TAIL = Tail("1f1b", 1, 0, None, True, True, False, False)


class Found(NamedTuple):
    """A layout with its time and memory."""

    step_s: float
    peak_bytes: float
    layout: Layout
    family: str


class Group(NamedTuple):
    """Layouts that share all blocks but recomputation, overlap and assembly."""

    bound_s: float
    grid: Grid
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
    states: list[Tail]  # ways to shard that can need least memory
    fill: float  # smallest bubble
    least: Tail  # the one with the least activations, for bounds


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
    """Best layout, best of each family, next best grids."""

    best: Found | None = None
    families: dict[str, Found] = field(default_factory=dict)
    next_best: list[Found] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    slower: tuple[str, ...] = ()  # families without a layout that fits within FAMILY_CUTOFF
    interrupted: bool = False


def grid_of(layout: Layout) -> tuple[int, ...]:
    """Process grid of a layout: what tells one of the next best from another."""
    return (layout.tp, layout.cp, layout.pp, layout.ep, layout.etp, int(layout.zero_stage == 3))
