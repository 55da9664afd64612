"""Facts and series of a log: warm-up told from steady state, stalls, drifts, slow ranks, robustly.

P. J. Huber, Robust Statistics, 1981, doi:10.1002/0471725250: medians against outliers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpuscale.core.records import dataclass, field

MOST_POINTS = 20_000
WARM_FACTOR = 1.25
"""A leading value this far from the later median belongs to the warm-up."""
STALL_FACTOR = 1.5
"""A step this many times the median is a stall."""
SPLITS = 200
"""Places at which a long series is tried to be split."""
NEAR = (0.95, 1.05)
"""Values this near to the later median are steady even where a program's rule skips them."""
IN_RHYTHM, KEPT = 0.6, 0.7
"""Share of the stalls that must keep a rhythm, and of its beats that must be stalls."""
RISE = 1.005
"""Rise from quarter to quarter that is more than noise of an allocator."""
SLOW = 1.05
"""A rank this many times the others, beyond their own spread twice, is slow."""
MOST_GAPS = 50
APART, SURE = 2.0, 11.0
"""Median deviations by which two levels must differ; the second over the root of their numbers."""
SHIFT_FACTOR = 1.08
"""A lasting change of the median smaller than this is no change: runs wander by a few percent."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Steady state of a series: the warm-up is not in it."""

    median: float  # the lower of two: a value that was printed
    low: float  # first and ninth decile
    high: float
    n: int
    skipped: int
    line: int  # of the first steady value


@dataclass(slots=True)
class StepSeries:
    """Values by step; of a long series every 2nd, 4th, ... value is kept."""

    skip: int = 0  # leading values that a program's own rule calls warm-up
    n: int = 0
    every: int = 1
    stepped: bool = False  # its lines say the step
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def add(self, step: float | None, value: float, line: int) -> None:
        """Put a value to the series."""
        self.stepped = self.stepped or step is not None
        if self.n % self.every == 0:
            self.steps.append(float(self.n) if step is None else step)
            self.values.append(value)
            self.lines.append(line)
            if len(self.values) > MOST_POINTS:
                for kept in (self.steps, self.values, self.lines):
                    del kept[1::2]
                self.every *= 2
        self.n += 1

    def steady(self) -> Steady:
        """Steady state, the warm-up left out."""
        k = warm_up(self.values, self.skip)
        tail = self.values[k:]
        low, high = deciles(tail)
        return Steady(statistics.median_low(tail), low, high, len(tail), k, self.lines[k])


def deciles(values: Sequence[float]) -> tuple[float, float]:
    """First and ninth decile; of few values the least and the largest.

    >>> deciles([3.0, 1.0, 2.0])
    (1.0, 3.0)
    """
    ordered = sorted(values)
    cut = len(ordered) // 10
    return ordered[cut], ordered[-1 - cut]


