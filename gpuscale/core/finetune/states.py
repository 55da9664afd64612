"""Weights, adapters, gradients and optimizer states of a fine-tuning job on one GPU.

Hu et al. 2021 (LoRA, arXiv:2106.09685), section 4.1; Dettmers et al. 2023 (QLoRA,
arXiv:2305.14314), section 3. Each optimizer cites its paper.
"""

from __future__ import annotations

from gpuscale.core.finetune.method import CAST, Job, LayerCounts, MethodCounts
from gpuscale.core.finetune.parameters import FinetuneParameters
from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import shards
from gpuscale.core.records import dataclass, replace
from gpuscale.core.stages import StageParams


@dataclass(frozen=True, slots=True)
class Optimizer:
    """States of one optimizer; `state_bits` 0: stored as the software stores its moments."""

    name: str
    moments: float  # elements per parameter of a weight matrix
    other_moments: float  # elements per parameter of embeddings, norms, head
    source: str
    state_bits: float = 0.0  # of one moment, block constants included
    factored: bool = False  # rows and columns instead of a full moment
    projected: bool = False  # moments of a low-rank projection of the gradient
    paged: bool = False  # outside the allocator until it spills
    in_backward: bool = False  # updated layer by layer: no gradients of the whole model
    temporaries: float = 0.0  # elements per parameter that a step makes beside the states


_ADAMW = (
    "Loshchilov and Hutter, arXiv:1711.05101: two moments; torch.optim's foreach steps hold the "
    "root of the second (torch/optim/adam.py, _multi_tensor_adam)"
)
_BNB = "Dettmers et al. 2022, arXiv:2110.02861: 8-bit states, an fp32 constant per 256"
_EIGHT = 8 + 32 / 256

OPTIMIZERS: dict[str, Optimizer] = {
    o.name: o
    for o in (
        Optimizer("adamw", 2, 2, _ADAMW, temporaries=1),
        Optimizer("adamw-fp32", 2, 2, "two moments of 4 bytes", 32, temporaries=1),
        Optimizer("adamw-bf16", 2, 2, "two moments in bf16", 16, temporaries=1),
        Optimizer("adamw-8bit", 2, 2, _BNB, _EIGHT),
        Optimizer("adamw-4bit", 2, 2, "torchao low-bit optimizers: blocks of 128", 4.25),
        Optimizer("paged-adamw", 2, 2, "bitsandbytes: unified memory", 0, paged=True),
        Optimizer("paged-adamw-8bit", 2, 2, _BNB, _EIGHT, paged=True),
        Optimizer(
            "adafactor", 0, 0, "Shazeer and Stern, arXiv:1804.04235, section 4", factored=True
        ),
        Optimizer("lion", 1, 1, "Chen et al., arXiv:2302.06675: one moment"),
        Optimizer("lion-8bit", 1, 1, _BNB, _EIGHT),
        Optimizer(
            "muon", 1, 2, "Jordan et al. 2024: one moment of hidden matrices, AdamW for the rest"
        ),
        Optimizer(
            "galore", 2, 2, "Zhao et al., arXiv:2403.03507, section 4: m r + 2 n r", projected=True
        ),
        Optimizer("galore-8bit", 2, 2, "GaLore, section 4.2", _EIGHT, projected=True),
        Optimizer("sgd", 0, 0, "no momentum"),
        Optimizer("sgd-momentum", 1, 1, "one moment"),
    )
}
"""Optimizers by name; `+in-backward` behind a name updates each layer as its gradient comes."""

SYNONYMS = {
    **dict.fromkeys(
        ("adam", "adamw-torch", "adamw-torch-fused", "adamw-hf", "fused-adam"), "adamw"
    ),
    **dict.fromkeys(("adamw-bnb-8bit", "adam-8bit", "adamw8bit"), "adamw-8bit"),
    **dict.fromkeys(("paged-adamw-32bit", "pagedadamw"), "paged-adamw"),
    **dict.fromkeys(("pagedadamw8bit", "paged-adamw8bit"), "paged-adamw-8bit"),
    "lion-32bit": "lion",
    "galore-adamw": "galore",
    "galore-adamw-8bit": "galore-8bit",
}
"""Names of frameworks, as the Trainer's `optim` has them -> the names here."""

IN_BACKWARD = "+in-backward"

GALORE_RANK_FRAC = 0.25
"""Rank of GaLore over the smaller side of a matrix: its paper's 7B runs, 1,024 of 4,096."""


def optimizer(name: str) -> Optimizer:
    """Look an optimizer up by name.

    Raises ValueError if it is not known.

    >>> optimizer("adamw-8bit+in-backward").in_backward, optimizer("paged_adamw_32bit").name
    (True, 'paged-adamw')
    """
    bare = name.removesuffix(IN_BACKWARD)
    word = bare.replace("_", "-")
    known = SYNONYMS.get(word, word)
    if known not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    found = OPTIMIZERS[known]
    return replace(found, in_backward=True) if bare != name else found


