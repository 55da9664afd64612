"""Text with units to SI floats and back; the only place where units are converted."""

from __future__ import annotations

import math
import re

MAX_ABS = 1e30
"""Largest magnitude accepted from a person; keeps every product finite."""

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _scaled(prefixes: dict[str, float], *suffixes: str, factor: float = 1.0) -> dict[str, float]:
    return {p + s: v * factor for p, v in prefixes.items() for s in suffixes}


_BYTES = _scaled(_DECIMAL | _BINARY, "B")
_FLOP = _scaled(_DECIMAL, "FLOP", "FLOPs")
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TIME |= {"d": 86400.0, "w": 604800.0, "y": 31557600.0}
_WORDS = "s sec second|min minute|h hr hour|d day|w week|y year"
_TIME |= {
    w + s: _TIME[ws[0]]
    for ws in map(str.split, _WORDS.split("|"))
    for w in ws[1:]
    for s in ("", "s")
}
_COUNT = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_COUNT |= {"Ki": 1024.0, "Mi": 2.0**20}
_USD = {p + s: v for p, v in _COUNT.items() for s in ("USD", "$")} | {"": 1.0}
_COUNT |= {"m": 1e6, "b": 1e9, "t": 1e12, "million": 1e6, "billion": 1e9, "trillion": 1e12}

UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bytes_per_s": {u + "/s": f for u, f in _BYTES.items()}
    | _scaled(_DECIMAL, "b/s", "bit/s", "bps", factor=0.125),
    "flop": _FLOP,
    "flop_per_s": {u + "/s": f for u, f in _FLOP.items()}
    | _scaled(_DECIMAL, "FLOPS", "OP/s", "OPS"),
    "s": _TIME,
    "hz": _scaled(_DECIMAL, "Hz"),
    "w": _scaled(_DECIMAL, "W"),
    "j": _scaled(_DECIMAL, "J") | {"kWh": 3.6e6, "MWh": 3.6e9},
    "usd": _USD,
    "usd_per_hour": {"USD/h": 1.0, "$/h": 1.0, "USD/hour": 1.0},
    "usd_per_kwh": {"USD/kWh": 1.0, "$/kWh": 1.0},
    "tokens": _COUNT | {f"{u} tokens".strip(): f for u, f in _COUNT.items()},
    "count": _COUNT,
    "frac": {"%": 0.01},
}
"""Accepted unit spellings per dimension, with the factor to the SI unit."""

EXAMPLE = {
    "bytes": "80 GiB",
    "bytes_per_s": "3.35 TB/s or 400 Gb/s",
    "flop": "1.5 TFLOP",
    "flop_per_s": "989.4 TFLOP/s",
    "s": "30d or 1.5 us",
    "hz": "1.83 GHz",
    "w": "700 W",
    "j": "5 kWh",
    "usd": "5MUSD",
    "usd_per_hour": "2.50 USD/h",
    "usd_per_kwh": "0.1 USD/kWh",
    "tokens": "15T",
    "positions": "8192 or 32k",
    "count": "64 or 70B",
    "frac": "0.4 or 40%",
}


def dimension_of(name: str) -> str:
    """Dimension that the suffix of a name tells; empty for a ratio, a rate of counts or a count.

    >>> dimension_of("node_egress_bytes_per_s"), dimension_of("step_time_s"), dimension_of("mfu")
    ('bytes_per_s', 's', '')
    >>> dimension_of("tokens_per_s")
    ''
    """
    known = [d for d in UNITS if name == d or name.endswith("_" + d)]
    dim = max(known, key=len, default="")
    return "" if "_per_" in name and "_per_" not in dim else dim


_THOUSANDS = re.compile(r"^[^,]*\d,\d{3}(?!\d)")
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*", re.DOTALL)


