"""Tables of any program: a heading, and rows of as many cells, between bars or wide spaces."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuscale.io.logs.pairs import named, of_key, unit_of, value_of
from gpuscale.io.logs.patterns import NUMBER

_BARS = re.compile(r"[|│┃]")
_CELL = re.compile(rf"\s*{NUMBER}(?:\s?(?:±|\+/?-)\s?[\d.]{{1,25}})?\s?([A-Za-z%µ][\w/%]*)?\s*")
_PLAIN = re.compile(r"value|average|avg|mean|metric|statistic")
_LETTERS = {"c": "C", "mhz": "MHz", "w": "W"}
"""Units that cells of a table print as a single letter, or in small letters."""
MOST_CELLS = 40

Cell = tuple[str, float | str, str, str]
"""Name, value in SI or text, unit as printed, what is printed."""


class Grid:
    """The table that is open, if there is one."""

    def __init__(self, same: Mapping[str, str]) -> None:
        self.same = same
        self.head: list[str] = []
        self.barred = self.tight = False

    def take(self, text: str) -> list[Cell] | None:
        """Figures of a line that is a row; [] for a heading or a rule; None for another line."""
        if text.isspace() or not text:
            self.head, self.tight = [], False
            return None
        if not re.search(r"\w", text):  # a rule
            return [] if self.head else None
        self.barred = len(_BARS.findall(text)) >= 2
        title = text.startswith("#") and not self.barred  # its columns stand one space apart
        if title or self.tight:
            cells = text.lstrip("# ").split()
        else:
            cells = _cells(text, self.barred)
        numbers = [_CELL.fullmatch(c) for c in cells]
        if self.head and len(cells) == len(self.head) and any(numbers):
            return self._row(cells, numbers)
        if self.head and len(cells) == len(self.head) and sum(map(bool, map(unit_of, cells))) > 1:
            cells = [f"{h} ({u.strip('()')})" for h, u in zip(self.head, cells, strict=True)]
        self.head = cells if self._heads(cells, numbers) else []
        self.tight = title and bool(self.head)
        return [] if self.head else None

    def _heads(self, cells: list[str], numbers: list[re.Match[str] | None]) -> bool:
        if not 2 <= len(cells) <= MOST_CELLS or any(numbers) or ":" in "".join(cells[1:]):
            return False
        said = sum(bool(unit or name in self.same) for name, unit in map(of_key, cells))
        return said > 1 or self.barred and (len(cells) > 2 or bool(_PLAIN.match(cells[1].lower())))

    def _row(self, cells: list[str], numbers: list[re.Match[str] | None]) -> list[Cell]:
        found: list[Cell] = []
        label = "" if numbers[0] else cells[0]
        usual = of_key(label)[1]
        for head, cell, number in zip(self.head, cells, numbers, strict=True):
            if number is None:
                found.append((of_key(head)[0] or "row", cell, "", cell))
                continue
            word = _LETTERS.get((number[2] or "").lower(), number[2])
            key = head
            if usual and not of_key(head)[1]:  # what is measured stands in the row
                key = label if _PLAIN.fullmatch(head.lower()) else f"{label} {head}"
            cell_of = named(key, number[1], word, self.same, usual)
            cell_of = cell_of or ("column", value_of(number[1]), "", number[1])
            again = any(cell_of[0] == name for name, *_ in found)
            found.append((f"{cell_of[0]}_{len(found)}" if again else cell_of[0], *cell_of[1:]))
        return found


def _cells(text: str, barred: bool) -> list[str]:
    """Cells of a line: between its bars, or where two spaces or a tab part them.

    >>> _cells("| a | 1 |", True), _cells("Prefill t/s  ms", False)
    (['a', '1'], ['Prefill t/s', 'ms'])
    """
    if barred:
        return [c.strip() for c in _BARS.split(text.strip().strip("|│┃"))]
    return re.split(r"\s{2,}|\t+", text.strip())
