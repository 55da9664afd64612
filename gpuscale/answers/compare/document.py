"""Two answers and what lies between them: keys that changed, and terms that explain the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.answers.compare.differences import (
    ChangedValue,
    FigureRow,
    TotalDifference,
    causes,
    exceeds,
)
from gpuscale.answers.compare.things import Thing, label, part_blocks, split_record, splits
from gpuscale.core.quantity import format_si
from gpuscale.core.records import Term, dataclass
from gpuscale.meant import packaged
from gpuscale.render.document import Block, Column, Document, Table, Text, amount

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


NOUN = {"gpu": "GPUs", "cluster": "clusters", "model": "models"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A total that differs, and its parts."""

    name: str
    of: str
    delta: float
    main_part: str | None
    main_delta: float | None
    parts: list[Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between several things."""

    kind: str
    command: str | None
    names: list[str]
    inputs_changed: dict[str, list[Any]]
    rows: list[FigureRow]
    differences: list[Difference]
    changes: list[Any]
    because: dict[str, list[list[Any]]]
    n_over: int
    fail_over_frac: float | None


def compared(
    kind: str,
    things: Sequence[Thing],
    rows: Sequence[FigureRow],
    changed: Sequence[list[ChangedValue]],
    limit: float | None,
    every: bool,
    set_: Sequence[str] = (),
) -> Document:
    """Put the answer together.

    `kind` is ``answer``, ``plan``, ``gpu``, ``cluster`` or ``model``; `rows` are the figures side
    by side (of an answer: none), `changed` the keys that differ of each other thing, listed if
    `every`.
    """
    names = [t.name for t in things]
    inputs = _inputs_changed(things)
    found = changed[0] if len(things) == 2 else ()
    because = {c.key: causes(c.key, things[0].explain, things[1].explain) for c in found}
    asked = [  # of plans, what follows from others is left out
        f"{key}: {' -> '.join(map(_said, values))}"
        for key, values in inputs.items()
        if kind != "plan" or not any(isinstance(v, dict) for v in values)
    ]
    settings = [f"changed in all: {'; '.join(set_)}"] if set_ else []
    over = [c for cs in changed for c in cs if limit is not None and exceeds(c, limit)]
    blocks: list[Block] = [Text("\n".join([_title(kind, things), *asked, *settings]))]
    table: Table | None = None
    if kind != "answer":
        table = _raw_rows(rows, names)
        blocks.append(_shown_rows(kind, rows, names) if rows else Text("no figure differs"))
    parts = splits(things) if kind == "plan" else []
    if parts:
        blocks += part_blocks(things, parts)
    if every:
        raw = _raw_changes(names, changed)
        table = raw or table
        blocks.append(_shown_changes(names, changed, because) or Text("the results are equal"))
    elif kind == "plan" and (n := len({c.key for cs in changed for c in cs})):
        blocks.append(Text(f"{n} keys of the results differ; --all lists them"))
    if limit is not None:
        worst = f", largest {over[0].key}" if over else ""
        blocks.append(Text(f"{len(over)} changed by more than {100 * limit:g} %{worst}"))
    result = Comparison(
        kind=kind,
        command=things[0].command or None,
        names=names,
        inputs_changed=inputs,
        rows=list(rows),
        differences=[Difference(**split_record(p)) for p in parts],
        changes=_listed(names, changed),
        because={key: [list(c) for c in found] for key, found in because.items() if found},
        n_over=len(over),
        fail_over_frac=limit,
    )
    given = {"old": names[0], "new": names[1]} if len(names) == 2 else {"things": names}
    return Document(
        "compare",
        given,
        result,
        blocks,
        answered_no=bool(over),
        csv_table=table,
        terms=terms_of(kind, names, rows, parts),
        warnings=list(dict.fromkeys(w for t in things for w in t.warnings)),
    )


def _title(kind: str, things: Sequence[Thing]) -> str:
    names = " -> ".join(t.name for t in things)
    return f"{NOUN.get(kind) or things[0].command}: {names}"


def _inputs_changed(things: Sequence[Thing]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(k for t in things for k in t.inputs)
    values = {k: [t.inputs.get(k) for t in things] for k in keys}
    return {k: v for k, v in values.items() if any(x != v[0] for x in v[1:])}


def _said(value: Any) -> str:
    """Input as it is said on a line."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def shown(key: str, value: Any, dim: str = "") -> str:
    """Value as it is printed; the key's suffix tells its unit where no dimension is given."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    return format_si(value, dim) if dim else amount(key.rsplit(".", 1)[-1], value)


def _because(found: list[tuple[str, float, float]]) -> str:
    texts = [f"{name} {shown(name, a)} -> {shown(name, b)}" for name, a, b in found[:3]]
    return ", ".join(texts) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x"


def _ratio_columns(names: Sequence[str]) -> list[Column]:
    one = len(names) == 2
    return [Column(f"ratio_{n}", "ratio" if one else f"{n} ratio", _times) for n in names[1:]]


def _shown_rows(kind: str, rows: Sequence[FigureRow], names: Sequence[str]) -> Table:
    columns = [Column("key", "", right=False), *(Column(n, n) for n in names)]
    texts, labels = [], packaged("labels.toml").get(kind, {})
    for row in rows:
        words, dim = labels.get(row.key) or label(row.key)
        values = [_plainly(row.key, v, dim) for v in row.values]
        texts.append((words, *values, *row.ratios))
    return Table([*columns, *_ratio_columns(names)], texts)


def _plainly(key: str, value: Any, dim: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if dim or not isinstance(value, (int, float)):
        return shown(key, value, dim)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{0 if abs(value) >= 1e4 else 1}f}"


def _raw_rows(rows: Sequence[FigureRow], names: Sequence[str]) -> Table:
    columns = [Column("key", "key", right=False), *(Column(n, n) for n in names)]
    return Table([*columns, *_ratio_columns(names)], [(r.key, *r.values, *r.ratios) for r in rows])


def _percent(frac: float) -> str:
    return f"{100 * frac:+.2f} %"


def _columns(names: Sequence[str]) -> list[Column]:
    key = Column("key", "key", right=False)
    if len(names) == 2:
        return [
            key,
            Column("old", "old"),
            Column("new", "new"),
            Column("change_frac", "change", _percent),
        ]
    changes = [Column(f"change_frac_{n}", f"{n} change", _percent) for n in names[1:]]
    return [key, *(Column(n, n) for n in names), *changes]


def _changed_rows(changed: Sequence[list[ChangedValue]]) -> list[tuple[Any, ...]]:
    """Key, value of each thing, relative change of each other one; largest change first."""
    by_key = [{c.key: c for c in found} for found in changed]
    every = {c.key: c for found in by_key for c in found.values()}

    def largest(key: str) -> float:
        return -max(abs(f[key].change_frac or 0.0) if key in f else 0.0 for f in by_key)

    keys = list(every) if len(changed) == 1 else sorted(every, key=largest)
    rows = []
    for key in keys:
        old = every[key].old
        there = [found.get(key) for found in by_key]
        values = [old if c is None else c.new for c in there]
        fracs = [_unchanged(old) if c is None else c.change_frac for c in there]
        rows.append((key, old, *values, *fracs))
    return rows


def _unchanged(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return 0.0 if is_number else None


def _raw_changes(names: Sequence[str], changed: Sequence[list[ChangedValue]]) -> Table | None:
    rows = _changed_rows(changed)
    return Table(_columns(names), rows) if rows else None


def _shown_changes(
    names: Sequence[str],
    changed: Sequence[list[ChangedValue]],
    because: Mapping[str, list[tuple[str, float, float]]],
) -> Table | None:
    n, columns = len(names), _columns(names)
    rows = [
        (row[0], *(shown(row[0], v) for v in row[1 : n + 1]), *row[n + 1 :])
        for row in _changed_rows(changed)
    ]
    if any(because.values()):
        columns.append(Column("because", "because", right=False))
        rows = [(*row, _because(because[row[0]])) for row in rows]
    return Table(columns, rows) if rows else None


def _listed(names: Sequence[str], changed: Sequence[list[ChangedValue]]) -> list[Any]:
    """List the changes as data; of more than two things each says whose it is."""
    if len(changed) == 1:
        return list(changed[0])
    return [
        {"name": name, "key": c.key, "old": c.old, "new": c.new, "change_frac": c.change_frac}
        for name, found in zip(names[1:], changed, strict=True)
        for c in found
    ]
