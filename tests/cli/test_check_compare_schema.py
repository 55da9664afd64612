"""check, compare and schema: the commands for pipelines."""

import json
import re
import shlex
from xml.etree import ElementTree

import pytest
import typer
from json_schema import problems
from running import invoke

from gpuscale.answers.requirements import schema_of
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.app import run
from gpuscale.cli.parser import app

MATMUL = "matmul-time b200 64 4096 8192"
JOBS = """
[[job]]
name = "bound by memory"
command = "gpuscale matmul-time b200 64 4096 8192"
require = ["bound==memory", "time_s<=10us"]
[[job]]
command = "matmul-time b200 8192 4096 8192"
require = ["time_s<=1us", "bound==memory"]
[[job]]
name = "does not fit <&>"
command = "memory llama3-70b --cluster dgx-h100 --tp 1"
answer = "no"
[[job]]
name = "typo"
command = "matmul-time b20 1 1 1"
"""


def call(line, capsys):
    code = run(shlex.split(line))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_reports_like_a_test_run(folder, capsys):
    (folder / "jobs.toml").write_text(JOBS)
    code, out, err = call("check jobs.toml --json --junit r.xml", capsys)
    result = json.loads(out)["result"]
    assert (code, err, result["total"], result["passed"]) == (1, "", 4, 2)
    assert [j["verdict"] for j in result["jobs"]] == ["passed", "failed", "passed", "error"]
    assert len(result["jobs"][1]["details"]) == 2
    assert result["jobs"][3]["details"] == ["error: unknown GPU preset `b20`"]
    suite = ElementTree.parse(folder / "r.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "1")
    assert [c.get("name") for c in suite][2] == "does not fit <&>"
    code, out, _ = call("check jobs.toml", capsys)
    assert code == 1 and out.endswith("2 passed, 2 failed\n") and "FAILED" in out


def test_check_passes(folder, capsys):
    (folder / "jobs.toml").write_text(JOBS.split("[[job]]\ncommand")[0])
    code, out, _ = call("check jobs.toml", capsys)
    assert code == 0 and out.endswith("1 passed\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "must hold [[job]] tables"),
        ("job = []", "must hold [[job]] tables"),
        ("[[job]]\nname = 'a'", "job 1: command: this key is required and missing"),
        ("[[job]]\ncommand = 'quzi'", "unknown command in jobs.toml: job 1: `quzi`"),
        ("[[job]]\ncommand = 'check jobs.toml'", "unknown command"),
        ('[[job]]\ncommand = "quiz \'"', "command: No closing quotation"),
        (
            "[[job]]\ncommand = 'quiz'\nrequired = []",
            "jobs.toml: job 1: required: not a key that is known here",
        ),
        ("[[job]]\ncommand = 'quiz'\nrequire = 'a'", "require: input should be a valid tuple"),
        ("[[job]]\ncommand = 'quiz'\nrequire = [1]", "require.0: input should be a valid string"),
        (
            "[[job]]\ncommand = 'quiz'\nanswer = 'maybe'",
            "answer: input should be 'yes', 'no' or 'any'",
        ),
    ],
)
def test_check_refuses_a_bad_file(text, message, folder, capsys):
    (folder / "jobs.toml").write_text(text)
    code, out, err = call("check jobs.toml", capsys)
    assert (code, out) == (2, "") and err.startswith("error: ") and message in err


def test_compare_says_what_changed(folder, capsys):
    call(f"{MATMUL} -o a.json", capsys)
    call("matmul-time b200 128 4096 8192 -o b.json", capsys)
    code, out, _ = call("compare a.json b.json --json --fail-over 2%", capsys)
    result = json.loads(out)["result"]
    assert code == 1 and result["inputs_changed"] == {"m": [64, 128]}
    by_key = {c["key"]: c for c in result["changes"]}
    assert by_key["flop"]["change_frac"] == 1.0 and result["n_over"] > 2
    old, new = by_key["memory_s"]["old"], by_key["memory_s"]["new"]
    assert by_key["memory_s"]["change_frac"] == pytest.approx(new / old - 1)
    assert call("compare a.json b.json --fail-over 100%", capsys)[0] == 0
    assert call("compare a.json b.json --fail-over 1% --only kind", capsys)[0] == 0
    code, out, _ = call("compare a.json a.json --fail-over 0", capsys)
    assert code == 0 and "the results are equal" in out


def test_compare_names_the_inputs_that_changed(folder, capsys):
    call(f"{MATMUL} --explain -o a.json", capsys)
    call(f"{MATMUL} --explain -o b.json --set gpu.hbm_bytes_per_s='4 TB/s'", capsys)
    _, out, _ = call("compare a.json b.json --json", capsys)
    assert json.loads(out)["result"]["because"]["time_s"] == [["bytes_per_s", 8e12, 4e12]]
    _, out, _ = call("compare a.json b.json --only time_s", capsys)
    assert "bytes_per_s 8.000 TB/s -> 4.000 TB/s" in out


def test_compare_counts_what_came_and_went(folder, capsys):
    call(f"{MATMUL} -o a.json", capsys)
    answer = json.loads((folder / "a.json").read_text())
    del answer["result"]["flop"]
    (folder / "b.json").write_text(json.dumps(answer))
    assert call("compare a.json b.json --fail-over 50%", capsys)[0] == 1


def test_compare_refuses_what_is_no_answer(folder, capsys):
    call(f"{MATMUL} -o a.json", capsys)
    call("explain mfu -o b.json", capsys)
    (folder / "c.json").write_text('{"schema": 1}')
    (folder / "d.json").write_text("[" * 50_000)
    for other in ("b.json", "c.json", "d.json", "no.json"):
        code, out, err = call(f"compare a.json {other}", capsys)
        assert (code, out) == (2, "") and err.startswith("error: "), other


