"""A command as a person runs it, without the price of a process: code, stdout and stderr."""

import contextlib
import io
import sys
from functools import lru_cache
from typing import NamedTuple

from gpuscale.cli.app import run


class Done(NamedTuple):
    """How a command ended; the names are those of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def invoke(*args, stdin=""):
    """Run `gpuscale ARGS` in this process, with `stdin` as a pipe."""
    out, err = io.StringIO(), io.StringIO()
    typed, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(args)
    finally:
        sys.stdin = typed
    return Done(code, out.getvalue(), err.getvalue())


@lru_cache
def own_validation():
    """Answer of `gpuscale validate` on the copy that the package ships; the longest command."""
    from gpuscale import api

    return api.validate()
