"""What every answer says of `--set`."""

from __future__ import annotations

from gpuscale.io.inputs import Loaded
from gpuscale.render.document import Block, Text


def changed_text(loaded: Loaded) -> str:
    """One line that lists what was changed; empty where nothing was."""
    return "changed: " + "; ".join(loaded.changes) if loaded.changes else ""


def changed(loaded: Loaded) -> list[Block]:
    """Return that line as a block, if there is one."""
    return [Text(changed_text(loaded))] if loaded.changes else []
