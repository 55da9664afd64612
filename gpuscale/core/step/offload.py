"""Activations that wait on the host, beside the passes of a stage; the optimizer's step."""

from __future__ import annotations

from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import KindActivations, away_frac, held_bytes
from gpuscale.core.step.data_parallel import Shards
from gpuscale.core.step.operators import stream_s
from gpuscale.core.step.records import Hardware, Software, exposed_s


def offloads(sw: Software, layout: Layout) -> bool:
    """Whether activations of some layers wait on the host."""
    return layout.offload_activations or sw.offload_layers > 0


def copies_s(
    hw: Hardware,
    sw: Software,
    layout: Layout,
    layers: tuple[tuple[int, int], ...],
    acts: tuple[KindActivations, ...],
    *,
    forward_s: float,
    backward_s: float,
) -> tuple[float, float]:
    """Exposed copies of one micro-batch of a stage: (out in the forward pass, back in the other).

    The offloaded layers are spread over the stage and copied on a stream of their own, so that a
    whole pass hides them (Transformer Engine, `cpu_offload.py`: groups of layers wait for their
    copies at even intervals). [s].
    """
    n_layers = sum(n for _, n in layers)
    away = away_frac(n_layers, layout, sw.offload_layers)
    copy_s = away * held_bytes(layers, n_layers, acts, layout) / hw.host_link_bytes_per_s
    c = 0.0 if hw.arch is None else hw.form.activations_exposed_frac  # the roofline hides all
    return exposed_s(forward_s, copy_s, c), exposed_s(backward_s, copy_s, c)


FP32_MOMENTS = 8.0
"""Bytes of two moments in 32 bits, per parameter."""


def optimizer_s(
    hw: Hardware, sw: Software, shards: Shards, zero_stage: int, offload: bool = False
) -> float:
    """Time of the Adam update of one rank: its share of the states, read and written. [s].

    Offloaded states stay on the CPU (ZeRO-Offload, arXiv:2101.06840): gradients go out and weights
    come back over the host link, and the CPU updates them in its own memory. Narrower moments
    are read and written in fewer bytes.
    """
    touched = hw.optimizer_bytes_per_param - 2.0 * (FP32_MOMENTS - sw.moment_bytes)
    dense, expert = shards.dense_params, shards.expert_params
    if zero_stage >= 1:
        n, e = shards.dense_ranks, shards.expert_ranks
        if zero_stage == 3 and not sw.outer_shards:
            n, e = shards.shard_ranks, shards.expert_shard_ranks
        dense, expert = dense / n, expert / e
    if offload:
        update = touched / hw.form.host_memory_bytes_per_s
        return (dense + expert) * (hw.form.host_optimizer_bytes / hw.host_link_bytes_per_s + update)
    return stream_s(hw, (dense + expert) * touched)
