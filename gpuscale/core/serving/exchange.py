"""Communication of one layer in serving: all-reduces, and the exchange of experts.

All-reduces of tensor parallelism: Shoeybi et al. 2019 (arXiv:1909.08053), section 3; exchange of
experts: Lepikhin et al. 2020 (GShard, arXiv:2006.16668), section 3.
"""

from __future__ import annotations

from math import fsum, log2
from typing import TYPE_CHECKING

from gpuscale.core.network import expected
from gpuscale.core.serving.kernels import rounded

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import LayerGroup, MoeFfn

DISPATCH_BYTES = 1.0
"""Bytes of an activation on its way to the experts: fp8 (DeepSeek-V3, section 3.3.3)."""

COMBINE_BYTES = 2.0
"""Bytes of an activation on its way back: bf16 (DeepSeek-V3, section 3.3.3)."""


def layer_communication_s(
    group: LayerGroup,
    hidden: int,
    replica: Replica,
    site: ServingSite,
    local_tokens: float,
    reads: bool = False,
) -> tuple[float, float]:
    """(all-reduces, exchange of experts) of one layer; `reads`: prompts are in the pass. [s].

    Tensor parallelism reduces after mixer and FFN. Data-parallel attention keeps dense and shared
    MLPs on the rank; around routed experts the ranks either gather all tokens and scatter the sums,
    or send each token to its experts' GPUs and back, whichever is faster. Of prompts an engine may
    do either by an all-reduce of all ranks' tokens (`joint_gpus`).
    """
    has_ffn, has_mixer = group.ffn.kind != "none", group.mixer.kind != "none"
    local = local_tokens * hidden * 2.0
    reduced = exchanged = 0.0
    if replica.tp > 1 and has_mixer:
        reduced += all_reduce_s(site, local, replica.tp)
    if not has_ffn:
        return reduced, 0.0
    if replica.dp_attention > 1 and group.ffn.kind == "moe":
        whole = local_tokens * replica.dp_attention * hidden * 2.0  # padded to the busiest rank
        joint = replica.group <= site.software.joint_gpus
        if reads and joint:
            return reduced, 2.0 * all_reduce_s(site, whole, replica.group)
        gathered = fsum(
            collective_s(site, op, whole, replica.group) for op in ("all-gather", "reduce-scatter")
        )
        alone = joint and replica.group > site.domain  # nobody sends between machines
        sent = None if alone else exchange_s(group.ffn, hidden, replica, site, local_tokens)
        exchanged = gathered if sent is None else min(gathered, sent)
    elif replica.tp > 1:
        reduced += all_reduce_s(site, local, replica.tp)
    return reduced, exchanged


def exchange_s(
    ffn: MoeFfn, hidden: int, replica: Replica, site: ServingSite, local_tokens: float
) -> float | None:
    """Dispatch and combine of one layer; None where the experts are not spread. [s].

    A token goes once to each node that has one of its experts, ``u = N (1 - (1 - 1/N)^k)`` of N,
    no more than the model's routing allows, and from there to the GPUs:

        NIC bytes = m u (1 - 1/N) h b,  NVLink bytes = m k (1 - 1/g) h b

    of m tokens a rank, width h, b bytes; both links work at once.
    """
    ep = min(replica.ep, replica.group, ffn.n_experts)
    if ep <= 1:
        return None
    width = ffn.latent_size or hidden
    inside = max(1, min(ep, site.domain))
    nodes = ep / inside
    each = local_tokens * replica.dp_attention / replica.group  # tokens of one GPU
    met = expected.destination_nodes(ffn.top_k, nodes, ffn.n_route_groups or None)
    time_s = 0.0
    for op, element in (("moe-dispatch", DISPATCH_BYTES), ("moe-combine", COMBINE_BYTES)):
        one = rounded(each) * width * element
        traffic = expected.LinkTraffic(
            inner_bytes=one * min(ffn.top_k, ep) * (1.0 - 1.0 / inside),
            outer_bytes=one * met * (1.0 - 1.0 / nodes),
            inner_hops=log2(inside),
            outer_hops=log2(nodes),
        )
        key = (op, traffic, ep)
        found = site.memo.get(key)
        if found is None:
            links = site.fabric, site.scaleup_bytes_per_s, site.scaleout_bytes_per_s
            found = expected.RankGroup(op, one, ep, inside, *links).way_s(traffic, op)
            site.memo[key] = found
        time_s += found + _crossed_s(site, nodes > 1.0)
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
    crossed = site.software.crossing_factor * _crossed_s(site, n > site.domain)
    return found * site.kernels.all_reduce_factor + crossed


def collective_s(
    site: ServingSite, op: str, size_bytes: float, n: int, away: bool = False
) -> float:
    """One collective of the communication library; `away`: every rank in a domain of its own."""
    size_bytes = rounded(size_bytes)
    key = (op, size_bytes, n, away)
    found = site.memo.get(key)
    if found is None:
        found = site.memo[key] = _raw_s(site, op, size_bytes, n, "auto", away)
    return found * site.kernels.all_reduce_factor + _crossed_s(site, away or n > site.domain)


def _crossed_s(site: ServingSite, crosses: bool) -> float:
    """Time of going between machines beyond the isolated collective; 0 inside one. [s]."""
    return site.kernels.crossing_s if crosses else 0.0


def _raw_s(
    site: ServingSite, op: str, size_bytes: float, n: int, algorithm: str, away: bool
) -> float:
    inside = 1 if away else max(1, min(n, site.domain))
    links = site.fabric, site.scaleup_bytes_per_s, site.scaleout_bytes_per_s
    return expected.group_time_s(
        expected.RankGroup(op, size_bytes, n, inside, *links, algorithm=algorithm)
    )
