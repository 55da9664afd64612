"""Memory of a serving replica: shares of weights and cache per GPU, the smallest replica.

Weights and cache of a replica under TP: Pope et al. 2022 (arXiv:2211.05102), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.formats import weight_bytes
from gpuscale.core.memory.fit import gpu_counts
from gpuscale.core.memory.inference import ServingMemory, serving_memory
from gpuscale.core.model import kv_cache, params

if TYPE_CHECKING:
    from gpuscale.specs.model import ModelSpec

SERVING_OVERHEAD_BYTES = 3.0e9
"""CUDA context, NCCL buffers, CUDA graphs of one GPU: prior, 2 to 4 GB in practice."""

PREFILL_TOKENS = 8192
"""Tokens of one forward pass (chunked prefill budget) that activations are held for."""


@dataclass(frozen=True, slots=True)
class ServingJob:
    """What is served: formats, context, concurrency."""

    weights: str = "bf16"
    kv: str = "bf16"
    context_tokens: float = 8192
    concurrency: int = 1
    overhead_bytes: float = SERVING_OVERHEAD_BYTES


def kv_shards(model: ModelSpec, tp: int) -> int:
    """GPUs of a TP group over which the cache really splits.

    KV heads split; an MLA latent has one copy per GPU (DeepSeek-V2, section 2.1.2), unless
    attention is data-parallel, which splits sequences instead.
    """
    return min([tp, *(m.cache_shards(tp) for m in model.mixers.values())])


def model_weight_bytes(model: ModelSpec, dtype: str) -> float:
    """Bytes of a model's weights: layers in `dtype` with their scales, embedding and head bf16.

    Published checkpoints keep embedding, head and norms in 16 bits; wider formats hold for all.
    """
    total = params.count_params(model).total_params
    edges = params.embedding_params(model) + params.head_params(model)
    wide = dtype if dtype in ("fp32", "tf32") else "bf16"
    return weight_bytes(total - edges, dtype, scales=True) + weight_bytes(edges, wide)


def replica_memory(
    model: ModelSpec, job: ServingJob, tp: int, pp: int, usable: float, *, split_kv: bool = False
) -> ServingMemory:
    """Memory of one GPU of a replica of `tp` x `pp` GPUs.

    Parameters
    ----------
    model : ModelSpec
        The model.
    job : ServingJob
        Formats, context, concurrency of the replica.
    tp, pp : int
        Tensor (or expert) and pipeline parallel degree of the replica. [1]
    usable : float
        Memory of one GPU that a process can have. [byte]
    split_kv : bool
        Attention is data-parallel: the cache splits over all GPUs, whatever the heads are.
    """
    element = weight_bytes(1.0, job.kv)
    kv_sequence = kv_cache.kv_cache_bytes(model, job.context_tokens, element)
    shards = (tp if split_kv else kv_shards(model, tp)) * pp
    tokens = min(float(PREFILL_TOKENS), job.context_tokens * max(1, job.concurrency))
    return serving_memory(
        model_weight_bytes(model, job.weights) / (tp * pp),
        kv_sequence / shards,
        job.concurrency,
        usable,
        activations_bytes=tokens * model.hidden_size * 2.0 * 6 / max(1, min(tp, 2)),
        overhead_bytes=job.overhead_bytes,
        kv_bytes_per_token_all_gpus=kv_cache.kv_bytes_per_token(model, element),
    )


@dataclass(frozen=True, slots=True)
class FewestServing:
    """Smallest replica that serves a job."""

    n_gpus: int
    n_nodes: int
    tp: int
    pp: int


def fewest_serving(
    model: ModelSpec, job: ServingJob, usable: float, gpus_per_node: int, *, split_kv: bool = False
) -> FewestServing | None:
    """Smallest replica that holds the weights and the wanted concurrency: TP in a node, then PP."""
    for n in gpu_counts(gpus_per_node, most=4096):
        tp = min(n, gpus_per_node)
        pp = n // tp
        if pp > model.n_layers:
            return None
        if replica_memory(model, job, tp, pp, usable, split_kv=split_kv).fits:
            return FewestServing(n, pp, tp, pp)
    return None
