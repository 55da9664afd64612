"""Bars made of parts, as SVG."""

from __future__ import annotations

from gpuscale.render.palette import SERIES, fill, text_on
from gpuscale.render.pictures.chart import Stack, Tiers
from gpuscale.render.pictures.lines import x_axis
from gpuscale.render.svg import WIDTH, heading, legend, line, rect, text, width_of


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
