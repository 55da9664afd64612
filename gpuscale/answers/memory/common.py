"""What the memory answers share: formats, wording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpuscale.core.formats import FORMATS
from gpuscale.core.words import gb
from gpuscale.errors import unknown_name

if TYPE_CHECKING:
    pass


def weight_format(name: str | None, what: str, default: str = "bf16") -> str:
    """Format of served weights or of a cache, by name."""
    word = (name or default).strip().lower()
    if word not in FORMATS:
        raise unknown_name(what, word, FORMATS, f"known: {', '.join(FORMATS)}")
    return word


def rows_max(rows: Iterable[tuple[Any, ...]]) -> float:
    """Return the largest bar: the last cell of each row."""
    return max((float(row[-1]) for row in rows), default=0.0)


def width_text(largest: float, limit: float, word: str) -> str:
    """Say what the full width of the bars is: the limit, or the largest bar if that is more."""
    if largest <= limit:
        return f"full width: {gb(limit)} {word}"
    return f"full width: {gb(largest)}, of which {gb(limit)} is {word}"


def verdict(total: float, usable: float, hbm: float) -> str:
    """Say whether it fits, and by how much."""
    word = "fits" if total <= usable else "does not fit"
    left = usable - total
    by = f"{gb(left)} left" if left >= 0 else f"{gb(-left)} too much"
    return f"{word}: {gb(total)} of {gb(usable)} usable ({gb(hbm)} HBM), {by}"
