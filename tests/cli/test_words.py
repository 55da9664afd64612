"""A command line is read as typer reads it, whose commands complete words in a shell."""

import random
import shlex

import pytest

from gpuscale.answers.ask import fields_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.completion import command_of
from gpuscale.cli.words import read_words
from gpuscale.errors import GpuscaleError

VALUES = ("8", "h100", "2k", "a=b", "x y", "", "-", "1e12", "ü")


def said(given):
    return {k: v for k, v in given.items() if v not in (None, (), [], False)}


def by_typer(name, args):
    """Return what typer says of a line; None where it refuses it."""
    try:
        with command_of(question_of(name)).make_context(name, list(args)) as context:
            return said(context.params)
    except Exception as error:
        assert hasattr(error, "format_message"), error
        return None


def by_words(name, args):
    """Return what is read of a line; None where it is refused."""
    try:
        return said(read_words(question_of(name), args))
    except GpuscaleError:
        return None


def random_line(rng, name):
    """Options and arguments of a command in any order, now and then with a mistake."""
    parts = []
    for field, (asked, argument) in fields_of(question_of(name)).items():
        flag = rng.choice([f"--{field.replace('_', '-')}", *asked.flags])
        value = rng.choice(VALUES)
        if argument:
            parts += [[value]] * (rng.random() < 0.8)
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
def test_a_line_is_read_as_typer_reads_it(name):
    rng = random.Random(name)
    example = shlex.split(question_of(name).EXAMPLE.split("| ")[-1].split(">")[0])[2:]
    read = 0
    for args in (example, *(random_line(rng, name) for _ in range(60))):
        given = by_words(name, args)
        read += given is not None
        assert given == by_typer(name, args), args
    assert 5 <= read < 61


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h100 8 8 8 8", "got unexpected extra arguments (8)"),
        ("h100 8 8 8 --typo", "no such option: --typo"),
        ("h100 8 8 8 --format", "option `--format` requires an argument"),
        ("h100 8 8 8 --json=yes", "option `--json` does not take a value"),
        ("h100 8 8 -8", "`-8` is not an option"),
        ("--m 8 --m 9", "--m: the m is given twice"),
        ("--k 8 --gpu h100", "missing argument `m`"),
    ],
)
def test_what_a_command_does_not_take_is_told(line, message):
    with pytest.raises(GpuscaleError) as told:
        read_words(question_of("matmul-time"), line.split())
    assert told.value.message == message


def test_options_end_and_a_file_may_touch_its_option():
    given = said(read_words(question_of("matmul-time"), "-oa.md -- h100 8 8 8".split()))
    assert given == {"shown_output": ["a.md"], "gpu": "h100", "m": "8", "k": "8", "n": "8"}
