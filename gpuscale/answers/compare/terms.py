"""Formulas behind a comparison: each ratio, and each difference as the sum of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.answers.compare.differences import FigureRow, TotalDifference
from gpuscale.core.records import Term

SHOWN_BY = {"gpu": "presets show {}", "cluster": "presets show {}", "model": "model {} --explain"}
"""Kind -> command that tells where its figures are from."""


def terms_of(
    kind: str, names: Sequence[str], rows: Sequence[FigureRow], parts: Sequence[Mapping[str, Any]]
) -> tuple[Term, ...]:
    """Make a term of every ratio that is not 1, and of every difference of plans."""
    found = [difference_term(names[0], part) for part in parts]
    for row in rows:
        for name, value, ratio in zip(names[1:], row.values[1:], row.ratios, strict=True):
            if ratio is None or ratio == 1:
                continue
            by = " and ".join(
                f"`gpuscale {SHOWN_BY.get(kind, 'plan --explain').format(n)}`"
                for n in dict.fromkeys((names[0], name) if kind in SHOWN_BY else ("",))
            )
            inputs = {"value": value, "first": row.values[0]}
            title = f"{row.key}, {name} / {names[0]}"
            found.append(Term(title, ratio, "", "value / first", inputs, f"figures: {by}"))
    return tuple(found)


def difference_term(first: str, found: Mapping[str, Any]) -> Term:
    """Write the difference of a total as the sum of its parts' differences."""
    split: TotalDifference = found["split"]
    inputs = {p.key: p.delta for p in split.parts}
    return Term(
        f"{found['of']}, {found['name']} - {first}",
        split.delta,
        "s" if found["of"] == "step" else "bytes",
        " + ".join(inputs) or "0",
        inputs,
        "each part of the one less that of the other",
    )
