"""A small reader of JSON Schema: what the schemas of the answers use, and nothing else."""

from __future__ import annotations

from typing import Any

KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind])


def problems(value: Any, schema: Any, root: Any = None, where: str = "") -> list[str]:
    """Where a value does not fit a schema."""
    root = schema if root is None else root
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, where)
    if "anyOf" in schema:
        tries = [problems(value, s, root, where) for s in schema["anyOf"]]
        return min(tries, key=len) if all(tries) else []
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is not one of {schema['enum']}"]
    if "type" in schema and not _is(value, schema["type"]):
        return [f"{where}: {type(value).__name__}, not {schema['type']}"]
    found: list[str] = []
    if isinstance(value, dict):
        found += [f"{where}.{k}: is missing" for k in schema.get("required", ()) if k not in value]
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key, item in value.items():
            rule = known.get(key, more)
            if isinstance(rule, dict):
                found += problems(item, rule, root, f"{where}.{key}")
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for i, item in enumerate(value):
            rule = first[i] if i < len(first) else schema.get("items", True)
            if isinstance(rule, dict):
                found += problems(item, rule, root, f"{where}[{i}]")
    return found
