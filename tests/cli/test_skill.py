"""The file that tells an assistant what to ask: its commands work and are those that exist."""

import re
import shlex
from pathlib import Path

import pytest

from gpuscale.answers.table import COMMANDS
from gpuscale.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "skills" / "gpuscale" / "SKILL.md").read_text("utf-8")
LINES = re.findall(r"\| `gpuscale (.*?)` \|", TEXT)


def test_it_is_short_and_says_when_to_use_it():
    head = re.match(r"---\nname: gpuscale\ndescription: (.+)\n---\n", TEXT)
    assert head and len(head[1]) < 1024 and len(TEXT.splitlines()) < 60
    assert "80 % interval" in TEXT


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_command_of_it_answers(line, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "docs" / "examples")
    assert run(shlex.split(line)) in (0, 1), capsys.readouterr().err
    assert capsys.readouterr().out


def test_it_names_most_commands_and_none_that_is_not():
    named = {shlex.split(line)[0] for line in LINES}
    assert named <= set(COMMANDS) and len(LINES) >= 14
    assert {"plan", "memory", "serve", "launch-check"} <= named
