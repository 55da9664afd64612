"""What was measured and what was expected, as people write it: ``step_time=17.2 s; mfu=25 %``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuscale.core.diagnosis.series import UNITS
from gpuscale.core.records import NamedTuple, dataclass, replace
from gpuscale.errors import GpuscaleError
from gpuscale.io.log_pairs import unit_of
from gpuscale.io.run import first_of, load_table, told

MOST_TEXT = 4_000
MOST_DIGITS = 40
LEAST = 1e-30
"""Figures of runs are within this and its inverse."""


class Quantity(NamedTuple):
    """A quantity that people complain of: a row of `presets/cause/_quantities`."""

    name: str
    symptom: str
    better: str  # "less" | "more"
    unit: str  # SI
    usual: str  # unit where none is written
    also: str  # its other names

    @property
    def less_is_better(self) -> bool:
        """Whether less of it is better."""
        return self.better == "less"


_ROWS = load_table("_quantities").items()
QUANTITIES = {name: Quantity(name, *row) for name, row in _ROWS if name != "meant"}
ALIASES = {also: q.name for q in QUANTITIES.values() for also in q.also.split()}
_LEADING = re.compile(r"[-+]?(?:(?:nan|inf(?:inity)?)(?![a-z])|\d+(?:\.\d+)?(?:e[-+]?\d+)?)", re.I)
_NUMBER = re.compile(
    r"(?<![\w.])(\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)(?:\s*-\s*(\d[\d,]*\.?\d*))?\s*"
    r"(%|[A-Za-zµ]+(?:/[A-Za-z]+)*)?"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity, and what was expected of it."""

    name: str
    text: str
    value: float | None  # SI; None of what is said in words
    unit: str
    expected: float | None = None
    expected_text: str = ""
    pace: float | None = None  # speed beside what it is compared with, where no value is said
    expected_pace: float = 1.0

    @property
    def quantity(self) -> Quantity:
        """What is measured."""
        return QUANTITIES[self.name]

    @property
    def ratio(self) -> float | None:
        """How many times worse than expected; below 1 is better."""
        if self.pace:
            twice = abs(self.pace * self.expected_pace - 1) < 0.01  # `1/5; expected=5 times`
            return 1 / self.pace if twice else self.expected_pace / self.pace
        if not self.value or not self.expected:
            return None
        worse = self.value / self.expected
        return worse if self.quantity.less_is_better else 1 / worse


def pace_of(text: str, quantity: Quantity) -> float | None:
    """Return the speed that a text names beside another; None where it names none.

    >>> rate, time = QUANTITIES["throughput"], QUANTITIES["step_time"]
    >>> [pace_of(t, rate) for t in ("1/8 of one node", "4 times slower", "as on 1 GPU", "12")]
    [0.125, 0.25, 1.0, None]
    >>> pace_of("8 times that of one node", time), pace_of("20 % lower", rate)
    (0.125, 0.8)
    """
    if (hit := told("pace", text)) is None:
        return 1.0 if told("same_pace", text) else None
    if hit["percent"]:
        share = float(hit["percent"]) / 100
        return max(1e-3, 1 - share if hit["slower"] else share)
    part = 1 / float(hit["part"]) if hit["part"] and int(hit["part"]) else None
    times = part or float(hit["times"] or (0.5 if hit["half"] else 2.0)) or 1.0
    if hit["slower"]:
        return 1 / max(times, 1.0)
    return 1 / times if quantity.less_is_better and "faster" not in text.lower() else times


def quantity_name(text: str) -> str | None:
    """Name of a quantity as this program calls it; None for what is none.

    >>> quantity_name("tokens/s/gpu"), quantity_name("TFLOP/s/GPU"), quantity_name("loss")
    ('tokens_per_s_per_gpu', 'tflops_per_gpu', None)
    >>> quantity_name("prompt tokens/s"), quantity_name("scaling efficiency")
    ('tokens_per_s', 'throughput')
    """
    name = text.strip().lower().replace("-", "_").replace(" ", "_")
    name = name.replace("/second", "/s").replace("/sec", "/s").replace("/s", "_per_s")
    name = name.replace("/gpu", "_per_gpu").replace("/device", "_per_gpu").replace("/", "_per_")
    parts = name.split("_")
    for k in range(len(parts)):  # its own name, or the longest known end of it
        end = "_".join(parts[k:])
        if (end := ALIASES.get(end, end)) in QUANTITIES:
            return end
    return first_of(load_table("_quantities")["meant"], name)


