"""Reading CSV: rows as lists or by the names of the header, as many as a person would give."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import read_lines, shown_name

MAX_ROWS = 50_000
"""Most rows of a table that is kept as a whole; the largest shipped one has 1,700."""

MAX_CELLS = 1_000_000


def csv_lines(path: str | os.PathLike[str], most: int) -> Iterator[list[str]]:
    """Lines of a CSV file as cells, one at a time; ``-`` is standard input.

    Raises GpuscaleError if the file cannot be read, is no CSV text, or has more than `most` lines.
    """
    try:
        yield from csv.reader(read_lines(path, most))
    except csv.Error as error:
        raise GpuscaleError(f"{shown_name(path)}: not a CSV file: {error}") from None


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Rows of a CSV file by the names of its header, stripped; every cell present.

    Raises GpuscaleError if the file cannot be read, is no CSV text, has no header with rows under
    it, or more than `MAX_ROWS` or `MAX_CELLS`.
    """
    shown = shown_name(path)
    lines = csv_lines(path, MAX_ROWS + 1)
    header = next(lines, [])
    n_columns = len(header)
    rows: list[dict[str, str]] = []
    for cells in lines:
        if not cells:
            continue
        if len(rows) * n_columns > MAX_CELLS:
            raise GpuscaleError(f"{shown}: more than {MAX_CELLS:,} cells", "give a part of it")
        cells += [""] * (n_columns - len(cells))
        rows.append({k: v.strip() for k, v in zip(header, cells, strict=False) if k})
    if not rows or len(rows[0]) < 2:
        raise GpuscaleError(f"{shown}: no rows", "a CSV file with a header line is wanted")
    return rows
