"""Serving one replica: prefill and decode by the roofline, communication left out.

Experts met by a small batch: expectation of distinct draws (Feller 1968, volume 1, chapter IV);
prefill and decode: Pope et al. 2022 (arXiv:2211.05102), section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.formats import edge_bytes, weight_bytes
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.model.flops import flop_per_token
from gpuscale.core.model.kv_cache import kv_cache_bytes
from gpuscale.core.model.params import embedding_params, experts_met_frac
from gpuscale.core.run.time import job_time_s
from gpuscale.core.serving.ideal import decode_time_s
from gpuscale.core.serving.replica import model_weight_bytes

if TYPE_CHECKING:
    from gpuscale.core.serving.replica import ServingJob
    from gpuscale.specs.model import ModelSpec


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
        total -= embedding_params(model) * edge_bytes(dtype)
    for kind in facts.weights.sequence:
        layer, experts = facts.kinds[kind], facts.weights.kinds[kind].expert_params
        if experts:
            met = experts_met_frac(layer.n_experts, layer.top_k, n_tokens)
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
    cache = group * kv_cache_bytes(model, context, weight_bytes(1.0, job.kv))
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
