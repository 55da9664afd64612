"""The command line as typer reads it: options of questions, completion of names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from gpuscale.answers.ask import Asked, Question, fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.answering import answered
from gpuscale.cli.failures import begins_with_no_command
from gpuscale.cli.help import EXAMPLE, OTHERS, SHOWN, about, default_text, print_help
from gpuscale.cli.words import REPEATED, by_name, placed
from gpuscale.errors import Exit, GpuscaleError, unknown_name

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


class LazyGroup(TyperGroup):
    """Commands of the table `COMMANDS`, imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in help order."""
        return [*COMMANDS, *OTHERS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make the command of a question; no other is imported."""
        if cmd_name in COMMANDS:
            return _made(cmd_name)
        if cmd_name in OTHERS:
            self.commands[cmd_name] = _other(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; an unknown name gets the closest one as a hint."""
        if not ctx.resilient_parsing and args[0] not in (*COMMANDS, *OTHERS):
            said = args[1:] if args[0] == "help" and args[1:] else args
            raise unknown_name("command", said[0], COMMANDS, begins_with_no_command(said))
        return super().resolve_command(ctx, args)


@cache
def _made(name: str) -> Any:
    """Make the command of a question, once for all runs of a process."""
    return command_of(question_of(name))


def _other(name: str) -> Any:
    """Make a command that is no question."""
    small = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @small.command("mcp", help=OTHERS["mcp"], epilog="\b\nExample:\n  gpuscale mcp < /dev/null")
    def mcp() -> None:
        from gpuscale.cli.mcp import serve

        serve()

    @small.command(
        "explore",
        help=OTHERS["explore"],
        epilog="\b\nExample:\n  gpuscale explore llama3-70b --gpus 512 --gpu h100",
    )
    def explore(
        model: str = typer.Argument("llama3.1-8b", help="Model to begin with."),
        gpu: str = typer.Option("h100", "--gpu", help="GPU to begin with."),
        gpus: str = typer.Option("16", "--gpus", help="Number of GPUs to begin with."),
        task: str = typer.Option("pretrain", "--task", help="pretrain, fine-tune or serve."),
    ) -> None:
        from gpuscale.cli.explore import begin

        begin(task, {"model": model, "gpu": gpu, "gpus": gpus})

    return cast(Any, typer.main.get_command(small)).commands[name]


def other_help(name: str) -> str:
    """Help of a command that is no question, as it is printed."""
    made = _other(name)
    with typer.Context(made, info_name=f"gpuscale {name}", max_content_width=80) as context:
        return str(made.get_help(context))


app = typer.Typer(
    name="gpuscale",
    cls=LazyGroup,
    help="Capacity planner for training and serving large language models on GPU clusters.",
    epilog=f"\b\nExample:\n  {EXAMPLE}",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    invoke_without_command=True,
    context_settings=CONTEXT,
)


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from gpuscale.version import __version__

        print(f"gpuscale {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print_help(["--help"])


def invoke(args: Sequence[str]) -> int:
    """Parse and run; the answer's own exit code."""
    group = typer.main.get_command(app)
    try:
        with group.make_context("gpuscale", list(args)) as context:
            group.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return int(Exit.OK)
