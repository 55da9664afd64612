"""The application: registers the commands, maps failures to exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import typer
from typer.core import TyperGroup

from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.help import EXAMPLE, OTHERS, print_help
from gpuscale.cli.quick import CONTEXT, Quick
from gpuscale.errors import Exit, GpuscaleError, unknown_name


class LazyGroup(Quick, TyperGroup):
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
    from gpuscale.cli.options import command_of

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


def _invoke(args: Sequence[str]) -> int:
    """Parse and run; the answer's own exit code."""
    group = typer.main.get_command(app)
    try:
        with group.make_context("gpuscale", list(args)) as context:
            group.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    return int(Exit.OK)


def _bug() -> int:
    import traceback

    traceback.print_exc()
    print(
        "\nerror: this is a bug in gpuscale; please report the lines above with the command",
        file=sys.stderr,
    )
    return int(Exit.BUG)


def unwritten(error: OSError) -> int:
    """Say that standard output takes no more, and drop what is still in its buffer."""
    from gpuscale.cli.failures import report_error

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    report_error(GpuscaleError(f"the answer cannot be written: {error.strerror or error}"))
    return int(Exit.USAGE)


def run(args: Sequence[str]) -> int:
    """Run one command line and turn every failure into its exit code.

    `args`: the arguments after the program's name. Returns: a value of `gpuscale.errors.Exit`.
    """
    from gpuscale.cli.failures import remember, report_error, usage_error

    remember(args)
    try:
        code = 0 if print_help(args) else _invoke(args)
        sys.stdout.flush()
        return code
    except GpuscaleError as error:
        report_error(error)
        return int(Exit.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return int(Exit.INTERRUPT)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            return _bug()
        return unwritten(error)
    except Exception as error:
        if not hasattr(error, "format_message"):
            return _bug()
        report_error(usage_error(error))
        return int(Exit.USAGE)


def main() -> None:
    """Run the program on its command line."""
    if "_GPUSCALE_COMPLETE" in os.environ:
        app(prog_name="gpuscale")
    try:
        code = run(sys.argv[1:])
    except BrokenPipeError:  # the reader has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = int(Exit.OK)
    sys.exit(code)
