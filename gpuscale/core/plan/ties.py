"""Layouts as fast as each other within the model's error: the more ordinary one is proposed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.search.results import Found, SearchResult

TIE_FRAC = 0.05
"""Layouts at most so much slower than the fastest are ties: on the measured grids the order of
layouts closer than this is right in little more than half of the pairs (docs/accuracy.md)."""


def n_axes(layout: Layout, domain_gpus: int) -> float:
    """How much there is to a layout: kinds of parallelism, tricks, degrees beyond a node. [1].

    Context parallelism counts more, and the more the higher its degree: 2 of 1,597 published
    layouts at 8k tokens have it at 4 or more.

    >>> from gpuscale.core.layout import Layout
    >>> n_axes(Layout(8, 8, tp=8, dp=4), 8), n_axes(Layout(8, 8, tp=4, cp=2, pp=2, vpp=2), 8)
    (1.0, 4.5)
    """
    x = layout
    context = 1.0 + math.log2(x.cp) if x.cp > 1 else 0.0
    kinds = (x.tp > 1) + context + (x.pp > 1) + (x.ep > 1)
    beyond = (x.tp * x.cp > domain_gpus) + (x.ep * x.etp > domain_gpus)
    tricks = (x.vpp > 1) + (x.recompute != "none") + (x.shard_group_size is not None)
    offload = x.offload_optimizer + x.offload_activations
    return kinds + beyond + 0.5 * tricks + offload


def ties(result: SearchResult, domain_gpus: int, tie_frac: float = TIE_FRAC) -> list[Found]:
    """Layouts found that are as fast as the best, within `tie_frac`, the simplest first."""
    best = result.best
    if best is None:
        return []
    every = [best, *result.families.values(), *result.next_best]
    near = [f for f in every if f.step_s <= best.step_s * (1 + tie_frac)]
    return sorted(near, key=lambda f: (n_axes(f.layout, domain_gpus), f.step_s))
