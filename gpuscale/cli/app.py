"""The application: reads the command line, maps failures to exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.help import print_help
from gpuscale.errors import Exit, GpuscaleError


def _invoke(args: Sequence[str]) -> int:
    """Parse and run; the answer's own exit code."""
    if args and args[0] in COMMANDS:
        from gpuscale.cli.answering import answered
        from gpuscale.cli.words import read_words

        question = question_of(args[0])
        given = read_words(question, args[1:])
        if given is not None:
            return int(answered(question, given))
    from gpuscale.cli.parser import invoke

    return invoke(args)


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
    except KeyboardInterrupt:
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
        from gpuscale.cli.parser import app

        app(prog_name="gpuscale")
    try:
        code = run(sys.argv[1:])
    except BrokenPipeError:  # the reader has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = int(Exit.OK)
    sys.exit(code)
