"""Options that every command has: --explain, --require, -o."""

import json
import os
import re
import shlex

import pytest

from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.app import run

MATMUL = "matmul-time b200 64 4096 8192"


def call(line, capsys):
    code = run(shlex.split(line))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.slow
def test_every_command_explains_its_example(capsys):
    silent = []
    for name in COMMANDS:
        call(f"{name} --help", capsys)
        example = question_of(name).EXAMPLE.split(">")[0].removeprefix("gpuscale ")
        if name in ("presets", "schema", "calibrate") or re.search(
            r"\.(json|toml|csv|sh)\b|\|", example
        ):
            continue
        code, out, _ = call(f"{example} --explain --json", capsys)
        if code > 1 or not json.loads(out)["explain"]:
            silent.append(name)
    assert not silent


def test_explanation_in_text_and_markdown(capsys):
    _, text, _ = call(f"{MATMUL} --explain", capsys)
    assert "\n│  = max(2 * m * k * n * batch / flop_per_s" in text
    assert "\n│  = max(2 * 64 * 4096 * 8192 * 1 / 2.25e+15" in text
    assert "└─ bytes_per_s = 8.000 TB/s" in text and "source: " in text
    _, text, _ = call(f"{MATMUL} --explain --format markdown", capsys)
    assert "\n- **time_s = 8.585 us**\n  `= max(" in text


MET = ["time_s<=9us", "time_s < 1ms", "bound==memory", "flop>=4 GFLOP", "bytes <= 70MB", "kind!=x"]
FAILED = [
    ("time_s<=5us", "have 8.58522 us, need at most 5.00000 us"),
    ("bound=compute", "have memory, need compute"),
    ("intensity_flop_per_byte>100", "have 62.5344, need more than 100"),
]


def test_requirements_that_hold(capsys):
    given = " ".join(f"--require '{r}'" for r in MET)
    code, out, err = call(f"{MATMUL} --json {given}", capsys)
    assert (code, err) == (0, "")
    verdicts = json.loads(out)["requirements"]
    assert [v["requirement"] for v in verdicts] == MET and all(v["met"] for v in verdicts)


@pytest.mark.parametrize(("requirement", "said"), FAILED)
def test_requirement_that_fails_is_code_1_with_have_and_need(requirement, said, capsys):
    code, out, err = call(f"{MATMUL} --require '{requirement}' --require 'm>0'", capsys)
    assert code == 2 and out == ""  # m is an input, not a result
    code, out, err = call(f"{MATMUL} --require '{requirement}'", capsys)
    assert (code, err) == (1, f"failed: {requirement}: {said}\n") and out.startswith("b200")


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("tim_s<=5us", "unknown key in --require: `tim_s`"),
        ("time_s<=5GB", "--require time_s<=5GB: unit 'GB' in '5GB' is not known here"),
        ("time_s<=40%", "unit '%'"),
        ("time_s", "--require time_s: not KEY>=VALUE"),
        ("bound>=1", "bound is a text, `memory`"),
        ("time_s<=nan", "is not a number"),
    ],
)
def test_requirement_that_cannot_be_read(requirement, message, capsys):
    code, out, err = call(f"{MATMUL} --require '{requirement}'", capsys)
    assert (code, out) == (2, "") and err.startswith("error: ") and message in err


def test_requirement_may_name_the_command(capsys):
    line = "memory llama3-70b --cluster dgx-h100 --tp 8 --pp 8"
    code, _, err = call(f"{line} --require 'memory.peak_bytes<=75GB'", capsys)
    assert (code, err) == (0, "")
    code, _, err = call(f"{line} --require 'memory.peak_bytes<=30GB'", capsys)
    assert code == 1 and err.startswith("failed: memory.peak_bytes<=30GB: have ")


def test_files_by_ending(tmp_path, capsys):
    given = " ".join(f"-o {tmp_path}/a{ending}" for ending in (".json", ".csv", ".md", ".txt"))
    code, out, err = call(f"{MATMUL} {given}", capsys)
    assert (code, err) == (0, "") and sorted(os.listdir(tmp_path)) == [
        "a.csv",
        "a.json",
        "a.md",
        "a.txt",
    ]
    assert (tmp_path / "a.txt").read_text() == out
    assert call(f"{MATMUL} --json", capsys)[1] == (tmp_path / "a.json").read_text()
    assert call(f"{MATMUL} --format csv", capsys)[1] == (tmp_path / "a.csv").read_text()
    assert call(f"{MATMUL} --format markdown", capsys)[1] == (tmp_path / "a.md").read_text()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("a.pdf", "the ending `.pdf` is not known"),
        ("a.yaml", "launch files: .sh .sbatch, others by `gpuscale launch`"),
        ("no/a.md", "there is no folder `no`"),
        ("", "the ending `` is not known"),
        ("dir.md", "cannot be written"),
    ],
)
def test_file_that_cannot_be_written(target, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir.md").mkdir()
    code, out, err = call(f"{MATMUL} -o '{target}'", capsys)
    assert (code, out) == (2, "") and message in err
    assert os.listdir(tmp_path) == ["dir.md"]
