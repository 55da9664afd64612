"""A chart as a picture: stacks, tiers and bars in time; lines are in `lines.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuscale.render.palette import SERIES, fill, text_on
from gpuscale.render.pictures.chart import Chart, Gantt, Lines, Span, Stack, Tiers
from gpuscale.render.pictures.lines import draw_lines, x_axis
from gpuscale.render.svg import (
    WIDTH,
    attribute,
    heading,
    legend,
    line,
    rect,
    style,
    text,
    width_of,
    words,
)


def draw_stack(chart: Stack) -> tuple[float, list[str]]:
    """(height, drawn parts)."""
    top, parts = heading(chart.title, chart.note)
    if len(chart.parts) > 1:
        top, keys = legend(chart.parts, 20, top + 12, WIDTH - 16)
        parts += keys
    totals = [sum(values) for _, values in chart.rows]
    limit = chart.limit[0] if chart.limit else 0.0
    high = 1.04 * max([limit, *totals, 1e-30])
    left = 24 + max((width_of(name) for name, _ in chart.rows), default=0.0)
    end = max((width_of(chart.axis.text(t, 3)) for t in totals), default=0.0)
    right = WIDTH - 20 - end
    tall, gap = (34.0, 12.0) if len(chart.rows) <= 8 else (20.0, 6.0)
    top += 22.0 if chart.limit else 6.0
    bottom = top + len(chart.rows) * (tall + gap)
    per = (right - left) / high
    ticks, marks = chart.axis.ticks(0.0, high), (top - 4, bottom, "gs-g")
    parts += x_axis(chart.axis, ticks, lambda value: left + per * value, marks, bottom + 18)
    for i, (name, values) in enumerate(chart.rows):
        y = top + i * (tall + gap) + gap / 2
        parts.append(text(left - 8, y + tall / 2 + 5, name, anchor="end"))
        at = left
        for n, (part, value) in enumerate(zip(chart.parts, values, strict=True)):
            wide = per * value
            if wide <= 0.0:
                continue
            shown = chart.axis.text(value, 3)
            tip = f"{name}, {part}: {chart.axis.text(value)}"
            tip += f" ({100 * value / totals[i]:.1f} %)" if totals[i] else ""
            parts.append(rect(at, y, wide, tall, fill(part, n), tip, edge=True))
            if width_of(shown, 12) + 8 < wide and len(chart.parts) > 1 and tall > 20.0:
                on = text_on(part, n)
                parts.append(text(at + wide / 2, y + tall / 2 + 4, shown, on, "middle", size=12))
            at += wide
        parts.append(text(at + 7, y + tall / 2 + 5, chart.axis.text(totals[i], 3), bold=True))
    if chart.limit:
        at = left + per * limit
        parts.append(line(at, top - 6, at, bottom, "gs-mark", "5 4"))
        flip = at + width_of(chart.limit[1], 12) > WIDTH - 10
        where, anchor = (WIDTH - 10, "end") if flip else (at, "start")
        parts.append(text(where, top - 10, chart.limit[1], "gs-markt", anchor, size=12))
    parts.append(line(left, bottom, right, bottom, "gs-a"))
    parts.append(text((left + right) / 2, bottom + 40, chart.axis.label, anchor="middle"))
    return bottom + 54, parts


MOST_BOXES = 24
"""Boxes drawn of one tier; more are said in its label."""

TALL, GAP, WIDE = 26.0, 62.0, 22.0


def draw_tiers(chart: Tiers) -> tuple[float, list[str]]:
    """(height, drawn parts): every box is joined to every box of the next row."""
    top, parts = heading(chart.title, chart.note)
    top += 14.0
    left = 28 + max(width_of(row.name) for row in chart.rows)
    right = WIDTH - 24
    places: list[list[float]] = []
    for row in chart.rows:
        n = min(row.n, MOST_BOXES)
        step = (right - left) / n
        places.append([left + step * (k + 0.5) for k in range(n)])
    for i, (upper, lower) in enumerate(zip(places, places[1:], strict=False)):
        y = top + i * (TALL + GAP) + TALL
        path = "".join(f"M{a:.1f} {y:g}L{b:.1f} {y + GAP:g}" for a in upper for b in lower)
        parts.append(f'<path d="{path}" class="gs-g" fill="none"/>')
    for i, row in enumerate(chart.rows):
        y = top + i * (TALL + GAP)
        parts.append(text(left - 14, y + TALL / 2 + 5, row.name, anchor="end"))
        colour = f"gs-c{i % len(SERIES)}"
        for a in places[i]:
            parts.append(rect(a - WIDE / 2, y, WIDE, TALL, colour, f"{row.name}: {row.label}"))
        label = row.label if row.n <= MOST_BOXES else f"{row.label} ({MOST_BOXES} drawn)"
        parts.append(text((left + right) / 2, y + TALL + 16, label, "gs-t gs-halo", "middle"))
        if i < len(chart.between):
            y += TALL + GAP / 2 + 14
            parts.append(
                text((left + right) / 2, y, chart.between[i], "gs-s gs-halo", "middle", size=12)
            )
    return top + len(chart.rows) * (TALL + GAP) - GAP + 40, parts


MOST_LANES, LANES_SHOWN = 12, 8
"""Lanes from which not all are drawn, and how many are then: the first, the last, some between."""


def lanes_drawn(n: int) -> list[int]:
    """Lanes that are drawn of `n`.

    >>> lanes_drawn(4), lanes_drawn(16)
    ([0, 1, 2, 3], [0, 2, 4, 6, 9, 11, 13, 15])
    """
    if n <= MOST_LANES:
        return list(range(n))
    return [round(i * (n - 1) / (LANES_SHOWN - 1)) for i in range(LANES_SHOWN)]


def draw_gantt(chart: Gantt) -> tuple[float, list[str]]:
    """(height, drawn parts); what is idle stays the colour of the lane."""
    lanes = [chart.lanes[i] for i in lanes_drawn(len(chart.lanes))]
    less = f"; {len(lanes)} of {len(chart.lanes)} stages" if len(lanes) < len(chart.lanes) else ""
    top, parts = heading(chart.title, chart.note + less)
    top, keys = legend([name for name, _ in chart.kinds], 20, top + 12, WIDTH - 16)
    parts += keys
    left = 24 + max((width_of(name) for name, _ in lanes), default=0.0)
    right = WIDTH - 24
    tall, gap = 26.0, 6.0
    top += 4.0
    bottom = top + len(lanes) * (tall + gap)
    per = (right - left) / ((chart.total - chart.start) or 1.0)
    for i, (name, spans) in enumerate(lanes):
        y = top + i * (tall + gap)
        parts.append(text(left - 8, y + tall / 2 + 5, name, anchor="end"))
        parts.append(rect(left, y, right - left, tall, "gs-idle", f"{name}: idle"))
        parts += _lane(chart, name, spans, (left, y, tall, per))
    ticks, marks = chart.axis.ticks(chart.start, chart.total), (bottom, bottom + 5, "gs-a")
    parts += x_axis(
        chart.axis, ticks, lambda value: left + per * (value - chart.start), marks, bottom + 20
    )
    parts.append(line(left, bottom, right, bottom, "gs-a"))
    parts.append(text((left + right) / 2, bottom + 42, chart.axis.label, anchor="middle"))
    return bottom + 56, parts


LABEL = 10
"""Size of the number in a box."""


def _lane(
    chart: Gantt, name: str, spans: Sequence[Span], place: tuple[float, float, float, float]
) -> Iterator[str]:
    """Draw the spans of a lane, those of one kind as one path, and their numbers."""
    left, y, tall, per = place
    for k, (kind, _) in enumerate(chart.kinds):
        mine = [s for s in spans if s.kind == k]
        if not mine:
            continue
        boxes = [(left + per * (s.start - chart.start), per * s.length) for s in mine]
        path = "".join(f"M{a:.1f} {y:g}h{w:.2f}v{tall:g}h-{w:.2f}z" for a, w in boxes)
        total = sum(s.length for s in mine)
        tip = f"{name}, {kind}: {chart.axis.text(total)}"
        if len(mine) > 1:
            tip += f", {len(mine)} times {chart.axis.text(total / len(mine), 3)}"
        edge = " gs-edge" if max(w for _, w in boxes) > 3 else ""
        yield f'<path d="{path}" class="{fill(kind, k)}{edge}"><title>{words(tip)}</title></path>'
        labels = "".join(
            f'<tspan x="{a + w / 2:.1f}">{words(s.label)}</tspan>'
            for s, (a, w) in zip(mine, boxes, strict=True)
            if s.label and width_of(s.label, LABEL) + 1 < w
        )
        if labels:
            yield (
                f'<text y="{y + tall / 2 + 4:g}" class="{text_on(kind, k)}" text-anchor="middle" '
                f'style="font-size:{LABEL}px;pointer-events:none">{labels}</text>'
            )


def to_svg(chart: Chart, standalone: bool = True) -> str:
    """Draw a chart.

    `chart`: what to draw. `standalone`: a file of its own, with its rules; else a part of a page
    that has them.
    """
    if isinstance(chart, Lines):
        height, parts = draw_lines(chart)
    elif isinstance(chart, Stack):
        height, parts = draw_stack(chart)
    elif isinstance(chart, Tiers):
        height, parts = draw_tiers(chart)
    else:
        height, parts = draw_gantt(chart)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gs" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'width="{WIDTH:g}" height="{height:g}" role="img" aria-label="{attribute(chart.title)}">'
    )
    rules = f"<style>{style()}</style>" if standalone else ""
    body = "\n".join(parts)
    background = rect(0, 0, WIDTH, height, "gs-bg")
    return f"{head}{rules}<title>{words(chart.title)}</title>{background}\n{body}\n</svg>"
