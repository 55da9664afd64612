"""Differences between two results, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.core.records import dataclass
from gpuscale.render.text import leaves


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """A value that differs; `change_frac` is relative to the old number."""

    key: str
    old: Any
    new: Any
    change_frac: float | None  # None where one of them is no number, or the old one is 0


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure of several things; a ratio is None where one of the two is no number, or 0."""

    key: str
    values: tuple[Any, ...]
    ratios: tuple[float | None, ...]  # to the first value, of each other one

    @property
    def differs(self) -> bool:
        """Whether the values are not all the same."""
        return any(v != self.values[0] for v in self.values[1:])


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """A summand of a total in two things."""

    key: str
    first: float
    value: float
    delta: float  # value - first


@dataclass(frozen=True, slots=True)
class TotalDifference:
    """The difference of two totals, part by part; `main` explains most of it."""

    delta: float
    parts: tuple[ChangedPart, ...]  # those that are not 0 in both
    main: ChangedPart | None  # changed most in the direction of the total; None: nothing did
    against: ChangedPart | None  # changed most in the other direction


def side_by_side(things: Sequence[Mapping[str, Any]]) -> list[FigureRow]:
    """Put the figures of several things into rows, with the ratio to the first one.

    >>> side_by_side([{"a_s": 2.0}, {"a_s": 3.0}])
    [FigureRow(key='a_s', values=(2.0, 3.0), ratios=(1.5,))]
    """
    keys = dict.fromkeys(key for thing in things for key in thing)
    rows = []
    for key in keys:
        first, *others = [thing.get(key) for thing in things]
        ratios = [
            v / first if _is_number(first) and _is_number(v) and first else None for v in others
        ]
        rows.append(FigureRow(key, (first, *others), tuple(ratios)))
    return rows


def split_difference(
    first: Mapping[str, float], other: Mapping[str, float], aside: tuple[str, ...] = ()
) -> TotalDifference:
    """Say which part of a sum makes most of the difference between two sums.

    `first, other`: part -> amount; a part that one of them lacks counts as 0 there. `aside`: parts
    that only follow from the others, never named as the main one.

    >>> found = split_difference({"a": 1.0, "b": 4.0}, {"a": 3.0, "b": 3.5})
    >>> found.delta, found.main.key, found.against.key
    (1.5, 'a', 'b')
    """
    keys = [k for k in dict.fromkeys([*first, *other]) if first.get(k) or other.get(k)]
    parts = tuple(
        ChangedPart(k, first.get(k, 0), other.get(k, 0), other.get(k, 0) - first.get(k, 0))
        for k in keys
    )
    delta = math.fsum(p.delta for p in parts)
    sign = 1.0 if delta >= 0 else -1.0
    named = sorted((p for p in parts if p.key not in aside), key=lambda p: -sign * p.delta)
    main = named[0] if named and delta and sign * named[0].delta > 0 else None
    against = named[-1] if named and sign * named[-1].delta < 0 else None
    return TotalDifference(delta, parts, main, against)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def changes(old: Any, new: Any) -> list[ChangedValue]:
    """List the values that differ, the largest relative change first, others after.

    >>> changes({"a_s": 2.0, "b": "x"}, {"a_s": 2.5, "b": "x"})
    [ChangedValue(key='a_s', old=2.0, new=2.5, change_frac=0.25)]
    """
    one, other = dict(leaves(old)), dict(leaves(new))
    found = []
    for key in dict.fromkeys([*one, *other]):
        a, b = one.get(key), other.get(key)
        if a == b and type(a) is type(b):
            continue
        frac = (b - a) / abs(a) if _is_number(a) and _is_number(b) and a else None
        if a != b or (key in one) != (key in other):
            found.append(ChangedValue(key, a, b, frac))
    return sorted(found, key=lambda c: -abs(c.change_frac) if c.change_frac is not None else 0.0)


def exceeds(change: ChangedValue, limit_frac: float) -> bool:
    """Whether a change counts as more than a limit: numbers by size, truth values always.

    A text that differs does not count; a number that came or went does.
    """
    if change.change_frac is not None:
        return abs(change.change_frac) > limit_frac
    return any(isinstance(v, (bool, int, float)) for v in (change.old, change.new))


def causes(key: str, old: Any, new: Any) -> list[tuple[str, float, float]]:
    """List the inputs of a key's term that differ between two answers: name, old, new.

    `key`: key of the result; a term is named by its last part. `old, new`: the `explain` of each
    answer.

    >>> causes("time_s", [{"name": "time_s", "inputs": {"m": 1, "k": 2}, "children": []}],
    ...        [{"name": "time_s", "inputs": {"m": 3, "k": 2}, "children": []}])
    [('m', 1, 3)]
    """
    one, other = _inputs(key, old), _inputs(key, new)
    found = [(n, one[n], other[n]) for n in one if n in other and one[n] != other[n]]
    return sorted(found, key=lambda c: -abs(c[2] / c[1] - 1) if c[1] else 0.0)


def _inputs(key: str, terms: Any) -> dict[str, float]:
    """Find the inputs of the first term with this name; a member of a list has no term."""
    if any(part.isdigit() for part in key.split(".")):
        return {}
    wanted = {key, key.rsplit(".", 1)[-1], key.replace(".", "_")}
    for term in terms if isinstance(terms, list) else ():
        if not isinstance(term, dict):
            continue
        if term.get("name") in wanted and isinstance(term.get("inputs"), dict):
            return {k: v for k, v in term["inputs"].items() if _is_number(v)}
        if found := _inputs(key, term.get("children")):
            return found
    return {}
