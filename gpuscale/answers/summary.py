"""What answers share: lines of a summary, what each says of --set, a memory's sum by part."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuscale.core.layout import Settled
from gpuscale.core.quantity import format_si
from gpuscale.core.records import dataclass
from gpuscale.core.verdict import SURE
from gpuscale.core.words import gb
from gpuscale.io.inputs import Loaded
from gpuscale.render.document import Bars, Block, Column, Facts, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.core.run.bill import Bill


def tone_of(fits: bool, peak_bytes: float, capacity_bytes: float, width: float = 1.0) -> str:
    """Tone of a verdict: near where the limit lies within the 80 % interval.

    >>> tone_of(True, 40e9, 80e9, 1.1), tone_of(True, 79e9, 80e9, 1.1), tone_of(False, 90e9, 80e9)
    ('good', 'near', 'bad')
    """
    if fits and peak_bytes * width > capacity_bytes:
        return "near"
    return "good" if fits else "bad"


def chance_tone(p: float) -> str:
    """Tone of a probability that a job fits.

    >>> chance_tone(0.99), chance_tone(0.7), chance_tone(0.01)
    ('good', 'near', 'bad')
    """
    return "good" if p >= SURE else "near" if p > 1.0 - SURE else "bad"


def memory_point(
    peak_bytes: float, capacity_bytes: float, ends: tuple[float, float] | None, tone: str
) -> Point:
    """Memory of the fullest GPU against what is usable; `ends` of its 80 % interval."""
    left = capacity_bytes - peak_bytes
    by = f"{gb(left)} left" if left >= 0.0 else f"{gb(-left)} too much"
    within = f" (80 %: {ends[0] / 1e9:,.1f} to {gb(ends[1])})" if ends else ""
    note = f"a GPU, of {gb(capacity_bytes)}: {by}{within}"
    return Point("memory", gb(peak_bytes), note, tone)


WORTH_SAYING = 1.1
"""Speed over what is named already from which a way that fits less surely is named beside it: times
are known to a tenth at best (docs/accuracy.md)."""


def bolder_point(what: str, speed: float, peak_bytes: float, fits_probability: float) -> Point:
    """Name a faster way that fits less surely, with its gain and its risk.

    >>> bolder_point("micro-batch 2", 1.2, 79e9, 0.6).note
    '79.0 GB, fits with 60 % (--fit expected)'
    """
    risk = f"{gb(peak_bytes)}, fits with {100 * fits_probability:.0f} % (--fit expected)"
    return Point("passed over", f"{100 * (speed - 1):.0f} % faster: {what}", risk)


def cost_points(bill: Bill | None, what: str = "") -> list[Point]:
    """Money of a run, and the price that it rests on."""
    if bill is None or bill.charge.usd is None or bill.rate is None:
        return []
    rate = bill.rate
    said = ", ".join(w for w in (rate.kind, rate.as_of) if w)
    price = f"at {rate.usd_per_gpu_hour:.4g} USD per GPU-hour ({said})"
    return [Point("cost", format_si(bill.charge.usd, "usd"), f"{what}{price}")]


def bottleneck(parts: Mapping[str, float], words: Mapping[str, str], total_s: float) -> Point:
    """Largest part of a step, and the two largest parts of exposed communication.

    >>> bottleneck({"matmul_s": 6.0, "tp_comm_s": 3.0, "dp_comm_s": 1.0}, {}, 10.0).note
    '60 % of the step; exposed: tp comm 30 %, dp comm 10 %'
    """

    def word(name: str) -> str:
        said = words.get(name, name.removesuffix("_s").replace("_", " "))
        return said.removesuffix(" communication")

    largest, *others = sorted(parts, key=lambda name: -parts[name])
    talk = [n for n in others if n.endswith("_comm_s") and parts[n] > 0.005 * total_s][:2]
    note = f"{100 * parts[largest] / total_s:.0f} % of the step"
    if talk:
        shares = [f"{word(name)} {100 * parts[name] / total_s:.0f} %" for name in talk]
        note += f"; exposed: {', '.join(shares)}"
    return Point("bottleneck", word(largest), note)


def asked_for(decides: str) -> list[Point]:
    """Ask for the setting that nobody said and that decides; nothing where none does."""
    return [Point("decides", decides)] if decides else []


def span(low: str, high: str) -> str:
    """Say the ends of an interval, their unit once.

    >>> span("5.74 s", "9.63 s"), span("21 h", "2.1 days")
    ('5.74 to 9.63 s', '21 h to 2.1 days')
    """
    number, _, unit = low.rpartition(" ")
    return f"{number if number and high.endswith(f' {unit}') else low} to {high}"


def largest_parts(parts: Iterable[tuple[str, float]], moment: str = "", most: int = 3) -> Point:
    """Name the largest parts of the memory, at the moment that decides."""
    found = sorted(((n, v) for n, v in parts if v > 0.0), key=lambda part: -part[1])
    rest = math.fsum(v for _, v in found[most:])
    words = [f"{name} {gb(v)}" for name, v in found[:most]]
    said = ", ".join([*words, f"others {gb(rest)}"] if rest else words)
    return Point("held by", "", f"at {moment}: {said}" if moment else said)


FILED = Point("next", "-o run.sh", "writes its launch file; --explain its formulas")
"""What comes next where an answer can be started."""


LONG_VALUE = 24
"""Characters of a value from which it stands with its note."""


def figures_of(points: Iterable[Point], *more: tuple[str, str, str]) -> Facts:
    """Figures of an answer: the lines of its summary, and what stands beside them."""
    rows = [
        (p.key, p.value, p.note)
        if p.note and len(p.value) < LONG_VALUE
        else (p.key, "", "  ".join(filter(None, (p.value, p.note))))
        for p in points
        if p.key not in ("verdict", "next")
    ]
    return Facts([*rows, *more])


def taken_points(taken: Iterable[str], asked: str = "") -> list[Point]:
    """Say what was taken because nobody said it, but for options that are asked for."""
    found = "; ".join(t for t in taken if t.rpartition("(")[2].replace(")", ":") not in asked)
    return [Point("taken", found)] if found else []


def changed_text(loaded: Loaded) -> str:
    """One line that lists what was changed; empty where nothing was."""
    return "changed: " + "; ".join(loaded.changes) if loaded.changes else ""


def changed(loaded: Loaded) -> list[Block]:
    """Return that line as a block, if there is one."""
    return [Text(changed_text(loaded))] if loaded.changes else []


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
    beyond: str  # why it is less likely to fit than the interval says; empty where it is not
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
