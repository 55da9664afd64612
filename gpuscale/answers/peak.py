"""What answers about memory share: a sum by part, its bars and table, the room that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuscale.core.dataclasses import dataclass
from gpuscale.core.layout import Settled
from gpuscale.core.words import gb
from gpuscale.render.document import Bars, Column, Table


def part_table(rows: Sequence[tuple[str, float]], total_bytes: float, header: str) -> Table:
    """Memory by part, and its sum."""
    columns = (Column("part", "per GPU", right=False), Column("bytes", header, gb))
    return Table(columns, [*rows, ("total", total_bytes)])


def part_bars(
    rows: Sequence[tuple[Any, ...]], limit: float, word: str = "usable", title: str = ""
) -> Bars:
    """Bars of parts (label first, bytes last); their full width is the limit, or the largest."""
    largest = max((float(row[-1]) for row in rows), default=0.0)
    text = f"full width: {gb(limit)} {word}"
    if largest > limit:
        text = f"full width: {gb(largest)}, of which {gb(limit)} is {word}"
    return Bars([(row[0], row[-1], gb(row[-1])) for row in rows], limit, text, title)


@dataclass(frozen=True, slots=True)
class Room(Settled):
    """How likely a job fits the fullest GPU, and how long its step takes."""

    fits_probability: float
    peak_low_bytes: float  # 80 % interval, over what is open
    peak_high_bytes: float
    step_s: float
    step_low_s: float  # 80 % interval
    step_high_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Peak(Room):
    """The same as pretraining and fine-tuning answer `memory`. [byte]."""

    hbm_bytes: float
    headroom_bytes: float
    allocated_bytes: float
    reserved_bytes: float
    nvidia_smi_bytes: float
    ideal_total_bytes: float


Rows = list[tuple[str, float, float]]


def part_rows(ideal: Any, expected: Any, parts: Iterable[tuple[str, str]]) -> Rows:
    """Ideal and expected bytes of each part (field, label) that either has."""
    rows = [(label, getattr(ideal, key), getattr(expected, key)) for key, label in parts]
    return [row for row in rows if row[1] or row[2]]


def compared_table(rows: Rows, ideal: Any, expected: Any) -> Table:
    """Ideal beside expected bytes by part, and their sums."""
    columns = (
        Column("part", "per GPU", right=False),
        Column("ideal_bytes", "ideal", gb),
        Column("expected_bytes", "expected", gb),
    )
    return Table(columns, [*rows, ("total", ideal.total_bytes, expected.total_bytes)])


def counted_rows(r: Peak, peaks: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Peak as different tools count it, and what each moment of a step takes, the largest first."""
    ways = (
        ("as allocated", r.allocated_bytes),
        ("as reserved", r.reserved_bytes),
        ("as nvidia-smi", r.peak_bytes),
    )
    rows = [(name, gb(v), f"{v / 2**30:,.2f} GiB") for name, v in ways]
    ordered = sorted(peaks.items(), key=lambda item: -item[1])
    held = ", ".join(f"{moment} {each / 1e9:,.1f}" for moment, each in ordered)
    return [*rows, ("peak at", ordered[0][0], f"{held} GB")]
