"""Answers about a job have one shape, and say who said each value."""

import json
from dataclasses import fields

import pytest
from running import invoke

from gpuscale.core.layout import Layout
from gpuscale.io.software import load_software

SCRIPT = """torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 \\
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \\
  --group-query-attention --num-query-groups 8 --seq-length 8192 --micro-batch-size 1 \\
  --max-position-embeddings 8192 --global-batch-size 128 --bf16 --swiglu --sequence-parallel \\
  --untie-embeddings-and-output-weights --normalization RMSNorm --vocab-size 128256
"""
JOB = 'model = "llama3-8b"\ngpus = 16\nseq_len = 4096\n[layout]\ntp = 2\n'
TUNED = "llama3-8b --gpu h100 --gpus 8 --tp 2 --software megatron-bridge --method"
OWN = "habit of megatron-core: " + load_software("megatron-core").sources["zero_stage"]
JOBS = {
    "plan llama3-8b --gpus 16 --tp 2": {"tp": "--tp", "pp": "searched", "dp": "searched"},
    "plan --job {job}": {"tp": "{job}:5", "seq_len": "{job}:3", "zero_stage": "searched"},
    "memory llama3-8b --gpus 16 --tp 2": {"dp": "--gpus", "zero_stage": OWN},
    "timeline llama3-8b --gpus 16 --tp 2 --pp 2": {"pp": "--pp", "vpp": "default"},
    "launch-check {script} --seq-len 4096": {
        "tp": "{script}:2 --tensor-model-parallel-size",
        "micro_batch_size": "{script}:4 --micro-batch-size",
        "seq_len": "--seq-len",
        "sequence_parallel": "{script}",
    },
    f"memory {TUNED} lora": {"tp": "--tp", "method": "--method", "pp": "default"},
    f"plan {TUNED} lora": {"tp": "--tp", "micro_batch_size": "searched"},
    f"memory {TUNED} dpo": {"tp": "--tp", "software": "--software"},
}
TIMELESS = ("memory llama3-8b --gpus 16 --tp 2",)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    folder = tmp_path_factory.mktemp("said")
    (folder / "run.sh").write_text(SCRIPT)
    (folder / "plan.toml").write_text(JOB)
    return {"script": str(folder / "run.sh"), "job": str(folder / "plan.toml")}


@pytest.mark.parametrize("command", JOBS)
def test_a_job_says_its_layout_and_who_said_it(command, named):
    done = invoke(*command.format(**named).split(), "--json")
    result = json.loads(done.stdout)["result"]
    assert result["peak_bytes"] > 0 and result["capacity_bytes"] > 0
    assert result["memory_interval_factor_80"] >= 1.0 and isinstance(result["taken"], list)
    if command not in TIMELESS:
        assert result["step_low_s"] <= result["step_s"] <= result["step_high_s"]
    names = {f.name for f in fields(Layout)}
    assert set(result["layout"]) == names and names <= set(result["said_by"])
    wanted = {name: who.format(**named) for name, who in JOBS[command].items()}
    assert {name: result["said_by"][name] for name in wanted} == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [*JOBS, "serve llama3-8b --gpu h100 --rate 1", "memory llama3-8b --gpu h100 --serve"]
)
def test_the_same_keys_can_be_required(command, named):
    held = ("peak_bytes<=1e15", "capacity_bytes>=1", "layout.tp>=1")
    done = invoke(*command.format(**named).split(), *(w for k in held for w in ("--require", k)))
    assert done.returncode in (0, 1) and "failed" not in done.stderr


def test_a_setting_is_launched_and_read_back_as_it_was_said(tmp_path):
    """Buckets of Megatron-Core: written as its flag, and fewer calls cost less latency."""
    ask = "timeline llama3-8b --gpus 64 --json --bucket-params".split()
    small, large = (json.loads(invoke(*ask, n).stdout)["result"]["step_s"] for n in ("4M", "4B"))
    assert small > large
    job, script = tmp_path / "job.json", tmp_path / "run.sh"
    invoke(*"memory llama3-8b --gpus 16 --tp 2 --bucket-params 200M -o".split(), str(job))
    script.write_text(invoke("launch", str(job)).stdout)
    assert "--ddp-bucket-size 200000000" in script.read_text()
    said = json.loads(invoke("launch-check", str(script), "--json").stdout)["result"]["said_by"]
    assert said["bucket_params"].endswith(" --ddp-bucket-size")
    done = invoke(*"plan llama3-8b --gpus 8 --software torchtitan --bucket-params 1M".split())
    assert done.returncode == 2 and "layer by layer" in done.stderr


def test_a_habit_names_the_line_of_the_framework_that_shows_it():
    done = invoke(*"memory llama3-8b --gpu h100 --method lora --software trl:0.20 --json".split())
    said = json.loads(done.stdout)["result"]["said_by"]
    assert said["micro_batch_size"].startswith("habit of trl: transformers==")
    assert said["software"] == "--software" and said["tp"] == "default"
