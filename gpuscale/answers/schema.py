"""Schemas: the JSON Schema of a command's answer."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.errors import unknown_name
from gpuscale.render.document import Document

SWEEP = ("gpuscale.answers.sweep_table:SweepAnswer",)


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

        from gpuscale.render.document import Document, Text

        known = [*COMMANDS, "sweep"]
        if self.name not in known:
            raise unknown_name("command", self.name, known, f"known: {', '.join(known)}")
        found = schema_of(self.name)
        said = Text(json.dumps(found, indent=1))
        return Document("schema", {"command": self.name}, found, [said])


def schema_of(name: str) -> dict[str, Any]:
    """Make the schema of a command's answer, or of a sweep."""
    from gpuscale.answers.requirements import RequirementVerdict
    from gpuscale.render.schema import of_types

    results = SWEEP if name == "sweep" else question_of(name).RESULTS
    return of_types(name, [_found(result) for result in results], RequirementVerdict)


def _found(result: str) -> Any:
    module, _, name = result.partition(":")
    return getattr(importlib.import_module(module), name)
