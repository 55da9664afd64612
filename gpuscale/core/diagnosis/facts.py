"""Facts of a log: a name, a value in SI with its printed form, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuscale.core.diagnosis.series import StepSeries

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
