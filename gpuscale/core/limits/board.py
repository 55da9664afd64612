"""All parallelism limits of one model on one cluster: the board that `roofline` and `plan` print.

Each row compares the arithmetic of one axis with its communication, per layer and by the levels of
the network, in 2-byte elements. "How to Scale Your Model", GPU chapter, "Rooflines for LLM
scaling"; `rule` is the rounded form printed there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.limits import cp as cp_limits
from gpuscale.core.limits import dp as dp_limits
from gpuscale.core.limits import ep as ep_limits
from gpuscale.core.limits import tp as tp_limits
from gpuscale.core.limits.pp import bubble_frac, hop_time_s
from gpuscale.core.limits.records import Case, LimitRow, case_of
from gpuscale.core.network.hierarchy import hierarchical_time_s

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

SOURCE = 'How to Scale Your Model, GPU chapter, "Rooflines for LLM scaling on GPUs"'

STEP_OVER_BACKWARD = 1.5
"""Forward and backward pass over the backward pass alone: 6 of 4 FLOP a weight and token."""


def limits_board(
    model: ModelSpec,
    cluster: ClusterSpec,
    layout: Layout,
    batch_tokens: float | None = None,
    flop_per_s: float | None = None,
) -> tuple[LimitRow, ...]:
    """Limits of dp, moe-dp, fsdp, tp, ep, pp and cp for a model laid out on a cluster.

    `model`: the layers with most FFN weights stand for all. `cluster`: its GPU gives the peak, its
    levels the links. `layout`: degrees, sequence length, micro-batches, precision. Ranks lie in the
    order tp, cp, ep, dp, pp, innermost first. `batch_tokens`: global batch, where it is no whole
    number of sequences [token]. `flop_per_s`: peak of one GPU; by default the cluster GPU's in the
    layout's precision [FLOP/s]. Returns: `ratio` is communication over arithmetic, not overlapped;
    above 1 the axis is communication-bound. Rows of axes that are not in use tell what they would
    need. Raises ValueError if the GPU lacks the precision, the links are not known, or the GPUs do
    not fit.
    """
    case = case_of(model, cluster, layout, batch_tokens, flop_per_s)
    rows = [_dp(case)]
    if case.shape.n_experts > 1:
        rows.append(_moe_dp(case))
    rows += [_fsdp(case), _tp(case)]
    if case.shape.n_experts > 1:
        rows.append(_ep(case))
    rows.append(_pp(case))
    if case.shape.q_width > 0:
        rows.append(_cp(case))
    return tuple(rows)


def _verdict(ratio: float, in_use: bool) -> tuple[str, str]:
    """(bound, verdict) of communication over arithmetic."""
    bound = "compute" if ratio <= 1 else "communication"
    text = f"{bound}-bound" + (f" {ratio:.2f}x" if ratio > 1 else "")
    return bound, text if in_use else f"not used; would be {text}"


def _gather_s(case: Case, array_bytes: float, span: int, inner: int) -> float:
    """All-gather (or reduce-scatter) of a layer's array over `span` GPUs, sharded `inner` ways."""
    return hierarchical_time_s("all-gather", array_bytes, span, case.levels, inner=inner)


def _rule_tokens(case: Case, inner: int) -> float:
    """Tokens per GPU by the rounded form: C max(1/(W_gpu min(Y,D)), D/(W_node max(D,Y))) / pp."""
    one = 1 / (case.gpu_egress * min(inner, case.domain))
    stage = case.layout.n_gpus // case.layout.pp
    if stage > case.domain:
        one = max(one, case.domain / (case.domain_egress * max(case.domain, inner)))
    return case.peak * one / case.layout.pp


def _dp(case: Case) -> LimitRow:
    """Gradient of the dense weights against the backward pass."""
    s, lay = case.shape, case.layout
    width: float = s.ffn_hidden_size
    note = f"tokens per DP rank {case.batch_tokens / (lay.dp * lay.cp):,.0f}"
    if s.n_experts > 1:
        width = s.shared_width + s.mixer_weights / (s.n_matrices * s.hidden_size)
        note += "; attention and shared experts"
    ranks = lay.dp * lay.cp
    math_s = _backward_s(case, case.batch_tokens, width, 1)
    layer_bytes = 2 * s.n_matrices * s.hidden_size * width
    comm_s = 2 * _gather_s(case, layer_bytes, lay.tp * ranks, lay.tp) / lay.pp
    times_s = math_s, comm_s
    return _tokens_row(
        case, "dp", ranks, lay.zero_stage < 3, times_s, rule=_rule_tokens(case, lay.tp), note=note
    )


