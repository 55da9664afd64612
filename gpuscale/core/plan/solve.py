"""The fastest layout of a space, and the time of one, as the search has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gpuscale.core.search.engine import search
from gpuscale.core.search.problem import peak_bytes, problem_for, stages_of, step_s
from gpuscale.core.search.results import INFINITY, Found
from gpuscale.core.step.step import shape_of

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.search.space import Space

ABOVE = 1.0 + 1e-9
"""A limit of time so far above what is known that the known layout is found again."""


def fastest(
    problem: Problem,
    space: Space,
    progress: Callable[[float], None] | None = None,
    limit_s: float = INFINITY,
) -> Found | None:
    """Fastest layout that fits and takes less than `limit_s`; None if none does.

    Raises KeyboardInterrupt if the search was interrupted: what it has may not be the fastest.
    """
    result = search(
        problem, space, 0, progress, follow_families=False, limit_s=limit_s, weigh=False
    )
    if result.interrupted:
        raise KeyboardInterrupt
    return result.best


def step_of(problem: Problem, layout: Layout) -> float:
    """Time of the step of one layout, as the search has it. [s]."""
    part = problem_for(problem, layout.schedule)
    shape = shape_of(layout, part.hardware, part.software)
    return step_s(part, layout, stages_of(part, layout, shape))


def limit_of(problem: Problem, known: Iterable[Layout]) -> float:
    """Limit of time under which the fastest layout lies: the least of those that fit. [s]."""
    fitting = (y for y in known if peak_bytes(problem, y) <= problem.room_bytes)
    return min((step_of(problem, y) for y in fitting), default=INFINITY) * ABOVE
