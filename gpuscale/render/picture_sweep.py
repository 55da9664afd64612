"""Pictures of a sweep: each number over the swept key, a line per value of the second one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuscale.core.quantity import dimension_of
from gpuscale.core.records import replace
from gpuscale.core.words import key_words
from gpuscale.render.chart import Axis, Chart, Lines, Series, Stack, few

MOST_CHARTS = 6
LOG_FROM = 30.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def _title(words: str) -> str:
    return words[:1].upper() + words[1:]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _axis(key: str, values: Sequence[float]) -> Axis:
    dim = dimension_of(key.rsplit(".", 1)[-1].replace("-", "_"))
    low, high = min(values), max(values)
    log = low > 0 and high / low >= (8 if len(values) > 2 else LOG_FROM)
    return Axis(key_words(key), dim, log)


def sweep_charts(result: dict[str, Any], note: str) -> list[Chart]:
    """Draw a sweep's result; numbers of one name, as ``time_s`` and ``expected.time_s``, together.

    `result`: ``keys``, ``shown`` and ``points``, as `gpuscale.answers.sweep` makes them.
    `note`: what stays the same.
    """
    points = [p for p in result["points"] if p["answer"] != "error"]
    keys = [k for k in result["shown"] if any(_is_number(p["numbers"][k]) for p in points)]
    keys = [k for k in keys if len({p["numbers"][k] for p in points}) > 1] or keys[:1]
    if not points or not keys:
        return []
    if len(result["keys"]) == 2:
        return [_family(result["keys"], key, points, note) for key in keys[:MOST_CHARTS]]
    swept = result["keys"][0]
    if not all(_is_number(p["values"][swept]) for p in points):
        rows = [(str(p["values"][swept]), p) for p in points]
        return [_stack(key, rows, note) for key in keys[:MOST_CHARTS]]
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(key.rsplit(".", 1)[-1] if len(keys) > 1 else key, []).append(key)
    found: list[Chart] = []
    for name, members in list(groups.items())[:MOST_CHARTS]:
        series = [
            Series(key_words(key) if len(members) > 1 else "", _line(points, swept, key))
            for key in members
        ]
        found.append(_lines(name, note, swept, members[0], series))
    return found


def _line(points: Sequence[dict[str, Any]], swept: str, key: str) -> list[tuple[float, float, str]]:
    return [
        (float(p["values"][swept]), float(p["numbers"][key]), "")
        for p in points
        if _is_number(p["numbers"][key])
    ]


def _lines(name: str, note: str, swept: str, key: str, series: list[Series]) -> Lines:
    xs = [x for s in series for x, _, _ in s.points]
    x = replace(_axis(swept, xs), at=few(xs))
    ys = [y for s in series for _, y, _ in s.points]
    y = _axis(key, ys)
    y = Axis(key_words(name), y.dim, min(ys) > 0 and max(ys) / min(ys) >= LOG_FROM)
    title = _title(f"{key_words(name)} over {key_words(swept)}")
    return Lines(name.replace(".", "-"), title, x, y, series, note=note)


def _family(keys: Sequence[str], key: str, points: Sequence[dict[str, Any]], note: str) -> Chart:
    """One number over one key, a line per value of the other."""
    swept, other = keys
    if not all(_is_number(p["values"][swept]) for p in points):
        swept, other = other, swept
    if not all(_is_number(p["values"][swept]) for p in points):
        rows = [(" ".join(map(str, p["values"].values())), p) for p in points]
        return _stack(key, rows, note)
    dim = dimension_of(other.rsplit(".", 1)[-1].replace("-", "_"))
    series = []
    for value in dict.fromkeys(p["values"][other] for p in points):
        mine = [p for p in points if p["values"][other] == value]
        label = Axis("", dim).text(float(value)) if _is_number(value) else str(value)
        if line := _line(mine, swept, key):
            series.append(Series(f"{key_words(other)} {label}", line))
    return _lines(key, note, swept, key, series)


def _stack(key: str, rows: Sequence[tuple[str, dict[str, Any]]], note: str) -> Stack:
    found = [
        (label, [max(0.0, float(p["numbers"][key]))])
        for label, p in rows
        if _is_number(p["numbers"][key])
    ]
    axis = Axis(key_words(key), dimension_of(key.rsplit(".", 1)[-1]))
    said = key_words(key)
    return Stack(key.replace(".", "-"), _title(said), axis, [said], found, note=note)
