"""Words of published tables, and what they stand for: the tables of `data/printed.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.io.tables import read_rows
from gpuscale.io.toml import read_toml

Row = Mapping[str, str]
Rows = str | Path | Sequence[Row]


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    return read_toml(Path(__file__).resolve().parents[2] / "data" / "printed.toml")


def meaning(table: str, text: str) -> str | None:
    """Say what a text stands for by the first pattern that is found in it; None by none.

    Examples
    --------
    >>> meaning("tuner", "HF Trainer 2023 + PEFT zero3"), meaning("zero", "tp4 pp1")
    ('hf-deepspeed', None)
    """
    rows: dict[str, str] = _tables()[table]
    return next((name for words, name in rows.items() if re.search(words, text.lower())), None)


def rows_of(rows: Rows) -> list[Row]:
    """Rows of a CSV file, or the rows themselves."""
    return list(read_rows(rows) if isinstance(rows, (str, Path)) else rows)
