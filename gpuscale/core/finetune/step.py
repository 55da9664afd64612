"""Time of a fine-tuning step: a training step whose frozen maps have no weight gradient.

A frozen map costs 4 instead of 6 FLOP per parameter and token: Hu et al. 2021 (LoRA,
arXiv:2106.09685), section 4.2.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from gpuscale.core.finetune.memory import stage_activations, stream_bytes
from gpuscale.core.finetune.method import GPTQ, Job, LayerCounts, MethodCounts, counts, trained_frac
from gpuscale.core.finetune.states import base_bytes_per_param, layer_params, state_bytes
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.peak import recomputed_frac
from gpuscale.core.records import dataclass, replace
from gpuscale.core.stages import layout_stages
from gpuscale.core.step.layer import assemble_layer, head_time, layer_parts
from gpuscale.core.step.moe import FfnTime
from gpuscale.core.step.operators import stream_s
from gpuscale.core.step.records import Breakdown, Hardware, LayerTime, Shape, Software, exposed_s
from gpuscale.core.step.step import breakdown, shape_of

if TYPE_CHECKING:
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.layout import Layout
    from gpuscale.specs.model import ModelSpec

INPUT_GRADIENT_SHARE = 0.5
"""Share of a linear map's backward pass that is the input gradient: one of two equal products."""


@dataclass(frozen=True, slots=True)
class FinetuneStep:
    """Time of one optimizer step, its parts and its tokens."""

    step_s: float
    parts: Breakdown  # of a training step, without the offload of parameters and activations
    unpack_s: float  # part of matmul and recompute: unpacking the quantised base
    offload_s: float  # exposed transfers of parameters and activations
    tokens: float  # tokens of a step that are trained on (no padding)
    padded_tokens: float  # tokens that are computed

    @property
    def tokens_per_s(self) -> float:
        """Trained tokens per second, all GPUs, without padding. [1/s]."""
        return self.tokens / self.step_s


def _unpack_bytes(kind: LayerCounts, job: Job, layout: Layout) -> float:
    """Bytes moved to unpack the base of one layer once: packed read, 16-bit written. [byte]."""
    if not (job.method.adapts and job.method.quantised):
        return 0.0
    left = kind.expert_params / (layout.ep * layout.etp) if job.method.stacked else 0.0
    return (layer_params(kind, layout) - left) * (job.method.base_bytes + 2.0)


def unpack_s(n_bytes: float, job: Job, hw: Hardware, p: FinetuneParameters) -> float:
    """Time to unpack that much of a quantised base. [s]."""
    gptq = job.method.base in GPTQ
    share = p.dequantise_gptq_frac if gptq else p.dequantise_eff_frac
    return n_bytes / (hw.hbm_bytes_per_s * share)


def long_context_gain(seq_len: float, gain: float, half_tokens: float) -> float:
    """Attention rate on a sequence over that on a short one: fuller waves, less start and end. [1].

    Half of the gain is reached at `half_tokens`.

    >>> long_context_gain(0, 0.6, 16384), round(long_context_gain(1e6, 0.6, 16384), 2)
    (1.0, 1.59)
    """
    return 1.0 + gain * seq_len / (seq_len + half_tokens)


def _adapter_s(
    kind: LayerCounts, job: Job, hw: Hardware, p: FinetuneParameters, tokens: float
) -> float:
    """Time of one layer's adapters, forward. [s]."""
    if not job.method.adapts or not kind.n_adapted:
        return 0.0
    tp = job.layout.tp
    width = (kind.adapter_inputs + kind.adapter_outputs) / tp
    flop = 2.0 * tokens * job.method.rank * width
    time = flop / (hw.bf16_flop_per_s * hw.product_bf16_frac * hw.form.adapter_eff_frac)
    time += p.adapter_passes * stream_s(hw, 2.0 * tokens * width)
    if job.method.kind == "dora":  # the norm of W + B A: the product, three passes over the matrix
        weights = fsum(m.params for m in kind.adapted) / tp
        time += 2.0 * job.method.rank * weights / (hw.bf16_flop_per_s * hw.form.adapter_eff_frac)
        time += stream_s(hw, 6.0 * weights)
    return time


def _merged_s(kind: LayerCounts, job: Job, hw: Hardware) -> tuple[float, float]:
    """Time of adding adapters to the stacked experts of a layer: (forward, backward). [s].

    Backward has their whole weight gradient (its product is the layer's), and one product with it
    for either factor.
    """
    weights = kind.merged_params / (job.layout.tp * job.layout.ep)
    flop_s = 2.0 * job.method.rank * weights / (hw.bf16_flop_per_s * hw.form.adapter_eff_frac)
    forward, backward = kind.merged_bytes
    read_s = stream_s(hw, backward * weights)
    return flop_s + stream_s(hw, forward * weights), 2.0 * flop_s + read_s


