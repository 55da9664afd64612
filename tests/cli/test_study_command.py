"""`gpuscale study`: grids and lists, going on after a stop, ranking, refusals; pickled answers."""

import csv
import json
import pickle

import pytest

import gpuscale
from gpuscale.answers import study_run
from gpuscale.answers.study import Study
from gpuscale.answers.study_jobs import answer_job, read_study
from gpuscale.cli.app import run

GRID = """
question = "network"
rank = "n_switches"
show = ["n_switches", "n_cables"]

[common]
cluster = "dgx-h100"

[grid]
gpus = [256, 512, 1024]
topology = ["fat-tree", "rail-only"]
"""


def call(capsys, line):
    code = run(line)
    out = capsys.readouterr()
    return code, out.out, out.err


def written(tmp_path, text=GRID):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


def rows(path):
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_grid_is_answered_ranked_and_written(capsys, tmp_path):
    out = tmp_path / "s.csv"
    line = ["study", str(written(tmp_path)), "--out", str(out), "--jobs", "1", "--json"]
    code, text, err = call(capsys, line)
    assert (code, err) == (0, "")
    r = json.loads(text)["result"]
    assert (r["n_jobs"], r["n_answered"], r["n_errors"], r["n_kept"]) == (6, 6, 0, 0)
    found = rows(out)
    assert len(found) == 6
    assert r["best"][0]["n_switches"] == min(int(x["n_switches"]) for x in found) == 8
    one = answer_job("network", {"cluster": "dgx-h100", "gpus": 512, "topology": "rail-only"}, ())
    assert one["n_switches"] == 8


def test_it_goes_on_where_it_was_stopped(capsys, tmp_path, monkeypatch):
    """Stopped after two answers and while writing a third: nothing is lost or doubled."""
    out, path = tmp_path / "s.csv", written(tmp_path)
    real, asked = study_run.answer_job, []

    def stops(question, fields, show):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(fields)
        return real(question, fields, show)

    line = ["study", str(path), "--out", str(out), "--jobs", "1"]
    monkeypatch.setattr(study_run, "answer_job", stops)
    code, _, err = call(capsys, line)
    assert code == 130 and "goes on where it was" in err
    assert len(rows(out)) == 2
    with out.open("a") as file:
        file.write("0123456789abcdef,256,fat")
    monkeypatch.setattr(study_run, "answer_job", real)
    code, text, _ = call(capsys, [*line, "--json"])
    assert code == 0
    assert json.loads(text)["result"]["n_kept"] == 2
    found = rows(out)
    assert len(found) == len({x["key"] for x in found}) == 6


def test_pool_gives_what_one_process_gives(tmp_path):
    path = written(tmp_path)
    one = Study(str(path), jobs=1, out=str(tmp_path / "a.csv")).answer().result
    two = Study(str(path), jobs=2, out=str(tmp_path / "b.csv")).answer().result
    assert one.best == two.best
    first, second = rows(tmp_path / "a.csv"), rows(tmp_path / "b.csv")
    assert sorted(map(str, first)) == sorted(map(str, second))


def test_list_of_jobs_with_an_error_and_a_no(capsys, tmp_path):
    text = """
    question = "memory"
    show = ["peak_bytes"]
    rank = "-peak_bytes"
    [common]
    cluster = "dgx-h100"
    [[job]]
    model = "llama3-8b"
    tp = 8
    [[job]]
    model = "llama3-70b"
    tp = 1
    [[job]]
    model = "nosuch-8b"
    """
    out = tmp_path / "m.csv"
    path = written(tmp_path, text)
    code, _, err = call(capsys, ["study", str(path), "--out", str(out), "--jobs", "1"])
    assert code == 0 and "1 jobs have no answer" in err
    assert [x["answer"] for x in rows(out)] == ["yes", "no", "error"]
    assert "unknown model" in rows(out)[2]["note"]


def test_a_time_of_a_study_needs_its_unit():
    found = answer_job("plan", {"model": "llama3-8b", "gpus": 64, "deadline": 30}, ())
    assert found == {"answer": "error", "note": "--deadline 30: a time needs its unit"}


