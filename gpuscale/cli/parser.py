"""The command line as typer reads it: completion, and lines that `words` does not read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import typer
from typer.core import TyperGroup

from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.help import EXAMPLE, OTHERS, print_help
from gpuscale.cli.options import CONTEXT, command_of
from gpuscale.errors import Exit, unknown_name


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
            raise unknown_name("command", args[0], COMMANDS, "list them with `gpuscale --help`")
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
