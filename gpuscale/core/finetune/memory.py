"""Peak memory of a fine-tuning step by part, on the fullest GPU.

Activations are counted by element as in Korthikanti et al. 2022 (arXiv:2205.05198); what frozen
maps need for their input gradient alone: Hu et al. 2021 (LoRA, arXiv:2106.09685).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscale.core.finetune.method import CAST, Job, LayerCounts, MethodCounts, counts, trained_frac
from gpuscale.core.finetune.states import States, casts_weights, stage_states
from gpuscale.core.memory.facts import Counted, LayerFacts, ModelFacts
from gpuscale.core.memory.peak import recomputed_frac
from gpuscale.core.records import dataclass, field, replace
from gpuscale.core.schedules import in_flight
from gpuscale.core.stages import StageParams, layout_stages

if TYPE_CHECKING:
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.layout import Layout
    from gpuscale.specs.model import ModelSpec

HEAD_OF_EDGES = 0.5
"""Share of embedding and head that is gathered at the loss where each is a unit of its own."""

FP32_COPY_BYTES = 4.0
"""Bytes per logit of the fp32 copy that bf16 autocast makes of a model's outputs (Accelerate,
`convert_outputs_to_fp32`) and DeepSpeed's fp16 engine does not: 12 against 8 bytes in the tables
of the Qwen README."""

EVALUATED_LOGIT_BYTES = 10.0
"""Bytes per logit of an evaluation's forward pass: 16-bit logits, the fp32 copy that the loss is
taken of and its log-softmax, whatever fuses the loss of training (operators of transformers 5.23
traced, tests/data/traced_memory.csv)."""

NORM_GRADIENT_BYTES = 2.0
"""Bytes per normed element that the gradient of a norm's own weight needs: its 16-bit output."""

AUTOCAST_NORM_BYTES = 5.0
"""Bytes per normed hidden element that autocast of fp32 weights keeps more than 16-bit weights: the
residual stream is fp32, and each map casts its own copy of a norm's output (traced)."""

KEPT_ON_GPU = 2
"""Layers whose offloaded inputs are still, or again, on the GPU: one leaves, one arrives."""


@dataclass(frozen=True, slots=True)
class FinetuneMemory(Counted):
    """Peak of one GPU by part, at the moment that decides. [byte]."""

    stage: int
    moment: str  # loss | backward | end of backward | optimizer step | evaluation | loading
    base_bytes: float = 0.0  # weights: frozen, or those trained in full
    adapter_bytes: float = 0.0  # adapters and saved modules, with their gradients
    gradients_bytes: float = 0.0
    optimizer_bytes: float = 0.0  # states and master weights
    kept_bytes: float = 0.0  # activations kept for the backward pass
    working_bytes: float = 0.0  # the layer at work
    logits_bytes: float = 0.0
    gathered_bytes: float = 0.0  # gathered shards, unpacked matrices, optimizer's copies
    workspace_bytes: float = 0.0
    fragmentation_bytes: float = 0.0
    context_bytes: float = 0.0
    host_bytes: float = 0.0  # on the host, of this GPU
    peaks: Mapping[str, float] = field(default_factory=dict)  # moment -> what the device shows

    @property
    def states_bytes(self) -> float:
        """Weights, adapters, gradients and optimizer. [byte]."""
        return self.base_bytes + self.adapter_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def allocated_bytes(self) -> float:
        """What tensors and workspaces take. [byte]."""
        passing = self.kept_bytes + self.working_bytes + self.logits_bytes + self.gathered_bytes
        return self.states_bytes + self.workspace_bytes + passing


def stream_bytes(job: Job, p: FinetuneParameters) -> float:
    """Bytes of an element between layers: fp32 where weights are, or what is beside a packed base.

    Embeddings and norms in fp32 make the residual stream so, and bitsandbytes' maps give back the
    format of their input (nn/modules.py, Linear4bit.forward).
    """
    if casts_weights(job, p):
        return 4.0
    cast = job.method.adapts and job.method.base in CAST
    return max(2.0, p.edge_bytes) if cast else 2.0


