"""Typed access to the keys of a `config.json`, with the defaults that transformers assumes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import Table, read_toml

MAX_INT = 10**9
STRUCTURE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


@lru_cache(maxsize=1)
def family_tables() -> Table:
    """Tables of `families.toml`: names of types and keys, and the rows of families."""
    return read_toml(Path(__file__).with_name("hf_families.toml"))


def spellings(key: str) -> tuple[str, ...]:
    """Spellings of a key, in the order in which they are tried."""
    return (key, *family_tables()["spellings"].get(key, ()))


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Table]:
    text = Path(__file__).with_name("hf_defaults.json").read_text("utf-8")
    table: dict[str, Table] = json.loads(text)
    return table


class Keys:
    """The keys of one config: checked when read, with a note of what was assumed.

    `table`: the config, or the text part of a multimodal one. `model_type`: whose defaults count
    for missing keys; one without defaults has none. `where`: name of the file in errors.
    """

    def __init__(self, table: Mapping[str, Any], model_type: str, where: str) -> None:
        self.table = table
        self.where = where
        self.model_type = model_type
        self.defaults = _defaults().get(model_type, {}) if model_type else {}
        self.assumed: list[str] = []

    def find(self, key: str) -> Any:
        """Value in the file under any spelling, else the default, else None; null is missing."""
        names = spellings(key)
        for name in names:
            if self.table.get(name) is not None:
                return self.table[name]
        if any(name in self.table for name in names):
            return None  # null in the file is no default
        for name in names:
            if name in self.defaults:
                if key in STRUCTURE or key in ("intermediate_size", "moe_intermediate_size"):
                    note = f"{key}={self.defaults[name]}"
                    if note not in self.assumed:
                        self.assumed.append(note)
                return self.defaults[name]
        return None

    def given(self, key: str) -> bool:
        """Whether the file itself has the key under any spelling."""
        return any(self.table.get(n) is not None for n in spellings(key))

    def error(self, key: str, problem: str) -> GpuscaleError:
        """Error that names file and key."""
        return GpuscaleError(f"{self.where}: {key}: {problem}")

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Whole number of at least `least`; `default` None means that the key is needed."""
        value = self.find(key)
        if value is None:
            if default is None:
                raise self.error(key, "this key is required and missing")
            return default
        return self._whole(key, value, least)

    def optional(self, key: str, least: int = 1) -> int | None:
        """Whole number or None; a zero counts as absent where `least` is 1."""
        value = self.find(key)
        if value is None or value is False or (value == 0 and least == 1):
            return None
        return self._whole(key, value, least)

    def first(self, *keys: str) -> int | None:
        """Read the first of several keys that is there and not zero, or None."""
        return next((n for n in map(self.optional, keys) if n), None)

    def _whole(self, key: str, value: Any, least: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INT:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"a whole number is wanted, got {_short(value)}")
        if not least <= value <= MAX_INT:
            raise self.error(key, f"must be from {least} to {MAX_INT:.0e}, got {_short(value)}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Truth value."""
        value = self.find(key)
        if value is None:
            return default
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise self.error(key, f"true or false is wanted, got {_short(value)}")

    def text(self, key: str, default: str = "") -> str:
        """Text."""
        value: str | None = self._of(str, "text", key, self.find(key))
        return default if value is None else value

    def sequence(self, key: str) -> list[Any] | None:
        """List or None."""
        value: list[Any] | None = self._of(list, "a list", key, self.table.get(key))
        return value

    def _of(self, kind: type, wanted: str, key: str, value: Any) -> Any:
        """Value that is of a kind, or None."""
        if value is not None and not isinstance(value, kind):
            raise self.error(key, f"{wanted} is wanted, got {_short(value)}")
        return value

    def sub(self, key: str) -> Keys | None:
        """Read a table below, without defaults, or None."""
        value = self._of(dict, "a table", key, self.table.get(key))
        return None if value is None else Keys(value, "", f"{self.where}: {key}")

    def below(self, key: str) -> Keys:
        """Read a table below, without defaults; an empty one where there is none."""
        return self.sub(key) or Keys({}, "", self.where)

    def largest(self, key: str) -> int:
        """Read a whole number, or the largest of a list with one per layer."""
        value = self.find(key)
        if not isinstance(value, list):
            return self.integer(key)
        numbers = [self._whole(key, item, 1) for item in value]
        if not numbers:
            raise self.error(key, "the list is empty")
        return max(numbers)

    def per_layer(self, key: str, n_layers: int) -> list[Any] | None:
        """Read a list with an entry per layer; more entries (prediction layers) are dropped."""
        values = self.sequence(key)
        if values is None:
            return None
        if len(values) < n_layers:
            raise self.error(key, f"has {len(values)} entries for {n_layers} layers")
        return values[:n_layers]

    def layer_numbers(self, key: str) -> set[int] | None:
        """Layer numbers, as a list or as text with commas."""
        value = self.table.get(key)
        if value is None:
            return None
        items: Sequence[Any] = value.split(",") if isinstance(value, str) else value
        try:
            return {int(i) for i in items if str(i).strip()}
        except (TypeError, ValueError):
            raise self.error(key, f"layer numbers are wanted, got {_short(value)}") from None


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
