"""Writing a calibration overlay: nested tables of numbers and text as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(tables: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """TOML text of nested mappings of float, int, str.

    Examples
    --------
    >>> print(to_toml({"site": {"step_time_factor": 1.02}}), end="")
    [site]
    step_time_factor = 1.02
    """
    plain = {k: v for k, v in tables.items() if not isinstance(v, Mapping)}
    text = ""
    if plain:
        text += f"[{'.'.join(map(_key, path))}]\n" if path else ""
        text += "".join(f"{_key(k)} = {_value(v)}\n" for k, v in plain.items())
    for key, value in tables.items():
        if isinstance(value, Mapping):
            inner = to_toml(value, (*path, key))
            text += ("\n" if text and inner else "") + inner
    return text


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)


def _value(value: float | int | str) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
