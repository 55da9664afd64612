"""Layers of answers: a summary by default, details by name; one shape of answer."""

import json
import runpy
from pathlib import Path

import pytest
from running import invoke

from gpuscale.answers.answer import ask
from gpuscale.api import plan, serve
from gpuscale.render.document import (
    LABEL_WIDTH,
    Document,
    Point,
    Table,
    Text,
    layer,
    lines_of,
    summary_of,
)

ROOT = Path(__file__).resolve().parents[2]
SCREENS = runpy.run_path(str(ROOT / "tools" / "screens.py"))
JOBS = SCREENS["JOBS"] | {
    "scan": "plan llama3-8b --gpus 8..16",
    "rl": "plan llama3-8b --method grpo --gpu h100 --gpus 8",
    "chip": "roofline chip h100",
    "validate": "validate --runs docs/examples/my_runs.csv",
}


@pytest.fixture
def by_default(monkeypatch):
    monkeypatch.delenv("GPUSCALE_SHOW", raising=False)


@pytest.fixture
def asked_once(monkeypatch):
    """Answer a question once: it is shown in many ways."""
    known = {}

    def ask_once(question, require=()):
        at = repr(vars(question))
        if at not in known:
            known[at] = ask(question, require)
        return known[at]

    monkeypatch.setattr("gpuscale.cli.answering.ask", ask_once)
    return known


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_the_default_is_a_summary_of_a_screen(by_default, asked_once, name):
    job = JOBS[name].split()
    done = invoke(*job)
    if name in SCREENS["JOBS"]:
        (document,) = asked_once.values()
        kept = (SCREENS["KEPT"] / f"{name}.txt").read_text("utf-8")
        assert SCREENS["screens"](document) == kept, "renew with `python tools/screens.py --update`"
        narrow = kept.split("\n\n== 100")[0].splitlines()[1:]
        assert max(map(len, narrow)) <= 80 and sum(map(bool, narrow)) <= 15
    lines = done.stdout.splitlines()
    assert done.returncode in (0, 1) and 4 <= len(lines) <= 18
    assert lines[-1].startswith("details     --show ") and lines[-1].endswith(" or all")
    names = lines[-1].split("--show ")[1].removesuffix(" or all").split(",")
    whole = invoke(*job, "--show", "all").stdout
    for one in names:
        part = invoke(*job, "--show", one).stdout.strip()
        assert part and part in whole
    made = json.loads(invoke(*job, "--json").stdout)
    assert made["schema"] == 2 and made["summary"][0]["value"] == lines[0]
    assert [p["key"] for p in made["summary"][1:]] == [
        key for line in lines[2:-2] if (key := line[:LABEL_WIDTH].strip())
    ]


def test_a_detail_that_is_not_there_is_told_before_anything_is_written(by_default, tmp_path):
    file = tmp_path / "a.json"
    done = invoke(*JOBS["memory"].split(), "--show", "limts", "-o", str(file))
    assert done.returncode == 2 and done.stdout == "" and not file.exists()
    assert "it has summary, memory, figures" in done.stderr


@pytest.mark.slow
def test_the_tone_is_of_the_data():
    assert plan("llama3-8b", gpus=64, cluster="dgx-h200").document.summary[0].tone == "good"
    assert plan("llama3-8b", gpus=64).document.summary[0].tone == "near"
    assert plan("llama3-70b", gpus=8).document.summary[0].tone == "bad"
    assert serve("llama3-8b", rate="2/s").document.summary[0].tone == "good"


def test_a_line_is_cut_at_words_and_keeps_its_label():
    points = [Point("verdict", "It fits."), Point("layout", "TP 8", "one two three four five six")]
    found = Document.layered("x", {}, {}, points, {"a": [Text("b")], "none": []})
    assert list(found.details) == ["a"] and found.blocks == [Text("b")]
    lines = lines_of(summary_of(found), LABEL_WIDTH + 14)
    assert lines[2:5] == [
        ("layout", "TP 8", "  one two", ""),
        ("", "", "three four", ""),
        ("", "", "five six", ""),
    ]
    assert layer(found, ("all",)) is found
    assert not any(isinstance(b, Table) for b in layer(found, ()).blocks)
