"""What each colour means: one table for page, picture, trace and terminal, light and dark.

A thing has the same colour wherever it is drawn, and no colour stands for two things. The colours
of things that meet in one picture differ by at least 9 (CIEDE2000), each stands out from its page
by 3 to 1 (WCAG 2, non-text contrast), and text on it can be read: `tests/render/test_palette.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import tomli

from gpuscale.core.records import NamedTuple
from gpuscale.core.words import EVENT_KINDS, MEMORY_PARTS, STEP_PARTS


class Colour(NamedTuple):
    """A colour on a light page, on a dark one, and in chrome://tracing, which has its own names."""

    light: str
    dark: str
    trace: str = "generic_work"


PAPER = Colour("#ffffff", "#12161c")
INK = Colour("#1b1f24", "#e6edf3")
SOFT = Colour("#57606a", "#9da7b3")
RULE = Colour("#d8dee4", "#2b323b")
EDGE = Colour("#6e7781", "#7d8590")
IDLE = Colour("#eef1f4", "#222932")
MARK = Colour("#b3261e", "#ff8a80")
GOOD = Colour("#116329", "#56d364")

_TABLES = tomli.loads((Path(__file__).parent / "assets" / "palette.toml").read_text("utf-8"))
LETTERS: dict[str, str] = _TABLES["letters"]
"""Kinds of work that are drawn in time, and their letters; bubbles are what is left."""

MEANINGS: Mapping[str, Colour] = {k: Colour(*colours) for k, colours in _TABLES["meaning"].items()}
"""Meaning -> its colour."""

_KEYS: Mapping[str, str] = _TABLES["keys"]

WORDS: Mapping[str, str] = {
    word: _KEYS.get(key, key.removesuffix("_bytes").removesuffix("_s").split("_comm")[0])
    for parts in (STEP_PARTS, MEMORY_PARTS, EVENT_KINDS)
    for key, word in parts.items()
} | _TABLES["words"]
"""Words of answers -> what they mean."""

SERIES: tuple[str, ...] = tuple(_TABLES["series"]["light"])
"""Colours of lines that differ by number alone."""

SERIES_IN_DARK = {int(n): colour for n, colour in _TABLES["series"]["dark"].items()}
"""Of these, those that are others on a dark page."""

DARK_TEXT_ON = (1, 2, 3, 5, 6, 7, 10, 11)
"""Lines' colours that carry dark text on a light page; all other colours carry white there, and
every colour carries dark text on a dark page."""


def meaning(words: str) -> str | None:
    """Return what a word of an answer means, as a key of `MEANINGS`; None where it has no colour.

    >>> meaning("KV cache"), meaning("wait for weights"), meaning("stage 1")
    ('kv', 'gather', None)
    """
    return WORDS.get(words)


def fill(words: str, n: int) -> str:
    """Class of a filled shape: of what it means, or else of the `n`-th colour.

    >>> fill("optimizer", 0), fill("stage 3", 14)
    ('gs-optimizer', 'gs-c2')
    """
    found = meaning(words)
    return f"gs-{found}" if found else f"gs-c{n % len(SERIES)}"


def text_on(words: str, n: int) -> str:
    """Class of text on a shape of that fill."""
    return "gs-on1" if not meaning(words) and n % len(SERIES) in DARK_TEXT_ON else "gs-on0"


def css() -> tuple[dict[str, str], dict[str, str]]:
    """Rules of the fills by class, for a light page and what a dark one changes."""
    light = {f".gs-{name}": f"fill:{c.light}" for name, c in MEANINGS.items()}
    dark = {f".gs-{name}": f"fill:{c.dark}" for name, c in MEANINGS.items()}
    for i, colour in enumerate(SERIES):
        light[f".gs-c{i}"] = f"fill:{colour}"
        light[f".gs-l{i}"] = f"stroke:{colour};fill:none"
    for i, colour in SERIES_IN_DARK.items():
        dark[f".gs-c{i}"] = f"fill:{colour}"
        dark[f".gs-l{i}"] = f"stroke:{colour};fill:none"
    return light, dark


def variables() -> str:
    """Colours of a page as custom properties of CSS, light and dark; ``--m-NAME`` of a meaning."""
    paper = {
        "bg": PAPER,
        "fg": INK,
        "soft": SOFT,
        "rule": RULE,
        "ok": GOOD,
        "no": MARK,
        **{f"m-{name}": colour for name, colour in MEANINGS.items()},
    }
    light = "".join(f"--{k}:{c.light};" for k, c in paper.items())
    dark = "".join(f"--{k}:{c.dark};" for k, c in paper.items())
    return (
        f":root{{color-scheme:light dark;{light}--band:#f6f8fa;--link:#0a58ca}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}"
        "--band:#1a2028;--link:#79b8ff}}"
    )


def in_terminal(name: str) -> str:
    """Colour of a meaning in a terminal: for a dark one, unless it says that it is light."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return MEANINGS[name].light if ground in ("7", "15") else MEANINGS[name].dark
