"""`--sweep`: one command once per point of one or two keys, its headline numbers as a table.

And as a grid where two keys vary.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import Question, Swept, fields_of
from gpuscale.core.quantity import UNITS, dimension_of, format_count, format_si, parse
from gpuscale.core.records import dataclass, replace
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.render.document import Block, Column, Document, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.requirements import Requirement

POINTS = (7, 5)
"""Points of a range that names no number of them: with one key, with two."""

MOST_POINTS = 400
EXAMPLE = "for example --sweep cluster.node_egress_bytes_per_s=100GB/s..3.2TB/s or --sweep tp=1,2,4"


@dataclass(frozen=True, slots=True)
class SweptKey:
    """One swept key; a dotted key is one of `--set`, another an option of the command."""

    key: str
    texts: tuple[str, ...]  # as the command reads them
    values: tuple[float | int | str, ...]  # SI numbers, or the texts
    labels: tuple[str, ...]  # as shown


def read_axes(given: tuple[str, ...]) -> tuple[SweptKey, ...]:
    """Read the sweeps of a command line.

    Raises GpuscaleError for more than two keys, a key given twice, no values, or too many of them.

    >>> read_axes(("tp=1..8", "gpu.hbm_bytes=80GB,96GB"))[0].texts
    ('1', '2', '4', '8')
    >>> read_axes(("gpus=8..64:4",))[0].texts
    ('8', '16', '32', '64')
    """
    if len(given) > len(POINTS):
        raise GpuscaleError("--sweep: at most two keys", EXAMPLE)
    axes = tuple(read_axis(text, POINTS[len(given) - 1]) for text in given)
    if len({axis.key for axis in axes}) < len(axes):
        raise GpuscaleError(f"--sweep {axes[0].key}: given twice")
    n_points = math.prod(len(axis.texts) for axis in axes)
    if n_points > MOST_POINTS:
        raise GpuscaleError(f"--sweep: {n_points} points; at most {MOST_POINTS}")
    return axes


def read_axis(text: str, n_points: int) -> SweptKey:
    """Read ``KEY=LOW..HIGH[:N]`` (geometric) or ``KEY=A,B,C``."""
    key, _, values = text.partition("=")
    key, values = key.strip(), values.strip()
    if not key or not values:
        raise GpuscaleError(f"--sweep {text[:60]}: not KEY=VALUES", EXAMPLE)
    if ".." in values:
        low, _, rest = values.partition("..")
        high, _, count = rest.partition(":")
        return _range(key, low.strip(), high.strip(), count.strip(), n_points)
    texts = tuple(t.strip() for t in values.split(","))
    if not all(texts):
        raise GpuscaleError(f"--sweep {text[:60]}: an empty value", EXAMPLE)
    return SweptKey(key, texts, tuple(_read(key, t)[0] for t in texts), texts)


def _read(key: str, text: str) -> tuple[float | str, str]:
    """SI value and dimension; a text that is no number stays one."""
    last = key.rsplit(".", 1)[-1].replace("-", "_")
    for dim in dict.fromkeys([dimension_of(last) or "count", "count", *UNITS]):
        try:
            return parse(text, dim), dim
        except ValueError:
            continue
    return text, ""


def _range(key: str, low_text: str, high_text: str, count: str, n_points: int) -> SweptKey:
    shown = f"--sweep {key[:60]}={low_text[:30]}..{high_text[:30]}"
    (low, dim), (high, other) = _read(key, low_text), _read(key, high_text)
    if not isinstance(low, float) or not isinstance(high, float) or dim != other:
        raise GpuscaleError(f"{shown}: give two numbers of one unit", EXAMPLE)
    if not 0 < low < high:
        raise GpuscaleError(
            f"{shown}: the first must be above 0 and below the second",
            "a comma-separated list takes any values",
        )
    if count and not (count.isdecimal() and 2 <= int(count[:9]) <= MOST_POINTS):
        raise GpuscaleError(f"{shown}: the number of points is 2 to {MOST_POINTS}")
    values = _between(low, high, int(count) if count else None, n_points, dim)
    texts = tuple(str(int(v)) if v.is_integer() and v < 1e15 else repr(v) for v in values)
    numbers = tuple(int(t) if t.isdecimal() else v for t, v in zip(texts, values, strict=True))
    return SweptKey(key, texts, numbers, tuple(format_si(v, dim) for v in values))


def _between(low: float, high: float, count: int | None, n_points: int, dim: str) -> list[float]:
    """Values from low to high by equal factors; whole counts double if that ends at `high`."""
    whole = dim == "count" and low.is_integer() and high.is_integer()
    doublings = math.log2(high / low)
    if whole and count is None and doublings == int(doublings) and doublings < 20:
        count = int(doublings) + 1
    n = count or n_points
    ratio = high / low
    values = [low, *(low * ratio ** (i / (n - 1)) for i in range(1, n - 1)), high]
    if whole:
        return sorted({float(round(v)) for v in values})
    return [float(f"{v:.6g}") for v in values[:-1]] + [high]


MOST_GRIDS = 4


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point of a sweep: its values, and what comes out."""

    values: dict[str, float | int | str]
    answer: str  # yes, no, error
    note: str
    numbers: dict[str, float | int | str | bool | None]


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """The points of a sweep."""

    keys: list[str]
    shown: list[str]
    points: list[SweepPoint]


