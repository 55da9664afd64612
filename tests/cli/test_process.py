"""The process as a whole: closed and full streams, Ctrl-C, files that are written or not at all."""

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.answers.answer import Answer
from gpuscale.cli.app import run
from gpuscale.render.document import Column, Document, Facts, Table, Text

PYTHON = shlex.quote(sys.executable)
MATMUL = "matmul-time h100 8 8 8"
FULL = os.path.exists("/dev/full")

STREAMS = [
    (f"{MATMUL} >&-", 2, "error: the answer cannot be written: standard output is closed"),
    ("--version >&-", 2, "error: the answer cannot be written: standard output is closed"),
    ("--help >&-", 2, "error: the answer cannot be written: standard output is closed"),
    ("model - <&-", 2, "error: standard input: is empty"),
    (f"{MATMUL} 2>&-", 0, ""),
    ("matmul-time h1 8 8 8 2>&-", 2, ""),
]
FULL_STREAMS = [
    ("matmul-time h1 8 8 8 2>/dev/full", 2, ""),
    ("--version >/dev/full", 2, "error: the answer cannot be written: No space left on device"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code", "first"), STREAMS + (FULL_STREAMS if FULL else []))
def test_closed_and_full_streams(line, code, first):
    done = subprocess.run(
        ["bash", "-c", f"{PYTHON} -m gpuscale {line}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.split("\n")[0]) == (code, first)
    assert "Traceback" not in done.stderr


INTERRUPTED = """
import builtins, sys
real = builtins.__import__

def stop(name, *args, **more):
    if name == {name!r}:
        raise KeyboardInterrupt
    return real(name, *args, **more)

builtins.__import__ = stop
from gpuscale.__main__ import main
sys.argv = ["gpuscale", "memory", "gpt2"]
main()
"""


@pytest.mark.parametrize(
    "name",
    [
        "gpuscale.cli.failures",
        "gpuscale.cli.app",
        "gpuscale.cli.answering",
        "gpuscale.io.inputs",
        "tomli",
    ],
)
def test_ctrl_c_during_imports_is_130(name):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def call(line, capsys):
    code = run(shlex.split(line))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_files_are_written_together_or_not_at_all(tmp_path, capsys):
    code, out, err = call(f"quiz -o {tmp_path}/a.html -o {tmp_path}/b.svg", capsys)
    assert (code, out) == (2, "") and "this answer has no picture" in err
    assert os.listdir(tmp_path) == []
    (tmp_path / "a.md").write_text("old")
    code, _, _ = call(f"{MATMUL} -o {tmp_path}/a.md -o {tmp_path}/b.trace.json", capsys)
    assert code == 2 and (tmp_path / "a.md").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.md"]


def test_a_symbolic_link_stays_one(tmp_path, capsys):
    target, link = tmp_path / "real.md", tmp_path / "link.md"
    link.symlink_to(target)
    assert call(f"{MATMUL} -o {link}", capsys)[0] == 0
    assert link.is_symlink() and target.read_text().startswith("h100")


def test_constants_are_saved_whole_or_not_at_all(tmp_path, capsys):
    rows = tmp_path / "own.csv"
    rows.write_text(call("calibrate --template gemm", capsys)[1])
    code, _, err = call(f"calibrate --gemm {rows} --save {tmp_path}/no/own.toml", capsys)
    assert code == 2 and "--save" in err and os.listdir(tmp_path) == ["own.csv"]


@pytest.mark.parametrize("name", ["validate", "calibrate", "explain", "schema", "quiz"])
def test_what_changes_nothing_is_not_taken(name, capsys):
    code, out, err = call(f"{name} --set foo.bar=1", capsys)
    assert (code, out) == (2, "") and err.startswith("error: no such option: --set")


def test_check_passes_what_if_and_calibration_to_its_jobs(tmp_path, capsys):
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        "[[job]]\ncommand = 'memory llama3-8b --tp 4 --zero 1'\n[[job]]\ncommand = 'explain mfu'\n"
    )
    assert call(f"check {jobs}", capsys)[0] == 0
    code, out, _ = call(f"check {jobs} --set 'gpu.hbm_bytes=8 GiB' --json", capsys)
    assert code == 1
    assert [j["verdict"] for j in json.loads(out)["result"]["jobs"]] == ["failed", "passed"]
    assert call(f"check {jobs} --calibration {tmp_path}/none.toml", capsys)[0] == 2


HOSTILE = "=1+1\x1b[31m\u202egnp"


def hostile():
    table = Table([Column(HOSTILE, HOSTILE), Column("n", "n")], [[HOSTILE, -1.5], ["@x", 2]])
    blocks = [Text(HOSTILE), table, Facts([(HOSTILE, HOSTILE, HOSTILE)], HOSTILE)]
    return Document("demo", {"name": HOSTILE}, {"name": HOSTILE}, blocks, warnings=[HOSTILE])


@pytest.mark.parametrize("form", ["csv", "markdown", "json", "__str__", "_repr_html_"])
def test_no_format_passes_escapes_or_turned_text(form):
    text = getattr(Answer(hostile()), form)()
    assert "\x1b" not in text and "\u202e" not in text
    if form == "json":
        assert json.loads(text)["result"]["name"] == HOSTILE


def test_cells_are_no_formulas():
    rows = list(csv.reader(io.StringIO(Answer(hostile()).csv())))
    assert [row[0][:2] for row in rows] == ["'=", "'=", "'@"]
    assert [row[1] for row in rows] == ["n", "-1.5", "2"]


def test_report_has_no_turned_text(tmp_path):
    path = tmp_path / "a.html"
    Answer(hostile()).save(path)
    assert "\u202e" not in Path(path).read_text("utf-8")
