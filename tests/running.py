"""A command as a person runs it, without the price of a process: code, stdout and stderr."""

import contextlib
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import sys
import tempfile
import termios
import traceback
from typing import NamedTuple

from gpuscale.cli.app import main, run


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


def forked(*args, program=main, columns=0, **env):
    """Run a program in a copy of this process: with streams of its own, or a terminal.

    On a terminal of so many `columns` all that it writes is the `stdout` of what is returned.
    """
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid, screen = pty.fork() if columns else (os.fork(), -1)
    if not pid:
        _child(args, program, columns, (out.fileno(), err.fileno()), env)
    if columns:
        with contextlib.suppress(OSError):  # Linux: the other side is closed
            while part := os.read(screen, 65536):
                out.write(part)
    _, status = os.waitpid(pid, 0)
    if columns:
        os.close(screen)
    out.seek(0)
    err.seek(0)
    texts = [stream.read().decode().replace("\r\n", "\n") for stream in (out, err)]
    return Done(os.waitstatus_to_exitcode(status), *texts)


def _child(args, program, columns, files, env):
    """Be the copy: it ends here."""
    code = 70
    try:
        for name in ("COLUMNS", "LINES", "NO_COLOR", "COLORTERM", "COLORFGBG"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm-256color"} | env)
        if columns:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        else:
            for fd, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files)):
                os.dup2(file, fd)
        encoding = env.get("PYTHONIOENCODING", "utf-8")
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)
        sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)
        sys.argv = ["gpuscale", *args]
        program()
    except SystemExit as done:
        code = done.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


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
