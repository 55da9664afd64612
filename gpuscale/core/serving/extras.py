"""What a replica has beside its model: adapters in memory, weights on the host.

Adapters of many users in one batch: Chen et al. 2023 (Punica, arXiv:2310.18547), section 4; weights
on the host: Sheng et al. 2023 (FlexGen, arXiv:2303.06865), section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.layer_shape import model_maps
from gpuscale.core.model.params import expert_params, experts_met_frac, ffn_params, mixer_params
from gpuscale.core.records import dataclass

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Batch, PassTime, Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

ADAPTER_BYTES = 2.0
"""Bytes of an adapter's weight: 16 bits (vLLM `--lora-dtype auto`)."""

ADAPTER_KERNELS = 2
"""Launches of adapted maps of one input: to the rank and back (Punica, arXiv:2310.18547)."""

HOST_READ_EFF = 0.5
"""Of its memory's bandwidth that the host's cores reach, reading quantised weights: 0.45 on four
channels of DDR4 (i9-10900X, nine models, AlexsJones/llmfit pull requests 755 to 778), 0.43 and 0.48
on eight and twelve of a server (ktransformers issues 319, 314), 0.6 on two of DDR5 (i9-14900K)."""

HANDOVER_S = 1e-4
"""From the GPU to the host's threads and back, for every layer there: prior, two copies with their
launches and two barriers."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """LoRA adapters kept in memory, on all maps outside routed experts."""

    rank: int
    n: int


@dataclass(frozen=True, slots=True)
class Offload:
    """Weights that the host keeps and multiplies while it decodes.

    `frac` is the share of what may move, whole layers or routed experts alone.
    """

    kind: str  # layers, experts
    frac: float
    host_bytes_per_s: float  # of the host's memory, as its cores read weights
    host_flop_per_s: float
    pcie_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Extras:
    """Adapters and offloaded weights of a replica, and who else is on its GPUs."""

    adapters: Adapters | None = None
    offload: Offload | None = None
    slowdown: float = 1.0  # of a pass by others that take turns (`sharing`)


def adapter_widths(model: ModelSpec) -> tuple[float, int]:
    """Count (inputs and outputs, launches) of all adapted maps of a model. [1].

    Maps of the same input share their launches: queries, keys and values; gate and up.
    """
    width, launches = 0.0, 0
    for n, layer in model_maps(model):
        adapted = [m for m in layer if m.copies == 1]
        width += n * sum(m.n_in + m.n_out for m in adapted)
        launches += n * ADAPTER_KERNELS * len({m.reads for m in adapted})
    return width, launches


def adapter_bytes(model: ModelSpec, replica: Replica, adapters: Adapters) -> float:
    """Memory of the adapters on one GPU: ``2 n r (in + out) / tp``. [byte]."""
    width, _ = adapter_widths(model)
    return ADAPTER_BYTES * adapters.n * adapters.rank * width / replica.tp / replica.pp


def adapters_s(
    model: ModelSpec, replica: Replica, site: ServingSite, adapters: Adapters, batch: Batch
) -> float:
    """Time that adapters add to a pass: what is read and moved, and the launches. [s].

    Each adapter met is read once; every adapted map reads and writes its activations once more;
    ``2 m r (in + out)`` FLOP a token are far below what the memory allows.
    """
    width, launches = adapter_widths(model)
    tokens = batch.tokens / replica.dp_attention
    met = min(float(adapters.n), max(1.0, batch.sequences + batch.prompts))
    read = ADAPTER_BYTES * met * adapters.rank * width / replica.tp
    moved = 2.0 * tokens * width / replica.tp
    rate = site.hbm_bytes_per_s * site.kernels.decode_attention_eff
    return (read + moved) / rate + launches * site.kernels.small_kernel_s


def movable_bytes(model: ModelSpec, replica: Replica, kind: str) -> float:
    """Weights of a replica that may be on the host: all layers, or their routed experts. [byte]."""
    h, total = model.hidden_size, 0.0
    for group in model.layer_groups:
        ffn, narrow = group.ffn, element_bytes(replica.ffn_format)
        if kind == "experts":
            if ffn.kind == "moe":
                total += group.n * ffn.n_experts * narrow * expert_params(ffn, h)
            continue
        mixer = mixer_params(group.mixer, h) * element_bytes(replica.attention_format)
        total += group.n * (narrow * ffn_params(ffn, h) + mixer)
    return total


def offload_s(model: ModelSpec, replica: Replica, offload: Offload, batch: Batch) -> float:
    """Time that the host adds to a pass. [s].

    While decoding the host reads the weights that the tokens meet, ``bytes / host``; a prompt's are
    streamed over PCIe or multiplied on the host, whichever is faster. Activations go there and
    back for every moved layer.
    """
    moved = offload.frac * movable_bytes(model, replica, offload.kind)
    tokens = batch.tokens
    share = 1.0
    moe = model.expert_ffns
    if moe and offload.kind == "experts":
        share = experts_met_frac(moe[0].n_experts, moe[0].top_k, tokens)
    read_s = share * moved / (offload.host_bytes_per_s * HOST_READ_EFF)
    multiplied_s = 2.0 * tokens * moved / element_bytes(replica.ffn_format)
    if moe:
        multiplied_s *= moe[0].top_k / moe[0].n_experts
    host_s = max(read_s, multiplied_s / offload.host_flop_per_s)
    away = offload.frac * model.n_layers
    crossed = 4.0 * tokens * model.hidden_size * away / offload.pcie_bytes_per_s
    if offload.kind == "experts":
        crossed += HANDOVER_S * away
    return min(host_s, moved / offload.pcie_bytes_per_s) + crossed


def kept_s(parts: PassTime, extras: Extras | None) -> float:
    """Time of a pass on the GPUs without what the host computes. [s].

    >>> from gpuscale.core.serving.records import PassTime
    >>> off = Extras(offload=Offload("experts", 0.75, 1e11, 1e12, 25e9))
    >>> kept_s(PassTime(linear_s=1.0, experts_s=4.0), off)
    2.0
    """
    if extras is None or extras.offload is None:
        return parts.total_s
    moved_s = parts.experts_s
    if extras.offload.kind != "experts":
        moved_s += parts.linear_s + parts.attention_s + parts.small_s
    return parts.total_s - extras.offload.frac * moved_s


def freed_bytes(model: ModelSpec, replica: Replica, extras: Extras) -> float:
    """Memory of one GPU that extras free for the cache; negative where they need some. [byte]."""
    freed = 0.0
    if extras.offload is not None:
        moved = movable_bytes(model, replica, extras.offload.kind)
        freed += extras.offload.frac * moved / replica.n_gpus
    if extras.adapters is not None:
        freed -= adapter_bytes(model, replica, extras.adapters)
    return freed


def extras_s(
    model: ModelSpec, replica: Replica, site: ServingSite, extras: Extras, batch: Batch
) -> float:
    """Time that extras add to a pass. [s]."""
    added = 0.0
    if extras.offload is not None:
        added += offload_s(model, replica, extras.offload, batch)
    if extras.adapters is not None:
        added += adapters_s(model, replica, site, extras.adapters, batch)
    return added
