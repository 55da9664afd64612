"""The application: registers the commands, maps failures to exit codes."""

from __future__ import annotations

import os
import sys

import typer

from gpuscale.errors import Exit, GpuscaleError

app = typer.Typer(
    name="gpuscale",
    help="Capacity planner for training and serving large language models on GPU clusters.\n\n"
    "Example: gpuscale plan llama3-70b --gpus 4096",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=False)
def _root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from gpuscale import __version__

        print(f"gpuscale {__version__}")
        raise typer.Exit()


def _register() -> None:
    """Import the command files; each registers itself and imports the rest only when run."""


def main() -> None:
    """Run, and turn every failure into its exit code."""
    from gpuscale.cli.common import report_error

    _register()
    try:
        app()
    except GpuscaleError as error:
        report_error(error)
        sys.exit(int(Exit.USAGE))
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPT))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(Exit.OK))
    except Exception:
        import traceback

        traceback.print_exc()
        print(
            "\nerror: this is a bug in gpuscale; please report the lines above with the command",
            file=sys.stderr,
        )
        sys.exit(int(Exit.BUG))
