"""Completion of words in a shell: the commands and their options as typer has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpuscale.answers.ask import Asked, Question, fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.help import OTHERS, SHOWN, about, default_text
from gpuscale.cli.words import REPEATED
from gpuscale.errors import GpuscaleError

Completer = Callable[[str], list[str]]

KINDS = {
    "model": ("model",),
    "cluster": ("cluster", "gpu"),  # a GPU means its usual node
    "gpu": ("gpu",),
    "software": ("software",),
    "preset": ("gpu", "cluster", "model", "software", "fabric", "arch", "link"),
    "comparable": ("gpu", "cluster", "model"),
}
"""Name or kind of a field -> the presets that complete it, in every command."""


def completer(kind: str | Completer) -> Completer | None:
    """Find what completes a kind of name; None where nothing does."""
    if not isinstance(kind, str):
        return kind
    return _starting(KINDS[kind]) if kind in KINDS else None


def _starting(kinds: tuple[str, ...]) -> Completer:
    def complete(incomplete: str) -> list[str]:
        from gpuscale.io.presets import known_names, normalised

        start = normalised(incomplete)
        try:
            names = dict.fromkeys(name for kind in kinds for name in known_names(kind))
        except GpuscaleError:  # a user's alias file is broken: the command itself will say so
            return []
        return [name for name in names if name.startswith(start)]

    return complete


def _shown_parameter(name: str) -> inspect.Parameter:
    """Make typer's parameter of an option that every command takes."""
    flags, metavar, text = SHOWN[name]
    option = typer.Option(*flags.split(", "), metavar=metavar or None, help=text)
    kind: Any = (list[str] if name in REPEATED else str) | None if metavar else bool
    return _keyword(f"shown_{name}", Annotated[kind, option], None if metavar else False)


def command_of(question: type[Question]) -> Any:
    """Make typer's command of a question, for its options alone: it is run by `cli.words`."""

    def run(**given: Any) -> None:
        """Do nothing."""

    parameters = [
        _parameter(name, asked, argument) for name, (asked, argument) in fields_of(question).items()
    ]
    if question.NAME not in OTHERS:
        parameters += [_shown_parameter(name) for name in SHOWN]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    small = typer.Typer(add_completion=False)
    first = inspect.cleandoc(question.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    small.command(question.NAME, help=first)(run)
    return typer.main.get_command(small)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=annotation, default=default)


def _parameter(name: str, asked: Asked[Any], argument: bool) -> inspect.Parameter:
    """Make typer's parameter of a field; its value reaches the field as typed."""
    kind: Any = {"flag": bool, "many": list[str]}.get(asked.kind, str)
    more: dict[str, Any] = {
        "help": about(name, asked) if argument else default_text(asked),
        "metavar": None if argument and asked.metavar == "N" else asked.metavar,
        "autocompletion": completer(asked.complete or name),
    }
    if argument:
        given = asked.default is ...
        default: Any = inspect.Parameter.empty if given else None
        place = typer.Argument(**more)
        return _keyword(name, Annotated[kind if given else kind | None, place], default)
    option = typer.Option(f"--{name.replace('_', '-')}", *asked.flags, **more)
    if asked.kind == "flag":
        return _keyword(name, Annotated[bool, option], False)
    return _keyword(name, Annotated[kind | None, option], None)


class LazyGroup(TyperGroup):
    """Commands of the table `COMMANDS`, imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in help order."""
        return [*COMMANDS, *OTHERS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make the command of a question; no other is imported."""
        return _made(cmd_name) if cmd_name in (*COMMANDS, *OTHERS) else None


@cache
def _made(name: str) -> Any:
    """Make the command of a question, once for all runs of a process."""
    return command_of(question_of(name))


app = typer.Typer(name="gpuscale", cls=LazyGroup, add_completion=True, invoke_without_command=True)


@app.callback()
def _root() -> None:
    """Take options before a command: those of the completion alone."""
