"""Writing a spec as TOML that a person can edit and pass back in."""

from __future__ import annotations

import json
import re
from typing import Any

from gpuscale.core.records import MISSING, fields, is_dataclass
from gpuscale.io.text import Table

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def spec_to_toml(spec: Any) -> str:
    """Text of a spec; keys at their default are left out.

    `spec`: any spec; numbers are written in SI units, so that reading them back changes nothing.
    Returns: TOML, with plain keys first and tables after them; `sources` is always written.
    """
    return "\n".join(_lines(_values(spec), ())) + "\n"


def table_to_toml(table: Table) -> str:
    """Text of a plain table of numbers, texts, lists and tables; None is left out."""
    return "\n".join(_lines(table, ())) + "\n"


def _values(spec: Any) -> Table:
    """Keys that differ from their default; `kind` and required keys always."""
    made = ((f.name, f.default, f.default_factory) for f in fields(spec))
    defaults = {n: d if make is MISSING else make() for n, d, make in made}
    pairs = ((name, getattr(spec, name), default) for name, default in defaults.items())
    return {
        name: _plain(value)
        for name, value, default in pairs
        if value is not None and (name == "kind" or value != default)
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _values(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _lines(table: Table, path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    below = {k: v for k, v in table.items() if isinstance(v, dict)}
    lists = {k: v for k, v in table.items() if isinstance(v, list) and v}
    arrays = {k: v for k, v in lists.items() if all(isinstance(one, dict) for one in v)}
    for key, value in table.items():
        if key in below or key in arrays or value is None:
            continue
        lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in below.items():
        inner = (*path, key)
        body = _lines(value, inner)
        plain = any(not isinstance(v, dict) for v in value.values()) or not value
        header = [f"[{'.'.join(map(_key, inner))}]"] if plain else []
        lines += ["", *header, *(body if plain else body[1:])]
    for key, items in arrays.items():
        for item in items:
            inner = (*path, key)
            lines += ["", f"[[{'.'.join(map(_key, inner))}]]", *_lines(item, inner)]
    return lines


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return _text(str(value))


def _text(text: str) -> str:
    """Quote a basic string; JSON escapes are TOML's, but for DEL and surrogates."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("\x7f", "\\u007f")
