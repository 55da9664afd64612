"""The catalogue of causes, from `presets/cause`: one file a group."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from gpuscale.core.diagnosis.causes import Cause, Sign
from gpuscale.io.presets import OWN, preset_files, shipped
from gpuscale.io.spec_errors import checked
from gpuscale.io.toml import Table, read_toml


@lru_cache(maxsize=1)
def load_causes() -> tuple[Cause, ...]:
    """Read the catalogue; the package's own is held against `Cause` by a test, not at each start.

    Raises GpuscaleError for a key of another's that is missing or not known.
    """
    found = []
    for name, path in preset_files("cause").items():
        table = read_toml(path)
        shared = {key: table[key] for key in ("group", "verdict")}
        where = f"presets/cause/{name}.toml"
        for entry in table["cause"]:
            own = path.parents[1] in OWN
            found.append(_made(entry | shared) if own else checked(Cause, entry | shared, where))
    return tuple(found)


def _made(entry: Table) -> Cause:
    made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    made |= {k: tuple(Sign(*s) for s in entry.get(k, ())) for k in ("signs", "normal_if")}
    return Cause(**made)


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
