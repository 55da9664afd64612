"""What fits: the memory a device really offers, the smallest number of GPUs, the error; terms."""

from __future__ import annotations

from collections.abc import Iterator

from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import ModelFacts, StageMemory
from gpuscale.core.memory.parameters import MemoryParameters
from gpuscale.core.memory.peak import (
    held_params,
    kept_share,
    layout_activations,
    narrow_weights,
    one_stage,
    shards_of_state,
    state_rules,
)
from gpuscale.core.records import Term, dataclass, made_of, replace, term_of, total_of
from gpuscale.core.rules import RuleFacts, against
from gpuscale.core.stages import StageParams, layout_stages
from gpuscale.core.words import MEMORY_PARTS

DEVICE_RESERVED_FRAC = 0.011
"""Part of the nominal HBM that the driver and ECC keep: PyTorch's out-of-memory messages give
79.15 GiB on an 80 GiB A100, 79.11 on an H100, 31.74 on a 32 GiB V100, 39.4 to 39.6 on 40 GiB."""

MOST_GPUS = 131_072
"""Largest number tried when looking for the smallest that fits."""


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


def fewest_gpus(
    model: ModelFacts,
    parameters: MemoryParameters,
    layout: Layout,
    facts: RuleFacts,
    *,
    room_bytes: float,
    gpus_per_node: int,
    grow_batch: bool,
    tp: int | None = None,
) -> Fewest | None:
    """Smallest number of GPUs on which a training job fits, TP inside the node.

    TP, PP, DP and EP are free, by the rules of the framework; micro-batch, sequence, recompute,
    ZeRO stage, context parallelism, offload and recipe stay as in `layout`. Of equal numbers the
    layout with the least memory wins.

    `model, parameters`: what the memory of a stage is counted from. `layout`: what stays. `facts`:
    what the rules need, with the framework; sizes and batch are those tried. `room_bytes`: memory
    of a GPU that the expected value may take: what is usable, or less to be safe [byte].
    `gpus_per_node`: GPUs of a node: its parts and whole nodes are tried [1]. `grow_batch`: whether
    the global batch grows to one micro-batch per rank and stage where it is smaller. `tp`: its
    degree, where it stays. Returns: none where no number up to `MOST_GPUS` holds it: more GPUs stop
    helping.
    """

    def at(n: int) -> Iterator[tuple[float, Layout]]:  # ever less memory
        limit = room_bytes
        for tried in _layouts(model, layout, facts, n, gpus_per_node, grow_batch):
            total = _total_within(model, tried, parameters, limit)
            if total is not None and tp in (None, tried.tp):
                yield total, tried
                limit = total

    def best_at(n: int) -> Fewest | None:
        for total, least in [*at(n)][-1:]:
            n_nodes = -(-n // gpus_per_node)
            return made_of(Fewest, least, n_nodes=n_nodes, total_bytes=total)
        return None

    largest = [n - n % layout.cp for n in (MOST_GPUS, MOST_GPUS * 3 // 4)]
    if grow_batch and not any(True for n in largest for _ in at(n)):
        return None
    before = 0
    for n in gpu_counts(gpus_per_node):
        found = best_at(n)
        if found:
            between = range(before + gpus_per_node, n, gpus_per_node)
            return next((f for f in map(best_at, between) if f), found)
        before = n // gpus_per_node * gpus_per_node
    return None


def _layouts(
    model: ModelFacts, layout: Layout, facts: RuleFacts, n: int, most_tp: int, grow_batch: bool
) -> Iterator[Layout]:
    """Layouts of exactly `n` GPUs that the framework allows, the rest as in `layout`."""
    n_experts = max(k.n_experts for k in model.kinds)
    ranks = n // layout.cp
    for tp in (1, 2, 4, 8, 16):
        if tp > most_tp or n % (layout.cp * tp):
            continue
        sequence_parallel = tp > 1 and True in facts.runs_on.sequence_parallel
        for pp in range(1, min(ranks // tp, model.weights.n_layers) + 1):
            if ranks // tp % pp:
                continue
            dp = ranks // (tp * pp)
            each = dp * layout.micro_batch_size
            batch = layout.global_batch_size
            if grow_batch:
                batch = max(-(-batch // each), pp) * each
            elif batch % each:
                continue
            tried = replace(
                layout,
                tp=tp,
                pp=pp,
                dp=dp,
                vpp=1,
                schedule="1f1b" if pp == 1 or layout.vpp > 1 else layout.schedule,
                stage_layers=None,
                etp=1,
                shard_group_size=None,
                ep=_widest_ep(n_experts, dp * layout.cp * tp),
                sequence_parallel=sequence_parallel,
                global_batch_size=batch,
            )
            if against(tried, replace(facts, n_gpus=n, global_batch_size=batch)) is None:
                yield tried


def _total_within(
    model: ModelFacts, layout: Layout, parameters: MemoryParameters, limit: float
) -> float | None:
    """Peak of a layout, or None as soon as one stage is above the limit. [byte]."""
    stages = layout_stages(model.weights, parameters.stage_split, layout)
    acts = layout_activations(model, parameters, layout)
    total = 0.0
    for i, stage in enumerate(stages):
        if i and stage is stages[i - 1]:
            continue  # it holds no more micro-batches than the one before
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


ZERO = "ZeRO (arXiv:1910.02054) section 3.1; recipe of the software preset"
KORTHIKANTI = "Korthikanti et al. 2022 (arXiv:2205.05198), by element and kind of layer"


def stage_terms(
    facts: ModelFacts, layout: Layout, p: MemoryParameters, peak: StageMemory
) -> tuple[Term, ...]:
    """States, activations and fragmentation of the stage of `peak`."""
    stage = layout_stages(facts.weights, p.stage_split, layout)[peak.stage]
    return (
        *_states(stage, layout, p, peak),
        _activations(facts, stage, layout, p, peak),
        term_of(
            "fragmentation_bytes",
            "bytes",
            "(reserved_over_allocated - 1) * allocated_bytes",
            "software preset, [memory.sources]",
            peak,
            reserved_over_allocated=p.fragmentation,
        ),
    )


def peak_term(facts: ModelFacts, layout: Layout, p: MemoryParameters, peak: StageMemory) -> Term:
    """Memory of the fullest stage by part."""
    parts = {key: getattr(peak, key) for key in MEMORY_PARTS}
    source, children = "sum of the parts of the fullest stage", stage_terms(facts, layout, p, peak)
    return total_of("peak_bytes", peak.total_bytes, "bytes", parts, source, children)


def usable_term(stated_bytes: float | None, hbm_bytes: float, usable_bytes: float) -> Term:
    """Memory that a process can have: as the preset states it, or the HBM without its reserve."""
    reserved = {"hbm_bytes": hbm_bytes, "reserved_frac": DEVICE_RESERVED_FRAC}
    return Term(
        "capacity_bytes",
        usable_bytes,
        "bytes",
        "" if stated_bytes else "hbm_bytes * (1 - reserved_frac)",
        {} if stated_bytes else reserved,
        "stated in the GPU's preset: `usable_hbm_bytes`"
        if stated_bytes
        else "memory that PyTorch reports of the nominal HBM",
    )


def _states(
    stage: StageParams, layout: Layout, p: MemoryParameters, peak: StageMemory
) -> list[Term]:
    dense, experts = held_params(stage, layout)
    linears, more = narrow_weights(stage, layout, p)
    held = {"dense_params": dense, "expert_params": experts}
    held |= {"linear_params": linears, "narrow_bytes_more": more}
    found = []
    for name, (bytes_per_param, sharded) in state_rules(layout, p).items():
        n_dense, n_expert = shards_of_state(name, layout, p)
        given = {
            "bytes_per_param": bytes_per_param,
            "dense_shards": n_dense if sharded else 1,
            "expert_shards": n_expert if sharded else 1,
        }
        formula = "bytes_per_param * (dense_params / dense_shards + expert_params / expert_shards)"
        if name == "weights_bytes" and more:
            formula += " + linear_params * narrow_bytes_more"
        found.append(term_of(name, "bytes", formula, ZERO, peak, **given, **held))
    return found


def _activations(
    facts: ModelFacts, stage: StageParams, layout: Layout, p: MemoryParameters, peak: StageMemory
) -> Term:
    acts = layout_activations(facts, p, layout)
    recomputed, on_gpu = kept_share(stage, layout, p.offloaded_layers)
    inputs = {"in_flight": peak.in_flight_micro_batches}
    sums = []
    for i, (kind, n) in enumerate(stage.layers, 1):
        inputs |= {f"layers_{i}": float(n), f"layer_bytes_{i}": acts[kind].kept_bytes}
        one = f"layer_bytes_{i}"
        if recomputed < 1.0:
            inputs |= {"recomputed_frac": recomputed, f"whole_bytes_{i}": acts[kind].whole_bytes}
            one = f"(recomputed_frac * {one} + (1 - recomputed_frac) * whole_bytes_{i})"
        sums.append(f"layers_{i} * {one}")
    formula = f"in_flight * ({' + '.join(sums) or '0'})"
    if on_gpu < 1.0:
        inputs["on_gpu_frac"] = on_gpu
        formula = formula.replace("in_flight", "in_flight * on_gpu_frac")
    if stage.has_head and facts.n_mtp_layers:
        last = acts[facts.weights.sequence[-1]].kept_bytes
        inputs |= {"mtp_layers": float(facts.n_mtp_layers), "mtp_layer_bytes": last}
        formula += " + mtp_layers * mtp_layer_bytes"
    return Term("activations_bytes", peak.activations_bytes, "bytes", formula, inputs, KORTHIKANTI)
