"""Lanes of spans over time, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuscale.render.palette import fill, text_on
from gpuscale.render.pictures.chart import Gantt, Span
from gpuscale.render.pictures.lines import x_axis
from gpuscale.render.svg import WIDTH, heading, legend, line, rect, text, width_of, words

MOST_LANES, LANES_SHOWN = 12, 8
"""Lanes from which not all are drawn, and how many are then: the first, the last, some between."""


def lanes_drawn(n: int) -> list[int]:
    """Lanes that are drawn of `n`.

    Examples
    --------
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
