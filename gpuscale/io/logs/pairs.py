"""Lines of no known program: `key: value unit`, `key=value`, and numbers with a rate behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpuscale.core.diagnosis.facts import UNITS

_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[ T]?|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?")
_NUMBER = r"([-+]?\d+(?:[,_]\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_KEYED = re.compile(
    r"([A-Za-z][\w ./()%\[\]-]{0,48}?)['\"]?\s{0,20}[:=]{1,2}\s{0,20}['\"]?"
    + _NUMBER
    + r"\s?(%|[A-Za-zµ]+(?:/[A-Za-z]+)*)?"
)
_BARE = re.compile(_NUMBER + r"\s?(%|[A-Za-zµ]+(?:/[A-Za-z]+)*)")
WORDS = {
    "tok/s": "tokens/s",
    "tok/sec": "tokens/s",
    "tokens/sec": "tokens/s",
    "tokens/second": "tokens/s",
    "token/s": "tokens/s",
    "t/s": "tokens/s",
    "samples/sec": "samples/s",
    "seqs/s": "samples/s",
    "tflops/s": "TFLOP/s",
    "tflop/s": "TFLOP/s",
    "tflop/s/gpu": "TFLOP/s",
    "tflops/gpu": "TFLOP/s",
    "tflops": "TFLOP/s",
    "seconds": "s",
    "second": "s",
    "sec": "s",
    "secs": "s",
    "msec": "ms",
    "minutes": "min",
    "gib": "GiB",
    "mib": "MiB",
    "gb": "GB",
    "mb": "MB",
    "gbps": "Gbps",
    "gb/s": "GB/s",
    "mb/s": "MB/s",
    "iter/s": "it/s",
    "its/s": "it/s",
    "steps/s": "it/s",
    "iters/s": "it/s",
    "requests/s": "req/s",
}
PLAIN = ("B", "m", "h", "C", "W")
"""Units that a single letter is too little to be, where a key does not ask for one."""

Pair = tuple[str, float, str, str]
"""Name, value in SI, unit as printed, number as printed."""


def unit_of(word: str) -> str:
    """Return the unit that a word is; empty for none."""
    if word in UNITS and word not in PLAIN:
        return word
    return WORDS.get(word.lower(), "")


def _of_key(key: str) -> tuple[str, str]:
    """(name, unit) that a key says: ``Mean TPOT (ms)``, ``memory[GB]``, ``step_time_ms``."""
    hit = re.search(r"[(\[]([^()\[\]]{1,16})[)\]]\s*$", key)
    unit = unit_of(hit[1]) if hit else ""
    name = re.sub(r"\W+", "_", (key[: hit.start()] if hit and unit else key).lower()).strip("_")
    if not unit and (end := re.search(r"_(ms|us|gb|gib|mb|mib|gbps|seconds|sec)$", name)):
        unit = unit_of(end[1])
        name = name[: end.start()]
    return name, unit


def pairs_of(text: str, same: Mapping[str, str]) -> Iterator[Pair]:
    """List what a line says by key, then numbers with a unit of their own."""
    if re.match(r"\s*#\s?\w+:", text):  # a comment
        return
    text = _CLOCK.sub(" ", text[:1_000])
    taken: list[tuple[int, int]] = []
    for hit in _KEYED.finditer(text):
        key = hit[1].strip()
        if re.search(r"\.(py|cc|cpp|cu|go|rs|h)\b|https?|/\w+/", key):
            continue
        name, asked = _of_key(key)
        name = name[-60:]
        known, _, usual = same.get(name, "").partition(" ")
        word = unit_of(hit[3] or "") or ("%" if hit[3] == "%" else "")
        unit = word or asked or (usual if known else "")
        value = float(hit[2].replace(",", "").replace("_", ""))
        if known and usual == "frac" and not word:
            unit = "%" if value > 1.5 else "frac"
        taken.append(hit.span(2))
        if name:
            yield known or name, value * UNITS[unit][1], unit, hit[2]
    for hit in _BARE.finditer(text):
        unit = "%" if hit[2] == "%" else unit_of(hit[2])
        if unit and not any(a <= hit.start(1) < b for a, b in taken):
            name = "of_" + re.sub(r"\W+", "_", unit if unit != "%" else "percent").lower()
            yield (
                name,
                float(hit[1].replace(",", "").replace("_", "")) * UNITS[unit][1],
                unit,
                hit[1],
            )