def numbers(text: str, usual: str) -> list[tuple[float, str]]:
    """Numbers of a text in SI, with their SI unit; a range is its middle, ``1/5`` a fraction.

    >>> numbers("0.43-0.54 s", "s"), numbers("50 ms, 25 GB/s", "s")
    ([(0.485, 's')], [(0.05, 's'), (25000000000.0, 'byte/s')])
    >>> numbers("1/5", ""), numbers("5 times", "")
    ([(0.2, '')], [(5.0, '')])
    """
    if part := re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text):
        return [(int(part[1]) / int(part[2]), "")] if int(part[2]) else []
    found = []
    for hit in _NUMBER.finditer(text[:MOST_TEXT]):
        value = float(hit[1].replace(",", "")[:MOST_DIGITS] or 0)
        if hit[2]:
            value = (value + float(hit[2].replace(",", "")[:MOST_DIGITS])) / 2
        if value and not LEAST < value < 1 / LEAST:
            continue
        word = hit[3] or ""
        unit = word if word in UNITS else unit_of(word)
        if word and not unit and told("counted", word):
            continue
        si, factor = UNITS[unit or usual]
        found.append((value * factor, si))
    return found


def _pairs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Split what was measured into (quantity, text): `mfu=25 %`, `296 TFLOP/s`, `OOM at step 3`."""
    found: list[tuple[str, str]] = []
    for text in texts:
        if len(text) > MOST_TEXT:
            raise GpuscaleError(f"--measured: more than {MOST_TEXT:,} characters")
        for part in filter(str.strip, re.split(r"[;\n]", text)):
            name, equals, value = (t.strip() for t in part.partition("="))
            if not equals:
                ran_out = re.search(r"\boom\b|out of memory", part.lower())
                hit = re.search(r"([\d.,]+)\s*(\S+)", part)
                name = "oom" if ran_out else quantity_name(hit[2]) or "" if hit else ""
                value = part
            if not name and found:  # more words on the figure before
                found[-1] = (found[-1][0], f"{found[-1][1]}; {part.strip()}")
            elif not name:
                raise GpuscaleError(
                    f"--measured {part.strip()[:60]}: write QUANTITY=VALUE UNIT",
                    "such as --measured 'tokens/s/gpu=3100' or 'step_time=17.2 s; expected=1.8 s'",
                )
            else:
                found.append((name, value))
    return found


def read_figures(measured: Sequence[str], expected: Sequence[str]) -> tuple[Figure, ...]:
    """Read what was measured and expected.

    Raises GpuscaleError for a quantity that is not known.

    >>> [f] = read_figures(["step_time=17.2 s; expected=1.8 s"], [])
    >>> f.value, round(f.ratio, 2)
    (17.2, 9.56)
    """
    found: list[Figure] = []
    wishes: list[str] = []
    for name, text in (*(("expected", wish.strip()) for wish in expected), *_pairs(measured)):
        if (hit := _LEADING.match(text)) and not 0.0 <= float(hit[0]) < 1 / LEAST:
            raise GpuscaleError(f"{name[:40]}={text[:60]}: no run measures that")
        if name.lower() in ("expected", "expect", "wanted"):
            wishes.append(text)
            continue
        known = quantity_name(name)
        if known is None and found:  # a word more on the figure before: `waiting=50`
            found[-1] = replace(found[-1], text=f"{found[-1].text}; {name}={text}")
            continue
        if known is None:
            raise GpuscaleError(
                f"--measured: `{name[:40]}` is no quantity that is known",
                f"known: {', '.join(sorted(QUANTITIES))}",
            )
        quantity = QUANTITIES[known]
        pace = pace_of(text, quantity) if quantity.symptom != "mfu" else None
        value = None if pace or known == "oom" else _value(text, quantity)
        found.append(Figure(known, text, value, quantity.unit, pace=pace))
    if not (wish := "; ".join(wishes)):
        return tuple(found)
    left = [p for w in wishes for p in re.split(r",(?!\d{3})", w)]
    return tuple(_hoped(figure, left, wish) for figure in found)


def _value(text: str, quantity: Quantity) -> float | None:
    """First number of a text that is in the unit of a quantity; of shares the fraction."""
    if quantity.usual == "%":
        hit = re.search(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)
        value = float(hit[0][:MOST_DIGITS]) if hit else None
        return value / 100 if value and ("%" in text or value >= 2) else value
    values = [v for v in numbers(text, quantity.usual) if v[1] in (quantity.unit, "")]
    return values[0][0] if values and values[0][1] == quantity.unit else None


def _hoped(figure: Figure, left: list[str], wish: str) -> Figure:
    """Put to a figure what was expected of it; the part of the wish is taken from `left`."""
    value, swap = None, {"steps_per_s": "step_time", "step_time": "steps_per_s"}
    for part in left:
        name, equals, rest = part.partition("=")
        if equals and quantity_name(name) not in (None, figure.name):
            continue
        said = rest if equals else part
        value = _value(said, figure.quantity)
        if value is None and figure.name in swap:  # it/s, expected 100 ms a step
            inverse = _value(said, QUANTITIES[swap[figure.name]])
            value = 1 / inverse if inverse else None
        if value is not None:
            left.remove(part)
            break
    pace = max(1.0, pace_of(wish, figure.quantity) or 1.0)
    return replace(figure, expected=value, expected_text=wish.strip(), expected_pace=pace)
