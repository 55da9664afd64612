"""Any number of GPUs is answered: the best of at most so many."""

import json

import pytest

from gpuscale.answers.training.plan_idle import fewer
from gpuscale.cli.app import run


def plan(capsys, *args):
    code = run(["plan", *args])
    return code, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "software", ["megatron-core", "torchtitan", "deepspeed-zero3", "fsdp", "jax", "nanotron"]
)
@pytest.mark.parametrize("n_gpus", [7, 13, 1000])
def test_every_number_of_gpus_is_answered(capsys, software, n_gpus):
    args = ("llama3-8b", "--gpus", str(n_gpus), "--software", software, "--alternatives", "0")
    code, text = plan(capsys, *args, "--json")
    result = json.loads(text)["result"]
    assert code == 0 and result["fits"]
    assert n_gpus / 2 <= result["n_gpus"] <= n_gpus


def test_idle_gpus_are_named_with_the_reason(capsys):
    code, text = plan(capsys, "llama3-8b", "--gpus", "100", "--tp", "8")
    assert code == 0
    assert "96 of the 100 GPUs are used, 4 stay idle: tp=8 does not divide 100 GPUs." in text


def test_numbers_that_divide_well_are_left_alone():
    assert fewer(512, 8, 512) == [] and fewer(4096, 8, 512) == []


def test_a_pipeline_layout_is_searched_around_timed_and_written(capsys, tmp_path):
    args = ("llama3-8b", "--gpus", "8", "--pipeline-layout", "Et*7|t*8|t*9|t*8L", "--pp", "2")
    code, text = plan(capsys, *args, "--global-batch", "64", "--json")
    saved = json.loads(text)
    result = saved["result"]
    assert code == 0 and result["stage_layers"] == [16, 16]
    assert result["layout"]["stage_layers"] == [7, 8, 9, 8] and result["layout"]["vpp"] == 2
    path = tmp_path / "plan.json"
    path.write_text(text)
    assert run(["launch", str(path)]) == 0
    assert f"|{'t' * 9}|" in capsys.readouterr().out
    code, _ = plan(capsys, "llama3-8b", "--gpus", "8", "--pipeline-layout", "16,17")
    assert code == 2
