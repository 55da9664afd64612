"""A plain command line is read as typer reads it; typer has the others."""

import random
import shlex

import pytest

from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli import parser
from gpuscale.cli.words import read_words
from gpuscale.errors import Exit, GpuscaleError

VALUES = ("8", "h100", "2k", "a=b", "x y", "", "-", "1e12", "ü")


def said(given):
    return {k: v for k, v in given.items() if v not in (None, (), [], False)}


@pytest.fixture
def by_typer(monkeypatch):
    """Return what typer says of a line; None where it refuses it."""

    def read(name, args):
        seen = []
        monkeypatch.setattr(
            "gpuscale.cli.parser.answered", lambda _, given: seen.append(given) or Exit.OK
        )
        try:
            parser.invoke([name, *args])
        except GpuscaleError:
            return None
        except Exception as error:
            assert hasattr(error, "format_message"), error
            return None
        return said(seen[0])

    return read


def random_line(rng, name):
    """Options and arguments of a command in any order, now and then with a mistake."""
    parts = []
    for field, (asked, argument) in fields_of(question_of(name)).items():
        flag = rng.choice([f"--{field.replace('_', '-')}", *asked.flags])
        value = rng.choice(VALUES)
        if argument and rng.random() < 0.7:
            parts.append([value])
        elif rng.random() < 0.15:
            known = [flag] if asked.kind == "flag" else [flag, value]
            parts.append(rng.choice([known, [f"{flag}={value}"]]))
    parts += rng.choice([[], [["--json"]], [["-o", "a.md"], ["--output", "b.md"]]])
    parts += rng.choice(
        [[], [], [["--no-such-option"]], [["--"]], [["--require", "x<=1"]], [["y"]]]
    )
    rng.shuffle(parts)
    return [word for part in parts for word in part]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in COMMANDS])
def test_a_line_is_read_as_typer_reads_it(name, by_typer):
    rng = random.Random(name)
    example = shlex.split(question_of(name).EXAMPLE.split("| ")[-1].split(">")[0])[2:]
    read = 0
    for args in (example, *(random_line(rng, name) for _ in range(60))):
        given = read_words(question_of(name), args)
        if given is not None:
            read += 1
            assert said(given) == by_typer(name, args), args
    many = any(
        asked.kind == "many"
        for asked, argument in fields_of(question_of(name)).values()
        if argument
    )
    assert read == 0 if many else read >= 5


@pytest.mark.parametrize(
    "line",
    [
        "h100 8 8 8 8",
        "h100 8 8 8 --typo",
        "h100 8 8 8 --format",
        "h100 8 8 8 --json=yes",
        "h100 8 8 -8",
        "h100 8 8 8 -oa.md",
        "h100 8 8 8 --gpu h200 --gpu b200",
        "-- h100 8 8 8",
    ],
)
def test_what_is_not_plain_is_left_to_typer(line):
    assert read_words(question_of("matmul-time"), line.split()) is None
