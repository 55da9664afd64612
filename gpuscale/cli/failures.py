"""Complaints on stderr, and streams that are closed or full: exit 2, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import COMMANDS, called, owners, question_of
from gpuscale.errors import GpuscaleError, typo_of, unknown_name


def usage_error(error: Any) -> GpuscaleError:
    """Turn a parser's own complaint (wrong option, missing argument) into ours."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "gpuscale"
    parsed = getattr(error, "option_name", "") or ""
    option = next((w for w in _args if len(parsed) == 2 and w.startswith(parsed)), parsed)  # -tp
    alike = list(getattr(error, "possibilities", None) or ())
    text = str(getattr(error, "message", "") if alike else error.format_message())
    name = path.removeprefix("gpuscale ")
    said = called(option, question_of(name) if name in COMMANDS else None) if option else ""
    bare = option.lstrip("-")
    close = typo_of(bare, [o.lstrip("-") for o in alike]) if len(bare) > 2 else ""
    text = " ".join(text.split()).rstrip(".").replace("'", "`").replace("argument(s)", "arguments")
    text = text.replace(f": {parsed}", f": {option}")
    if option[1:2].isdigit():
        text = f"`{option}` is not an option"
        hint = "a negative number is not accepted here"
    elif said:
        hint = said
    elif name in COMMANDS and bare in fields_of(question_of(name)) and option[:2] != "--":
        hint = f"write two hyphens: --{bare}"
    elif "unexpected extra" in text and (extra := _extra(text, name)):
        hint = extra
    elif close:
        hint = f"did you mean `--{close}`?"
    elif "does not take a value" in text:
        hint = f"`{text.split('`')[1]}` alone says it"
    elif option and "no such" in text.lower() and (own := owners(option)):
        hint = f"`{option}` is an option of {', '.join(own)}"
        said_command = next((w for w in _args if w in own), "")
        if said_command and _args[0] != said_command:
            hint = f"the command comes first: `gpuscale {said_command} ... {option}`"
    else:
        hint = f"see `{' '.join(('gpuscale', *(w for w in _args[:1] if w in COMMANDS)))} --help`"
        if "issing" in text[:10] and name in COMMANDS:
            hint = f"for example `{question_of(name).EXAMPLE}`"
    return GpuscaleError(text[:1].lower() + text[1:], hint)


def _extra(text: str, command: str) -> str:
    """Say what arguments too many mean: the rest of a name, a GPU, how many, or a size."""
    from gpuscale.io.presets import find_preset

    extras, said = text.rpartition("(")[2].rstrip(") ").split(), words()
    known = fields_of(question_of(command)) if command in COMMANDS else {}
    found = []
    for extra in extras:
        before = said[said.index(extra) - 1] if extra in said else ""
        joined = f"{before}-{extra}".lower()
        if any(find_preset(kind, joined) for kind in ("model", "gpu", "cluster")):
            return f"did you mean `{joined}`?"
        comma = "," if extra.isdecimal() and "gpus" in known else ""  # 64 32, or 30 days
        if before[:1].isdecimal() and (comma or extra.isalpha()):
            return f"a value has no blank: {before}{comma}{extra}"
        if extra[0] in "\u2013\u2014\u2212":  # a dash that was typed for two hyphens
            return f"write two hyphens: --{extra.lstrip(extra[0])}"
        if find_preset("gpu", extra):
            found.append(f"--gpu {extra}")
        elif extra.isdecimal() and "gpus" in known:
            found.append(f"--gpus {extra}")
        elif "bytes" in known and re.fullmatch(r"[\d.]+[KMGT]?i?B", extra):
            found.append(f"--bytes {extra}")
        elif hint := unknown_name("GPU", extra, (), "").hint:  # 8xh100
            return hint
    return f"give it as an option: {' '.join(found)}" if found else ""


def begins_with_no_command(args: Sequence[str]) -> str:
    """Say what a line without a command may be: of a model, a GPU, a number of them."""
    from gpuscale.io.presets import find_preset

    for name in ("-".join(args[:2]).lower(), args[0]):
        if find_preset("model", name):
            return f"`{name}` is a model: `gpuscale plan {name} --gpus 8`, or `memory`, `serve`"
        if find_preset("gpu", name):
            return f"`{name}` is a GPU: `gpuscale presets {name}`, or --gpu {name} of a command"
    return "list them with `gpuscale --help`"


def report_error(error: GpuscaleError) -> None:
    """Say on stderr what is wrong, where, and what to do next: one line each."""
    complain("error", one_line(error.message))
    if error.hint:
        print(file=sys.stderr)
        complain("hint", one_line(error.hint))


_TAGS = {"error": "1;31", "failed": "1;31", "warning": "33", "hint": "36"}


def complain(tag: str, text: str) -> None:
    """Write a line on stderr that begins with what it is, in colour on a terminal."""
    from gpuscale.render.output import coloured

    head = f"\x1b[{_TAGS[tag]}m{tag}:\x1b[0m" if coloured(sys.stderr) else f"{tag}:"
    print(f"{head} {text}", file=sys.stderr)


def one_line(text: str) -> str:
    """Text without line ends, control codes and beyond 600 characters."""
    from gpuscale.foreign import clean

    line = clean(" ".join(text[:20_000].split()))
    return line if len(line) <= 600 else line[:300] + " ... " + line[-200:]


_args: list[str] = []


def remember(args: Sequence[str]) -> None:
    """Keep the arguments of this run."""
    _args[:] = args


def words() -> tuple[str, ...]:
    """Arguments of this run."""
    return tuple(_args)


def command_line(command: str) -> str:
    """Command line of this run as one would type it; of a library call, the command alone."""
    import shlex

    return shlex.join(["gpuscale", *(_args or [command])])


class Closed(io.TextIOBase):
    """Stands for a standard output that is closed: writing says so."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Refuse it."""
        raise OSError(errno.EBADF, "standard output is closed")


class Forgiving:
    """Standard error whose failures are not told: nobody could read them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write it where that is possible."""
        try:
            return int(self._stream.write(text))
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Flush it where that is possible."""
        try:
            self._stream.flush()
        except OSError:
            return

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self._stream, name)


def mend() -> None:
    """Put a stream in the place of each one that is closed."""
    for number in range(3):  # a file that is opened later must not become a standard stream
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    elif not isinstance(sys.stderr, Forgiving):
        sys.stderr = Forgiving(sys.stderr)
