"""Schemas: the JSON Schema of a command's answer."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Union

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.core.dataclasses import Term, dataclass
from gpuscale.core.quantity import dimension_of
from gpuscale.errors import unknown_name
from gpuscale.meant import packaged
from gpuscale.render.document import Document, Point, Text
from gpuscale.render.text import SCHEMA

DIALECT = "https://json-schema.org/draft/2020-12/schema"

UNIT_TEXT: dict[str, str] = packaged("labels.toml")["unit"]


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


SWEEP = "sweep:SweepAnswer"


def complete_command(incomplete: str) -> list[str]:
    """Commands that start as typed."""
    return [name for name in (*COMMANDS, "sweep") if name.startswith(incomplete)]


@dataclass
class Schema(Question):
    """Print the JSON Schema of a command's answer."""

    NAME: ClassVar[str] = "schema"
    EXAMPLE: ClassVar[str] = "gpuscale schema memory"
    name: Asked[str] = text(
        "A command, or sweep.", ..., metavar="COMMAND", complete=complete_command
    )

    def answer(self) -> Document:
        """Print it."""
        import json

        known = [*COMMANDS, "sweep"]
        if self.name not in known:
            raise unknown_name("command", self.name, known, f"known: {', '.join(known)}")
        found = schema_of(self.name)
        said = Text(json.dumps(found, indent=1))
        return Document("schema", {"command": self.name}, found, [said])


def schema_of(name: str) -> dict[str, Any]:
    """Make the schema of a command's answer, or of a sweep."""
    from gpuscale.answers.requirements import RequirementVerdict

    results = SWEEP if name == "sweep" else question_of(name).RESULTS
    return of_types(name, [_found(result) for result in results.split()], RequirementVerdict)


def _found(result: str) -> Any:
    module, _, name = result.partition(":")
    return getattr(importlib.import_module(f".{module}", "gpuscale.answers"), name)
