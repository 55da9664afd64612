"""One pass of a replica over prompt tokens and decoding sequences; what has room.

A pass may hold prompt tokens and decoding sequences: Yu et al. 2022 (Orca, OSDI), section 3;
Agrawal et al. 2024 (Sarathi-Serve, arXiv:2403.02310); drafts: Leviathan 2023.
"""

from __future__ import annotations

import math
from math import hypot
from typing import TYPE_CHECKING

from gpuscale.core.formats import number_format
from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving import kernels
from gpuscale.core.serving.exchange import collective_s, layer_communication_s
from gpuscale.core.serving.memory import cache_bytes_per_sequence, cache_room
from gpuscale.core.serving.records import Batch, PassTime, Replica, ServingSite

if TYPE_CHECKING:
    from gpuscale.specs.model import LayerGroup, ModelSpec

SMALL_KERNELS = {
    "attention": 3,
    "mla": 7,
    "compressed": 9,
    "gated-delta": 6,
    "mamba2": 5,
    "lightning": 5,
    "short-conv": 4,
    "dense": 2,
    "moe": 7,
    "none": 0,
}
"""Kernels beside the products, by kind: norm, rotary and cache write; of MLA two more norms, the
split, the concatenation, the cast; of experts the scores, the choice, sort, gather, activation and
combine."""

PLE_KERNELS = 5
"""Of a layer's own embedding: gate, activation, projection, norm, sum (transformers Gemma3n)."""

SEPARATE_KERNELS = 2
"""More of them where the router's operations are fused by pattern: the choice of experts with their
weights, and the sum over experts, are a kernel each (ggml-cuda, `topk-moe.cu`, fused additions)."""

SEPARATE_STATE_KERNELS = {"gated-delta": 8}
"""The same of a recurrent layer: gates, norms, copies of the state. The update of the state is one
operation in place of 23 (llama.cpp, pull requests 19504 and 20091, March 2026)."""


def pass_time(model: ModelSpec, replica: Replica, site: ServingSite, batch: Batch) -> PassTime:
    """Time of one pass by part.

    `replica`: layout and formats. With pipeline stages the time is that of
    passing all of them. `site`: hardware and calibration. `batch`: prompt tokens and decoding
    sequences of the pass. Returns parts that add to the time of the pass. [s]
    """
    linear = attention = experts = communication = small = exchanged = 0.0
    k, soft = site.kernels, site.software
    if soft.gather_passes and batch.sequences >= replica.dp_attention > 1:
        batch = replace(batch, prompt_ranks=float(replica.dp_attention))
    rank, local = replace(replica, dp_attention=1), batch.on_rank(replica.dp_attention)
    for group in model.layer_groups:
        one, exchange_s = _layer(
            model, group, replica=replica, rank=rank, site=site, batch=batch, local=local
        )
        linear += group.n * one.linear_s
        attention += group.n * one.attention_s
        experts += group.n * one.experts_s
        communication += group.n * one.communication_s
        exchanged += group.n * exchange_s
        small += group.n * one.small_s
    head = _head_s(model, replica, site, local.prompts + local.decode_tokens)
    if replica.pp > 1:
        hop = local.tokens * model.hidden_size * 2.0 / replica.tp
        away = replica.n_gpus > site.domain
        communication += (replica.pp - 1) * collective_s(site, "send-recv", hop, 2, away)
    factor = k.linear_factor * soft.linear_factor
    head *= factor
    linear *= factor
    attention, experts, small = (soft.kernels_factor * t for t in (attention, experts, small))
    computed = linear + attention + experts + small
    communication += exposed_s(computed, exchanged, overlap_frac(replica, site))
    busy = computed + communication + head
    # one scheduler starts the pass of every stage
    host = replica.pp * (soft.host_s + soft.host_per_sequence_s * local.sequences)
    if batch.prompt_tokens > 0.0:  # launched layer by layer; a decode pass is one graph
        launch = soft.prompt_layer_s * model.n_layers
        launch += soft.prompt_expert_layer_s * model.n_expert_layers
        host = hypot(host, launch)
    # engines prepare a pass beside the one before, but not that of a stage beside another's
    turns = replica.pp > 1 or soft.serial_host
    beside = host if turns else side_by_side_s(busy, host, k.host_blend) - busy
    if soft.launch_s and not batch.prompt_tokens:
        beside += side_by_side_s(busy, soft.launch_s, k.host_blend) - busy
    waited = replica.pp * soft.step_s + beside
    return PassTime(
        linear_s=linear,
        attention_s=attention,
        experts_s=experts,
        communication_s=communication,
        small_s=small,
        head_s=head,
        host_s=waited,
    )