def layer_token_bytes(
    facts: LayerFacts, kind: LayerCounts, hidden: int, job: Job, p: FinetuneParameters
) -> float:
    """Bytes per token that one layer keeps when nothing is recomputed, on one tensor rank. [byte].

    The backward pass of attention, norms and activation functions needs their inputs whatever is
    trained; the input of a linear map is needed for a weight gradient only, so a frozen map keeps
    none, and an adapted one keeps it for its adapter.
    """
    tp = job.layout.tp
    whole = tp if job.layout.sequence_parallel else 1
    full = not job.method.adapts
    wide = 1.0 if full else stream_bytes(job, p) / 2.0
    norm = 0.0
    if p.norm_bytes and kind.rms_norm and not job.fuses_norms(p):
        norm = p.norm_bytes + (NORM_GRADIENT_BYTES if full else 0.0)
    cast = AUTOCAST_NORM_BYTES if casts_weights(job, p) else 0.0
    per_token = (wide * p.hidden_bytes + norm + cast) * max(1, kind.n_norms) * hidden / whole
    per_token += norm * facts.mixer.normed / tp
    per_token += wide * 2.0 * (facts.mixer.split / tp + facts.mixer.latent / whole + facts.ffn / tp)
    copies = facts.n_experts if job.experts == "all" else facts.top_k
    per_token += wide * 2.0 * copies * (facts.expert_width + facts.expert_ffn) / tp
    if full:
        per_token += 2.0 * kind.trained_inputs / tp
    elif p.adapter_casts:
        per_token += p.adapter_input_bytes * kind.adapter_inputs / tp
    else:
        per_token += p.adapter_input_bytes * kind.distinct_inputs / tp
    per_token += 2.0 * kind.merged_inputs / tp
    if job.method.adapts and job.method.quantised:  # kernels that keep the input of frozen maps too
        per_token += p.packed_input_bytes * kind.trained_inputs / tp
    if job.method.kind == "dora":  # the product with W is scaled, so it is kept
        per_token += 2.0 * kind.adapter_outputs / tp
    if job.attention == "eager":  # a window masks scores that are there all the same
        per_token += p.scores_bytes * facts.mixer.score_heads * job.layout.seq_len / tp
    return per_token


def stage_activations(
    model: ModelFacts, stage: StageParams, whole: MethodCounts, job: Job, p: FinetuneParameters
) -> tuple[float, float, float]:
    """(Kept for the backward pass, the layer at work, waiting on the host) of a stage. [byte].

    Of one micro-batch. What is offloaded are the inputs of the layers with full recomputation, else
    all that they keep.
    """
    layout = job.layout
    tokens = layout.micro_batch_size * layout.seq_len / layout.cp
    sizes = []
    for k, n in stage.layers:
        each = layer_token_bytes(model.kinds[k], whole.kinds[k], model.hidden_size, job, p)
        merged = 2.0 * whole.kinds[k].merged_params / (layout.tp * layout.ep)
        sizes.append((n, tokens * each + merged))
    largest = max((b for _, b in sizes), default=0.0)
    kept = p.kept_factor * math.fsum(n * b for n, b in sizes)
    working = max(0.0, p.working_factor - p.kept_factor) * largest
    if layout.recompute == "full":
        again = recomputed_frac(stage.n_layers, layout)
        split = layout.tp if layout.sequence_parallel else 1
        inputs = stream_bytes(job, p) * model.hidden_size * tokens / split
        kept = again * stage.n_layers * inputs + (1.0 - again) * kept
        working = p.working_factor * largest
    kept *= trained_frac(sum(k.n_layers for k in whole.kinds), job.method)
    if not layout.offload_activations:
        return kept, working, 0.0
    away = kept * max(0.0, 1.0 - KEPT_ON_GPU / max(1, stage.n_layers))
    return kept - away, working, away


def logits_bytes(model: ModelFacts, job: Job, p: FinetuneParameters) -> float:
    """Logits and what the loss makes of them, of one micro-batch. [byte]."""
    layout = job.layout
    tokens = job.logits_frac * layout.micro_batch_size * layout.seq_len / layout.cp
    return bytes_per_logit(job, p) * tokens * model.vocab_size / layout.tp


def bytes_per_logit(job: Job, p: FinetuneParameters) -> float:
    """Bytes that one logit takes at the loss. [byte]."""
    if job.loss in ("eager", "pairs"):
        copied = job.layout.precision != "fp16" or p.fp16_copy
        less = 0.0 if copied else FP32_COPY_BYTES
        more = p.pair_logit_bytes if job.loss == "pairs" else 0.0
        return max(0.0, p.logits_eager_bytes - less) + more
    return p.logits_chunked_bytes if job.loss == "chunked" else p.logits_fused_bytes


