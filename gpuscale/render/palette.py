"""What each colour means: one table for page, picture, trace and terminal, light and dark.

A thing has the same colour wherever it is drawn, and no colour stands for two things. The colours
of things that meet in one picture differ by at least 9 (CIEDE2000), each stands out from its page
by 3 to 1 (WCAG 2, non-text contrast), and text on it can be read: `tests/render/test_palette.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

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

MEANINGS: Mapping[str, Colour] = {
    "forward": Colour("#306fb8", "#72a3ed", "rail_response"),
    "backward": Colour("#7c5fc2", "#b493f7", "detailed_memory_dump"),
    "backward-weights": Colour("#2a9bc2", "#6dcbf3", "background_memory_dump"),
    "attention": Colour("#208a80", "#63bdb2"),
    "elementwise": Colour("#5c9e59", "#91ce8b"),
    "experts": Colour("#8c891c", "#c2ba55"),
    "recompute": Colour("#d08213", "#febc4c", "rail_idle"),
    "optimizer": Colour("#8c3a8e", "#c472c3", "thread_state_uninterruptible"),
    "tp": Colour("#ce4949", "#ff7e76", "rail_animation"),
    "cp": Colour("#c76aa8", "#fa9cd8", "terrible"),
    "ep": Colour("#9c3661", "#d87096", "bad"),
    "pp": Colour("#d87a51", "#ffa378", "thread_state_iowait"),
    "dp": Colour("#8f5a2b", "#c68d5b", "thread_state_unknown"),
    "gather": Colour("#9e954e", "#cec57f", "olive"),
    "host": Colour("#5a5d63", "#8e929a", "black"),
    "straggler": Colour("#a68a80", "#d7bbb1", "generic_work"),
    "other": Colour("#8d949c", "#bdc4cd", "grey"),
    "weights": Colour("#204f7e", "#6384b5"),
    "gradients": Colour("#be8a24", "#f9b661"),
    "master": Colour("#6a9e85", "#99cdb3"),
    "activations": Colour("#dc6e4e", "#ff997b"),
    "logits": Colour("#0f6c75", "#5da3ab"),
    "buffers": Colour("#98744f", "#cca785"),
    "fragmentation": Colour("#939393", "#c6c6c6"),
    "context": Colour("#6c7381", "#9aa1b0"),
    "kv": Colour("#508b3c", "#84be6f"),
    "rollout": Colour("#39996b", "#73cc9c"),
    "scoring": Colour("#458191", "#7db4c3"),
    "sync": Colour("#a860b0", "#db93e3"),
    "reference": Colour("#657a24", "#7fa32f"),
    "reward": Colour("#9f2a2a", "#ea4e63"),
    "critic": Colour("#494b82", "#8280bd"),
}
"""Meaning -> its colour."""

_OF_KEYS = {
    "matmul_s": "forward",
    "moe_s": "experts",
    "offload_s": "activations",
    "bubble_s": "other",
    "untuned_s": "other",
    "working_bytes": "buffers",
    "weights": "backward-weights",
    "bubble": "other",
    "skipped": "other",
    "send": "pp",
    "receive": "pp",
}
"""Parts whose meaning is not their own name: of a step, of memory, kinds of event."""

WORDS: Mapping[str, str] = {
    **{
        word: _OF_KEYS.get(key, key.removesuffix("_bytes").removesuffix("_s").split("_comm")[0])
        for parts in (STEP_PARTS, MEMORY_PARTS, EVENT_KINDS)
        for key, word in parts.items()
    },
    "weights": "weights",
    "KV cache": "kv",
    "base weights": "weights",
    "policy, training": "weights",
    "adapters, gradients": "master",
    "layer at work": "forward",
    "kept activations": "activations",
    "logits and loss": "logits",
    "gathered, unpacked": "gather",
    "workspaces": "buffers",
    "context": "context",
    "context, NCCL, graphs": "context",
    "context, NCCL, reserve": "context",
    "matrix products, adapters": "forward",
    "norms, activations, loss": "elementwise",
    "routing of experts": "experts",
    "launches": "host",
    "tensor parallelism": "tp",
    "context parallelism": "cp",
    "expert parallelism": "ep",
    "pipeline transfers": "pp",
    "gathering and reducing": "dp",
    "offload": "gather",
    "other": "other",
    "rollout": "rollout",
    "log-probabilities": "scoring",
    "reference": "reference",
    "reward model": "reward",
    "critic": "critic",
    "engine in and out": "gather",
    "update": "forward",
    "weights to the engine": "sync",
    "scheduling, data": "host",
}
"""Words of answers -> what they mean."""

SERIES = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#f0e442",
    "#8c8c8c",
    "#332288",
    "#882255",
    "#44aa99",
    "#999933",
)
"""Lines that differ by number alone (stages, GPUs, cases): Okabe and Ito's palette, then of Tol's
muted one; told apart with any colour vision, and by their dashes and marks."""

SERIES_IN_DARK = {0: "#3d9bd6", 8: "#8577d9", 9: "#c7658f"}
"""Of these, those that would be too dark on a dark page."""

DARK_TEXT_ON = (1, 2, 3, 5, 6, 7, 10, 11)
"""Lines' colours that carry dark text on a light page; all other colours carry white there, and
every colour carries dark text on a dark page."""


def meaning(words: str) -> str | None:
    """Return what a word of an answer means, as a key of `MEANINGS`; None where it has no colour.

    Examples
    --------
    >>> meaning("KV cache"), meaning("wait for weights"), meaning("stage 1")
    ('kv', 'gather', None)
    """
    return WORDS.get(words)


def fill(words: str, n: int) -> str:
    """Class of a filled shape: of what it means, or else of the `n`-th colour.

    Examples
    --------
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
