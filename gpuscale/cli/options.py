"""A question as a command of typer: its fields as options."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpuscale.answers.ask import Asked, Question, fields_of
from gpuscale.cli.answering import answered
from gpuscale.cli.completion import completer
from gpuscale.cli.help import SHOWN, about, default_text
from gpuscale.cli.words import REPEATED, by_name, placed
from gpuscale.errors import GpuscaleError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Help of a command and of all."""


class NamedCommand(TyperCommand):
    """One command, whose arguments may be given by name too: ``--cluster dgx-h100``."""

    question: type[Question]

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put arguments that are given by name where their place is."""
        names = by_name(self.question)
        if any(a.partition("=")[0] in names for a in args):
            flags = {o for p in self.params for o in p.opts if getattr(p, "is_flag", False)}
            try:
                args = placed(args, names, list(dict.fromkeys(names.values())), flags)
            except ValueError as error:
                hint = f"for example `{self.question.EXAMPLE}`"
                raise GpuscaleError(str(error), hint) from None
        return super().parse_args(ctx, args)


def _shown_parameter(name: str) -> inspect.Parameter:
    """Make typer's parameter of an option that every command takes."""
    flags, metavar, text = SHOWN[name]
    option = typer.Option(*flags.split(", "), metavar=metavar or None, help=text)
    kind: Any = (list[str] if name in REPEATED else str) | None if metavar else bool
    return _keyword(f"shown_{name}", Annotated[kind, option], None if metavar else False)


def command_of(question: type[Question]) -> Any:
    """Make the command of a question.

    The docstring's first paragraph becomes the help text, the example its last line; the command
    prints the answer and sets the exit code.
    """

    def run(**given: Any) -> None:
        if code := answered(question, given):
            raise typer.Exit(int(code))

    parameters = [
        _parameter(name, asked, argument) for name, (asked, argument) in fields_of(question).items()
    ]
    parameters += [_shown_parameter(name) for name in SHOWN]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    small = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    first = inspect.cleandoc(question.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    epilog = f"\b\nExample:\n  {question.EXAMPLE}"
    small.command(
        question.NAME, help=first, epilog=epilog, cls=NamedCommand, context_settings=CONTEXT
    )(run)
    made = typer.main.get_command(small)
    made.question = question  # type: ignore[attr-defined]
    return made


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
