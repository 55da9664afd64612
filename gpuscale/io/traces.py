"""Reading a traffic trace: the time, the prompt and the answer of every request.

CSV (Azure LLM 2023 and 2024, BurstGPT), lines of JSON (Mooncake, AIPerf, SGLang's benchmark), one
JSON object (vLLM's benchmark, GenAI-Perf), chats without times (ShareGPT).
"""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuscale.core.records import NamedTuple, dataclass
from gpuscale.errors import GpuscaleError
from gpuscale.io.text import read_lines, shown_name

COLUMNS = {
    "time": ("time", "timestamp", "arrived_at", "arrival", "t"),
    "input": (
        *("input", "contexttokens", "num_prefill_tokens", "prompt", "input_tokens", "isl"),
        *("request tokens", "input_length", "prompt_len", "input_sequence_length"),
    ),
    "output": (
        *("output", "generatedtokens", "num_decode_tokens", "answer", "output_tokens", "osl"),
        *("response tokens", "output_length", "output_len", "output_sequence_length"),
    ),
    "prefix": ("prefix", "prefix_tokens", "cached"),
    "session": ("session", "session_id", "session id", "conversation_id", "chat_id"),
}
"""Columns and the names that public traces give them."""

CHARACTERS_A_TOKEN = 4.0
"""Of English text, where a chat has no token counts: the usual rule of tokenisers."""


class TracedRequest(NamedTuple):
    """One request of a trace."""

    at_s: float
    input: int
    output: int
    prefix: int = 0
    session: str | None = None
    blocks: tuple[int, ...] = ()


Found = tuple[list[TracedRequest], bool, list[str]]
"""Requests, whether their times are known, what was assumed."""


def json_requests(text: Iterable[str], where: str) -> Found:
    """Read the requests of a JSON file or of lines of JSON."""
    whole = "".join(text)
    try:
        read: Any = json.loads(whole)
        records = read if isinstance(read, list) else [read]
    except (ValueError, RecursionError):
        records = [_line(n, line, where) for n, line in enumerate(whole.splitlines(), 1) if line]
    try:
        return _read(records, where)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        hint = "as Mooncake's traces: timestamp, input_length, output_length"
        raise GpuscaleError(f"{where}: a request whose values are no numbers", hint) from None


def _read(records: list[Any], where: str) -> Found:
    """Read the requests by the shape of the first record."""
    if not all(isinstance(one, dict) for one in records):
        raise GpuscaleError(f"{where}: no JSON object for each request", "as Mooncake's traces")
    first = records[0] if records else {}
    if "input_lens" in first and "output_lens" in first:
        return _benchmark(first, where)
    if "experiments" in first:
        return _profiled(first)
    if any(key in first for key in ("conversations", "conversation", "messages")):
        return _chats(records)
    return _objects(records, where)