def layer_time_s(model: ModelSpec, replica: Replica, site: ServingSite, batch: Batch) -> float:
    """Time of one more layer like the model's last, and of the head: what proposes a draft. [s]."""
    rank, local = replace(replica, dp_attention=1), batch.on_rank(replica.dp_attention)
    group = model.layer_groups[-1]
    one, exchanged = _layer(
        model, group, replica=replica, rank=rank, site=site, batch=batch, local=local
    )
    head = _head_s(model, replica, site, local.decode_tokens)
    factor = site.kernels.linear_factor * site.software.linear_factor
    own = site.software.kernels_factor * (one.attention_s + one.experts_s + one.small_s)
    return own + one.communication_s + exchanged + factor * (one.linear_s + head)


def _head_s(model: ModelSpec, replica: Replica, site: ServingSite, tokens: float) -> float:
    """Time of the output head, in the format that files keep it in."""
    formats = (replica.ffn_format, replica.attention_format)
    fmt = next((e for f in formats if (e := number_format(f).edges) != "bf16"), "bf16")
    return kernels.product_s(site, tokens, model.vocab_size / replica.tp, model.hidden_size, fmt)


def side_by_side_s(gpu_s: float, host_s: float, blend: float) -> float:
    """Time of two that run side by side and wait for each other now and then.

    ``(gpu^p + host^p)^(1/p)``: asynchronous schedulers prepare a pass while the one before runs.

    >>> round(side_by_side_s(4.0, 3.0, 2.0), 3)
    5.0
    """
    long, short = (gpu_s, host_s) if gpu_s > host_s else (host_s, gpu_s)
    return float(long * (1.0 + (short / long) ** blend) ** (1.0 / blend)) if long > 0.0 else 0.0


def overlap_frac(replica: Replica, site: ServingSite) -> float:
    """Share of the shorter of compute and exchange that is hidden; 0 where they take turns.

    Two-batch overlap is for experts over several nodes (DeepSeek-V3, section 3.4).
    """
    soft = site.software
    wide = replica.dp_attention > 1 and replica.ep > max(site.domain, soft.joint_gpus)
    return site.kernels.exchange_overlap if wide and soft.two_batches else 0.0


def exposed_s(compute_s: float, exchange_s: float, overlap: float) -> float:
    """Time that an exchange adds: ``max(c, e) + (1 - o) min(c, e) - c``.

    >>> exposed_s(5.0, 4.0, 0.0), exposed_s(5.0, 4.0, 1.0), exposed_s(4.0, 5.0, 1.0)
    (4.0, 0.0, 1.0)
    """
    short, long = sorted((compute_s, exchange_s))
    return long + (1.0 - overlap) * short - compute_s


