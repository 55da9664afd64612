"""`gpuscale schema`: the JSON Schema of a command's answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.answers.table import COMMANDS
from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command
from gpuscale.errors import unknown_name

if TYPE_CHECKING:
    from gpuscale.render.document import Document

FOLDER = Path(__file__).resolve().parent.parent / "schemas"


def complete_command(incomplete: str) -> list[str]:
    """Commands that start as typed."""
    return [name for name in (*COMMANDS, "sweep") if name.startswith(incomplete)]


@command(app, "schema", example="gpuscale schema memory")
def schema(
    common: Common,
    name: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND", help="A command, or sweep.", autocompletion=complete_command
        ),
    ],
) -> Document:
    """Print the JSON Schema of a command's answer."""
    import json

    from gpuscale.render.document import Document, Text

    path = FOLDER / f"{name}.json"
    known = [n for n in (*COMMANDS, "sweep") if (FOLDER / f"{n}.json").exists()]
    if name not in known:
        raise unknown_name("command", name, known, f"known: {', '.join(known)}")
    text = path.read_text(encoding="utf-8")
    return Document("schema", {"command": name}, json.loads(text), [Text(text.rstrip())])
