"""What a page shows at its top: the memory of a GPU against its card, and where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.quantity import format_time
from gpuscale.core.words import MEMORY_PARTS, gb
from gpuscale.render.document import Bars, Document, Table
from gpuscale.render.palette import meaning
from gpuscale.render.svg import attribute, words

_SERVING = {
    "weights_bytes": "weights",
    "cache_bytes": "KV cache",
    "activations_bytes": "activations",
    "overhead_bytes": "context, NCCL, graphs",
}
_LIMITS = ("capacity_bytes", "usable_bytes", "hbm_bytes")
_LEAST = 0.005
"""Share of the whole from which a part is named; smaller ones are added up."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A whole and its parts, in their colours, against a limit if there is one."""

    title: str
    parts: tuple[tuple[str, float], ...]
    show: Callable[[float], str]
    limit: float | None = None

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(value for _, value in self.parts)


def strips_of(document: Document) -> list[Strip]:
    """Give the memory and the time of an answer, where it has them."""
    return [s for s in (memory_of(document), time_of(document)) if s is not None]


def is_memory(block: Any) -> bool:
    """Whether bars are parts of a memory: each has its meaning, and there is a limit."""
    return (
        isinstance(block, Bars)
        and bool(block.limit)
        and all(meaning(label) for label, _, _ in block.rows)
    )


def memory_of(document: Document) -> Strip | None:
    """Memory that an answer is about, from its bars or its record; None where it has none."""
    title = "Memory of a GPU"
    for block in document.blocks:
        if isinstance(block, Bars) and is_memory(block) and block.limit:
            rows = tuple((n, v) for n, v, _ in block.rows if v > 0.0)
            return Strip(title, rows, gb, block.limit)
    result = document.result
    record = getattr(result, "memory", None)
    usable = next((v for k in _LIMITS for r in (result, record) if (v := getattr(r, k, None))), 0.0)
    if not isinstance(usable, float) or usable <= 0.0:
        return None
    for fields in (MEMORY_PARTS, _SERVING):
        rows = tuple(
            (said, v)
            for key, said in fields.items()
            if isinstance(v := getattr(record, key, None), float) and v > 0.0
        )
        if len(rows) > 2:
            return Strip(title, rows, gb, usable)
    total = next((v for k in ("peak_bytes", "total_bytes") if (v := getattr(result, k, 0.0))), 0.0)
    return Strip(title, (("needed", total),), gb, usable) if total else None


def time_of(document: Document) -> Strip | None:
    """Find the table of an answer that says where the expected time goes."""
    for block in document.blocks:
        if not isinstance(block, Table):
            continue
        keys = [c.key for c in block.columns]
        at = next((keys.index(k) for k in ("expected_s", "time_s") if k in keys), 0)
        rows = [(str(row[0]), row[at]) for row in block.rows if meaning(str(row[0]))]
        if at and len(rows) > 2 and all(isinstance(v, float) for _, v in rows):
            return Strip("A step", _named(rows), lambda v: format_time(v, 3))
    return None


def _named(rows: list[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    least = _LEAST * sum(v for _, v in rows)
    rest = sum(v for _, v in rows if v < least)
    named = [(n, v) for n, v in rows if v >= least]
    return (*named, ("other", rest)) if rest > 0.0 else tuple(named)


def strip_html(strip: Strip) -> Iterator[str]:
    """Write the bar, with a key of its parts."""
    scale = 1.02 * max(strip.total, strip.limit) if strip.limit else strip.total
    told, more = strip.show(strip.total), ""
    if strip.limit:
        over = strip.total - strip.limit
        told += f" of {strip.show(strip.limit)} usable"
        more = f", {strip.show(abs(over))} " + ("too much" if over > 0.0 else "free")
    spoken = attribute(f"{strip.title}: {told}{more}")
    yield f'<figure class="strip"><figcaption>{words(strip.title)}: '
    yield f"<b>{words(told)}</b>{words(more)}</figcaption>"
    yield f'<div class="track" role="img" aria-label="{spoken}">'
    for label, value in strip.parts:
        tip = attribute(f"{label}: {strip.show(value)}")
        wide = f"width:{100 * value / scale:.2f}%;background:{_paint(label)}"
        yield f'<span title="{tip}" style="{wide}"></span>'
    if strip.limit:
        yield f'<i style="left:{100 * strip.limit / scale:.2f}%"></i>'
    yield "</div><ul>"
    for label, value in strip.parts:
        mark = f'<i style="background:{_paint(label)}"></i>'
        yield f"<li>{mark}{words(label)} <b>{words(strip.show(value))}</b></li>"
    yield "</ul></figure>"


def _paint(label: str) -> str:
    return f"var(--m-{meaning(label) or 'other'})"
