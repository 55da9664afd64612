"""Tiers of a network as rows of boxes, as SVG."""

from __future__ import annotations

from gpuscale.render.palette import SERIES
from gpuscale.render.pictures.chart import Tiers
from gpuscale.render.svg import WIDTH, heading, rect, text, width_of

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
