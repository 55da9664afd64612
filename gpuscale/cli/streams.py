"""Streams of the process, closed or full (exit 2, never a traceback), and its command line."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

_args: list[str] = []


def remember(args: Sequence[str]) -> None:
    """Keep the arguments of this run."""
    _args[:] = args


def words() -> tuple[str, ...]:
    """Arguments of this run."""
    return tuple(_args)


def command_line(command: str) -> str:
    """Command line of this run as one would type it; of a library call, the command alone."""
    import shlex

    return shlex.join(["gpuscale", *(_args or [command])])


class Closed(io.TextIOBase):
    """Stands for a standard output that is closed: writing says so."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Refuse it."""
        raise OSError(errno.EBADF, "standard output is closed")


class Forgiving:
    """Standard error whose failures are not told: nobody could read them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write it where that is possible."""
        try:
            return int(self._stream.write(text))
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Flush it where that is possible."""
        try:
            self._stream.flush()
        except OSError:
            return

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self._stream, name)


def mend() -> None:
    """Put a stream in the place of each one that is closed."""
    for number in range(3):  # a file that is opened later must not become a standard stream
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    elif not isinstance(sys.stderr, Forgiving):
        sys.stderr = Forgiving(sys.stderr)
