"""Rows of the board of limits, and what all of them share.

References
----------
"How to Scale Your Model", GPU chapter, "Rooflines for LLM scaling".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.model.layer_shape import LayerShape, layer_shape
from gpuscale.core.network.hierarchy import Level, network_levels

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One parallelism: what it costs, what it needs, what there is."""

    axis: str  # dp, moe-dp, fsdp, tp, ep, pp, cp
    degree: int
    in_use: bool
    math_s: float | None  # per layer (pp: per micro-batch and stage; cp: per ring step)
    comm_s: float | None
    quantity: str  # what `have` and `need` count
    have: float
    need: float
    relation: str  # ">=": have must be at least need; "<=": at most
    rule: float | None  # the documents' rounded limit
    bound: str  # "compute" | "communication" | "-"
    ratio: float  # communication over arithmetic
    verdict: str
    note: str = ""

    @property
    def exceeded(self) -> bool:
        """Whether an axis that is in use is communication-bound."""
        return self.in_use and self.bound == "communication"


@dataclass(frozen=True, slots=True)
class LimitCase:
    """What all rows share."""

    shape: LayerShape
    layout: Layout
    levels: tuple[Level, ...]
    domain: int
    gpu_egress: float  # into the scale-up domain
    gpu_share: float  # of one GPU out of the domain
    peak: float
    batch_tokens: float

    @property
    def domain_egress(self) -> float:
        """Bandwidth out of a scale-up domain. [byte/s]."""
        return self.gpu_share * self.domain

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens of the batch for each GPU. [1]."""
        return self.batch_tokens / self.layout.n_gpus


def case_of(
    model: ModelSpec,
    cluster: ClusterSpec,
    layout: Layout,
    batch_tokens: float | None,
    flop_per_s: float | None,
) -> LimitCase:
    """Put together what all rows share.

    Raises ValueError if the GPU has no such matrix rate, or its links are not known or do not
    reach.
    """
    peak = flop_per_s or cluster.gpu.flop_per_s(layout.precision)
    if peak is None:
        raise ValueError(f"{cluster.gpu.name} has no {layout.precision} matrix rate")
    levels = network_levels(cluster)
    if not levels:
        raise ValueError(f"{cluster.name}: no link between GPUs is known")
    domain = levels[0].gpus or layout.n_gpus
    if len(levels) == 1 and layout.n_gpus > domain:
        raise ValueError(f"{cluster.name} joins at most {domain} GPUs, got {layout.n_gpus}")
    share = levels[1].bytes_per_s_per_gpu if len(levels) > 1 else levels[0].bytes_per_s_per_gpu
    tokens = batch_tokens or float(layout.seq_len * layout.global_batch_size)
    return LimitCase(
        shape=layer_shape(model),
        layout=layout,
        levels=levels,
        domain=domain,
        gpu_egress=levels[0].bytes_per_s_per_gpu,
        gpu_share=share,
        peak=peak,
        batch_tokens=tokens,
    )
