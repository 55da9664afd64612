"""`gpuscale model`: what it prints, its TOML, and its errors."""

import json
from pathlib import Path

from running import invoke

DATA = Path(__file__).parent.parent / "data" / "hf_configs"


def run(*args, stdin=""):
    return invoke("model", *args, stdin=stdin)


def test_json_holds_the_counts_and_terms():
    done = run("deepseek-r1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)["result"]
    assert result["params"] == 671_026_419_200
    assert result["active_params"] == 37_552_297_472
    assert result["kv_bytes_per_token"] == 70_272
    assert [g["n_layers"] for g in result["groups"]] == [3, 58]


def test_text_names_the_parts():
    out = run("llama3-70b").stdout
    assert out.startswith("Llama 3 70B: 80 layers")
    for part in ("70.55B", "published 70.60B (-0.1 %)", "64 heads, 8 KV, 128 wide", "327.7 kB"):
        assert part in out


def test_toml_round_trip_through_standard_input():
    toml = run("nemotron-3-nano", "--toml").stdout
    again = run("-", "--toml", stdin=toml)
    assert (again.returncode, again.stdout) == (0, toml)


def test_what_if_changes_the_count():
    done = run("llama3-8b", "--set", "model.tie_embeddings=true", "--json")
    assert json.loads(done.stdout)["result"]["params"] == 8_030_261_248 - 128_256 * 4096
    assert "tie_embeddings" in run("llama3-8b", "--set", "model.tie_embeddings=true").stdout


def test_warnings_go_to_standard_error():
    path = str(DATA / "real" / "Qwen--Qwen3.5-35B-A3B.json")
    done = run(path)
    assert done.returncode == 0
    assert "warning: " in done.stderr and "vision tower of 447M" in done.stderr


def test_errors_are_one_line():
    for args, stdin, message in (
        (["lama3-70b"], "", "error: unknown model preset `lama3-70b`"),
        (["-"], "", "error: standard input: is empty"),
        (["/no/such/config.json"], "", "error: /no/such/config.json: no such file"),
        (["gpt2", "--seq-len", "0"], "", "error: --seq-len"),
        (["gpt2", "--kv-bytes", "nan"], "", "error: --kv-bytes"),
        (["-"], '{"model_type": "llama", "hidden_size": -3}', "error: standard input: "),
    ):
        done = run(*args, stdin=stdin)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert done.stderr.startswith(message), done.stderr
        assert "Traceback" not in done.stderr
