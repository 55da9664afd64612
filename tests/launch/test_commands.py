"""`launch` and `launch-check` on the command line."""

import json
import shlex

import pytest

from gpuscale.cli.app import run
from gpuscale.launch.read.detect import read_launch

SCRIPT = """#!/bin/bash
TP=8
PP=1
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \\
  --position-embedding-type rope --vocab-size 128256 --seq-length 8192 --bf16 \\
  --micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size $TP \\
  --pipeline-model-parallel-size $PP --sequence-parallel --use-distributed-optimizer \\
  --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap
"""


def check(tmp_path, capsys, text, *more, name="run.sh"):
    path = tmp_path / name
    path.write_text(text)
    code = run(["launch-check", str(path), *more, "--json"])
    out, err = capsys.readouterr()
    return code, (json.loads(out)["result"] if out else {}), err


def test_a_good_script_is_predicted_and_put_beside_the_best(tmp_path, capsys):
    code, r, _ = check(tmp_path, capsys, SCRIPT)
    assert code == 0 and r["can_launch"] and r["fits"]
    assert r["layout"]["tp"] == 8 and r["layout"]["dp"] == 4 and r["n_gpus"] == 32
    assert r["step_low_s"] < r["step_s"] < r["step_high_s"]
    assert r["slower_factor"] > 1.1  # TP 8 of an 8B model is known to waste
    assert any("-TP=8" in line for line in r["diff"])  # the variable is changed, not its use


def test_memory_and_time_are_those_of_the_plan(tmp_path, capsys):
    _, r, _ = check(tmp_path, capsys, SCRIPT)
    line = (
        "plan llama3-8b --gpus 32 --seq-len 8192 --global-batch 128 --tp 8 --pp 1 --cp 1 --dp 4 "
        "--zero 1 --micro-batch 1 --recompute none --software megatron-core --json"
    )
    run(line.split())
    plan = json.loads(capsys.readouterr().out)["result"]
    # the flags pad the vocabulary to a multiple of 128 x TP
    assert r["step_s"] == pytest.approx(plan["step_s"], rel=0.006)
    assert r["peak_bytes"] == pytest.approx(plan["peak_bytes"], rel=0.006)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("--nproc_per_node 8 --nnodes 4 ", "", "--gpus"),
        ("--seq-length 8192", "--seq-length $LENGTH", "$LENGTH"),
        ("TP=8", "TP=$1", "$1"),
    ],
)
def test_what_the_files_do_not_say_is_asked_for(tmp_path, capsys, old, new, part):
    code, r, _ = check(tmp_path, capsys, SCRIPT.replace(old, new))
    assert code == 0 and r["layout"] is None and r["step_s"] is None
    assert any(part in line for line in r["missing"])
    assert r["said"]["micro_batch_size"] == 1


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("TP=8", "TP=3", "the launch on 32 GPUs is no multiple of tp*pp*cp = 3"),
        ("--overlap-grad-reduce ", "", "needs --overlap-grad-reduce"),
        ("--global-batch-size 128", "--global-batch-size 130", "no multiple of micro-batch"),
    ],
)
def test_a_broken_rule_is_exit_1(tmp_path, capsys, old, new, part):
    code, r, _ = check(tmp_path, capsys, SCRIPT.replace(old, new))
    assert code == 1 and not r["can_launch"]
    assert any(part in text for text in r["broken"])


def test_what_does_not_fit_is_exit_1(tmp_path, capsys):
    code, r, _ = check(tmp_path, capsys, SCRIPT.replace("TP=8", "TP=1"))
    assert code == 1 and r["can_launch"] and r["fits"] is False


def test_a_deepspeed_json_asks_for_what_it_lacks(tmp_path, capsys):
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})
    code, r, _ = check(tmp_path, capsys, text, name="ds.json")
    assert code == 0 and "--model" in r["missing"][0] and r["said"]["zero_stage"] == 3
    more = ["--model", "llama3-8b", "--gpus", "64", "--seq-len", "512"]
    code, r, _ = check(tmp_path, capsys, text, *more, name="ds.json")
    assert code == 0 and r["tuning"]["fits"] and r["software"] == "hf-deepspeed"


@pytest.mark.parametrize("text", ["", "\x00\x01\xff", "{" * 9999, "a" * 300_000, "echo hi"])
def test_what_is_no_launch_file_is_exit_2(tmp_path, capsys, text):
    code, _, err = check(tmp_path, capsys, text)
    assert code == 2 and err.startswith("error:") and "Traceback" not in err


def test_launch_of_a_plan_and_back(tmp_path, capsys):
    run(["plan", "llama3-8b", "--gpus", "64", "--json", "-o", str(tmp_path / "run.sh")])
    plan = capsys.readouterr().out
    (tmp_path / "plan.json").write_text(plan)
    assert run(["launch", str(tmp_path / "plan.json"), "--json"]) == 0
    launch = json.loads(capsys.readouterr().out)["result"]
    assert (tmp_path / "run.sh").read_text() == launch["text"]
    code, r, _ = check(tmp_path, capsys, launch["text"])
    wanted = json.loads(plan)["result"]
    same = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch_size", "global_batch_size")
    assert {k: r["layout"][k] for k in same} == {k: wanted["layout"][k] for k in same}
    assert r["step_s"] == pytest.approx(wanted["step_s"], rel=1e-6)


