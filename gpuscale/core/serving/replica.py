"""Memory of a serving replica: shares of weights and cache per GPU, the smallest replica.

Weights and cache of a replica under TP: Pope et al. 2022 (arXiv:2211.05102), section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.formats import edge_bytes, number_format, weight_bytes
from gpuscale.core.memory.fit import gpu_counts
from gpuscale.core.model import kv_cache, params
from gpuscale.core.serving.layouts import checkpoint_formats
from gpuscale.core.serving.memory import EngineMemory, cache_bytes_per_sequence, cache_room

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica
    from gpuscale.specs.model import ModelSpec


MOST_GPUS = 4096
"""Largest replica tried when looking for the smallest that fits."""

MOST_SEQUENCES = 1e12
"""Where a cache takes nothing, more fit than anyone counts."""


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Memory of one GPU while serving, and the concurrency that fits. [byte]."""

    weights_bytes: float
    kv_cache_bytes: float  # of `concurrency` sequences
    activations_bytes: float
    overhead_bytes: float
    total_bytes: float
    usable_bytes: float
    kv_bytes_per_token_all_gpus: float
    kv_bytes_per_sequence_per_gpu: float
    concurrency: int
    max_concurrency: int
    cache_tokens: float  # that the cache of one rank holds, in sequences of the asked length
    fits: bool


def serving_memory(
    weights_bytes: float,
    kv_bytes_per_sequence: float,
    concurrency: int,
    usable_bytes: float,
    *,
    activations_bytes: float = 0.0,
    overhead_bytes: float = 0.0,
    kv_bytes_per_token_all_gpus: float = 0.0,
    context_tokens: float = 0.0,
) -> ServingMemory:
    """Add up the memory of one serving GPU; the arguments are shares of that GPU.

    >>> m = serving_memory(40e9, 0.5e9, 64, 80e9, overhead_bytes=5e9)
    >>> m.total_bytes / 1e9, m.max_concurrency, m.fits
    (77.0, 70, True)
    """
    if concurrency < 0:
        raise ValueError(f"concurrency must not be negative, got {concurrency}")
    fixed = weights_bytes + activations_bytes + overhead_bytes
    kv_cache = kv_bytes_per_sequence * concurrency
    room = usable_bytes - fixed
    if room < 0:
        most = 0
    elif kv_bytes_per_sequence > 0:
        most = int(min(room / kv_bytes_per_sequence, MOST_SEQUENCES))
    else:
        most = concurrency
    return ServingMemory(
        weights_bytes=weights_bytes,
        kv_cache_bytes=kv_cache,
        activations_bytes=activations_bytes,
        overhead_bytes=overhead_bytes,
        total_bytes=fixed + kv_cache,
        usable_bytes=usable_bytes,
        kv_bytes_per_token_all_gpus=kv_bytes_per_token_all_gpus,
        kv_bytes_per_sequence_per_gpu=kv_bytes_per_sequence,
        concurrency=concurrency,
        max_concurrency=most,
        cache_tokens=context_tokens * max(0.0, room) / (kv_bytes_per_sequence or math.inf),
        fits=fixed + kv_cache <= usable_bytes,
    )


@dataclass(frozen=True, slots=True)
class ServingJob:
    """What is served: formats, context, concurrency."""

    weights: str = "bf16"
    kv: str = "bf16"
    context_tokens: float = 8192
    concurrency: int = 1


def model_weight_bytes(model: ModelSpec, dtype: str) -> float:
    """Bytes of a model's weights: layers in `dtype` with their scales, embedding and head bf16.

    Published checkpoints keep embedding and head in 16 bits, some attention too; wider formats and
    GGUF hold for all.
    """
    formats = checkpoint_formats(model, number_format(dtype).stored_as or dtype, "bf16")
    total = params.count_params(model).total_params
    edges = params.embedding_params(model) + params.head_params(model)
    mixers = sum(g.n * params.mixer_params(g.mixer, model.hidden_size) for g in model.layer_groups)
    narrow = weight_bytes(total - edges - mixers, formats.ffn_format, scales=True)
    wide = weight_bytes(mixers, formats.attention_format, scales=True)
    return narrow + wide + edges * edge_bytes(dtype)


def replica_of(
    model: ModelSpec, job: ServingJob, tp: int, pp: int, *, split_kv: bool = False
) -> Replica:
    """Replica of `tp` x `pp` GPUs; with `split_kv` each GPU keeps its own sequences."""
    stored = number_format(job.weights).stored_as or job.weights
    ranks = tp if split_kv else 1
    return replace(
        checkpoint_formats(model, stored, job.kv),
        tp=tp // ranks,
        pp=pp,
        dp_attention=ranks,
        ep=ranks if is_sparse(model) else 1,
    )


def replica_memory(
    model: ModelSpec,
    job: ServingJob,
    tp: int,
    pp: int,
    device_bytes: float,
    *,
    split_kv: bool = False,
    engine: EngineMemory | None = None,
) -> ServingMemory:
    """Memory of one GPU of a replica of `tp` x `pp` GPUs, as an engine divides it.

    `job`: formats, context, concurrency of the replica. `tp`, `pp`: tensor (or
    expert) and pipeline parallel degree of the replica. [1] `device_bytes`: memory of one GPU that
    a process can have (`core.memory.fit.usable_bytes`). [byte] `split_kv`: attention is
    data-parallel: each GPU keeps its own sequences. `engine`: how the engine divides the memory;
    vLLM's way by default.
    """
    replica = replica_of(model, job, tp, pp, split_kv=split_kv)
    room = cache_room(model, replica, engine or EngineMemory(), device_bytes)
    return serving_memory(
        room.weights_bytes,
        cache_bytes_per_sequence(model, replica, job.context_tokens) / replica.dp_attention,
        job.concurrency,
        room.usable_bytes,
        activations_bytes=room.activations_bytes,
        overhead_bytes=room.overhead_bytes,
        context_tokens=job.context_tokens,
        kv_bytes_per_token_all_gpus=kv_cache.kv_bytes_per_token(model, weight_bytes(1.0, job.kv)),
    )


def is_sparse(model: ModelSpec) -> bool:
    """Whether a model has routed experts."""
    return any(f.kind == "moe" for f in model.ffns.values())


@dataclass(frozen=True, slots=True)
class FewestServing:
    """Smallest replica that serves a job."""

    n_gpus: int
    n_nodes: int
    tp: int
    pp: int


def fewest_serving(
    model: ModelSpec,
    job: ServingJob,
    device_bytes: float,
    gpus_per_node: int,
    *,
    split_kv: bool = False,
    engine: EngineMemory | None = None,
) -> FewestServing | None:
    """Smallest replica that holds the weights and the wanted concurrency: TP in a node, then PP."""
    for n in gpu_counts(gpus_per_node, most=MOST_GPUS):
        tp = min(n, gpus_per_node)
        pp = n // tp
        if pp > model.n_layers:
            return None
        one = replica_memory(model, job, tp, pp, device_bytes, split_kv=split_kv, engine=engine)
        if one.fits:
            return FewestServing(n, pp, tp, pp)
    return None
