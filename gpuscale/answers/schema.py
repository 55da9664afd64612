"""Schemas: the JSON Schema of a command's answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.answers.table import COMMANDS
from gpuscale.errors import unknown_name

if TYPE_CHECKING:
    from gpuscale.render.document import Document

FOLDER = Path(__file__).resolve().parent.parent / "schemas"


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
        return _answer(self.name)


def _answer(name: str) -> Document:
    import json

    from gpuscale.render.document import Document, Text

    path = FOLDER / f"{name}.json"
    known = [n for n in (*COMMANDS, "sweep") if (FOLDER / f"{n}.json").exists()]
    if name not in known:
        raise unknown_name("command", name, known, f"known: {', '.join(known)}")
    text = path.read_text(encoding="utf-8")
    return Document("schema", {"command": name}, json.loads(text), [Text(text.rstrip())])
