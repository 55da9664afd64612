"""Lanes of spans over time, as SVG."""

from __future__ import annotations

from gpuscale.render.pictures.chart import Gantt, nice_ticks
from gpuscale.render.svg import (
    COLOURS,
    DARK_TEXT_ON,
    WIDTH,
    heading,
    legend,
    line,
    rect,
    text,
    width_of,
)


def draw_gantt(chart: Gantt) -> tuple[float, list[str]]:
    """(height, drawn parts); what is idle stays the colour of the lane."""
    top, parts = heading(chart.title, chart.note)
    top, keys = legend([name for name, _ in chart.kinds], 20, top + 12, WIDTH - 16)
    parts += keys
    left = 24 + max((width_of(name) for name, _ in chart.lanes), default=0.0)
    right = WIDTH - 24
    tall, gap = (26.0, 6.0) if len(chart.lanes) <= 12 else (15.0, 3.0)
    top += 4.0
    bottom = top + len(chart.lanes) * (tall + gap)
    per = (right - left) / ((chart.total - chart.start) or 1.0)
    for i, (name, spans) in enumerate(chart.lanes):
        y = top + i * (tall + gap)
        parts.append(text(left - 8, y + tall / 2 + 5, name, anchor="end"))
        parts.append(rect(left, y, right - left, tall, "gs-idle", f"{name}: idle"))
        for span in spans:
            wide = per * span.length
            kind, at = chart.kinds[span.kind][0], left + per * (span.start - chart.start)
            tip = (
                f"{name}, {kind} {span.label}".rstrip()
                + f": {chart.axis.text(span.length)} from {chart.axis.text(span.start)}"
            )
            n = span.kind % len(COLOURS)
            parts.append(rect(at, y, wide, tall, f"gs-c{n}", tip, edge=wide > 3))
            if width_of(span.label, 10) + 2 < wide and tall > 20:
                on = 1 if n in DARK_TEXT_ON else 0
                parts.append(
                    text(
                        at + wide / 2, y + tall / 2 + 4, span.label, f"gs-on{on}", "middle", size=10
                    )
                )
    after = 0.0
    for tick in nice_ticks(chart.start, chart.total, False):
        at, shown = left + per * (tick - chart.start), chart.axis.text(tick, 3)
        parts.append(line(at, bottom, at, bottom + 5, "gs-a"))
        if at - width_of(shown) / 2 > after:
            parts.append(text(at, bottom + 20, shown, "gs-s", "middle"))
            after = at + width_of(shown) / 2 + 6
    parts.append(line(left, bottom, right, bottom, "gs-a"))
    parts.append(text((left + right) / 2, bottom + 42, chart.axis.label, anchor="middle"))
    return bottom + 56, parts
