"""Traces in JSON: Mooncake, AIPerf, GenAI-Perf, ShareGPT, the benchmarks of vLLM and SGLang."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpuscale.errors import GpuscaleError

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
