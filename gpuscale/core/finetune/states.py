"""Weights, adapters, gradients and optimizer states of a fine-tuning job on one GPU.

Hu et al. 2021 (LoRA, arXiv:2106.09685), section 4.1; Dettmers et al. 2023 (QLoRA,
arXiv:2305.14314), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.optimizers import matrix_state_bytes, state_bytes
from gpuscale.core.memory.peak import shards

if TYPE_CHECKING:
    from gpuscale.core.finetune.method import Counts, Job, LayerCounts
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.layout import Layout
    from gpuscale.core.stages import StageParams


CAST = ("nf4", "nf4-nodq", "int8")
"""Bases beside which PEFT casts embedding, head and norms to fp32 (bitsandbytes; not GPTQ, AWQ):
peft/utils/other.py, prepare_model_for_kbit_training."""


@dataclass(frozen=True, slots=True)
class States:
    """Weights and states of one stage on one GPU, and what of them lies on the host. [byte]."""

    base_bytes: float
    optimizer_bytes: float
    gathered_bytes: float  # gathered layers, unpacked matrices
    gathered_edge_bytes: float  # embedding and head, where they are gathered
    step_bytes: float  # temporary, at the optimizer step
    adapter_bytes: float = 0.0  # adapters and saved modules with their gradients
    gradients_bytes: float = 0.0
    head_gradient_bytes: float = 0.0  # the first gradient to appear
    host_bytes: float = 0.0
    cast_bytes: float = 0.0  # 16-bit copies of fp32 weights, from the forward pass on


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters of one stage on one GPU before data-parallel sharding. [1]."""

    dense: float  # linear maps outside routed experts
    experts: float
    other: float  # norms, routers, biases
    adapters: float
    expert_adapters: float
    edges: float  # embedding, head, final norm
    head: float  # the head's matrix, tied or not
    largest_matrix: float
    layers: tuple[LayerCounts, ...]

    @property
    def total(self) -> float:
        """All parameters of the model itself. [1]."""
        return self.dense + self.experts + self.other + self.edges


def held(stage: StageParams, index: int, whole: Counts, layout: Layout) -> Held:
    """Count what one stage holds on one GPU."""
    tp, split = layout.tp, layout.ep * layout.etp
    kinds = [(n, whole.kinds[k]) for k, n in stage.layers]
    embedding = whole.embedding_params if index == 0 else 0.0
    matrix = whole.head_params or whole.embedding_params
    copy = 0.0 if index == 0 else matrix  # a tied head away from its embedding is a copy
    head = (whole.head_params or copy) + whole.top_params if stage.has_head else 0.0
    return Held(
        dense=sum(n * (k.linear_params - k.expert_params) for n, k in kinds) / tp,
        experts=sum(n * k.expert_params for n, k in kinds) / split,
        other=sum(n * k.other_params for n, k in kinds),
        adapters=sum(n * (k.adapter_params - k.expert_adapter_params) for n, k in kinds) / tp,
        expert_adapters=sum(n * k.expert_adapter_params for n, k in kinds) / split,
        edges=(embedding + head) / tp,
        head=matrix / tp if stage.has_head else 0.0,
        largest_matrix=max((k.largest_matrix for _, k in kinds), default=0.0) / tp,
        layers=tuple(k for _, k in kinds),
    )


def layer_params(kind: LayerCounts, layout: Layout) -> float:
    """Linear weights of one layer on one GPU, unsharded. [1]."""
    dense = (kind.linear_params - kind.expert_params) / layout.tp
    return dense + kind.expert_params / (layout.ep * layout.etp)


def stage_states(
    stage: StageParams, index: int, whole: Counts, job: Job, p: FinetuneParameters
) -> States:
    """States of one stage on one GPU: a frozen base with adapters, or weights trained in full."""
    here = held(stage, index, whole, job.layout)
    make = _adapter_states if job.method.adapts else _full_states
    made = make(stage, here, whole, job, p)
    if "parameters" in job.offload:
        made = replace(made, host_bytes=made.host_bytes + made.base_bytes, base_bytes=0.0)
    if "optimizer" in job.offload:
        host = made.host_bytes + made.optimizer_bytes
        step = made.step_bytes if job.method.adapts else 0.0
        made = replace(made, host_bytes=host, optimizer_bytes=0.0, step_bytes=step)
    return made


def copies_gradients(layout: Layout, p: FinetuneParameters) -> bool:
    """Whether replicas hold their gradients twice: in buckets that are reduced, and as tensors.

    PyTorch's DDP does unless told `gradient_as_bucket_view` (Li et al. 2020, arXiv:2006.15704,
    section 3.2.3).
    """
    return p.replica_buckets and layout.zero_stage == 0 and layout.dp > 1


def casts_weights(job: Job, p: FinetuneParameters) -> bool:
    """Whether autocast keeps 16-bit copies of fp32 weights.

    They live from their first product to the end of the forward pass, and to their backward pass
    where nothing is recomputed (torch.autocast's cache of leaves).
    """
    return p.autocast and not job.method.adapts and p.full_weights_bytes > 2.0


