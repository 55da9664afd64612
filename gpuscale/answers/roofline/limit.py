"""The answer about one limit: a table, and a warning for what does not enter it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.answers.ask import fields_of
from gpuscale.answers.changed import changed
from gpuscale.answers.roofline.axes import AXES
from gpuscale.answers.roofline.records import Limit, RooflineLinks
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.roofline import Roofline
    from gpuscale.io.inputs import Loaded

SOURCE = 'How to Scale Your Model, GPU chapter, "Rooflines for LLM scaling on GPUs"'

_DP = "batch_tokens gpus nodes hidden ffn matrices experts top_k spans"
_EP = "batch_tokens gpus hidden ffn matrices top_k ep max_nodes dispatch_bytes"
USED = {
    "dp": _DP.split(),
    "moe-dp": _DP.split(),
    "fsdp": f"{_DP} micro_batches".split(),
    "tp": "batch_tokens hidden ffn matrices heads tp".split(),
    "ep": _EP.split(),
    "pp": "batch_tokens hidden pp layers micro_batches".split(),
    "cp": "seq_len cp heads kv_heads".split(),
}
"""Axis -> the numbers that its limit depends on."""

NUMBERS = tuple(dict.fromkeys(("tp", *(name for used in USED.values() for name in used), "spans")))
"""Fields of a question that one limit or another depends on."""


@dataclass(frozen=True, slots=True)
class LimitAnswer:
    """Limits of one axis."""

    flop_per_s: float
    rows: tuple[Limit, ...]


def unused(x: Roofline, axis: str) -> tuple[str, ...]:
    """Warn of options that do not enter the answer.

    >>> from gpuscale.answers.roofline import Roofline
    >>> unused(Roofline("tp", ffn=28672, experts=8), "tp")
    ('--experts does not enter `roofline tp`',)
    """
    flags = [
        f"--{name.replace('_', '-')}"
        for name, (field, _) in fields_of(type(x)).items()
        if name in NUMBERS and getattr(x, name) != field.default and name not in USED[axis]
    ]
    return tuple(f"{flag} does not enter `roofline {axis}`" for flag in flags)


def axis_links(loaded: Loaded, dtype: str) -> RooflineLinks:
    """Peak and bandwidths of a cluster in the two scopes."""
    from gpuscale.answers.rates import matrix_rate

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
    rows = AXES[axis](asked, links, axis)
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
        inputs={
            "target": axis,
            "cluster": loaded.cluster.name,
            "catalogue": asked.catalogue,
            "dtype": dtype,
            **{k: v for k in NUMBERS if (v := getattr(asked, k)) is not None},
            "changed": list(loaded.changes),
        },
        result=LimitAnswer(links.peak, tuple(rows)),
        blocks=[Text(title), _table(rows), *changed(loaded)],
        warnings=(*loaded.warnings, *unused(asked, axis)),
        answered_no=exceeded,
        terms=tuple(_term(axis, r) for r in rows if r.formula),
    )
