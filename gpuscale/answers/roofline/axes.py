"""Limits of dp, fsdp, moe-dp, tp, ep, pp and cp with plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuscale.answers.roofline.records import AxisRow, Links, need_of, scopes, verdict_of
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.roofline import Roofline


def _dp(x: Roofline, links: Links, axis: str) -> list[AxisRow]:
    """Tokens per GPU that data parallelism needs."""
    from gpuscale.core import limits

    experts, k = float(x.experts or 1), float(x.top_k or 1)
    if axis == "moe-dp":
        need_of(x.experts, "--experts and --top-k", axis)
        need_of(x.top_k, "--experts and --top-k", axis)
    m = float(x.micro_batches or 1) if axis == "fsdp" else 1.0
    have = x.batch_tokens / x.gpus if x.batch_tokens and x.gpus else None
    over = links.node is not None and (x.gpus or 0) > links.node_gpus
    rows = []
    for scope, rate in scopes(links):
        judged = have if over == (scope == "cluster") else None
        nodes = x.nodes if scope == "cluster" else None
        need = m * limits.dp_min_tokens_per_gpu(links.peak, rate, experts, k, nodes, x.spans)
        math_s = comm_s = None
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
            comm_s /= x.spans
        few = (nodes - 1) / nodes if nodes else 1.0
        rows.append(
            AxisRow(
                scope=scope,
                bandwidth_bytes_per_s=rate,
                need=need,
                relation=">=",
                quantity="tokens per GPU",
                have=have,
                math_s=math_s,
                comm_s=comm_s,
                verdict=verdict_of(judged, need, ">="),
                formula="micro_batches * experts / top_k * flop_per_s / bytes_per_s * few / spans",
                inputs=(
                    ("micro_batches", m),
                    ("experts", experts),
                    ("top_k", k),
                    ("flop_per_s", links.peak),
                    ("bytes_per_s", rate),
                    ("few", few),
                    ("spans", x.spans),
                ),
            )
        )
    if x.nodes and links.node is not None:
        rows.append(_dp_levels(x, links, have, m * experts / k))
    return rows


def _dp_levels(x: Roofline, links: Links, have: float | None, times: float) -> AxisRow:
    """Exact limit of both levels together."""
    from gpuscale.core.limits import dp_limit_levels

    assert links.node is not None and x.nodes is not None
    levels = dp_limit_levels(links.peak, links.gpu, links.node, links.node_gpus, x.nodes)
    need = times * max(levels) / x.spans
    rate = links.gpu if levels[0] >= levels[1] else links.node
    return AxisRow(
        scope="both, exact",
        bandwidth_bytes_per_s=rate,
        need=need,
        relation=">=",
        quantity="tokens per GPU",
        have=have,
        verdict=verdict_of(have, need, ">="),
        formula="times * max(flop_per_s / gpu * (d - 1) / d, flop_per_s / node * (x - 1) / x)"
        " / spans",
        inputs=(
            ("times", times),
            ("flop_per_s", links.peak),
            ("gpu", links.gpu),
            ("node", links.node),
            ("d", float(links.node_gpus)),
            ("x", float(x.nodes)),
            ("spans", x.spans),
        ),
    )


def _tp(x: Roofline, links: Links, axis: str) -> list[AxisRow]:
    """Degree to which tensor parallelism is compute-bound."""
    from gpuscale.core import limits

    ffn = need_of(x.ffn, "--ffn", axis)
    have = float(x.tp) if x.tp else None
    inside_have = have if x.tp and (x.tp <= links.node_gpus or links.node is None) else None
    over_have = have if inside_have is None else None
    rows = []
    for scope, rate in scopes(links):
        need = limits.tp_limit(ffn, links.peak, rate, x.matrices)
        math_s = comm_s = None
        if x.batch_tokens and x.hidden and x.tp:
            math_s = limits.tp_math_s(x.batch_tokens, x.hidden, ffn, x.tp, links.peak, x.matrices)
            comm_s = limits.tp_comm_s(x.batch_tokens, x.hidden, rate)
        rows.append(
            AxisRow(
                scope=scope,
                bandwidth_bytes_per_s=rate,
                need=need,
                relation="<=",
                quantity="degree",
                have=have,
                math_s=math_s,
                comm_s=comm_s,
                verdict=verdict_of(inside_have if scope == "node" else None, need, "<="),
                formula="matrices / 2 * ffn * bytes_per_s / flop_per_s",
                inputs=(
                    ("matrices", float(x.matrices)),
                    ("ffn", float(ffn)),
                    ("bytes_per_s", rate),
                    ("flop_per_s", links.peak),
                ),
            )
        )
    usable = limits.tp_max(rows[0].need or 1.0, links.node_gpus, (ffn, x.heads or 0))
    rows.append(
        AxisRow(
            scope="usable",
            bandwidth_bytes_per_s=links.gpu,
            need=float(usable),
            relation="<=",
            quantity="divides node, F and heads",
            have=have,
        )
    )
    if links.node is not None:
        rows += _tp_over_nodes(links, links.node, ffn * x.matrices / 2, have, over_have)
    return rows


def _tp_over_nodes(
    links: Links, network: float, width: float, have: float | None, judged: float | None
) -> list[AxisRow]:
    """Degrees to which a group over several nodes is compute-bound, by each of its levels."""
    from gpuscale.core import limits

    inside, outside = limits.tp_max_spanning(width, links.peak, links.gpu, network, links.node_gpus)
    found = (("nodes: inside", links.gpu, inside), ("nodes: network", network, outside))
    return [
        AxisRow(
            scope=scope,
            bandwidth_bytes_per_s=rate,
            need=need,
            relation="<=",
            quantity="degree",
            have=have,
            verdict=verdict_of(judged, need, "<="),
        )
        for scope, rate, need in (found if links.node_gpus > 1 else found[1:])
    ]


def _ep(x: Roofline, links: Links, axis: str) -> list[AxisRow]:
    """Expert width that expert parallelism needs."""
    from gpuscale.core import limits

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
        combine_bytes=2.0,
        max_nodes=x.max_nodes,
        n_matrices=x.matrices,
    )
    math_s = comm_s = None
    if x.batch_tokens and x.hidden and x.ffn:
        math_s = limits.ep_math_s(
            x.batch_tokens,
            k,
            hidden_size=x.hidden,
            ffn_hidden_size=x.ffn,
            ep=ep,
            flop_per_s=links.peak,
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
            combine_bytes=2.0,
            max_nodes=x.max_nodes,
        )
    reached = min(node * k / ep, 1.0)
    if x.max_nodes:
        reached = min(reached, x.max_nodes * node / ep)
    rows = [
        AxisRow(
            scope=f"ep {ep}, top-{k}",
            bandwidth_bytes_per_s=rate,
            need=need,
            relation=">=",
            quantity="expert width F",
            have=have,
            math_s=math_s,
            comm_s=comm_s,
            verdict=verdict_of(have, need, ">="),
            formula="flop_per_s / bytes_per_s * (dispatch + combine) / (2 * matrices) * (z - d) / k"
            " * reached",
            inputs=(
                ("flop_per_s", links.peak),
                ("bytes_per_s", rate),
                ("dispatch", x.dispatch_bytes),
                ("combine", 2.0),
                ("matrices", float(x.matrices)),
                ("z", float(ep)),
                ("d", float(node)),
                ("k", float(k)),
                ("reached", reached),
            ),
        )
    ]
    if links.node is not None:
        rows += _ep_over_nodes(x, links, links.node, ep, k, have)
    return rows


def _ep_over_nodes(
    x: Roofline, links: Links, network: float, ep: int, k: int, have: float | None
) -> list[AxisRow]:
    """Width that any degree over the network needs, and the largest degree of the width given."""
    from gpuscale.core import limits

    rows = [
        AxisRow(
            scope="any degree",
            bandwidth_bytes_per_s=network,
            need=limits.ep_large_min_ffn(links.peak, network, links.node_gpus) * 2 / x.matrices,
            relation=">=",
            quantity="expert width F",
            have=have,
        )
    ]
    if x.ffn:
        width = x.ffn * x.matrices / 2
        most = limits.ep_max_scaleout(width, k, links.peak, network, links.node_gpus)
        rows.append(AxisRow("largest degree", network, most, "<=", "while k >= Z/D", float(ep)))
    return rows


def _pp(x: Roofline, links: Links, axis: str) -> list[AxisRow]:
    """Transfers of a pipeline's forward pass."""
    from gpuscale.core.limits import pp as pipe

    tokens = need_of(x.batch_tokens, "--batch-tokens", axis)
    hidden = need_of(x.hidden, "--hidden", axis)
    stages, m = need_of(x.pp, "--pp", axis), x.micro_batches or 1
    rows = []
    for scope, rate in scopes(links):
        hop_s = pipe.hop_time_s(tokens, hidden, m, rate)
        total_s = pipe.forward_transfer_time_s(tokens, hidden, stages, m, rate)
        given = (
            ("batch_tokens", tokens),
            ("hidden", float(hidden)),
            ("m", float(m)),
            ("bytes_per_s", rate),
            ("p", float(stages)),
        )
        rows.append(
            AxisRow(
                scope=f"{scope}: one hop",
                bandwidth_bytes_per_s=rate,
                comm_s=hop_s,
                formula="2 * batch_tokens * hidden / (bytes_per_s * m)",
                inputs=given[:-1],
            )
        )
        rows.append(
            AxisRow(
                scope=f"{scope}: {pipe.hops(stages, m)} hops",
                bandwidth_bytes_per_s=rate,
                comm_s=total_s,
                verdict=f"bubble {100 * pipe.bubble_frac(stages, m):.1f} % of the step, "
                f"{100 * pipe.bubble_over_ideal(stages, m):.1f} % over its ideal time",
                formula="2 * batch_tokens * hidden / (bytes_per_s * m) * (m + p - 2)",
                inputs=given,
            )
        )
        if x.layers:
            layer_s = pipe.transfer_time_per_layer_s(tokens, hidden, x.layers, rate)
            rows.append(
                AxisRow(
                    scope=f"{scope}: per layer",
                    bandwidth_bytes_per_s=rate,
                    quantity="1.5 hops per micro-batch",
                    comm_s=layer_s,
                )
            )
    return rows


def _cp(x: Roofline, links: Links, axis: str) -> list[AxisRow]:
    """Tokens of a sequence per GPU that ring attention needs."""
    from gpuscale.core import limits

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
                AxisRow(
                    scope=f"{scope}, {mask}",
                    bandwidth_bytes_per_s=rate,
                    need=need,
                    relation=">=",
                    quantity="tokens per GPU",
                    have=have,
                    verdict=verdict_of(have if crosses == (scope != "node") else None, need, ">="),
                    formula="flop_per_s / bytes_per_s * share * times",
                    inputs=(
                        ("flop_per_s", links.peak),
                        ("bytes_per_s", rate),
                        ("share", share),
                        ("times", 2.0 if causal else 1.0),
                    ),
                )
            )
    return rows


AXES: dict[str, Callable[[Roofline, Links, str], list[AxisRow]]] = {
    "dp": _dp,
    "fsdp": _dp,
    "moe-dp": _dp,
    "tp": _tp,
    "ep": _ep,
    "pp": _pp,
    "cp": _cp,
}
"""Axis -> its rows."""
