"""All parallelism limits of one model on one cluster: the board that `roofline` and `plan` print.

Each row compares the arithmetic of one axis with its communication, per layer and by the levels of
the network, in 2-byte elements. "How to Scale Your Model", GPU chapter, "Rooflines for LLM
scaling"; `rule` is the rounded form printed there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.limits import formulas as f
from gpuscale.core.limits.formulas import bubble_frac, hop_time_s
from gpuscale.core.model.layer_shape import LayerShape, layer_shape
from gpuscale.core.network.hierarchy import Level, hierarchical_time_s, network_levels
from gpuscale.core.records import dataclass

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.specs.hardware import ClusterSpec
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
    experts = case.shape.n_experts > 1
    rows = [_dp(case), *([_moe_dp(case)] if experts else []), _fsdp(case), _tp(case)]
    rows += [_ep(case)] if experts else []
    rows.append(_pp(case))
    rows += [_cp(case)] if case.shape.q_width > 0 else []
    return tuple(rows)


def _row(
    axis: str,
    degree: int,
    times_s: tuple[float, float],
    limit: tuple[str, float, str, float],
    rule: float | None,
    note: str,
    in_use: bool | None = None,
    unused: str = "",
) -> LimitRow:
    """Row from its times (arithmetic, exchange) and its limit (of what, have, relation, need).

    `in_use`: by default a degree above 1. `unused`: the verdict where the axis has one rank only.
    """
    math_s, comm_s = times_s
    quantity, have, relation, need = limit
    used = degree > 1 if in_use is None else in_use
    ratio = comm_s / math_s
    bound = "compute" if ratio <= 1 else "communication"
    text = f"{bound}-bound" + (f" {ratio:.2f}x" if ratio > 1 else "")
    return LimitRow(
        axis=axis,
        degree=degree,
        in_use=used,
        math_s=math_s,
        comm_s=comm_s,
        quantity=quantity,
        have=have,
        need=need,
        relation=relation,
        rule=rule,
        bound="-" if unused else bound,
        ratio=ratio,
        verdict=unused or (text if used else f"not used; would be {text}"),
        note=note,
    )


def _gather_s(case: LimitCase, array_bytes: float, span: int, inner: int) -> float:
    """All-gather (or reduce-scatter) of a layer's array over `span` GPUs, sharded `inner` ways."""
    return hierarchical_time_s("all-gather", array_bytes, span, case.levels, inner=inner)


def _rule_tokens(case: LimitCase, inner: int) -> float:
    """Tokens per GPU by the rounded form: C max(1/(W_gpu min(Y,D)), D/(W_node max(D,Y))) / pp."""
    one = 1 / (case.gpu_egress * min(inner, case.domain))
    stage = case.layout.n_gpus // case.layout.pp
    if stage > case.domain:
        one = max(one, case.domain / (case.domain_egress * max(case.domain, inner)))
    return case.peak * one / case.layout.pp