def _moments(
    states: States,
    activations: tuple[float, float],
    logits: float,
    *,
    logits_of_one: float,
    job: Job,
    p: FinetuneParameters,
) -> dict[str, dict[str, float]]:
    """Moment -> what competes for the peak there, by field of `FinetuneMemory`. [byte].

    At the loss all kept activations and the logits are there, but only the gradients of earlier
    micro-batches; in the first layer's backward pass (the last to run) all gradients are; the
    optimizer steps on shards alone.
    """
    kept, working = activations
    grads, again = states.gradients_bytes, job.layout.recompute == "full"
    lives = job.layout.n_micro_batches > 1 and not job.optimizer.in_backward
    early = grads if lives else 0.0  # gradients live through the next micro-batch's loss
    copies = 2.0 if job.loss == "chunked" else 1.0  # one of a chunk beside the sum so far
    first = max(early, copies * states.head_gradient_bytes)
    then = max(first, min(grads, 2.0 * states.head_gradient_bytes))
    edge = states.gathered_edge_bytes
    gathered = states.gathered_bytes + (edge if p.root_gathered else 0.0)
    at_loss = states.gathered_bytes + (1.0 if p.root_gathered else HEAD_OF_EDGES) * edge
    cast = states.cast_bytes
    # recomputed, the copies go with the forward pass, before the gradient of the logits comes
    grown = logits * max(0.0, 1.0 - EVALUATED_LOGIT_BYTES / max(bytes_per_logit(job, p), 1e-9))
    found = {
        "loss": {
            "gradients_bytes": first,
            "kept_bytes": kept,
            "logits_bytes": logits,
            "gathered_bytes": at_loss + (max(0.0, cast - grown) if again else cast),
        },
        "backward": {
            "gradients_bytes": then,
            "kept_bytes": kept,
            "working_bytes": working,
            "gathered_bytes": gathered + (0.0 if again else cast),
        },
        "end of backward": {
            "gradients_bytes": grads,
            "working_bytes": working,
            "gathered_bytes": gathered,
        },
        "optimizer step": {"gradients_bytes": grads, "gathered_bytes": states.step_bytes},
    }
    if job.eval_batch:
        looked = EVALUATED_LOGIT_BYTES * job.eval_batch * logits_of_one
        found["evaluation"] = {"logits_bytes": looked, "gathered_bytes": gathered + cast}
    return found


def fragmentation_of(zero_stage: int, p: FinetuneParameters) -> float:
    """Reserved over allocated; layers that are gathered and let go leave holes. [1]."""
    return max(p.fragmentation, p.sharded_fragmentation if zero_stage == 3 else 1.0)


def bucket_bytes(layout: Layout, p: FinetuneParameters) -> float:
    """Buffers that ZeRO-1 and 2 reduce gradients in, held from the first backward pass on. [byte].

    They have one size whatever is trained (Rajbhandari et al. 2019, arXiv:1910.02054, section 6.2).
    """
    return p.reduce_bucket_bytes if layout.zero_stage in (1, 2) and layout.dp > 1 else 0.0


def stage_memory(
    model: ModelFacts,
    stage: StageParams,
    index: int,
    whole: MethodCounts,
    job: Job,
    p: FinetuneParameters,
) -> FinetuneMemory:
    """Assemble the peak of one stage: the largest of the moments of a step.

    Loading a model that is then sharded may need more than all of them.
    """
    states = stage_states(stage, index, whole, job, p)
    kept, working, away = stage_activations(model, stage, whole, job, p)
    layout = job.layout
    schedule = "interleaved" if layout.vpp > 1 and layout.schedule == "1f1b" else layout.schedule
    held = in_flight(schedule, index, layout.pp, layout.vpp, layout.n_micro_batches)
    logits = logits_bytes(model, job, p) if stage.has_head else 0.0
    one = layout.seq_len / layout.cp * model.vocab_size / layout.tp if stage.has_head else 0.0
    moments = _moments(states, (held * kept, working), logits, logits_of_one=one, job=job, p=p)
    static = {
        "base_bytes": states.base_bytes,
        "adapter_bytes": states.adapter_bytes,
        "optimizer_bytes": states.optimizer_bytes,
        "workspace_bytes": p.overhead_bytes + bucket_bytes(layout, p),
    }
    always = math.fsum(static.values())
    loading = p.loading_factor * 2.0 * whole.total_params if layout.zero_stage == 3 else 0.0
    if layout.dp > 1 and loading > always:
        moments["loading"] = {"gathered_bytes": loading - always}
    sums = {name: always + math.fsum(parts.values()) for name, parts in moments.items()}
    moment = max(sums, key=lambda name: sums[name])
    frag = fragmentation_of(layout.zero_stage, p)
    return FinetuneMemory(
        stage=index,
        moment=moment,
        **static,
        **moments[moment],
        fragmentation_bytes=(frag - 1.0) * sums[moment],
        context_bytes=p.context_bytes,
        peaks={name: frag * held_bytes + p.context_bytes for name, held_bytes in sums.items()},
        host_bytes=states.host_bytes + held * away,
    )


def finetune_memory(
    model: ModelSpec, facts: ModelFacts, job: Job, p: FinetuneParameters
) -> FinetuneMemory:
    """Peak memory of the fullest GPU of a fine-tuning job.

    `model, facts`: the model and its counts (`core.memory.facts.model_facts`). `job`: method,
    optimizer, layout, loss, offload. `p`: of the software family, or `parameters.IDEAL`. Returns:
    parts in byte at the deciding moment; host memory of the stage that holds most there.
    """
    layout = job.layout
    whole = counts(model, job.method)
    stages = layout_stages(facts.weights, "even", layout)
    peaks = [stage_memory(facts, s, i, whole, job, p) for i, s in enumerate(stages)]
    host = max(m.host_bytes for m in peaks)
    return replace(max(peaks, key=lambda m: m.total_bytes), host_bytes=host)