def _as_routed(
    mlp: FfnTime, sw: Software, n_experts: int, job: Job, p: FinetuneParameters
) -> tuple[FfnTime, Software]:
    """Experts as a trained router loads them, and as eager frameworks run them.

    With expert parallelism all wait for the busiest rank; without, in a loop, every expert is a
    module of its own, launched (and under ZeRO-3 gathered, unless the block of experts is a leaf)
    one after another.
    """
    layout = job.layout
    if layout.ep > 1:
        names = ("linear_fwd_s", "linear_bwd_s", "dispatch_fwd_s", "dispatch_bwd_s")
        busy = {n: p.expert_imbalance * getattr(mlp, n) for n in (*names, "dispatched_bytes")}
        return mlp._replace(**busy), sw
    if job.experts not in ("loop", "leaf"):
        return mlp, replace(sw, launches_experts=False)
    each = p.expert_launch_s
    if job.experts == "loop" and layout.zero_stage == 3 and layout.dp > 1:
        each += p.expert_gather_s
    return mlp, replace(sw, host_layer_s=sw.host_layer_s + n_experts * each)


def layer_time(
    model: ModelSpec,
    names: tuple[str, str],
    kind: LayerCounts,
    job: Job,
    hw: Hardware,
    sw: Software,
    p: FinetuneParameters,
    shape: Shape,
) -> LayerTime:
    """Time of one layer and micro-batch: `core.step.layer` with what a method changes.

    A frozen map has an input gradient alone (2 FLOP a weight and token instead of 4); a quantised
    base is unpacked in each pass; adapters add thin products, memory passes and launches.
    """
    mixer, ffn = model.mixers[names[0]], model.ffns[names[1]]
    tokens = shape.micro_batch_size * shape.seq_len / shape.cp
    if ffn.kind == "moe" and job.experts == "all":
        ffn = ffn.model_copy(update={"top_k": ffn.n_experts})
    parts = layer_parts(mixer, ffn, model.hidden_size, hw, sw, shape=shape)
    mix, mlp = parts.mix, parts.mlp
    if ffn.kind == "moe":
        mlp, sw = _as_routed(mlp, sw, ffn.n_experts, job, p)
    if job.method.adapts:
        unpack = unpack_s(_unpack_bytes(kind, job, job.layout), job, hw, p)
        adapters = _adapter_s(kind, job, hw, p, tokens)
        merged = _merged_s(kind, job, hw)
        share = 1.0 if kind.merged_params else INPUT_GRADIENT_SHARE
        mix = mix._replace(linear_bwd_s=mix.linear_bwd_s * INPUT_GRADIENT_SHARE)
        mlp = mlp._replace(
            linear_fwd_s=mlp.linear_fwd_s + unpack + adapters + merged[0],
            linear_bwd_s=mlp.linear_bwd_s * share + unpack + 2.0 * adapters + merged[1],
        )
        launch = kind.n_adapted * p.adapter_launch_s
        stacks = 2.0 if kind.merged_params else 0.0  # gate and up in one, and down
        launch += stacks * p.merged_launch_s
        sw = replace(sw, host_layer_s=sw.host_layer_s + launch)
    t = assemble_layer(parts._replace(mix=mix, mlp=mlp), hw, sw, shape)
    back = trained_frac(model.n_layers, job.method)
    less = (t.fwd_s + back * t.bwd_s) / max(t.fwd_s + t.bwd_s, 1e-12)
    return type(t)(t.fwd_s, back * t.bwd_s, *(less * part for part in t[2:]))


def loss_time(model: ModelSpec, job: Job, hw: Hardware, sw: Software, shape: Shape) -> LayerTime:
    """Head and loss of one micro-batch; a frozen head has no weight gradient.

    A loss fused with the head computes its logits a second time.
    """
    fused = replace(sw, fused_cross_entropy=job.loss != "eager")
    time = head_time(model.hidden_size, model.vocab_size, hw, fused, shape)
    product = time.matmul_s / 3.0
    less = product if job.method.adapts and not job.method.train_embeddings else 0.0
    more = product if job.loss == "fused" else 0.0
    return time._replace(
        bwd_s=time.bwd_s - less + more,
        matmul_s=time.matmul_s - less,
        recompute_s=time.recompute_s + more,
    )


def _trained(
    hw: Hardware, sw: Software, job: Job, whole: MethodCounts, p: FinetuneParameters
) -> tuple[Hardware, Software]:
    """Hardware and software records with what is exchanged and updated per base parameter."""
    share = whole.trained_params / whole.total_params
    if not job.method.adapts:
        moments = state_bytes(job.optimizer, p.full_moment_bytes)
        update = 2.0 * (p.full_weights_bytes + p.full_master_bytes + moments)
        update += max(p.full_gradients_bytes, p.step_gradients_bytes)
        return (
            replace(hw, optimizer_bytes_per_param=share * update),
            replace(sw, gradient_bytes=sw.gradient_bytes * share),
        )
    linear, _ = base_bytes_per_param(job, p)
    moments = state_bytes(job.optimizer, p.adapter_moment_bytes)
    update = 2.0 * (p.adapter_weights_bytes + moments) + p.adapter_gradients_bytes
    gather = min(linear, 2.0) if job.layout.zero_stage == 3 else share * 2.0
    return (
        replace(hw, optimizer_bytes_per_param=share * update),
        replace(
            sw,
            gradient_bytes=share * p.adapter_gradients_bytes,
            parameter_gather_bytes=gather,
            low_precision_gather=False,
            quantised_tp_gather=False,  # the adapter takes the same input, in 16 bits
        ),
    )