def test_a_serving_line_has_options_of_its_engine_and_is_read_back(capsys):
    line = (
        "serve qwen3-235b-a22b --gpu h200-sxm --gpus 8 --concurrency 16 --context 32768 --kv fp8 "
        "--weights fp8 --json"
    )
    run(line.split())
    r = json.loads(capsys.readouterr().out)["result"]
    found = read_launch({"serve.sh": r["launch"][0]})
    assert found.kind == "vllm" and found.not_understood == []
    assert (found.tp, found.pp, found.seq_len) == (r["layout"]["tp"], r["layout"]["pp"], 32768)


def test_launch_refuses_what_is_no_plan(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text('{"schema": 1, "command": "network", "inputs": {}, "result": {}}')
    assert run(["launch", str(path)]) == 2
    assert "not a saved plan" in capsys.readouterr().err
    assert run(["model", "llama3-8b", "-o", str(tmp_path / "x.sh")]) == 2
    assert not (tmp_path / "x.sh").exists()


def test_a_memory_answer_is_launched_as_it_was_asked(tmp_path, capsys):
    asked = "memory llama3-70b --gpus 64 --tp 4 --pp 8 --vpp 2 --recompute full --moments bf16"
    assert run([*asked.split(), "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)
    (tmp_path / "memory.json").write_text(json.dumps(saved))
    assert run(["launch", str(tmp_path / "memory.json"), "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["result"]["text"]
    found = read_launch({"run.sh": text})
    assert (found.tp, found.pp, found.vpp, found.recompute) == (4, 8, 2, "full")
    again = text.partition("made by: gpuscale ")[2].splitlines()[0]
    assert run([*shlex.split(again), "--json"]) == 0
    launched = json.loads(capsys.readouterr().out)
    assert sorted(again.split()) == sorted(asked.split())
    assert launched == saved


@pytest.mark.parametrize("where", ["--gpu rtx-3090", "--cluster dgx-a100-80gb"])
def test_a_file_of_a_plan_is_checked_on_its_machines(tmp_path, capsys, where):
    """It was checked on dgx-h100, 6.09 s a step for the 31.5 s that the file says."""
    asked = f"plan llama3-8b --method qlora --gpus 2 {where}"
    assert run([*asked.split(), "-o", str(tmp_path / "run.sh")]) == 0
    text = (tmp_path / "run.sh").read_text()
    capsys.readouterr()
    _, r, _ = check(tmp_path, capsys, text)
    assert r["gpu"] == where.split()[1]
    _, r, _ = check(tmp_path, capsys, text.replace(where, f"{where},h100"))
    assert r["gpu"] is None  # a list says no machine


def test_a_model_that_the_framework_lacks_is_told(tmp_path, capsys):
    run(["plan", "mistral-7b", "--gpus", "8", "--json"])
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    assert run(["launch", str(tmp_path / "plan.json"), "--framework", "torchtitan"]) == 2
    assert "has no configuration of mistral-7b" in capsys.readouterr().err


def test_a_front_end_file_is_answered_as_fine_tuning(tmp_path, capsys):
    text = (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: lora\n"
        "quantization_bit: 4\nlora_rank: 8\nbf16: true\nper_device_train_batch_size: 1\n"
    )
    more = ["--cluster", "rtx-4090", "--gpus", "1"]
    code, r, _ = check(tmp_path, capsys, text, *more, name="sft.yaml")
    line = (
        "memory llama3-8b --gpu rtx-4090 --gpus 1 --method qlora --rank 8 --micro-batch 1 "
        "--software llama-factory"
    )
    run([*line.split(), "--recompute", "full", "--json"])
    memory = json.loads(capsys.readouterr().out)["result"]
    assert code == 0 and r["method"] == "qlora"
    assert r["peak_bytes"] == pytest.approx(memory["peak_bytes"])


def test_what_is_no_training_is_said_beside_the_file_that_is_missing(tmp_path, capsys):
    text = "torchrun -m scripts.generate.test_generate --config=torchtitan/debug_model.toml"
    _, r, _ = check(tmp_path, capsys, text)
    assert any("no training" in line for line in r["missing"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.sh", "set -e\nmake all\n"),
        ("empty.sh", ""),
        ("mkdocs.yml", "a: !!python/name:foo.bar\nb: !Ref x\n"),
        ("playbook.yml", "- hosts: all\n"),
        ("chart.yaml", "a: {{ .Values.x }}\n{{- if .Values.y }}\nb: 1\n{{- end }}\n"),
        ("cookie.yaml", "{% if x %}\na: 1\n{% endif %}\n"),
        ("pyproject.toml", '[project]\nname = "a"\n'),
    ],
)
def test_a_hook_passes_files_that_start_nothing(tmp_path, capsys, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert run(["launch-check", "--pass-others", str(path)]) == 0
    assert "passed" in capsys.readouterr().out
    assert run(["launch-check", str(path)]) == 2


def test_a_hook_does_not_pass_a_launch_that_cannot_be(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve meta-llama/Meta-Llama-3-8B --tensor-parallel-size 7\n")
    assert run(["launch-check", "--pass-others", str(path), "--gpu", "h100"]) in (1, 2)
