"""Exit codes and the one error type that reaches a person."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Exit(enum.IntEnum):
    """Exit codes; they are part of the interface."""

    OK = 0
    NO = 1  # answered, and the answer is no: does not fit, limit exceeded
    USAGE = 2  # bad flag, file or preset
    BUG = 70
    INTERRUPT = 130


class GpuscaleError(Exception):
    """Bad input: one line of what and where, one of what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def unknown_name(
    kind: str, name: str, known: Iterable[str], hint: str = "list them with `gpuscale presets`"
) -> GpuscaleError:
    """Error for a name that is not in `known`, with the closest one as the hint."""
    import difflib

    shown = name if len(name) <= 60 else name[:57] + "..."
    close = difflib.get_close_matches(name.lower()[:100], sorted(known), n=1)
    return GpuscaleError(
        f"unknown {kind} `{shown!s}`", f"did you mean `{close[0]}`?" if close else hint
    )