SCHEMAS = [name for name in COMMANDS if name not in ("schema", "check")]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_command_has_a_schema_of_its_envelope(name, capsys):
    code, out, _ = call(f"schema {name}", capsys)
    schema = json.loads(out)
    assert code == 0 and schema["properties"]["command"] == {"const": name}
    assert {"schema", "command", "inputs", "result", "warnings"} <= set(schema["required"])
    assert json.loads(call(f"schema {name} --json", capsys)[1])["result"] == schema


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "matmul-time h100 100 200 300",
        "matmul-time a100 1e6 --op scale",
        "collective reduce-scatter dgx-a100 --bytes 1MB",
        "network dgx-b200 --gpus 256",
        "memory gpt2 --cluster dgx-h100 --tp 1",
        "model llama3-8b",
        "explain busbw",
        "quiz",
        "roofline gpt2 --cluster dgx-h100",
        "presets show a100",
        "collective all-reduce dgx-h100 --sweep 1KiB:1GiB",
        "collective all-reduce dgx-h100 --bytes 1GB --explain --require 'time_s<=1s'",
        "collective all-gather dgx-h100 --gpus 16 --bytes 1GB --switch-bytes",
        "memory llama3-70b --tp 8 --pp 4 --stages --min-gpus",
        "memory --params 70e9 --tp 8",
        "memory --params 70e9 --serve --weights fp8",
        "memory llama3-8b --serve",
        "memory llama3-8b --method qlora",
        "memory llama3-8b --method grpo --gpus 8",
        "plan llama3-8b --method lora --gpus 8",
        "plan llama3-8b --method ppo --gpus 16",
        "serve llama3-405b --gpus 1 --rate 1/s",
        "checkpoint llama3-70b --gpus 1024",
        "model gpt2 --toml",
        "network gb200-nvl72 --gpus 1152",
        "network dgx1-v100 --gpus 64",
        "plan llama3-8b --gpus 16 --cluster gcp-a3-high",
        "plan llama3-8b --gpus 8..32 --tp 2",
        "plan llama3-8b --gpus 64 --deadline 300d --tp 1",
        "plan llama3-8b --gpus 16 --show-job",
        "plan llama3-405b --gpus 8",
        "roofline chip h100 --compare b200",
        "roofline tp h100 --ffn 28672 --tp 8",
        "roofline dp h100 --nodes 4",
        "timeline llama3-70b --gpus 64 --tp 8 --pp 4",
        "calibrate --template gemm",
        "explain",
        "presets h100",
        "quiz llm.quiz5.q2.3.tokens",
    ],
)
def test_answers_fit_their_schema(line, capsys):
    code, out, err = call(f"{line} --json", capsys)
    assert code in (0, 1), err
    _, schema, _ = call(f"schema {line.split()[0]}", capsys)
    assert problems(json.loads(out), json.loads(schema)) == []


@pytest.mark.parametrize(
    "line",
    [
        "memory llama3-70b --tp 8 --sweep pp=4,8",
        "memory llama3-70b --serve --sweep context=8k..64k --sweep gpus=1,4",
        "collective all-reduce dgx-h100 --bytes 1GB --sweep cluster=dgx-h100,nope",
        "matmul-time h100 1 4096 8192 --sweep m=16..256 --sweep-show bound",
        "plan llama3-8b --gpus 16 --sweep precision=bf16,fp8",
        "roofline llama3-8b --sweep batch-tokens=1M..4M",
    ],
)
def test_sweeps_fit_their_schema(line, capsys):
    code, out, err = call(f"{line} --json", capsys)
    assert code in (0, 1), err
    schema = json.loads(call("schema sweep", capsys)[1])
    assert problems(json.loads(out), schema) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_the_example_fits_the_schema(name, capsys):
    call(f"schema {name}", capsys)
    example = example_of(name)
    if not example:
        pytest.skip("the example reads a file")
    _, out, _ = call(f"{example} --json", capsys)
    _, schema, _ = call(f"schema {name}", capsys)
    assert problems(json.loads(out), json.loads(schema)) == []


def example_of(name):
    """Command line of the help's example, if it needs no file."""
    typer.main.get_command(app).get_command(None, name)
    line = question_of(name).EXAMPLE.split(">")[0].removeprefix("gpuscale ")
    return "" if re.search(r"\.(json|toml|csv|sh)\b|\|", line) else line


def test_problems_sees_what_does_not_fit():
    schema = json.loads(json.dumps(schema_of("timeline")))
    stages = schema["$defs"]["TimelineResult"]["properties"]["stages"]
    assert schema["$defs"]["TimelineResult"]["properties"]["step_s"]["description"] == "s"
    assert problems([], stages, schema) == []
    assert problems(3, stages, schema) == [": int, not array"]
    found = problems({"schema": 1, "command": "timeline", "result": {"step_s": "x"}}, schema)
    assert ".inputs: is missing" in found and ".result.step_s: str, not number" in found


def test_a_job_that_plan_prints_is_checked_from_a_pipe():
    job = invoke("plan", "llama3-8b", "--gpus", "8", "--tp", "2", "--show-job").stdout
    done = invoke("check", "-", "--json", stdin=job)
    assert done.returncode == 0
    assert json.loads(done.stdout)["result"]["jobs"][0]["verdict"] == "passed"
    tuned = invoke("plan", "llama3-8b", "--method", "lora", "--show-job")
    assert tuned.returncode == 2 and "[[job]]" in tuned.stderr
