"""The catalogue of causes, from `presets/cause`: one file a group."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from gpuscale.core.diagnosis.causes import Cause, Sign
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_files, shipped
from gpuscale.io.toml import read_toml

REQUIRED = "word title shows often size signs cost test shows_if shows_else remedy source".split()
OPTIONAL = ("kinds", "needs", "options", "normal_if", "words")


@lru_cache(maxsize=1)
def load_causes() -> tuple[Cause, ...]:
    """Read the catalogue.

    Raises GpuscaleError for a key that is missing or not known.
    """
    found = []
    for name, path in preset_files("cause").items():
        table = read_toml(path)
        for entry in table["cause"]:
            found.append(_cause(name, table, entry))
    return tuple(found)


@lru_cache(maxsize=4)
def load_table(name: str) -> dict[str, Any]:
    """Read a table beside the causes: `_words`, by which descriptions are understood, or others."""
    return read_toml(shipped(f"cause/{name}.toml"))


def first_of(table: dict[str, str], text: str) -> str | None:
    """Return the first name of a table whose words stand in a text."""
    return next((name for name, words in table.items() if re.search(words, text)), None)


def told(name: str, text: str) -> re.Match[str] | None:
    """Find the words of a name in a text.

    >>> told("serving", "vLLM 0.9") is not None, told("moe", "llama-7b") is not None
    (True, False)
    """
    return re.search(load_table("_words")[name], text, re.IGNORECASE)


def _cause(name: str, table: dict[str, Any], entry: dict[str, Any]) -> Cause:
    for key in entry:
        if key not in (*REQUIRED, *OPTIONAL):
            raise GpuscaleError(f"presets/cause/{name}.toml: unknown key `{key}`")
    for key in REQUIRED:
        if key not in entry:
            raise GpuscaleError(f"presets/cause/{name}.toml: {entry.get('word')} has no `{key}`")
    texts = {k: entry[k] for k in REQUIRED if isinstance(entry[k], str)}
    return Cause(
        **texts,
        group=table["group"],
        verdict=table["verdict"],
        shows=tuple(entry["shows"]),
        often=float(entry["often"]),
        size=(float(entry["size"][0]), float(entry["size"][1])),
        kinds=tuple(entry.get("kinds", ())),
        needs=tuple(entry.get("needs", ())),
        options=entry.get("options", {}),
        normal_if=tuple(Sign(s[0], s[1], 1.0, "") for s in entry.get("normal_if", ())),
        words=entry.get("words", {}),
        signs=tuple(Sign(s[0], s[1], float(s[2]), s[3]) for s in entry["signs"]),
    )
