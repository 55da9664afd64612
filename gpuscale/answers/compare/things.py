"""What `gpuscale compare` is given, told apart and read; key figures of hardware and models."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import WhatIf
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.inputs import load_inputs
from gpuscale.io.presets import find_preset, known_names, looks_like_path
from gpuscale.io.toml import read_toml
from gpuscale.meant import packaged

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec


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
    from gpuscale.answers.model import Model
    from gpuscale.render.data import plain

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
    from gpuscale.io.text import read_text

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
    from gpuscale.answers.plan import Plan
    from gpuscale.render.data import plain

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
