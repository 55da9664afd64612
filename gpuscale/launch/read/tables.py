"""YAML of launch files: several documents in one file, tags of other programs left as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuscale.errors import GpuscaleError, NoLaunch
from gpuscale.io.toml import Table

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
    peft = table.get("peft_config")
    peft = peft if isinstance(peft, dict) else {}
    quant = table.get("quant_config")
    bits = str(quant.get("quantization_bit", "4")) if isinstance(quant, dict) else ""
    dist = table.get("dist_config")
    dist = dist if isinstance(dist, dict) else {}
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
    from gpuscale.io.toml import parse_toml

    try:
        if name.endswith(".toml"):
            return parse_toml(text, name)
        table = json.loads(text) if name.endswith(".json") else yaml_tables(name, text)[0]
    except (GpuscaleError, ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None
