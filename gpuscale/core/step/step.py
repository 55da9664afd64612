"""One training step: blocks composed; the same formulas for the roofline and the expected time.

Pipeline, its transfers and full recomputation: Narayanan et al. 2021 (arXiv:2104.04473).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import fsum
from typing import TYPE_CHECKING

from gpuscale.core.layout import Layout, meant_recompute
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.peak import layout_activations
from gpuscale.core.model.layer_shape import model_flop_per_token
from gpuscale.core.model.params import ModelWeights, model_weights
from gpuscale.core.records import NamedTuple
from gpuscale.core.stages import StageParams, layout_stages
from gpuscale.core.step.data_parallel import copies_s, exchanges_s, offloads, optimizer_s, shards_of
from gpuscale.core.step.ideal import ideal_hardware, ideal_software
from gpuscale.core.step.layer import head_time, layer_time
from gpuscale.core.step.moe import dispatched
from gpuscale.core.step.parallel_comm import point_to_point_s, strides
from gpuscale.core.step.records import (
    Breakdown,
    Hardware,
    LayerTime,
    Shape,
    Software,
    StageTimes,
    StepResult,
    pipeline_s,
)

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

LayerTimes = Callable[[str, str, Shape], LayerTime]


class Stage(NamedTuple):
    """One pipeline stage for one micro-batch, and the weights it holds per tensor rank."""

    time: LayerTime
    dense_params: float  # of one rank
    expert_params: float
    n_layers: int

    @property
    def seconds(self) -> float:
        """Forward and backward of one micro-batch. [s]."""
        return self.time.fwd_s + self.time.bwd_s


def shape_of(layout: Layout, hw: Hardware, sw: Software) -> Shape:
    """Return what a layer sees of a layout."""
    crosses = sw.pipeline_launch_s > 0.0 and layout.pp > 1 and layout.n_gpus > hw.gpus_per_node
    at = strides(layout, hw.scaleup_domain_gpus)
    return Shape(
        tp=layout.tp,
        cp=layout.cp,
        ep=layout.ep,
        etp=layout.etp,
        micro_batch_size=layout.micro_batch_size,
        seq_len=layout.seq_len,
        precision=layout.precision,
        recompute=meant_recompute(layout.recompute, sw.selective_per_op),
        sequence_parallel=layout.sequence_parallel,
        cp_kind=layout.cp_kind,
        overlap_tp=layout.overlap_tp,
        tp_stride=at.tp,
        cp_stride=at.cp,
        ep_stride=at.ep,
        pp_crosses=crosses,
    )


def add_times(times: list[tuple[int, LayerTime]]) -> LayerTime:
    """Sum of `n` times each."""
    return LayerTime(*(fsum(n * t[i] for n, t in times) for i in range(len(LayerTime._fields))))


def step_time(model: ModelSpec, hw: Hardware, software: Software, layout: Layout) -> StepResult:
    """Roofline and expected time of one training step.

    `hw`: GPU, cluster and calibration; `io.step.step_hardware` makes it of presets.
    `software`: framework family; `io.software.load_software` makes it of a preset. `layout`:
    parallel degrees, batch, recompute, precision. Returns: both times with their parts, rates, MFU
    and HFU.

    ``step = (m t_max + (sum t - t_max) / v + p2p + dp + optimizer + host) (1 + s log2 hosts) u``,
    ``u`` the factor of the job's maturity.
    The roofline is the same sum with every efficiency 1, latency 0 and overlap perfect, so it
    never exceeds the expected time.
    """
    expected, stage = breakdown(model, hw, software, layout)
    ideal, _ = breakdown(model, ideal_hardware(hw), ideal_software(software), layout)
    tokens = layout.global_batch_size * layout.seq_len
    model_flop = tokens * model_flop_per_token(model, layout.seq_len)
    mode = meant_recompute(layout.recompute, software.selective_per_op)
    frac = recompute_flop_frac(mode, layout, model, hw.form.per_op_recompute_frac)
    again = frac * model_flop
    peak = hw.bf16_flop_per_s * layout.n_gpus * expected.total_s
    return StepResult(
        roofline_s=ideal.total_s,
        expected_s=expected.total_s,
        roofline=ideal,
        expected=expected,
        model_flop=model_flop,
        hardware_flop=model_flop + again,
        mfu=model_flop / peak,
        hfu=(model_flop + again) / peak,
        tokens_per_s=tokens / expected.total_s,
        tokens_per_s_per_gpu=tokens / expected.total_s / layout.n_gpus,
        n_gpus=layout.n_gpus,
        n_micro_batches=layout.n_micro_batches,
        bubble_frac=expected.bubble_s / expected.total_s,
        heaviest_stage=stage,
    )


def recompute_flop_frac(
    recompute: str, layout: Layout, model: ModelSpec, per_op_frac: float
) -> float:
    """FLOP computed again, relative to the model's; the forward pass is a third of them.

    `per_op_frac` is the share of the forward multiplies that a per-operator policy computes again.
    """
    if recompute == "full":
        layers = layout.recompute_layers or model.n_layers
        return min(1.0, layers * layout.pp / model.n_layers) / 3.0
    return per_op_frac / 3.0 if recompute == "per-op" else 0.0


def breakdown(
    model: ModelSpec,
    hw: Hardware,
    sw: Software,
    layout: Layout,
    times: LayerTimes | None = None,
    weights: ModelWeights | None = None,
    head: LayerTime | None = None,
) -> tuple[Breakdown, int]:
    """(parts of one step, number of the heaviest stage) for one set of parameters.

    `times(mixer_name, ffn_name, shape)` may be given to serve memoised or other layer times, `head`
    for that of the head and loss, `weights` where they are counted already.
    """
    sw = dispatched(sw, layout, model.has_experts)
    shape = shape_of(layout, hw, sw)
    stages = model_stages(
        model, hw, sw=sw, layout=layout, shape=shape, times=times, weights=weights, head=head
    )
    return compose(stages, hw, sw, layout, model.hidden_size)


def model_stages(
    model: ModelSpec,
    hw: Hardware,
    sw: Software,
    layout: Layout,
    shape: Shape,
    times: LayerTimes | None = None,
    weights: ModelWeights | None = None,
    head: LayerTime | None = None,
) -> list[Stage]:
    """Every pipeline stage of a layout, first to last."""
    weights = weights or model_weights(model)
    kinds = [
        times(*names, shape)
        if times
        else layer_time(
            model.mixers[names[0]], model.ffns[names[1]], model.hidden_size, hw, sw, shape
        )
        for names in weights.names
    ]
    head = head or head_time(model.hidden_size, model.vocab_size, hw, sw, shape)
    tail = [(1 + model.n_mtp_layers, head)]
    if model.n_mtp_layers:
        tail.append((model.n_mtp_layers, kinds[weights.sequence[-1]]))
    keep = _kept(kinds, layout)
    same: dict[StageParams, Stage] = {}
    stages = []
    for held in layout_stages(weights, sw.stage_split, layout):
        if held not in same:
            made = _stage(held, kinds, keep, tail, layout)
            same[held] = _offloading(made, held, model, hw, sw, layout)
        stages.append(same[held])
    return stages


def _offloading(
    stage: Stage, held: StageParams, model: ModelSpec, hw: Hardware, sw: Software, layout: Layout
) -> Stage:
    """Stage with the exposed copies of activations that wait on the host."""
    if sw.kept is None or not offloads(sw, layout):
        return stage
    t = stage.time
    out, back = copies_s(
        hw,
        sw,
        layout,
        held.layers,
        layout_activations(model_facts(model), sw.kept, layout),
        forward_s=t.fwd_s,
        backward_s=t.bwd_s,
    )
    both = t._replace(fwd_s=t.fwd_s + out, bwd_s=t.bwd_s + back, offload_s=out + back)
    return stage._replace(time=both)


def _kept(kinds: list[LayerTime], layout: Layout) -> list[LayerTime] | None:
    """Layer times without recomputation, for layers beyond `recompute_layers`."""
    if layout.recompute_layers is None or layout.recompute == "none":
        return None
    return [t._replace(bwd_s=t.bwd_s - t.recompute_s, recompute_s=0.0) for t in kinds]


def recomputed(
    layers: tuple[tuple[int, int], ...], recompute_layers: int | None
) -> list[tuple[int, int, int]]:
    """(kind, layers, those of them that are recomputed) of a stage; None: all of them.

    >>> recomputed(((0, 2), (1, 6)), 3)
    [(0, 2, 2), (1, 6, 1)]
    """
    if recompute_layers is None:
        return [(kind, n, n) for kind, n in layers]
    found, left = [], recompute_layers
    for kind, n in layers:
        again = min(n, left)
        found.append((kind, n, again))
        left -= again
    return found


def _stage(
    held: StageParams,
    kinds: list[LayerTime],
    keep: list[LayerTime] | None,
    tail: list[tuple[int, LayerTime]],
    layout: Layout,
) -> Stage:
    parts = list(tail) if held.has_head else []
    limit = layout.recompute_layers if keep is not None else None
    for kind, n, again in recomputed(held.layers, limit):
        parts.append((again, kinds[kind]))
        if keep is not None:
            parts.append((n - again, keep[kind]))
    return Stage(add_times(parts), held.dense_params, held.expert_params, held.n_layers)


class StepTerms(NamedTuple):
    """Terms of a step on the critical path, which add up to its time. [s]."""

    steady_s: float
    bubble_s: float
    pp_comm_s: float
    dp_comm_s: float
    optimizer_s: float
    host_s: float
    straggler_s: float
    untuned_s: float


def step_terms(
    stages: StageTimes, hw: Hardware, sw: Software, layout: Layout, hidden: int
) -> StepTerms:
    """Assemble a step from the times of its stages: a few float operations.

    `stages`: of one micro-batch. `hw, sw, layout`: as in `step_time`. `hidden`: hidden size, for
    the transfers between stages [1].
    """
    steady, bubble = pipeline_s(
        stages.seconds, stages.all_stages_s, layout.n_micro_batches, layout.vpp, layout.schedule
    )
    pp_s = pipeline_transfers_s(hw, sw, layout, hidden)
    dp_s, update = after_passes_s(hw, sw, layout, stages)
    base = steady + bubble + pp_s + dp_s + update + sw.step_host_s
    hosts = max(1.0, layout.n_gpus / hw.gpus_per_node)
    late = base * ((1.0 + hw.straggler_per_log2_hosts * math.log2(hosts)) * hw.site_factor - 1.0)
    untuned = (base + late) * (sw.maturity.factor - 1.0)
    return StepTerms(
        steady_s=steady,
        bubble_s=bubble,
        pp_comm_s=pp_s,
        dp_comm_s=dp_s,
        optimizer_s=update,
        host_s=sw.step_host_s,
        straggler_s=late,
        untuned_s=untuned,
    )


def after_passes_s(
    hw: Hardware, sw: Software, layout: Layout, stages: StageTimes
) -> tuple[float, float]:
    """Exposed exchange of data parallelism in a step, and its optimizer. [s]."""
    shards = shards_of(layout, stages, hw.scaleup_domain_gpus)
    each, once = exchanges_s(hw, sw, layout, shards, stages)
    update = optimizer_s(hw, sw, shards, layout.zero_stage, layout.offload_optimizer)
    return layout.n_micro_batches * each + once, update


def stage_times(stages: list[Stage]) -> tuple[StageTimes, int]:
    """Return what the time of a step depends on, and the number of the heaviest stage."""
    heaviest = max(range(len(stages)), key=lambda i: stages[i].seconds)
    stage = stages[heaviest]
    wide = max(stages, key=lambda s: s.dense_params + s.expert_params)
    every = StageTimes(
        stage.time.fwd_s,
        stage.time.bwd_s,
        stage.n_layers,
        fsum(s.seconds for s in stages),
        wide.dense_params,
        wide.expert_params,
    )
    return every, heaviest


def compose(
    stages: list[Stage], hw: Hardware, sw: Software, layout: Layout, hidden: int
) -> tuple[Breakdown, int]:
    """(parts of a step, number of the heaviest stage): the terms, and the parts of that stage."""
    every, heaviest = stage_times(stages)
    t, m = stages[heaviest].time, layout.n_micro_batches
    terms = step_terms(every, hw, sw, layout, hidden)
    parts = Breakdown(
        total_s=fsum(terms),
        matmul_s=m * t.matmul_s,
        attention_s=m * t.attention_s,
        elementwise_s=m * t.elementwise_s,
        moe_s=m * t.moe_s,
        tp_comm_s=m * t.tp_comm_s,
        cp_comm_s=m * t.cp_comm_s,
        ep_comm_s=m * t.ep_comm_s,
        recompute_s=m * t.recompute_s,
        host_s=m * t.host_s + terms.host_s,
        offload_s=m * t.offload_s,
        bubble_s=terms.bubble_s,
        pp_comm_s=terms.pp_comm_s,
        dp_comm_s=terms.dp_comm_s,
        optimizer_s=terms.optimizer_s,
        straggler_s=terms.straggler_s,
        untuned_s=terms.untuned_s,
    )
    return parts, heaviest


def pipeline_transfers_s(hw: Hardware, sw: Software, layout: Layout, hidden: int) -> float:
    """Exposed activation and gradient transfers between stages, whole step. [s]."""
    if layout.pp == 1 or sw.pp_exposed_frac == 0.0:
        return 0.0
    stride = strides(layout, hw.scaleup_domain_gpus).pp
    one = point_to_point_s(hw, stride, transfer_bytes(sw, layout, hidden))
    n = 2 * (layout.n_micro_batches * layout.vpp + layout.pp - 1)
    return n * one * (sw.pp_exposed_frac if layout.overlap_pp else 1.0)


def transfer_bytes(sw: Software, layout: Layout, hidden: int) -> float:
    """Activations of one micro-batch that go to the next stage, of one rank, 16 bits. [byte]."""
    tokens = layout.micro_batch_size * layout.seq_len / layout.cp
    split = layout.sequence_parallel or sw.scatter_gather
    return tokens * hidden * 2.0 / (layout.tp if split else 1)
