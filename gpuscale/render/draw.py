"""A chart as a picture: stacks, tiers and bars in time, lines and points over two axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gpuscale.render.chart import Axis, Chart, Gantt, Lines, Span, Stack, Tiers, limits
from gpuscale.render.palette import SERIES, fill, text_on
from gpuscale.render.svg import (
    DASHES,
    WIDTH,
    attribute,
    heading,
    legend,
    line,
    marker,
    rect,
    style,
    text,
    width_of,
    words,
)

PLOT_HEIGHT = 320.0
Scale = Callable[[float], float]
Box = tuple[float, float, float, float]


def scale_of(axis: Axis, low: float, high: float, start: float, end: float) -> Scale:
    """Map a value to its place; outside the range stays at the edge."""

    def place(value: float) -> float:
        if axis.log:
            value = min(max(value, low), high)
            part = math.log(value / low) / math.log(high / low)
        else:
            part = (min(max(value, low), high) - low) / (high - low)
        return start + part * (end - start)

    return place


def values_of(chart: Lines) -> tuple[list[float], list[float]]:
    """All x and all y, marks included."""
    points = [p for s in chart.series for p in s.points]
    xs = [p[0] for p in points] + [m.value for m in chart.marks if m.axis == "x"]
    ys = [p[1] for p in points] + [m.value for m in chart.marks if m.axis == "y"]
    return xs, ys


def thinned(points: Sequence[tuple[float, float]], step: float = 2.0) -> list[tuple[float, float]]:
    """Leave out of a long line what no eye can see: of every `step` of width the extremes stay.

    >>> len(thinned([(x / 100, x % 7) for x in range(100_000)])) <= 4 * 500 + 4
    True
    """
    if len(points) <= 400:
        return list(points)
    kept: list[tuple[float, float]] = []
    column: list[tuple[float, float]] = []
    for point in points:
        if column and point[0] >= column[0][0] + step:
            kept += _extremes(column)
            column = []
        column.append(point)
    return kept + _extremes(column)


def _extremes(column: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """First, lowest, highest and last of some points, in their order."""
    heights = [y for _, y in column]
    chosen = {0, heights.index(min(heights)), heights.index(max(heights)), len(column) - 1}
    return [column[i] for i in sorted(chosen)]


def draw_lines(chart: Lines) -> tuple[float, list[str]]:
    """(height, drawn parts)."""
    top, parts = heading(chart.title, chart.note)
    if len(chart.series) > 1 or (chart.series and chart.series[0].name):
        names = [s.name for s in chart.series]
        points = [n for n, s in enumerate(chart.series) if not s.line]
        bare = [n for n, s in enumerate(chart.series) if not s.markers]
        top, keys = legend(names, 20, top + 12, WIDTH - 16, "line", points=points, bare=bare)
        parts += keys
    xs, ys = values_of(chart)
    zero = any(s.line for s in chart.series)  # a cloud of points needs no zero
    x_low, x_high = limits(xs, chart.x.log, zero)
    y_low, y_high = limits(ys, chart.y.log, zero)
    y_ticks = chart.y.ticks(y_low, y_high)
    left = 46 + max((width_of(chart.y.text(t, 3)) for t in y_ticks), default=30.0)
    right, top = WIDTH - 28, top + 8
    bottom = top + PLOT_HEIGHT
    x = scale_of(chart.x, x_low, x_high, left, right)
    y = scale_of(chart.y, y_low, y_high, bottom, top)
    for tick in y_ticks:
        parts.append(line(left, y(tick), right, y(tick), "gs-g"))
        parts.append(text(left - 8, y(tick) + 4, chart.y.text(tick, 3), "gs-s", "end"))
    ticks = chart.x.ticks(x_low, x_high)
    parts += x_axis(chart.x, ticks, x, (top, bottom, "gs-g"), bottom + 19)
    parts.append(line(left, bottom, right, bottom, "gs-a"))
    parts.append(line(left, top, left, bottom, "gs-a"))
    parts.append(text((left + right) / 2, bottom + 44, chart.x.label, anchor="middle"))
    parts.append(text(18, (top + bottom) / 2, chart.y.label, anchor="middle", turn=True))
    parts += _marks(chart, x, y, (left, top, right, bottom))
    across = [(x(mark.value), mark.label) for mark in chart.marks if mark.axis == "x"]
    taken = [(at - 2, top, at + 2, bottom) for at, _ in across]
    taken += [(at, bottom - 22, at + 8 + width_of(label, 12), bottom) for at, label in across]
    for n, series in enumerate(chart.series):
        placed = [(x(a), y(b), a, b, label) for a, b, label in series.points]
        if series.line and len(placed) > 1:
            drawn = thinned([(a, b) for a, b, *_ in placed])
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in drawn)
            parts.append(
                f'<polyline points="{path}" class="gs-l{n % len(SERIES)}" stroke-width="2.2" '
                f'stroke-dasharray="{DASHES[n % len(DASHES)]}" stroke-linejoin="round"/>'
            )
            taken += _along(drawn)
        if series.markers:
            taken += [(px - 6, py - 6, px + 6, py + 6) for px, py, *_ in placed]
    for n, series in reversed(list(enumerate(chart.series))):
        for a, b, label in series.points if series.markers else ():
            tip = f"{label or series.name}: {chart.x.text(a)}, {chart.y.text(b)}"
            parts.append(marker(x(a), y(b), n, tip))
        if not series.line:
            told = [(x(a), y(b), label) for a, b, label in series.points if label]
            parts += labels(told, (left, top, right, bottom), taken)
    return bottom + 60, parts


def x_axis(
    axis: Axis, ticks: Sequence[float], x: Scale, marks: tuple[float, float, str], below: float
) -> Iterator[str]:
    """Draw the ticks of an axis, and their values at `below` where there is room.

    `marks`: from and to which height a tick is drawn, and its class.
    """
    top, bottom, kind = marks
    after = 0.0
    for tick in ticks:
        at, shown = x(tick), axis.text(tick, 3)
        half = width_of(shown) / 2
        yield line(at, top, at, bottom, kind)
        if at - half > after:
            yield text(at, below, shown, "gs-s", "middle")
            after = at + half + 6


def _marks(chart: Lines, x: Scale, y: Scale, box: Box) -> Iterator[str]:
    left, top, right, bottom = box
    used = 0
    for mark in chart.marks:
        if mark.axis == "y":
            at = y(mark.value)
            yield line(left, at, right, at, "gs-mark", "5 4")
            yield text(right - 4, at - 5, mark.label, "gs-markt gs-halo", "end", size=12)
            continue
        at = x(mark.value)
        yield line(at, top, at, bottom, "gs-mark", "5 4")
        flip = at + width_of(mark.label, 12) + 8 > right
        where, anchor = (at - 5, "end") if flip else (at + 5, "start")
        kind = "gs-markt gs-halo"
        yield text(where, bottom - 8 - 15 * used, mark.label, kind, anchor, size=12)
        used += 1


def _along(path: Sequence[tuple[float, float]]) -> Iterator[Box]:
    """Small boxes along a line, which names keep clear of."""
    for (a, b), (c, d) in zip(path, path[1:], strict=False):
        n = max(1, round(math.hypot(c - a, d - b) / 8))
        for k in range(n + 1):
            px, py = a + (c - a) * k / n, b + (d - b) * k / n
            yield (px - 2, py - 2, px + 2, py + 2)


def labels(names: Sequence[tuple[float, float, str]], box: Box, taken: list[Box]) -> Iterator[str]:
    """Name points where there is room; a name without room is in the tooltip alone."""
    left, top, right, bottom = box
    for px, py, label in names:
        wide = width_of(label, 12)
        sides = [(side, dy) for dy in (4, -10, 18) for side in (9, -9 - wide)]
        far = [(side, dy) for side in (14, -14 - wide) for dy in (32, -24)]
        for dx, dy in (*sides[:2], (-wide / 2, -10), (-wide / 2, 20), *sides[2:], *far):
            spot = (px + dx, py + dy - 11, px + dx + wide, py + dy + 3)
            inside = spot[0] > left and spot[2] < right and spot[1] > top and spot[3] < bottom
            met = (
                a < spot[2] and spot[0] < c and b < spot[3] and spot[1] < d for a, b, c, d in taken
            )
            if inside and not any(met):
                taken.append(spot)
                if (dx, dy) in far:  # a thread leads to it
                    yield line(px, py, spot[0 if dx > 0 else 2], py + dy - 4, "gs-a")
                at, anchor = (spot[0], "start") if dx > 0 else (spot[2], "end")
                at, anchor = (px, "middle") if 2 * dx == -wide else (at, anchor)
                yield text(at, py + dy, label, "gs-t gs-halo", anchor, size=12)
                break
        else:
            yield f"<desc>{words(label)}</desc>"


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
