"""Collectives of the parallel dimensions on two fabric levels: alpha-beta, ring latency."""

from __future__ import annotations

import math

from gpuscale.core.step.records import Collective, Hardware


def split_group(hw: Hardware, n_ranks: int, stride: int) -> tuple[int, int]:
    """(ranks inside one scale-up domain, domains) of a group with rank distance `stride`.

    Examples
    --------
    >>> h = Hardware("g", "hopper", 1e15, 0, 0, 8e10, 3e12, 132, 8, 8, 4.5e11, 5e10)
    >>> split_group(h, 16, 2), split_group(h, 4, 16)
    ((4, 4), (1, 4))
    """
    inside = max(1, min(n_ranks, hw.scaleup_domain_gpus // max(1, stride)))
    while n_ranks % inside:
        inside -= 1
    return inside, n_ranks // inside


def gather_s(
    hw: Hardware, n_ranks: int, stride: int, n_bytes: float, *, reduce_all: bool = False
) -> Collective:
    """All-gather or reduce-scatter of `n_bytes` gathered; an all-reduce moves them twice.

    Hierarchical bound of "How to Scale Your Model" (GPU chapter): inside the domain at the
    scale-up rate, across at the NIC of each GPU; rings across nodes pay a hop per rank.

    Parameters
    ----------
    hw : Hardware
        Bandwidths, domain size and calibration.
    n_ranks : int
        Ranks of the group.
    stride : int
        Distance of neighbouring ranks in the global numbering; decides the level.
    n_bytes : float
        Size of the gathered (all-gather) or reduced (reduce-scatter, all-reduce) buffer. [byte]
    reduce_all : bool
        All-reduce.

    Returns
    -------
    Collective
        Transfer and latency. [s]
    """
    if n_ranks <= 1 or n_bytes <= 0.0:
        return Collective(0.0, 0.0)
    inside, outside = split_group(hw, n_ranks, stride)
    up = (inside - 1) / inside * n_bytes / (hw.scaleup_bytes_per_s * hw.scaleup_eff)
    out = (outside - 1) / n_ranks * n_bytes / (hw.scaleout_bytes_per_s * hw.scaleout_eff)
    latency = hw.scaleup_latency_s * (1.0 + math.log2(inside)) / 4.0
    if outside > 1:
        latency += hw.scaleout_latency_s * math.log2(outside)
        latency += hw.ring_hop_s * min(n_ranks - 1, 256) * (0.5 if reduce_all else 1.0)
    if reduce_all:
        return Collective(2.0 * max(up, out), 1.5 * latency)
    return Collective(max(up, out), latency)


RDMA_DISPATCH_EFF = 0.9
"""NIC rate that dedicated dispatch kernels reach (DeepEP README: 43 to 58 GB/s at 50 GB/s)."""

RDMA_DISPATCH_BYTES = 0.75
"""Mean bytes of dispatch in fp8 and combine in bf16, relative to bf16."""


def all_to_all_s(
    hw: Hardware,
    n_ranks: int,
    stride: int,
    n_bytes: float,
    copies: int = 0,
    max_domains: int = 0,
    rdma: bool = False,
) -> Collective:
    """All-to-all of `n_bytes` sent by each rank; with `copies` tokens go once per node.

    `copies` is the number of experts of a token when the library de-duplicates by destination
    domain, at most `max_domains` of them; 0 sends every copy. Expected distinct domains of k
    copies over N: N(1-(1-1/N)^k).
    """
    if n_ranks <= 1 or n_bytes <= 0.0:
        return Collective(0.0, 0.0)
    inside, outside = split_group(hw, n_ranks, stride)
    up = n_bytes * (inside - 1) / n_ranks / (hw.scaleup_bytes_per_s * hw.all_to_all_eff)
    across = n_bytes * (n_ranks - inside) / n_ranks
    if copies and outside > 1:
        distinct = outside * (1.0 - (1.0 - 1.0 / outside) ** copies)
        distinct = min(distinct, float(max_domains or outside))
        across *= min(1.0, distinct / copies)
        up = n_bytes * (inside - 1) / inside / (hw.scaleup_bytes_per_s * hw.all_to_all_eff)
    eff = hw.all_to_all_scaleout_eff
    if rdma:
        across, eff = across * RDMA_DISPATCH_BYTES, max(eff, RDMA_DISPATCH_EFF)
    out = across / (hw.scaleout_bytes_per_s * eff)
    latency = hw.scaleup_latency_s * (1.0 + math.log2(inside)) / 4.0
    if outside > 1:
        latency += hw.scaleout_latency_s * math.log2(outside)
    return Collective(max(up, out), latency)


def point_to_point_s(hw: Hardware, stride: int, n_bytes: float) -> float:
    """Send of `n_bytes` to the rank `stride` away, without latency. [s]."""
    if stride < hw.scaleup_domain_gpus:
        return n_bytes / (hw.scaleup_bytes_per_s * hw.scaleup_eff)
    return n_bytes / (hw.scaleout_bytes_per_s * hw.scaleout_eff)


def bucketed_s(hw: Hardware, part: Collective, n_bytes: float) -> float:
    """Time of a collective that goes out in buckets, each paying the latency. [s]."""
    return part.transfer_s + part.latency_s * max(1.0, n_bytes / hw.bucket_bytes)
