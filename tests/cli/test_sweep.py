"""--sweep: the same command at every point, and nothing else."""

import csv
import io
import json
import shlex

import pytest
from json_schema import problems

from gpuscale.answers.ask import Swept
from gpuscale.answers.sweep import read_axis
from gpuscale.answers.table import COMMANDS, question_of
from gpuscale.cli.app import run

EGRESS = "cluster.node_egress_bytes_per_s"
COLLECTIVE = "collective all-reduce dgx-h100 --gpus 64 --bytes 1GB"


def call(line, capsys):
    code = run(shlex.split(line))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def points(line, capsys):
    code, out, _ = call(f"{line} --json", capsys)
    return code, json.loads(out)["result"]["points"]


def test_swept_questions_have_headlines():
    asked = [question_of(name) for name in COMMANDS]
    assert all(q.HEADLINES for q in asked if issubclass(q, Swept))


@pytest.mark.parametrize(
    ("line", "key", "texts", "path"),
    [
        (COLLECTIVE, EGRESS, ["100e9", "400 GB/s", "3.2TB/s"], ("expected", "time_s")),
        ("memory llama3-70b --tp 8", "pp", ["1", "4", "16"], ("peak_bytes",)),
        ("matmul-time h100 1 4096 8192", "m", ["16", "4096"], ("expected", "time_s")),
        ("network h100-superpod", "gpus", ["128", "1024"], ("collective_bytes_per_s",)),
        ("model llama3-8b", "model.n_layers", ["16", "32"], ("params",)),
        ("roofline llama3-70b --gpus 4096", "batch-tokens", ["4M", "8M"], ("tokens_per_gpu",)),
        ("plan llama3-8b --gpus 16", "precision", ["bf16", "fp8"], ("step_s",)),
    ],
)
def test_each_point_is_what_the_command_says_alone(line, key, texts, path, capsys):
    values = ",".join(texts)
    found = points(f"{line} --sweep '{key}={values}' --sweep-show {'.'.join(path)}", capsys)[1]
    for text, point in zip(texts, found, strict=True):
        if key == "m":
            alone = line.replace(" 1 ", f" {text} ")
        else:
            alone = f"{line} " + (f"--set '{key}={text}'" if "." in key else f"--{key} {text}")
        want = json.loads(call(f"{alone} --json", capsys)[1])["result"]
        for part in path:
            want = want[part]
        assert point["numbers"] == {".".join(path): want}


def test_two_keys_give_all_pairs_and_a_grid(capsys):
    line = "memory llama3-70b --sweep tp=2..8 --sweep pp=4,8 --sweep-show peak_bytes"
    code, found = points(line, capsys)
    assert code == 0 and len(found) == 6
    assert [p["values"] for p in found[:2]] == [{"tp": 2, "pp": 4}, {"tp": 2, "pp": 8}]
    assert {p["answer"] for p in found} == {"yes", "no"}
    rows = list(csv.DictReader(io.StringIO(call(f"{line} --format csv", capsys)[1])))
    assert [float(r["peak_bytes"]) for r in rows] == [p["numbers"]["peak_bytes"] for p in found]
    text = call(line, capsys)[1]
    assert "tp \\ pp           4           8" in text and "* the answer is no" in text


def test_range_is_geometric_and_ends_where_it_says():
    axis = read_axis(f"{EGRESS}=100GB/s..3.2TB/s", 7)
    assert axis.values[0] == 100e9 and axis.values[-1] == 3.2e12 and len(axis.values) == 7
    ratios = [b / a for a, b in zip(axis.values, axis.values[1:], strict=False)]
    assert ratios == pytest.approx([32 ** (1 / 6)] * 6, rel=1e-5)
    assert read_axis("x.y_s=1us..100us:3", 7).values == pytest.approx((1e-6, 1e-5, 1e-4))
    assert read_axis("gpus=1000..3000:3", 7).texts == ("1000", "1732", "3000")


def test_size_sweep_of_collective_is_as_before(capsys):
    code, out, _ = call("collective all-reduce dgx-h100 --sweep 1KiB:1MiB --json", capsys)
    assert code == 0 and json.loads(out)["command"] == "collective"


def test_a_point_without_an_answer_is_said_and_the_others_stay(capsys):
    code, out, _ = call(f"{COLLECTIVE} --sweep cluster=dgx-h100,nope", capsys)
    assert code == 0 and "unknown cluster or GPU `nope`" in out and "ms" in out


