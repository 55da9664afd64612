"""Frameworks as data: every file is read, and a version or a day picks the habits of then."""

import re

import pytest

from gpuscale.core.habits import Habit, habits_of, version_at, version_key
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_names
from gpuscale.io.software import framework_habits, load_framework, named, older_ways, without_dates


@pytest.mark.parametrize("name", preset_names("framework"))
def test_a_file_is_whole(name):
    framework = load_framework(name)
    assert framework.name == name
    for habit in framework.habit:
        if habit.since and habit.before:
            assert version_key(habit.since) < version_key(habit.before), habit
        assert re.search(r"[=@#/\d]", habit.source), habit


def test_a_condition_is_more_than_none_and_a_version_than_today():
    habits = [
        Habit("loss", "eager", "x==1", before="2.0"),
        Habit("loss", "fused", "x==2", since="2.0"),
        Habit("loss", "chunked", "x==2", since="2.0", when={"method": ("grpo",)}),
    ]
    assert habits_of(habits, {})["loss"].value == "fused"
    assert habits_of(habits, {"method": "grpo"})["loss"].value == "chunked"
    assert habits_of(habits, {"method": "grpo"}, "1.10")["loss"].value == "eager"
    assert version_at({"1.0": "2024-03-01", "2.0": "2025-01-15"}, "2024-12-31") == "1.0"
    assert version_at({"1.0": "2024-03-01", "2.0": "2025-01-15"}, "2023") == "1.0"


def test_versions_of_trl():
    assert framework_habits("trl:1.5", {})["loss"].value == "eager"
    assert named("trl:v1.5") == ("trl", "1.5")
    with pytest.raises(GpuscaleError, match="neither a version nor a date"):
        named("trl:old")
    for never in ("trl:2024-13", "trl:2024-00", "trl:2024-12-32"):
        with pytest.raises(GpuscaleError, match="neither a version nor a date"):
            named(never)
    with pytest.raises(GpuscaleError, match="by version is not known"):
        framework_habits("easylm:0.9", {})
    assert framework_habits("easylm:2023-08", {}) == {}  # a date: taken as it is today
    assert "did in 2023-08" in without_dates("easylm:2023-08")[0]
    assert without_dates("trl:2023-08") == without_dates("easylm") == []


def test_a_name_without_a_version_may_be_an_older_stack():
    stacks = older_ways("trl", {"task": "sft"})
    assert {name: share for name, (share, _) in stacks.items()} == {
        "trl:2025-10": pytest.approx(0.25),
        "trl:2024-10": pytest.approx(0.15),
    }
    _, then = stacks["trl:2024-10"]
    assert (then["loss"], then["recompute"]) == ("eager", "none")
    assert "recompute" not in stacks["trl:2025-10"][1]
    assert older_ways("trl:1.16.0", {"task": "sft"}) == {}
