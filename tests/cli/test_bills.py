"""Money, energy and carbon of every answer with a duration or a rate: one room, same keys."""

import json

import pytest

from gpuscale.cli.app import run

LINES = {
    "plan": "plan llama3-8b --gpus 64 --tokens 100B --alternatives 0",
    "fine-tune": "plan llama3-8b --method lora --tokens 10M --gpu h100 --gpus 8",
    "serve": "serve llama3.1-8b --gpu h100 --gpus 1 --concurrency 8 --input 1k --output-len 100",
    "checkpoint": "checkpoint llama3-8b --gpus 64 --time 3d",
}


def bill(capsys, line):
    code = run([*line.split("|"), "--json"])
    out = capsys.readouterr()
    assert code == 0, out.err
    return json.loads(out.out)["result"]["bill"]


def asked(name, *more):
    return "|".join([*LINES[name].split(), *more])


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_price_site_and_own_mean_the_same_everywhere(capsys, name, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('node_usd = "310000 USD"\nusd_per_kwh = "0.1 USD/kWh"\nutilisation = "90%"\n')
    one = bill(capsys, asked(name, "--price", "2 USD/h"))
    assert one["rate"]["usd_per_gpu_hour"] == 2.0
    assert one["charge"]["usd"] == pytest.approx(2 * one["charge"]["gpu_hours"])
    france = bill(capsys, asked(name, "--price", "2 USD/h", "--site", "france", "--pue", "1.15"))
    ratio = france["charge"]["carbon_kg"] / one["charge"]["carbon_kg"]
    grids = france["site"]["grid_g_per_kwh"] / one["site"]["grid_g_per_kwh"]
    assert ratio == pytest.approx(grids)
    dear = bill(capsys, asked(name, "--pue", "2.3"))
    assert dear["charge"]["energy_j"] == pytest.approx(2 * one["charge"]["energy_j"])
    bought = bill(capsys, asked(name, "--own", str(own)))
    assert bought["rate"]["kind"] == "own" and bought["break_even_utilisation"] > 0
    offers = bill(capsys, asked(name))
    assert offers["rate"]["low_usd"] < offers["rate"]["usd_per_gpu_hour"]
    assert offers["rate"]["age_days"] == 393  # counted to the tests' day


@pytest.mark.parametrize("name", LINES)
def test_prices_without_a_unit_are_refused(capsys, name):
    code = run([*LINES[name].split(), "--price", "2.1"])
    out = capsys.readouterr()
    assert (code, out.out) == (2, "")
    assert "a price needs its unit" in out.err


def test_plan_of_a_token_budget_has_failures_and_money_that_fit_together(capsys):
    code = run([*LINES["plan"].split(), "--price", "2 USD/h", "--json"])
    r = json.loads(capsys.readouterr().out)["result"]
    assert code == 0
    assert r["run"]["time_s"] == pytest.approx(r["outlook"]["ideal_s"])
    assert r["run"]["expected_s"] == r["outlook"]["expected_s"] > r["run"]["time_s"]
    assert r["run"]["low_days"] < r["run"]["expected_days"] < r["run"]["high_days"]
    assert r["bill"]["charge"]["usd"] == pytest.approx(r["run"]["usd"])
    per_million = r["bill"]["charge"]["usd_per_million_tokens"]
    assert per_million == pytest.approx(r["run"]["usd"] / (r["run"]["tokens"] / 1e6))


def test_a_job_file_says_failures_and_site_too(capsys, tmp_path):
    job = tmp_path / "plan.toml"
    line = [*LINES["plan"].split(), "--price", "2 USD/h", "--site", "france", "--mtbf", "1h"]
    assert run([*line, "--spot", "--show-job"]) == 0
    job.write_text(capsys.readouterr().out)
    assert run([*line, "--spot", "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)["result"]
    assert run(["plan", "--job", str(job), "--alternatives", "0", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)["result"]
    assert read["bill"] == typed["bill"]
    assert read["outlook"] == typed["outlook"]
