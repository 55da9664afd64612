"""A table of options as text: YAML, JSON, TOML, flags or overrides of a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuscale.launch.dialects.nested import nest


def text_of(form: str, table: Mapping[str, Any]) -> str:
    """Text of a file.

    >>> print(text_of("yaml", {"model.lora_rank": 8, "bf16": True}), end="")
    model:
      lora_rank: 8
    bf16: true
    """
    if form == "json":
        return json.dumps(nest(table), indent=2) + "\n"
    if form == "toml":
        from gpuscale.io.toml_out import table_to_toml

        return table_to_toml(nest(table))
    import yaml

    return str(yaml.safe_dump(nest(table), sort_keys=False, allow_unicode=True))


def words_of_command(form: str, table: Mapping[str, Any]) -> list[str]:
    """Words of a command: `--key value`, or `key=value`; a true flag stands alone.

    `form`: "values" says true and false too, as options that may be None want it.

    >>> words_of_command("flags", {"bf16": True, "targets": ["q", "v"], "stage": 2})
    ['--bf16', '--targets', 'q', 'v', '--stage', '2']
    >>> words_of_command("overrides", {"a.b": [1, 2], "c": False})
    ['a.b=[1,2]', 'c=false']
    """
    words: list[str] = []
    for key, value in table.items():
        if form == "overrides":
            words.append(f"{key}={said(value)}")
        elif value is True and form == "flags":
            words.append(f"--{key}")
        elif isinstance(value, bool):
            words += [f"--{key}", said(value)]
        elif isinstance(value, (list, tuple)):
            words += [f"--{key}", *map(str, value)]
        else:
            words += [f"--{key}", str(value)]
    return words


def said(value: Any) -> str:
    """Value as an override says it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{said(v)}" for k, v in value.items()) + "}"
    return f"[{','.join(map(said, value))}]" if isinstance(value, (list, tuple)) else str(value)
