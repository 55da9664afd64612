"""`gpuscale quiz` as a person sees it: code, stdout and stderr."""

import csv
import io
import json
import resource

import pytest
from running import invoke

from gpuscale.textbook import evaluate as quiz_module


def run(*args):
    return invoke("quiz", *args)


def result(*args):
    done = run(*args, "--json")
    assert done.returncode == 0, done.stderr
    envelope = json.loads(done.stdout)
    assert envelope["command"] == "quiz" and envelope["inputs"]["catalogue"] == "documents"
    return envelope["result"]


def test_json_reports_all_460():
    found = result()
    assert (found["total"], found["matched"]) == (460, 460)
    assert (found["wrong_in_document"], found["ambiguous"]) == (43, 34)
    assert all(a["matched"] for a in found["answers"])
    first = found["answers"][0]
    assert first["id"] == "gpu.cmp.sm_h100" and first["exact"] == 132 and first["unit"] == "1"


def test_whole_process_takes_less_than_half_a_second_of_cpu():
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--json").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used) < 0.5, used


def test_the_loading_of_questions_is_cheap():
    from timeit import timeit

    seconds = min(timeit(quiz_module.load_questions, number=1) for _ in range(5))
    assert seconds < 0.05


def test_filters():
    assert result("--only", "wrong")["total"] == 43
    assert {a["document"] for a in result("--document", "004")["answers"]} == {"004"}
    assert result("gantt")["answers"][0]["id"] == "pp.bubble.gantt"
    both = result("--document", "002", "--only", "ambiguous", "link")
    assert both["total"] == both["ambiguous"] == 9


def test_text_is_grouped_and_says_wrong_in_words():
    done = run("--document", "002")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "Document 002: Multi-GPU Q&A"
    assert lines[1].startswith("Questions and answers")
    assert "002  ZeRO optimisation" in lines
    gantt = next(line for line in lines if line.startswith("pp.bubble.gantt"))
    assert gantt.split()[-5:] == ["10", "slots", "12", "slots", "WRONG"]
    assert any("document 002 prints 10 slots: The chart ends at 10" in line for line in lines)
    assert "computed answers match" in done.stdout


def test_one_answer_is_explained():
    done = run("llm.quiz5.q1.flops_ratio")
    assert done.returncode == 0
    for text in ("2.27273", "2.25", "gpu('b200').bf16_flop_per_s", "2.25e+15", "rounded"):
        assert text in done.stdout
    found = result("ring.13b.nvlink")
    assert found["verdict"] == "wrong" and found["exact"] == pytest.approx(0.15166667)
    assert found["steps"][-1]["call"] == "collective_time_s('all-reduce', 2.6e+10, 8, 3e+11)"


def test_binary_prefixes_are_named():
    assert "33 MiB" in run("gpu.quiz1.q5.smem").stdout


def test_csv_and_markdown():
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv").stdout)))
    assert len(rows) == 460 and rows[0]["exact"] == "132"
    assert "| pp.bubble.gantt |" in run("gantt", "--format", "markdown").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing", "here"], "unknown question `nothing here`"),
        (["--only", "bad"], "unknown verdict `bad`"),
        (["--document", "5"], "unknown document `5`"),
        (["--set", "gpu.hbm_bytes=1"], "no such option: --set"),
        (["gpu.quiz1.q3.h100", "--only", "wrong"], "unknown question"),
    ],
)
def test_bad_input_is_one_line(args, message):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and message in done.stderr.splitlines()[0]


@pytest.mark.parametrize("args", [["quiz"], ["quiz", "gpu.cmp.sm_h100"]])
def test_a_mismatch_is_exit_code_1(monkeypatch, capsys, args):
    from gpuscale.cli.app import run as run_in_process

    reference = quiz_module.load_reference()
    reference["gpu.cmp.sm_h100"] = (133, 0)
    monkeypatch.setattr(quiz_module, "load_reference", lambda: reference)
    assert run_in_process(args) == 1
    out = capsys.readouterr().out
    assert "133" in out and ("NOT MATCHED" in out or "NO" in out)


def test_an_answer_that_cannot_be_computed_is_a_mismatch(monkeypatch, capsys):
    from gpuscale.cli.app import run as run_in_process
    from gpuscale.textbook import evaluate
    from gpuscale.textbook import formulas as catalogue

    bare = catalogue.gpu("h100").model_copy(update={"hbm_bytes_per_s": None})
    evaluate.resolve.cache_clear()
    monkeypatch.setattr(catalogue, "gpu", lambda name: bare)
    try:
        assert run_in_process(["quiz", "--document", "000"]) == 1
        assert "not computed" in capsys.readouterr().out
        assert run_in_process(["quiz", "gpu.quiz1.q3.h100"]) == 2
        assert "cannot be computed" in capsys.readouterr().err
    finally:
        evaluate.resolve.cache_clear()