def parse(text: str, dim: str) -> float:
    """Read a number with an optional unit of dimension `dim`, in SI units.

    A bare number is taken as SI (bytes, byte/s, s, ...). Bits and bytes differ in case:
    ``b`` is a bit, ``B`` a byte; ``GB`` is 1e9, ``GiB`` is 2**30.

    `text`: for example ``"80 GiB"``, ``"400 Gb/s"``, ``"15T"``. `dim`: a key of `UNITS`. Returns:
    value in the SI unit of `dim` (`frac`: 0 to 1; `usd_per_hour`: USD per hour). Raises ValueError
    if the text is no finite number below `MAX_ABS` or its unit is of another dimension.

    >>> parse("80 GiB", "bytes")
    85899345920.0
    >>> parse("400 Gb/s", "bytes_per_s")
    50000000000.0
    >>> parse("15T", "tokens")
    15000000000000.0
    >>> parse("$5M", "usd"), parse("$2/h", "usd_per_hour")
    (5000000.0, 2.0)
    """
    units = UNITS["tokens" if dim == "positions" else dim]
    shown = repr(text if len(text) <= 40 else text[:37] + "...")
    if _THOUSANDS.search(text[:200]):
        raise ValueError(f"{shown} has commas; write {text[:40].replace(',', '').strip()}")
    dollars = "$" if dim.startswith("usd") and text.lstrip().startswith("$") else ""
    match = _NUMBER.fullmatch(text.replace("$", "", 1) if dollars else text)
    if match is None or len(text) > 200:
        kind = "a number" if "" in units else "a number with a unit"
        raise ValueError(f"{shown} is not {kind}, such as {EXAMPLE[dim]}")
    number, unit = float(match[1].replace("_", "")), match[2]
    if dim.startswith("usd"):
        unit = unit.replace("usd", "USD")
    if dollars:  # $5M is 5M$, $2/h is 2$/h
        unit = unit + dollars if unit + dollars in units else dollars + unit
    if unit and unit not in units:
        like = "min for minutes" if (unit, dim) == ("m", "s") else EXAMPLE[dim]
        raise ValueError(f"unit {unit[:20]!r} in {shown} is not known here; try {like}")
    value = number * units.get(unit, 1.0)
    if not math.isfinite(value) or abs(value) > MAX_ABS:
        raise ValueError(f"{shown} is out of range (limit {MAX_ABS:g})")
    return value


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    rounded = f"{value:.{digits - 1}e}"  # 0.99996 is 1.000 in four digits, not 1.0000
    exponent = int(rounded.partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def _with_prefix(value: float, unit: str, digits: int) -> str:
    for prefix, factor in reversed(_DECIMAL.items()):
        if prefix != "K" and abs(value) >= factor * 0.99995 and factor >= 1.0:
            return f"{_significant(value / factor, digits)} {prefix}{unit}"
    return f"{_significant(value, digits)} {unit}" if abs(value) >= 1e-3 else f"{value:.3g} {unit}"


def format_si(value: float, dim: str, digits: int = 4) -> str:
    """Human text of an SI value; `dim` as in `parse`.

    >>> format_si(85899345920.0, "bytes")
    '85.90 GB'
    >>> format_si(1.111e-3, "s")
    '1.111 ms'
    >>> format_si(989.4e12, "flop_per_s")
    '989.4 TFLOP/s'
    """
    if dim == "s":
        return format_time(value, digits)
    if dim == "frac":
        return f"{100 * value:.1f} %"
    if dim in ("tokens", "count"):
        return format_count(value, digits)
    unit = {
        "bytes": "B",
        "bytes_per_s": "B/s",
        "flop": "FLOP",
        "flop_per_s": "FLOP/s",
        "hz": "Hz",
        "w": "W",
        "j": "J",
        "usd": "USD",
        "usd_per_hour": "USD/h",
        "usd_per_kwh": "USD/kWh",
    }[dim]
    return _with_prefix(value, unit, digits)


def format_time(seconds: float, digits: int = 4) -> str:
    """Human text of a duration, from nanoseconds to days."""
    size = abs(seconds)
    for limit, factor, unit in (
        (0.99995e-6, 1e9, "ns"),
        (0.99995e-3, 1e6, "us"),
        (0.99995, 1e3, "ms"),
        (600, 1.0, "s"),
        (7200, 1 / 60, "min"),
        (172800, 1 / 3600, "h"),
    ):
        if size < limit:
            return f"{_significant(seconds * factor, digits)} {unit}" if size else "0 s"
    return f"{_significant(seconds / 86400, digits)} days"


def format_count(value: float, digits: int = 4) -> str:
    """Human text of a count: exact below a million, then M, B (1e9), T."""
    if abs(value) < 1e6:
        return f"{value:,.0f}" if float(value).is_integer() else _significant(value, digits)
    for suffix, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if abs(value) >= factor * 0.99995:
            return f"{_significant(value / factor, digits)}{suffix}"
    return f"{value:,.0f}"
