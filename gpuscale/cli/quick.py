"""Start-up: values that need no conversion skip the building of typer's converters.

typer 0.29 builds one pydantic adapter per option of the command that runs, used or not, about
1.5 ms each and 60 ms for the first. Here an unset option, a default, a string and a plain number
pass as they are; everything else, and every error, goes typer's own way. Other versions of typer
are left alone.
"""

from __future__ import annotations

import math
from typing import Any

from typer.core import TyperCommand


class QuickParam:
    """Stands in for typer's `RuntimeParam` of one option or argument."""

    def __init__(self, descriptor: Any) -> None:
        self.annotation = descriptor.annotation
        info = descriptor.parameter_info
        self.low = -math.inf if info.min is None else info.min
        self.high = math.inf if info.max is None else info.max
        self.plain = info.parser is None and not descriptor.is_path

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert one value as typer would."""
        many = param.multiple or param.nargs == -1
        if value is None or (many and not value):
            return () if many else None
        if self.plain and not many:
            if isinstance(value, str) and self.annotation in (int, float):
                value = self._number(value)
            if type(value) is self.annotation and self._within(value):
                return value
        if self.plain and self.annotation == list[str] and isinstance(value, (list, tuple)):
            return value
        from typer._coercion import build_runtime_param

        return build_runtime_param(param.type_descriptor).coerce(value, param=param, ctx=ctx)

    def _number(self, text: str) -> Any:
        try:
            return self.annotation(text)
        except ValueError:
            return text

    def _within(self, value: Any) -> bool:
        return not isinstance(value, (int, float)) or self.low <= value <= self.high


class Quick:
    """For a command or group class: every parameter converts quickly, where typer allows it."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters as the parser and the help see them."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "_runtime_param", 0) is None and hasattr(param, "type_descriptor"):
                param._runtime_param = QuickParam(param.type_descriptor)
        return params


class QuickCommand(Quick, TyperCommand):
    """One command."""
