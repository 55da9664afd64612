"""Layers or experts kept in the host's memory: computed there, or streamed to the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.params import expert_params, experts_met_frac, ffn_params, mixer_params

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Batch, PassTime, Replica, ServingSite
    from gpuscale.specs.model import LayerGroup, ModelSpec

HOST_EFF = 0.7
"""Of the host's memory bandwidth that reading weights reaches: STREAM on desktop and server
processors gives 0.7 to 0.9; llama.cpp's threads reach the lower end."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Share of the layers whose weights (or whose routed experts alone) are on the host."""

    layers_frac: float
    experts_only: bool = False
    host_bytes_per_s: float = 60e9  # two channels of DDR5-4800 have 77 GB/s
    host_flop_per_s: float = 1e12  # of the processor's vector units
    pcie_bytes_per_s: float = 25e9


def moved_weights(group: LayerGroup, hidden: int, experts_only: bool) -> tuple[float, float, float]:
    """(routed experts, other FFN, mixer) parameters of one layer that go to the host. [1]."""
    routed = 0.0
    if group.ffn.kind == "moe":
        routed = group.ffn.n_experts * expert_params(group.ffn, hidden)
    if experts_only:
        return routed, 0.0, 0.0
    return routed, ffn_params(group.ffn, hidden) - routed, mixer_params(group.mixer, hidden)


def host_bytes(model: ModelSpec, replica: Replica, tokens: float | None = None) -> float:
    """Weights on the host, all GPUs; with `tokens` those that so many meet in a pass. [byte]."""
    held = replica.offload
    if held is None:
        return 0.0
    ffn, mixer = element_bytes(replica.ffn_format), element_bytes(replica.attention_format)
    total = 0.0
    for group in model.layer_groups:
        routed, beside, core = moved_weights(group, model.hidden_size, held.experts_only)
        if tokens is not None and group.ffn.kind == "moe":
            routed *= experts_met_frac(group.ffn.n_experts, group.ffn.top_k, tokens)
        total += group.n * (ffn * (routed + beside) + mixer * core)
    return held.layers_frac * total


def host_flop(model: ModelSpec, replica: Replica, tokens: float) -> float:
    """FLOP of `tokens` tokens in what is on the host. [FLOP]."""
    held = replica.offload
    if held is None:
        return 0.0
    total = 0.0
    for group in model.layer_groups:
        routed, beside, core = moved_weights(group, model.hidden_size, held.experts_only)
        if group.ffn.kind == "moe":
            routed *= group.ffn.top_k / group.ffn.n_experts
        total += group.n * 2.0 * tokens * (routed + beside + core)
    return held.layers_frac * total


def with_offload(
    model: ModelSpec, replica: Replica, site: ServingSite, batch: Batch, parts: PassTime
) -> PassTime:
    """Replace the parts of a pass that run on the host.

    ``t = t_gpu (1 - f) + max(bytes_met / host_bw, FLOP / host)`` and the activations over PCIe, or
    the weights streamed over PCIe and computed on the GPU, whichever is faster (FlexGen,
    arXiv:2303.06865, section 4): prompts are usually streamed, single tokens computed on the host.
    """
    held = replica.offload
    if held is None or held.layers_frac <= 0.0:
        return parts
    f = held.layers_frac
    gpu = replace(parts, experts_s=parts.experts_s * (1.0 - f))
    if not held.experts_only:
        gpu = replace(
            gpu, linear_s=gpu.linear_s * (1.0 - f), attention_s=gpu.attention_s * (1.0 - f)
        )
    crossings = 2.0 * (f * model.n_layers if held.experts_only else 1.0)
    passed_s = crossings * batch.tokens * model.hidden_size * 2.0 / held.pcie_bytes_per_s
    met = host_bytes(model, replica, batch.tokens)
    read_s = met / (held.host_bytes_per_s * HOST_EFF)
    computed_s = max(read_s, host_flop(model, replica, batch.tokens) / held.host_flop_per_s)
    if not held.experts_only:
        computed_s += f * parts.attention_s * site.hbm_bytes_per_s / held.host_bytes_per_s
    streamed_s = met / (held.pcie_bytes_per_s * replica.group)
    kept_s = gpu.total_s + computed_s + passed_s
    if kept_s <= parts.total_s + streamed_s:
        return replace(gpu, offload_s=computed_s + passed_s)
    return replace(parts, offload_s=streamed_s)
