"""Help for people: what most need on one screen, the other options by their group.

Written from the fields of a question, without typer: `gpuscale plan --help` is asked for often.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gpuscale.answers.ask import GROUPS, Asked, Question, fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.core.records import NamedTuple
from gpuscale.errors import GpuscaleError, unknown_name

SCREEN = 60
"""Lines of a first help, at most."""

NARROWEST, WIDEST = 80, 100
OTHERS = {
    "explore": "Walk through models, machines and layouts in the terminal, the answer redrawn.",
    "mcp": "Serve the commands as tools of an assistant (MCP) over standard input and output.",
}
"""Commands that are no question, and their lines."""
EXAMPLE = "gpuscale plan llama3-70b --gpus 4096"

FORMATS = ("text", "json", "csv", "markdown")
SHOWN = {
    "show": (
        "--show",
        "NAMES",
        "Details instead of the summary: a list of names, or all. An answer says which it has "
        "(or environment variable GPUSCALE_SHOW).",
    ),
    "json_": ("--json", "", "Print the result as JSON (SI units)."),
    "explain": ("--explain", "", "Show formula, numbers and source of each figure."),
    "output": (
        "-o, --output",
        "FILE",
        "Also write the answer to a file, as its ending says. .json .csv .md .txt .html, a "
        "picture: .svg .png, the step: .trace.json. Repeatable.",
    ),
    "require": (
        "--require",
        "KEY<=X",
        "Exit 1 unless it holds, e.g. 'step_s<=2s'. A key of the JSON result; repeatable.",
    ),
    "format_": (
        "--format",
        "|".join(FORMATS),
        "Output format (or environment variable GPUSCALE_FORMAT).",
    ),
    "plot": ("--plot", "", "Draw the pictures in the terminal too."),
}
"""What every command takes beside its question's fields: flags, metavar, help."""
RARE = ("format_", "plot")


def wrap(text: str, width: int) -> list[str]:
    """Lines of a text, cut between words alone."""
    from textwrap import TextWrapper

    return TextWrapper(width, break_on_hyphens=False, break_long_words=False).wrap(text)


class OptionLine(NamedTuple):
    """An option in a help."""

    brief: str  # without further spellings
    flags: str
    help: str
    group: str
    common: int


def help_words(args: Sequence[str]) -> tuple[str, str] | None:
    """(command, group) whose help is asked for; None where none is.

    >>> help_words(["plan", "--help", "layout"]), help_words(["help", "plan"]), help_words(["plan"])
    (('plan', 'layout'), ('plan', ''), None)
    """
    words = list(args)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help", *words[2:]]
    elif words[1:] == ["help"]:
        words = [words[0], "--help"]
    at = next((i for i, w in enumerate(words) if w in ("-h", "--help", "--")), None)
    if at is None or words[at] == "--":
        return None
    command = next((w for w in words[:at] if w in COMMANDS), "")
    if not command and any(not w.startswith("-") for w in words[:at]):
        return None  # an unknown command: the parser says so
    return command, words[at + 1] if len(words) > at + 1 else ""


def help_text(command: str, group: str, width: int) -> str:
    """Help of a command, or of all; `group`: of `GROUPS`, or all, or empty for the first screen.

    Raises GpuscaleError for a group that the command does not have.
    """
    if not command:
        return _all_commands(width)
    question = question_of(command)
    lines = [*_own(question), *_shown(question)]
    groups = [g for g in ("", *GROUPS) if any(x.group == g for x in lines)]
    if group in ("", "all"):
        chosen = groups
    else:
        named = [g or "options" for g in groups]
        if group not in named:
            known = f"{command} has {', '.join(named)}, all"
            raise unknown_name("group of options", group, named, known)
        chosen = [group if group != "options" else ""]
    whole = _page(question, lines, chosen, width)
    if group or len(whole) <= SCREEN:
        return "\n".join(whole)
    for own in (True, False):  # what is the command's own is shown too where there is room
        some = [
            x._replace(flags=x.brief, help=_first(x.help))
            for x in lines
            if x.common or (own and not x.group)
        ]
        left = len(lines) - len(some)
        more = f"{left} more options: gpuscale {command} --help all, or --help with one of"
        names = ", ".join(g or "options" for g in groups)
        page = _page(question, some, chosen, width, [*wrap(f"{more} {names}", width), ""])
        if len(page) <= SCREEN:
            break
    return "\n".join(page)