def _moe_dp(case: Case) -> LimitRow:
    """Gradient of the experts against their backward pass."""
    s, lay = case.shape, case.layout
    inner = lay.ep * lay.etp
    span = lay.tp * lay.cp * lay.dp
    replicas = max(1, span // inner)
    math_s = _backward_s(case, case.batch_tokens, s.ffn_hidden_size, s.top_k)
    layer_bytes = 2 * s.n_matrices * s.n_experts * s.hidden_size * s.ffn_hidden_size
    comm_s = 2 * _gather_s(case, layer_bytes, span, min(inner, span)) / lay.pp
    rule = s.n_experts / s.top_k * _rule_tokens(case, inner)
    times_s = math_s, comm_s
    return _tokens_row(
        case,
        "moe-dp",
        replicas,
        lay.zero_stage < 3,
        times_s,
        rule=rule,
        note=f"experts: E/k = {s.n_experts / s.top_k:g}",
    )


def _fsdp(case: Case) -> LimitRow:
    """ZeRO-3: two all-gathers and a reduce-scatter of each layer, every micro-batch."""
    s, lay = case.shape, case.layout
    inner = lay.tp if s.n_experts == 1 else lay.ep * lay.etp
    span = lay.tp * lay.cp * lay.dp
    m = lay.n_micro_batches
    math_s = STEP_OVER_BACKWARD * _backward_s(
        case, case.batch_tokens / m, s.ffn_hidden_size, s.top_k
    )
    layer_bytes = 2 * s.n_matrices * s.n_experts * s.hidden_size * s.ffn_hidden_size
    comm_s = 3 * _gather_s(case, layer_bytes, span, min(inner, span)) / lay.pp
    rule = m * s.n_experts / s.top_k * _rule_tokens(case, inner)
    ranks = max(1, span // inner)
    times_s = math_s, comm_s
    return _tokens_row(
        case,
        "fsdp",
        ranks,
        lay.zero_stage == 3,
        times_s,
        rule=rule,
        note=f"ZeRO-3, {m} micro-batch{'es' * (m > 1)}",
    )


def _backward_s(case: Case, tokens: float, width: float, top_k: float) -> float:
    """Backward pass of a layer's FFN, of so many tokens on all GPUs. [s]."""
    return dp_limits.dp_math_s(
        tokens,
        case.shape.hidden_size,
        ffn_hidden_size=width,
        n_gpus=case.layout.n_gpus,
        flop_per_s=case.peak,
        top_k=top_k,
        n_matrices=case.shape.n_matrices,
    )


def _tokens_row(
    case: Case,
    axis: str,
    degree: int,
    chosen: bool,
    times_s: tuple[float, float],
    *,
    rule: float,
    note: str,
) -> LimitRow:
    """Row of a limit on tokens per GPU; `chosen`: the ZeRO stage is that of the axis."""
    have, (math_s, comm_s) = case.tokens_per_gpu, times_s
    return _row(
        axis,
        degree,
        times_s,
        ("tokens per GPU", have, ">=", have * comm_s / math_s),
        rule=rule,
        note=note,
        in_use=degree > 1 and chosen,
        unused="not used" if degree == 1 else "",
    )


def _row(
    axis: str,
    degree: int,
    times_s: tuple[float, float],
    limit: tuple[str, float, str, float],
    *,
    rule: float | None,
    note: str,
    in_use: bool,
    unused: str,
) -> LimitRow:
    """Row from its times (arithmetic, exchange) and its limit (of what, have, relation, need).

    `unused` is the verdict where the axis has one rank only.
    """
    math_s, comm_s = times_s
    quantity, have, relation, need = limit
    bound, verdict = _verdict(comm_s / math_s, in_use)
    return LimitRow(
        axis=axis,
        degree=degree,
        in_use=in_use,
        math_s=math_s,
        comm_s=comm_s,
        quantity=quantity,
        have=have,
        need=need,
        relation=relation,
        rule=rule,
        bound="-" if unused else bound,
        ratio=comm_s / math_s,
        verdict=unused or verdict,
        note=note,
    )


def _tp(case: Case) -> LimitRow:
    """Activations gathered and scattered against the MLP's forward arithmetic."""
    s, lay = case.shape, case.layout
    group_tokens = case.batch_tokens / (lay.dp * lay.cp)
    scale = s.n_matrices / 2
    width = s.ffn_hidden_size
    need = 1 + tp_limits.tp_limit(width, case.peak, case.gpu_egress, s.n_matrices)
    if need > case.domain:
        spanning = tp_limits.tp_max_spanning(
            width * scale, case.peak, case.gpu_egress, case.domain_egress, case.domain
        )
        need = max(case.domain, min(spanning)) if len(case.levels) > 1 else float(case.domain)
    inside = lay.tp <= case.domain
    rule = tp_limits.tp_limit(width, case.peak, case.gpu_egress if inside else case.domain_egress)
    math_s = tp_limits.tp_math_s(
        group_tokens, s.hidden_size, width, lay.tp, case.peak, s.n_matrices
    )
    comm_s = 2 * _gather_s(case, 2 * group_tokens * s.hidden_size, lay.tp, 1)
    alone = f"compute-bound to {need:.1f}"
    if need < 2:
        alone = "any degree would be communication-bound"
    note = f"F = {width:,}" + (" of one expert" if s.n_experts > 1 else "")
    return _row(
        "tp",
        lay.tp,
        (math_s, comm_s),
        ("degree", float(lay.tp), "<=", need),
        rule=rule,
        note=note,
        in_use=lay.tp > 1,
        unused=f"not used; {alone}" if lay.tp == 1 else "",
    )


def _ep(case: Case) -> LimitRow:
    """Tokens to their experts and back against the experts' forward arithmetic."""
    s, lay = case.shape, case.layout
    z = lay.ep * lay.etp
    in_use = lay.ep > 1
    shown = z if in_use else min(case.domain, s.n_experts)
    inside = shown <= case.domain
    node, egress = (1, case.gpu_egress) if inside else (case.domain, case.domain_egress)
    max_nodes = s.n_route_groups or None if not inside else None
    tokens = case.batch_tokens * shown / (lay.tp * lay.cp * lay.dp)
    math_s = ep_limits.ep_math_s(
        tokens,
        s.top_k,
        hidden_size=s.hidden_size,
        ffn_hidden_size=s.ffn_hidden_size,
        ep=shown,
        flop_per_s=case.peak,
        n_matrices=s.n_matrices,
        shared_ffn_hidden_size=s.shared_width,
    )
    comm_s = ep_limits.ep_comm_s(
        tokens, s.hidden_size, shown, s.top_k, egress, node, max_nodes=max_nodes
    )
    need = ep_limits.ep_min_ffn(
        shown, s.top_k, case.peak, egress, node, max_nodes=max_nodes, n_matrices=s.n_matrices
    )
    rule = ep_limits.ep_min_ffn(shown, s.top_k, case.peak, egress, node)
    note = "inside a node" if inside else f"over {math.ceil(shown / case.domain)} nodes"
    if not in_use:
        note += f", at degree {shown}"
    if max_nodes:
        note += f", a token goes to {max_nodes} nodes at most"
    need = max(0.0, need - s.shared_width / s.top_k)
    return _row(
        "ep",
        lay.ep,
        (math_s, comm_s),
        ("expert width F", float(s.ffn_hidden_size), ">=", need),
        rule=rule,
        note=note,
        in_use=in_use,
        unused="",
    )


def _pp(case: Case) -> LimitRow:
    """Hop of a micro-batch to the next stage against the stage's forward arithmetic."""
    s, lay = case.shape, case.layout
    m, group = lay.n_micro_batches, lay.tp * lay.cp
    crosses = lay.n_gpus > case.domain
    link = group * (case.gpu_share if crosses else case.gpu_egress)
    replica_tokens = case.batch_tokens / lay.dp
    layer_s = 2 * s.layer_weights * replica_tokens / m / (group * case.peak)
    math_s = layer_s * s.n_layers / lay.pp
    comm_s = hop_time_s(replica_tokens, s.hidden_size, m, link)
    need = min(float(s.n_layers), s.n_layers * layer_s / comm_s)
    note = f"{m} micro-batch{'es' * (m > 1)}, bubble {100 * bubble_frac(lay.pp, m, lay.vpp):.1f} %"
    return _row(
        "pp",
        lay.pp,
        (math_s, comm_s),
        ("stages", float(lay.pp), "<=", need),
        rule=None,
        note=note if lay.pp > 1 else "",
        in_use=lay.pp > 1,
        unused=f"not used; compute-bound to {need:,.0f}" if lay.pp == 1 else "",
    )


def _cp(case: Case) -> LimitRow:
    """Ring attention: K and V to the neighbour against one block of attention."""
    s, lay = case.shape, case.layout
    inside = lay.tp * lay.cp <= case.domain
    egress = case.gpu_egress if inside else case.gpu_share
    tokens = lay.seq_len / lay.cp
    math_s, comm_s = cp_limits.ring_attention_times(
        tokens, s.q_width / lay.tp, s.kv_width / lay.tp, case.peak, egress, causal=True
    )
    share = s.kv_width / s.q_width
    need = cp_limits.ring_attention_min_tokens_per_gpu(case.peak, egress, share, causal=True)
    rule = cp_limits.ring_attention_min_tokens_per_gpu(case.peak, egress, share)
    note = f"ring, causal, {'inside the NVLink domain' if inside else 'over the network'}"
    return _row(
        "cp",
        lay.cp,
        (math_s, comm_s),
        ("tokens of a sequence per GPU", tokens, ">=", need),
        rule=rule,
        note=note,
        in_use=lay.cp > 1,
        unused=f"not used; compute-bound to {lay.seq_len / need:,.1f}" if lay.cp == 1 else "",
    )