def warm_up(values: Sequence[float], skip: int = 0) -> int:
    """Leading values that are no steady state, at most a third of a series but for the first.

    The first `skip` of a program count where they differ from the later median; after them every
    leading value that differs by more than `WARM_FACTOR`.

    >>> warm_up([7961.9, 248.6, 23.4, 22.1, 21.9, 22.0])
    2
    >>> warm_up([10.0, 10.1, 9.9])
    0
    """
    n = len(values)
    if n < 2:
        return 0
    later = statistics.median(values[n // 2 :])
    if later <= 0:
        return 0
    most = max(skip, 1, n // 3)
    k = 0
    while k < min(most, n - 1):
        ratio = values[k] / later
        off = not NEAR[0] <= ratio <= NEAR[1]
        if 1 / WARM_FACTOR <= ratio <= WARM_FACTOR and not (k < skip and n > 3 and off):
            break
        k += 1
    return k


@dataclass(frozen=True, slots=True)
class Stalls:
    """Steps much longer than the others, and whether they come in a rhythm."""

    steps: tuple[float, ...]
    period: float | None  # steps between them, where it is regular
    share_frac: float  # of the whole time


def stalls(steps: Sequence[float], seconds: Sequence[float]) -> Stalls | None:
    """Find steps longer than `STALL_FACTOR` times the median; None where there is none.

    >>> found = stalls(range(24), [13.0 if k % 8 == 7 else 0.3 for k in range(24)])
    >>> found.period, round(found.share_frac, 2)
    (8.0, 0.84)
    """
    if len(seconds) < 8:
        return None
    middle = statistics.median(seconds)
    slow = [k for k, v in enumerate(seconds) if v > STALL_FACTOR * middle]
    if not slow or len(slow) > len(seconds) / 2:
        return None
    extra = math.fsum(seconds[k] - middle for k in slow)
    at = tuple(steps[k] for k in slow)
    return Stalls(at, rhythm(at), extra / math.fsum(seconds))


def rhythm(at: Sequence[float]) -> float | None:
    """Find the steps between stalls that come in a rhythm, others among them; None for no rhythm.

    >>> rhythm([10, 20, 23, 30, 41, 50]), rhythm([3, 4, 17, 40])
    (10.0, None)
    """
    gaps = {b - a for a, b in pairwise(at)} | {c - a for a, c in zip(at, at[2:], strict=False)}
    best: tuple[int, float] | None = None
    for gap in sorted(g for g in gaps if g > 1)[:MOST_GAPS]:
        off = 1.0 if gap >= 8 else 0.0
        for first in at[:3]:
            near = ((round((a - first) / gap), (a - first + gap / 2) % gap - gap / 2) for a in at)
            kept = {beat for beat, apart in near if abs(apart) <= off}
            beats = max(kept) - min(kept) + 1
            enough = len(kept) >= max(3, IN_RHYTHM * len(at), KEPT * beats)
            if enough and (best is None or len(kept) > best[0]):
                best = len(kept), float(gap)
    return best[1] if best else None


@dataclass(frozen=True, slots=True)
class Shift:
    """A series whose level changed for good."""

    step: float
    before: float
    after: float


def shift(steps: Sequence[float], values: Sequence[float]) -> Shift | None:
    """Find the split whose two medians differ most for their spread; None where none does.

    >>> shift(range(20), [1.0] * 10 + [1.3] * 10)
    Shift(step=10, before=1.0, after=1.3)
    """
    n = len(values)
    if n < 12:
        return None
    stride = max(1, n // SPLITS)
    best: tuple[float, int] | None = None
    for k in range(max(4, stride), n - 4, stride):
        a, b = values[max(0, k - 400) : k], values[k : k + 400]
        low, high = statistics.median(a), statistics.median(b)
        apart = math.fsum(abs(v - low) for v in a) + math.fsum(abs(v - high) for v in b)
        if best is None or apart < best[0]:
            best = (apart, k)
    assert best is not None
    k = best[1]
    before, after = statistics.median(values[:k]), statistics.median(values[k:])
    if min(before, after) <= 0 or max(before, after) / min(before, after) < SHIFT_FACTOR:
        return None
    spread = statistics.median(
        [abs(v - before) for v in values[:k]] + [abs(v - after) for v in values[k:]]
    )
    if abs(after - before) < spread * max(APART, SURE * math.sqrt(1 / k + 1 / (n - k))):
        return None
    return Shift(steps[k], before, after)


def growth(steps: Sequence[float], values: Sequence[float]) -> float | None:
    """Rise of a series a step, where it rises throughout and by more than 5 %; else None.

    >>> growth(range(20), [10.0 + 0.1 * k for k in range(20)])
    0.1
    """
    n = len(values)
    if n < 8 or steps[-1] <= steps[0]:
        return None
    parts = [statistics.median(values[k * n // 4 : (k + 1) * n // 4]) for k in range(4)]
    rising = all(b > a * RISE for a, b in pairwise(parts))
    if not rising:
        return None
    return round((values[-1] - values[0]) / (steps[-1] - steps[0]), 12)


def slow_rank(by_rank: dict[int, float]) -> tuple[int, float] | None:
    """(rank, how much longer than the median of the others) of the slowest; None if it is near.

    >>> slow_rank({0: 1.0, 1: 1.01, 2: 1.4, 3: 0.99})
    (2, 1.4)
    """
    if len(by_rank) < 3:
        return None
    rank = max(by_rank, key=lambda r: by_rank[r])
    others = [v for r, v in by_rank.items() if r != rank]
    middle = statistics.median(others)
    spread = max(others) / middle - 1
    ratio = by_rank[rank] / middle
    return (rank, round(ratio, 4)) if ratio > SLOW + 2 * spread else None


_SIZES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SIZES |= {f"{p}i": 2.0 ** (10 * k) for k, p in enumerate("KMGT", 1)}

UNITS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("", "frac"), ("", 1.0)),
    **dict.fromkeys(("s", "sec", "seconds"), ("s", 1.0)),
    **{"ms": ("s", 1e-3), "us": ("s", 1e-6), "µs": ("s", 1e-6), "ns": ("s", 1e-9)},
    **{"m": ("s", 60.0), "min": ("s", 60.0), "h": ("s", 3600.0), "days": ("s", 86400.0)},
    **{"B": ("byte", 1.0), "bytes": ("byte", 1.0)},
    **{f"{p}B": ("byte", f) for p, f in _SIZES.items()},
    **{f"{p}B/{s}": ("byte/s", f) for p, f in _SIZES.items() for s in ("s", "sec")},
    **{f"{p}b/{s}": ("byte/s", f / 8) for p, f in _SIZES.items() for s in ("s", "sec")},
    **{"Gbps": ("byte/s", 1e9 / 8), "%": ("", 0.01), "billion": ("", 1e9), "million": ("", 1e6)},
    **dict.fromkeys(("TFLOP/s", "TFLOPS", "TFLOPs"), ("FLOP/s", 1e12)),
    **{"GFLOPS": ("FLOP/s", 1e9), "PFLOPS": ("FLOP/s", 1e15), "FLOP/s": ("FLOP/s", 1.0)},
    **{"TFLOP": ("FLOP", 1e12), "GMACs": ("MAC", 1e9), "TMACs": ("MAC", 1e12)},
    **{u: (u, 1.0) for u in ("tokens", "tokens/s", "samples/s", "requests", "W", "C")},
    **{"it/s": ("steps/s", 1.0), "req/s": ("requests/s", 1.0)},
    **{"MHz": ("Hz", 1e6), "Mpps": ("packets/s", 1e6)},
}
"""Unit as printed -> (SI unit, factor)."""

COUNTS = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
"""Letters behind a bare count."""

SERIES_LIKE = 8
"""Values of one name from which a fact is a series rather than a setting."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One printed fact."""

    name: str
    value: float | str  # SI, or a text
    unit: str  # SI unit; "" of counts, fractions and texts
    printed: str  # as printed, with its unit
    line: int
    program: str
    run: int = 0
    rank: int | None = None


@dataclass(slots=True)
class Track:
    """Values of one name of one rank in one run, in constant memory."""

    series: StepSeries
    unit: str
    printed_unit: str
    program: str

    def said(self) -> list[tuple[float, int]]:
        """(value, line): the steady value of a series, every value of a setting said anew."""
        s = self.series
        if s.n < SERIES_LIKE and not s.stepped:
            return list({v: (v, line) for v, line in zip(s.values, s.lines, strict=True)}.values())
        steady = s.steady()
        return [(steady.median, steady.line)]


@dataclass(slots=True)
class Log:
    """What was read of one log."""

    name: str
    texts: dict[tuple[int, str], Fact] = field(default_factory=dict)  # last of each, by run
    tracks: dict[tuple[int, int | None, str], Track] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Fact]]] = field(default_factory=dict)
    firsts: dict[tuple[str, str], Fact] = field(default_factory=dict)  # (name, text) -> first
    events: list[tuple[str, float, int]] = field(default_factory=list)  # kind, step, line
    arguments: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    bytes_: int = 0
    runs: int = 1
    thinned: int = 1  # of repeated lines, every how many were read at the end
    programs: dict[str, int] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """Last text of a name, of the last run that has it."""
        found = self.fact(name)
        return str(found.value) if found is not None else None

    def fact(self, name: str) -> Fact | None:
        """Last fact of a name, of the last run that has it."""
        hits = [f for (_, key), f in self.texts.items() if key == name]
        return hits[-1] if hits else None

    def number(self, name: str, run: int | None = None) -> float | None:
        """Steady value of a name: of a run, or of the last run that has it."""
        track = self.track(name, run)
        return track.series.steady().median if track is not None else None

    def track(self, name: str, run: int | None = None) -> Track | None:
        """Track of a name with the most values, of a run or of the last that has it."""
        found = [(k, t) for k, t in self.tracks.items() if k[2] == name and run in (None, k[0])]
        if not found:
            return None
        last = max(k[0] for k, _ in found)
        return max((t for k, t in found if k[0] == last), key=lambda t: t.series.n)

    def all(self) -> Iterator[Fact]:
        """Facts that hold: the steady value of every track, every text, every row of a table."""
        for (run, rank, name), t in self.tracks.items():
            for value, line in t.said():
                printed = f"{value / UNITS[t.printed_unit][1]:.10g} {t.printed_unit}".strip()
                yield Fact(name, value, t.unit, printed, line, t.program, run=run, rank=rank)
        yield from self.texts.values()
        for rows in self.tables.values():
            for row in rows:
                yield from row.values()
