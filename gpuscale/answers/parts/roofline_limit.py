"""Limits of dp, fsdp, moe-dp, tp, ep, pp and cp with plain numbers: a table and its warning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import fields_of
from gpuscale.answers.summary import changed
from gpuscale.core.limits import formulas as limits
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, dataclass, field
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.parts.roofline import Roofline
    from gpuscale.io.inputs import Loaded

Times = tuple[float | None, float | None]
AT_LEAST, AT_MOST = ">=", "<="
PER_GPU = (AT_LEAST, "tokens per GPU")
DEGREE = (AT_MOST, "degree")
WIDTH = (AT_LEAST, "expert width F")


def _dp(x: Roofline, links: RooflineLinks, axis: str) -> list[Limit]:
    """Tokens per GPU that data parallelism needs."""
    experts, k = float(x.experts or 1), float(x.top_k or 1)
    if axis == "moe-dp":
        need_of(x.experts and x.top_k, "--experts and --top-k", axis)
    m = float(x.micro_batches or 1) if axis == "fsdp" else 1.0
    have = x.batch_tokens / x.gpus if x.batch_tokens and x.gpus else None
    over = links.node is not None and (x.gpus or 0) > links.node_gpus
    formula = "micro_batches * experts / top_k * flop_per_s / bytes_per_s * few / spans"
    inputs = {"micro_batches": m, "experts": experts, "top_k": k, "spans": x.spans}
    rows = []
    for scope, rate in links.scopes():
        nodes = x.nodes if scope == "cluster" else None
        need = m * limits.dp_min_tokens_per_gpu(links.peak, rate, experts, k, nodes, x.spans)
        times_s: Times = (None, None)
        if x.batch_tokens and x.gpus and x.hidden and x.ffn:
            widths = x.batch_tokens, x.hidden, x.ffn
            math_s = limits.dp_math_s(*widths, x.gpus, links.peak, k, x.matrices)
            comm_s = m * limits.dp_comm_s(x.hidden, x.ffn, rate, experts, x.matrices, nodes)
            times_s = math_s, comm_s / x.spans
        judged = have if over == (scope == "cluster") else None
        inputs["few"] = (nodes - 1) / nodes if nodes else 1.0
        made = formula, inputs
        of = (need, *PER_GPU)
        rows.append(row_of(links, (scope, rate), of, have, judged, made=made, times_s=times_s))
    if x.nodes and links.node is not None:
        rows.append(_dp_levels(x, links, have, m * experts / k))
    return rows


def _dp_levels(x: Roofline, links: RooflineLinks, have: float | None, times: float) -> Limit:
    """Exact limit of both levels together."""
    assert links.node is not None and x.nodes is not None
    d = links.node_gpus
    levels = limits.dp_limit_levels(links.peak, links.gpu, links.node, d, x.nodes)
    need = times * max(levels) / x.spans
    rate = links.gpu if levels[0] >= levels[1] else links.node
    gpu, node = "flop_per_s / gpu * (d - 1) / d", "flop_per_s / node * (x - 1) / x"
    formula = f"times * max({gpu}, {node}) / spans"
    inputs = {"times": times, "gpu": links.gpu, "node": links.node, "d": d, "x": x.nodes}
    inputs["spans"] = x.spans
    at = "both, exact", rate
    return row_of(links, at, (need, *PER_GPU), have, have, (formula, inputs))


def _tp(x: Roofline, links: RooflineLinks, axis: str) -> list[Limit]:
    """Degree to which tensor parallelism is compute-bound."""
    ffn = need_of(x.ffn, "--ffn", axis)
    have = float(x.tp) if x.tp else None
    inside = x.tp is not None and (links.node is None or x.tp <= links.node_gpus)
    formula, inputs = "matrices / 2 * ffn * bytes_per_s / flop_per_s", {"matrices": x.matrices}
    inputs["ffn"] = ffn
    rows = []
    for scope, rate in links.scopes():
        need = limits.tp_limit(ffn, links.peak, rate, x.matrices)
        times_s: Times = (None, None)
        if x.batch_tokens and x.hidden and x.tp:
            times_s = (
                limits.tp_math_s(x.batch_tokens, x.hidden, ffn, x.tp, links.peak, x.matrices),
                limits.tp_comm_s(x.batch_tokens, x.hidden, rate),
            )
        judged = have if inside and scope == "node" else None
        made = formula, inputs
        rows.append(
            row_of(links, (scope, rate), (need, *DEGREE), have, judged, made=made, times_s=times_s)
        )
    usable = limits.tp_max(rows[0].need or 1.0, links.node_gpus, (ffn, x.heads or 0))
    of = (float(usable), AT_MOST, "divides node, F and heads")
    rows.append(row_of(links, ("usable", links.gpu), of, have))
    if links.node is not None:  # a group over several nodes, by each of its levels
        d, judged = links.node_gpus, None if inside else have
        wide = ffn * x.matrices / 2
        within, outside = limits.tp_max_spanning(wide, links.peak, links.gpu, links.node, d)
        found = (("nodes: inside", links.gpu, within), ("nodes: network", links.node, outside))
        for scope, rate, need in found if d > 1 else found[1:]:
            rows.append(row_of(links, (scope, rate), (need, *DEGREE), have, judged))
    return rows


def _ep(x: Roofline, links: RooflineLinks, axis: str) -> list[Limit]:
    """Expert width that expert parallelism needs."""
    ep, k, d = x.ep or x.gpus or 2 * links.node_gpus, x.top_k or 1, links.node_gpus
    have = float(x.ffn) if x.ffn else None
    inside = ep <= d
    if not inside and links.node is None:
        raise GpuscaleError(
            f"--ep {ep} spans several nodes, whose network is not known",
            "`--set cluster.node_egress_bytes_per_s='400 GB/s'` states it",
        )
    node, rate = (1, links.gpu) if inside else (d, links.node or links.gpu)
    more: dict[str, Any] = {"dispatch_bytes": x.dispatch_bytes, "max_nodes": x.max_nodes}
    need = limits.ep_min_ffn(ep, k, links.peak, rate, node, n_matrices=x.matrices, **more)
    formula = "flop_per_s / bytes_per_s * (dispatch + combine) / (2 * matrices) * (z - d) / k"
    inputs = {"dispatch": x.dispatch_bytes, "combine": 2.0, "matrices": x.matrices, "z": ep}
    most = x.max_nodes * node / ep if x.max_nodes else 1.0
    inputs |= {"d": node, "k": k, "reached": min(node * k / ep, 1.0, most)}
    times_s: Times = (None, None)
    if x.batch_tokens and x.hidden and x.ffn:
        widths = x.hidden, x.ffn
        times_s = (
            limits.ep_math_s(x.batch_tokens, k, *widths, ep, links.peak, x.matrices),
            limits.ep_comm_s(x.batch_tokens, x.hidden, ep, k, rate, node, **more),
        )
    at, made = (f"ep {ep}, top-{k}", rate), (f"{formula} * reached", inputs)
    rows = [row_of(links, at, (need, *WIDTH), have, have, made=made, times_s=times_s)]
    if links.node is not None:
        any_need = limits.ep_large_min_ffn(links.peak, links.node, d) * 2 / x.matrices
        rows.append(row_of(links, ("any degree", links.node), (any_need, *WIDTH), have))
    if links.node is not None and x.ffn:
        largest = limits.ep_max_scaleout(x.ffn * x.matrices / 2, k, links.peak, links.node, d)
        of = (largest, AT_MOST, "while k >= Z/D")
        rows.append(row_of(links, ("largest degree", links.node), of, float(ep)))
    return rows


def _pp(x: Roofline, links: RooflineLinks, axis: str) -> list[Limit]:
    """Transfers of a pipeline's forward pass."""
    tokens = need_of(x.batch_tokens, "--batch-tokens", axis)
    hidden = need_of(x.hidden, "--hidden", axis)
    stages, m = need_of(x.pp, "--pp", axis), x.micro_batches or 1
    hop = "2 * batch_tokens * hidden / (bytes_per_s * m)"
    bubble, over = limits.bubble_frac(stages, m), limits.bubble_over_ideal(stages, m)
    said = f"bubble {100 * bubble:.1f} % of the step, {100 * over:.1f} % over its ideal time"
    rows = []
    for scope, rate in links.scopes():
        one = {"batch_tokens": tokens, "hidden": float(hidden), "m": float(m), "bytes_per_s": rate}
        hops = one | {"p": float(stages)}
        hop_s = limits.hop_time_s(tokens, hidden, m, rate)
        total_s = limits.forward_transfer_time_s(tokens, hidden, stages, m, rate)
        first = Limit(f"{scope}: one hop", rate, comm_s=hop_s, formula=hop, inputs=one)
        n = f"{scope}: {limits.hops(stages, m)} hops"
        every = f"{hop} * (m + p - 2)"
        rows += [first, Limit(n, rate, comm_s=total_s, verdict=said, formula=every, inputs=hops)]
        if x.layers:
            layer_s = limits.transfer_time_per_layer_s(tokens, hidden, x.layers, rate)
            quantity = "1.5 hops per micro-batch"
            rows.append(Limit(f"{scope}: per layer", rate, quantity=quantity, comm_s=layer_s))
    return rows


