"""LoRA adapters served beside a model: their weights, products and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.finetune.method import ALL, Method, counts

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Batch, Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

ADAPTER_BYTES = 2.0
"""Bytes of an adapter's weight: served in 16 bits."""

LAUNCHES = 2.0
"""Kernels of an adapted map: gather and shrink, expand and add (Punica, arXiv:2310.18547)."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """`n` adapters of one rank that requests choose among evenly."""

    rank: int
    n: int
    targets: tuple[str, ...] = (ALL,)


def adapter_params(model: ModelSpec, adapters: Adapters) -> float:
    """Parameters of one adapter, ``r (in + out)`` a map. [1]."""
    method = Method(rank=adapters.rank, targets=adapters.targets)
    return counts(model, method).adapter_params


def adapter_bytes(model: ModelSpec, replica: Replica) -> float:
    """Memory of all adapters on one GPU. [byte]."""
    held = replica.adapters
    if held is None:
        return 0.0
    return held.n * ADAPTER_BYTES * adapter_params(model, held) / (replica.tp * replica.pp)


def adapters_met(n: float, sequences: float) -> float:
    """Distinct adapters among the requests of a pass, ``n (1 - (1 - 1/n)^s)``. [1].

    >>> adapters_met(1, 64), round(adapters_met(8, 8), 2)
    (1.0, 5.25)
    """
    return n * (1.0 - (1.0 - 1.0 / n) ** sequences) if n > 1.0 else 1.0


def adapters_s(
    model: ModelSpec, adapters: Adapters, replica: Replica, site: ServingSite, local: Batch
) -> float:
    """Time that adapters add to a pass of one rank. [s].

    The adapters met are read once, ``2 m r (in + out)`` FLOP are done for m tokens at the rate of
    decoding attention (both are thin products), and every adapted map launches two kernels.
    """
    k = site.kernels
    method = Method(rank=adapters.rank, targets=adapters.targets)
    found = counts(model, method)
    each = found.adapter_params / replica.tp
    met = adapters_met(float(adapters.n), max(1.0, local.sequences + local.prompts))
    read_s = met * ADAPTER_BYTES * each / (site.hbm_bytes_per_s * k.decode_attention_eff)
    flop_s = 2.0 * local.tokens * each / (site.peaks["bf16"] * k.decode_flop_eff)
    maps = sum(kind.n_layers * kind.n_adapted for kind in found.kinds)
    return max(read_s, flop_s) + LAUNCHES * maps * k.small_kernel_s
