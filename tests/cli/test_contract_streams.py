"""Exit code, stdout and stderr together, in pipes, terminals and poor encodings."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import forked

DEMO = [sys.executable, str(Path(__file__).with_name("contract_demo.py"))]


def program():
    """Import the demo where it ends with the process: it adds a command."""
    from contract_demo import application

    application.main()


def run(*args, **env):
    return forked(*args, program=program, **env)


def in_terminal(columns, *args, **env):
    """Output of the program on a terminal `columns` wide, and its exit code."""
    done = forked(*args, program=program, columns=columns, **env)
    return done.stdout, done.returncode


def strip(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


USAGE = [
    (["demo"], "missing argument `m`", "for example `gpuscale demo 5 --json`"),
    (["demo", "x"], "M: 'x' is not a number, such as 64 or 70B", None),
    (["demo", "5.5"], "M must be a whole number, got 5.5", None),
    (["demo", "0"], "M must be between 1 and 1e+15, got 0", None),
    (["demo", "-5"], "`-5` is not an option", "a negative number is not accepted here"),
    (["demo", "5", "6"], "got unexpected extra arguments (6)", None),
    (["demo", "5", "--nam", "a"], "no such option: --nam", "did you mean `--name`?"),
    (["demo", "5", "--k"], "option `--k` requires an argument", None),
    (["demo", "5", "--k", "nan"], "--k: 'nan' is not a number, such as 64 or 70B", None),
    (["demo", "5", "--k", "1e31"], "--k: '1e31' is out of range (limit 1e+30)", None),
    (["demo", "5", "--json=3"], "option `--json` does not take a value", None),
    (["demo", "5", "--json", "--format", "csv"], "`--json` and `--format csv` differ", None),
    (["demo", "5", "--name", "bad"], "a name over two lines", "another name"),
    (["deom"], "unknown command `deom`", "did you mean `demo`?"),
    (["zzz"], "unknown command `zzz`", "list them with `gpuscale --help`"),
    (["--versoin"], "no such option: --versoin", "did you mean `--version`?"),
    (
        ["demo", "5", "--format", "xml"],
        "unknown format in `--format`: `xml`",
        "known: text, json, csv, markdown",
    ),
]


@pytest.mark.parametrize(("args", "message", "hint"), USAGE, ids=lambda v: str(v)[:30])
def test_usage_error_is_one_line_and_a_hint(args, message, hint):
    r = run(*args)
    assert (r.returncode, r.stdout) == (2, "")
    lines = r.stderr.splitlines()
    assert lines[0] == f"error: {message}"
    assert lines[1] == "" and lines[2].startswith("hint: ") and len(lines) == 3
    if hint:
        assert lines[2] == f"hint: {hint}"


def test_no_arguments_prints_the_help():
    bare, asked = run(), run("--help")
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout.strip() == asked.stdout.strip()
    assert bare.stdout.splitlines()[-1] == "  gpuscale plan llama3-70b --gpus 4096"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_ends_with_the_example(flag):
    r = run("demo", flag, COLUMNS="40")
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout.rstrip().splitlines()[-2:] == ["Example:", "  gpuscale demo 5 --json"]


@pytest.mark.parametrize(("name", "code"), [("x", 0), ("no", 1)])
def test_answer_and_its_code(name, code):
    r = run("demo", "5", "--name", name)
    assert (r.returncode, r.stderr) == (code, "warning: careful\n")
    r = run("demo", "5", "--name", name, "--json")
    assert (r.returncode, r.stderr) == (code, "")
    found = json.loads(r.stdout)
    assert [p["key"] for p in found.pop("summary")] == ["verdict", "time", "memory"]
    assert found == {
        "schema": 2,
        "command": "demo",
        "inputs": {"m": 5, "name": name},
        "result": {"time_s": 2.0, "m": 5},
        "warnings": ["careful"],
    }


def test_bug_is_70_with_a_traceback():
    r = run("demo", "5", "--name", "boom")
    assert (r.returncode, r.stdout) == (70, "")
    assert "ValueError: boom" in r.stderr and "this is a bug in gpuscale" in r.stderr


def test_interrupt_is_130():
    r = run("demo", "5", "--name", "ctrl-c")
    assert (r.returncode, r.stdout, r.stderr) == (130, "", "")


def test_nan_is_a_bug_in_tests_and_null_for_a_person():
    assert run("demo", "5", "--name", "nan", "--json").returncode == 70
    r = run("demo", "5", "--name", "nan", "--json", GPUSCALE_STRICT="")
    assert r.returncode == 0 and json.loads(r.stdout)["result"]["time_s"] is None


def test_format_from_the_environment_and_the_flag_above_it():
    assert run("demo", "5", GPUSCALE_FORMAT="csv").stdout.startswith("time_s,label,c\n0.0,,\n")
    assert run("demo", "5", "--json", GPUSCALE_FORMAT="csv").stdout.startswith("{")
    assert run("demo", "5", "--format", "text", GPUSCALE_FORMAT="csv").stdout.startswith("hello")
    r = run("demo", "5", GPUSCALE_FORMAT="cs")
    assert (r.returncode, r.stdout) == (2, "") and "did you mean `csv`?" in r.stderr


def test_pipe_has_whole_lines_and_no_escapes():
    out = run("demo", "5", "--wide", COLUMNS="40").stdout
    assert "\x1b" not in out and "\x07" not in out
    assert ("hello " * 30).rstrip() in out.splitlines()
    rows = [line for line in out.splitlines() if "12345678901" in line]
    assert len(rows) == 5 and all(row.count("12345678901") == 10 for row in rows)
    assert all(line == line.rstrip() for line in out.splitlines())


def test_force_color_in_a_dumb_terminal_cuts_nothing():
    out = run("demo", "5", "--wide", FORCE_COLOR="1", TERM="dumb").stdout
    assert sum(row.count("12345678901") for row in out.splitlines()) == 50


@pytest.mark.parametrize("format_", ["text", "json", "csv", "markdown"])
def test_ascii_stream_gets_ascii(format_):
    r = run("demo", "5", "--format", format_, "--name", "µm", PYTHONIOENCODING="ascii")
    assert r.returncode == 0 and r.stdout.isascii()
    if format_ == "text":
        assert "8 GB  ################################........" in r.stdout and "u -> x" in r.stdout
    if format_ == "json":
        assert json.loads(r.stdout)["inputs"]["name"] == "µm"


def test_name_that_is_not_utf8():
    r = subprocess.run([*DEMO, "demo", "5", "--json", "--name", b"\xff\xfe"], capture_output=True)
    assert r.returncode == 0 and json.loads(r.stdout)["inputs"]["name"]


def test_reader_that_leaves_is_no_failure():
    r = subprocess.run(
        f"set -o pipefail; {sys.executable} {DEMO[1]} demo 5 --wide | true",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in r.stderr and "Broken" not in r.stderr and r.returncode == 0


@pytest.mark.parametrize("columns", [40, 80, 132])
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_terminal_lines_fit(columns, term):
    out, code = in_terminal(columns, "demo", "5", TERM=term)
    plain = strip(out)
    assert code == 0 and max(map(len, plain.splitlines())) <= columns
    assert len(re.findall(r"long\s+label", plain)) == 10
    assert ("\x1b[1m" in out) == (term != "dumb")


def test_wide_table_in_a_narrow_terminal_comes_in_parts():
    out, _ = in_terminal(80, "demo", "5", "--wide")
    assert out.count("12345678901") == 50 and max(map(len, strip(out).splitlines())) <= 80
    assert len(re.findall("^ +time", strip(out), re.MULTILINE)) >= 3


def test_no_color_in_a_terminal():
    out, _ = in_terminal(80, "demo", "5", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", out)