def sweep_document(question: Swept, require: Sequence[Requirement] = ()) -> Document:
    """Ask a question at every point and tabulate its numbers.

    `question`: the question with its one or two sweeps; each point gets its own ``set`` or option.
    `require`: what the answer of a point must meet to be a yes. Raises GpuscaleError if a sweep
    cannot be read, or no point has an answer.
    """
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
    return _point(axes, index, *answered(replace(question, **here), require))


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

    >>> named_leaves({"rows": [{"axis": "dp", "need": 2.0}], "n": [1]})
    [('rows.dp.axis', 'dp'), ('rows.dp.need', 2.0), ('n.0', 1)]
    """
    from gpuscale.render.text import leaves, plain

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
            alike = fnmatch.filter(known, pattern)
            told = [p.numbers for p in points if p.answer != "error"]
            matched = [k for k in alike if show or len({str(n.get(k)) for n in told}) > 1]
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


def amount(key: str, value: Any) -> str:
    """Value with the unit that its key tells.

    >>> amount("expected.time_s", 0.0015), amount("mfu", 0.41), amount("fits", True)
    ('1.500 ms', '0.41', 'yes')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    dim = dimension_of(key.rsplit(".", 1)[-1])
    if dim:
        return format_si(float(value), dim)
    if isinstance(value, int) or abs(value) >= 1e5:
        return format_count(float(value))
    return f"{value:.4g}"


def document(
    name: str,
    inputs: dict[str, Any],
    axes: tuple[SweptKey, ...],
    shown: list[str],
    points: list[SweepPoint],
) -> Document:
    """Put the points together; the answer is no only where it is no at every point."""
    said = {k: " ".join(map(str, v)) if isinstance(v, tuple) else v for k, v in inputs.items()}
    fixed = ", ".join(k if v is True else f"{k} {v}" for k, v in said.items() if k != "changed")
    changed = "".join(f", {text}" for text in inputs["changed"])
    keys = " and ".join(axis.key for axis in axes)
    blocks: list[Block] = [Text(f"{name}: {len(points)} points of {keys}\n{fixed}{changed}")]
    long = _long(axes, shown, points)
    grids = len(axes) == 2
    blocks += [_grid(axes, key, points) for key in shown[:MOST_GRIDS]] if grids else [long]
    notes = []
    if grids and any(p.answer == "no" for p in points):
        notes.append("* the answer is no: it does not fit, or a requirement is not met")
    if grids and (wrong := [p for p in points if p.answer == "error"]):
        labels = (dict(zip(a.values, a.labels, strict=True)) for a in axes)
        first = (known[v] for known, v in zip(labels, wrong[0].values.values(), strict=True))
        notes.append(f"- no answer, e.g. {', '.join(first)}: {wrong[0].note}")
    if grids and shown[MOST_GRIDS:]:
        notes.append(f"in JSON and CSV also: {', '.join(shown[MOST_GRIDS:])}")
    if notes:
        blocks.append(Text("\n".join(notes)))
    result = SweepAnswer(
        keys=[axis.key for axis in axes],
        shown=shown,
        points=[replace(p, numbers={k: p.numbers.get(k) for k in shown}) for p in points],
    )
    return Document(
        "sweep",
        {"command": name, **inputs},
        result,
        blocks,
        csv_table=long,
        answered_no=all(p.answer != "yes" for p in points),
    )


def _long(axes: tuple[SweptKey, ...], shown: list[str], points: list[SweepPoint]) -> Table:
    """One row per point; the answer and its note only where they say something."""
    # the table keeps raw values, for CSV
    labels = [dict(zip(a.values, a.labels, strict=True)) for a in axes]
    columns = [
        Column(axis.key, axis.key, known.__getitem__)
        for axis, known in zip(axes, labels, strict=True)
    ]
    columns += [Column(key, key, partial(amount, key)) for key in shown]
    rows: list[Sequence[Any]] = [
        (*p.values.values(), *(p.numbers.get(key) for key in shown)) for p in points
    ]
    if any(p.answer != "yes" for p in points):
        columns += [Column("answer", "answer", right=False), Column("note", "note", right=False)]
        rows = [(*row, p.answer, p.note) for row, p in zip(rows, points, strict=True)]
    return Table(columns, rows)


def _grid(axes: tuple[SweptKey, ...], key: str, points: list[SweepPoint]) -> Table:
    """One number over both keys: the first key down, the second across."""
    down, across = axes
    width = len(across.texts)
    columns = [Column(down.key, f"{down.key} \\ {across.key}")]
    columns += [Column(f"v{i}", label) for i, label in enumerate(across.labels)]
    rows = []
    for i, label in enumerate(down.labels):
        cells = points[i * width : (i + 1) * width]
        texts = [amount(key, p.numbers.get(key)) + ("*" if p.answer == "no" else "") for p in cells]
        rows.append((label, *texts))
    return Table(columns, rows, key)
