"""A command as a person runs it, without the price of a process: code, stdout and stderr."""

import contextlib
import io
import os
import re
import shlex
import sys
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


PLAIN = re.compile(r"""gpuscale ([^|;&<>$*`"]+?)(?: > (\S+))?((?:; echo "exit \$\?")?)""")


def shown(command, folder, shell):
    """Run a line of a page in a folder: in this process, or by a shell if it needs one."""
    plain = PLAIN.fullmatch(command)
    if not plain:
        return shell(command, folder)
    back = os.getcwd()
    os.chdir(folder)
    show = os.environ.pop("GPUSCALE_SHOW", "")  # a page shows what a person gets
    try:
        done = invoke(*shlex.split(plain[1]))
    finally:
        os.chdir(back)
        os.environ["GPUSCALE_SHOW"] = show
    out = done.stdout
    if plain[2]:
        (folder / plain[2]).write_text(out, "utf-8")
        out = ""
    return out + (f"exit {done.returncode}\n" if plain[3] else "") + done.stderr