def _page(
    question: type[Question],
    lines: Sequence[OptionLine],
    groups: Sequence[str],
    width: int,
    more: Sequence[str] = (),
) -> list[str]:
    """Lines of a page: usage, what it does, arguments, options by group, an example."""
    arguments = [(n, a) for n, (a, is_argument) in fields_of(question).items() if is_argument]
    usage = " ".join(n if a.default is ... else f"[{n}]" for n, a in arguments)
    said = " ".join((question.__doc__ or "").split("\n\n")[0].split())
    page = [f"Usage: gpuscale {question.NAME} {usage} [OPTIONS]".replace("  ", " "), ""]
    page += [*wrap(said, width), ""]
    rows = [(n, about(n, a)) for n, a in arguments]
    shown = [[x for x in lines if x.group == g] for g in groups]
    longest = max((len(x.flags) for part in shown for x in part if len(x.flags) <= 26), default=8)
    column = min(28, max(longest, *(len(n) for n, _ in rows), 8) + 4) if rows else longest + 4
    page += [*_rows(rows, column, width), ""] if rows else []
    for group, part in zip(groups, shown, strict=True):
        if part:
            page += [f"{GROUPS.get(group, 'Options')}:"]
            page += [*_rows([(x.flags, x.help) for x in part], column, width), ""]
    return [*page, *more, "Example:", f"  {question.EXAMPLE}"]


def _first(text: str) -> str:
    """First sentence of a help.

    >>> _first("Tokens of a sequence; 32k is 32,768. [default: 8192]")
    'Tokens of a sequence; 32k is 32,768.'
    """
    return re.split(r"\. (?=[A-Z.\[])", text)[0].rstrip(".") + "."


def _rows(rows: Sequence[tuple[str, str]], column: int, width: int) -> Iterator[str]:
    """Names and what they mean, in two columns."""
    for name, text in rows:
        first, *rest = wrap(text, width - column) or [""]
        if len(name) + 2 >= column:
            yield f"  {name}"
            yield " " * column + first
        else:
            yield f"  {name:<{column - 2}}{first}"
        yield from (" " * column + line for line in rest)


def about(name: str, asked: Asked[Any]) -> str:
    """Help of an argument, and how it is given by name."""
    if asked.kind == "many":
        return asked.help
    return f"{asked.help} Also as {' or '.join((_flag(name), *asked.flags))}."


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def default_text(asked: Asked[Any]) -> str:
    """Help of an option, with its default where the text does not say it."""
    if asked.default in (None, (), False, ..., ""):
        return asked.help
    value = asked.default
    return f"{asked.help} [default: {f'{value:g}' if isinstance(value, float) else value}]"


def _own(question: type[Question]) -> Iterator[OptionLine]:
    """Options of a question, the common ones of a group first."""
    found = []
    for name, (asked, argument) in fields_of(question).items():
        if not argument:
            value = "" if asked.kind == "flag" else f" {asked.metavar or 'X'}"
            flags = ", ".join((_flag(name), *asked.flags)) + value
            text = default_text(asked)
            found.append(OptionLine(_flag(name) + value, flags, text, asked.group, asked.common))
    yield from sorted(found, key=lambda x: x.common or 99)


def _shown(question: type[Question]) -> Iterator[OptionLine]:
    """Options of how an answer is shown."""
    for name, (flags, metavar, text) in SHOWN.items():
        spelled = f"{flags} {metavar}".strip()
        yield OptionLine(spelled, spelled, text, "show", name not in RARE)


def _all_commands(width: int) -> str:
    commands = [*COMMANDS.items(), *OTHERS.items()]
    options = [
        ("--version", "Show the version and exit."),
        ("--install-completion", "Complete words in the current shell; --show-completion prints."),
    ]
    return ALL_COMMANDS.format(
        commands="\n".join(_rows(commands, 16, width)),
        options="\n".join(_rows(options, 26, width)),
        example=EXAMPLE,
    )


ALL_COMMANDS = """\
Usage: gpuscale COMMAND [OPTIONS]

Capacity planner for training and serving large language models on GPU clusters.

Commands:
{commands}

Options:
{options}

Options of a command: gpuscale COMMAND --help, or `gpuscale help COMMAND`.

Example:
  {example}"""


def print_help(args: Sequence[str]) -> bool:
    """Print the help that a command line asks for; False where it asks for none."""
    asked = help_words(args)
    if asked is None:
        return False
    import shutil

    from gpuscale.render.output import write

    columns = shutil.get_terminal_size((NARROWEST, 24)).columns
    write(sys.stdout, help_text(*asked, min(WIDEST, max(NARROWEST, columns))))
    return True


def helped(args: Sequence[str]) -> bool:
    """Print the help before anything heavy is imported; what goes wrong, the application says."""
    try:
        return print_help(args)
    except (GpuscaleError, OSError):
        return False
