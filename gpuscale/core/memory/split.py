"""Which layers a pipeline stage holds."""

from __future__ import annotations

import math

SPLIT_RULES = ("even", "by-cost")


def split_layers(
    n_layers: int, pp: int, rule: str = "even", *, layer_cost: float = 1.0, head_cost: float = 0.0
) -> tuple[int, ...]:
    """Layers of each pipeline stage, first to last.

    Parameters
    ----------
    n_layers, pp : int
        Layers and stages. [1]
    rule : str
        ``even``: as even as whole layers allow; where L is no multiple of p but L + 2 is, the
        embedding and the head count as one layer each, so that the ends hold one less (Megatron
        `account_for_embedding_in_pipeline_split`). ``by-cost``: nanotron's greedy fill, where a
        stage takes layers until the running cost passes its share.
    layer_cost, head_cost : float
        Cost of one layer and of the head, for ``by-cost``, in any one unit.

    Returns
    -------
    tuple of int
        Layers per stage; their sum is `n_layers`.

    Examples
    --------
    >>> split_layers(70, 12)
    (5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5)
    >>> split_layers(10, 4)
    (2, 3, 3, 2)
    >>> split_layers(32, 8, "by-cost", layer_cost=243.3e6, head_cost=536.9e6)
    (5, 4, 4, 5, 4, 4, 4, 2)
    """
    if pp == 1:
        return (n_layers,)
    if rule == "by-cost":
        return _by_cost(n_layers, pp, layer_cost, head_cost)
    if n_layers % pp and (n_layers + 2) % pp == 0 and n_layers + 2 >= 2 * pp:
        full = (n_layers + 2) // pp
        return (full - 1, *([full] * (pp - 2)), full - 1)
    base, extra = divmod(n_layers, pp)
    first = math.ceil((pp - extra) / 2)  # what is over goes to the middle
    return tuple(base + (first <= i < first + extra) for i in range(pp))


def _by_cost(n_layers: int, pp: int, layer_cost: float, head_cost: float) -> tuple[int, ...]:
    total = n_layers * layer_cost + head_cost
    counts = [0] * pp
    stage = 0
    for layer in range(1, n_layers + 1):
        counts[stage] += 1
        if layer * layer_cost > total * (stage + 1) / pp and stage < pp - 1:
            stage += 1
    return tuple(counts)
