"""`gpuscale calibrate` on files, and its overlay in other commands."""

import csv
import json
from pathlib import Path

import pytest

import gpuscale
from gpuscale.answers import calibrate as calibrate_module
from gpuscale.cli.app import run
from gpuscale.io.calibration import load_arch, load_calibration, load_link, site_factor

DATA = Path(gpuscale.__file__).parent / "data" / "validation"


def out(capsys, *args):
    code = run([str(a) for a in args])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def sample(tmp_path, name, keep, factor):
    """Rows of the shipped measurements with their times changed by a factor."""
    with (DATA / name).open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["time_us"] and keep(r)]
    for row in rows:
        row["time_us"] = str(float(row["time_us"]) * factor)
    path = tmp_path / name
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def is_h100_bf16(row):
    return row["gpu"] == "H100-SXM-80GB" and row["dtype"] == "bfloat16"


def expected_s(capsys, *args):
    code, text, err = out(capsys, "matmul-time", *args, "--json")
    assert code == 0, err
    return json.loads(text)["result"]["expected"]["time_s"]


def test_own_products_shift_the_expected_time(capsys, tmp_path):
    gemm = sample(tmp_path, "gemm.csv", is_h100_bf16, 1.3)
    saved = tmp_path / "mine.toml"
    code, text, err = out(capsys, "calibrate", "--gemm", gemm, "--save", saved, "--json")
    assert code == 0, err
    (fit,) = json.loads(text)["result"]["fits"]
    assert fit["name"] == "arch.hopper.matmul.bf16" and fit["n_rows"] == 172
    assert fit["error_before_frac"] > 0.15 and fit["error_after_frac"] < 0.05
    size = ("h100", 4096, 8192, 8192)
    ratio = expected_s(capsys, *size, "--calibration", saved) / expected_s(capsys, *size)
    assert 1.15 < ratio < 1.45
    fp8 = (*size, "--dtype", "fp8")
    assert expected_s(capsys, *fp8, "--calibration", saved) == expected_s(capsys, *fp8)


def test_own_collectives_shift_the_expected_time(capsys, tmp_path):
    def keep(row):
        return row["source"] == "dstack-2" or (
            row["gpu"] == "H100-SXM-80GB" and row["op"] == "all_gather" and row["n_gpus"] == "8"
        )

    path = sample(tmp_path, "collectives.csv", keep, 1.5)
    saved = tmp_path / "mine.toml"
    assert out(capsys, "calibrate", "--collectives", path, "--save", saved)[0] == 0

    def time_s(op, n, *more):
        args = ("collective", op, "dgx-h100", "--bytes", "64MiB", "--gpus", n, "--json", *more)
        code, text, err = out(capsys, *args)
        assert code == 0, err
        return json.loads(text)["result"]["expected"]["time_s"]

    for op, n in (("all-gather", 8), ("all-reduce", 16)):
        assert 1.2 < time_s(op, n, "--calibration", saved) / time_s(op, n) < 1.7
    assert load_link("nvlink4", str(saved)).op("ring").source.startswith("own measurements")


def planned(capsys, layout, *more):
    args = ("plan", "llama3-8b", "--gpus", 64, *layout, "--json", *more)
    code, text, err = out(capsys, *args)
    assert code == 0, err
    return json.loads(text)["result"]["step"]["expected"]


def test_own_products_change_the_plan(capsys, tmp_path):
    gemm = sample(tmp_path, "gemm.csv", is_h100_bf16, 1.3)
    saved = tmp_path / "mine.toml"
    assert out(capsys, "calibrate", "--gemm", gemm, "--save", saved)[0] == 0
    layout = ("--tp", 1, "--pp", 1, "--cp", 1, "--recompute", "none")
    before, after = planned(capsys, layout), planned(capsys, layout, "--calibration", saved)
    assert 1.15 < after["matmul_s"] / before["matmul_s"] < 1.45
    assert after["total_s"] > 1.05 * before["total_s"]


def test_own_collectives_change_the_plan(capsys, tmp_path):
    def keep(row):
        return row["gpu"] == "H100-SXM-80GB" and row["op"] in ("all_gather", "reduce_scatter")

    path = sample(tmp_path, "collectives.csv", keep, 2.0)
    saved = tmp_path / "mine.toml"
    assert out(capsys, "calibrate", "--collectives", path, "--save", saved)[0] == 0
    layout = ("--tp", 8, "--pp", 1, "--cp", 1, "--sequence-parallel", "on")
    before, after = planned(capsys, layout), planned(capsys, layout, "--calibration", saved)
    assert after["tp_comm_s"] > 1.3 * before["tp_comm_s"]