def _layer(
    model: ModelSpec,
    group: LayerGroup,
    replica: Replica,
    rank: Replica,
    site: ServingSite,
    batch: Batch,
    local: Batch,
) -> tuple[PassTime, float]:
    """(time by part, exchange of experts) of one layer."""
    h, k = model.hidden_size, site.kernels
    dense, experts = kernels.ffn_s(group.ffn, h, batch.tokens, local.tokens, replica, site)
    passed = k.stream_passes * local.tokens * h * 2.0 / site.hbm_bytes_per_s
    core = kernels.prefill_core_s(group.mixer, local, rank, site)
    core += kernels.decode_core_s(group.mixer, local, rank, site)
    n_small = SMALL_KERNELS[group.mixer.kind] + SMALL_KERNELS[group.ffn.kind]
    if site.software.adds_experts:
        n_small += SEPARATE_KERNELS if group.ffn.kind == "moe" else 0
        n_small += SEPARATE_STATE_KERNELS.get(group.mixer.kind, 0)
    n_small += PLE_KERNELS if model.ple_hidden_size else 0
    reads = batch.prompt_tokens > 0.0
    reduced, exchanged = layer_communication_s(group, h, replica, site, local.tokens, reads)
    found = PassTime(
        linear_s=kernels.projections_s(group.mixer, h, local, rank, site) + dense,
        attention_s=core,
        experts_s=experts,
        communication_s=reduced,
        small_s=n_small * k.small_kernel_s * site.software.small_factor + passed,
    )
    return found, exchanged


def most_sequences(model: ModelSpec, replica: Replica, site: ServingSite, tokens: float) -> float:
    """Sequences of `tokens` tokens whose cache fits beside the weights, whole replica. [1]."""
    room = cache_room(model, replica, site.software.memory, site.hbm_bytes).cache_bytes
    each = cache_bytes_per_sequence(model, replica, tokens)
    most = room / each if each > 0.0 else math.inf
    most = min(most, site.software.max_sequences * replica.pp)
    return max(0.0, most) * replica.dp_attention


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One pass over decoding sequences, and the tokens that each gets of it."""

    parts: PassTime
    draft_s: float  # proposing, 0 without drafts
    tokens: float  # 1, and the drafts accepted

    @property
    def time_s(self) -> float:
        """Of the pass and the drafts."""
        return self.parts.total_s + self.draft_s

    @property
    def per_token_s(self) -> float:
        """Time per token of a sequence: ``(T(b (n+1)) + T_draft) / (1 + a)``."""
        return self.time_s / self.tokens

    @property
    def network_s(self) -> float:
        """Part of `per_token_s` that GPUs wait for each other."""
        return self.parts.communication_s / self.tokens


def decode_step(
    model: ModelSpec, replica: Replica, site: ServingSite, sequences: float, context: float
) -> DecodeStep:
    """One decode pass of `sequences` sequences, with the replica's drafts (Leviathan 2023).

    A draft costs one layer like the model's last (its prediction layer, or an EAGLE head) and the
    output head, one after another.
    """
    drafts = replica.drafts
    if drafts is None or drafts.n_tokens < 1:
        batch = Batch(sequences=sequences, context=context)
        return DecodeStep(pass_time(model, replica, site, batch), 0.0, 1.0)
    batch = Batch(sequences=sequences, context=context, tokens_each=drafts.n_tokens + 1.0)
    parts = pass_time(model, replica, site, batch)
    one = layer_time_s(model, replica, site, Batch(sequences=sequences, context=context))
    return DecodeStep(parts, drafts.n_tokens * one, 1.0 + drafts.accepted)


def prompt_pass(
    model: ModelSpec, replica: Replica, site: ServingSite, tokens: float, prompts: float
) -> PassTime:
    """Time of the passes that read `prompts` prompts at a time.

    A prompt longer than the chunk takes several passes, returned as their sum; `host_s` too. Each
    attention rank reads prompts of its own, one chunk a pass.
    """
    ranks = max(1.0, min(replica.dp_attention, prompts))
    n_passes = max(1.0, tokens * prompts / ranks / site.software.chunk_tokens)
    batch = Batch(tokens * prompts / n_passes, tokens / 2.0, prompts / n_passes, prompt_ranks=ranks)
    one = pass_time(model, replica, site, batch)
    return PassTime(*(n_passes * getattr(one, name) for name in PassTime.__slots__))
