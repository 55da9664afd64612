"""The file of a study: a CSV that grows a row an answer, and is read again when it goes on."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from gpuscale.errors import GpuscaleError
from gpuscale.foreign import csv_cell, line
from gpuscale.io.text import read_lines

MOST_ROWS = 4_000_000

SYNC_S = 1.0
"""How often what is written is forced to the disk."""


class Rows:
    """Rows of a study, appended as they come."""

    def __init__(self, path: Path, columns: Sequence[str], fresh: bool) -> None:
        self.path, self.columns = path, list(columns)
        self.done: dict[str, dict[str, str]] = {}
        self.synced_s = time.monotonic()
        try:
            if path.exists() and not fresh:
                self._read()
            self.file: TextIO = path.open("w" if fresh else "a", encoding="utf-8", newline="")
        except OSError as error:
            raise GpuscaleError(f"{path}: cannot be written: {error.strerror}") from None
        self.writer = csv.writer(self.file, lineterminator="\n")
        if not self.done and path.stat().st_size == 0:
            self.writer.writerow(self.columns)
            self.file.flush()

    def _read(self) -> None:
        """Take what is there; a line that was cut off in writing is asked again."""
        text = "".join(read_lines(self.path, MOST_ROWS))
        whole = text[: text.rfind("\n") + 1]
        lines = list(csv.reader(whole.splitlines()))
        if not text:
            return
        if lines[:1] != [self.columns]:
            raise GpuscaleError(
                f"{self.path}: holds another study (other columns)",
                "give another --out, or --fresh to start over",
            )
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
        for cells in lines[1:]:
            if len(cells) == len(self.columns):
                self.done[cells[0]] = dict(zip(self.columns, cells, strict=True))

    def add(self, row: dict[str, Any]) -> None:
        """Write one row."""
        cells = [_cell(row.get(c)) for c in self.columns]
        self.writer.writerow(cells)
        self.file.flush()
        self.done[cells[0]] = dict(zip(self.columns, cells, strict=True))
        if time.monotonic() - self.synced_s > SYNC_S:
            os.fsync(self.file.fileno())
            self.synced_s = time.monotonic()

    def close(self) -> None:
        """Leave the file whole."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return str(csv_cell(line(value))) if isinstance(value, str) else str(value)
