"""The numbers of many commands are what they were: a change that moves one says so.

`tools/answers.py --update` keeps new ones; CHANGELOG.md then names them with the old.
"""

import runpy
from pathlib import Path

import pytest

tool = runpy.run_path(str(Path(__file__).resolve().parents[1] / "tools" / "answers.py"))
KEPT = tool["kept"]()


@pytest.mark.parametrize("command", tool["COMMANDS"])
def test_numbers_are_as_kept(command):
    assert tool["moved"](KEPT[command], tool["answer"](command)) == []


def test_kept_commands_are_the_listed_ones():
    assert list(KEPT) == tool["COMMANDS"]


def test_a_moved_number_is_seen_and_rounding_is_not():
    moved = tool["moved"]
    assert moved({"a": 1.0, "b": 2.0}, {"a": 1.000001, "b": 2.0}) == []
    assert moved({"a": 1.0}, {"a": 1.001}) == ["a: 1.0 -> 1.001"]
    assert moved({"a": 1.0}, {"b": 1.0}) == ["a: 1.0 -> None", "b: None -> 1.0"]
