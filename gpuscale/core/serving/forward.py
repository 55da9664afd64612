"""One pass of a replica over prompt tokens and decoding sequences."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING

from gpuscale.core.network.expected import expected_collective_time_s
from gpuscale.core.serving.ffns import ffn_s
from gpuscale.core.serving.mixers import decode_core_s, prefill_core_s, projections_s
from gpuscale.core.serving.products import product_s, rounded
from gpuscale.core.serving.records import PassTime

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Batch, Replica, ServingSite
    from gpuscale.specs.model import LayerGroup, ModelSpec

SMALL_KERNELS = {
    "attention": 3,
    "mla": 7,
    "compressed": 9,
    "gated-delta": 6,
    "mamba2": 5,
    "lightning": 5,
    "dense": 2,
    "moe": 7,
    "none": 0,
}
"""Kernels beside the products, by kind: norm, rotary and cache write; of MLA two more norms, the
split, the concatenation, the cast; of experts the scores, the choice, sort, gather, activation and
combine."""


def pass_time(model: ModelSpec, replica: Replica, site: ServingSite, batch: Batch) -> PassTime:
    """Time of one pass by part.

    Parameters
    ----------
    model : ModelSpec
        The model.
    replica : Replica
        Layout and formats. With pipeline stages the time is that of passing all of them.
    site : ServingSite
        Hardware and calibration.
    batch : Batch
        Prompt tokens and decoding sequences of the pass.

    Returns
    -------
    PassTime
        Parts that add to the time of the pass. [s]
    """
    linear = attention = experts = communication = small = 0.0
    k = site.kernels
    for group in model.layer_groups:
        one = _layer(model, group, replica, site, batch)
        linear += group.n * one.linear_s
        attention += group.n * one.attention_s
        experts += group.n * one.experts_s
        communication += group.n * one.communication_s
        small += group.n * one.small_s
    ends = (batch.prompts + batch.sequences) / replica.dp_attention
    head = product_s(site, ends, model.vocab_size / replica.tp, model.hidden_size, "bf16")
    if replica.pp > 1:
        hop = batch.tokens * model.hidden_size * 2.0 / replica.group
        communication += (replica.pp - 1) * _collective_s(
            site, "send-recv", hop, 2, replica.n_gpus > site.domain
        )
    soft = site.software
    head *= k.linear_factor
    linear *= k.linear_factor
    host = soft.host_s + soft.host_per_sequence_s * batch.sequences
    if batch.prompt_tokens > 0.0:  # launched layer by layer; a decode pass is one graph
        busy = linear + attention + experts + communication + small + head
        moe = sum(g.n for g in model.layer_groups if g.ffn.kind == "moe")
        launch = soft.prompt_layer_s * model.n_layers + soft.prompt_expert_layer_s * moe
        host += hypot(busy, launch) - busy
    return PassTime(linear, attention, experts, communication, small, head, host)


def _layer(
    model: ModelSpec, group: LayerGroup, replica: Replica, site: ServingSite, batch: Batch
) -> PassTime:
    h, k = model.hidden_size, site.kernels
    dense, experts = ffn_s(group.ffn, h, batch.tokens, replica, site)
    local = batch.tokens / replica.dp_attention
    passed = k.stream_passes * local * h * 2.0 / site.hbm_bytes_per_s
    core = prefill_core_s(group.mixer, batch, replica, site)
    core += decode_core_s(group.mixer, batch, replica, site)
    n_small = SMALL_KERNELS[group.mixer.kind] + SMALL_KERNELS[group.ffn.kind]
    return PassTime(
        linear_s=projections_s(group.mixer, h, batch, replica, site) + dense,
        attention_s=core,
        experts_s=experts,
        communication_s=layer_communication_s(group, h, replica, site, batch),
        small_s=n_small * k.small_kernel_s + passed,
    )


def layer_communication_s(
    group: LayerGroup, hidden: int, replica: Replica, site: ServingSite, batch: Batch
) -> float:
    """All-reduce after mixer and FFN; with data-parallel attention a gather and a scatter."""
    local = batch.tokens / replica.dp_attention * hidden * 2.0
    has_ffn, has_mixer = group.ffn.kind != "none", group.mixer.kind != "none"
    time_s = 0.0
    if replica.tp > 1 and has_mixer:
        time_s += all_reduce_s(site, local, replica.tp)
    if not has_ffn:
        return time_s
    if replica.dp_attention > 1:
        whole = batch.tokens * hidden * 2.0
        for op in ("all-gather", "reduce-scatter"):
            time_s += _collective_s(site, op, whole, replica.group)
    elif replica.tp > 1:
        time_s += all_reduce_s(site, local, replica.tp)
    return time_s


def all_reduce_s(site: ServingSite, size_bytes: float, n: int) -> float:
    """All-reduce by the serving libraries' own kernel or the communication library's."""
    size_bytes = rounded(size_bytes)
    key = ("all-reduce", size_bytes, n)
    found = site.memo.get(key)
    if found is None:
        found = min(
            _raw_s(site, "all-reduce", size_bytes, n, "custom", False),
            _raw_s(site, "all-reduce", size_bytes, n, "auto", False),
        )
        site.memo[key] = found
    return found * site.kernels.all_reduce_factor


def _collective_s(
    site: ServingSite, op: str, size_bytes: float, n: int, away: bool = False
) -> float:
    size_bytes = rounded(size_bytes)
    key = (op, size_bytes, n, away)
    found = site.memo.get(key)
    if found is None:
        found = site.memo[key] = _raw_s(site, op, size_bytes, n, "auto", away)
    return found * site.kernels.all_reduce_factor


def _raw_s(
    site: ServingSite, op: str, size_bytes: float, n: int, algorithm: str, away: bool
) -> float:
    inside = max(1, min(n, site.domain))
    if away:
        inside = 1
    return expected_collective_time_s(
        op,
        size_bytes,
        n,
        inside,
        site.fabric,
        site.scaleup_bytes_per_s,
        site.scaleout_bytes_per_s,
        algorithm,
    )
