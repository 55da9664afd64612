"""What people call things, and what they are here: hints for names that are not known.

A word that is not covered says so; no word leads to a thing that merely spells alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
CLUSTER = "that is a cluster; its GPUs are h100-sxm, a100-sxm-80gb, b200 ..."


@cache
def packaged(name: str) -> dict[str, Any]:
    """Read a table of the package's own words."""
    import tomli

    return tomli.loads((DATA / name).read_text(encoding="utf-8"))


@cache
def names() -> dict[str, dict[str, str]]:
    """Kind of thing -> word -> what it is here, or that it is not covered (`data/meant.toml`)."""
    found: dict[str, dict[str, str]] = {}
    for row in packaged("meant.toml")["meaning"]:
        found.setdefault(row["kind"], {}).update(dict.fromkeys(row["words"], row["says"]))
    return found


SLICE = r"(?:tpu-?)?v(3|4|5p|5e|5litepod|6e)-(\d+)"
CORES = ("3", "4", "5p")
"""Generations of TPU whose slices are named by cores, two a chip; the others by chips."""
SHOWN = 5
"""Names of a family that a hint lists."""


def meant(kind: str, name: str) -> str:
    """Say what a name that is not known means here; empty where nothing can be said.

    >>> meant("GPU preset", "v4-8")
    'a slice of 4 chips: tpu-v4 with --gpus 4'
    >>> meant("GPU preset", "8xh100"), meant("model preset", "claude")[:25]
    ('the number is an option: h100 with --gpus 8', 'its size is not published')
    """
    word = re.sub(r"[\s_]+", "-", name.strip().lower())[:60]
    topics = kind.lower().replace("-", " ").split()
    for topic, words in names().items():
        if topic.lower() in topics and word in words:
            return words[word]
    for row in packaged("meant.toml")["pattern"]:
        if row["kind"] in topics and (hit := re.fullmatch(row["like"], word)):
            return str(row["says"]).format(name.strip(), *hit.groups())
    if "gpu" in topics and (found := re.fullmatch(SLICE, word)):
        kind, n_chips = found[1], int(found[2]) // (2 if found[1] in CORES else 1)
        name = f"tpu-v{kind.replace('litepod', 'e')}"
        return f"a slice of {n_chips} chips: {name} with --gpus {n_chips}"
    if topics[:1] == ["gpu"] and word.startswith(("dgx-", "hgx-")):
        return CLUSTER
    return ""


def family(name: str, known: Iterable[str]) -> str:
    """Members of a family by its name: sizes of a model, kinds of a GPU; empty where it is none.

    >>> family("qwen3", ["qwen3-8b", "qwen3-32b", "qwen30"]), family("llama", [])
    ('which one: qwen3-8b, qwen3-32b?', '')
    >>> family("rtx9999", ["rtx-4090", "rtx-5090", "a100"])
    'of rtx there are rtx-4090, rtx-5090'
    >>> family("qwen3.5-2b", ["qwen-7b", "qwen3.5-27b"])
    'of qwen3.5 there are qwen3.5-27b'
    """
    word = re.sub(r"[\s_]+", "-", name.strip().lower())[:60]
    known, stem = list(known), (re.match(r"[a-z]{2,}|[a-z](?=\d)", word) or [""])[0]
    if len(word) < 2 or not stem:
        numbers = _starting(r"\d+$", known, word) if word.isdecimal() else ""
        return f"of numbers alone there are {numbers}" if numbers else ""
    rest = r"(?![a-z\d])" if word[-1].isdigit() else "(?![a-z])"
    if members := _starting(re.escape(word) + rest, known, word):
        return f"which one: {members}?" if "," in members else f"did you mean `{members}`?"
    longer = [word[: dash.start()] for dash in re.finditer("-", word)]
    for begin, rest in [*((w, r"(?![a-z\d])") for w in reversed(longer)), (stem, "(?![a-z])")]:
        if members := begin and _starting(re.escape(begin) + rest, known, word):
            return f"of {begin} there are {members}"
    return ""


def _starting(pattern: str, known: Iterable[str], word: str) -> str:
    """List the first names that begin so, those spelled nearest to a word first."""
    begin = {n.replace("-", ""): n for n in sorted(known) if re.match(pattern, n)}
    found = sorted(begin.values(), key=lambda n: (edits(word, n), n))
    return ", ".join(found[:SHOWN]) + (" ..." if len(found) > SHOWN else "")


def edits(one: str, other: str) -> int:
    """Letters to change, leave out, add or swap with a neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        two_before, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, two_before[j - 2] + 1)
            row.append(best)
    return row[-1]
