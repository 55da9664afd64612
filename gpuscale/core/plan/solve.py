"""Searching a space in which the schedule decides how the all-to-all is overlapped."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gpuscale.core.search.engine import search
from gpuscale.core.search.problem import peak_bytes, stages_of, step_s
from gpuscale.core.search.results import (
    FAMILY_CUTOFF,
    INFINITY,
    Counts,
    Found,
    SearchResult,
    grid_of,
)
from gpuscale.core.step.dispatch import dispatched
from gpuscale.core.step.step import shape_of

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.problem import Problem
    from gpuscale.core.search.space import Space


T = TypeVar("T")


def problem_for(problem: Problem, schedule: str) -> Problem:
    """Problem as a schedule sees it: experts under DualPipe have their own dispatch."""
    software = dispatched(problem.software, schedule, problem.facts.n_experts > 0)
    if software is problem.software:
        return problem
    return replace(problem, software=software, cache=problem.cache.setdefault("dualpipe", {}))


def find(
    problem: Problem,
    space: Space,
    n_next: int = 4,
    progress: Callable[[float], None] | None = None,
    *,
    follow_families: bool = True,
    limit_s: float = INFINITY,
    weigh: bool = True,
    apart: bool = True,
) -> SearchResult:
    """Best layouts of a space, as `core.search.engine.search` finds them.

    For a mixture of experts DualPipe is searched by itself, with its own dispatch, and the two
    results are put together.

    Parameters
    ----------
    problem, space : Problem, Space
        Job and candidates.
    n_next : int
        Further process grids wanted. [1]
    follow_families : bool
        Whether the best of each family is wanted too.
    limit_s : float
        Slower steps are of no interest. [s]
    weigh : bool
        Whether burdens count; else the best is the fastest.
    apart : bool
        Whether DualPipe is searched in a second process, where the system can fork.
    progress : callable, optional
        Called with the fraction done.
    """

    def found(part: Problem, where: Space, shown: Callable[[float], None] | None) -> SearchResult:
        families = follow_families
        return search(
            part, where, n_next, shown, follow_families=families, limit_s=limit_s, weigh=weigh
        )

    rest = tuple(s for s in space.schedule if s != "dualpipe")
    if len(rest) == len(space.schedule) or problem.facts.n_experts == 0:
        return found(problem, space, progress)
    dual = problem_for(problem, "dualpipe")
    dual_space = replace(space, schedule=("dualpipe",))
    if not rest:
        return found(dual, dual_space, progress)
    other = beside(lambda: found(dual, dual_space, None)) if apart else None
    mine = found(problem, replace(space, schedule=rest), progress)
    theirs = other(mine.interrupted) if other else found(dual, dual_space, None)
    return mine if theirs is None else merged(mine, theirs, n_next)


ABOVE = 1.0 + 1e-9
"""A limit of time so far above what is known that the known layout is found again."""


def fastest(
    problem: Problem,
    space: Space,
    progress: Callable[[float], None] | None = None,
    limit_s: float = INFINITY,
    apart: bool = True,
) -> Found | None:
    """Fastest layout that fits and takes less than `limit_s`; None if none does.

    Raises KeyboardInterrupt if the search was interrupted: what it has may not be the fastest.
    """
    result = find(
        problem,
        space,
        0,
        progress,
        follow_families=False,
        limit_s=limit_s,
        weigh=False,
        apart=apart,
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


def beside(work: Callable[[], T]) -> Callable[[bool], T | None]:
    """Start work in a forked process, where there are no threads that a fork would break.

    The function returned waits for the result, or, told to stop, for what there is of it.
    """
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return lambda stop: None if stop else work()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # refused: a browser, a container without the right
        os.close(reading)
        os.close(writing)
        return lambda stop: None if stop else work()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with open(writing, "wb") as out:
                pickle.dump(work(), out)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)

    def result(stop: bool) -> T | None:
        if stop:
            os.kill(child, signal.SIGINT)
        with open(reading, "rb") as found:
            data = found.read()
        os.waitpid(child, 0)
        try:
            answer: T = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError):  # the child was stopped, or killed for memory
            return None if stop else work()
        return answer

    return result


def merged(one: SearchResult, other: SearchResult, n_next: int) -> SearchResult:
    """Put together two searches of one job over parts of its space."""
    result = SearchResult(interrupted=one.interrupted or other.interrupted)
    grids: dict[tuple[int, ...], Found] = {}
    for part in (one, other):
        for f in (*([part.best] if part.best else []), *part.next_best):
            grids[grid_of(f.layout)] = min(grids.get(grid_of(f.layout), f), f, key=lambda x: x[:3])
        for name, f in part.families.items():
            result.families[name] = min(result.families.get(name, f), f, key=lambda x: x[:3])
    ranked = sorted(grids.values(), key=lambda f: f[:3])
    fastest = [part.fastest for part in (one, other) if part.fastest]
    result.fastest = min(fastest, key=lambda f: f[1:3], default=None)
    if ranked:
        result.best = ranked[0]
        limit = FAMILY_CUTOFF * ranked[0].weighed_s
        result.families = {k: v for k, v in result.families.items() if v.weighed_s <= limit}
    result.next_best = ranked[1 : n_next + 1]
    names = {*one.families, *other.families, *one.slower, *other.slower}
    result.slower = tuple(sorted(names - set(result.families)))
    result.counts = Counts(
        *(getattr(one.counts, n) + getattr(other.counts, n) for n in Counts.__slots__)
    )
    return result
