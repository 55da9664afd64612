"""Files of one launch: their tables, those that name others, what all say as one record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuscale.core.records import fields
from gpuscale.errors import GpuscaleError, NoLaunch
from gpuscale.io.calibration import merged
from gpuscale.io.text import Table, parse_toml
from gpuscale.launch.dialects.nested import nest
from gpuscale.launch.found import UNSET, Found

MOST_VALUES = 100_000
MOST_DOCUMENTS = 64


def yaml_tables(name: str, text: str) -> list[Table]:
    """Read the mappings of a YAML file.

    Raises GpuscaleError if it is not YAML, or holds no mapping.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Safe, and with tags that it does not know read as what they stand before."""

    for prefix in ("!", "tag:"):
        Loader.add_multi_constructor(prefix, _plain)
    try:
        found = []
        text = re.sub(r"\{\{\s*(\w+)\s*\}\}", r"${\1}", text)  # {{NAME}}, put in by another program
        known = re.sub(r"\$\{[A-Z][A-Z0-9_]*:([^-+=?}][^}]*)\}", r"\1", text)  # ${NAME:default}
        for i, one in enumerate(yaml.load_all(known, Loader)):
            if i == MOST_DOCUMENTS:
                break
            found.append(one)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise NoLaunch(f"{name}: not YAML: {' '.join(str(error).split())[:120]}") from None
    if any(_size(one, {}) > MOST_VALUES for one in found):
        raise GpuscaleError(f"{name}: its aliases make more than {MOST_VALUES:,} values")
    found = [each for one in found for each in (one if isinstance(one, list) else [one])]
    tables = [one for one in found if isinstance(one, dict)]
    if not tables:
        raise NoLaunch(f"{name}: a YAML mapping is expected")
    return tables


def _size(value: Any, known: dict[int, int]) -> int:
    """Count the values of a nested one, those behind an alias as often as they stand."""
    if not isinstance(value, (list, dict)):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES  # of itself within itself
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = min(MOST_VALUES + 1, 1 + sum(_size(one, known) for one in inner))
    return known[id(value)]


def _plain(loader: Any, _tag: str, node: Any) -> Any:
    """Value of a tagged node without its tag."""
    kind = type(node).__name__
    if kind == "MappingNode":
        return loader.construct_mapping(node, deep=True)
    if kind == "SequenceNode":
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


def as_flags(table: Mapping[str, Any]) -> list[str]:
    """Write a table as options of a command: a true one stands alone, an empty one is left out.

    >>> as_flags({"tensor_parallel_size": 2, "--layers": [4, 5], "eager": True, "seed": None})
    ['--tensor-parallel-size', '2', '--layers', '4', '5', '--eager']
    """
    words: list[str] = []
    for key, value in table.items():
        if value is not False and value is not None and value != [] and not isinstance(value, dict):
            values = value if isinstance(value, list) else [] if value is True else [value]
            words += ["--" + str(key).replace("_", "-").lstrip("-"), *map(str, values)]
    return words


def tables_in(value: Any, depth: int = 0) -> Iterator[Table]:
    """Every table of a nested one, itself first."""
    if depth > 20:
        return
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value
    for one in inner if isinstance(value, (dict, list)) else ():
        yield from tables_in(one, depth + 1)


def flat(table: Any) -> Iterator[tuple[str, Any]]:
    """(key, value) of every leaf of a nested table, the key without its path."""
    for one in tables_in(table):
        leaves = ((k, v) for k, v in one.items() if not isinstance(v, (dict, list)))
        yield from ((str(key).rsplit(".", 1)[-1], value) for key, value in leaves)


def key_values(words: Iterable[str]) -> Table:
    """`KEY=VALUE` words of Hydra as a table; a plus before a key adds it."""
    given = (w.lstrip("+") for w in words if re.match(r"\+{0,2}[A-Za-z_][\w.]*=", w))
    return {key: value for key, _, value in (one.partition("=") for one in given)}


def llama_factory_v1(table: Table) -> Table:
    """Put the keys of LLaMA-Factory's next layout under the names of its present one."""
    parts = (table.get(f"{part}_config") for part in ("peft", "quant", "dist"))
    peft, quant, dist = (part if isinstance(part, dict) else {} for part in parts)
    bits = str(quant.get("quantization_bit", "4")) if table.get("quant_config") is not None else ""
    renamed = {
        "model_name_or_path": table.get("model"),
        "finetuning_type": str(peft.get("name", "full")),
        "lora_rank": peft.get("r"),
        "per_device_train_batch_size": table.get("micro_batch_size"),
        "gradient_checkpointing": table.get("enable_activation_checkpointing", False),
        "fsdp": "full_shard" if str(dist.get("name", "")).startswith("fsdp") else None,
        "bf16": table.get("bf16", True),
    } | ({"quantization_bit": int(bits)} if bits.isdigit() else {})
    return {k: v for k, v in (table | renamed).items() if v is not None}


def table_of(name: str, text: str) -> Table | None:
    """Table of a YAML, TOML or JSON file; None where it holds none."""
    try:
        if name.endswith(".toml"):
            return parse_toml(text, name)
        table = json.loads(text) if name.endswith(".json") else yaml_tables(name, text)[0]
    except (GpuscaleError, ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None


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
