"""A serving replica by itself: memory of a GPU, the smallest that fits, its roofline.

Prefill, decode, weights and cache under TP: Pope et al. 2022 (arXiv:2211.05102), sections 2 and 3;
experts met by a small batch: expectation of distinct draws (Feller 1968, volume 1, chapter IV).
The roofline leaves communication out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.formats import edge_bytes, number_format, weight_bytes
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.fit import gpu_counts
from gpuscale.core.model import layer_shape as flops
from gpuscale.core.model import params
from gpuscale.core.model.layer_shape import flop_per_token
from gpuscale.core.records import dataclass, replace
from gpuscale.core.run.time import job_time_s
from gpuscale.core.serving.layouts import checkpoint_formats, n_experts
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
        ep=ranks if n_experts(model) else 1,
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
        kv_bytes_per_token_all_gpus=flops.kv_bytes_per_token(model, weight_bytes(1.0, job.kv)),
    )


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


@dataclass(frozen=True, slots=True)
class ServingTimes:
    """Roofline times of one replica."""

    prefill_flop: float  # of one prompt as long as the context
    prefill_s: float
    decode_flop: float  # of one token of every sequence of a pipeline group
    decode_read_bytes: float  # weights met and cache read for it, all GPUs
    decode_s: float  # one token of every sequence
    decode_bound: str  # "memory" | "compute"
    group_sequences: int  # sequences that one pipeline stage works on at a time
    weights_read_frac: float  # of all weights, by the tokens of a group
    tokens_per_s: float  # of the replica
    tokens_per_s_per_sequence: float


def weights_read_bytes(model: ModelSpec, dtype: str, n_tokens: int) -> float:
    """Weights read to decode one token of each of `n_tokens` sequences. [byte].

    All but the input embedding; of the routed experts those that are chosen.
    """
    facts = model_facts(model)
    total = model_weight_bytes(model, dtype)
    if not model.tie_embeddings:
        total -= params.embedding_params(model) * edge_bytes(dtype)
    for kind in facts.weights.sequence:
        layer, experts = facts.kinds[kind], facts.weights.kinds[kind].expert_params
        if experts:
            met = params.experts_met_frac(layer.n_experts, layer.top_k, n_tokens)
            total -= (1.0 - met) * weight_bytes(experts, dtype, scales=True)
    return total


def serving_times(
    model: ModelSpec, job: ServingJob, tp: int, pp: int, hbm_bytes_per_s: float, flop_per_s: float
) -> ServingTimes:
    """Compute times of a replica of `tp` x `pp` GPUs.

    A token passes the pipeline stages one after another, so only `tp` GPUs work on it at a time;
    the sequences are split in `pp` groups that keep all stages busy.

    `job`: formats, context, concurrency. `tp`, `pp`: degrees. [1]
    `hbm_bytes_per_s`, `flop_per_s`: peaks of one GPU. [byte/s], [FLOP/s]
    """
    context = max(1, int(job.context_tokens))
    group = max(1, math.ceil(job.concurrency / pp))
    each = flop_per_token(model, context)
    prefill = context * (each.forward_flop - each.head_flop) + each.head_flop
    full = flop_per_token(model, context, causal=False).forward_flop * group
    weights = weights_read_bytes(model, job.weights, group)
    cache = group * flops.kv_cache_bytes(model, context, weight_bytes(1.0, job.kv))
    read = weights + cache
    step = decode_time_s(read, full, tp, hbm_bytes_per_s, flop_per_s)
    memory = read / (tp * hbm_bytes_per_s)
    return ServingTimes(
        prefill_flop=prefill,
        prefill_s=job_time_s(prefill, tp * flop_per_s),
        decode_flop=full,
        decode_read_bytes=read,
        decode_s=step,
        decode_bound="memory" if memory >= step else "compute",
        group_sequences=group,
        weights_read_frac=weights / model_weight_bytes(model, job.weights),
        tokens_per_s=job.concurrency / step,
        tokens_per_s_per_sequence=1.0 / step,
    )


def prefill_flop(
    n_params: float, seq_len: float, hidden_size: float, n_layers: float, causal: bool = False
) -> float:
    """FLOP to read a prompt: ``2 P s + 4 s^2 h L``, the second term halved by a causal kernel.

    `n_params`: parameters; of a mixture of experts the active ones. [1] `seq_len`: tokens of the
    prompt, s. [1] `hidden_size`: width of the attention (heads x head size), h. [1] `n_layers`:
    layers, L. [1] `causal`: whether the kernel skips the masked half. Returns one sequence. [FLOP]

    >>> prefill_flop(70e9, 4096, 8192, 80)
    617420465111040.0
    """
    attention = 4 * seq_len**2 * hidden_size * n_layers
    return 2 * n_params * seq_len + (attention / 2 if causal else attention)


def decode_flop(n_params: float, context: float, hidden_size: float, n_layers: float) -> float:
    """FLOP of one token with a KV cache of `context` tokens: ``2 P + 4 s h L``. [FLOP].

    >>> decode_flop(70e9, 4096, 8192, 80)
    150737418240.0
    """
    return 2 * n_params + 4 * context * hidden_size * n_layers


def decode_time_s(
    read_bytes: float, flop: float, tp: float, hbm_bytes_per_s: float, flop_per_s: float
) -> float:
    """Time of one decode step without communication.

    ``max(read_bytes / (tp W_hbm), flop / (tp C))``

    `read_bytes`: weights touched and KV cache of the whole batch. [byte] `flop`: FLOP of the whole
    batch. [FLOP] `tp`: GPUs that share both. [1] `hbm_bytes_per_s`, `flop_per_s`: peaks of one GPU.
    [byte/s], [FLOP/s] Returns time per token of every sequence. [s]

    >>> round(1e3 * decode_time_s(140e9, 140e9, 8, 3.35e12, 990e12), 3)  # ms, memory-bound
    5.224
    """
    if min(tp, hbm_bytes_per_s, flop_per_s) <= 0:
        raise ValueError("tp and the peak rates must be positive")
    return max(read_bytes / (tp * hbm_bytes_per_s), flop / (tp * flop_per_s))
