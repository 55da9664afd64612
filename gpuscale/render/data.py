"""Documents as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuscale.foreign import csv_cell, fenced, markdown, markdown_cell
from gpuscale.render.document import (
    Document,
    Drawn,
    Summary,
    Table,
    Text,
    grid,
    points_of,
    summary_of,
)
from gpuscale.render.output import ESCAPED, strict

SCHEMA = 2


def plain(value: Any) -> Any:
    """Turn records, enums and tuples into JSON types; a number that is not finite becomes null.

    A record's class may name properties in `SHOWN` that belong to the answer as well.

    In strict mode (tests) such a number is raised as ArithmeticError.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return {n: plain(getattr(value, n)) for n in (*names, *getattr(value, "SHOWN", ()))}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        if strict():
            raise ArithmeticError(f"{value} in a result")
        return None
    return value


def to_json(
    document: Document, extra: Mapping[str, Any] | None = None, ascii_only: bool = False
) -> str:
    """Make the one envelope of all commands; `ascii_only` for streams that know no more.

    `extra` are the keys of what was asked for besides: `explain`, `requirements`.
    """
    envelope = {
        "schema": SCHEMA,
        "command": document.command,
        "inputs": plain(document.inputs),
        "summary": plain(points_of(document)),
        "result": plain(document.result),
        "warnings": list(document.warnings),
        **({"job": plain(document.job())} if document.job else {}),
    } | {key: plain(value) for key, value in (extra or {}).items()}
    text = json.dumps(envelope, indent=2, ensure_ascii=ascii_only, allow_nan=False)
    return text.translate(ESCAPED)


def _tables(document: Document) -> list[Table]:
    if document.csv_table is not None:
        return [document.csv_table]
    return [b for b in document.blocks if isinstance(b, Table)]


def records(document: Document) -> list[dict[str, object]]:
    """Rows of the main table by key, or the figures of the result as one; SI units."""
    tables = _tables(document)
    if not tables:
        return [dict(leaves(plain(document.result)))]
    keys = [c.key for c in tables[0].columns]
    return [dict(zip(keys, map(plain, row), strict=True)) for row in tables[0].rows]


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested dicts and lists with its dotted key.

    >>> dict(leaves({"a": {"b": [1, 2]}}))
    {'a.b.0': 1, 'a.b.1': 2}
    """
    if not isinstance(value, (dict, list, tuple)):
        yield prefix[:-1], value
        return
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(child, f"{prefix}{key}.")


def to_csv(document: Document) -> str:
    """Print the main table with raw SI values, or key,value lines of the result if none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    tables = _tables(document)
    if tables:
        writer.writerow([csv_cell(c.key) for c in tables[0].columns])
        writer.writerows([[csv_cell(plain(v)) for v in row] for row in tables[0].rows])
    else:
        writer.writerow(["key", "value"])
        writer.writerows([[csv_cell(v) for v in pair] for pair in leaves(plain(document.result))])
    return out.getvalue().rstrip("\n")


def _markdown_table(
    headers: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]
) -> str:
    lines = ["| " + " | ".join(map(markdown_cell, headers)) + " |"]
    lines.append("|" + "|".join("---:" if r else "---" for r in right) + "|")
    lines += ["| " + " | ".join(map(markdown_cell, row)) + " |" for row in rows]
    return "\n".join(lines)


def to_markdown(document: Document, explain: bool = False) -> str:
    """Write the document as Markdown: the same blocks as in the terminal."""
    parts: list[str] = []
    own = any(isinstance(block, Summary) for block in document.blocks)
    head = [summary_of(document)] if document.details and not own else []
    for block in (*head, *document.blocks):
        if isinstance(block, Text):
            parts.append(markdown(block.text))
            continue
        if block.title:
            parts.append(f"### {markdown_cell(block.title)}")
        if isinstance(block, Drawn):
            parts.append(fenced(list(block.lines)))
            continue
        made = grid(block)
        heads = made.headers or [""] * len(made.right)
        table = _markdown_table(heads, made.right, made.rows)
        parts += [*filter(None, (markdown(made.before), table, markdown(made.after)))]
    if explain and document.terms:
        from gpuscale.render import explain as trees

        parts += ["### How it comes about", trees.to_markdown(document.terms)]
    parts += [f"warning: {markdown(w)}" for w in document.warnings]
    return "\n\n".join(parts)
