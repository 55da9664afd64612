"""What a picture shows, as plain records; nothing here draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpuscale.core.quantity import UNITS, format_si
from gpuscale.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A quantity: what it is, its dimension (`core.quantity`; "" is a plain number), its scale."""

    label: str
    dim: str = ""
    log: bool = False
    at: tuple[float, ...] = ()  # where its ticks stand; empty: at round values

    def ticks(self, low: float, high: float, most: int = 7) -> list[float]:
        """Values to write along the axis: round in the unit that they are shown in.

        >>> Axis("time", "s").ticks(0.0, 4 * 3600.0)
        [0.0, 3600.0, 7200.0, 10800.0, 14400.0]
        """
        if self.at:
            return [v for v in self.at if low <= v <= high]
        unit = 1.0
        if self.dim == "s" and not self.log:
            limits_s = ((600.0, 1.0), (7200.0, 60.0), (172800.0, 3600.0), (math.inf, 86400.0))
            unit = next(u for limit, u in limits_s if high < limit)
        return [unit * v for v in nice_ticks(low / unit, high / unit, self.log, most)]

    def text(self, value: float, digits: int = 4) -> str:
        """Value with its unit, without idle zeros.

        >>> Axis("size", "bytes").text(64e6), Axis("MFU", "frac").text(0.4), Axis("x").text(2.50)
        ('64 MB', '40 %', '2.5')
        >>> Axis("tokens/s", "count").text(5e6)
        '5M'
        """
        if self.dim in UNITS:
            number, space, unit = format_si(value, self.dim, digits).partition(" ")
        else:
            number, space, unit = f"{value:,.{digits}g}", "", ""
            if "e" in number and abs(value) < 1e15:
                number = f"{value:,.0f}"
        suffix = "" if number[-1].isdigit() else number[-1]  # 5.00M
        number = number.removesuffix(suffix) if suffix else number
        if "." in number:
            number = number.rstrip("0").rstrip(".")
        return number + suffix + space + unit


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one line: (x, y, label); the label may be empty."""

    name: str
    points: Sequence[tuple[float, float, str]]
    line: bool = True  # else points alone
    markers: bool = True  # else the line alone


@dataclass(frozen=True, slots=True)
class Mark:
    """A value of one axis to draw across the picture."""

    axis: str  # "x" | "y"
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines or points of y over x."""

    key: str  # names the picture in `-o FILE.KEY.svg`
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stack:
    """Bars made of parts; every bar has a value for every part."""

    key: str
    title: str
    axis: Axis
    parts: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    limit: tuple[float, str] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Something on a lane of a Gantt chart."""

    start: float
    length: float
    kind: int  # index into `kinds`
    label: str = ""


@dataclass(frozen=True, slots=True)
class Gantt:
    """Lanes of spans over time."""

    key: str
    title: str
    axis: Axis
    total: float  # end of the part that is shown
    kinds: Sequence[tuple[str, str]]  # name, one letter
    lanes: Sequence[tuple[str, Sequence[Span]]]
    note: str = ""
    start: float = 0.0  # of the part that is shown


@dataclass(frozen=True, slots=True)
class TierRow:
    """Equal devices of one tier."""

    name: str
    n: int
    label: str


@dataclass(frozen=True, slots=True)
class Tiers:
    """Tiers of a network from the top, and what joins each to the next."""

    key: str
    title: str
    rows: Sequence[TierRow]
    between: Sequence[str]  # of each row and the one below it
    note: str = ""


Chart = Lines | Stack | Gantt | Tiers


def few(values: Iterable[float], most: int = 9) -> tuple[float, ...]:
    """Values as the ticks of an axis, where they are few and round, or counts; else empty.

    >>> few([8.0, 64.0, 8.0]), few(range(100)), few([1e11, 1.778e11])
    ((8.0, 64.0), (), ())
    """
    found = tuple(sorted(set(values)))
    told = all((v == int(v) and v < 1e7) or float(f"{v:.2g}") == v for v in found)
    return found if told and len(found) <= most else ()


def nice_ticks(low: float, high: float, log: bool, most: int = 7) -> list[float]:
    """Round values between `low` and `high`.

    >>> nice_ticks(0.0, 10.0, False), nice_ticks(1.0, 1000.0, True)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [1.0, 10.0, 100.0, 1000.0])
    """
    if log:
        a, b = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        factors = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
        every = max(1, -(-(b - a + 1) // most))
        found = [f * 10.0**k for k in range(a, b + 1, every) for f in factors]
        return [t for t in found if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
    span = high - low
    if not span > 0:
        return [low]
    raw = span / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * f for f in (1.0, 2.0, 2.5, 5.0, 10.0) if power * f >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def limits(values: Sequence[float], log: bool, zero: bool = True) -> tuple[float, float]:
    """Range of an axis that holds all values, a little wider.

    >>> limits([2.0, 9.0], False), tuple(round(v, 2) for v in limits([2.0, 900.0], True))
    ((0.0, 9.45), (1.57, 1149.13))
    """
    usable = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not usable:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(usable), max(usable)
    if log:
        pad = max(1.1, (high / low) ** 0.04)
        return low / pad, high * pad
    if zero and low >= 0.0:
        low = 0.0
    elif not zero:
        low -= 0.12 * (high - low)
    if high > low:
        return low, high + 0.05 * (high - low)
    return (0.0 if high > 0.0 else low), (high * 1.1 if high > 0.0 else low + 1.0)
