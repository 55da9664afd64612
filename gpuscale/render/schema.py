"""JSON Schema of what a command prints, from the types of its records.

Numbers are SI; where a key's suffix tells its unit, `description` says it. Further keys may be
added to a result at any time, so no object is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from gpuscale.core.quantity import dimension_of
from gpuscale.core.records import Term
from gpuscale.render.data import SCHEMA
from gpuscale.render.document import Point

DIALECT = "https://json-schema.org/draft/2020-12/schema"

UNIT_TEXT = {
    "bytes": "byte",
    "bytes_per_s": "byte/s",
    "flop": "FLOP",
    "flop_per_s": "FLOP/s",
    "s": "s",
    "hz": "Hz",
    "w": "W",
    "j": "J",
    "usd": "USD",
    "usd_per_hour": "USD/h",
    "usd_per_kwh": "USD/kWh",
    "tokens": "tokens",
    "frac": "share, 0 to 1",
}


def of_types(command: str, results: Sequence[Any], verdict: type) -> dict[str, Any]:
    """Write the schema of a command's envelope.

    `results`: records, one of which an answer holds; none: an object of any keys. `verdict`: record
    of a requirement that was held.
    """
    from pydantic import TypeAdapter

    result = Union[tuple(results)] if results else dict[str, Any]  # noqa: UP007
    schema = TypeAdapter(
        tuple[result, Term, verdict, Point]  # type: ignore[valid-type]
    ).json_schema(mode="serialization")
    found, term, held, point = schema["prefixItems"]
    described(schema.get("$defs", {}))
    properties = {
        "schema": {"const": SCHEMA},
        "command": {"const": command},
        "inputs": {"type": "object"},
        "summary": {"type": "array", "items": point},
        "result": found,
        "warnings": {"type": "array", "items": {"type": "string"}},
        "job": {"type": "object"},
        "explain": {"type": "array", "items": term},
        "requirements": {"type": "array", "items": held},
    }
    return {
        "$schema": DIALECT,
        "title": f"gpuscale {command} --json",
        "type": "object",
        "properties": properties,
        "required": ["schema", "command", "inputs", "summary", "result", "warnings"],
        "$defs": schema.get("$defs", {}),
    }


def described(records: dict[str, Any]) -> None:
    """Say the units, keep what people need of pydantic's words, and require every key."""
    for record in records.values():
        for key, value in record.get("properties", {}).items():
            value.pop("title", None)
            value.pop("default", None)
            if unit := UNIT_TEXT.get(dimension_of(key), ""):
                value["description"] = unit
        if record.get("properties"):
            record["required"] = sorted(record["properties"])
