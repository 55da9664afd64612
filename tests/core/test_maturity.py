"""Maturity of a job: what is filled in, what it costs, and that its interval holds what it must."""

import json
from math import exp

import pytest
from running import invoke

from gpuscale.core.settings import MATURITIES, MATURITY_WORDS, STACKS, JobSettings, Way, mixed
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.jobs import LeastDegrees, evidence, maturity_of, settled
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software
from gpuscale.io.step import interval_table
from gpuscale.launch.read.detect import read_launch


def plan(*args):
    done = invoke("plan", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_every_kind_has_every_maturity():
    table = interval_table()["maturity"]
    assert set(table) == {f"{kind}/{name}" for kind in (*STACKS, "moe") for name in MATURITIES}
    assert set(MATURITY_WORDS) == {*MATURITIES, "measured", "unsaid"}
    assert all(row["median"] == 1.0 for key, row in table.items() if key.endswith("/tuned"))


@pytest.mark.parametrize("name", ["megatron-core", "fsdp", "pytorch", "hf-peft", "jax"])
def test_nothing_is_faster_than_tuned(name):
    software = load_software(name)
    for has_experts in (False, True):
        factors = {m: maturity_of(software, has_experts, m).factor for m in MATURITIES}
        assert factors["tuned"] == 1.0 <= min(factors.values())
        usual = factors[software.maturity]
        few, much = (
            maturity_of(software, has_experts),
            maturity_of(software, has_experts, None, ("fp8_gpu",), 1024),
        )
        assert 1.0 <= much.factor <= few.factor <= max(usual, 1.0) + 1e-9
        assert few.tuned_probability < 0.2 < 0.9 < much.tuned_probability
        assert few.factor / exp(few.faster) <= usual


ONE_JOB = (
    "llama3-70b --gpus 64 --cluster dgx-h100 --software torchtitan",
    "llama3-8b --gpus 16 --cluster dgx-a100",
    "llama3-8b --gpus 32 --cluster dgx-b200 --precision fp8",
    "mistral-7b --gpus 8 --gpu h100-sxm --software fsdp",
    "llama3-8b --gpus 16 --cluster dgx-h100 --software nanotron",
    "qwen3-30b-a3b --gpus 32 --cluster dgx-h100",
    "qwen3-235b-a22b --gpus 256 --cluster dgx-h100",
)
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp")


@pytest.mark.slow
@pytest.mark.parametrize("job", ONE_JOB)
def test_a_plan_its_file_and_its_pins_say_one_time(job, tmp_path):
    """How far a job was tuned is judged by what the job is, not by who says its layout."""
    args, path = job.split(), str(tmp_path / "run.sh")
    free = plan(*args, "-o", path)
    at = free["layout"]
    pins = {key: at[key] for key in DEGREES}
    pins |= {"seq-len": at["seq_len"], "global-batch": at["global_batch_size"]}
    pins |= {"micro-batch": at["micro_batch_size"], "zero": at["zero_stage"]}
    pins["recompute"] = at["recompute"]
    pinned = plan(*args, *(f"--{key}={value}" for key, value in pins.items()))
    where = args[args.index("--gpus") + 2 :][:2]
    read = invoke("launch-check", path, *where, "--json")
    checked = json.loads(read.stdout)["result"]
    for said in (pinned, checked):
        assert said["step_s"] == pytest.approx(free["step_s"], rel=1e-3)
        assert said["step_high_s"] == pytest.approx(free["step_high_s"], rel=1e-3)
    assert pinned["tuned_probability"] == free["tuned_probability"]


def test_what_speaks_for_a_tuned_job():
    h100, a100, card = (load_gpu(name) for name in ("h100-sxm", "a100-sxm-80gb", "rtx-4090"))
    assert evidence(h100, has_experts=False) == ("fp8_gpu",)
    assert evidence(a100, has_experts=True) == ("experts",)
    assert evidence(card, has_experts=False) == ()


def test_a_mixture_of_two_kinds_of_jobs_lies_between_them():
    tuned, other = Way(0.0, 0.2, 0.2), Way(0.6, 0.2, 0.7)
    assert mixed(tuned, other, 1.0) == pytest.approx(tuned) and mixed(
        tuned, other, 0.0
    ) == pytest.approx(other)
    medians = [mixed(tuned, other, p / 10).median for p in range(11)]
    assert medians == sorted(medians, reverse=True)


def test_parameters_fitted_to_jobs_as_they_come_are_not_slowed_again():
    assert maturity_of(load_software("hf-deepspeed"), False, "as-it-comes").factor == 1.0


def test_both_times_stand_in_the_first_lines():
    args = ("llama3-8b", "--gpus", "64", "--cluster", "dgx-h100", "--tokens", "1e12")
    r = plan(*args)
    tuned, own = r["tuned"], r["as_it_comes"]
    assert r["maturity"] == "unsaid" and 0.5 < r["tuned_probability"] < 1.0
    assert own["step_s"] / tuned["step_s"] == pytest.approx(
        interval_table()["maturity"]["fused/as-it-comes"]["median"]
    )
    assert r["step_low_s"] <= tuned["step_s"] < r["step_s"] < own["step_s"] <= r["step_high_s"]
    assert tuned["days"] < r["run"]["expected_days"] < own["days"]
    first = invoke("plan", *args).stdout.splitlines()[0]
    assert "if tuned" in first and "as it comes" in first
    said = plan(*args, "--maturity", "tuned")
    assert said["step_s"] == pytest.approx(tuned["step_s"])
    assert said["layout"] == r["layout"]


def test_a_mixture_is_planned_with_the_dispatcher_of_its_recipes():
    """The layout shown is the one that is timed, tuned and as it comes."""
    done = invoke("plan", "qwen3-235b-a22b", "--gpus", "256", "--cluster", "dgx-h100", "--json")
    answer = json.loads(done.stdout)
    assert answer["inputs"]["settings"]["dispatcher"] == "deepep"
    r = answer["result"]
    assert r["layout"]["ep"] > 8 and r["tuned"]["step_s"] < r["step_s"]
    assert "DeepEP" in r["tuned"]["settings"]


@pytest.mark.parametrize(
    ("cluster", "dispatcher"),
    [("dgx-h100", "deepep"), ("aws-p5", None), ("gb200-nvl72", "hybridep"), ("dgx-a100", None)],
)
def test_experts_exchange_as_the_network_and_the_recipes_have_it(cluster, dispatcher):
    model, software = load_model("mixtral-8x7b").spec, load_software("megatron-core")
    place = load_cluster(cluster)
    found = settled(JobSettings(), software, model, place, LeastDegrees())
    assert found.dispatcher == dispatcher
    assert found.balance is not None and found.balance > 1.0
    wide = LeastDegrees(ep=256)  # more ranks than DeepEP takes
    found = settled(JobSettings(balance=1.0), software, model, place, wide)
    assert found.balance == 1.0 and found.dispatcher != "deepep"
    dense = load_model("llama3-8b").spec
    assert settled(JobSettings(), software, dense, place, wide) == JobSettings()


@pytest.mark.slow
def test_the_launch_file_exchanges_as_the_plan_does(tmp_path):
    """Chunks over the model's layers and its two ends are a layout that is written too."""
    path = tmp_path / "run.sh"
    args = ("qwen3-235b-a22b", "--gpus", "256", "--cluster", "dgx-h100", "-o", str(path))
    assert invoke("plan", *args).returncode == 0
    assert "--moe-flex-dispatcher-backend deepep" in path.read_text()
    checked, same = invoke("launch-check", str(path), "--json"), plan(*args[:-2])
    report = json.loads(checked.stdout)["result"]
    assert report["step_s"] == pytest.approx(same["step_s"], rel=1e-3)
    plain = (
        path.read_text()
        .replace("--moe-token-dispatcher-type flex", "")
        .replace("--moe-flex-dispatcher-backend deepep", "")
    )
    path.write_text(plain.replace("\n   \\\n", "\n"))
    slower = json.loads(invoke("launch-check", str(path), "--json").stdout)["result"]
    assert slower["step_s"] > 1.2 * report["step_s"]


def test_the_busiest_rank_of_experts_costs_time_and_memory():
    args = ("mixtral-8x7b", "--gpus", "16", "--cluster", "dgx-h100", "--tp", "1", "--pp", "1")
    args += ("--ep", "8", "--fit", "expected")
    even, uneven = (plan(*args, "--balance", b) for b in ("1", "1.5"))
    assert uneven["peak_bytes"] > even["peak_bytes"]
    assert uneven["step"]["expected"]["moe_s"] > even["step"]["expected"]["moe_s"]
    assert uneven["step"]["expected"]["matmul_s"] > even["step"]["expected"]["matmul_s"]


def test_no_interval_begins_below_the_roofline():
    r = plan("mistral-7b", "--gpus", "64", "--cluster", "hgx-h20-8", "--maturity", "tuned")
    assert r["roofline_s"] <= r["step_low_s"]


@pytest.mark.slow
def test_a_mixture_is_recomputed_as_its_published_recipes_are(tmp_path):
    """DeepSeek-V3 (arXiv:2412.19437, table 1): 14.8T tokens in 2.664M hours of 2,048 H800."""
    path = tmp_path / "run.sh"
    args = "deepseek-v3 --gpus 2048 --cluster deepseek-h800 --precision fp8 --seq-len 4096"
    found = plan(*args.split(), "--global-batch", "15360", "-o", str(path))
    assert found["layout"]["recompute"] == "selective"
    said = "recomputed: layernorm, mla_up_proj, moe_act (--recompute-modules)"
    assert said in found["taken"]
    assert "--recompute-modules layernorm mla_up_proj moe_act" in path.read_text("utf-8")
    days = 2.664e6 / 2048 / 24
    assert found["tuned"]["days"] == pytest.approx(days, rel=0.1)


@pytest.mark.parametrize(
    ("flags", "modules", "order"),
    [
        ("--recompute-granularity selective", ("core_attn",), None),  # arguments.py, default
        (
            "--recompute-granularity selective --recompute-modules mlp moe_act",
            ("mlp", "moe_act"),
            None,
        ),
        ("--recompute-granularity full --recompute-method uniform", None, None),
        ("--use-tp-pp-dp-mapping", None, "tp-cp-pp-dp"),
    ],
)
def test_a_script_says_what_is_recomputed_and_how_ranks_lie(flags, modules, order):
    script = "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    found = read_launch({"run.sh": script + f"--pipeline-model-parallel-size 2 {flags}\n"})
    assert (found.settings.get("recompute_modules"), found.order) == (modules, order)
