"""The catalogue of causes, from `presets/cause`: one file a group."""

from __future__ import annotations

import re
from functools import lru_cache

from gpuscale.core.diagnosis.causes import Cause
from gpuscale.io.presets import preset_files, shipped
from gpuscale.io.spec_errors import checked
from gpuscale.io.toml import Table, read_toml


@lru_cache(maxsize=1)
def load_causes() -> tuple[Cause, ...]:
    """Read the catalogue.

    Raises GpuscaleError for a key that is missing or not known.
    """
    found = []
    for name, path in preset_files("cause").items():
        table = read_toml(path)
        shared = {key: table[key] for key in ("group", "verdict")}
        where = f"presets/cause/{name}.toml"
        found += [checked(Cause, entry | shared, where) for entry in table["cause"]]
    return tuple(found)


@lru_cache(maxsize=4)
def load_table(name: str) -> Table:
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
