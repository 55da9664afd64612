"""Limits of dp, fsdp, moe-dp, tp, ep, pp and cp with plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuscale.answers.roofline.records import (
    AT_LEAST,
    AT_MOST,
    Limit,
    Links,
    need_of,
    row_of,
    scopes,
)
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.roofline import Roofline


def _dp(x: Roofline, links: Links, axis: str) -> list[Limit]:
    """Tokens per GPU that data parallelism needs."""
    from gpuscale.core.limits import formulas as limits

    experts, k = float(x.experts or 1), float(x.top_k or 1)
    if axis == "moe-dp":
        need_of(x.experts, "--experts and --top-k", axis)
        need_of(x.top_k, "--experts and --top-k", axis)
    m = float(x.micro_batches or 1) if axis == "fsdp" else 1.0
    have = x.batch_tokens / x.gpus if x.batch_tokens and x.gpus else None
    over = links.node is not None and (x.gpus or 0) > links.node_gpus
    formula = "micro_batches * experts / top_k * flop_per_s / bytes_per_s * few / spans"
    rows = []
    for scope, rate in scopes(links):
        nodes = x.nodes if scope == "cluster" else None
        need = m * limits.dp_min_tokens_per_gpu(links.peak, rate, experts, k, nodes, x.spans)
        times_s = None
        if x.batch_tokens and x.gpus and x.hidden and x.ffn:
            math_s = limits.dp_math_s(
                x.batch_tokens,
                x.hidden,
                ffn_hidden_size=x.ffn,
                n_gpus=x.gpus,
                flop_per_s=links.peak,
                top_k=k,
                n_matrices=x.matrices,
            )
            comm_s = m * limits.dp_comm_s(x.hidden, x.ffn, rate, experts, x.matrices, nodes)
            times_s = math_s, comm_s / x.spans
        rows.append(
            row_of(
                scope,
                rate,
                (need, AT_LEAST, "tokens per GPU"),
                have,
                have if over == (scope == "cluster") else None,
                times_s=times_s,
                formula=formula,
                micro_batches=m,
                experts=experts,
                top_k=k,
                flop_per_s=links.peak,
                bytes_per_s=rate,
                few=(nodes - 1) / nodes if nodes else 1.0,
                spans=x.spans,
            )
        )
    if x.nodes and links.node is not None:
        rows.append(_dp_levels(x, links, have, m * experts / k))
    return rows


def _dp_levels(x: Roofline, links: Links, have: float | None, times: float) -> Limit:
    """Exact limit of both levels together."""
    from gpuscale.core.limits.formulas import dp_limit_levels

    assert links.node is not None and x.nodes is not None
    levels = dp_limit_levels(links.peak, links.gpu, links.node, links.node_gpus, x.nodes)
    need = times * max(levels) / x.spans
    rate = links.gpu if levels[0] >= levels[1] else links.node
    return row_of(
        "both, exact",
        rate,
        (need, AT_LEAST, "tokens per GPU"),
        have,
        have,
        formula="times * max(flop_per_s / gpu * (d - 1) / d, flop_per_s / node * (x - 1) / x)"
        " / spans",
        times=times,
        flop_per_s=links.peak,
        gpu=links.gpu,
        node=links.node,
        d=links.node_gpus,
        x=x.nodes,
        spans=x.spans,
    )


def _tp(x: Roofline, links: Links, axis: str) -> list[Limit]:
    """Degree to which tensor parallelism is compute-bound."""
    from gpuscale.core.limits import formulas as limits

    ffn = need_of(x.ffn, "--ffn", axis)
    have = float(x.tp) if x.tp else None
    inside = x.tp is not None and (links.node is None or x.tp <= links.node_gpus)
    rows = []
    for scope, rate in scopes(links):
        need = limits.tp_limit(ffn, links.peak, rate, x.matrices)
        times_s = None
        if x.batch_tokens and x.hidden and x.tp:
            times_s = (
                limits.tp_math_s(x.batch_tokens, x.hidden, ffn, x.tp, links.peak, x.matrices),
                limits.tp_comm_s(x.batch_tokens, x.hidden, rate),
            )
        rows.append(
            row_of(
                scope,
                rate,
                (need, AT_MOST, "degree"),
                have,
                have if inside and scope == "node" else None,
                times_s=times_s,
                formula="matrices / 2 * ffn * bytes_per_s / flop_per_s",
                matrices=x.matrices,
                ffn=ffn,
                bytes_per_s=rate,
                flop_per_s=links.peak,
            )
        )
    usable = limits.tp_max(rows[0].need or 1.0, links.node_gpus, (ffn, x.heads or 0))
    of = (float(usable), AT_MOST, "divides node, F and heads")
    rows.append(row_of("usable", links.gpu, of, have))
    if links.node is not None:
        judged = None if inside else have
        rows += _tp_over_nodes(links, links.node, ffn * x.matrices / 2, have, judged)
    return rows


def _tp_over_nodes(
    links: Links, network: float, width: float, have: float | None, judged: float | None
) -> list[Limit]:
    """Degrees to which a group over several nodes is compute-bound, by each of its levels."""
    from gpuscale.core.limits import formulas as limits

    inside, outside = limits.tp_max_spanning(width, links.peak, links.gpu, network, links.node_gpus)
    found = (("nodes: inside", links.gpu, inside), ("nodes: network", network, outside))
    return [
        row_of(scope, rate, (need, AT_MOST, "degree"), have, judged)
        for scope, rate, need in (found if links.node_gpus > 1 else found[1:])
    ]


def _ep(x: Roofline, links: Links, axis: str) -> list[Limit]:
    """Expert width that expert parallelism needs."""
    from gpuscale.core.limits import formulas as limits

    ep, k = x.ep or x.gpus or 2 * links.node_gpus, x.top_k or 1
    have = float(x.ffn) if x.ffn else None
    inside = ep <= links.node_gpus
    if not inside and links.node is None:
        raise GpuscaleError(
            f"--ep {ep} spans several nodes, whose network is not known",
            "`--set cluster.node_egress_bytes_per_s='400 GB/s'` states it",
        )
    node, rate = (1, links.gpu) if inside else (links.node_gpus, links.node or links.gpu)
    need = limits.ep_min_ffn(
        ep,
        k,
        flop_per_s=links.peak,
        egress_bytes_per_s=rate,
        node_gpus=node,
        dispatch_bytes=x.dispatch_bytes,
        max_nodes=x.max_nodes,
        n_matrices=x.matrices,
    )
    reached = min(node * k / ep, 1.0)
    if x.max_nodes:
        reached = min(reached, x.max_nodes * node / ep)
    rows = [
        row_of(
            f"ep {ep}, top-{k}",
            rate,
            (need, AT_LEAST, "expert width F"),
            have,
            have,
            times_s=_ep_times_s(x, links.peak, rate, node, ep, k),
            formula="flop_per_s / bytes_per_s * (dispatch + combine) / (2 * matrices) * (z - d) / k"
            " * reached",
            flop_per_s=links.peak,
            bytes_per_s=rate,
            dispatch=x.dispatch_bytes,
            combine=2.0,
            matrices=x.matrices,
            z=ep,
            d=node,
            k=k,
            reached=reached,
        )
    ]
    if links.node is not None:
        rows += _ep_over_nodes(x, links, links.node, ep, k, have)
    return rows


def _ep_times_s(
    x: Roofline, peak: float, rate: float, node: int, ep: int, k: int
) -> tuple[float, float] | None:
    """Arithmetic and exchange of the experts, where batch and widths are given. [s]."""
    from gpuscale.core.limits import formulas as limits

    if not (x.batch_tokens and x.hidden and x.ffn):
        return None
    math_s = limits.ep_math_s(
        x.batch_tokens,
        k,
        hidden_size=x.hidden,
        ffn_hidden_size=x.ffn,
        ep=ep,
        flop_per_s=peak,
        n_matrices=x.matrices,
    )
    comm_s = limits.ep_comm_s(
        x.batch_tokens,
        x.hidden,
        ep=ep,
        top_k=k,
        egress_bytes_per_s=rate,
        node_gpus=node,
        dispatch_bytes=x.dispatch_bytes,
        max_nodes=x.max_nodes,
    )
    return math_s, comm_s


def _ep_over_nodes(
    x: Roofline, links: Links, network: float, ep: int, k: int, have: float | None
) -> list[Limit]:
    """Width that any degree over the network needs, and the largest degree of the width given."""
    from gpuscale.core.limits import formulas as limits

    need = limits.ep_large_min_ffn(links.peak, network, links.node_gpus) * 2 / x.matrices
    rows = [row_of("any degree", network, (need, AT_LEAST, "expert width F"), have)]
    if x.ffn:
        width = x.ffn * x.matrices / 2
        most = limits.ep_max_scaleout(width, k, links.peak, network, links.node_gpus)
        rows.append(row_of("largest degree", network, (most, AT_MOST, "while k >= Z/D"), float(ep)))
    return rows


def _pp(x: Roofline, links: Links, axis: str) -> list[Limit]:
    """Transfers of a pipeline's forward pass."""
    from gpuscale.core.limits import pp as pipe

    tokens = need_of(x.batch_tokens, "--batch-tokens", axis)
    hidden = need_of(x.hidden, "--hidden", axis)
    stages, m = need_of(x.pp, "--pp", axis), x.micro_batches or 1
    rows = []
    for scope, rate in scopes(links):
        hop_s = pipe.hop_time_s(tokens, hidden, m, rate)
        total_s = pipe.forward_transfer_time_s(tokens, hidden, stages, m, rate)
        one = {"batch_tokens": tokens, "hidden": float(hidden), "m": float(m), "bytes_per_s": rate}
        rows.append(
            Limit(
                scope=f"{scope}: one hop",
                bandwidth_bytes_per_s=rate,
                comm_s=hop_s,
                formula="2 * batch_tokens * hidden / (bytes_per_s * m)",
                inputs=one,
            )
        )
        rows.append(
            Limit(
                scope=f"{scope}: {pipe.hops(stages, m)} hops",
                bandwidth_bytes_per_s=rate,
                comm_s=total_s,
                verdict=f"bubble {100 * pipe.bubble_frac(stages, m):.1f} % of the step, "
                f"{100 * pipe.bubble_over_ideal(stages, m):.1f} % over its ideal time",
                formula="2 * batch_tokens * hidden / (bytes_per_s * m) * (m + p - 2)",
                inputs={**one, "p": float(stages)},
            )
        )
        if x.layers:
            layer_s = pipe.transfer_time_per_layer_s(tokens, hidden, x.layers, rate)
            rows.append(
                Limit(
                    scope=f"{scope}: per layer",
                    bandwidth_bytes_per_s=rate,
                    quantity="1.5 hops per micro-batch",
                    comm_s=layer_s,
                )
            )
    return rows


