"""The peak memory of a training step on one GPU of each pipeline stage.

States by Rajbhandari et al. 2019 (ZeRO, arXiv:1910.02054), activations by Korthikanti et al. 2022
(arXiv:2205.05198).
"""

from __future__ import annotations

import math
from functools import lru_cache

from gpuscale.core.formats import is_narrow
from gpuscale.core.layout import Layout, hides_exchange, meant_recompute
from gpuscale.core.memory.facts import (
    ActivationSplit,
    LayerFacts,
    ModelFacts,
    StageMemory,
    layer_bytes,
)
from gpuscale.core.memory.parameters import MemoryParameters
from gpuscale.core.records import dataclass
from gpuscale.core.schedules import in_flight, schedule_of
from gpuscale.core.stages import StageParams, layout_stages


@dataclass(frozen=True, slots=True)
class KindActivations:
    """Bytes of one kind of layer and one micro-batch: as kept, and without recomputation."""

    kept_bytes: float
    whole_bytes: float


@dataclass(frozen=True, slots=True)
class StateBlock:
    """Model states and ZeRO-3 buffers of one stage. [byte]."""

    weights_bytes: float
    gradients_bytes: float
    master_bytes: float
    optimizer_bytes: float
    unsharded_loss_bytes: float  # gathered while the loss is taken
    unsharded_layer_bytes: float  # and while a layer's backward pass runs


@lru_cache(maxsize=8192)
def layer_activations(
    model: ModelFacts, parameters: MemoryParameters, of: ActivationSplit
) -> tuple[KindActivations, ...]:
    """Activations of each kind of layer: they depend on no more of a layout."""

    def bytes_of(kind: LayerFacts, split: ActivationSplit) -> float:
        return layer_bytes(kind, model.hidden_size, parameters, split)

    plain = of._replace(recompute="none")
    return tuple(KindActivations(bytes_of(k, of), bytes_of(k, plain)) for k in model.kinds)


def layout_activations(
    model: ModelFacts, parameters: MemoryParameters, layout: Layout
) -> tuple[KindActivations, ...]:
    """Activations of each kind of layer under a layout."""
    split = ActivationSplit(
        tokens=layout.micro_batch_size * layout.seq_len / layout.cp,
        context_tokens=layout.seq_len,
        tp=layout.tp,
        sequence_parallel=layout.sequence_parallel,
        etp=layout.etp,
        recompute=meant_recompute(layout.recompute, parameters.selective_per_op),
        eight_bit=parameters.quantised_inputs and is_narrow(layout.precision),
        exchanged=layout.ep > 1,
    )
    return layer_activations(model, parameters, split)


