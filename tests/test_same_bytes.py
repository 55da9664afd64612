"""Answers have the same bytes on every Python: 3.12 made `sum` of floats exact to a rounding."""

import builtins
import math
import shlex
from pathlib import Path

import pytest

from gpuscale.cli.app import run

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (ROOT / "tests" / "data" / "answers" / "commands.txt").read_text("utf-8").splitlines()
SOME = COMMANDS[::9]
SUM = sum


def before(values, /, start=0):
    """Give the sum as Python 3.10 and 3.11 make it: one addition after the other."""
    for value in values:
        start = start + value
    return start


def since(values, /, start=0):
    """Give the sum as Python 3.12 makes it, or nearer to the true one."""
    kept = list(values)
    if any(isinstance(v, float) for v in kept) and all(isinstance(v, (int, float)) for v in kept):
        return math.fsum([start, *kept])
    return SUM(kept, start)


@pytest.mark.parametrize("command", SOME)
def test_an_answer_has_the_same_bytes_however_floats_are_summed(command, capsys, monkeypatch):
    said = []
    for way in (before, since):
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "sum", way)
            assert run([*shlex.split(command), "--json"]) in (0, 1)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_the_two_ways_differ():
    tenths = [0.1] * 10
    assert before(tenths) != since(tenths) == 1.0
