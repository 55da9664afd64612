"""The command line of this run, for files that say how they were made."""

from __future__ import annotations

from collections.abc import Sequence

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
