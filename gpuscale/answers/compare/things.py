"""What `gpuscale compare` is given, told apart and read; key figures of hardware, models, plans."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import WhatIf
from gpuscale.answers.compare.differences import (
    ChangedPart,
    FigureRow,
    TotalDifference,
    side_by_side,
    split_difference,
)
from gpuscale.core.records import dataclass, field, replace
from gpuscale.core.words import MEMORY_PARTS, STEP_PARTS
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.inputs import load_inputs
from gpuscale.io.presets import find_preset, known_names, looks_like_path
from gpuscale.io.text import read_text, read_toml
from gpuscale.meant import packaged
from gpuscale.render.document import Block, Column, Table, Text, amount
from gpuscale.render.text import plain

if TYPE_CHECKING:
    from gpuscale.specs.hardware import ClusterSpec


def figures(asked: WhatIf, kind: str, arg: str) -> tuple[str, dict[str, object], tuple[str, ...]]:
    """Name, key figures and warnings of a preset or a file, what-if changes applied."""
    if kind == "model":
        return _model(asked, arg)
    loaded = load_inputs(asked, **{kind: arg})  # type: ignore[arg-type]
    if kind == "gpu":
        known = {k: getattr(loaded.gpu, k) for k in packaged("labels.toml")[kind]}
        return loaded.gpu.name, known, loaded.warnings
    return loaded.cluster.name, _cluster(loaded.cluster), loaded.warnings


def _cluster(spec: ClusterSpec) -> dict[str, object]:
    found: dict[str, object] = {}
    for key in packaged("labels.toml")["cluster"]:
        owner = spec.gpu if key.startswith("gpu.") else spec
        found[key] = getattr(owner, key.removeprefix("gpu."))
    levels = [
        f"{v.name}" + (f" {v.oversubscription:g}:1" if v.oversubscription != 1 else "")
        for v in spec.levels
    ]
    return found | {"gpu": spec.gpu.name, "levels": ", ".join(levels) or "one, flat"}


def _model(asked: WhatIf, arg: str) -> tuple[str, dict[str, object], tuple[str, ...]]:
    """Take the figures from the answer of `gpuscale model`, at its default of 8,192 tokens."""
    from gpuscale.answers.parts.asked import Model

    document = Model(arg, seq_len=8192, set=asked.set, calibration=asked.calibration).answer()
    result = plain(document.result)
    groups = result["groups"]
    result["mixers"] = "; ".join(dict.fromkeys(g["mixer"] for g in groups))
    result["ffns"] = "; ".join(dict.fromkeys(g["ffn"] for g in groups))
    known = {k: result[k] for k in packaged("labels.toml")["model"]}
    return result["name"], known, tuple(document.warnings)


SPECS = ("gpu", "cluster", "model")
KIND_TEXT = {
    "gpu": "a GPU",
    "cluster": "a cluster",
    "model": "a model",
    "answer": "a saved answer",
    "job": "a planning job",
}
LARGEST = 1e100  # of a number in a saved answer
MODEL_KEYS = ("model_type", "architectures", "hidden_size", "n_embd", "d_model")


@dataclass(frozen=True, slots=True)
class Thing:
    """One of the things compared: an answer, or the figures of a spec."""

    name: str
    result: Any
    command: str = ""  # of an answer
    inputs: Mapping[str, Any] = field(default_factory=dict)
    explain: Any = None
    saved: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """An argument and what it can be, the first meaning first; `data` is JSON that was read."""

    arg: str
    kinds: tuple[str, ...]
    data: Any = None


def read_things(asked: WhatIf, args: Sequence[str]) -> tuple[str, list[Thing]]:
    """Tell what the arguments are and read them.

    Returns: kind (``answer``, ``gpu``, ``cluster`` or ``model``) and the things, in order. Raises
    GpuscaleError if one cannot be read, or they are not of one kind.
    """
    found = [given(arg) for arg in args]
    shared = [k for k in found[0].kinds if all(k in g.kinds for g in found)]
    if shared and shared[0] in SPECS:
        return shared[0], _distinct([_figures(asked, shared[0], arg) for arg in args], args)
    if not all(g.kinds[0] in ("answer", "job") for g in found):
        other = next(g for g in found if not set(g.kinds) & set(found[0].kinds))
        raise GpuscaleError(
            f"{args[0]} is {KIND_TEXT[found[0].kinds[0]]} and {other.arg} "
            f"{KIND_TEXT[other.kinds[0]]}",
            "things of one kind can be compared",
        )
    if asked.set and not any(g.kinds[0] == "job" for g in found):
        raise GpuscaleError("--set: a saved answer cannot be changed", "change the job")
    things = [
        _answer(g.arg, g.data) if g.kinds[0] == "answer" else _job(asked, g.arg) for g in found
    ]
    for thing in things[1:]:
        if thing.command != things[0].command:
            raise GpuscaleError(
                f"{things[0].name} answers `{things[0].command}` and {thing.name} answers "
                f"`{thing.command}`",
                "two answers of one command can be compared",
            )
    return "answer", things


def given(arg: str) -> Given:
    """Say what an argument can be; a GPU's name also means the node that it usually sits in."""
    if arg == "-":
        raise GpuscaleError("compare reads no standard input", "give names or files")
    is_file = os.path.exists(arg) and not os.path.isdir(arg)
    if looks_like_path(arg) and (is_file or arg.lower().endswith((".toml", ".json"))):
        return _given_file(arg)
    found = [kind for kind in SPECS if find_preset(kind, arg)]
    if "gpu" in found and "cluster" not in found:
        found.insert(1, "cluster")
    if found:
        return Given(arg, tuple(found))
    if is_file:
        return _given_file(arg)
    if looks_like_path(arg):  # a folder, or a name of a model hub: its reader says what is wrong
        return Given(arg, ("model",))
    known = [name for kind in SPECS for name in known_names(kind)]
    raise unknown_name("GPU, cluster, model or file", arg, known)


