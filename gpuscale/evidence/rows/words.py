"""Words of published tables, and what they stand for: the tables of `data/printed.toml`."""

from __future__ import annotations

import math
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

    >>> meaning("tuner", "HF Trainer 2023 + PEFT zero3"), meaning("zero", "tp4 pp1")
    ('hf-deepspeed', None)
    """
    rows: dict[str, str] = _tables()[table]
    return next((name for words, name in rows.items() if re.search(words, text.lower())), None)


def rows_of(rows: Rows) -> list[Row]:
    """Rows of a CSV file, or the rows themselves."""
    return list(read_rows(rows) if isinstance(rows, (str, Path)) else rows)


def number(text: str | None, low: float = 0.0, high: float = 1e30) -> float | None:
    """Return the positive finite number in `text`; None if there is none or it is out of range."""
    try:
        value = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and low < value <= high else None


def whole(text: str | None, high: int = 10**9) -> int | None:
    """Return the positive whole number in `text`, or None."""
    value = number(text, high=high)
    return round(value) if value is not None and value >= 0.5 else None
