"""`--sweep`: one command once per point of one or two keys, its headline numbers as a table."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import Question, Swept, fields_of
from gpuscale.answers.sweep_table import SweepPoint, SweptKey, read_axes
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.answers.requirements import Requirement
    from gpuscale.render.document import Document


def sweep_document(question: Swept, require: Sequence[Requirement] = ()) -> Document:
    """Ask a question at every point and tabulate its numbers.

    `question`: the question with its one or two sweeps; each point gets its own ``set`` or option.
    `require`: what the answer of a point must meet to be a yes. Raises GpuscaleError if a sweep
    cannot be read, or no point has an answer.
    """
    from gpuscale.answers.sweep_table import document

    axes = read_axes(question.sweep)
    if "-" in vars(question).values() or any("-" in axis.texts for axis in axes):
        raise GpuscaleError("--sweep reads the input once per point", "give a file instead of `-`")
    names = option_names(type(question))
    points, first_error = [], None
    for index in itertools.product(*(range(len(axis.texts)) for axis in axes)):
        try:
            point = _answer(question, require, axes, index, names)
        except GpuscaleError as error:
            first_error = first_error or error
            point = _point(axes, index, "error", error.message, {})
        points.append(point)
    if first_error and all(p.answer == "error" for p in points):
        raise first_error
    shown = chosen_keys(question.HEADLINES.split(), points, question.sweep_show)
    changed = [setting.partition("=")[0] for setting in question.set]
    if taken := [axis.key for axis in axes if axis.key in changed]:
        raise GpuscaleError(f"{taken[0]} is given by --set and by --sweep")
    return document(question.NAME, _inputs(question, axes), axes, shown, points)


def option_names(question: type[Question]) -> dict[str, str]:
    """Field of each name that a person may type: ``seq``, ``global-batch``."""
    found: dict[str, str] = {}
    for name, (asked, _) in fields_of(question).items():
        for typed in (f"--{name}", *asked.flags):
            if typed.startswith("--") and name not in ("set", "sweep", "sweep_show"):
                found[typed.strip("-").replace("_", "-")] = name
    return found


def _point(
    axes: tuple[SweptKey, ...],
    index: tuple[int, ...],
    answer: str,
    note: str,
    numbers: dict[str, Any],
) -> SweepPoint:
    values = {a.key: a.values[i] for a, i in zip(axes, index, strict=True)}
    return SweepPoint(values, answer, note, numbers)


def _answer(
    question: Swept,
    require: Sequence[Requirement],
    axes: tuple[SweptKey, ...],
    index: tuple[int, ...],
    names: Mapping[str, str],
) -> SweepPoint:
    settings, own = list(question.set), dict[str, str]()
    for axis, i in zip(axes, index, strict=True):
        text = axis.texts[i]
        if "." in axis.key:
            settings.append(f"{axis.key}={text}")
            continue
        name = axis.key.replace("_", "-")
        if name not in names:
            hint = "a key with a dot is one of --set, another an option of the command"
            raise unknown_name("option in --sweep:", axis.key, names, hint)
        own[names[name]] = text
    here: Any = {"set": tuple(settings), "sweep": (), "sweep_show": None, **own}
    return _point(axes, index, *answered(dataclasses.replace(question, **here), require))


def answered(
    question: Question, require: Sequence[Requirement] = ()
) -> tuple[str, str, dict[str, object]]:
    """Ask one question of many: yes or no, what failed, and the numbers by dotted key."""
    found = question.answer()
    no, note = found.answered_no, ""
    if require:
        from gpuscale.answers.requirements import check_all

        failed = [v for v in check_all(require, found.result) if not v.met]
        note = "; ".join(f"failed: {v.requirement}: have {v.have}" for v in failed)
        no = no or bool(failed)
    return "no" if no else "yes", note, dict(named_leaves(found.result))


def named_leaves(result: Any) -> list[tuple[str, Any]]:
    """Values of a result by dotted key; items of a list go by their name where they have one.

    Examples
    --------
    >>> named_leaves({"rows": [{"axis": "dp", "need": 2.0}], "n": [1]})
    [('rows.dp.axis', 'dp'), ('rows.dp.need', 2.0), ('n.0', 1)]
    """
    from gpuscale.render.data import leaves, plain

    return list(leaves(_named(plain(result))))


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _named(v) for key, v in value.items()}
    if not isinstance(value, list):
        return value
    for label in ("axis", "scope", "name"):
        names = [item.get(label) if isinstance(item, dict) else None for item in value]
        if value and all(isinstance(n, str) for n in names) and len(set(names)) == len(names):
            return {str(n): _named(item) for n, item in zip(names, value, strict=True)}
    return [_named(item) for item in value]


def chosen_keys(headlines: Sequence[str], points: list[SweepPoint], show: str | None) -> list[str]:
    """Keys of the result that are shown: those asked for, or the headlines."""
    known = {key: None for point in points for key in point.numbers}
    patterns = [p.strip() for p in show.split(",")] if show else list(headlines)
    found: dict[str, None] = {}
    for pattern in patterns:
        if any(c in pattern for c in "*?["):
            matched = [k for k in fnmatch.filter(known, pattern) if show or _varies(k, points)]
        elif show:
            from gpuscale.answers.requirements import find

            matched = [find(pattern.replace("-", "_"), known, "--sweep-show")]
        else:
            matched = [pattern] if pattern in known else []
        found |= dict.fromkeys(matched)
    empty = {k for k in found if all(p.numbers.get(k) is None for p in points)}
    if not (kept := [k for k in found if k not in empty or show]):
        raise GpuscaleError(
            "--sweep: no number to show", f"--sweep-show takes any of {', '.join(list(known)[:30])}"
        )
    return kept


def _varies(key: str, points: list[SweepPoint]) -> bool:
    return len({str(p.numbers.get(key)) for p in points if p.answer != "error"}) > 1


def _inputs(question: Swept, axes: tuple[SweptKey, ...]) -> dict[str, object]:
    """Collect what stays the same at every point: fields that differ from their defaults."""
    names = option_names(type(question))
    left_out = {names.get(axis.key.replace("_", "-")) for axis in axes}
    left_out |= {"set", "sweep", "sweep_show"}
    fixed = {
        name: value
        for name, (asked, _) in fields_of(type(question)).items()
        if name not in left_out and (value := getattr(question, name)) != asked.default
    }
    return {**fixed, "changed": list(question.set)}
