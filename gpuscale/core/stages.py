"""The split of layers and weights over pipeline stages: one for time, memory, timeline, search.

Splits as Megatron-LM makes them (github.com/NVIDIA/Megatron-LM, transformer_block.py), and of
Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

from gpuscale.core.records import NamedTuple, dataclass

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.model.params import ModelWeights

SPLIT_RULES = ("even", "balanced", "greedy")


def split_layers(
    n_layers: int, pp: int, rule: str = "even", head_layers: float = 0.0, vpp: int = 1
) -> tuple[int, ...]:
    """Layers of each pipeline stage, first to last; none is empty but by the greedy rule.

    Where the layers divide by the stages, every stage has as many. Where L + 2 does, embedding
    and head count as one layer each, so that the ends hold one less (Megatron-Core,
    ``account_for_embedding_in_pipeline_split`` and ``account_for_loss_in_pipeline_split``).

    `n_layers, pp`: layers and stages [1]. `rule`: what happens otherwise. ``even``: as even as
    whole layers allow, the longer stages in the middle. ``balanced``: the heaviest stage is as
    light as it can be, the head counted on the last one (Megatron-Core,
    ``pipeline_model_parallel_layout``). ``greedy``, always: a stage takes layers until the running
    cost passes its share, so that the last ones may be left with the head alone (nanotron,
    `build_model`). `head_layers`: cost of what the last stage has beside its layers, in layers [1].
    `vpp`: chunks of a stage; each holds a layer, but for the first of all, which may hold the
    embedding alone, and the last, the head [1]. Raises ValueError if there are more stages than
    layers, embedding and head (but for ``greedy``), or the rule is not known.

    >>> split_layers(70, 12), split_layers(10, 4)
    ((5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5), (2, 3, 3, 2))
    >>> split_layers(4, 6), split_layers(4, 5)
    ((0, 1, 1, 1, 1, 0), (1, 1, 1, 1, 0))
    >>> split_layers(61, 8, "balanced", 4.0)
    (8, 8, 8, 8, 8, 8, 8, 5)
    >>> split_layers(32, 8, "greedy", 536.9 / 243.3)
    (5, 4, 4, 5, 4, 4, 4, 2)
    """
    if rule not in SPLIT_RULES:
        raise ValueError(f"stage split must be one of {', '.join(SPLIT_RULES)}, got {rule!r}")
    if rule == "greedy":
        return _greedy(n_layers, pp, head_layers)
    if n_layers >= 1 and 0 < pp - n_layers <= 2 and vpp == 1:  # the head alone, the embedding alone
        return (*[0] * (pp - n_layers - 1), *[1] * n_layers, 0)
    if not 1 <= pp <= n_layers:
        raise ValueError(f"pp={pp} is more than {n_layers} layers")
    if n_layers % pp == 0:
        return (n_layers // pp,) * pp
    full, rest = divmod(n_layers + 2, pp)
    if rest == 0 and full > 1:
        return (full - 1, *([full] * (pp - 2)), full - 1)
    if rule == "balanced":
        return _balanced(n_layers, pp, head_layers, vpp)
    base, extra = divmod(n_layers, pp)
    first = math.ceil((pp - extra) / 2)
    return tuple(base + (first <= i < first + extra) for i in range(pp))


def _greedy(n_layers: int, pp: int, head_layers: float) -> tuple[int, ...]:
    share = (n_layers + head_layers) / pp
    counts = [0] * pp
    stage = 0
    for layer in range(1, n_layers + 1):
        counts[stage] += 1
        if stage < pp - 1 and layer > share * (stage + 1):
            stage += 1
    return tuple(counts)


def _balanced(n_layers: int, pp: int, head_layers: float, vpp: int) -> tuple[int, ...]:
    """Last stage with the head, the others even; of equally heavy splits the longest last one."""

    def heaviest(last: int) -> float:
        return max(math.ceil((n_layers - last) / (pp - 1)), last + head_layers)

    most = n_layers - (pp - 1) * min(vpp, (n_layers + 1) // pp)
    last = min(range(max(1, vpp - 1), most + 1), key=lambda n: (heaviest(n), -n))
    base, more = divmod(n_layers - last, pp - 1)
    return (*(base + (i >= pp - 1 - more) for i in range(pp - 1)), last)


class LengthSplit(NamedTuple):
    """A split said by the layers of a stage and how many fewer the ends hold."""

    layers_per_stage: int
    less_on_first: int
    less_on_last: int
    counts: tuple[int, ...]


@lru_cache(maxsize=4096)
def splits_by_length(n_layers: int, n_stages: int) -> tuple[LengthSplit, ...]:
    """List the splits into a number of stages where the framework is told the layers of a stage.

    torchtitan makes ``ceil((n_layers + less_on_first + less_on_last) / layers_per_stage)`` stages
    and spreads the layers evenly, the rest to the first ones
    (torchtitan/distributed/pipeline_parallel.py, `generate_llm_fqn_per_model_part`).

    `n_layers, n_stages`: layers, and stages with the virtual ones [1].

    >>> splits_by_length(61, 8)[0].counts
    (8, 8, 8, 8, 8, 7, 7, 7)
    >>> splits_by_length(126, 64)[0][:3], splits_by_length(61, 56)
    ((2, 1, 1), ())
    """
    found = []
    for first, last in ((0, 0), (1, 1), (1, 0), (0, 1)):
        total = n_layers + first + last
        per_stage = math.ceil(total / n_stages)
        each, rest = divmod(total, n_stages)
        counts = [each + (i < rest) for i in range(n_stages)]
        counts[0] -= first
        counts[-1] -= last
        if math.ceil(total / per_stage) == n_stages and min(counts[1:-1], default=1) > 0:
            found.append(LengthSplit(per_stage, first, last, tuple(counts)))
    return tuple(found)


def split_text(counts: tuple[int, ...]) -> str:
    """Layers of each stage in words, equal neighbours together."""
    runs = [(n, len(list(same))) for n, same in groupby(counts)]
    return ", ".join(f"{times} x {n}" if times > 1 else str(n) for n, times in runs)


def deal(counts: tuple[int, ...], vpp: int) -> tuple[tuple[range, ...], ...]:
    """Layer numbers of the chunks of every stage, interleaved: chunk c of all stages, then c + 1.

    Chunks of a stage are as even as whole layers allow; the first stage is short in its first
    chunk, the others in their last.
    """
    sizes = []
    for stage, count in enumerate(counts):
        base, more = divmod(count, vpp)
        longer = [base + (c < more) for c in range(vpp)]
        sizes.append(longer[::-1] if stage == 0 else longer)
    chunks: list[list[range]] = [[] for _ in counts]
    at = 0
    for c in range(vpp):
        for stage, of_stage in enumerate(sizes):
            chunks[stage].append(range(at, at + of_stage[c]))
            at += of_stage[c]
    return tuple(tuple(c) for c in chunks)


def dealt_chunks(chunks: tuple[int, ...], pp: int) -> tuple[tuple[range, ...], ...]:
    """Layer numbers of the chunks of every stage, where the layers of each chunk are given."""
    ends = list(accumulate(chunks, initial=0))
    ranges = [range(a, b) for a, b in pairwise(ends)]
    return tuple(tuple(ranges[stage::pp]) for stage in range(pp))


@dataclass(frozen=True, slots=True)
class StageParams:
    """Parameters of one stage on one GPU, and its kinds of layer."""

    dense_params: float  # layers without routed experts, embedding, head: sharded over dp*cp
    expert_params: float  # routed experts: sharded over the expert data-parallel ranks
    edge_params: float  # embedding and head, part of `dense_params`
    largest_layer_params: float
    layers: tuple[tuple[int, int], ...]  # (kind, count), in order of the kinds
    n_layers: int
    has_head: bool
    widest_edge_params: float  # the larger of embedding and head: what is gathered at a time


@lru_cache(maxsize=4096)
def stage_kinds(
    model: ModelWeights, rule: str, pp: int, vpp: int, given: tuple[int, ...] | None = None
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """(kind, count) of the layers of each stage, first to last.

    `given` are the layers of each stage, or of each chunk in model order, where a layout names
    them.
    """
    counts = given or split_layers(model.n_layers, pp, rule, model.head_layers, vpp)
    found = []
    for chunks in deal(counts, vpp) if len(counts) == pp else dealt_chunks(counts, pp):
        kinds = [model.sequence[i] for chunk in chunks for i in chunk]
        found.append(tuple((k, kinds.count(k)) for k in sorted(set(kinds))))
    return tuple(found)


@lru_cache(maxsize=4096)
def stage_params(
    model: ModelWeights,
    rule: str,
    tp: int,
    pp: int,
    vpp: int,
    experts_split: int,
    given: tuple[int, ...] | None = None,
) -> tuple[StageParams, ...]:
    """Parameters of each stage on one GPU, first to last.

    `model`: the model. `rule`: one of `SPLIT_RULES`. `tp, pp, vpp`: degrees; with vpp > 1 the
    layers are dealt in chunks [1]. `experts_split`: GPUs that share the experts of a layer: ep *
    etp [1]. `given`: layers of each stage, or chunk, where a layout names them [1].
    """
    kinds = stage_kinds(model, rule, pp, vpp, given)
    one = cache(partial(_one_stage, model, tp, experts_split))
    return tuple(one(k, i == 0, i == pp - 1) for i, k in enumerate(kinds))


@lru_cache(maxsize=4096)
def distinct_stages(
    model: ModelWeights, rule: str, pp: int, vpp: int, given: tuple[int, ...] | None = None
) -> tuple[tuple[tuple[tuple[int, int], ...], int, bool, int], ...]:
    """((kind, count) of the layers, layers, whether it has the head, how many) of unlike stages."""
    counts: dict[tuple[tuple[tuple[int, int], ...], bool], int] = {}
    for i, layers in enumerate(stage_kinds(model, rule, pp, vpp, given)):
        key = (layers, i == pp - 1)
        counts[key] = counts.get(key, 0) + 1
    return tuple(
        (layers, sum(n for _, n in layers), head, times) for (layers, head), times in counts.items()
    )


@lru_cache(maxsize=4096)
def widest_stage(
    model: ModelWeights,
    rule: str,
    tp: int,
    pp: int,
    vpp: int,
    experts_split: int,
    given: tuple[int, ...] | None = None,
) -> tuple[float, float]:
    """(dense, expert) parameters on one rank of the stage with the most weights. [1]."""
    stages = stage_params(
        model, rule, tp=tp, pp=pp, vpp=vpp, experts_split=experts_split, given=given
    )
    wide = max(stages, key=lambda s: s.dense_params + s.expert_params)
    return wide.dense_params, wide.expert_params


def layout_stages(model: ModelWeights, rule: str, layout: Layout) -> tuple[StageParams, ...]:
    """Parameters of each stage of a layout on one GPU, first to last."""
    return stage_params(
        model,
        rule,
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        experts_split=layout.ep * layout.etp,
        given=layout.stage_layers,
    )


def _one_stage(
    model: ModelWeights,
    tp: int,
    experts_split: int,
    layers: tuple[tuple[int, int], ...],
    first: bool,
    last: bool,
) -> StageParams:
    ends = [model.embedding_params if first else 0.0, model.mtp_dense_params if last else 0.0]
    if last and not (model.tied and first):
        ends[1] += model.head_params
    edge = sum(ends)
    dense = sum(n * model.kinds[k].dense_params for k, n in layers)
    experts = sum(n * model.kinds[k].expert_params for k, n in layers)
    experts += model.mtp_expert_params if last else 0.0
    largest = max(
        (
            model.kinds[k].dense_params / tp + model.kinds[k].expert_params / experts_split
            for k, _ in layers
        ),
        default=0.0,
    )
    return StageParams(
        dense_params=(dense + edge) / tp,
        expert_params=experts / experts_split,
        edge_params=edge / tp,
        widest_edge_params=max(ends) / tp,
        largest_layer_params=largest,
        layers=layers,
        n_layers=sum(n for _, n in layers),
        has_head=last,
    )
