"""The command line of a question read: its options and arguments, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.answers.ask import Question, fields_of
from gpuscale.cli.failures import misused, no_such_option, too_many
from gpuscale.cli.help import OTHERS, SHOWN

REPEATED = ("require", "output")
"""Options of `SHOWN` that may be repeated."""


def read_words(question: type[Question], args: Sequence[str]) -> dict[str, Any]:
    """Return what is said of the fields of a question, and as `shown_` of those of `SHOWN`.

    An argument may be given by its name too, ``--cluster dgx-h100``. Raises GpuscaleError for a
    line that the command does not take, with what may be meant.
    """
    options, known = options_of(question), fields_of(question)
    arguments = [name for name, (_, argument) in known.items() if argument]
    given: dict[str, Any] = {name: None for name, _ in options.values() if name[:6] == "shown_"}
    plain, left = list[str](), list(args)
    while left:
        word = left.pop(0)
        if word == "--":
            plain += left
            break
        if word == "-" or not word.startswith("-"):
            plain.append(word)
            continue
        flag, equals, value = word.partition("=")
        if flag not in options and word[:2] in options:  # -oFILE
            flag, equals, value = word[:2], "=", word[2:]
        if flag not in options:
            raise no_such_option(flag, options, question)
        name, kind = options[flag]
        if kind == "flag":
            if equals:
                text = f"option `{flag}` does not take a value"
                raise misused(question, text, f"`{flag}` alone says it")
            given[name] = True
            continue
        if not equals and not left:
            raise misused(question, f"option `{flag}` requires an argument")
        value = value if equals else left.pop(0)
        if name in arguments and name in given:
            raise misused(question, f"{flag}: the {name} is given twice")
        given[name] = [*(given.get(name) or ()), value] if kind == "many" else value
    return _with_arguments(question, arguments, given, plain)


def _with_arguments(
    question: type[Question], arguments: Sequence[str], given: dict[str, Any], plain: list[str]
) -> dict[str, Any]:
    """Put plain words at the places of the arguments that are not given by name."""
    known = fields_of(question)
    for name in [n for n in arguments if n not in given]:
        if plain and known[name][0].kind == "many":
            given[name], plain = plain, []
        elif plain:
            given[name] = plain.pop(0)
    last = max((i for i, name in enumerate(arguments) if name in given), default=-1)
    for i, name in enumerate(arguments):
        if name not in given and (i < last or known[name][0].default is ...):
            word = known[name][0].metavar
            named = name if word in (None, "N") else word
            raise misused(question, f"missing argument `{named}`")
    if plain:
        raise too_many(plain, question)
    return given


def options_of(question: type[Question]) -> Mapping[str, tuple[str, str]]:
    """Option of a command -> (name of its value, its kind)."""
    found: dict[str, tuple[str, str]] = {}
    for name, (asked, argument) in fields_of(question).items():
        if not (argument and asked.kind == "many"):
            flags = (f"--{name.replace('_', '-')}", *asked.flags)
            found |= dict.fromkeys(flags, (name, asked.kind))
    for name, (spelled, metavar, _) in SHOWN.items() if question.NAME not in OTHERS else ():
        kind = "many" if name in REPEATED else "value" if metavar else "flag"
        found |= dict.fromkeys(spelled.split(", "), (f"shown_{name}", kind))
    return found