def _cp(x: Roofline, links: Links, axis: str) -> list[Limit]:
    """Tokens of a sequence per GPU that ring attention needs."""
    from gpuscale.core.limits import formulas as limits

    share = (x.kv_heads or 1) / x.heads if x.heads and x.kv_heads else 1.0
    have = x.seq_len / (x.cp or 1) if x.seq_len else None
    scopes = [("node", links.gpu)]
    if links.node is not None:
        scopes.append(("one GPU's NIC share", links.node / links.node_gpus))
    rows = []
    crosses = links.node is not None and (x.cp or 1) > links.node_gpus
    for scope, rate in scopes:
        for mask, causal in (("full", False), ("causal", True)):
            need = limits.ring_attention_min_tokens_per_gpu(links.peak, rate, share, causal)
            rows.append(
                row_of(
                    f"{scope}, {mask}",
                    rate,
                    (need, AT_LEAST, "tokens per GPU"),
                    have,
                    have if crosses == (scope != "node") else None,
                    formula="flop_per_s / bytes_per_s * share * times",
                    flop_per_s=links.peak,
                    bytes_per_s=rate,
                    share=share,
                    times=2.0 if causal else 1.0,
                )
            )
    return rows


AXES: dict[str, Callable[[Roofline, Links, str], list[Limit]]] = {
    "dp": _dp,
    "fsdp": _dp,
    "moe-dp": _dp,
    "tp": _tp,
    "ep": _ep,
    "pp": _pp,
    "cp": _cp,
}
"""Axis -> its rows."""
