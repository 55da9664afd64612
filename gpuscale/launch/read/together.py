"""Files of one launch: those that name others are followed, then what all say is one record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.calibration import merged
from gpuscale.io.toml import Table
from gpuscale.launch.dialects.nested import nest
from gpuscale.launch.found import UNSET, Found
from gpuscale.launch.read.tables import MOST_DOCUMENTS, table_of

Look = Callable[[str], "tuple[str, str] | None"]
"""Name and text of a file by the path as a launch file writes it; None where it is not here."""
Read = Callable[[str, str, Mapping[str, Any]], "list[Found]"]
"""Records of a file by its name, its text and the options that it is started with."""
MOST_FILES = 16
ANYWHERE = "*/"
"""Beginning of what is looked for by its name: a script goes where it starts its programs."""
OPTIONAL = "?"
"""Beginning of the path of a file that is read where it is here and not asked for elsewhere."""


def last_of(path: str) -> str:
    """Name of a file without its folders."""
    shown = re.sub(UNSET + r"\$\{(\w+)[^}]*\}", r"$\1", path.rstrip("/"))
    return re.split(r"[/=\\]", shown)[-1].replace(UNSET, "")


def followed(found: Sequence[Found], given: Sequence[str], look: Look, read: Read) -> list[Found]:
    """Read the files that those of a launch name, and what these name.

    `found`: records of the files given. `given`: names of these files. `look`: finds another.
    `read`: reads it. Returns: records of all. A file that is not here stays in `Found.beside`; one
    that says nothing is dropped.
    """
    told = {last_of(name) for name in given}
    known = told | {last_of(one.source) for one in found}
    queue, leading, every = list(found), [], []  # type: list[Found], list[Found], list[Found]
    while queue:
        one = queue.pop(0)
        every.append(one)
        if one.program and len(known) < MOST_FILES:
            other = look(one.program) or look(ANYWHERE + last_of(one.program))
            if other is not None:
                more = _quiet(read, other, one.options)
                known.add(last_of(one.program))
                for each in more:
                    each.source = last_of(one.program)
                leading += [f for f in more if not f.defaults]
                queue += more
        missing = []
        for path in one.beside:
            if last_of(path) in known:
                over_given = _recipe(one, look(path) if last_of(path) in told else None, read)
                leading, queue = leading + over_given, queue + over_given
                continue
            other = look(path.removeprefix(OPTIONAL)) if len(known) < MOST_FILES else None
            if other is None:
                missing += [] if path.startswith(OPTIONAL) else [path]
                continue
            known.add(last_of(path))
            more = _quiet(read, other, {} if one.program else one.options)
            recipe = _recipe(one, other, read)
            more = recipe or more
            for each in more:
                each.source = each.source or last_of(path)
            leading += more if recipe or (one.options and not one.program) else []
            queue += more
        one.beside = missing
    return leading + [f for f in every if all(f is not other for other in leading)]


def named_among(documents: Mapping[str, str], found: Sequence[Found]) -> list[str]:
    """Names of the documents of a script that its commands name; all where they name none."""
    named = {last_of(path) for one in found for path in one.beside}
    return [name for name in documents if last_of(name) in named] or list(documents)


def _recipe(one: Found, file: tuple[str, str] | None, read: Read) -> list[Found]:
    """Read a recipe of a trainer with the options that a command puts over it; else nothing."""
    if not one.program or file is None or not file[0].endswith((".yaml", ".yml")):
        return []
    more = _quiet(read, file, one.options)
    for each in more:
        each.source = each.source or last_of(file[0])
    return more if any(f.kind == "trainer" for f in more) else []


def _quiet(read: Read, file: tuple[str, str], options: Mapping[str, Any]) -> list[Found]:
    """Read a file that another names; give none where it is of no known kind."""
    try:
        return read(*file, options)
    except GpuscaleError:
        return []


FIELDS = tuple(f.name for f in fields(Found))


def joined(found: Sequence[Found], rank: Mapping[str, int]) -> Found:
    """One record of all: the training file decides, the others fill in what it leaves out.

    `rank`: order of the kinds.
    """
    empty = Found("")
    first, *others = sorted(found, key=lambda f: rank.get(f.kind, 99))
    for other in others:
        for field in FIELDS:
            if field in ("kind", "version", "software", "program", "options", "source"):
                continue
            value, new = getattr(first, field), getattr(other, field)
            if field == "method" and other.kind in SHARDED and first.kind != "program":
                continue  # Megatron's pre-training with a DeepSpeed file stays so
            recipe = first.kind == "trainer" and other.kind == "program"
            if field in ("not_understood", "asked") and (recipe or first.source.endswith(".py")):
                continue  # the program itself reads them
            if field == "unread":
                _unread(first, other)
            elif field in first.unread and field == "n_gpus":
                continue
            elif field.removesuffix("_name") in first.unread and other.source and not first.source:
                continue  # a command says it, by what is not known
            elif isinstance(value, list):
                value += [v for v in new if v not in value]
            elif isinstance(value, dict):
                value.update({k: v for k, v in new.items() if k not in value})
            elif value == getattr(empty, field) and field not in first.places:
                setattr(first, field, new)
        if (other.defaults or first.defaults) and other.method in ADAPTED:
            first.method = other.method if first.method in ("full", "lora") else first.method
        if first.software in ("", "hf-trainer", "llama-factory", "fsdp") and other.kind in SHARDED:
            first.software = other.software
    if first.method == "full":
        first.lora_rank = None
    # a recipe that is named says what a file beside it leaves to it
    if first.model_name and first.kind == "megatron-bridge":
        first.unread.pop("layout", None)
    _named_alone(first)
    return first


def _unread(first: Found, other: Found) -> None:
    """Join what is not known: what another says in numbers is known."""
    empty = Found("")
    for field, text in other.unread.items():
        name = "model_name" if field == "model" else field
        if field == "layout" and other.kind == "program":
            continue
        if getattr(first, name, None) == getattr(empty, name, None) and field not in first.rl:
            first.unread.setdefault(field, text)
    if first.source:
        for field in set(first.unread) - {"n_gpus"}:
            name = "model_name" if field == "model" else field
            if getattr(other, name, None) != getattr(empty, name, None):
                del first.unread[field]


ADAPTED = ("lora", "qlora", "dora")
SHARDED = ("deepspeed", "accelerate")
"""Kinds that say how another's training is sharded."""


