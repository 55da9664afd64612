"""A framework's file, with the rows of the one that it is like."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.specs.framework import FrameworkFile


@lru_cache(maxsize=64)
def dialect(name: str) -> FrameworkFile:
    """File of a framework, with the rows of the one that it is like below its own."""
    from gpuscale.io.frameworks import load_framework

    own = load_framework(name)
    if own is None:
        raise ValueError(f"no file of the framework {name}")
    if not own.rows_like:
        return own
    base = dialect(own.rows_like)
    fields = {row.field for row in own.row} | set(own.unsaid)
    rows = (*own.row, *(row for row in base.row if row.field not in fields))
    told = fields | {name for hook in own.hook for name in hook.fields}
    hooks = (*own.hook, *(hook for hook in base.hook if set(hook.fields) - told))
    return own.model_copy(update={"row": rows, "hook": hooks})