def _cp(x: Roofline, links: RooflineLinks, axis: str) -> list[Limit]:
    """Tokens of a sequence per GPU that ring attention needs."""
    share = (x.kv_heads or 1) / x.heads if x.heads and x.kv_heads else 1.0
    have = x.seq_len / (x.cp or 1) if x.seq_len else None
    scopes = [("node", links.gpu)]
    if links.node is not None:
        scopes.append(("one GPU's NIC share", links.node / links.node_gpus))
    crosses = links.node is not None and (x.cp or 1) > links.node_gpus
    formula = "flop_per_s / bytes_per_s * share * times"
    rows = []
    for scope, rate in scopes:
        judged = have if crosses == (scope != "node") else None
        for mask, times in (("full", 1.0), ("causal", 2.0)):
            causal = mask == "causal"
            need = limits.ring_attention_min_tokens_per_gpu(links.peak, rate, share, causal)
            at, made = (f"{scope}, {mask}", rate), (formula, {"share": share, "times": times})
            rows.append(row_of(links, at, (need, *PER_GPU), have, judged, made))
    return rows


AXES: dict[str, Callable[[Roofline, RooflineLinks, str], list[Limit]]] = {
    "dp": _dp,
    "fsdp": _dp,
    "moe-dp": _dp,
    "tp": _tp,
    "ep": _ep,
    "pp": _pp,
    "cp": _cp,
}
"""Axis -> its rows."""


