"""JSON Schema of what a command prints, learned from its answers and held by a test.

Numbers are SI; where a key's suffix tells its unit, `description` says it. Further keys may be
added to a result at any time, so no object is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from gpuscale.core.quantity import dimension_of

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


def infer(value: Any, key: str = "") -> dict[str, Any]:
    """Write the schema of one value."""
    if isinstance(value, dict):
        return {
            "type": ["object"],
            "properties": {k: infer(v, k) for k, v in value.items()},
            "required": sorted(value),
        }
    if isinstance(value, list):
        found: dict[str, Any] = {"type": ["array"]}
        return found | ({"items": merged(infer(v, key) for v in value)} if value else {})
    if value is None or isinstance(value, (bool, str)):
        kind = {type(None): "null", bool: "boolean", str: "string"}[type(value)]
        return {"type": [kind]}
    unit = UNIT_TEXT.get(dimension_of(key), "")
    return {"type": ["number"]} | ({"description": unit} if unit else {})


def merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Widen one schema until both fit."""
    found: dict[str, Any] = {"type": sorted({*one["type"], *other["type"]})}
    if unit := one.get("description") or other.get("description"):
        found["description"] = unit
    if "properties" in one and "properties" in other:
        mine, theirs = one["properties"], other["properties"]
        found["properties"] = {
            k: merge(mine[k], theirs[k]) if k in mine and k in theirs else mine.get(k) or theirs[k]
            for k in {**mine, **theirs}
        }
        found["required"] = sorted(set(one["required"]) & set(other["required"]))
    elif "properties" in one or "properties" in other:
        whole = one if "properties" in one else other
        found |= {k: whole[k] for k in ("properties", "required")}
    items = [s["items"] for s in (one, other) if "items" in s]
    return found | ({"items": merged(items)} if items else {})


def merged(schemas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Widen a schema until all fit."""
    return reduce(merge, schemas)


def of_answers(command: str, answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Write the schema of a command from some of its answers."""
    found = merged(infer(answer) for answer in answers)
    found["properties"]["schema"] = {"const": 1}
    found["properties"]["command"] = {"const": command}
    found["properties"]["warnings"] = {"type": ["array"], "items": {"type": ["string"]}}
    return {"$schema": DIALECT, "title": f"gpuscale {command} --json"} | found


def problems(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """Where a value does not fit a schema (of the keywords that this module writes).

    Examples
    --------
    >>> problems({"a_s": "x"}, infer({"a_s": 1.0}))
    ['.a_s: string, not number']
    """
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: not {schema['const']!r}"]
    kind = infer(value)["type"][0]
    if kind not in schema["type"]:
        return [f"{where}: {kind}, not {' or '.join(schema['type'])}"]
    if isinstance(value, dict):
        lacking = [f"{where}.{k}: is missing" for k in schema.get("required", ()) if k not in value]
        known = schema.get("properties", {})
        return lacking + [
            p for k, v in value.items() if k in known for p in problems(v, known[k], f"{where}.{k}")
        ]
    if isinstance(value, list) and "items" in schema:
        return [
            p for i, v in enumerate(value) for p in problems(v, schema["items"], f"{where}[{i}]")
        ]
    return []