def _weights_row(case: LimitCase, axis: str, width: float, note: str) -> LimitRow:
    """Row of an exchange of weights or gradients: a limit on tokens per GPU.

    `width`: of what is exchanged. ZeRO-3 gathers twice and scatters once, every micro-batch, beside
    the whole step; else the gradient is exchanged once, beside the backward pass.
    """
    s, lay = case.shape, case.layout
    n_experts, top_k = (1, 1) if axis == "dp" else (s.n_experts, s.top_k)
    inner = lay.tp if n_experts == 1 else lay.ep * lay.etp  # ranks among which it is split already
    passes, gathers, over_backward = 1, 2, 1.0
    if axis == "fsdp":
        passes, gathers, over_backward = lay.n_micro_batches, 3, STEP_OVER_BACKWARD
    span = lay.tp * lay.cp * lay.dp
    ranks = max(1, span // inner)
    widths = case.batch_tokens / passes, s.hidden_size, width
    math_s = over_backward * f.dp_math_s(*widths, lay.n_gpus, case.peak, top_k, s.n_matrices)
    layer_bytes = 2 * s.n_matrices * n_experts * s.hidden_size * width
    comm_s = gathers * _gather_s(case, layer_bytes, span, min(inner, span)) / lay.pp
    have = case.tokens_per_gpu
    return _row(
        axis,
        ranks,
        (math_s, comm_s),
        ("tokens per GPU", have, ">=", have * comm_s / math_s),
        passes * n_experts / top_k * _rule_tokens(case, inner),
        note,
        in_use=ranks > 1 and (lay.zero_stage == 3) == (axis == "fsdp"),
        unused="not used" if ranks == 1 else "",
    )


def _dp(case: LimitCase) -> LimitRow:
    """Gradient of the dense weights against the backward pass."""
    s, lay = case.shape, case.layout
    width: float = s.ffn_hidden_size
    note = f"tokens per DP rank {case.batch_tokens / (lay.dp * lay.cp):,.0f}"
    if s.n_experts > 1:
        width = s.shared_width + s.mixer_weights / (s.n_matrices * s.hidden_size)
        note += "; attention and shared experts"
    return _weights_row(case, "dp", width, note)


def _moe_dp(case: LimitCase) -> LimitRow:
    """Gradient of the experts against their backward pass."""
    s = case.shape
    note = f"experts: E/k = {s.n_experts / s.top_k:g}"
    return _weights_row(case, "moe-dp", s.ffn_hidden_size, note)


def _fsdp(case: LimitCase) -> LimitRow:
    """ZeRO-3: two all-gathers and a reduce-scatter of each layer, every micro-batch."""
    m = case.layout.n_micro_batches
    note = f"ZeRO-3, {m} micro-batch{'es' * (m > 1)}"
    return _weights_row(case, "fsdp", case.shape.ffn_hidden_size, note)


def _tp(case: LimitCase) -> LimitRow:
    """Activations gathered and scattered against the MLP's forward arithmetic."""
    s, lay = case.shape, case.layout
    group_tokens = case.batch_tokens / (lay.dp * lay.cp)
    width = s.ffn_hidden_size
    need = 1 + f.tp_limit(width, case.peak, case.gpu_egress, s.n_matrices)
    if need > case.domain:
        spanning = f.tp_max_spanning(
            width * s.n_matrices / 2, case.peak, case.gpu_egress, case.domain_egress, case.domain
        )
        need = max(case.domain, min(spanning)) if len(case.levels) > 1 else float(case.domain)
    egress = case.gpu_egress if lay.tp <= case.domain else case.domain_egress
    math_s = f.tp_math_s(group_tokens, s.hidden_size, width, lay.tp, case.peak, s.n_matrices)
    comm_s = 2 * _gather_s(case, 2 * group_tokens * s.hidden_size, lay.tp, 1)
    alone = f"compute-bound to {need:.1f}"
    if need < 2:
        alone = "any degree would be communication-bound"
    return _row(
        "tp",
        lay.tp,
        (math_s, comm_s),
        ("degree", float(lay.tp), "<=", need),
        f.tp_limit(width, case.peak, egress),
        f"F = {width:,}" + (" of one expert" if s.n_experts > 1 else ""),
        unused=f"not used; {alone}" if lay.tp == 1 else "",
    )


def _ep(case: LimitCase) -> LimitRow:
    """Tokens to their experts and back against the experts' forward arithmetic."""
    s, lay = case.shape, case.layout
    shown = lay.ep * lay.etp if lay.ep > 1 else min(case.domain, s.n_experts)
    inside = shown <= case.domain
    node, egress = (1, case.gpu_egress) if inside else (case.domain, case.domain_egress)
    most = None if inside else s.n_route_groups or None
    tokens = case.batch_tokens * shown / (lay.tp * lay.cp * lay.dp)
    widths = s.hidden_size, s.ffn_hidden_size
    work = tokens, s.top_k, *widths, shown, case.peak, s.n_matrices
    math_s = f.ep_math_s(*work, shared_ffn_hidden_size=s.shared_width)
    comm_s = f.ep_comm_s(tokens, s.hidden_size, shown, s.top_k, egress, node, max_nodes=most)
    links = shown, s.top_k, case.peak, egress, node
    need = f.ep_min_ffn(*links, max_nodes=most, n_matrices=s.n_matrices)
    note = "inside a node" if inside else f"over {math.ceil(shown / case.domain)} nodes"
    if lay.ep == 1:
        note += f", at degree {shown}"
    if most:
        note += f", a token goes to {most} nodes at most"
    need = max(0.0, need - s.shared_width / s.top_k)
    return _row(
        "ep",
        lay.ep,
        (math_s, comm_s),
        ("expert width F", float(s.ffn_hidden_size), ">=", need),
        f.ep_min_ffn(*links),
        note,
    )


def _pp(case: LimitCase) -> LimitRow:
    """Hop of a micro-batch to the next stage against the stage's forward arithmetic."""
    s, lay = case.shape, case.layout
    m, group = lay.n_micro_batches, lay.tp * lay.cp
    link = group * (case.gpu_share if lay.n_gpus > case.domain else case.gpu_egress)
    replica_tokens = case.batch_tokens / lay.dp
    layer_s = 2 * s.layer_weights * replica_tokens / m / (group * case.peak)
    comm_s = hop_time_s(replica_tokens, s.hidden_size, m, link)
    need = min(float(s.n_layers), s.n_layers * layer_s / comm_s)
    note = f"{m} micro-batch{'es' * (m > 1)}, bubble {100 * bubble_frac(lay.pp, m, lay.vpp):.1f} %"
    return _row(
        "pp",
        lay.pp,
        (layer_s * s.n_layers / lay.pp, comm_s),
        ("stages", float(lay.pp), "<=", need),
        None,
        note if lay.pp > 1 else "",
        unused=f"not used; compute-bound to {need:,.0f}" if lay.pp == 1 else "",
    )


def _cp(case: LimitCase) -> LimitRow:
    """Ring attention: K and V to the neighbour against one block of attention."""
    s, lay = case.shape, case.layout
    inside = lay.tp * lay.cp <= case.domain
    egress = case.gpu_egress if inside else case.gpu_share
    tokens, share = lay.seq_len / lay.cp, s.kv_width / s.q_width
    times_s = f.ring_attention_times(
        tokens, s.q_width / lay.tp, s.kv_width / lay.tp, case.peak, egress, causal=True
    )
    need = f.ring_attention_min_tokens_per_gpu(case.peak, egress, share, causal=True)
    return _row(
        "cp",
        lay.cp,
        times_s,
        ("tokens of a sequence per GPU", tokens, ">=", need),
        f.ring_attention_min_tokens_per_gpu(case.peak, egress, share),
        f"ring, causal, {'inside the NVLink domain' if inside else 'over the network'}",
        unused=f"not used; compute-bound to {lay.seq_len / need:,.1f}" if lay.cp == 1 else "",
    )
