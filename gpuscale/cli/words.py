"""A command line read without typer, which takes longer to import than a small answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpuscale.answers.ask import Question, fields_of
from gpuscale.cli.help import SHOWN

REPEATED = ("require", "output")
"""Options of `SHOWN` that may be repeated."""


def read_words(question: type[Question], args: Sequence[str]) -> dict[str, Any] | None:
    """Return what is said of the fields of a question, and as `shown_` of those of `SHOWN`.

    None where a line is not plain: typer reads it, or says what is wrong with it. Plain are known
    options, whole and with values that do not look like options, and as many arguments as wanted.
    """
    kinds: dict[str, tuple[str, str]] = {}  # option -> (name of its value, kind)
    order: list[tuple[str, bool]] = []  # (argument, whether it must be given)
    for name, (asked, argument) in fields_of(question).items():
        if argument and asked.kind == "many":
            return None
        if argument:
            order.append((name, asked.default is ...))
        for flag in (f"--{name.replace('_', '-')}", *asked.flags):
            kinds[flag] = (name, asked.kind)
    for name, (spelled, metavar, _) in SHOWN.items():
        kind = "many" if name in REPEATED else metavar and "one"
        kinds |= {flag: (f"shown_{name}", kind or "flag") for flag in spelled.split(", ")}
    given: dict[str, Any] = {f"shown_{name}": None for name in SHOWN}
    plain, left = [], list(args)
    while left:
        word = left.pop(0)
        if word == "-" or not word.startswith("-"):
            plain.append(word)
            continue
        flag, equals, value = word.partition("=")
        name, kind = kinds.get(flag, ("", ""))
        takes = kind != "flag"
        if not name or (equals and not (takes and flag.startswith("--"))):
            return None
        if takes and not equals:
            if not left or (left[0].startswith("-") and left[0] != "-"):
                return None
            value = left.pop(0)
        if kind == "many":
            given[name] = [*(given.get(name) or ()), value]
        elif name in dict(order) and name in given:
            return None
        else:
            given[name] = value if takes else True
    for name in [n for n, _ in order if n not in given][: len(plain)]:
        given[name] = plain.pop(0)
    said = [name in given for name, _ in order]
    missing = any(needed and name not in given for name, needed in order)
    return None if plain or missing or said != sorted(said, reverse=True) else given


def by_name(question: type[Question]) -> dict[str, str]:
    """Options under which a person may give an argument, as ``--cluster`` of ``collective``."""
    return {
        flag: name
        for name, (asked, argument) in fields_of(question).items()
        if argument and asked.kind != "many"
        for flag in (f"--{name.replace('_', '-')}", *asked.flags)
    }


def placed(
    args: Sequence[str], names: Mapping[str, str], order: Sequence[str], flags: Collection[str]
) -> list[str]:
    """Arguments of a command line with those given by name at their places, behind the options.

    >>> names = {"--op": "op", "--cluster": "cluster", "--gpu": "cluster"}
    >>> placed(["all-reduce", "--gpu", "h100", "--gpus", "8"], names, ["op", "cluster"], {"--json"})
    ['--gpus', '8', 'all-reduce', 'h100']
    """
    options: list[str] = []
    plain: list[str] = []
    named: dict[str, str] = {}
    left = list(args)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in names:
            if names[name] in named:
                raise ValueError(f"{name}: the {names[name]} is given twice")
            if not equals and not left:
                raise ValueError(f"option {name} requires an argument")
            named[names[name]] = value if equals else left.pop(0)
        elif word == "--":
            plain += left
            break
        elif word.startswith("-") and word != "-":
            options.append(word)
            if not equals and word not in flags and left:
                options.append(left.pop(0))
        else:
            plain.append(word)
    slots = [named[x] if x in named else plain.pop(0) if plain else None for x in order]
    while slots and slots[-1] is None:
        slots.pop()
    if None in slots:
        raise ValueError(f"missing argument `{order[slots.index(None)]}`")
    rest = [s for s in (*slots, *plain) if s is not None]
    return [*options, *(["--"] if any(s.startswith("-") and s != "-" for s in rest) else []), *rest]