def state_bytes(opt: Optimizer, moment_bytes: float, *, matrix: bool = True) -> float:
    """Bytes of states per parameter of a matrix (or of the rest), where moments are whole. [byte].

    `moment_bytes` is how the software stores a moment that the optimizer's name leaves open.

    >>> state_bytes(OPTIMIZERS["adamw"], 4.0), state_bytes(OPTIMIZERS["muon"], 4.0)
    (8.0, 4.0)
    """
    each = opt.state_bits / 8 if opt.state_bits else moment_bytes
    return (opt.moments if matrix else opt.other_moments) * each


def matrix_state_bytes(
    opt: Optimizer, n_in: float, n_out: float, moment_bytes: float, rank: float | None = None
) -> float:
    """States of one (n_in, n_out) matrix, factored and projected optimizers included. [byte].

    Adafactor keeps a row and a column of fp32; GaLore a projector of the smaller side and two
    moments of the projected gradient.

    >>> matrix_state_bytes(OPTIMIZERS["adafactor"], 4096, 4096, 4.0)
    32768.0
    """
    if opt.factored:
        return 4.0 * (n_in + n_out)
    if opt.projected:
        small, large = min(n_in, n_out), max(n_in, n_out)
        r = min(small, rank or GALORE_RANK_FRAC * small)
        each = opt.state_bits / 8 if opt.state_bits else moment_bytes
        return 2.0 * small * r + opt.moments * each * large * r
    return state_bytes(opt, moment_bytes) * n_in * n_out


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
class StageParameters:
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


def held(stage: StageParams, index: int, whole: MethodCounts, layout: Layout) -> StageParameters:
    """Count what one stage holds on one GPU."""
    tp, split = layout.tp, layout.ep * layout.etp
    kinds = [(n, whole.kinds[k]) for k, n in stage.layers]
    embedding = whole.embedding_params if index == 0 else 0.0
    matrix = whole.head_params or whole.embedding_params
    copy = 0.0 if index == 0 else matrix  # a tied head away from its embedding is a copy
    head = (whole.head_params or copy) + whole.top_params if stage.has_head else 0.0
    return StageParameters(
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
    stage: StageParams, index: int, whole: MethodCounts, job: Job, p: FinetuneParameters
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


def gathered_params(largest: float, p: FinetuneParameters) -> float:
    """Parameters of sharded layers that are whole at once, by the largest layer's. [1].

    DeepSpeed lets go what is not used again within `stage3_max_reuse_distance` parameters.
    """
    several = p.gathered_layers * largest
    return min(several, max(largest, p.most_gathered_params)) if p.most_gathered_params else several


def base_bytes_per_param(job: Job, p: FinetuneParameters) -> tuple[float, float]:
    """Bytes of a frozen weight: (of the linear maps, of embedding, head and norms). [byte]."""
    if job.method.base in ("bf16", "fp16"):
        return p.frozen_bytes, p.frozen_bytes
    return job.method.base_bytes, p.edge_bytes if job.method.base in CAST else p.frozen_bytes


def _adapter_states(
    stage: StageParams, here: StageParameters, whole: MethodCounts, job: Job, p: FinetuneParameters
) -> States:
    layout, method, opt = job.layout, job.method, job.optimizer
    n_dense, n_expert = shards(layout)
    by = (n_dense, n_expert) if layout.zero_stage == 3 else (1, 1)
    state_by = (n_dense, n_expert) if layout.zero_stage >= 1 else (1, 1)
    linear_bytes, edge_bytes = base_bytes_per_param(job, p)
    base = linear_bytes * here.dense / by[0]
    base += (edge_bytes if method.stacked else linear_bytes) * here.experts / by[1]
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
        gathered, edge = linear_bytes * gathered_params(largest, p), 2.0 * here.edges
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


def _moments_bytes(
    stage: StageParams, here: StageParameters, whole: MethodCounts, job: Job, p: float
) -> float:
    """Optimizer states of a stage trained in full, before data-parallel sharding. [byte]."""
    layout, opt = job.layout, job.optimizer
    total = state_bytes(opt, p, matrix=False) * (here.other + here.edges)
    for k, n in stage.layers:
        for m in whole.kinds[k].maps:
            split = layout.ep * layout.etp if m.copies > 1 else layout.tp
            total += n * m.copies / split * matrix_state_bytes(opt, m.n_in, m.n_out, p)
    return total


def _full_states(
    stage: StageParams, here: StageParameters, whole: MethodCounts, job: Job, p: FinetuneParameters
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
        gathered, edge = 2.0 * gathered_params(layer, p), 2.0 * here.edges
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
