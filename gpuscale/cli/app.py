"""The application: reads the command line, maps failures to exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.help import OTHERS, print_help
from gpuscale.errors import Exit, GpuscaleError, unknown_name
from gpuscale.version import __version__

ROOT = ("--version", "--help", "--install-completion", "--show-completion")
"""Options before a command."""


def _invoke(args: Sequence[str]) -> int:
    """Read and run; the answer's own exit code."""
    from gpuscale.cli.failures import begins_with_no_command, no_such_option
    from gpuscale.cli.words import read_words

    first = args[0] if args else "--help"
    if first == "--help":
        return int(not print_help(["--help"]))
    if first == "--version":
        print(f"gpuscale {__version__}")
        return 0
    if first in ROOT:
        from gpuscale.cli.completion import app

        return int(app(list(args), prog_name="gpuscale", standalone_mode=False) or 0)
    if first.startswith("-") and first != "-":
        raise no_such_option(first.partition("=")[0], ROOT)
    if first in COMMANDS:
        from gpuscale.cli.answering import answered

        question = question_of(first)
        return int(answered(question, read_words(question, args[1:])))
    if first not in OTHERS:
        said = args[1:] if first == "help" and args[1:] else args
        raise unknown_name("command", said[0], COMMANDS, begins_with_no_command(said))
    other: Any = question_of(first)
    other(**read_words(other, args[1:])).begin()
    return 0


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
    from gpuscale.cli.failures import remember, report_error

    remember(args)
    try:
        code = 0 if print_help(args) else _invoke(args)
        sys.stdout.flush()
        return code
    except GpuscaleError as error:
        report_error(error)
        return int(Exit.USAGE)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPT)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            return _bug()
        return unwritten(error)
    except Exception:
        return _bug()


def main() -> None:
    """Run the program on its command line."""
    if "_GPUSCALE_COMPLETE" in os.environ:
        from gpuscale.cli.completion import app

        app(prog_name="gpuscale")
    try:
        code = run(sys.argv[1:])
    except BrokenPipeError:  # the reader has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = int(Exit.OK)
    sys.exit(code)
