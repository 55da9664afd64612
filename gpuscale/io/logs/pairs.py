"""Lines of no known program: `key: value unit`, `key=value`, and numbers with a rate behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite

from gpuscale.core.diagnosis.facts import UNITS

_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[ T]?|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?")
_SPACE = re.compile(r"\s{2,}")
_NUMBER = r"([-+]?\d{1,25}(?:[,_]\d{3}){0,8}(?:\.\d{1,25})?(?:[eE][-+]?\d{1,3})?)"
_UNIT = r"(%|[A-Za-zµ]+(?:/[A-Za-z]+)*(?![\w/]))"
_KEYED = re.compile(
    r"([A-Za-z][\w ./()%\[\]-]{0,48}?)['\"]?(?:\s?(?:[:=]{1,2}|│)\s?|(?<=\w)>)['\"]?"
    + _NUMBER
    + rf"\s?{_UNIT}?"
)
_LONG = re.compile(r"\w{80,}")
_BARE = re.compile(rf"(?<![\w.]){_NUMBER}\)?\s?{_UNIT}")
_SPAN = re.compile(
    r"\b(?:(\d+)\s?h(?:ours?)?\s?)?(\d+)\s?m(?:in|inutes?)?\s?(\d+(?:\.\d+)?)\s?s(?:ec|econds)?\b"
)
_TIMED = re.compile(
    r"((?:time|duration|elapsed)['\"]?\s*[:=]\s*['\"]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)"
)
_COUNTED = {
    r"t|toks?|tokens?|words?": "tokens/s",
    r"samples?|examples?|seqs?|sequences|images?|imgs?|rows": "samples/s",
    r"it|its|iters?|iterations?|steps?|batch(?:es)?": "it/s",
    r"reqs?|requests?": "req/s",
    r"t(?:era)?f(?:lops?)?": "TFLOP/s",
    r"gf(?:lops?)?": "GFLOPS",
}
"""What is counted a second -> its unit."""
_TIMES = {"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "ms": "ms", "us": "us"}
_LONE = {"msec": "ms", "minutes": "min", "mins": "min", "hours": "h", "tflops": "TFLOP/s"}
_SIZED = {u.lower(): u for u in ("KiB", "MiB", "GiB", "TiB", "GB", "MB", "TB", "Gbps", "MHz")}
_EACH = ("gpu", "device", "rank", "chip", "card", "user", "s")
_ENDS = re.compile(r"(?<!per)_(ms|us|gb|gib|mb|mib|gbps|seconds|sec)$")
_EACH_S = (("token", "tokens/s"), ("request", "req/s"), ("sample", "samples/s"))
PLAIN = ("B", "m", "h", "C")
"""Units that a single letter is too little to be, where a key does not ask for one."""

Pair = tuple[str, float, str, str]
"""Name, value in SI, unit as printed, number as printed."""


def unit_of(word: str) -> str:
    """Return the unit that a word is; empty for none.

    Examples
    --------
    >>> unit_of("tok/sec"), unit_of("TF/s/GPU"), unit_of("sec/batch"), unit_of("loss/s")
    ('tokens/s', 'TFLOP/s', 's', '')
    """
    if word in UNITS and word not in PLAIN:
        return word
    head, *below = word.lower().split("/")
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


def _of_key(key: str) -> tuple[str, str]:
    """(name, unit) that a key says: ``Mean TPOT (ms)``, ``memory[GB]``, ``step_time_ms``."""
    hits = list(re.finditer(r"[(\[]([^()\[\]]{1,16})[)\]]", key))
    said = [(h, u) for h in hits if (u := unit_of(h[1]) or (h[1] if h[1] in PLAIN else ""))]
    last = key.rsplit(" ", 1)[-1]
    hit, unit = said[-1] if said else (None, unit_of(last) if "/" in last else "")
    rest = key[: hit.start()] + key[hit.end() :] if hit else key
    name = re.sub(r"\W+", "_", rest.lower()).strip("_")
    if name.endswith("_per_sec") and not unit:
        unit = next((u for w, u in _EACH_S if w in name), "")
    if not unit and not hits and (end := _ENDS.search(name)):
        unit = unit_of(end[1])
        name = name[: end.start()]
    return name, unit


def pairs_of(text: str, same: Mapping[str, str]) -> Iterator[Pair]:
    """List what a line says by key, then numbers with a unit of their own."""
    if re.match(r"\s*#\s?\w+:", text):  # a comment
        return
    text = _SPACE.sub("  ", _CLOCK.sub(" ", text[:1_000])).replace("  ", " ")
    if len(text) > 200:  # no key is longer: each start in a longer word would be tried
        text = _LONG.sub(lambda hit: "_" + hit[0][-49:], text)
    taken: list[tuple[int, int]] = []
    for hit in _KEYED.finditer(text):
        key = hit[1].strip()
        if re.search(r"\.(py|cc|cpp|cu|go|rs|h)\b|https?|/\w{3,}/", key):
            continue
        name, asked = _of_key(key)
        name = name[-60:]
        known, _, usual = same.get(name, "").partition(" ")
        word = unit_of(hit[3] or "")
        if not word and hit[3] in PLAIN and any(w in name for w in ("time", "temp")):
            word = hit[3]
        strange = "/" in (hit[3] or "") and not word  # a unit that is not known
        unit = word or ("" if strange else asked or (usual if known else ""))
        known = "" if strange else known
        value = float(hit[2].replace(",", "").replace("_", ""))
        if not isfinite(value):
            continue
        if known and usual == "frac" and not word:
            unit = "%" if value > 1.5 else "frac"
        taken.append(hit.span(2))
        if name:
            yield known or name, value * UNITS[unit][1], unit, hit[2]
    bare: dict[str, int] = {}
    for hit in _BARE.finditer(text):
        unit = unit_of(hit[2])
        if unit and not any(a <= hit.start(1) < b for a, b in taken):
            name = "of_" + re.sub(r"\W+", "_", unit if unit != "%" else "percent").lower()
            bare[name] = bare.get(name, 0) + 1
            name += f"_{bare[name]}" if bare[name] > 1 else ""
            value = float(hit[1].replace(",", "").replace("_", ""))
            yield name, value * UNITS[unit][1], unit, hit[1]