def test_both_spellings_of_an_option_can_be_swept(capsys):
    line = "plan llama3-8b --gpus 16 --alternatives 0 --sweep-show step_s --sweep"
    one, other = (points(f"{line} {key}=4096", capsys)[1] for key in ("seq", "seq-len"))
    assert one[0]["numbers"] == other[0]["numbers"]


def test_requirement_is_held_at_every_point(capsys):
    line = "memory llama3-70b --tp 8 --seq-len 4096 --sweep pp=4,8 --require 'peak_bytes<=40GB'"
    code, found = points(line, capsys)
    assert code == 0 and [p["answer"] for p in found] == ["no", "yes"]
    assert found[0]["note"].startswith("failed: peak_bytes<=40GB: have 58.5")
    assert call(line.replace("4,8", "2,4"), capsys)[0] == 1


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("--sweep a", "--sweep a: not KEY=VALUES"),
        ("--sweep =1", "not KEY=VALUES"),
        ("--sweep tp=1,,2", "an empty value"),
        ("--sweep tp=0..4", "the first must be above 0"),
        ("--sweep tp=8..4", "the first must be above 0 and below the second"),
        ("--sweep tp=1..nan", "give two numbers of one unit"),
        ("--sweep tp=1..1e300", "give two numbers of one unit"),
        ("--sweep tp=1..4GB", "give two numbers of one unit"),
        ("--sweep tp=1..4:1", "the number of points is 2 to 400"),
        ("--sweep tp=1..4:999999999999", "the number of points"),
        ("--sweep gpus=1..4000:30 --sweep seq=1..4000:30", "784 points; at most 400"),
        ("--sweep tp=1 --sweep tp=2", "--sweep tp: given twice"),
        ("--sweep tp=1 --sweep pp=2 --sweep cp=2", "at most two keys"),
        ("--sweep tpp=1,2", "unknown option in --sweep: `tpp`"),
        ("--sweep cluster.x=1,2", "unknown --set key `cluster.x`"),
        ("--sweep stages=1,2", "true or false is wanted, got `1`"),
        ("--sweep tp=1,2 --sweep-show nope", "unknown key in --sweep-show: `nope`"),
        ("--sweep-show fits", "--sweep-show needs --sweep"),
        ("--sweep tp=-1,nan,x", "--tp"),
        ("--sweep model.hidden_size=1,2 --set model.hidden_size=4096", "given twice"),
    ],
)
def test_sweep_that_cannot_be_made(sweep, message, capsys):
    code, out, err = call(f"memory llama3-70b {sweep}", capsys)
    assert (code, out) == (2, "") and err.startswith("error: ") and message in err


def test_input_from_a_pipe_is_refused(capsys):
    code, out, err = call("memory - --sweep tp=1,2", capsys)
    assert (code, out) == (2, "") and "give a file instead of `-`" in err


def test_pictures_put_numbers_of_one_name_together(tmp_path, capsys):
    line = f"{COLLECTIVE} --sweep {EGRESS}=100GB/s..400GB/s:3 -o {tmp_path}/a.svg"
    assert call(line, capsys)[0] == 0
    text = (tmp_path / "a.svg").read_text("utf-8")
    assert "expected time" in text and text.count("<polyline") == 2
    by_name = COLLECTIVE.replace("--gpus 64 ", "")
    call(f"{by_name} --sweep cluster=dgx-a100,dgx-b200 -o {tmp_path}/b.svg", capsys)
    assert "dgx-a100" in (tmp_path / "b.svg").read_text("utf-8")
    grid = f"memory llama3-70b --tp 8 --sweep pp=4,8 --sweep seq=4096,8192 -o {tmp_path}/c.svg"
    call(grid, capsys)
    assert "seq 8,192" in (tmp_path / "c.svg").read_text("utf-8")


def test_answers_fit_the_schema_of_sweeps(capsys):
    schema = json.loads(call("schema sweep", capsys)[1])
    line = "network h100-superpod --sweep gpus=128..1024 --sweep cluster.gpus_per_node=4,8 --json"
    assert problems(json.loads(call(line, capsys)[1]), schema) == []


def test_the_head_has_no_list_of_python(capsys):
    _, out, _ = call("plan llama3-8b --gpus 8 --sweep seq-len=4k,8k", capsys)
    assert out.splitlines()[1] == "model llama3-8b, gpus 8"
