"""Choosing among the cases of a scan: conditions, objective, and what is worth looking at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.core.plan.records import ScanRow
from gpuscale.core.run.time import SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a plan must meet; None: no matter."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    mfu_at_least: float | None = None
    max_step_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self != Conditions()


def shortfalls(row: ScanRow, c: Conditions) -> list[str]:
    """Conditions that a case does not meet, in words; empty if it meets all.

    A deadline or budget without a known run (tokens) or price is a condition not met.
    """
    found = []
    if not row.fits:
        over = row.peak_bytes - row.capacity_bytes
        unsafe = "the upper end of its memory does not fit"
        found.append(f"does not fit by {over / 1e9:,.1f} GB" if over > 0.0 else unsafe)
    if c.deadline_s is not None and (row.days is None or row.days * SECONDS_PER_DAY > c.deadline_s):
        have = "no token budget" if row.days is None else f"{row.days:,.1f} days"
        found.append(f"{have} > {c.deadline_s / 86400:,.4g} days")
    if c.budget_usd is not None and (row.usd is None or row.usd > c.budget_usd):
        have = "no price" if row.usd is None else f"{row.usd / 1e6:,.3g} MUSD"
        found.append(f"{have} > {c.budget_usd / 1e6:,.4g} MUSD")
    if c.mfu_at_least is not None and row.mfu < c.mfu_at_least:
        found.append(f"MFU {100 * row.mfu:.1f} % < {100 * c.mfu_at_least:.4g} %")
    if c.max_step_s is not None and row.step_s > c.max_step_s:
        found.append(f"step {row.step_s:.3g} s > {c.max_step_s:.4g} s")
    return found


def excess(row: ScanRow, c: Conditions) -> float:
    """How many times over the condition that it misses by most; infinite where it does not fit.

    A condition whose figure is not known is not counted.
    """
    if not row.fits:
        return math.inf
    ratios = [1.0]
    if c.deadline_s is not None and row.days is not None:
        ratios.append(row.days * SECONDS_PER_DAY / c.deadline_s)
    if c.budget_usd is not None and row.usd is not None:
        ratios.append(row.usd / c.budget_usd)
    if c.mfu_at_least is not None:
        ratios.append(c.mfu_at_least / row.mfu)
    if c.max_step_s is not None:
        ratios.append(row.step_s / c.max_step_s)
    return max(ratios)


def least_gpus(
    tokens: float, flop_per_token: float, peak_flop_per_s: float, deadline_s: float
) -> float:
    """GPUs below which a run cannot meet a deadline even at the peak rate. [1].

    >>> round(least_gpus(15e12, 4.2e11, 989.4e12, 30 * 86400), 2)
    2456.6
    """
    return tokens * flop_per_token / (peak_flop_per_s * deadline_s)


def cost_of(row: ScanRow) -> float:
    """Price of a token in USD, or in GPU-seconds where no price is known."""
    if row.tokens_per_usd:
        return 1.0 / row.tokens_per_usd
    return row.n_gpus / row.tokens_per_s


def with_pareto(rows: Sequence[ScanRow]) -> list[ScanRow]:
    """Mark the rows that no other beats in both speed and cost."""
    fitting = [r for r in rows if r.fits]
    return [
        replace(
            r,
            pareto=r.fits
            and not any(
                (o.tokens_per_s > r.tokens_per_s and cost_of(o) <= cost_of(r))
                or (o.tokens_per_s >= r.tokens_per_s and cost_of(o) < cost_of(r))
                for o in fitting
            ),
        )
        for r in rows
    ]


def with_efficiency(rows: Sequence[ScanRow]) -> list[ScanRow]:
    """Throughput of a GPU relative to the smallest fitting row, by cluster."""
    first: dict[str, float] = {}
    for row in sorted(rows, key=lambda r: r.n_gpus):
        if row.fits:
            first.setdefault(row.cluster, row.tokens_per_s_per_gpu)
    return [
        replace(
            r,
            scaling_efficiency=(
                r.tokens_per_s_per_gpu / first[r.cluster] if r.cluster in first and r.fits else None
            ),
        )
        for r in rows
    ]


def choose(rows: Sequence[ScanRow], objective: str, size: str = "") -> ScanRow | None:
    """Pick the row that answers: of those that fit and meet the conditions, the best.

    Where a size is looked for, `step-time` means the "fewest" or the "most" GPUs, or the "fastest".
    """
    able = [r for r in rows if r.fits and r.meets]
    if not able:
        return None
    if objective == "tokens-per-dollar":
        return min(able, key=lambda r: (cost_of(r), -r.tokens_per_s))
    if objective == "memory-headroom":
        return max(able, key=lambda r: (r.capacity_bytes - r.peak_bytes, r.tokens_per_s))
    if size == "fewest":
        return min(able, key=lambda r: (r.n_gpus, -r.tokens_per_s))
    if size == "most":
        return max(able, key=lambda r: (r.n_gpus, r.tokens_per_s))
    return max(able, key=lambda r: r.tokens_per_s)
