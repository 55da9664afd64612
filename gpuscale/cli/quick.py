"""Start-up: texts, flags and unset options skip the building of typer's converters.

typer 0.29 builds one pydantic adapter per option of the command that runs, used or not, about
1.5 ms each and 60 ms for the first. A question reads its own texts, so what the parser gives is
passed on as it is; what is missing, and every other type, goes typer's own way.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


def quick(param: Any) -> None:
    """Let a parameter pass texts, flags and what was not given."""
    slow = param.process_value

    def process(context: Any, value: Any) -> Any:
        if (value is None or value == ()) and not param.required:
            return value
        if value and param.callback is not None:
            return slow(context, value)
        if isinstance(value, (str, bool)):
            return value
        if value and isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            return value
        return slow(context, value)

    param.process_value = process


class Quick:
    """For a command or group class: every parameter is quick."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters as the parser and the help see them."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if "process_value" not in vars(param):
                quick(param)
        return params


class QuickCommand(Quick, TyperCommand):
    """One command."""