def _line(number: int, line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", "it nests too deep, or has too long a number")
        raise GpuscaleError(f"{where}: line {number}: {why}", "one JSON object a line") from None


def _benchmark(record: Mapping[str, Any], where: str) -> Found:
    """Of `vllm bench serve --save-detailed` and of `sglang.bench_serving --output-details`."""
    inputs, outputs = record["input_lens"], record["output_lens"]
    starts, rate = record.get("start_times") or (), record.get("request_rate")
    timed = len(starts) == len(inputs)
    rows = zip(starts if timed else [0.0] * len(inputs), inputs, outputs, strict=False)
    found = [TracedRequest(float(t), int(i), int(o)) for t, i, o in rows if i >= 1 and o >= 1]
    if not timed and isinstance(rate, (int, float)) and 0.0 < rate < 1e9:
        note = f"{where}: no start times; spread evenly at its request rate, {rate:g}/s"
        return [one._replace(at_s=k / rate) for k, one in enumerate(found)], True, [note]
    return found, timed, []


def _profiled(record: Mapping[str, Any]) -> Found:
    """Of the `profile_export.json` of GenAI-Perf: times in ns, texts, a moment for each token."""
    found = []
    for experiment in record["experiments"]:
        for request in experiment.get("requests") or ():
            asked = request.get("request_inputs") or {}
            text = str(asked.get("payload") or asked.get("text_input") or asked)
            tokens = max(1, round(len(text) / CHARACTERS_A_TOKEN))
            answered = len(request.get("response_timestamps") or ())
            found.append(TracedRequest(float(request["timestamp"]) / 1e9, tokens, max(1, answered)))
    note = f"no token counts: {CHARACTERS_A_TOKEN:g} characters of a prompt count as one token"
    return found, True, [f"{note}, each part of a streamed answer as one"]


def _chats(records: Sequence[Mapping[str, Any]]) -> Found:
    """ShareGPT: each answer of a chat is a request whose prompt is all before it."""
    found = []
    for number, record in enumerate(records):
        turns = record.get("conversations") or record.get("conversation") or record["messages"]
        before = 0.0
        for turn in turns:
            said = str(turn.get("value") or turn.get("content") or "")
            tokens = max(1.0, len(said) / CHARACTERS_A_TOKEN)
            if (turn.get("from") or turn.get("role")) in ("gpt", "assistant", "chatgpt", "bing"):
                if before >= 1.0:
                    found.append(TracedRequest(0.0, int(before), int(tokens), 0, str(number)))
            before += tokens
    note = f"no token counts: {CHARACTERS_A_TOKEN:g} characters of a chat count as one token"
    return found, False, [note]


def _objects(records: Sequence[Mapping[str, Any]], where: str) -> Found:
    """One object a request: Mooncake (ms, hash_ids), AIPerf (metrics with units, ns), any names."""
    found = []
    timed = True
    columns: dict[tuple[str, ...], dict[str, list[str]]] = {}  # by the keys of a record
    for number, record in enumerate(records, 1):
        flat = {str(k).lower(): v for k, v in record.items()}
        for nested in ("metadata", "metrics"):
            flat |= {str(k).lower(): v for k, v in (record.get(nested) or {}).items()}
        if (keys := tuple(flat)) not in columns:
            columns[keys] = {c: [n for n in names if n in flat] for c, names in COLUMNS.items()}
        values = {column: _value(flat, names) for column, names in columns[keys].items()}
        if values["input"] is None or values["output"] is None:
            raise GpuscaleError(
                f"{where}: request {number}: no input_length and output_length",
                "as Mooncake's traces: timestamp, input_length, output_length",
            )
        start_ns, start_ms = flat.get("request_start_ns"), values["time"]  # AIPerf's, Mooncake's
        timed = timed and (start_ns is not None or start_ms is not None)
        at = float(start_ms or 0.0) / 1e3 if start_ns is None else float(start_ns) / 1e9
        chat, blocks = values["session"], flat.get("hash_ids") or ()
        blocks = tuple(blocks)
        hash(blocks)
        tokens = (max(1, int(values["input"])), max(1, int(values["output"])))
        shared = int(values["prefix"] or 0)
        found.append(
            TracedRequest(at, *tokens, shared, None if chat is None else str(chat), blocks)
        )
    return found, timed, []


def _value(flat: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if (found := flat[name]) is not None:
            return found.get("value") if isinstance(found, dict) else found
    return None


MOONCAKE_BLOCK = 512
"""Tokens of a block of `hash_ids` (kvcache-ai/Mooncake, README of the traces)."""

MOST_REQUESTS = 1_000_000
MOST_TOKENS = 1e8
MOST_SECONDS = 1e15
MOST_PARTS = 1440
MOST_RATE = 1e9


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
    for number, one in enumerate(found, 1):
        if not max(one.input, one.output) <= MOST_TOKENS:
            raise GpuscaleError(f"{where}: request {number}: more than {MOST_TOKENS:,.0f} tokens")
        if not -MOST_SECONDS < one.at_s < MOST_SECONDS:
            raise GpuscaleError(f"{where}: request {number}: {one.at_s:g} is not a time")
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


def _csv_requests(text: Iterable[str], where: str) -> Iterator[TracedRequest]:
    rows = csv.reader(text)
    header = [name.strip().lower() for name in next(rows, [])]
    at = {key: _index(header, names) for key, names in COLUMNS.items()}
    time, prompt, answer, prefix, session = at.values()
    if time is None or prompt is None or answer is None:
        missing = next(key for key, i in at.items() if i is None)
        raise GpuscaleError(
            f"{where}: line 1: no column `{missing}`", "the first line names time,input,output"
        )
    try:
        for row in rows:
            if not any(row) or float(row[answer]) == 0.0:  # failed requests of BurstGPT: no answer
                continue
            tokens = _tokens(row[prompt]), _tokens(row[answer])
            shared = int(float(row[prefix])) if prefix is not None and row[prefix].strip() else 0
            chat = row[session].strip() or None if session is not None else None
            yield TracedRequest(_seconds(row[time]), *tokens, max(0, shared), chat)
    except csv.Error as error:
        raise GpuscaleError(f"{where}: not a CSV file: {error}") from None
    except (ArithmeticError, ValueError, IndexError) as error:
        raise GpuscaleError(f"{where}: line {rows.line_num}: {error}", "as 12.5,1024,256") from None


DAYS = {"office": tuple(1.0 if 9 <= hour < 18 else 0.1 for hour in range(24))}
"""Shapes of a day by name, over its peak: all of it in office hours, a tenth beside them."""

DAY_S = 86400.0


def read_day(name: str, peak_per_s: float | None) -> list[float]:
    """Read the requests/s of a day's parts: a CSV file's column `rate`, ``office``, ``sine:3``.

    ``sine:3`` has its peak at 15 h, three times the valley. With a peak the shape is scaled to it;
    shapes by name need one. Raises GpuscaleError for a file without rates.
    """
    known, colon, ratio = name.strip().lower().partition(":")
    if known == "sine":
        try:
            valley = 1.0 / max(1.0, float(ratio)) if colon else 1.0 / 3.0
        except ValueError:
            raise GpuscaleError(f"--day {name[:40]}: no number", "as sine:3") from None
        middle, half = 0.5 * (1.0 + valley), 0.5 * (1.0 - valley)
        rates = [middle + half * math.cos(2.0 * math.pi * (h - 15.0) / 24.0) for h in range(24)]
    elif known in DAYS:
        rates = list(DAYS[known])
    else:
        return _scaled(_rates(name), peak_per_s)
    if peak_per_s is None:
        raise GpuscaleError(f"--day {known} is a shape alone", "give its peak, as --rate 20/s")
    return _scaled(rates, peak_per_s)


def _scaled(rates: list[float], peak_per_s: float | None) -> list[float]:
    most = max(rates)
    return rates if peak_per_s is None else [rate * peak_per_s / most for rate in rates]


def _rates(path: str) -> list[float]:
    where = shown_name(path)
    hint = "a CSV file with a column `rate`, evenly over a day; office; sine:3"
    rows = list(csv.reader(read_lines(path, MOST_PARTS + 1)))
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    at = _index(header, ("rate", "requests_per_s", "requests/s", "rps", "qps"))
    if at is None:
        raise GpuscaleError(f"{where}: line 1: no column `rate`", hint)
    found = []
    for line, row in enumerate(rows[1:], 2):
        try:
            found.append(float(row[at]))
        except (ValueError, IndexError):
            raise GpuscaleError(f"{where}: line {line}: no rate", hint) from None
        if not 0.0 <= found[-1] < MOST_RATE:
            raise GpuscaleError(f"{where}: line {line}: {found[-1]:g} is no rate", hint)
    if not found or max(found) <= 0.0:
        raise GpuscaleError(f"{where}: no requests", hint)
    return found


def _index(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


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
    return value
