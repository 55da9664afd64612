"""Values of a line: numbers with their unit as printed, in SI; nothing that is not printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

from gpuscale.core.diagnosis.facts import COUNTS, UNITS
from gpuscale.io.logs.patterns import Find


def cells(
    name: str, unit: str, said: dict[str, str], text: str | None
) -> Iterator[tuple[str, tuple[float | str, str, str]]]:
    """Facts of one column of a row."""
    kind, _, rest = unit.partition(" ")
    if kind == "text":
        if text:
            yield name, (text.strip(), "", text.strip())
    elif text is None:
        return
    elif kind == "row":
        si, factor = UNITS[rest]
        for k, value in enumerate(text.split()[:64]):
            if value[0].isdigit():  # of a card with itself: N/A
                yield f"{name}_{k}", (float(value) * factor, si, f"{value} {rest}")
    elif hit := re.match(r"\s*([-+]?\d[\d.,]*)", text):
        word = said.get("unit", rest) if kind == "unit" else kind
        word = word if word in UNITS else rest
        si, factor = UNITS.get(word, ("", 1.0))
        number = float(hit[1].replace(",", "").rstrip("."))
        yield name, (number * factor, si, f"{hit[1]} {word}".strip())


def made_of(find: Find, text: str) -> tuple[float | str, str, str, str] | None:
    """(value, unit as printed, text as printed, SI unit) of what a line says; None if nothing."""
    hit = find.search(text)
    if hit is None:
        return None
    unit = find.unit
    if unit.startswith("="):
        return unit[1:], "", unit[1:], ""
    groups = [g for g in hit.groups()]
    first = next((g for g in groups if g is not None), None)
    if first is None:
        return None
    if unit == "text":
        return first.strip()[:160], "", first[:160], ""
    try:
        value = float(first.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    if not isfinite(value) or value < 0 and unit in ("%", "tokens/s", "ms", "s", "TFLOP/s", "&"):
        return None  # -100 % stands for what was not computed
    if "#K" in find.regex and len(groups) > 1 and groups[1]:
        value *= COUNTS[groups[1]]
    if unit == "&":
        unit = groups[1] if len(groups) > 1 and groups[1] else ""
        if unit in COUNTS:
            return value * COUNTS[unit], "", f"{first} {unit}", ""
        if unit not in UNITS:
            return None
    si, factor = UNITS[unit]
    return value * factor, unit, f"{first} {unit}".strip(), si