@dataclass(frozen=True, slots=True)
class RooflineLinks:
    """Peak of a GPU, and the bandwidths of the two scopes."""

    peak: float
    gpu: float
    node: float | None
    node_gpus: int

    def scopes(self) -> list[tuple[str, float]]:
        """List the scopes that a cluster has, with the bandwidth of each."""
        node = [("node", self.gpu)]
        return node if self.node is None else [*node, ("cluster", self.node)]


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit at one scope, with the inputs of its formula."""

    scope: str
    bandwidth_bytes_per_s: float
    need: float | None = None
    relation: str = ""
    quantity: str = ""
    have: float | None = None
    math_s: float | None = None
    comm_s: float | None = None
    verdict: str = ""
    formula: str = ""
    inputs: Mapping[str, float] = field(default_factory=dict)


def row_of(
    links: RooflineLinks,
    at: tuple[str, float],
    limit: tuple[float, str, str],
    have: float | None,
    judged: float | None = None,
    made: tuple[str, Mapping[str, float]] = ("", {}),
    times_s: tuple[float | None, float | None] = (None, None),
) -> Limit:
    """Row of a limit (need, relation, of what); `judged` is what is held against it, if anything.

    `at`: scope and its rate [byte/s]. `made`: formula and its inputs, peak and rate apart.
    `times_s`: arithmetic and exchange.
    """
    need, relation, quantity = limit
    formula, inputs = made
    known = {"flop_per_s": links.peak, "bytes_per_s": at[1], **inputs}
    used = {name: float(value) for name, value in known.items() if name in formula}
    verdict = verdict_of(judged, need, relation)
    made_row = *at, need, relation, quantity, have, *times_s, verdict
    return Limit(*made_row, formula=formula, inputs=used)


def verdict_of(have: float | None, need: float, relation: str) -> str:
    """Say whether a limit is met, and by how much it is missed."""
    if have is None:
        return ""
    met = have >= need if relation == AT_LEAST else have <= need
    ratio = (need / have if relation == AT_LEAST else have / need) if have and need else 0.0
    return "compute-bound" if met else f"communication-bound {ratio:.2f}x"


def need_of(value: float | int | None, option: str, axis: str) -> Any:
    """Refuse a limit whose number was not given."""
    if value is None:
        raise GpuscaleError(f"roofline {axis} wants {option}")
    return value


SOURCE = 'How to Scale Your Model, GPU chapter, "Rooflines for LLM scaling on GPUs"'


class Told:
    """Numbers of a question, and which of them an answer took."""

    def __init__(self, asked: Roofline) -> None:
        self.asked, self.taken = asked, set[str]()

    def __getattr__(self, name: str) -> Any:
        """Give the number of that name."""
        self.taken.add(name)
        return getattr(self.asked, name)


@dataclass(frozen=True, slots=True)
class LimitAnswer:
    """Limits of one axis."""

    flop_per_s: float
    rows: tuple[Limit, ...]


OTHERWISE = ("compare", "clock", "dtype", "scope")
"""Options of the question that are no numbers of a limit."""


def unused(x: Roofline, axis: str, taken: Collection[str]) -> tuple[str, ...]:
    """Warn of options that do not enter the answer.

    >>> from gpuscale.answers.parts.roofline import Roofline
    >>> unused(Roofline("tp", ffn=28672, experts=8), "tp", {"ffn"})
    ('--experts does not enter `roofline tp`',)
    """
    flags = [
        f"--{name.replace('_', '-')}"
        for name, (field, argument) in fields_of(type(x)).items()
        if name in vars(type(x)) and not argument and name not in (*OTHERWISE, *taken)
        if getattr(x, name) != field.default
    ]
    return tuple(f"{flag} does not enter `roofline {axis}`" for flag in flags)


def axis_links(loaded: Loaded, dtype: str) -> RooflineLinks:
    """Peak and bandwidths of a cluster in the two scopes."""
    from gpuscale.answers.values import matrix_rate

    spec = loaded.cluster
    gpu = spec.scaleup_bytes_per_s or spec.gpu.scaleup_bytes_per_s
    share = spec.egress_bytes_per_s_per_gpu
    if gpu is None and share is None:
        raise GpuscaleError(f"{spec.name}: no link between GPUs is known")
    domain = spec.scaleup_domain_gpus
    node = share * domain if share is not None else None
    return RooflineLinks(matrix_rate(spec.gpu, dtype), gpu or share or 0.0, node, domain)


def _table(rows: Sequence[Limit]) -> Table:
    """Rows of limits, with the columns that one of them fills."""

    def count(v: float) -> str:
        return f"{v:,.1f}" if v < 1e6 else format_si(v, "count")

    columns: dict[str, str | Column] = {
        "scope": "scope",
        "bandwidth_bytes_per_s": "bandwidth",
        "math_s": "math",
        "comm_s": "comm",
        "have": Column("have", "have", count),
        "relation": Column("relation", ""),
        "need": Column("need", "limit", count),
        "quantity": "of",
        "verdict": "verdict",
    }
    filled = {
        k: c for k, c in columns.items() if any(getattr(r, k) not in (None, "") for r in rows)
    }
    return Table.of(filled, rows)


def _term(axis: str, r: Limit) -> Term:
    value, unit = (r.comm_s or 0.0, "s") if r.need is None else (r.need, "")
    return Term(f"{axis} {r.scope}", value, unit, r.formula, dict(r.inputs), SOURCE)


def axis_document(loaded: Loaded, axis: str, asked: Roofline, dtype: str) -> Document:
    """One axis' limits as a table; a limit that the job exceeds answers no."""
    links = axis_links(loaded, dtype)
    told: Any = Told(asked)
    rows = AXES[axis](told, links, axis)
    if asked.scope and axis in ("dp", "fsdp", "moe-dp", "tp"):
        rows = [r for r in rows if r.scope == asked.scope] or rows
    title = (
        f"{axis}  {loaded.cluster.name}  {dtype} {format_si(links.peak, 'flop_per_s')} per GPU, "
        f"{links.node_gpus} GPUs per NVLink domain"
    )
    judged = [r for r in rows if r.verdict.startswith(("compute", "communication"))]
    exceeded = any(r.verdict.startswith("communication") for r in judged)
    if axis in ("dp", "fsdp", "moe-dp") and judged:
        exceeded = judged[-1].verdict.startswith("communication")  # the exact form, where given
    return Document(
        command="roofline",
        inputs=loaded.inputs(
            target=axis,
            catalogue=asked.catalogue,
            dtype=dtype,
            **{k: v for k in sorted(told.taken) if (v := getattr(asked, k)) is not None},
        ),
        result=LimitAnswer(links.peak, tuple(rows)),
        blocks=[Text(title), _table(rows), *changed(loaded)],
        warnings=(*loaded.warnings, *unused(asked, axis, told.taken)),
        answered_no=exceeded,
        terms=tuple(_term(axis, r) for r in rows if r.formula),
    )
