"""Pictures in the terminal: letters for the parts, so that no colour is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuscale.foreign import clean
from gpuscale.render.chart import Chart, Gantt, Lines, Stack, Tiers, limits
from gpuscale.render.document import Drawn
from gpuscale.render.draw import scale_of, values_of
from gpuscale.render.palette import meaning

POINTS = "o*x+#@%&"
RUN = re.compile(r"(\S)\1*")


def drawn(chart: Chart, width: int = 100) -> Drawn:
    """Draw a chart as a block of at most `width` columns, 120 or less.

    Its letters know what they mean, for terminals with colours.
    """
    width, rows, names, marks = max(40, min(width, 120)), list[str](), list[str](), list[str]()
    if isinstance(chart, Stack):
        body, rows, names = _stack(chart, width), [n for n, _ in chart.rows], list(chart.parts)
        marks = letters(names)
    elif isinstance(chart, Gantt):
        body, rows = gantt(chart, width), [n for n, _ in chart.lanes]
        names, marks = [n for n, _ in chart.kinds], [mark for _, mark in chart.kinds]
    else:
        body = _tiers(chart, width) if isinstance(chart, Tiers) else _plot(chart, width)
    title, *lines = (clean(text).rstrip() for text in (chart.title, *body))
    if not names:
        return Drawn(lines, title)
    means = {
        mark: found for mark, name in zip(marks, names, strict=True) if (found := meaning(name))
    }
    start = max(map(len, rows), default=0) + 2
    tints = [
        (i, m.start(), m.end(), means[m[1]])
        for i, line in enumerate(lines[: len(rows)])
        for m in RUN.finditer(line, start, (line + " ").find(" ", start))
        if m[1] in means
    ]
    tints += [
        (i, m.start(1), m.end(1), means[m[1]])
        for i, line in enumerate(lines[len(rows) :], len(rows))
        for m in re.finditer(r"(?:^|   )(\S) (?=\w)", line)
        if m[1] in means
    ]
    return Drawn(lines, title, tints)


def letters(names: Sequence[str]) -> list[str]:
    """One letter for each name, its first that is free.

    >>> letters(["weights", "gradients", "working"])
    ['W', 'G', 'O']
    """
    used: list[str] = []
    spare = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    for name in names:
        found = next((c for c in name.upper() + spare if c.isalnum() and c not in used), "#")
        used.append(found)
    return used


def _key(names: Sequence[str], marks: Sequence[str], width: int) -> list[str]:
    """Explain the letters, in as many lines as needed."""
    rows = [""]
    for name, mark in zip(names, marks, strict=True):
        item = f"{mark} {name}"
        if rows[-1] and len(rows[-1]) + len(item) + 3 > width:
            rows.append("")
        rows[-1] += ("   " if rows[-1] else "") + item
    return rows


def _stack(chart: Stack, width: int) -> list[str]:
    marks = letters(chart.parts)
    totals = [sum(values) for _, values in chart.rows]
    high = max([*totals, chart.limit[0] if chart.limit else 0.0]) or 1.0
    names = max((len(name) for name, _ in chart.rows), default=0)
    ends = [chart.axis.text(t) for t in totals]
    room = width - names - max(map(len, ends), default=0) - 5
    lines = []
    for (name, values), end in zip(chart.rows, ends, strict=True):
        bar, at = "", 0.0
        for value, mark in zip(values, marks, strict=True):
            at += value
            bar += mark * (round(room * at / high) - len(bar))
        bar = bar.ljust(room + 1)
        if chart.limit:
            edge = round(room * chart.limit[0] / high)
            bar = bar[:edge] + "│" + bar[edge + 1 :]
        lines.append(f"{name:<{names}}  {bar}  {end:>{max(map(len, ends))}}")
    if chart.limit:
        lines.append(f"{'':<{names}}  │ {chart.limit[1]}")
    return [*lines, *_key(chart.parts, marks, width)]


def _tiers(chart: Tiers, width: int) -> list[str]:
    """Tiers as rows of boxes, as many as there is room for."""
    names = max(len(row.name) for row in chart.rows)
    room = width - names - 2
    lines = []
    for i, row in enumerate(chart.rows):
        most = min(row.n, max(1, room // 6))
        boxes = " ".join(["[##]"] * most) if most == row.n else " ".join(["[##]"] * (most - 1))
        boxes += "" if most == row.n else " ..."
        lines += [f"{row.name:<{names}}  {boxes.center(room).rstrip()}"]
        lines += [f"{'':<{names}}  {row.label.center(room).rstrip()}"]
        if i < len(chart.between):
            lines += [f"{'':<{names}}  {('|  ' + chart.between[i]).center(room).rstrip()}"]
    return lines


def _plot(chart: Lines, width: int, height: int = 16) -> list[str]:
    xs, ys = values_of(chart)
    zero = any(s.line for s in chart.series)
    x_low, x_high = limits(xs, chart.x.log, zero)
    y_low, y_high = limits(ys, chart.y.log, zero)
    ticks = chart.y.ticks(y_low, y_high, 6)
    left = max((len(chart.y.text(t, 3)) for t in ticks), default=0)
    room = width - left - 3
    x = scale_of(chart.x, x_low, x_high, 0, room - 1)
    y = scale_of(chart.y, y_low, y_high, height - 1, 0)
    grid = [[" "] * room for _ in range(height)]
    for m in chart.marks:
        for i in range(height if m.axis == "x" else room):
            if m.axis == "x":
                grid[i][round(x(m.value))] = "│"
            else:
                grid[round(y(m.value))][i] = "─"
    for n, series in enumerate(chart.series):
        mark = POINTS[n % len(POINTS)]
        placed = [(x(a), y(b)) for a, b, _ in series.points]
        if series.line:
            for (a, b), (c, d) in zip(placed, placed[1:], strict=False):
                steps = max(1, round(abs(c - a)))
                for k in range(1, steps):
                    row, column = round(b + (d - b) * k / steps), round(a + (c - a) * k / steps)
                    if grid[row][column] == " ":
                        grid[row][column] = "." if series.markers else mark
        for a, b in placed if series.markers else ():
            grid[round(b)][round(a)] = mark
    at = {round(y(t)): chart.y.text(t, 3) for t in ticks}
    lines = [f"{at.get(i, ''):>{left}} │{''.join(row)}" for i, row in enumerate(grid)]
    lines.append(f"{'':>{left}} └{'─' * room}")
    below = [" "] * (room + 12)
    after = -1
    for tick in chart.x.ticks(x_low, x_high):
        shown = chart.x.text(tick, 3)
        start = max(0, round(x(tick)) - len(shown) // 2)
        if start > after and start + len(shown) <= room + 2:
            below[start : start + len(shown)] = shown
            after = start + len(shown)
    lines.append(f"{'':>{left}}  {''.join(below).rstrip()}")
    lines.append(f"{'':>{left}}  {chart.y.label} over {chart.x.label}")
    names = [s.name for s in chart.series]
    if any(names):
        marks = [POINTS[n % len(POINTS)] for n in range(len(names))]
        lines += _key(names, marks, width)
    lines += [f"{'│' if m.axis == 'x' else '─'} {m.label}" for m in chart.marks]
    return lines


def gantt(chart: Gantt, width: int) -> list[str]:
    """Draw lanes; each column shows what fills most of it, a dot is idle."""
    start, end = chart.start, chart.total
    names = max((len(name) for name, _ in chart.lanes), default=0)
    room = width - names - 2
    per = (end - start) / room or 1.0
    lines = []
    for name, spans in chart.lanes:
        filled = [[0.0] * len(chart.kinds) for _ in range(room)]
        for span in spans:
            a, b = (span.start - start) / per, (span.start + span.length - start) / per
            for column in range(max(0, int(a)), min(room, int(b) + 1)):
                filled[column][span.kind] += max(0.0, min(b, column + 1) - max(a, column))
        row = "".join(
            chart.kinds[max(range(len(chart.kinds)), key=cell.__getitem__)][1]
            if sum(cell) > 0.5
            else "."
            for cell in filled
        )
        lines.append(f"{name:<{names}}  {row}")
    left, right = chart.axis.text(start), chart.axis.text(end)
    lines.append(f"{'':<{names}}  {left}{right:>{room - len(left)}}")
    marks = [*(mark for _, mark in chart.kinds), "."]
    names_of = [*(name for name, _ in chart.kinds), "idle"]
    return [*lines, *_key(names_of, marks, width)]