def offload_time_s(
    model: ModelSpec, job: Job, hw: Hardware, p: FinetuneParameters, compute_s: float
) -> float:
    """Exposed transfers of one micro-batch between host and GPU, all layers. [s].

    Offloaded parameters come in for the forward and again for the backward pass, each GPU its own
    shard; offloaded activations go out and come back.
    """
    layout = job.layout
    time = 0.0
    if "parameters" in job.offload:
        linear, _ = base_bytes_per_param(job, p)
        each = linear if job.method.adapts else p.full_weights_bytes
        shards = layout.dp * layout.cp if layout.zero_stage == 3 else 1
        total = counts(model, job.method).total_params
        moved = 2.0 * each * total / (layout.tp * layout.pp * shards)
        time += exposed_s(compute_s, moved / hw.host_link_bytes_per_s, hw.form.offload_exposed_frac)
    if layout.offload_activations:
        facts, whole = model_facts(model), counts(model, job.method)
        stages = layout_stages(facts.weights, "even", layout)
        moved = 2.0 * max(stage_activations(facts, s, whole, job, p)[2] for s in stages)
        time += exposed_s(
            compute_s, moved / hw.host_link_bytes_per_s, hw.form.activations_exposed_frac
        )
    return time


def host_update_s(whole: MethodCounts, job: Job, hw: Hardware, p: FinetuneParameters) -> float:
    """Time of an optimizer step on the CPU, over what a step on the GPU costs anyway. [s].

    Gradients go out, weights come back, the states pass through the host's memory.
    """
    layout = job.layout
    shards = layout.tp * layout.pp * (layout.dp * layout.cp if layout.zero_stage else 1)
    mine = whole.trained_params / shards
    update = hw.optimizer_bytes_per_param * whole.total_params / whole.trained_params
    moved = hw.form.host_optimizer_bytes / hw.host_link_bytes_per_s
    rate = p.host_update_bytes_per_s or hw.form.host_memory_bytes_per_s
    return mine * (moved + update / rate)


def finetune_step(
    model: ModelSpec,
    job: Job,
    hw: Hardware,
    sw: Software,
    p: FinetuneParameters,
    *,
    useful_frac: float = 1.0,
) -> FinetuneStep:
    """Time of one optimizer step of a fine-tuning job.

    `job`: method, optimizer, layout; `layout.seq_len` are the tokens that a row is computed with.
    `hw, sw`: as in `core.step.step_time`. `p`: of the software family. `useful_frac`: tokens of the
    data over tokens computed, 1 packed, mean over padded length otherwise. Returns: seconds;
    `parts` add to the step without the offload.
    """
    layout = job.layout
    whole = counts(model, job.method)
    half = hw.form.attention_half_tokens
    gain = long_context_gain(layout.seq_len, p.attention_long_gain, half)
    hw = replace(hw, attention_eff=hw.attention_eff * gain)
    kinds = {(mixer, ffn): whole.kinds[i] for i, (mixer, ffn, _) in enumerate(model.named_groups)}
    own_hw, own_sw = _trained(hw, sw, job, whole, p)
    wide = stream_bytes(job, p) / 2.0  # what runs between products moves fp32 in the stead of bf16
    own_sw = replace(
        own_sw,
        compiled=own_sw.compiled or job.fuses_norms(p),
        elementwise_factor=wide * own_sw.elementwise_factor,
    )

    def times(mixer: str, ffn: str, shape: Shape) -> LayerTime:
        return layer_time(
            model, (mixer, ffn), kind=kinds[mixer, ffn], job=job, hw=hw, sw=own_sw, p=p, shape=shape
        )

    head = loss_time(model, job, hw, sw, shape_of(layout, hw, sw))
    on_gpu = replace(layout, offload_optimizer=False, offload_activations=False)  # `offload_time_s`
    parts, _ = breakdown(model, own_hw, own_sw, on_gpu, times, head=head)
    n_micro = layout.n_micro_batches
    launches = parts.host_s - own_sw.step_host_s  # transfers go on while the GPU waits for them
    busy = parts.matmul_s + parts.attention_s + parts.elementwise_s + launches
    offload = n_micro * offload_time_s(model, job, hw, p, busy / n_micro)
    if layout.offload_optimizer:
        offload += host_update_s(whole, job, own_hw, p)
    again = layout.recompute == "full"
    passes = 2.0 + (recomputed_frac(model.n_layers // layout.pp, layout) if again else 0.0)
    unpacked = fsum(k.n_layers * _unpack_bytes(k, job, layout) for k in whole.kinds) / layout.pp
    unpack = n_micro * passes * unpack_s(unpacked, job, hw, p)
    padded = float(layout.global_batch_size * layout.seq_len)
    return FinetuneStep(
        step_s=parts.total_s + offload,
        parts=parts,
        unpack_s=unpack,
        offload_s=offload,
        tokens=padded * useful_frac,
        padded_tokens=padded,
    )
