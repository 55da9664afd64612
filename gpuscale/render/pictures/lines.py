"""Lines and points over two axes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gpuscale.render.palette import SERIES
from gpuscale.render.pictures.chart import Axis, Lines, limits
from gpuscale.render.svg import DASHES, WIDTH, heading, legend, line, marker, text, width_of, words

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
    taken: list[Box] = []
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
            if inside and not any(_meet(spot, t) for t in taken):
                taken.append(spot)
                yield text(px + dx, py + dy, label, "gs-t gs-halo", size=12)
                break
        else:
            yield f"<desc>{words(label)}</desc>"


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