def test_plans_of_a_study(tmp_path):
    text = """
    rank = "run.usd"
    show = ["step_s", "run.usd", "run.expected_days", "bill.charge.energy_j"]
    [common]
    gpus = 64
    tokens = "100B"
    tp = "2"
    pp = "1"
    micro_batch = "1"
    recompute = "none"
    alternatives = 0
    price = "2 USD/h"
    [grid]
    model = ["llama3-8b"]
    global_batch = [256, 512]
    """
    found = Study(str(written(tmp_path, text)), jobs=1, out=str(tmp_path / "p.csv")).answer()
    assert found.result.n_answered == 2
    for row in found.result.best:
        assert row["run.usd"] == pytest.approx(2 * 64 * row["run.expected_days"] * 24)


def test_same_job_has_one_key(tmp_path):
    one = read_study(str(written(tmp_path, GRID))).jobs
    swapped = GRID.replace('["fat-tree", "rail-only"]', '["rail-only", "fat-tree"]')
    two = read_study(str(written(tmp_path, swapped))).jobs
    assert {j.key for j in one} == {j.key for j in two}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("question = 'nosuch'\n", "unknown question"),
        ("question = 'study'\n", "unknown question"),
        ("x = 1\n", "unknown key `x`"),
        ("[grid]\nmodel = 'llama3-8b'\n", "a list of values is wanted"),
        ("[grid]\nmodl = ['llama3-8b']\n", "unknown option"),
        ("[common]\ngpus = 8\n", "no job"),
        ("[grid]\nmodel = []\n", "a list of values is wanted"),
    ],
)
def test_bad_studies(capsys, tmp_path, text, words):
    code, out, err = call(capsys, ["study", str(written(tmp_path, text))])
    assert (code, out) == (2, "") and words in err


def test_other_study_in_the_file_is_not_mixed(capsys, tmp_path):
    out = tmp_path / "s.csv"
    out.write_text("key,model\nabc,x\n")
    code, _, err = call(capsys, ["study", str(written(tmp_path)), "--out", str(out)])
    assert code == 2 and "holds another study" in err
    code, _, err = call(capsys, ["study", str(written(tmp_path)), "--out", "x.txt"])
    assert code == 2 and ".csv" in err
    for other in ("a line without an end", "key,other\nhalf"):  # nothing of it is lost
        out.write_text(other)
        assert call(capsys, ["study", str(written(tmp_path)), "--out", str(out)])[0] == 2
        assert out.read_text() == other


@pytest.mark.parametrize(
    "make",
    [
        lambda: gpuscale.network("superpod-h100-1su"),
        lambda: gpuscale.checkpoint("llama3-8b", gpus=64),
        lambda: gpuscale.plan("llama3-8b", gpus=8, alternatives=0),
    ],
)
def test_answers_can_be_pickled(make):
    answer = make()
    again = pickle.loads(pickle.dumps(answer))
    assert again.json() == answer.json()
    assert str(again) == str(answer)
    assert again.csv() == answer.csv()


def test_a_requirement_is_held_against_the_best_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(GRID)
    for key in ("n_switches", "best.n_switches", "best.1.n_switches"):
        assert run(["study", "a.toml", "--jobs", "1", "--require", f"{key}>=1"]) == 0
        assert run(["study", "a.toml", "--jobs", "1", "--require", f"{key}<1"]) == 1


def test_a_requirement_is_not_met_where_no_job_is_answered_yes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(
        'question = "memory"\ncommon = {gpu = "h100", model = "llama3-70b"}\ngrid = {gpus = [8]}\n'
    )
    assert run(["study", "a.toml", "--require", "peak_bytes<=1TB"]) == 1
    assert "have nothing" in capsys.readouterr().err
    assert run(["study", "a.toml", "--fresh", "--out", "b.csv", "--require", "nosuch<=1"]) == 2
    assert not (tmp_path / "b.csv").exists()
