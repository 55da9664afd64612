"""`gpuscale serve --with`: several models on one pool of GPUs."""

from __future__ import annotations

import json

import pytest
from running import invoke

LARGE = ("llama3.3-70b", "--rate", "2/s", "--ttft", "p95:1s", "--tpot", "p95:50ms")
CHAT = ("--with", "qwen2.5-7b rate=20/s input=512 output=128")
EMBED = ("--with", "qwen3-0.6b rate=50/s input=512 only=embed")
TWO = ("--gpu", "l40s", "--rate", "1/s", "--with", "qwen3-4b rate=1/s input=lognormal:500,0.7")


def answer(*args, code=0):
    done = invoke("serve", *args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)["result"]


@pytest.mark.slow
def test_each_model_has_the_fewest_gpus_that_serve_it():
    r = answer(*LARGE, "--gpus", "8", *CHAT, *EMBED)
    assert r["meets"]
    assert r["n_gpus"] == r["n_gpus_apart"] <= 8
    used = [gpu for m in r["models"] for gpu in m["gpus"]]
    assert len(used) == len(set(used)) == r["n_gpus"]
    alone = answer(*LARGE)
    first = r["models"][0]
    assert len(first["gpus"]) == alone["n_gpus"]
    assert first["at_most_per_s"] == pytest.approx(alone["at_most_per_s"])
    # all rates may grow as long as the fullest model can, on the GPUs given
    assert r["grows_times"] >= min(m["at_most_per_s"] / m["rate_per_s"] for m in r["models"])
    chat, embeds = r["models"][1:]
    assert chat["tpot_p95_s"] <= 0.05
    assert embeds["tpot_p95_s"] is None
    assert "--runner pooling" in embeds["launch"][0]
    ports = {line.rpartition("--port ")[2] for m in r["models"] for line in m["launch"]}
    assert len(ports) == 3
    assert all(
        line.startswith("CUDA_VISIBLE_DEVICES=" + ",".join(map(str, m["gpus"])))
        for m in r["models"]
        for line in m["launch"]
    )


@pytest.mark.slow
def test_small_models_share_a_gpu_where_the_gpus_are_too_few():
    apart = answer("qwen3-8b", "--gpus", "2", *TWO)
    assert [m["slowdown"] for m in apart["models"]] == [1, 1]
    beside = answer("qwen3-8b", "--gpus", "1", *TWO)
    assert (beside["n_gpus"], beside["n_gpus_apart"]) == (1, 2)
    shares = [m["memory_frac"] for m in beside["models"]]
    assert 0.8 < sum(shares) <= 0.92
    for one, two in zip(apart["models"], beside["models"], strict=True):
        assert two["gpus"] == [0]
        # both decode nearly always: each has half of the time
        assert 1.5 < two["slowdown"] <= 2
        # and more requests are inside meanwhile
        assert 1.5 < two["tpot_p95_s"] / one["tpot_p95_s"] < 3
        assert f"--gpu-memory-utilization {two['memory_frac']:g}" in two["launch"][0]


@pytest.mark.slow
def test_what_two_processes_together_miss_is_not_shared(tmp_path):
    alone = answer("qwen3-8b", "--gpu", "l40s", "--rate", "1/s")["tpot_p95_s"]
    limit = ("--tpot", f"p95:{1.2e3 * alone:.3g}ms")
    assert answer("qwen3-8b", "--gpus", "2", *limit, *TWO)["meets"]
    file = tmp_path / "answer.json"
    done = invoke("serve", "qwen3-8b", "--gpus", "1", *limit, *TWO, "-o", str(file))
    r = json.loads(file.read_text("utf-8"))["result"]
    assert (done.returncode, r["fits"], r["n_gpus"]) == (1, False, 2)
    assert done.stdout.startswith("2 models do not fit on 1 l40s: 2 are needed.")


@pytest.mark.slow
def test_a_model_that_nothing_serves_is_named():
    done = invoke("serve", *LARGE[:-1], "p95:1ms", *CHAT)
    assert done.returncode == 1
    assert done.stdout.startswith("llama3.3-70b, bf16 on")
    assert "The fastest TPOT" in done.stdout


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("qwen3-4b", "qwen3-4b on a pool of several models: its --rate is wanted"),
        ("qwen3-4b rat=2", "unknown option in --with qwen3-4b: `rat`"),
        ("qwen3-4b rate=2 gpus=2", "unknown option in --with qwen3-4b: `gpus`"),
        ("qwen3-4b rate=2 disagg=auto", "its --rate is wanted"),
        ("qwen4 rate=2", "unknown model"),
        ("", "--with '': a model is wanted"),
    ],
)
def test_what_cannot_be_read_is_refused(other, said):
    done = invoke("serve", "qwen3-8b", "--rate", "1/s", "--with", other)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_an_apple_machine_is_asked_alike_with_its_engine_and_without():
    one, two = (answer("qwen3-8b", "--gpu", "m5-max", *e) for e in ((), ("--engine", "llama.cpp")))
    assert one["weights"] == two["weights"] == "q4_k_m"
    assert one["tpot_mean_s"] == two["tpot_mean_s"]
