"""What fits: the memory a device really offers, the smallest number of GPUs, the stated error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.memory.peak import layout_activations, one_stage
from gpuscale.core.memory.stages import StageMemory
from gpuscale.core.stages import layout_stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuscale.core.layout import Layout
    from gpuscale.core.memory.facts import ModelFacts
    from gpuscale.core.memory.parameters import MemoryParameters

DEVICE_RESERVED_FRAC = 0.011
"""Part of the nominal HBM that the driver and ECC keep: PyTorch's out-of-memory messages give
79.15 GiB on an 80 GiB A100, 79.11 on an H100, 31.74 on a 32 GiB V100, 39.4 to 39.6 on 40 GiB."""

MOST_GPUS = 131_072
"""Largest number tried when looking for the smallest that fits."""

INTERVAL_80 = {
    "megatron-no-overlap": 1.04,
    "megatron-deepspeed": 1.08,
    "torchtitan": 1.08,
    "nanotron": 1.13,
    "megatron-core": 1.08,
    "megatron-bridge": 1.10,
    "megatron-lm": 1.08,
    "mlperf-submission": 1.10,
}
"""Factor that holds 80 % of measured peaks, by family: the 80 % quantile of |ln(ratio)| over the
published rows (27, 51, 13 and 1243 of the first four); the others take their sister's, wider where
no row of the family prints its memory."""

INTERVAL_80_UNKNOWN = 1.25
"""For families without any measured peak, and recipes that are not the family's own."""


def usable_bytes(hbm_bytes: float, stated_bytes: float | None = None) -> float:
    """Memory that a process can have of a device's HBM, or what its preset states. [byte].

    Stated where ECC lies in the memory itself (GDDR6 of data-centre cards) or the host shares it.
    """
    return stated_bytes or hbm_bytes * (1 - DEVICE_RESERVED_FRAC)


@dataclass(frozen=True, slots=True)
class Fewest:
    """Smallest number of GPUs that hold a job, and a layout that does it."""

    n_gpus: int
    n_nodes: int
    tp: int
    pp: int
    dp: int
    ep: int
    total_bytes: float  # of the fullest GPU


def gpu_counts(gpus_per_node: int, most: int = MOST_GPUS) -> Iterator[int]:
    """Yield numbers of GPUs worth trying: parts of a node, then whole nodes, ever coarser."""
    n = 1
    while n < gpus_per_node:
        yield n
        n *= 2
    nodes, step = 1, 1
    while nodes * gpus_per_node <= most:
        yield nodes * gpus_per_node
        if nodes >= 16 * step:
            step *= 2
        nodes += step


def _degrees(n: int, tp: int, n_layers: int) -> Iterator[int]:
    """Pipeline degrees that divide n/tp and leave a layer for each stage."""
    rest = n // tp
    for pp in range(1, min(rest, n_layers) + 1):
        if rest % pp == 0:
            yield pp


def fewest_gpus(
    model: ModelFacts,
    parameters: MemoryParameters,
    layout: Layout,
    usable: float,
    gpus_per_node: int,
    head_counts: tuple[int, ...] = (),
) -> Fewest | None:
    """Smallest number of GPUs on which a training job fits, TP inside the node.

    TP, PP, DP and EP are free; micro-batch, sequence, recompute, ZeRO stage, context parallelism,
    offload and recipe stay as in `layout`. The global batch grows to one micro-batch per rank and
    stage, if it is smaller. Of equal numbers the layout with the least memory wins.

    Returns
    -------
    Fewest or None
        None where no number up to `MOST_GPUS` holds it: more GPUs stop helping.
    """

    def best_at(n: int) -> Fewest | None:
        return _best_layout(
            model,
            parameters,
            layout=layout,
            usable=usable,
            gpus_per_node=gpus_per_node,
            head_counts=head_counts,
            n=n - n % layout.cp,
        )

    if not any(best_at(n) for n in (MOST_GPUS, MOST_GPUS * 3 // 4)):
        return None
    found = (best_at(n) for n in gpu_counts(gpus_per_node) if n % layout.cp == 0)
    return next((f for f in found if f), None)


def _best_layout(
    model: ModelFacts,
    parameters: MemoryParameters,
    layout: Layout,
    usable: float,
    gpus_per_node: int,
    head_counts: tuple[int, ...],
    n: int,
) -> Fewest | None:
    """Layout of exactly `n` GPUs that needs least, if one fits."""
    n_layers = model.weights.n_layers
    n_experts = max(k.n_experts for k in model.kinds)
    best: tuple[float, Layout] | None = None
    for tp in (1, 2, 4, 8, 16):
        if tp > gpus_per_node or (n // layout.cp) % tp or any(h % tp for h in head_counts):
            continue
        for pp in _degrees(n // layout.cp, tp, n_layers):
            dp = n // (layout.cp * tp * pp)
            tried = replace(
                layout,
                tp=tp,
                pp=pp,
                dp=dp,
                vpp=1,
                etp=1,
                shard_group_size=None,
                ep=_widest_ep(n_experts, dp * layout.cp * tp),
                sequence_parallel=tp > 1,
                global_batch_size=max(layout.global_batch_size, dp * layout.micro_batch_size * pp),
            )
            limit = usable if best is None else best[0]
            total = _total_within(model, tried, parameters, limit)
            if total is not None:
                best = total, tried
    if best is None:
        return None
    total, at = best
    return Fewest(
        n_gpus=n,
        n_nodes=-(-n // gpus_per_node),
        tp=at.tp,
        pp=at.pp,
        dp=at.dp,
        ep=at.ep,
        total_bytes=total,
    )


def _total_within(
    model: ModelFacts, layout: Layout, parameters: MemoryParameters, limit: float
) -> float | None:
    """Peak of a layout, or None as soon as one stage is above the limit. [byte]."""
    stages = layout_stages(model.weights, parameters.stage_split, layout)
    acts = layout_activations(model, parameters, layout)
    total = 0.0
    for i, stage in enumerate(stages):
        total = max(total, one_stage(model, stage, i, layout, parameters, acts).total_bytes)
        if total > limit:
            return None
    return total


def _widest_ep(n_experts: int, ranks: int) -> int:
    """Widest expert parallelism that divides both experts and ranks."""
    return max(d for d in range(1, min(n_experts, ranks) + 1) if not (n_experts % d or ranks % d))


def why(stage: StageMemory, n_stages: int) -> str:
    """Say in words why this stage is the fullest."""
    if n_stages == 1:
        return "one stage"
    reasons = [f"{stage.n_layers} layers", f"{stage.in_flight_micro_batches:g} micro-batches held"]
    if stage.stage == 0:
        reasons.append("input embedding")
    if stage.stage == n_stages - 1:
        reasons.append("head and logits")
    return ", ".join(reasons)
