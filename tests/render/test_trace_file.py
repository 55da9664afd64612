"""The trace file keeps the rules of the Trace Event Format, and says the step."""

import json
import shlex

import pytest

from gpuscale.cli.app import run

JOBS = [
    "llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 32",
    "llama3-70b --gpus 64 --tp 8 --pp 4 --vpp 5 --global-batch 32",
    "llama3-70b --gpus 64 --tp 4 --pp 8 --schedule zb-h1 --software any --global-batch 32",
    "llama3-70b --gpus 64 --tp 4 --pp 8 --schedule dualpipe --software any --global-batch 32",
    "llama3-8b --gpus 8 --zero 3 --software fsdp --global-batch 16",
]


@pytest.fixture(params=JOBS)
def traced(request, tmp_path, capsys):
    path = tmp_path / "step.trace.json"
    code = run(["timeline", *shlex.split(request.param), "--json", "-o", str(path)])
    answer = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    return json.loads(path.read_text("utf-8")), answer["result"]


def test_events_have_the_fields_of_the_format(traced):
    trace, result = traced
    assert trace["displayTimeUnit"] == "ms"
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    for event in trace["traceEvents"]:
        assert event["ph"] in "XCM" and isinstance(event["pid"], int)
        assert isinstance(event["name"], str) and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0 and (event["pid"], event["tid"]) in named
        if event["ph"] == "C":
            assert all(isinstance(v, float) for v in event["args"].values())
    assert len(result["stages"]) == len({e["pid"] for e in trace["traceEvents"]})


def test_length_order_and_peak(traced):
    trace, result = traced
    length_us = 1e6 * result["step_s"]
    tracks = {}
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for (_, thread), spans in tracks.items():
        spans.sort()
        for before, after in zip(spans, spans[1:], strict=False):
            assert before[1] <= after[0] + 0.002  # nanoseconds as written
        if thread == 0:
            assert spans[0][0] == 0 and spans[-1][1] == pytest.approx(length_us, abs=0.01)
    for stage in result["stages"]:
        held = [
            e["args"]["GB"]
            for e in trace["traceEvents"]
            if e["ph"] == "C" and e["pid"] == stage["device"]
        ]
        assert max(held) == pytest.approx(stage["peak_bytes"] / 1e9)
    assert trace["otherData"]["step_s"] == result["step_s"]
    assert trace["otherData"]["command"].startswith("gpuscale timeline ")


def test_bubbles_and_transfers_are_visible(traced):
    trace, result = traced
    kinds = {e.get("cat") for e in trace["traceEvents"]}
    assert {"forward", "backward", "weights", "optimizer"} <= kinds
    if len(result["stages"]) > 1:
        assert {"bubble", "send", "receive", "tp"} <= kinds
        sent = sum(e.get("cat") == "send" for e in trace["traceEvents"])
        assert sent == sum(e.get("cat") == "receive" for e in trace["traceEvents"])


def test_an_answer_without_a_step_has_no_trace(tmp_path, capsys):
    code = run(["model", "gpt2", "-o", str(tmp_path / "x.trace.json")])
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "") and "has no timeline" in shown.err
    assert not list(tmp_path.iterdir())
