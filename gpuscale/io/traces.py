"""Reading a traffic trace: a CSV file with the time, the prompt and the answer of every request."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.errors import GpuscaleError
from gpuscale.io.tables import csv_lines
from gpuscale.io.text import shown_name

COLUMNS = {
    "time": ("time", "timestamp", "arrived_at", "arrival", "t"),
    "input": ("input", "contexttokens", "num_prefill_tokens", "prompt", "input_tokens", "isl"),
    "output": ("output", "generatedtokens", "num_decode_tokens", "answer", "output_tokens", "osl"),
    "prefix": ("prefix", "prefix_tokens", "cached"),
}
"""Columns and the names that public traces give them."""

MOST_REQUESTS = 1_000_000
MOST_TOKENS = 1e8


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of time."""

    arrivals_s: Sequence[float]  # from the first on
    inputs: Sequence[int]
    outputs: Sequence[int]
    prefix_frac: float  # of all prompt tokens
    notes: tuple[str, ...] = ()


def read_trace(path: str) -> Trace:
    """Read a trace; ``-`` is standard input.

    Times are seconds or ISO dates, from any start; rows may be in any order. Raises GpuscaleError
    for a missing column, a length below 1 or a time that cannot be read, with the line.
    """
    where = shown_name(path)
    rows = csv_lines(path, MOST_REQUESTS + 1)
    header = [name.strip().lower() for name in next(rows, [])]
    at = {key: _index(header, names) for key, names in COLUMNS.items()}
    for key in ("time", "input", "output"):
        if at[key] is None:
            raise GpuscaleError(
                f"{where}: line 1: no column `{key}`", "the first line names time,input,output"
            )
    found = list(_requests(rows, at, where))
    if not found:
        raise GpuscaleError(f"{where}: no requests", "one line each: time,input,output")
    notes = []
    if any(a[0] > b[0] for a, b in zip(found, found[1:], strict=False)):
        found.sort(key=lambda one: one[0])
        notes.append(f"{where}: not in order of time; sorted")
    start = found[0][0]
    shared, total = sum(one[3] for one in found), sum(one[1] for one in found)
    return Trace(
        [one[0] - start for one in found],
        [one[1] for one in found],
        [one[2] for one in found],
        min(0.99, shared / total),
        tuple(notes),
    )


def _index(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _requests(
    rows: Iterator[list[str]], at: dict[str, int | None], where: str
) -> Iterator[tuple[float, int, int, int]]:
    time, prompt, answer, prefix = (at[key] for key in COLUMNS)
    assert time is not None and prompt is not None and answer is not None
    for line, row in enumerate(rows, 2):
        if not row or not any(row):
            continue
        try:
            tokens = _tokens(row[prompt]), _tokens(row[answer])
            shared = int(float(row[prefix])) if prefix is not None and row[prefix].strip() else 0
            yield _seconds(row[time]), *tokens, max(0, shared)
        except (ValueError, IndexError) as error:
            raise GpuscaleError(f"{where}: line {line}: {error}", "as 12.5,1024,256") from None


def _tokens(text: str) -> int:
    value = float(text)
    if not 1.0 <= value <= MOST_TOKENS:
        raise ValueError(f"{text.strip()[:20]} tokens: a length is at least 1")
    return int(value)


def _date(stamp: str) -> datetime.datetime:
    """Read a date with any number of digits of a second (Python 3.10 takes three or six); in UTC.

    >>> _date("2023-11-16 18:17:03.9799600").microsecond
    979960
    >>> _date("2023-11-16T18:17:03.5+01:00").hour
    18
    """
    whole, dot, rest = stamp.partition(".")
    zone = rest.lstrip("0123456789")
    digits = rest[: len(rest) - len(zone)][:6]
    read = datetime.datetime.fromisoformat(f"{whole}.{digits:0<6}{zone}" if dot else stamp)
    return read if read.tzinfo else read.replace(tzinfo=datetime.timezone.utc)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return _date(text.strip().replace("Z", "+00:00")).timestamp()
    if not -1e15 < value < 1e15:
        raise ValueError(f"{text.strip()[:20]} is not a time")
    return value