def _given_file(path: str) -> Given:
    if not path.lower().endswith(".toml"):
        data = _json(path)
        is_model = isinstance(data, dict) and any(k in data for k in MODEL_KEYS)
        return Given(path, ("model",) if is_model and "schema" not in data else ("answer",), data)
    table = read_toml(path)
    if isinstance(table.get("job"), list):
        raise GpuscaleError(
            f"{path}: holds jobs for `gpuscale check`",
            "compare takes one planning job a file, as `gpuscale plan --show-job` prints",
        )
    if "hbm_bytes" in table:
        return Given(path, ("gpu", "cluster"))
    if "gpus_per_node" in table or "gpu" in table:
        return Given(path, ("cluster",))
    is_job = isinstance(table.get("model"), str) or "gpus" in table
    return Given(path, ("job",) if is_job else ("model",))


def _json(path: str) -> Any:
    def number(text: str) -> float:
        value = float(text)
        if not abs(value) <= LARGEST:
            raise GpuscaleError(f"{path}: {text[:20]} is beyond any answer of gpuscale")
        return value

    def whole(text: str) -> int:
        number(text)
        return int(text)

    try:
        return json.loads(
            read_text(path), parse_float=number, parse_int=whole, parse_constant=number
        )
    except (ValueError, RecursionError):
        raise GpuscaleError(f"{path}: is not JSON") from None


def _answer(path: str, found: Any) -> Thing:
    """Take a saved answer, checked for being one."""
    keys = {"schema", "command", "inputs", "result"}
    whole = isinstance(found, dict) and keys <= set(found) and found["schema"] in (1, 2)
    if not whole or not isinstance(found["inputs"], dict):
        raise GpuscaleError(
            f"{path}: is no answer of gpuscale", "save one with `--json > FILE` or `-o FILE.json`"
        )
    return Thing(
        path, found["result"], str(found["command"]), found["inputs"], found.get("explain"), True
    )


def _job(asked: WhatIf, path: str) -> Thing:
    """Plan a job, as `gpuscale plan --job` does."""
    from gpuscale.answers.training.plan import Plan

    document = Plan(job=path, set=asked.set, calibration=asked.calibration).answer()
    return Thing(
        path,
        plain(document.result),
        "plan",
        plain(document.inputs),
        plain(document.terms),
        warnings=tuple(f"{path}: {w}" for w in document.warnings),
    )


def _figures(asked: WhatIf, kind: str, arg: str) -> Thing:

    name, found, warnings = figures(asked, kind, arg)
    return Thing(name, found, warnings=warnings)


def _distinct(things: list[Thing], args: Sequence[str]) -> list[Thing]:
    """Call things of one name by what was typed."""
    names = [thing.name for thing in things]
    if len(set(names)) == len(names):
        return things
    return [replace(t, name=arg) for t, arg in zip(things, args, strict=True)]


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
        table = _table(names, mine, words, title)
        made.append(table if table.rows else Text(f"Parts of the {of}:"))
        lines = [
            sentence(name, names[0], split, words, faster)
            for name, split in zip(names[1:], mine, strict=True)
        ]
        made.append(Text("\n".join(lines)))
    return made


def _table(
    names: Sequence[str], mine: Sequence[TotalDifference], words: Mapping[str, str], title: str
) -> Table:
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
