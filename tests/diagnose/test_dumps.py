"""Arguments that frameworks print resolved: a launch file, and what a run is held against."""

import json

import pytest
from running import invoke

TITAN = """[rank0]:[titan] 2026-01-01 - root - INFO - Running with args: {
[rank0]:  "model": {
[rank0]:    "name": "llama3",
[rank0]:    "flavor": "8B"
[rank0]:  },
[rank0]:  "training": {
[rank0]:    "local_batch_size": 1,
[rank0]:    "dataset_path": null,
[rank0]:    "seq_len": 8192
[rank0]:  },
[rank0]:  "activation_checkpoint": {
[rank0]:    "mode": "full"
[rank0]:  }
[rank0]:}
"""
STEPS = "".join(
    f"[rank0]:[titan] - INFO - step: {k}  loss: 8.1  memory: 45.2GiB(47.6%)  tps: {4500 + k}\n"
    for k in range(1, 30)
)
DEEPSPEED = """[2026-01-01 14:53:01,363] [INFO] [config.py:103:print]   world_size .... 4
[2026-01-01 14:53:01,364] [INFO] [config.py:989:print_user_config]   json = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "zero_optimization": {
        "stage": 3
    },
    "bf16": {
        "enabled": true
    }
}
"""
TRAINER = """- INFO - Training/evaluation parameters Seq2SeqTrainingArguments(
_n_gpu=1,
adafactor=False,
bf16=True,
fsdp_config={'min_num_params': 0, 'xla': False},
gradient_accumulation_steps=4,
gradient_checkpointing=True,
learning_rate=5e-05,
lr_scheduler_kwargs={},
per_device_train_batch_size=2,
torch_compile=False,
weight_decay=0.0,
)
  "_name_or_path": "meta-llama/Llama-2-13b-hf",
  Total train batch size (w. parallel, distributed & accumulation) = 32
"""


@pytest.mark.parametrize(
    ("text", "model", "said"),
    [
        (TITAN + STEPS, "llama3.1-8b", {"recompute": "full", "seq_len": 8192}),
        (DEEPSPEED, "", {"zero_stage": 3, "micro_batch_size": 2, "accumulation": 4}),
        ("gpu-7: " + DEEPSPEED.replace("\n", "\ngpu-7: "), "", {"zero_stage": 3}),
        (TRAINER, "llama2-13b", {"micro_batch_size": 2, "gpus_per_node": 4, "zero_stage": None}),
        (
            TRAINER + DEEPSPEED,
            "llama2-13b",
            {"zero_stage": 3, "gpus_per_node": 4, "recompute": "full"},
        ),
    ],
)
def test_a_dump_is_a_launch_file(tmp_path, text, model, said):
    log = tmp_path / "run.log"
    log.write_text(text)
    done = invoke("launch-check", str(log), "--gpu", "h100", "--json")
    report = json.loads(done.stdout)["result"]
    assert report["model"] == model
    assert {key: report["said"][key] for key in said} == said


def test_a_run_is_held_against_its_own_dump(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(TITAN + STEPS)
    done = invoke("diagnose", str(log), "--gpu", "h100", "--gpus", "8", "--json")
    found = json.loads(done.stdout)["result"]
    assert found["predicted"]["by"].startswith("gpuscale launch-check")
    assert found["predicted"]["quantity"] == "tokens_per_s_per_gpu"
    assert found["verdict"] == "normal"
