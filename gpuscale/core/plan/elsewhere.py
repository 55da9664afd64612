"""What another software would gain: schedules that the one in use does not have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpuscale.core.capabilities import ANY
from gpuscale.core.plan.estimate import estimate
from gpuscale.core.rules import against
from gpuscale.core.schedules import SCHEDULES

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.search.results import SearchResult


class Elsewhere(NamedTuple):
    """A layout that the software cannot run, and how much faster its step would be."""

    schedule: str
    layout: Layout
    gain_frac: float  # of the time of the fastest that it can run


LEAST_GAIN_FRAC = 0.01
"""Smaller gains are not worth a line."""


def gain_elsewhere(problem: Problem, result: SearchResult) -> Elsewhere | None:
    """Best schedule that the software lacks, on the layouts that were found; None: none gains.

    A bound from below: only the layouts shown are tried with it, not the whole space.
    """
    if result.best is None:
        return None
    lacking = [s for s in SCHEDULES.values() if s.searched]
    lacking = [s for s in lacking if s.name not in problem.facts.runs_on.schedules]
    anywhere = replace(problem.facts, runs_on=ANY)
    found: list[Elsewhere] = []
    for layout in {f.layout for f in (result.best, *result.families.values(), *result.next_best)}:
        for schedule in lacking if layout.pp > 1 else ():
            other = replace(layout, schedule=schedule.name, vpp=1)
            if against(other, anywhere) is None:
                tried = estimate(problem, other)
                if tried.peak_bytes <= problem.room_bytes:
                    gain = 1.0 - tried.step_s / result.best.step_s
                    found.append(Elsewhere(schedule.name, other, gain))
    best = max(found, key=lambda e: e.gain_frac, default=None)
    return best if best is not None and best.gain_frac >= LEAST_GAIN_FRAC else None
