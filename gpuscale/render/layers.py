"""Layers of an answer: its summary, and the details that are asked for by name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap

from gpuscale.errors import unknown_name
from gpuscale.foreign import clean
from gpuscale.render.document import Block, Document, Facts, Point, Summary, Text

LABEL_WIDTH = 12
MOST_POINTS = 12


def named(text: str) -> tuple[str, ...]:
    """Details that are named, comma-separated.

    >>> named("memory, limits"), named("")
    (('memory', 'limits'), ())
    """
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def usual() -> tuple[str, ...]:
    """Details that a person wants wherever none are named."""
    return named(os.environ.get("GPUSCALE_SHOW", ""))


def points_of(document: Document) -> Sequence[Point]:
    """Summary of an answer: its own, or its first sentence and figures."""
    if document.summary:
        return document.summary
    first = next((b.text for b in document.blocks if isinstance(b, Text)), document.command)
    figures = next((b.rows for b in document.blocks if isinstance(b, Facts)), ())
    tone = "bad" if document.answered_no else ""
    rows = [Point(*row) for row in figures if row[0]][: MOST_POINTS - 1]
    return [Point("verdict", first.split("\n")[0], tone=tone), *rows]


def summary_of(document: Document) -> Summary:
    """Summary as a block, and which details there are beside it."""
    names = ",".join(document.details)
    return Summary(points_of(document), f"--show {names} or all" if names else "")


def layer(document: Document, show: Sequence[str]) -> Document:
    """Answer with the layers that are asked for: none named, the summary; `all`, every block.

    An answer of a sentence and a table is its own summary. Raises GpuscaleError for a detail that
    the answer does not have.
    """
    short = not document.details or len(points_of(document)) < 2
    if "all" in show or (not show and short):
        return document
    if not show or tuple(show) == ("summary",):
        return replace(document, blocks=[summary_of(document)])
    known = ("summary", *document.details)
    blocks: list[Block] = []
    for name in show:
        if name not in known:
            raise unknown_name("detail in --show:", name, known, f"it has {', '.join(known)}, all")
        own = document.details.get(name, ())
        blocks += [summary_of(document)] if name == "summary" else own
    return replace(document, blocks=blocks)


def lines_of(block: Summary, width: int = 0) -> list[tuple[str, str, str, str]]:
    """Lines of a summary: (label, value, note, tone); `width`: of a line, 0 without end.

    A value and its note are one text, cut at words; the first line of a point has its value.
    """
    head, *points = block.points
    found = [("", line, "", head.tone) for line in _cut(head.value, width)]
    found.append(("", "", "", ""))
    for p in points:
        text = "  ".join(filter(None, (p.value, p.note)))
        for i, line in enumerate(_cut(text, width - LABEL_WIDTH if width else 0)):
            value = p.value if not i and line.startswith(p.value) else "" if i else line
            found.append(("" if i else p.key, value, line[len(value) :], p.tone))
    if block.more:
        found.append(("", "", "", ""))
        room = width - LABEL_WIDTH if 0 < width < len(block.more) + LABEL_WIDTH else 0
        for i, line in enumerate(_cut(block.more.replace(",", ", "), room)):
            found.append(("" if i else "details", "", line.replace(", ", ","), ""))
    return found


UNIT = re.compile(r"(?<=\d) (?=%|[A-Za-z]{1,4}\b)")
"""Between a number and its unit, where no line is cut."""


def _cut(text: str, width: int) -> list[str]:
    said = clean(text).replace("\n", " ")
    if not width:
        return [said]
    lines = wrap(UNIT.sub("\xa0", said), width, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]
