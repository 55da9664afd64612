"""`gpuscale validate`: the page, the rows file, bad input."""

from __future__ import annotations

import csv
import gzip
import json

import pytest
from running import invoke

from gpuscale.evidence.score_runs import own_copy


def run(*args):
    return invoke("validate", *args)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name in ("training_runs", "layouts"):
        lines = gzip.decompress(own_copy(name).read_bytes()).decode().splitlines()[:40]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "inference.csv").write_text(
        "model,gpu,n_gpus,ttft_ms,tpot_ms,throughput_tok_s\nm,H100,8,10,,2000\n"
    )
    return folder


@pytest.mark.parametrize(
    ("option", "file", "quantity"),
    [("--runs", "training_runs", "step_time_s"), ("--layouts", "layouts", "tokens_per_s_per_gpu")],
)
def test_rows_file_has_one_line_per_row_in_order(files, tmp_path, option, file, quantity):
    out = tmp_path / "rows.csv"
    done = run(option, str(files / f"{file}.csv"), "--rows", str(out), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(out.open()))
    given = list(csv.DictReader((files / f"{file}.csv").open()))
    assert len(rows) == len(given) == 39
    assert list(rows[0]) == [
        "id",
        "gpu",
        "quantity",
        "measured",
        "predicted",
        "ratio",
        "reason",
        "measured_memory_bytes",
        "predicted_memory_bytes",
    ]
    assert [row["id"] for row in rows] == [
        row.get("id") or f"{row['group']}-{i}" for i, row in enumerate(given, 1)
    ]
    assert {row["quantity"] for row in rows} == {quantity}
    for row in rows:
        if row["ratio"]:
            ratio = float(row["predicted"]) / float(row["measured"])
            assert float(row["ratio"]) == pytest.approx(ratio, rel=1e-6)
    sections = json.loads(done.stdout)["result"]["sections"]
    assert len(sections) == 1
    assert 0.0 < sections[0]["total"]["mape_frac"]


def test_inference_rows_are_counted_with_the_reason(files, tmp_path):
    out = tmp_path / "rows.csv"
    done = run("--inference", str(files / "inference.csv"), "--rows", str(out))
    assert done.returncode == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["quantity"] for row in rows] == ["ttft_ms", "throughput_tok_s"]
    assert all(row["predicted"] or row["reason"] for row in rows)


@pytest.mark.parametrize(
    "args",
    [
        ("--runs", "no-such-file.csv"),
        ("--rows", "out.csv"),
        ("--layouts", "/dev/null"),
        ("--runs", "/"),
    ],
)
def test_bad_input_is_one_line(args):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
