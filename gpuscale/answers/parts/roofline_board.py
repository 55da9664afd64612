"""`gpuscale roofline MODEL`: the board of all limits of a model on a cluster, and its pictures."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from gpuscale.answers.layout import refuse_degrees
from gpuscale.answers.options import usual_seq_len
from gpuscale.answers.summary import changed
from gpuscale.answers.values import matrix_rate
from gpuscale.core.formats import element_bytes
from gpuscale.core.kernel.expected import ProductRows, product_time_s
from gpuscale.core.layout import Layout
from gpuscale.core.limits.board import SOURCE, LimitRow, limits_board
from gpuscale.core.limits.formulas import tp_limit, tp_max
from gpuscale.core.model.layer_shape import Operator, layer_shape, operators
from gpuscale.core.quantity import format_count, format_si
from gpuscale.core.records import Term, asdict, dataclass, replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.calibration import load_arch
from gpuscale.render.document import Column, Document, Facts, Table, Text
from gpuscale.render.picture_kernels import limits_over_gpus, operator_roofline

if TYPE_CHECKING:
    from gpuscale.answers.parts.roofline import Roofline
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.hardware import ClusterSpec
    from gpuscale.specs.model import ModelSpec

DECODED = 64
"""Sequences of the decoding pass that is drawn."""


def _operators(loaded: Loaded, layout: Layout) -> Any:
    model, gpu, dtype = loaded.model, loaded.gpu, layout.precision
    peak, hbm = gpu.flop_per_s(dtype) or 0.0, gpu.hbm_bytes_per_s
    arch = load_arch(gpu)

    def rate(op: Operator) -> float:
        """Rate that is expected of a product; of an attention core, its roofline."""
        roof = min(peak, op.intensity * hbm)
        if not op.m:
            return roof
        width, units = element_bytes(dtype), gpu.n_compute_units or 1
        rows = ProductRows(op.n, op.k, width, peak, hbm, units)
        rows = rows._replace(l2_bytes=gpu.l2_bytes or 0.0)
        time_s = product_time_s(op.m, rows, dtype, arch)
        return min(roof, op.flop / time_s)

    groups: dict[str, list[tuple[str, float, float]]] = {}
    n = layout.seq_len
    for name, decoding in (("training", False), ("decoding", True)):
        for op in operators(model, float(DECODED if decoding else n), float(n), decoding):
            kind = f"{name}, expected" if op.m else f"{name}, ideal"
            groups.setdefault(kind, []).append((op.name, op.intensity, rate(op)))
    return operator_roofline(
        peak,
        hbm,
        groups,
        f"Operators of {model.name} on one {gpu.name}",
        f"{dtype}; training on {n:,} tokens, decoding {DECODED} sequences of {n:,}; products "
        "at their expected rate, attention cores at their roofline",
    )


def _limits(loaded: Loaded, x: Roofline, layout: Layout, tokens: float) -> Any:
    boards: dict[int, dict[str, float]] = {}
    width = layout.tp * layout.cp * layout.pp
    sizes = [width * 2**k for k in range(24) if width * 2**k <= 4 * layout.n_gpus]
    for n_gpus in [n for n in sizes if 16 * n >= layout.n_gpus]:
        given = replace(x, gpus=n_gpus, tp=layout.tp, cp=layout.cp, pp=layout.pp, ep=layout.ep)
        try:
            here = board_layout(loaded.model, loaded.cluster, given, layout.precision)
            rows = limits_board(loaded.model, loaded.cluster, here, tokens)
        except (ValueError, GpuscaleError):
            continue
        boards[n_gpus] = {r.axis: r.ratio for r in rows if r.ratio and r.ratio < 1e6}
    return limits_over_gpus(
        boards,
        f"{loaded.model.name} on {loaded.cluster.name}, {format_count(tokens)} tokens a "
        f"batch, tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, ep {layout.ep}; more GPUs are "
        "more data parallelism",
    )


Rows = tuple[LimitRow, ...]

DEFAULT_BATCH_TOKENS = 4e6
DEFAULT_GPUS = 1024


@dataclass(frozen=True, slots=True)
class BoardAnswer:
    """Limits of every parallelism of a job."""

    tokens_per_gpu: float
    tokens_per_dp_rank: float
    rows: tuple[LimitRow, ...]
    exceeded: tuple[str, ...]


def _degrees(model: ModelSpec, spec: ClusterSpec, x: Roofline, peak: float) -> tuple[int, int]:
    """(tp, ep) where they are not given: the largest that the limits and sizes allow in a node."""
    shape = layer_shape(model)
    domain = spec.scaleup_domain_gpus
    egress = spec.scaleup_bytes_per_s or spec.gpu.scaleup_bytes_per_s
    if x.tp is not None or shape.n_experts > 1 or egress is None:
        tp = x.tp or 1
    else:
        heads = [m.n_heads for m in model.mixers.values() if m.kind in ("attention", "mla")]
        kv = [m.n_kv_heads for m in model.mixers.values() if m.kind == "attention"]
        limit = tp_limit(shape.ffn_hidden_size, peak, egress, shape.n_matrices)
        tp = tp_max(limit, min(domain, 8), (shape.ffn_hidden_size, *heads, *kv))
    ep = x.ep or 1
    if x.ep is None and shape.n_experts > 1:
        ep = max(
            d
            for d in range(1, min(domain, shape.n_experts) + 1)
            if shape.n_experts % d == 0 and domain % d == 0
        )
    return tp, ep


def board_layout(model: ModelSpec, spec: ClusterSpec, x: Roofline, dtype: str) -> Layout:
    """Layout by the options, with the defaults that the output states."""
    peak = matrix_rate(spec.gpu, dtype)
    tp, ep = _degrees(model, spec, x, peak)
    pp, cp = x.pp or 1, x.cp or 1
    n_gpus = x.gpus or (spec.n_gpus if spec.kind in ("fabric", "cluster") else None)
    domain = spec.scaleup_domain_gpus
    n_gpus = n_gpus or max(domain * max(1, round(DEFAULT_GPUS / domain)), tp * pp * cp)
    if spec.egress_bytes_per_s_per_gpu is None and x.gpus is None:
        n_gpus = spec.scaleup_domain_gpus
    if n_gpus % (tp * pp * cp):
        raise GpuscaleError(
            f"tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp} does not divide {n_gpus} GPUs",
            "change --gpus, --tp, --pp or --cp",
        )
    dp = n_gpus // (tp * pp * cp)
    seq_len = usual_seq_len(x.seq_len, model)
    tokens = x.batch_tokens or model.batch_tokens or DEFAULT_BATCH_TOKENS
    sequences = max(1, ceil(tokens / seq_len))
    micro = 1
    if x.micro_batches is not None:
        micro = max(1, ceil(sequences / dp / x.micro_batches))
    elif pp == 1:
        micro = max(1, ceil(sequences / dp))
    refuse_degrees(model, seq_len, tp=tp, pp=pp, cp=cp, ep=ep, dp=dp)
    return Layout(
        seq_len=seq_len,
        global_batch_size=sequences,
        micro_batch_size=micro,
        tp=tp,
        cp=cp,
        ep=ep,
        pp=pp,
        dp=dp,
        zero_stage=x.zero,
        precision=dtype,
    )


def board_table(rows: tuple[LimitRow, ...]) -> Table:
    """Show the board as a table."""
    columns: dict[str, str | Column] = {
        "axis": "axis",
        "degree": "degree",
        "math_s": "math",
        "comm_s": "comm",
        "have": Column("have", "have", _count),
        "relation": Column("relation", ""),
        "need": Column("need", "limit", _count),
        "rule": Column("rule", "rounded", _count),
        "quantity": "of",
        "verdict": "verdict",
        "note": "note",
    }
    return Table.of(columns, rows)


def _count(v: float) -> str:
    return f"{v:,.1f}" if v != int(v) else f"{v:,.0f}"


def _figures(loaded: Loaded, x: Roofline, layout: Layout, tokens: float, rows: Rows) -> Facts:
    """Layout, batch, and every axis against its limit."""
    degrees = f"tp {layout.tp} x cp {layout.cp} x pp {layout.pp} x dp {layout.dp}"
    degrees += f", ep {layout.ep}" if layout.ep > 1 else ""
    origin = "the model's" if loaded.model.batch_tokens else "a default, --batch-tokens changes it"
    shares = (
        f"tokens ({'given' if x.batch_tokens else origin}): {tokens / layout.n_gpus:,.1f} per GPU, "
        f"{tokens / (layout.dp * layout.cp):,.1f} per DP rank, sequences of {layout.seq_len:,}"
    )
    peak = format_si(loaded.gpu.flop_per_s(layout.precision) or 0.0, "flop_per_s")
    facts = [
        ("layout", degrees, "" if x.gpus else "--gpus changes the number"),
        ("batch", format_count(tokens), shares),
        ("peak", peak, f"{layout.precision}, {x.catalogue} figures; roofline (ideal)"),
    ]
    for r in rows:
        limit = f"{r.quantity}: {_count(r.have)}, limit {r.relation} {_count(r.need)}"
        facts.append((f"{r.axis} {r.degree:,}", r.verdict, limit))
    return Facts(facts)


def board_document(loaded: Loaded, x: Roofline, dtype: str) -> Document:
    """All limits of a model; a limit exceeded by an axis in use answers no."""
    model, spec = loaded.model, loaded.cluster
    try:
        layout = board_layout(model, spec, x, dtype)
        tokens = x.batch_tokens or model.batch_tokens or DEFAULT_BATCH_TOKENS
        rows = limits_board(model, spec, layout, tokens)
    except ValueError as error:
        raise GpuscaleError(f"{model.name} on {spec.name}: {error}") from None
    over = [r for r in rows if r.exceeded]
    verdict = "compute-bound along every parallelism in use"
    if over:
        verdict = "over the limit: " + ", ".join(f"{r.axis} {r.ratio:.2f}x" for r in over)
    table = board_table(rows)
    head = Text(f"{model.name} on {layout.n_gpus:,} GPUs of {spec.name}: {verdict}.")
    return Document.layered(
        "roofline",
        loaded.inputs(
            target=model.name,
            catalogue=x.catalogue,
            dtype=dtype,
            batch_tokens=tokens,
            layout=asdict(layout),
        ),
        BoardAnswer(
            tokens_per_gpu=tokens / layout.n_gpus,
            tokens_per_dp_rank=tokens / (layout.dp * layout.cp),
            rows=tuple(rows),
            exceeded=tuple(r.axis for r in over),
        ),
        (),
        {
            "figures": [head, _figures(loaded, x, layout, tokens, rows), *changed(loaded)],
            "limits": [table],
        },
        warnings=loaded.warnings,
        answered_no=bool(over),
        terms=_terms(layout, tokens, rows),
        csv_table=table,
        pictures=lambda: list(
            filter(None, (_operators(loaded, layout), _limits(loaded, x, layout, tokens)))
        ),
    )


def _terms(layout: Layout, tokens: float, rows: tuple[LimitRow, ...]) -> tuple[Term, ...]:
    """Explain tokens per GPU, and of each axis the ratio and, in tokens, the limit."""
    share = {"batch_tokens": tokens, "n_gpus": float(layout.n_gpus)}
    per_gpu, formula = tokens / layout.n_gpus, "batch_tokens / n_gpus"
    found = [Term("tokens_per_gpu", per_gpu, "", formula, share, "tokens of a batch")]
    for r in rows:
        if not r.math_s:
            continue
        times = {"comm_s": r.comm_s or 0.0, "math_s": r.math_s}
        found.append(Term(f"{r.axis} ratio", r.ratio, "", "comm_s / math_s", times, SOURCE))
        if r.quantity == "tokens per GPU":
            have = {"tokens_per_gpu": per_gpu} | times
            limit = "tokens_per_gpu * comm_s / math_s"
            found.append(Term(f"{r.axis} limit", r.need, "", limit, have, SOURCE))
    return tuple(found)