def composed(table: Table, look: Look, depth: int = 0) -> Table:
    """Put the files that Hydra's `defaults` name, where they are here, below a table's own keys."""
    named = table.get("defaults")
    for one in reversed(named[:MOST_DOCUMENTS]) if isinstance(named, list) and depth < 4 else ():
        path, name = next(iter(one.items()), ("", "")) if isinstance(one, dict) else ("", one)
        group, _, package = str(path).rpartition(" ")[2].partition("@")
        file = look(f"{group}/{name}.yaml".lstrip("/"))
        if file and (inner := table_of(*file)):
            place = package or group.replace("/", ".")
            inner = composed(inner, look, depth + 1)
            table = merged(nest({place: inner}) if place else inner, table)
    return table


def _named_alone(found: Found) -> None:
    """Take what the name of a DeepSpeed file says that is not here."""
    for path in list(found.beside):
        name = last_of(path)
        if not name.endswith((".json", ".conf")) or found.zero_stage is not None:
            continue
        if stage := re.search(r"(?:z|zero|stage)[_-]?([0-3])", name.lower()):
            found.zero_stage = int(stage[1])
            found.offload_optimizer = bool(re.search(r"(?<!no_)(?<!no-)offload", name.lower()))
            found.offload_parameters = found.offload_optimizer and found.zero_stage == 3
            found.notes.append(f"{name} is not here: what its name says is taken")
            found.beside.remove(path)
