"""Records of the search: what was found, groups of layouts, counts."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuscale.core.dataclasses import NamedTuple, dataclass, field
from gpuscale.core.layout import Layout
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
