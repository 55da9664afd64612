"""Lines of no known program: `key: value unit`, `key=value`, numbers with a rate, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from math import isfinite

from gpuscale.core.diagnosis.series import COUNTS, UNITS
from gpuscale.io.log_patterns import NUMBER
from gpuscale.io.presets import shipped
from gpuscale.io.text import read_toml

_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[ T]?|\b\d{1,3}:\d\d:\d\d(?:[.,]\d+)?"
    r"|\d+%\|[^|]{0,200}\|(?:\s*\d+/\d+)?|\[\d\d:\d\d[<,]|\[[\w-]*\.[\w.-]+:\d+\]"
)
"""Dates, clocks, bars of progress and lines of source: no figures."""
_SPACE = re.compile(r"\s{2,}")
_UNIT = r"(%|[A-Za-zµ]+(?:[/-][A-Za-z]+)*(?![\w/]))"
_SPREAD = r"(?:\s?(?:±|\+/?-)\s?[\d.]{1,25})?"
_KEYED = re.compile(
    r"([A-Za-z][\w ./()%\[\]-]{0,48}?)['\"]?(?:\s?(?:[:=]{1,2}|│)\s?|(?<=\w)>)['\"\[(]?"
    rf"{NUMBER}(?!\.?\d|%=|:\d|\[)\)?{_SPREAD}\s?{_UNIT}?"
)
_JOINED = re.compile(r"[:=│>]\s?['\"\[(]?[-+]?\d")
"""What every key has before its number: lines without are not looked through."""
_CUT = re.compile(r" -+ |, | > |(?<![\w.])\d+\.\d+(?:\.\d+)*\s?")
"""What a key does not reach over: a rule, a comma, the figure before."""
_ABOVE = re.compile(r"\((\w{1,5})\)\s?\|")
_SPACED = re.compile(
    rf"(?<![\w/.])([A-Za-z][\w/]*(?:\([\w/]{{1,9}}\))?)(?: \.{{2,}})? {NUMBER}(?:\s?(ms|us|s)\b)?"
)
_LISTED = re.compile(
    r"([A-Za-z][\w ()-]{0,40})\(([\w.]+(?:, ?[\w.]+)+)\)\s?[:=]\s?\[?"
    r"(\d[\d.]*[a-z]*(?:, ?\d[\d.]*[a-z]*)+)"
)
_LONG = re.compile(r"\w{80,}")
_BARE = re.compile(rf"(?<![\w.]){NUMBER}\)?{_SPREAD}\s?{_UNIT}(?![=:])")
_PART = r"\d+(?:\.\d+)?\s?(?:ms|us|µs|ns|h(?:ours?)?|m(?:in(?:utes?)?)?|s(?:ec(?:onds)?)?)"
_SPAN = re.compile(rf"(?<![\w.]){_PART}(?:\s?{_PART})+(?!\w)")
_TIMED = re.compile(
    r"((?:time|duration|elapsed)['\"]?\s*[:=]\s*['\"]?)"
    r"(?:(\d{1,4}) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)"
)
_COMMAS = re.compile(r"\d,\d\d (?:ms|s|%|tok)")
_CAMEL = re.compile(r"(?<=[a-z\d])(?=[A-Z][a-z])")
WRITTEN = read_toml(shipped("log/_units.toml"))
"""How units are written: what is counted a second, words, letters of cells."""
_WORDS: dict[str, str] = WRITTEN["words"]
_EACH = ("gpu", "device", "rank", "chip", "card", "user", "s")
_OF = "it iter iteration step batch tok token req request".split()
_ENDS = re.compile(
    r"(?<!per)_(ms|us|gb|gib|mb|mib|gbps|seconds|sec|tps|bytes)(?=$|_(?:mean|median|avg|min|max)$)"
)
_PATH = re.compile(r"\b[a-z_]+_(s|ms)/")
COUNTED = ("tokens", "min")
"""Words of a key that are no units: what is counted, the least."""
PLAIN = ("B", "m", "h", "C")
"""Units that a single letter is too little to be, where a key does not ask for one."""

Pair = tuple[str, float, str, str]
"""Name, value in SI, unit as printed, number as printed."""


@lru_cache(maxsize=1024)
def unit_of(word: str) -> str:
    """Return the unit that a word is; empty for none.

    >>> unit_of("tok/sec"), unit_of("TF/s/GPU"), unit_of("sec/batch"), unit_of("loss/s")
    ('tokens/s', 'TFLOP/s', 's', '')
    """
    if word in UNITS and word not in PLAIN:
        return word
    head, *below = word.lower().replace("-per-", "/").split("/")
    if not below:
        return _WORDS.get(head, "")
    if below[0] in ("s", "sec", "second") and below[1:] in ([], *([w] for w in _EACH)):
        size = f"{_WORDS.get(head, '')}/s"
        counted = (u for names, u in WRITTEN["a_second"].items() if re.fullmatch(names, head))
        return size if size in UNITS else next(counted, "")
    each = below[0] in _EACH or below[1:] == [] and below[0] in _OF
    return _WORDS.get(head, "") if each else ""  # TFLOPS/GPU, ms/token


def with_spans(text: str) -> str:
    """Write times of hours and minutes in seconds, and decimal commas as points.

    >>> with_spans("step took 1m 25s"), with_spans("train_runtime = 1 day, 0:20:34.5")
    ('step took 85 s', 'train_runtime = 87634.5 s')
    >>> with_spans("p50=005ms248.5us"), with_spans("load = 2493,93 ms (29,95 tokens per second)")
    ('p50=0.0052485 s', 'load = 2493.93 ms (29.95 tokens per second)')
    """
    if _COMMAS.search(text):
        text = re.sub(r"(?<=\d),(?=\d\d\b)", ".", text)

    def seconds(hit: re.Match[str]) -> str:
        parts = [
            (float(v), UNITS[u][1]) for v, u in re.findall(r"([\d.]+)\s?([munµ]?s|[hm])", hit[0])
        ]
        falling = all(a > b for (_, a), (_, b) in pairwise(parts))
        return f"{sum(v * f for v, f in parts):.12g} s" if falling else hit[0]

    text = _SPAN.sub(seconds, text)

    def timed(hit: re.Match[str]) -> str:
        hours = int(hit[2] or 0) * 24 + int(hit[3])
        return f"{hit[1]}{hours * 3600 + int(hit[4]) * 60 + float(hit[5]):.12g} s"

    return _TIMED.sub(timed, text)


@lru_cache(maxsize=1024)
def of_key(key: str) -> tuple[str, str]:
    """Read a key: (name, unit) of ``Mean TPOT (ms)``, ``memory[GB]``, ``tok/s after``.

    >>> of_key("Mean TPOT (ms)"), of_key("step_time_ms"), of_key("SamplesPerSec")
    (('mean_tpot', 'ms'), ('step_time', 'ms'), ('samples_per_sec', 'samples/s'))
    """
    hits = list(re.finditer(r"[(\[]([^()\[\]]{1,16})[)\]]", key))
    said = [(h, u) for h in hits if (u := unit_of(h[1]) or (h[1] if h[1] in PLAIN else ""))]
    parts = re.split(r"\sper\s", key)[0].split()
    plain = (w.rpartition("_")[2] if w.find("_") < w.find("/") else w for w in parts)  # PP_tok/s
    words = (u for w in plain if len(w) > 1 and w not in COUNTED and (u := unit_of(w)))
    hit, unit = said[-1] if said else (None, next(words, ""))
    rest = key[: hit.start()] + key[hit.end() :] if hit else key
    name = re.sub(r"\W+", "_", _CAMEL.sub("_", rest).lower()).strip("_")
    if not unit and (rate := re.search("([a-z]+)_per_s(?:ec)?(?:ond)?$", name)):
        unit = unit_of(f"{rate[1]}/s")
    if not unit and (path := _PATH.search(key)):  # timing_s/step
        unit = path[1]
    elif not unit and not hits and (end := _ENDS.search(name)):
        unit = unit_of(end[1])
        name = name[: end.start()] + name[end.end() :]
    return name[-60:], unit


def value_of(number: str) -> float:
    """Value of a printed number.

    >>> value_of("1,234.5")
    1234.5
    """
    return float(number.replace(",", "").replace("_", ""))


def named(
    key: str, number: str, word: str | None, same: Mapping[str, str], usual: str = ""
) -> Pair | None:
    """Make a pair of a key, a number and the word behind it; None where it is no figure.

    `same`: what keys are called here, with the unit where none is printed. `usual`: the unit
    where key and word say none.
    """
    name, asked = of_key(key)
    value = value_of(number)
    if not name or not isfinite(value):
        return None
    known, _, kept = same.get(name, "").partition(" ")
    if known and value < 0:  # -100 % stands for what was not computed
        return None
    unit = unit_of(word or "")
    if asked and unit and UNITS[asked][0] != UNITS[unit][0]:  # iter time (s): 1.2 samples/sec: 3
        unit = ""
    if not unit and word in COUNTS and (word in "kK" or "param" in name or name == "model_size"):
        return known or name, value * COUNTS[word], "", number
    if not unit and word in COUNTS:  # of what is not said
        return None
    if not unit and word in PLAIN and any(w in name for w in ("time", "temp")):
        unit = word
    if not unit and "/" in (word or ""):  # a unit that is not known
        return name, value, "", number
    if known and kept == "frac" and not unit:
        unit = "%" if value > 1.5 else "frac"
    unit = unit or asked or (kept if known else "") or usual
    return known or name, value * UNITS[unit][1], unit, number


def pairs_of(text: str, same: Mapping[str, str], under: tuple[str, str] = ("", "")) -> list[Pair]:
    """List what a line says by key, then numbers with a unit of their own.

    `under`: name and unit of the heading that the line stands below.
    """
    if re.match(r"\s*#\s?\w+:", text):  # a comment
        return []
    text = _SPACE.sub("  ", _CLOCK.sub(" ", text[:1_000])).replace("  ", " ")
    if len(text) > 200:  # no key is longer: each start in a longer word would be tried
        text = _LONG.sub(lambda hit: "_" + hit[0][-49:], text)
    taken: list[tuple[int, int]] = []
    found = list(_keyed(text, same, under, taken))
    bare: dict[str, int] = {}
    for hit in _BARE.finditer(text):
        unit = unit_of(hit[2])
        if unit and not any(a <= hit.start(1) < b for a, b in taken):
            before = re.findall(r"[A-Za-z]+", text[max(0, hit.start() - 30) : hit.start()])[-2:]
            name = same.get("_".join(before).lower(), "").partition(" ")[0]  # Peak mem 5.1 GB
            name = name or "of_" + re.sub(r"\W+", "_", unit if unit != "%" else "percent").lower()
            bare[name] = bare.get(name, 0) + 1
            name += f"_{bare[name]}" if bare[name] > 1 else ""
            found.append((name, value_of(hit[1]) * UNITS[unit][1], unit, hit[1]))
    return found


def _keyed(
    text: str, same: Mapping[str, str], under: tuple[str, str], taken: list[tuple[int, int]]
) -> Iterator[Pair]:
    """Yield the pairs of a line; the places of their numbers are put to `taken`."""
    for hit in _LISTED.finditer(text):  # latency(s)(min, max, ave): 0.6, 12.9, 4.4
        labels, values = (re.split(", ?", hit[k]) for k in (2, 3))
        for label, value in zip(labels, values, strict=False):
            number, word = re.findall(r"^([\d.]*\d)([a-z]*)", value)[0]
            key = f"{hit[1]}_{'p' * label.isdigit()}{label}"
            if number.count(".") < 2 and (
                pair := named(key, number, word, same, of_key(hit[1])[1])
            ):
                yield pair
        taken.append(hit.span(3))
    above = _ABOVE.search(text)  # time (ms) | forward: 1.2 | backward: 3.4
    for hit in _KEYED.finditer(text) if _JOINED.search(text) else ():
        if above and hit.start() > above.start() and unit_of(above[1]):
            under = under[0], unit_of(above[1])
        key = _CUT.split(hit[1])[-1].strip()
        if re.search(r"\.(py|cc|cpp|cu|go|rs|h)\b|https?|(?<!\w)/\w{3,}/", key):
            continue
        if key.count(")") > key.count("("):  # (avg, med) = (1, 2)
            continue
        pair = named(f"{under[0]} {key}", hit[2], hit[3], same, under[1])
        if pair is not None:
            taken.append(hit.span(2))
            yield pair
    for hit in _SPACED.finditer(text):  # It/sec 1.472; latency(ms) 432.5; batch_size 1
        name, unit = of_key(hit[1])
        if unit_of(hit[1]) and text[: hit.start()].rstrip()[-1:].isdigit():
            continue  # the unit of the number before
        known = (
            unit or "_" in hit[1] or name in same or re.match(r" \( *[\d.]+\)", text[hit.end() :])
        )
        if known and not any(a <= hit.start(2) < b for a, b in taken):
            pair = named(hit[1], hit[2], hit[3], same)
            if pair is not None:
                taken.append(hit.span(2))
                yield pair


_BARS = re.compile(r"[|│┃]")
_CELL = re.compile(rf"\s*{NUMBER}(?:\s?(?:±|\+/?-)\s?[\d.]{{1,25}})?\s?([A-Za-z%µ][\w/%]*)?\s*")
_MATRIX = re.compile(r"\s*\D{0,12}\s0\s+1(?:\s+\d{1,3})*\s*")
_PLAIN = re.compile(r"value|average|avg|mean|metric|statistic")
_TITLE = re.compile(r"\W*([A-Za-z](?:[^:\s]| (?! )){2,80}?)\s?\(([\w/]{1,12})\)\s*:?\s*")
MOST_CELLS = 40

Cell = tuple[str, float | str, str, str]
"""Name, value in SI or text, unit as printed, what is printed."""


class Heading:
    """The heading that lines stand below: of a table, or a word with a unit."""

    def __init__(self, same: Mapping[str, str]) -> None:
        self.same = same
        self.head: list[str] = []
        self.words: list[str] = []  # the same, of columns that stand one space apart
        self.broken = False  # a line of another kind stood between
        self.under = ("", "")  # name and unit of the title above

    def take(self, text: str) -> list[Cell] | None:
        """Figures of a line that is a row; [] for a heading or a rule; None for another line."""
        if text.isspace() or not text:
            self.head = self.words = []
            return None
        if not re.search(r"\w", text):  # a rule
            return [] if self.head or self.words else None
        title = _TITLE.fullmatch(text)
        if title and unit_of(title[2]):
            self.under = (of_key(title[1])[0], unit_of(title[2]))
            return None
        if _MATRIX.fullmatch(text):  # rows and columns are cards
            count = len(re.findall(r"\s\d+", text))
            self.head = self.words = ["", *(f"column {k}" for k in range(count))]
            return []
        found = self._cells(text)
        if found is None and not text[:1].isspace():
            self.under = ("", "")
        return found

    def _cells(self, text: str) -> list[Cell] | None:
        barred = len(_BARS.findall(text)) >= 2
        words = text.lstrip(" #").split()
        if barred:
            cells = [c.strip() for c in _BARS.split(text.strip().strip("|│┃"))]
        else:
            cells = re.split(r"\s{2,}|\t+", text.lstrip(" #").rstrip())
            if len(cells) == 1 and text.count(",") > 1:
                cells = re.split(r",\s*", text.strip())
        for head, parts in ((self.head, cells), (self.words, words)):
            if not head or len(head) != len(parts):
                continue
            numbers = [_CELL.fullmatch(c) for c in parts]
            if any(numbers):
                self.broken = False
                return self._row(head, parts, numbers)
            if sum(map(bool, map(unit_of, parts))) > 1:  # the units of the heading
                cells = words = [f"{h} ({u.strip('()')})" for h, u in zip(head, parts, strict=True)]
        head = cells if self._heads(cells, barred) else []
        inner = words if text.startswith("#") and self._heads(words, barred) else []
        if not head and not inner and not self.broken:  # one line of another kind
            self.broken = True
            return None
        self.head, self.words, self.broken = head, inner, False
        return [] if head or inner else None

    def _heads(self, cells: list[str], barred: bool) -> bool:
        if not 2 <= len(cells) <= MOST_CELLS or re.search("[:=]", "".join(cells[1:])):
            return False
        if any(_CELL.fullmatch(c) or re.search(r"[a-z] \d+\.\d", c) for c in cells):
            return False
        said = sum(bool(unit or name in self.same) for name, unit in map(of_key, cells))
        return said > 1 or barred and (len(cells) > 2 or bool(_PLAIN.match(cells[1].lower())))

    def _row(
        self, heads: list[str], cells: list[str], numbers: list[re.Match[str] | None]
    ) -> list[Cell]:
        found: list[Cell] = []
        label = "" if numbers[0] else cells[0]
        of_label = of_key(label)[1]
        for head, cell, number in zip(heads, cells, numbers, strict=True):
            if not head:  # the number of a row
                continue
            if number is None:
                found.append((of_key(head)[0] or "row", cell, "", cell))
                continue
            word = WRITTEN["cells"].get((number[2] or "").lower(), number[2])
            key = head
            if of_label and not of_key(head)[1]:  # what is measured stands in the row
                key = label if _PLAIN.fullmatch(head.lower()) else f"{label} {head}"
            cell_of = named(key, number[1], word, self.same, of_label or self.under[1])
            cell_of = cell_of or ("column", value_of(number[1]), "", number[1])
            again = any(cell_of[0] == name for name, *_ in found)
            found.append((f"{cell_of[0]}_{len(found)}" if again else cell_of[0], *cell_of[1:]))
        return found
