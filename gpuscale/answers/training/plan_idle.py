"""Any number of GPUs: the best of at most so many, where fewer of them train faster or at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gpuscale.answers.training.plan_case import PlanCase, solve
from gpuscale.core.records import dataclass
from gpuscale.core.search.results import FoundLayout, SearchResult
from gpuscale.errors import GpuscaleError

LEAST_GAIN_FRAC = 0.01
"""Fewer GPUs are proposed only for so much more speed."""

LEAST_USED_FRAC = 0.5
"""Fewer GPUs than that are not looked at."""

MOST_TRIED = 3
"""Smaller numbers that are searched where all GPUs have a layout."""


def fewer(n_gpus: int, gpus_per_node: int, sequences: int) -> list[int]:
    """Numbers of GPUs below one that divide better, largest first.

    Multiples of powers of two, on whole nodes or evenly over them, and those that share the batch
    where all do not: what data parallelism cannot share, the model must, and it divides by powers
    of two up to a node.

    >>> fewer(1000, 8, 500), fewer(13, 8, 512), fewer(2048, 8, 7680)
    ([992, 960, 896, 768, 512], [12, 8], [])
    """
    steps = (1 << i for i in range(1, n_gpus.bit_length()))
    found = {n_gpus // step * step for step in steps}
    by_model = n_gpus // math.gcd(n_gpus, sequences)
    if by_model & (by_model - 1) or by_model > gpus_per_node:
        found |= {d for d in range(n_gpus // 2 + 1, n_gpus) if sequences % d == 0}
    nodes = {n: math.ceil(n / gpus_per_node) for n in found}
    even = [n for n in found if n % nodes[n] == 0]
    return sorted((n for n in even if LEAST_USED_FRAC * n_gpus <= n < n_gpus), reverse=True)


def faster_with_fewer(
    case: PlanCase | None,
    best: FoundLayout | None,
    sizes: Iterable[int],
    make: Callable[[int], PlanCase],
) -> PlanCase | None:
    """Case of fewer GPUs that trains the most tokens a second; None: all of them are best.

    `case`: that of all GPUs; None where there is none. `best`: its best layout; None where none
    fits. `sizes`: numbers of GPUs to try [1]. `make`: puts the case of a number of GPUs together.
    """
    chosen, rate = None, 0.0
    if case is not None and best is not None:
        rate = case.batch_tokens / best.weighed_s * (1 + LEAST_GAIN_FRAC)
    for n in list(sizes)[: MOST_TRIED if rate else None]:
        try:
            tried = make(n)
            limit_s = tried.batch_tokens / rate if rate else float("inf")
            found = solve(tried, 0, follow_families=False, limit_s=limit_s).best
        except GpuscaleError:
            continue
        if found is not None and tried.batch_tokens / found.weighed_s > rate:
            chosen, rate = tried, tried.batch_tokens / found.weighed_s
    return chosen


@dataclass(frozen=True, slots=True)
class Idle:
    """What of the GPUs asked for a plan leaves idle, and why."""

    n_gpus: int  # asked for
    all_tokens_per_s: float | None = None  # of all of them; None: no layout, or none fits
    refused: str = ""  # why there is none

    def line(self, case: PlanCase, tokens_per_s: float) -> str:
        """Say it in a sentence; empty where all are used."""
        idle = self.n_gpus - case.n_gpus
        if not idle:
            return ""
        text = f"{case.n_gpus:,} of the {self.n_gpus:,} GPUs are used, {idle:,} stay idle"
        if self.all_tokens_per_s is not None:
            fewer = 1 - self.all_tokens_per_s / tokens_per_s
            return f"{text}: all of them train {100 * fewer:.0f} % fewer tokens a second."
        return f"{text}: {self.refused or 'no layout of all of them fits'}."


def of_at_most(
    n_gpus: int,
    make: Callable[[int], PlanCase],
    solved: Callable[[PlanCase], tuple[PlanCase, SearchResult]],
) -> tuple[PlanCase, SearchResult, Idle]:
    """Search all GPUs, and fewer of them where they divide badly.

    `n_gpus`: GPUs that there are [1]. `make`: puts the case of a number of GPUs together. `solved`:
    searches a case in full. Raises GpuscaleError if there is no layout of any number; the reason is
    that of all GPUs.
    """
    case, result, refused = None, None, None
    try:
        case = make(n_gpus)
        case, result = solved(case)
    except GpuscaleError as error:
        refused = error
    if case is not None and result is not None and result.interrupted:
        return case, result, Idle(n_gpus)
    node = case.cluster.gpus_per_node if case else 1
    sequences = case.problem.facts.global_batch_size if case else 0
    best = result.best if result else None
    smaller = faster_with_fewer(case, best, fewer(n_gpus, node, sequences), make)
    if smaller is not None:
        rate = case.batch_tokens / best.step_s if case and best else None
        return *solved(smaller), Idle(n_gpus, rate, str(refused or ""))
    if case is None or result is None:
        assert refused is not None
        raise refused
    return case, result, Idle(n_gpus)
