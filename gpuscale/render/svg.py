"""Pictures as SVG: light and dark by the viewer's setting, every number in a tooltip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from gpuscale.core.quantity import format_time
from gpuscale.core.records import dataclass
from gpuscale.core.words import MEMORY_PARTS, gb
from gpuscale.foreign import clean
from gpuscale.render.document import Bars, Document, Table
from gpuscale.render.palette import (
    EDGE,
    IDLE,
    INK,
    MARK,
    PAPER,
    RULE,
    SERIES,
    SOFT,
    css,
    fill,
    meaning,
)

WIDTH = 760.0
SIZE = 13.0
"""Height of the text; widths below are in the same unit."""

HALO = "paint-order:stroke;stroke-width:3px;stroke-linejoin:round;"
"""Text over lines: an edge in the colour of the page."""

DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 5", "4 2")


def style() -> str:
    """Rules of all pictures; a page needs them once."""
    light, dark = css()
    for name, rule, colour in (
        (".gs-bg", "fill", PAPER),
        (".gs-t", "fill", INK),
        (".gs-s", "fill", SOFT),
        (".gs-g", "stroke", RULE),
        (".gs-a", "stroke", EDGE),
        (".gs-edge", "stroke", PAPER),
        (".gs-idle", "fill", IDLE),
        (".gs-mark", "stroke", MARK),
        (".gs-markt", "fill", MARK),
        (".gs-on0", "fill", PAPER),
        (".gs-on1", "fill", INK),
        (".gs-halo", HALO + "stroke", PAPER),
    ):
        light[name] = f"{rule}:{colour.light}"
        dark[name] = f"{rule.removeprefix(HALO)}:{colour.dark}"
    dark[".gs-on1"] = f"fill:{PAPER.dark}"
    text = f"text{{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;font-size:{SIZE:g}px}}"
    rules = "".join(f"{k}{{{v}}}" for k, v in light.items())
    # not when printing: paper is white
    darker = "".join(f"{k}{{{v}}}" for k, v in dark.items())
    return f".gs {text}{rules}@media screen and (prefers-color-scheme:dark){{{darker}}}"


def words(text: str) -> str:
    """Text between tags."""
    return escape(clean(text), quote=False)


def attribute(text: str) -> str:
    """Text inside quotes."""
    return escape(clean(text), quote=True)


def width_of(text: str, size: float = SIZE) -> float:
    """Width of a text, estimated from above for common sans-serif fonts."""
    return 0.61 * size * len(text)


def rect(
    x: float, y: float, width: float, height: float, kind: str, tip: str = "", edge: bool = False
) -> str:
    """Draw a box, with a tooltip."""
    more = ' stroke-width="1"' if edge else ""
    kind = f"{kind} gs-edge" if edge else kind
    head = (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'class="{kind}"{more}'
    )
    return f"{head}><title>{words(tip)}</title></rect>" if tip else head + "/>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str, dash: str = "") -> str:
    """Draw a thin line."""
    more = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{kind}" '
        f'stroke-width="1"{more}/>'
    )


def text(
    x: float,
    y: float,
    content: str,
    kind: str = "gs-t",
    anchor: str = "start",
    bold: bool = False,
    size: float = SIZE,
    turn: bool = False,
) -> str:
    """Write text; `y` is its base line."""
    rules = [f"font-size:{size:g}px"] if size != SIZE else []
    rules += ["font-weight:bold"] if bold else []
    look = f' style="{";".join(rules)}"' if rules else ""
    turned = f' transform="rotate(-90 {x:.2f} {y:.2f})"' if turn else ""
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" class="{kind}" text-anchor="{anchor}"{look}{turned}>'
        f"{words(content)}</text>"
    )


def marker(x: float, y: float, n: int, tip: str = "") -> str:
    """Draw a point of series `n`; the shape differs too, not the colour alone."""
    shape = n % 4
    kind = f"gs-c{n % len(SERIES)} gs-edge"
    if shape == 0:
        head = f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4.5" class="{kind}"'
    elif shape == 1:
        head = f'<rect x="{x - 4:.2f}" y="{y - 4:.2f}" width="8" height="8" class="{kind}"'
    else:
        turn = 1 if shape == 2 else -1
        corners = ((x, y - 5 * turn), (x + 5, y + 4 * turn), (x - 5, y + 4 * turn))
        path = " ".join(f"{a:.2f},{b:.2f}" for a, b in corners)
        head = f'<polygon points="{path}" class="{kind}"'
    return f"{head}><title>{words(tip)}</title></" + head[1:].split(" ", 1)[0] + ">"


def legend(
    names: Sequence[str],
    x: float,
    y: float,
    right: float,
    shape: str = "box",
    points: Sequence[int] = (),
    bare: Sequence[int] = (),
) -> tuple[float, list[str]]:
    """Write the key of colours in as many rows as needed; returns the y after it too.

    Of lines, those numbered in `points` are points alone, those in `bare` lines without points.
    """
    drawn: list[str] = []
    at = x
    for n, name in enumerate(names):
        wide = 22 + width_of(name) + 14
        if at > x and at + wide > right:
            at, y = x, y + 20
        if shape == "box":
            drawn.append(rect(at, y - 10, 12, 12, fill(name, n)))
        else:
            stroke = (
                f'<line x1="{at - 2:.2f}" y1="{y - 4:.2f}" x2="{at + 16:.2f}" y2="{y - 4:.2f}" '
                f'class="gs-l{n % len(SERIES)}" stroke-width="2.2" '
                f'stroke-dasharray="{DASHES[n % len(DASHES)]}"/>'
            )
            drawn += [] if n in points else [stroke]
            drawn += [] if n in bare else [marker(at + 7, y - 4, n)]
        drawn.append(text(at + 22, y, name))
        at += wide
    return y + 16, drawn


def heading(title: str, note: str) -> tuple[float, list[str]]:
    """Write the title and, below, what the picture was made for."""
    y = 26.0
    drawn = [text(16, y, title, bold=True, size=16)]
    for part in wrapped(note, WIDTH - 32, 12):
        y += 18
        drawn.append(text(16, y, part, "gs-s", size=12))
    return y + 12, drawn


def wrapped(content: str, width: float, size: float) -> Iterator[str]:
    """Lines of a text that fit a width."""
    current = ""
    for word in content.split():
        tried = f"{current} {word}".strip()
        if current and width_of(tried, size) > width:
            yield current
            tried = word
        current = tried
    if current:
        yield current


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
