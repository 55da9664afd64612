"""Tables of any program: a heading, and rows of as many cells, between bars or wide spaces."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuscale.io.logs.pairs import WRITTEN, named, of_key, unit_of, value_of
from gpuscale.io.logs.patterns import NUMBER

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