def base_bytes_per_param(job: Job, p: FinetuneParameters) -> tuple[float, float]:
    """Bytes of a frozen weight: (of the linear maps, of embedding, head and norms). [byte]."""
    if job.method.base in ("bf16", "fp16"):
        return p.frozen_bytes, p.frozen_bytes
    return job.method.base_bytes, p.edge_bytes if job.method.base in CAST else p.frozen_bytes


def _adapter_states(
    stage: StageParams, here: Held, whole: Counts, job: Job, p: FinetuneParameters
) -> States:
    layout, method, opt = job.layout, job.method, job.optimizer
    n_dense, n_expert = shards(layout)
    by = (n_dense, n_expert) if layout.zero_stage == 3 else (1, 1)
    state_by = (n_dense, n_expert) if layout.zero_stage >= 1 else (1, 1)
    linear_bytes, edge_bytes = base_bytes_per_param(job, p)
    base = linear_bytes * (here.dense / by[0] + here.experts / by[1])
    base += edge_bytes * (here.other + here.edges) / by[0]
    adapters = here.adapters / by[0] + here.expert_adapters / by[1]
    stateful = here.adapters / state_by[0] + here.expert_adapters / state_by[1]
    states = state_bytes(opt, p.adapter_moment_bytes) * stateful
    saved = p.saved_module_bytes * here.edges / by[0] if method.train_embeddings else 0.0
    reduced = 2.0 if copies_gradients(layout, p) else 1.0
    adapter = (p.adapter_weights_bytes + reduced * p.adapter_gradients_bytes) * adapters + saved
    gathered = edge = 0.0
    if layout.zero_stage == 3 and n_dense > 1:
        largest = max((layer_params(k, layout) for k in here.layers), default=0.0)
        gathered, edge = p.gathered_layers * linear_bytes * largest, 2.0 * here.edges
    if method.quantised:
        gathered += 2.0 * p.dequantised_copies * here.largest_matrix
    return States(
        base_bytes=base,
        adapter_bytes=adapter,
        optimizer_bytes=0.0 if opt.paged else states,
        gathered_bytes=gathered,
        gathered_edge_bytes=edge,
        step_bytes=p.step_bytes * opt.temporaries * adapters,
    )


def _moments_bytes(stage: StageParams, here: Held, whole: Counts, job: Job, p: float) -> float:
    """Optimizer states of a stage trained in full, before data-parallel sharding. [byte]."""
    layout, opt = job.layout, job.optimizer
    total = state_bytes(opt, p, matrix=False) * (here.other + here.edges)
    for k, n in stage.layers:
        for m in whole.kinds[k].maps:
            split = layout.ep * layout.etp if m.copies > 1 else layout.tp
            total += n * m.copies / split * matrix_state_bytes(opt, m.n_in, m.n_out, p)
    return total


def _full_states(
    stage: StageParams, here: Held, whole: Counts, job: Job, p: FinetuneParameters
) -> States:
    layout, opt, zero = job.layout, job.optimizer, job.layout.zero_stage
    n_dense, n_expert = shards(layout)
    share = whole.trained_params / whole.total_params

    def sharded(on: bool) -> float:
        dense = here.total - here.experts
        return dense / n_dense + here.experts / n_expert if on else here.total

    weights, grads, states = sharded(zero >= 3), sharded(zero >= 2), sharded(zero >= 1)
    base = p.full_weights_bytes * weights
    gradients = p.full_gradients_bytes * grads * share
    gradients *= 2.0 if copies_gradients(layout, p) else 1.0
    moments = _moments_bytes(stage, here, whole, job, p.full_moment_bytes) / here.total
    held_states = (p.full_master_bytes + (0.0 if opt.paged else moments)) * states * share
    layer = max((layer_params(k, layout) for k in here.layers), default=0.0)
    if opt.in_backward:
        gradients = p.full_gradients_bytes * min(grads, max(layer, here.head))
    gathered = edge = 0.0
    if zero == 3 and n_dense > 1:
        gathered, edge = 2.0 * p.gathered_layers * layer, 2.0 * here.edges
    stepped = states * share
    if zero == 3 and p.step_group_params:
        stepped = min(stepped, p.step_group_params)
    # ZeRO-3 steps on copies beside its flat buffer of gradients, the lower stages in their place
    left = 0.0 if zero == 3 else p.full_gradients_bytes
    copied = max(0.0, p.step_gradients_bytes - left)
    step = 0.0 if opt.in_backward else (copied + p.step_bytes * opt.temporaries) * stepped
    host = 0.0
    if "gradients" in job.offload or ("optimizer" in job.offload and p.offload_gradients):
        host += gradients * max(1.0, p.step_gradients_bytes / max(p.full_gradients_bytes, 1.0))
        gradients = min(gradients, p.full_gradients_bytes * max(layer, here.head))
    return States(
        base_bytes=base,
        gradients_bytes=gradients,
        optimizer_bytes=held_states,
        gathered_bytes=gathered,
        gathered_edge_bytes=edge,
        step_bytes=step,
        head_gradient_bytes=min(gradients, p.full_gradients_bytes * here.head * share),
        host_bytes=host,
        cast_bytes=2.0 * (here.dense + here.experts + here.head) if casts_weights(job, p) else 0.0,
    )