def test_overlays_accumulate(capsys, tmp_path):
    gemm = sample(tmp_path, "gemm.csv", is_h100_bf16, 1.0)
    first, second = tmp_path / "one.toml", tmp_path / "two.toml"
    first.write_text("[site]\nstep_time_factor = 1.1\n")
    args = ("calibrate", "--gemm", gemm, "--calibration", first, "--save", second)
    assert out(capsys, *args)[0] == 0
    assert site_factor(str(second)) == 1.1
    assert "hopper" in load_calibration(str(second))["arch"]


@pytest.mark.parametrize("kind", sorted(calibrate_module.TEMPLATES))
def test_templates_can_be_given_back(capsys, tmp_path, kind):
    path = tmp_path / "own.csv"
    code, text, _ = out(capsys, "calibrate", "--template", kind)
    assert code == 0
    path.write_text(text)
    option = [] if kind == "runs" else [f"--{kind}"]
    code, text, err = out(capsys, "calibrate", *option, path, "--json")
    assert code == 0, err
    assert json.loads(text)["result"]["fits"][0]["n_rows"] == 1


def test_bad_input_is_refused_in_one_line(capsys, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("m,n,k,dtype,gpu,time_us\nx,8,8,bf16,h100,5\n")
    for args, said in (
        ((), "nothing to calibrate from"),
        (("--gemm", bad), "no row can be used: m, n or k is missing or below 1"),
        (("--gemm", tmp_path / "none.csv"), "none.csv"),
        (("--template", "gem"), "unknown template `gem`"),
    ):
        code, text, err = out(capsys, "calibrate", *args)
        assert (code, text) == (2, "") and said in err.split("\n")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[arch.hopper.matmul.bf16]\ncompute_eff_frac = 7\n", "compute_eff_frac"),
        ("[arch.hopper.matmul.bf16]\nspeed = 7\n", "speed"),
        ("[archs.hopper]\nx = 1\n", "unknown key `archs`"),
        ("arch = 3\n", "must be a table"),
        ("[arch.hopper.matmul.bf16]\ncompute_eff_frac = nan\n", "compute_eff_frac"),
    ],
)
def test_bad_overlay_is_refused(capsys, tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    code, shown, err = out(capsys, "matmul-time", "h100", 8, 8, 8, "--calibration", path)
    assert (code, shown) == (2, "")
    assert err.startswith("error: ") and said in err.split("\n")[0]


def test_table_of_a_wrong_size_is_refused(capsys, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('[arch.hopper.matmul.bf16.table]\nvalues = "1 2 x"\n')
    code, shown, err = out(capsys, "matmul-time", "h100", 8, 8, 8, "--calibration", path)
    assert (code, shown) == (2, "") and "values" in err


def test_without_overlay_nothing_changes():
    assert load_arch("hopper", None) is load_arch("hopper")
    assert site_factor(None) == 1.0


def write_steps(tmp_path, factor):
    """A CSV of one step that takes `factor` times the expected time."""
    from gpuscale.evidence.score_runs import predict_run_rows

    header, row = calibrate_module.TEMPLATES["runs"].split("\n")
    path = tmp_path / "steps.csv"
    path.write_text(f"{header}\n{row}\n")
    (scored,) = predict_run_rows(path)
    own = row.rsplit(",", 1)[0]
    path.write_text(f"{header}\n{own},{scored.predicted * factor!r}\n")
    return path


def test_own_steps_give_one_factor_that_plan_and_validate_take(capsys, tmp_path):
    steps, saved = write_steps(tmp_path, 1.25), tmp_path / "site.toml"
    assert out(capsys, "calibrate", steps, "--save", saved)[0] == 0
    assert site_factor(str(saved)) == pytest.approx(1.25, rel=1e-3)

    def planned(*more):
        code, text, err = out(capsys, "plan", "llama3-8b", "--gpus", "16", "--json", *more)
        assert code == 0, err
        return json.loads(text)["result"]

    before, after = planned(), planned("--calibration", saved)
    # the factor is over the tuned job that `calibrate` predicts: a maturity is no more on top of it
    assert after["step_s"] == pytest.approx(before["tuned"]["step_s"] * 1.25, rel=1e-3)
    assert (before["maturity"], after["maturity"]) == ("unsaid", "measured")
    assert after["tuned"] is None is after["as_it_comes"]
    text = out(capsys, "plan", "llama3-8b", "--gpus", "16", "--calibration", saved)[1]
    assert "by the site's measured factor" in text.splitlines()[0]
    assert after["roofline_s"] == before["roofline_s"] and after["layout"] == before["layout"]

    rows = tmp_path / "rows.csv"
    args = ("validate", "--runs", steps, "--calibration", saved, "--rows", rows)
    assert out(capsys, *args)[0] == 0
    with rows.open(newline="") as file:
        assert float(next(csv.DictReader(file))["ratio"]) == pytest.approx(1.0, rel=1e-3)


def test_steps_far_from_the_model_are_refused(capsys, tmp_path):
    code, text, err = out(capsys, "calibrate", write_steps(tmp_path, 40.0))
    assert (code, text) == (2, "") and "measured steps take 40 times" in err
