"""Lines of no known program: `key: value unit`, `key=value`, and numbers with a rate behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import isfinite

from gpuscale.core.diagnosis.facts import COUNTS, UNITS
from gpuscale.io.logs.patterns import NUMBER

_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[ T]?|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?")
_SPACE = re.compile(r"\s{2,}")
_UNIT = r"(%|[A-Za-zµ]+(?:[/-][A-Za-z]+)*(?![\w/]))"
_SPREAD = r"(?:\s?(?:±|\+/?-)\s?[\d.]{1,25})?"
_KEYED = re.compile(
    r"([A-Za-z][\w ./()%\[\]-]{0,48}?)['\"]?(?:\s?(?:[:=]{1,2}|│)\s?|(?<=\w)>)['\"\[(]?"
    rf"{NUMBER}\)?{_SPREAD}\s?{_UNIT}?"
)
_SPACED = re.compile(rf"(?<![\w/.])([A-Za-z][\w/]*(?:\([\w/]{{1,9}}\))?)(?: \.{{2,}})? {NUMBER}")
_LISTED = re.compile(
    r"([A-Za-z][\w ()-]{0,40})\(([\w.]+(?:, ?[\w.]+)+)\)\s?[:=]\s?\[?"
    r"(\d[\d.]*[a-z]*(?:, ?\d[\d.]*[a-z]*)+)"
)
_LONG = re.compile(r"\w{80,}")
_BARE = re.compile(rf"(?<![\w.]){NUMBER}\)?{_SPREAD}\s?{_UNIT}")
_SPAN = re.compile(
    r"\b(?:(\d+)\s?h(?:ours?)?\s?)?(\d+)\s?m(?:in|inutes?)?\s?(\d+(?:\.\d+)?)\s?s(?:ec|econds)?\b"
)
_TIMED = re.compile(
    r"((?:time|duration|elapsed)['\"]?\s*[:=]\s*['\"]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)"
)
_CAMEL = re.compile(r"(?<=[a-z\d])(?=[A-Z][a-z])")
_COUNTED = {
    r"t|toks?|tokens?|words?": "tokens/s",
    r"samples?|examples?|seqs?|sequences|images?|imgs?|rows": "samples/s",
    r"it|its|iters?|iterations?|steps?|batch(?:es)?": "it/s",
    r"reqs?|requests?": "req/s",
    r"t(?:era)?f(?:lops?)?": "TFLOP/s",
    r"gf(?:lops?)?": "GFLOPS",
    r"gbits?": "Gbps",
}
"""What is counted a second -> its unit."""
_TIMES = {"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "ms": "ms", "us": "us"}
_TIMES |= {"ns": "ns"}
_LONE = {"msec": "ms", "minutes": "min", "mins": "min", "hours": "h", "tflops": "TFLOP/s"}
_LONE |= {"tps": "tokens/s", "mhz": "MHz", "bytes": "bytes"}
_SIZED = {u.lower(): u for u in ("KiB", "MiB", "GiB", "TiB", "GB", "MB", "TB", "Gbps", "MHz")}
_EACH = ("gpu", "device", "rank", "chip", "card", "user", "s")
_ENDS = re.compile(r"(?<!per)_(ms|us|gb|gib|mb|mib|gbps|seconds|sec|tps)$")
_EACH_S = (("token", "tokens/s"), ("request", "req/s"), ("sample", "samples/s"))
PLAIN = ("B", "m", "h", "C")
"""Units that a single letter is too little to be, where a key does not ask for one."""

Pair = tuple[str, float, str, str]
"""Name, value in SI, unit as printed, number as printed."""


@lru_cache(maxsize=1024)
def unit_of(word: str) -> str:
    """Return the unit that a word is; empty for none.

    Examples
    --------
    >>> unit_of("tok/sec"), unit_of("TF/s/GPU"), unit_of("sec/batch"), unit_of("loss/s")
    ('tokens/s', 'TFLOP/s', 's', '')
    """
    if word in UNITS and word not in PLAIN:
        return word
    head, *below = word.lower().replace("-per-", "/").split("/")
    if not below:
        return _TIMES.get(head) or _LONE.get(head) or _SIZED.get(head, "")
    if below[0] in ("s", "sec", "second") and below[1:] in ([], *([w] for w in _EACH)):
        size = f"{_SIZED.get(head, '')}/s"
        counted = (u for names, u in _COUNTED.items() if re.fullmatch(names, head))
        return size if size in UNITS else next(counted, "")
    if below[0] in _EACH:  # TFLOPS/GPU
        return _LONE.get(head, "")
    steps = re.fullmatch("it|iter|iteration|step|batch", below[0])
    return _TIMES.get(head, "") if steps and len(below) == 1 else ""


def with_spans(text: str) -> str:
    """Write times of hours and minutes in seconds.

    Examples
    --------
    >>> with_spans("step took 1m 25s"), with_spans("train_runtime = 0:20:34.5")
    ('step took 85 s', 'train_runtime = 1234.5 s')
    """

    def seconds(h: str | None, m: str, s: str) -> str:
        return f"{int(h or 0) * 3600 + int(m) * 60 + float(s):.12g} s"

    text = _SPAN.sub(lambda hit: seconds(hit[1], hit[2], hit[3]), text)
    return _TIMED.sub(lambda hit: hit[1] + seconds(hit[2], hit[3], hit[4]), text)


@lru_cache(maxsize=1024)
def of_key(key: str) -> tuple[str, str]:
    """Read a key: (name, unit) of ``Mean TPOT (ms)``, ``memory[GB]``, ``tok/s after``.

    Examples
    --------
    >>> of_key("Mean TPOT (ms)"), of_key("step_time_ms"), of_key("SamplesPerSec")
    (('mean_tpot', 'ms'), ('step_time', 'ms'), ('samples_per_sec', 'samples/s'))
    """
    hits = list(re.finditer(r"[(\[]([^()\[\]]{1,16})[)\]]", key))
    said = [(h, u) for h in hits if (u := unit_of(h[1]) or (h[1] if h[1] in PLAIN else ""))]
    words = (u for w in key.split() if len(w) > 1 and (u := unit_of(w)) and w != "tokens")
    hit, unit = said[-1] if said else (None, next(words, ""))
    rest = key[: hit.start()] + key[hit.end() :] if hit else key
    name = re.sub(r"\W+", "_", _CAMEL.sub("_", rest).lower()).strip("_")
    if name.endswith("_per_sec") and not unit:
        unit = next((u for w, u in _EACH_S if w in name), "")
    if not unit and not hits and (end := _ENDS.search(name)):
        unit = unit_of(end[1])
        name = name[: end.start()]
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
    if not unit and word in COUNTS and (word in "kK" or "param" in name):
        return known or name, value * COUNTS[word], "", number
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
            name = "of_" + re.sub(r"\W+", "_", unit if unit != "%" else "percent").lower()
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
    for hit in _KEYED.finditer(text):
        key = re.split(r" -+ |, | > ", hit[1])[-1].strip()
        if re.search(r"\.(py|cc|cpp|cu|go|rs|h)\b|https?|/\w{3,}/", key):
            continue
        pair = named(f"{under[0]} {key}", hit[2], hit[3], same, under[1])
        if pair is not None:
            taken.append(hit.span(2))
            yield pair
    for hit in _SPACED.finditer(text):  # It/sec 1.472; latency(ms) 432.5; batch_size 1
        name, unit = of_key(hit[1])
        if unit_of(hit[1]) and text[: hit.start()].rstrip()[-1:].isdigit():
            continue  # the unit of the number before
        known = unit or "_" in hit[1] or name in same
        if known and not any(a <= hit.start(2) < b for a, b in taken):
            pair = named(hit[1], hit[2], None, same)
            if pair is not None:
                taken.append(hit.span(2))
                yield pair
