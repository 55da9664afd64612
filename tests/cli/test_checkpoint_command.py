"""`gpuscale checkpoint` against published checkpoints and interruptions, and its refusals."""

import json

import pytest

from gpuscale.cli.app import run
from gpuscale.core.words import gb


def call(capsys, line):
    code = run(line.split() if isinstance(line, str) else line)
    out = capsys.readouterr()
    return code, out.out, out.err


def result(capsys, line):
    code, out, _ = call(capsys, f"{line} --json")
    assert code == 0
    return json.loads(out)["result"]


def test_llama3_run(capsys):
    """54 days on 16,384 H100: 419 unexpected, 466 interruptions in all; above 90 % effective."""
    r = result(capsys, "checkpoint llama3.1-405b --gpus 16384 --time 54d")
    assert r["n_interruptions_by_clock"] == pytest.approx(466, rel=0.01)
    assert r["outlook"]["goodput"]["goodput_frac"] > 0.90
    days = [r["outlook"][k] / 86400 for k in ("low_s", "expected_s", "high_s")]
    assert days == pytest.approx([56.3, 59.6, 90.0], abs=0.6)
    assert r["checkpoint_bytes"] == pytest.approx(5.67e12, rel=0.01)


def test_bloom(capsys):
    """2.3 T (binary), 40 s a save, every 3 h: 0.37 % of the time."""
    line = "checkpoint bloom-176b --gpus 384 --gpu a100 --store 57.5GB/s --interval 3h --saver sync"
    r = result(capsys, line)
    assert r["checkpoint_bytes"] / 2**40 == pytest.approx(2.3, rel=0.03)
    assert r["save"]["write_s"] == pytest.approx(40, rel=0.25)
    assert r["saving_frac"] == pytest.approx(0.0037, rel=0.25)
    assert r["young_s"] < 3 * 3600


def test_deepspeed_checkpoint_of_8b(capsys):
    r = result(capsys, "checkpoint llama3.1-8b")
    assert r["checkpoint_bytes"] == pytest.approx(112.7e9, rel=0.01)
    assert r["bytes_per_param"] == 14


def test_adapters_and_weights_alone(capsys):
    adapter = result(capsys, "checkpoint llama3-8b --trainable 42M")
    assert adapter["checkpoint_bytes"] == pytest.approx(42e6 * 14)
    bare = result(capsys, "checkpoint --params 7e9 --weights-only")
    assert bare["checkpoint_bytes"] == 14e9


def test_faster_store_and_hot_restart_help(capsys):
    base = "checkpoint llama3.1-70b --gpus 4096 --saver sync"
    slow, fast = result(capsys, base), result(capsys, f"{base} --store 5TB/s")
    assert fast["save"]["write_s"] < slow["save"]["write_s"]
    assert fast["lost_frac"] < slow["lost_frac"]
    assert result(capsys, f"{base} --recovery hot")["lost_frac"] < slow["lost_frac"]


def test_text_says_what_the_json_says(capsys):
    line = "checkpoint llama3.1-8b --gpus 64 --price 2USD/h --site france"
    r = result(capsys, line)
    code, out, err = call(capsys, line)
    assert (code, err) == (0, "")
    assert gb(r["checkpoint_bytes"]) in out
    assert f"{r['bill']['site']['grid_g_per_kwh']:.4g} g/kWh" in out
    assert r["bill"]["charge"]["usd"] == pytest.approx(2 * 64 * r["outlook"]["expected_s"] / 3600)


OWN = """
node_usd = "310000 USD"
network_usd = "4 MUSD"
life_years = 4
interest = "8%"
utilisation = "80%"
usd_per_kwh = "0.08 USD/kWh"
pue = 1.3
"""


def test_owned_cluster_and_break_even(capsys, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    r = result(capsys, f"checkpoint llama3-8b --gpus 1024 --own {path}")["bill"]
    assert r["rate"]["kind"] == "own" and r["rent"]["kind"] == "on-demand"
    parts = [v for k, v in r["own"].items() if not k.startswith("total")]
    assert sum(parts) == pytest.approx(r["own"]["total_usd_per_gpu_hour"])
    full = r["own"]["total_usd_per_gpu_hour"] * 0.8
    assert r["break_even_utilisation"] == pytest.approx(full / r["rent"]["usd_per_gpu_hour"])


def test_spot_is_cheaper_and_stops_more(capsys):
    base = "checkpoint llama3-8b --gpus 64"
    rent, spot = result(capsys, base), result(capsys, f"{base} --spot --preemptions 6")
    assert spot["bill"]["rate"]["kind"] == "spot"
    assert spot["n_interruptions"] > rent["n_interruptions"]
    assert spot["bill"]["charge"]["usd"] < rent["bill"]["charge"]["usd"]


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("checkpoint", "error: give a model or --params"),
        ("checkpoint llama3-8b --params 8e9", "error: give a model or --params"),
        ("checkpoint llama3-8b --mtbf -3h", "error: --mtbf must be above 0"),
        ("checkpoint llama3-8b --mtbf 0", "error: --mtbf must be above 0"),
        ("checkpoint llama3-8b --gpus 16384 --mtbf 1s", "error: with a stop every 1 s"),
        ("checkpoint llama3-8b --mtbf 3h --failure-rate 2", "error: give --mtbf or"),
        ("checkpoint llama3-8b --store 0", "error: --store must be above 0"),
        ("checkpoint llama3-8b --saver magic", "error: unknown way to save `magic`"),
        ("checkpoint llama3-8b --recovery x", "error: unknown way to recover `x`"),
        ("checkpoint llama3-8b --recipe x", "error: unknown recipe `x`"),
        ("checkpoint llama3-8b --price 2", "error: --price 2: a price needs its unit"),
        ("checkpoint llama3-8b --trainable 9e9", "error: --trainable"),
        ("checkpoint llama3-8b --gpu b300 --spot", "error: no spot offer of b300-sxm"),
        ("checkpoint llama3-8b --own nothere.toml", "error: nothere.toml: no such file"),
    ],
)
def test_bad_input(capsys, line, start):
    code, out, err = call(capsys, line)
    assert (code, out) == (2, "")
    assert err.startswith(start), err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node_usd = 310000\n", "a price needs its unit"),
        ("node_usd = '310000'\n", "a price needs its unit"),
        ("utilisation = '120%'\nnode_usd = '1 USD'\n", "utilisation"),
        ("pue = 0.9\n", "pue"),
        ("life_years = -1\n", "life_years"),
        ("node_price = '1 USD'\n", "node_price"),
    ],
)
def test_bad_prices_of_an_owned_cluster(capsys, tmp_path, text, words):
    path = tmp_path / "own.toml"
    path.write_text(text)
    code, out, err = call(capsys, f"checkpoint llama3-8b --own {path}")
    assert (code, out) == (2, "") and words in err


def test_frameworks_save_the_states_that_they_keep(capsys):
    """FSDP2 keeps fp32 weights and moments (torchtitan issue 1301: 8.03B parameters); DeepSpeed
    a 16-bit copy beside (DeepSpeed issue 6598: 105 GiB)."""
    n = 8_030_261_248
    for software, each in (("torchtitan", 12), ("accelerate", 12), ("deepspeed", 14)):
        saved = result(capsys, f"checkpoint llama3-8b --software {software}")
        assert saved["checkpoint_bytes"] == pytest.approx(each * n, rel=1e-3)
    weights = result(capsys, "checkpoint llama3-8b --software hf-fsdp --weights-only")
    assert weights["checkpoint_bytes"] == pytest.approx(4 * n, rel=1e-3)
