"""Plans side by side: headline numbers, and the parts that make the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuscale.answers.compare.differences import ChangedPart, FigureRow, TotalDifference
from gpuscale.answers.compare.things import Thing
from gpuscale.core.words import MEMORY_PARTS, STEP_PARTS
from gpuscale.meant import packaged
from gpuscale.render.document import Block, Column, Table, Text


def is_plan(result: Any) -> bool:
    """Whether a result is that of one training plan; a scan and serving have no step."""
    if not isinstance(result, dict):
        return False
    step, memory = result.get("step"), result.get("memory")
    return (
        isinstance(step, dict)
        and isinstance(step.get("expected"), dict)
        and isinstance(memory, dict)
        and isinstance(result.get("layout"), dict)
    )


def headline(result: Mapping[str, Any]) -> dict[str, Any]:
    """Headline numbers of a plan, then its layout, by dotted key."""
    run = result.get("run")
    whole = (
        {**result, **{f"run.{k}": v for k, v in run.items()}} if isinstance(run, dict) else result
    )
    found = {key: whole.get(key) for key in packaged("labels.toml")["plan"]}
    return found | {f"layout.{key}": value for key, value in result["layout"].items()}


def headline_rows(things: Sequence[Thing]) -> list[FigureRow]:
    """Headlines and layouts side by side; of a layout's numbers a ratio says nothing."""
    from gpuscale.answers.compare.differences import side_by_side

    rows = side_by_side([headline(thing.result) for thing in things])
    none = (None,) * (len(things) - 1)
    return [replace(r, ratios=none) if r.key.startswith("layout.") else r for r in rows]


def label(key: str) -> tuple[str, str]:
    """Words and dimension of a headline."""
    words, dimension = packaged("labels.toml")["plan"].get(key) or (key.removeprefix("layout."), "")
    return words, dimension


def _numbers(table: Mapping[str, Any], suffix: str, without: str) -> dict[str, float]:
    return {
        k: v
        for k, v in table.items()
        if k.endswith(suffix) and k != without and isinstance(v, (int, float))
    }


def splits(things: Sequence[Thing]) -> list[dict[str, Any]]:
    """Differences of the expected step and of the memory of each plan against the first one."""
    from gpuscale.answers.compare.differences import split_difference

    first, found = things[0].result, []
    for thing in things[1:]:
        for of, suffix, aside in (
            ("step", "_s", ("straggler_s", "untuned_s")),
            ("memory", "_bytes", ()),
        ):
            one, other = (
                _numbers(r[of]["expected"] if of == "step" else r[of], suffix, f"total{suffix}")
                for r in (first, thing.result)
            )
            split = split_difference(one, other, aside)
            found.append({"name": thing.name, "of": of, "split": split})
    return found


def split_record(found: Mapping[str, Any]) -> dict[str, Any]:
    """Write a difference as data: the total's, the part that explains most of it, all parts."""
    split: TotalDifference = found["split"]
    return {
        "name": found["name"],
        "of": found["of"],
        "delta": split.delta,
        "main_part": split.main.key if split.main else None,
        "main_delta": split.main.delta if split.main else None,
        "parts": list(split.parts),
    }


def part_blocks(things: Sequence[Thing], found: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Tables of the parts, each with the sentence that says what makes the difference."""
    names = [thing.name for thing in things]
    made: list[Block] = []
    for of, title, words, faster in (
        (
            "step",
            "Where the step differs (expected; communication: what stays exposed)",
            STEP_PARTS,
            ("slower", "faster"),
        ),
        (
            "memory",
            "Where the memory differs (fullest stage)",
            MEMORY_PARTS,
            ("takes more memory", "takes less memory"),
        ),
    ):
        mine = [f["split"] for f in found if f["of"] == of]
        made.append(_table(names, mine, words, title))
        lines = [
            sentence(name, names[0], split, words, faster)
            for name, split in zip(names[1:], mine, strict=True)
        ]
        made.append(Text("\n".join(lines)))
    return made


def _table(
    names: Sequence[str], mine: Sequence[TotalDifference], words: Mapping[str, str], title: str
) -> Table:
    from gpuscale.render.explain import amount

    parts: list[dict[str, ChangedPart]] = [{p.key: p for p in split.parts} for split in mine]
    keys = list(dict.fromkeys(key for part in parts for key in part))
    keys.sort(key=lambda k: list(words).index(k) if k in words else len(words))
    rows = []
    for key in keys:
        there = [part.get(key) for part in parts]
        first = next(p.first for p in there if p is not None)
        values = [p.value if p else 0.0 for p in there]
        if any(v != first for v in values):
            shown = [amount(key, v) for v in (first, *values)]
            rows.append((words.get(key, key), *shown, *(signed(key, v - first) for v in values)))
    columns = [Column("part", "part", right=False), *(Column(n, n) for n in names)]
    alone = "difference" if len(names) == 2 else "{} differs by"
    columns += [Column(f"difference {n}", alone.format(n)) for n in names[1:]]
    return Table(columns, rows, title)


def signed(key: str, value: float) -> str:
    """Write a difference with its sign."""
    from gpuscale.render.explain import amount

    return ("+" if value > 0 else "-" if value < 0 else "") + amount(key, abs(value))


def sentence(
    name: str, first: str, split: TotalDifference, words: Mapping[str, str], senses: tuple[str, str]
) -> str:
    """Say which part makes most of the difference."""
    main, against = split.main, split.against
    if main is None:
        return f"{name} and {first}: no difference"
    unit = main.key
    sense = senses[0] if split.delta > 0 else senses[1]
    text = (
        f"{name} is {sense}" if sense in ("slower", "faster") else f"{name} {sense}"
    ) + f" than {first}, mainly by {words.get(unit, unit)}: {signed(unit, main.delta)} of "
    text += signed(unit, split.delta)
    if against is not None and abs(against.delta) > 0.1 * abs(split.delta):
        words_against = words.get(against.key, against.key)
        text += f"; against it {words_against}: {signed(against.key, against.delta)}"
    return text
