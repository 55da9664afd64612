"""Layers to pipeline stages, and the time of a pipeline of micro-batches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

BUBBLE = {"1f1b": 1.0, "gpipe": 1.0, "interleaved": 1.0, "zb-h1": 0.5, "dualpipe": 0.5}
"""Bubble relative to 1F1B where the backward pass is split in halves of equal time.

1F1B (p-1)(F+B+W), ZB-H1 (p-1)(F+B-W) (Qi et al. 2023, table 2); with B = W = F: 3 to 1 units,
but only the dgrad of the last micro-batches is on the path in practice, so half is taken.
DualPipe: (p/2-1)(F&B+B-3W) (DeepSeek-V3 report, table 2).
"""


class StagePlan(NamedTuple):
    """Layers of the heaviest stages; the head sits on the last."""

    inner_layers: int  # on the largest stage without the head
    last_layers: int  # on the stage that also has the head


def plan_stages(n_layers: int, pp: int, head_layers: float, by_cost: bool) -> StagePlan:
    """Split of equal layers over stages.

    Even, with one layer fewer on the first and last stage where `n_layers + 2` divides by `pp`
    and `n_layers` does not; an uneven rest leaves the last stage with fewer. By cost: the head
    counts as `head_layers` layers.

    Examples
    --------
    >>> plan_stages(96, 8, 0.5, False), plan_stages(126, 16, 0.5, False)
    (StagePlan(inner_layers=12, last_layers=12), StagePlan(inner_layers=8, last_layers=7))
    """
    if pp == 1:
        return StagePlan(n_layers, n_layers)
    if by_cost:
        inner = max(1, math.ceil((n_layers + head_layers) / pp - 0.05))
        last = n_layers - inner * (pp - 1)
        return StagePlan(inner, min(inner, max(0, last)))
    if n_layers % pp and (n_layers + 2) % pp == 0:
        inner = (n_layers + 2) // pp
        return StagePlan(inner, inner - 1)
    inner = math.ceil(n_layers / pp)
    return StagePlan(inner, min(inner, max(0, n_layers - inner * (pp - 1))))


def pipeline_s(
    heaviest_s: float, all_stages_s: float, n_micro_batches: int, vpp: int, schedule: str
) -> tuple[float, float]:
    """(steady, bubble) time of a pipeline.

    ``m t_max + (sum of stages - t_max) / v``: the heaviest stage works all micro-batches, and the
    first one must pass all other stages (Narayanan et al. 2021, section 2.2, for equal stages).

    Parameters
    ----------
    heaviest_s : float
        Forward and backward of one micro-batch on the slowest stage. [s]
    all_stages_s : float
        The same summed over stages. [s]
    n_micro_batches, vpp : int
        m and v. [1]
    schedule : str
        Member of `core.layout.SCHEDULES`.

    Examples
    --------
    >>> pipeline_s(2.0, 8.0, 8, 1, "1f1b")  # equal stages: bubble (p-1)/m
    (16.0, 6.0)
    """
    fill = max(0.0, all_stages_s - heaviest_s) * BUBBLE.get(schedule, 1.0) / vpp
    return n_micro_batches * heaviest_s, fill


def stage_layer_indices(n_layers: int, plan: StagePlan, pp: int) -> Sequence[range]:
    """Layer numbers of every stage, first to last, for models whose layers differ."""
    if pp == 1:
        return (range(n_layers),)
    rest = n_layers - plan.last_layers
    base, more = divmod(rest, pp - 1)
    bounds = [0]
    for i in range(pp - 1):
        bounds.append(bounds[-1] + base + (1 if i >= pp - 1 - more else 0))
    bounds.append(n_layers)
    return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


StageCounts = tuple[int, tuple[tuple[tuple[str, str], int], ...]]
"""Layers of a stage, and how many of each kind (mixer, ffn)."""


@lru_cache(maxsize=1024)
def stage_counts(
    sequence: tuple[tuple[str, str], ...], plan: StagePlan | None, pp: int
) -> tuple[StageCounts, ...]:
    """Kinds of layer on every stage, first to last; without a plan, one stage of all."""
    whole = StagePlan(len(sequence), len(sequence))
    return tuple(
        (len(r), tuple(Counter(sequence[r.start : r.stop]).items()))
        for r in stage_layer_indices(len(sequence), plan or whole, pp)
    )
