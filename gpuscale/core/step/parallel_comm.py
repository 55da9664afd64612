"""Collectives of the parallel dimensions: the model of `collective`, with a step's own parameters.

A group of ranks is placed on the two fabric levels, and `core.network.expected` gives its time
over links whose bandwidth and latency are those of the isolated benchmark times the named factors
of `Hardware`; without a calibrated fabric, `core.network.bound` gives the roofline. Groups of a
model and their place in the nodes: Narayanan et al. 2021 (arXiv:2104.04473, section 3).
"""

from __future__ import annotations

import math
from functools import lru_cache

from gpuscale.core.layout import DEFAULT_ORDER, Layout
from gpuscale.core.network import expected
from gpuscale.core.network.calibration import FabricCalibration, LinkCalibration, slowed_link
from gpuscale.core.records import NamedTuple, replace
from gpuscale.core.step.records import Hardware


def split_group(hw: Hardware, n_ranks: int, stride: int) -> tuple[int, int]:
    """(ranks inside one scale-up domain, domains) of a group with rank distance `stride`.

    Ranks are placed in order, on whole nodes: blocks that divide neither the domain nor fill whole
    nodes straddle its edge, and count as the smaller ones that do not.

    >>> h = Hardware("g", "hopper", 1e15, 0, 0, 8e10, 3e12, 132, 8, 8, 4.5e11, 5e10)
    >>> split_group(h, 16, 2), split_group(h, 4, 16)
    ((4, 4), (1, 4))
    >>> split_group(h, 6, 1)  # ranks 6 to 11 lie on two nodes of 8, two of them on the first
    (2, 3)
    """
    domain, node = hw.scaleup_domain_gpus, hw.gpus_per_node
    inside = max(1, min(n_ranks, domain // stride))
    while inside > 1 and (
        n_ranks % inside or (domain % (inside * stride) and (inside * stride) % node)
    ):
        inside -= 1
    return inside, n_ranks // inside


@lru_cache(maxsize=256)
def _slowed(
    fabric: FabricCalibration, up: float, out: float, up_latency: float, out_latency: float
) -> FabricCalibration:
    inner: LinkCalibration = slowed_link(fabric.inner, up, up_latency)
    outer = slowed_link(fabric.outer, out, out_latency)
    bridge = fabric.bridge and slowed_link(fabric.bridge, up, up_latency)
    return replace(fabric, inner=inner, outer=outer, bridge=bridge)


def step_fabric(hw: Hardware, frac: float = 1.0) -> FabricCalibration | None:
    """Links as a training step finds them; `frac` is a further share of the bandwidth."""
    if hw.fabric is None:
        return None
    return _slowed(
        hw.fabric,
        hw.scaleup_frac * frac,
        hw.scaleout_frac * frac,
        hw.scaleup_latency_factor,
        hw.scaleout_latency_factor,
    )


@lru_cache(maxsize=65536)
def collective_s(
    hw: Hardware,
    op: str,
    n_ranks: int,
    stride: int,
    n_bytes: float,
    *,
    calls: float = 1.0,
    frac: float = 1.0,
    network_frac: float = 1.0,
) -> float:
    """Time of a collective in a step.

    `hw`: bandwidths, domain size and calibration. `op`: a name of `core.network.expected.OPS`.
    `stride`: distance of neighbouring ranks in the global numbering; decides the level. `n_bytes`:
    size as `RankGroup` counts it, gathered (all-gather), reduced (reduce-scatter,
    all-reduce), sent by one rank (all-to-all and the like) [byte]. `calls`: calls that the bytes go
    out in, each with its own latency [1]. `frac`: further share of the bandwidth [1].
    `network_frac`: share of the bytes for other domains that crosses the network [1]. Returns: time
    of all calls; 0 for one rank or no bytes [s].
    """
    if n_ranks <= 1 or n_bytes <= 0.0:
        return 0.0
    inside = split_group(hw, n_ranks, stride)[0]
    fabric, up, out = step_fabric(hw, frac), hw.scaleup_bytes_per_s, hw.scaleout_bytes_per_s
    if fabric is None:
        in_switch = hw.in_switch_reduction and inside >= expected.NVLS_MIN_RANKS
        return expected.bound_s(
            op, n_bytes, n_ranks, inside, up, out / network_frac, in_switch=in_switch
        )
    ranks = (op, n_bytes / calls, n_ranks, inside)
    group = expected.RankGroup(*ranks, fabric, up, out=out, network_frac=network_frac)
    return calls * _one_call_s(group)


_one_call_s = lru_cache(maxsize=65536)(expected.group_time_s)
"""Time of one call, as `collective` gives it over the slowed links. [s]."""


def gather_s(
    hw: Hardware,
    n_ranks: int,
    stride: int,
    n_bytes: float,
    *,
    reduce_all: bool = False,
    calls: float = 1.0,
) -> float:
    """All-gather or reduce-scatter of `n_bytes` gathered, or an all-reduce of them. [s]."""
    op = "all-reduce" if reduce_all else "all-gather"
    return collective_s(hw, op, n_ranks, stride, n_bytes, calls=calls)


@lru_cache(maxsize=65536)
def all_to_all_s(
    hw: Hardware,
    n_ranks: int,
    stride: int,
    n_bytes: float,
    copies: int = 0,
    max_domains: int = 0,
    dispatch_frac: float | None = None,
) -> float:
    """All-to-all of `n_bytes` sent by each rank; with `copies` tokens go once per node. [s].

    `copies` is the number of experts of a token when the library de-duplicates by destination
    domain, at most `max_domains` of them; 0 sends every copy. `dispatch_frac`: the dedicated
    kernels of DeepEP, whose mean of dispatch, in so many bytes relative to 16 bits, and combine
    is taken.
    """
    outside = split_group(hw, n_ranks, stride)[1]
    share = expected.deduplicated_frac(copies, outside, max_domains or None) if copies else 1.0
    if dispatch_frac is not None:
        return 0.5 * math.fsum(
            collective_s(hw, op, n_ranks, stride, size * n_bytes, network_frac=share)
            for op, size in (("moe-dispatch", dispatch_frac), ("moe-combine", 1.0))
        )
    return collective_s(
        hw, "all-to-all", n_ranks, stride, n_bytes, frac=hw.all_to_all_frac, network_frac=share
    )


def point_to_point_s(hw: Hardware, stride: int, n_bytes: float) -> float:
    """Send of `n_bytes` to the rank `stride` away. [s]."""
    return collective_s(hw, "send-recv", 2, stride, n_bytes) + hw.p2p_latency_s


class Strides(NamedTuple):
    """Distance of neighbouring ranks of each group in the global numbering."""

    tp: int
    cp: int
    ep: int
    dense: int  # ranks that share the dense weights: cp and dp
    expert: int  # ranks that share the weights of one expert
    pp: int


def strides(layout: Layout, domain_gpus: int) -> Strides:
    """Return the rank distances of a layout.

    Ranks are numbered with the first dimension of `layout.order` innermost, so that it sits inside
    the scale-up domain; experts split the ranks of one pipeline stage, expert-TP first. Both
    orders are Megatron-Core's (``tp-cp-ep-dp-pp`` and ``tp-cp-ep-pp-dp``).

    `layout`: degrees and order. `domain_gpus`: GPUs of one scale-up domain: where the pipeline lies
    between CP and DP, the groups over both have no single distance, and get the one that puts as
    many ranks in a domain.

    >>> from gpuscale.core.layout import Layout
    >>> strides(Layout(4096, 64, tp=4, pp=2, dp=8), 8)
    Strides(tp=1, cp=4, ep=1, dense=4, expert=1, pp=32)
    >>> strides(Layout(4096, 64, tp=4, pp=2, dp=8, order="tp-cp-pp-dp"), 8)
    Strides(tp=1, cp=4, ep=1, dense=8, expert=1, pp=4)
    """
    tp, etp, pp = layout.tp, layout.etp, layout.pp
    block, experts = tp * layout.cp, layout.ep * layout.etp
    if layout.order == DEFAULT_ORDER:
        return Strides(1, tp, etp, tp, experts, block * layout.dp)
    blocks = max(1, domain_gpus // (block * pp))  # data-parallel neighbours in one domain
    dense = max(1, min(layout.cp, domain_gpus // tp)) * blocks
    if experts <= block:
        return Strides(1, tp, etp, max(1, domain_gpus // dense), experts, block)
    inside = max(1, min(block, domain_gpus) // etp) * blocks
    return Strides(
        1, tp, max(1, domain_gpus // inside), max(1, domain_gpus // dense), experts * pp, block
    )