def shards(layout: Layout, over_groups: bool = False) -> tuple[int, int]:
    """GPUs that share the states of dense and of expert parameters (ZeRO, FSDP, HSDP). [1].

    `over_groups`: those that the groups of HSDP share with each other.
    """
    ranks = layout.dp * layout.cp
    dense = ranks if over_groups else min(layout.shard_group_size or ranks, ranks)
    return dense, max(1, dense * layout.tp // (layout.ep * layout.etp))


def shards_of_state(name: str, layout: Layout, parameters: MemoryParameters) -> tuple[int, int]:
    """GPUs that share a state of dense and of expert parameters: `shards`, by its name. [1]."""
    optimizer = name in ("master_bytes", "optimizer_bytes")
    return shards(layout, parameters.outer_shards and optimizer)


def held_params(stage: StageParams, layout: Layout) -> tuple[float, float]:
    """(dense, expert) parameters of a stage on one GPU, unsharded: DualPipe holds two stages."""
    copies = schedule_of(layout.schedule, layout.pp, layout.vpp).weight_copies
    return copies * stage.dense_params, copies * stage.expert_params


def state_rules(layout: Layout, parameters: MemoryParameters) -> dict[str, tuple[float, bool]]:
    """Part of the states -> (bytes per parameter, whether ZeRO shards it) [1]_.

    ZeRO-2 keeps shards of the gradients, but whole ones where a pipeline accumulates them.

    .. [1] Rajbhandari et al. 2019, arXiv:1910.02054, section 3.1.
    """
    p, zero = parameters, layout.zero_stage
    on_gpu = 0.0 if layout.offload_optimizer else 1.0
    step = p.step_bytes if zero else 0.0  # without ZeRO they live only while no activation does
    master = 0.0 if zero == 3 and p.sharded_weights_bytes >= 4 else p.master_bytes
    weights = p.sharded_weights_bytes if zero == 3 else p.weights_bytes
    gradients = p.gradients_bytes_fp16 if layout.precision == "fp16" else p.gradients_bytes
    return {
        "weights_bytes": (weights, zero >= 3),
        "gradients_bytes": (gradients, zero == 3 or (zero == 2 and layout.pp == 1)),
        "master_bytes": (on_gpu * master, zero >= 1),
        "optimizer_bytes": (on_gpu * (p.optimizer_bytes + step), zero >= 1),
    }


def narrow_weights(
    stage: StageParams, layout: Layout, parameters: MemoryParameters
) -> tuple[float, float]:
    """(weights of linears of a stage on one GPU, bytes more of each than in 16 bits).

    Embedding and head stay in 16 bits. Shards of ZeRO-3 are quantised as they are gathered.
    """
    each = parameters.narrow_bytes(layout.precision) if layout.zero_stage < 3 else 0.0
    if not each:
        return 0.0, 0.0
    dense, experts = held_params(stage, layout)
    copies = schedule_of(layout.schedule, layout.pp, layout.vpp).weight_copies
    linears = dense + experts - copies * stage.edge_params
    return linears, each - (parameters.weights_bytes if parameters.narrow_weights else 0.0)


def state_block(
    stage: StageParams, layout: Layout, parameters: MemoryParameters, n_dense: int, n_expert: int
) -> StateBlock:
    """States of one stage on one GPU: recipe, ZeRO stage, offload.

    ZeRO-3 keeps shards. Gathered are, at the loss, the head (the embedding where it is wider) with
    its gradient and the last layer; in a layer's backward pass `unsharded_layers` layers with their
    gradients, while that of the head is reduced. With a pipeline the whole stage stays gathered
    over the micro-batches.
    """
    p = parameters
    dense, experts = held_params(stage, layout)
    whole, part = dense + experts, dense / n_dense + experts / n_expert
    rules = state_rules(layout, p)
    states = {name: each * (part if sharded else whole) for name, (each, sharded) in rules.items()}
    if p.outer_shards and layout.zero_stage == 3:
        most = shards(layout, over_groups=True)
        for name in ("master_bytes", "optimizer_bytes"):
            states[name] = rules[name][0] * (dense / most[0] + experts / most[1])
    linears, more = narrow_weights(stage, layout, p)
    states["weights_bytes"] += linears * more
    at_loss = at_layer = 0.0
    if layout.zero_stage == 3 and n_dense > 1:
        weight, gradient = p.weights_bytes, rules["gradients_bytes"][0]
        layer, edge = stage.largest_layer_params, stage.widest_edge_params
        if layout.pp > 1:
            at_loss = at_layer = (weight + gradient) * whole
        else:
            layers = min(p.unsharded_layers * layer, whole)
            at_loss = (weight + gradient) * edge + weight * min(layer, layers)
            at_layer = (weight + gradient) * layers + gradient * edge
    return StateBlock(**states, unsharded_loss_bytes=at_loss, unsharded_layer_bytes=at_layer)


def away_frac(n_layers: int, layout: Layout, offloaded: int) -> float:
    """Share of the layers of a stage whose activations wait on the host. [1]."""
    on_host = n_layers - 1 if layout.offload_activations else offloaded
    return min(1.0, on_host / max(1, n_layers))


def kept_share(stage: StageParams, layout: Layout, offloaded: int) -> tuple[float, float]:
    """(share of the layers that recompute, share that stays on the GPU) of a stage."""
    return recomputed_frac(stage.n_layers, layout), 1 - away_frac(stage.n_layers, layout, offloaded)


def recomputed_frac(n_layers: int, layout: Layout) -> float:
    """Share of the layers of a stage that recompute, where the layout recomputes. [1]."""
    if layout.recompute_layers is None or layout.recompute == "none":
        return 1.0
    return min(1.0, layout.recompute_layers / max(1, n_layers))


def held_bytes(
    layers: tuple[tuple[int, int], ...],
    n_layers: int,
    acts: tuple[KindActivations, ...],
    layout: Layout,
) -> float:
    """Activations of one micro-batch over the (kind, count) layers of a stage, on GPU or host."""
    if not n_layers:
        return 0.0
    recomputed = recomputed_frac(n_layers, layout)
    kept = math.fsum(n * acts[k].kept_bytes for k, n in layers)
    if recomputed < 1.0:
        whole = math.fsum(n * acts[k].whole_bytes for k, n in layers)
        kept = recomputed * kept + (1 - recomputed) * whole
    return kept


def kept_bytes(
    stage: StageParams, acts: tuple[KindActivations, ...], layout: Layout, offloaded: int
) -> float:
    """Activations of one micro-batch over the layers of a stage, those on the GPU."""
    on_gpu = 1 - away_frac(stage.n_layers, layout, offloaded)
    return on_gpu * held_bytes(stage.layers, stage.n_layers, acts, layout)


def passing_bytes(model: ModelFacts, layout: Layout, parameters: MemoryParameters) -> float:
    """Buffers that every backward pass of a layout needs: gathered inputs, exchange, workspace."""
    p = parameters
    boundary = 2.0 * model.hidden_size * layout.micro_batch_size * layout.seq_len / layout.cp
    gathered = p.gathered_tensors * boundary if layout.tp > 1 and layout.sequence_parallel else 0.0
    whole = layout.tp if layout.sequence_parallel else 1
    return gathered + p.workspace_bytes + (2 * boundary / whole if layout.pp > 1 else 0.0)


def live_bytes(
    stage: StageParams,
    acts: tuple[KindActivations, ...],
    p: MemoryParameters,
    recompute: str = "none",
) -> float:
    """Activations of the layer whose backward pass runs; its own too, recomputed in full."""
    largest = max((acts[k].whole_bytes for k, _ in stage.layers), default=0.0)
    return (p.live_layers + (recompute == "full")) * largest


def beside_frac(stage: StageParams, layout: Layout) -> float:
    """Share of a stage held more where the experts' exchange hides behind another pass. [1].

    A chunk's forward pass runs beside another one's backward pass, layer by layer: an interleaved
    pipeline runs one chunk further ahead, without a pipeline one layer (Megatron-Core,
    `pipeline_parallel/schedules.py`: `num_warmup_microbatches + 1`; `combined_1f1b.py`).
    """
    return 1.0 / layout.vpp if layout.pp > 1 else 1.0 / max(1, stage.n_layers)


def one_stage(
    model: ModelFacts,
    stage: StageParams,
    i: int,
    layout: Layout,
    parameters: MemoryParameters,
    acts: tuple[KindActivations, ...],
) -> StageMemory:
    """Assemble the peak of one stage.

    Two moments compete: the loss (all kept activations and the logits), and the backward pass
    of one layer (kept activations, the layer recomputed if it was dropped, its gradients).
    """
    p = parameters
    n_dense, n_expert = shards(layout)
    state = state_block(stage, layout, p, n_dense, n_expert)
    tokens = layout.micro_batch_size * layout.seq_len / layout.cp
    flying = in_flight(layout.schedule, i, layout.pp, layout.vpp, layout.n_micro_batches)
    if p.overlap_ep and hides_exchange(layout.recompute, layout.pp, layout.vpp):
        flying = min(flying + beside_frac(stage, layout), layout.n_micro_batches)
    kept = flying * kept_bytes(stage, acts, layout, p.offloaded_layers)
    if stage.has_head:
        kept += model.n_mtp_layers * acts[model.weights.sequence[-1]].kept_bytes
    logits = 0.0
    if stage.has_head:
        per_logit = p.fused_logits_bytes if p.fused_cross_entropy else p.logits_bytes
        logits = per_logit * tokens * model.vocab_size / layout.tp * (1 + model.n_mtp_layers)
        logits += p.whole_logits_bytes * tokens * model.vocab_size if layout.tp > 1 else 0.0
        logits *= p.held_logits_frac
    live = live_bytes(stage, acts, p, layout.recompute)
    head = p.head_gradient_bytes * model.vocab_size * model.hidden_size / layout.tp
    head = head if stage.has_head else 0.0
    # the logits are gone when the layers' backward runs
    working = max(state.unsharded_loss_bytes, live + state.unsharded_layer_bytes - logits)
    working += head + passing_bytes(model, layout, p)
    allocated = (
        state.weights_bytes
        + state.gradients_bytes
        + state.master_bytes
        + state.optimizer_bytes
        + kept
        + logits
        + working
    )
    return StageMemory(
        stage=i,
        n_layers=stage.n_layers,
        params=stage.dense_params + stage.expert_params,
        in_flight_micro_batches=flying,
        weights_bytes=state.weights_bytes,
        gradients_bytes=state.gradients_bytes,
        master_bytes=state.master_bytes,
        optimizer_bytes=state.optimizer_bytes,
        activations_bytes=kept,
        logits_bytes=logits,
        working_bytes=working,
        fragmentation_bytes=(p.fragmentation - 1) * allocated,
        context_bytes=p.context_bytes,
    )


def stage_memories(
    model: ModelFacts, layout: Layout, parameters: MemoryParameters
) -> tuple[StageMemory, ...]:
    """Peak of each pipeline stage, first to last."""
    stages = layout_stages(model.weights, parameters.stage_split, layout)
    acts = layout_activations(model, parameters, layout)
    return tuple(one_stage(model, s, i, layout, parameters, acts) for i, s in enumerate(stages))


def moments(
    model: ModelFacts, layout: Layout, parameters: MemoryParameters, held: StageMemory
) -> dict[str, float]:
    """Moment of a run -> what a GPU of a stage shows then, the largest first. [byte].

    `held`: the stage's peak. An evaluation keeps nothing for a backward pass; optimizers step in
    place, and shards are saved from where they lie.
    """
    stage = layout_stages(model.weights, parameters.stage_split, layout)[held.stage]
    acts = layout_activations(model, parameters, layout)
    state = state_block(stage, layout, parameters, *shards(layout))
    at_loss = held.logits_bytes + state.unsharded_loss_bytes
    at_layer = live_bytes(stage, acts, parameters, layout.recompute) + state.unsharded_layer_bytes
    at_work = max(at_loss, at_layer)
    less = {
        "backward": at_work - at_layer,
        "loss": at_work - at_loss,
        "evaluation": at_work - at_loss + held.activations_bytes,
        "optimizer step and saving": held.allocated_bytes - held.states_bytes,
    }
    reserved = held.reserved_bytes / held.allocated_bytes
    found = sorted((gone, name) for name, gone in less.items())
    return {name: held.total_bytes - reserved * gone for gone, name in found}


def printed_bytes(
    facts: ModelFacts, layout: Layout, parameters: MemoryParameters, kind: str
) -> float:
    """Bytes to compare with a printed figure of `kind`; "printed" is what the family logs. [byte].

    nanotron logs only its first rank, so the first stage is taken there.
    """
    chosen = peak_stage(stage_memories(facts, layout, parameters), parameters.printed_stage)
    return chosen.kind_bytes(parameters.printed_kind if kind in ("", "printed") else kind)


def peak_stage(stages: tuple[StageMemory, ...], which: str = "peak") -> StageMemory:
    """Stage that decides: the fullest, or the first or last for logs that print only that one."""
    if which == "first":
        return stages[0]
    if which == "last":
        return stages[-1]
    return max(stages, key=lambda s: s.total_bytes)
