"""What the README shows is what the commands print, and every command is in it."""

import runpy
from pathlib import Path

import pytest
from running import shown as shown_by

from gpuscale.answers.table import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
tool = runpy.run_path(str(ROOT / "tools" / "readme.py"))


@pytest.mark.parametrize(("command", "shown"), tool["shown_commands"](README))
def test_shown_output_is_printed(command, shown):
    assert command.startswith(("gpuscale ", "python -m gpuscale")), command
    assert tool["difference"](shown, shown_by(command, ROOT, tool["run"])) == ""


def test_every_command_is_described():
    text = README.read_text(encoding="utf-8")
    missing = [name for name in COMMANDS if f"gpuscale {name}" not in text]
    assert not missing


def test_difference_sees_a_changed_number_and_allows_dots():
    difference = tool["difference"]
    assert difference("a 1\nb 2\n", "a 1\nb 2\n") == ""
    assert difference("a 1\n...\nc 3\n", "a 1\nb 2\nx\nc 3\n") == ""
    assert difference("a 1\n...\n", "a 1\nb 2\n") == ""
    assert "-b 2" in difference("a 1\nb 2\n", "a 1\nb 3\n")
    assert difference("a 1\n...\nc 3\n", "a 1\nc 4\n")


def test_ci_runs_the_test_command_of_the_readme():
    text = README.read_text(encoding="utf-8")
    assert "\n$ pytest\n" in text
    assert "`pytest -m slow`" in text
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'step "tests" pytest\nstep "slow tests" pytest -m slow\n' in steps
