"""Reading a traffic trace: the time, the prompt and the answer of every request.

CSV (Azure LLM 2023 and 2024, BurstGPT), lines of JSON (Mooncake, AIPerf, SGLang's benchmark), one
JSON object (vLLM's benchmark), chats without times (ShareGPT).
"""

from __future__ import annotations

import csv
import datetime
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import read_lines, shown_name
from gpuscale.io.traces_json import COLUMNS, Request, json_requests

MOONCAKE_BLOCK = 512
"""Tokens of a block of `hash_ids` (kvcache-ai/Mooncake, README of the traces)."""

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
    sessions: Sequence[str | None] = ()  # chat that a request goes on with
    blocks: Sequence[Sequence[int]] = ()  # names of the blocks of each prompt, equal if shared
    timed: bool = True  # arrivals are known


def read_trace(path: str) -> Trace:
    """Read a trace in any of the formats; ``-`` is standard input.

    Times are seconds or ISO dates, from any start; rows may be in any order. Raises GpuscaleError
    for a missing column, a length below 1 or a time that cannot be read, with the line.
    """
    where = shown_name(path)
    lines = read_lines(path, MOST_REQUESTS + 1)
    first = next(lines, "")
    text = itertools.chain([first], lines)
    if first.lstrip()[:1] in ("{", "["):
        found, timed, notes = json_requests(text, where)
    else:
        found, timed, notes = list(_csv_requests(text, where)), True, []
    found = [one for one in found if one.output > 0 or one.input > 0]
    if not found:
        raise GpuscaleError(f"{where}: no requests", "one line each: time,input,output")
    if timed and any(a.at_s > b.at_s for a, b in zip(found, found[1:], strict=False)):
        found.sort(key=lambda one: one.at_s)
        notes.append(f"{where}: not in order of time; sorted")
    start = found[0].at_s
    shared, total = sum(one.prefix for one in found), sum(one.input for one in found)
    chats = {one.session for one in found if one.session is not None}
    return Trace(
        arrivals_s=[one.at_s - start for one in found],
        inputs=[one.input for one in found],
        outputs=[one.output for one in found],
        prefix_frac=min(0.99, shared / total),
        notes=tuple(notes),
        sessions=[one.session for one in found] if chats and len(chats) < len(found) else (),
        blocks=[one.blocks for one in found] if any(one.blocks for one in found) else (),
        timed=timed,
    )


def _csv_requests(text: Iterable[str], where: str) -> Iterator[Request]:
    rows = csv.reader(text)
    header = [name.strip().lower() for name in next(rows, [])]
    at = {key: _index(header, names) for key, names in COLUMNS.items()}
    for key in ("time", "input", "output"):
        if at[key] is None:
            raise GpuscaleError(
                f"{where}: line 1: no column `{key}`", "the first line names time,input,output"
            )
    try:
        yield from _requests(rows, at, where)
    except csv.Error as error:
        raise GpuscaleError(f"{where}: not a CSV file: {error}") from None


def _index(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _requests(
    rows: Iterator[list[str]], at: dict[str, int | None], where: str
) -> Iterator[Request]:
    time, prompt, answer, prefix, session = (at[key] for key in COLUMNS)
    assert time is not None and prompt is not None and answer is not None
    for line, row in enumerate(rows, 2):
        if not row or not any(row):
            continue
        try:
            made = float(row[answer])
            if made == 0.0:  # failed requests of BurstGPT: no answer
                continue
            tokens = _tokens(row[prompt]), _tokens(row[answer])
            shared = int(float(row[prefix])) if prefix is not None and row[prefix].strip() else 0
            chat = row[session].strip() or None if session is not None else None
            yield Request(_seconds(row[time]), *tokens, max(0, shared), chat)
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
