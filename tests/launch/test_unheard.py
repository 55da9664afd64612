"""A key that says how a job runs, and that nobody reads, stops the verdict and is asked for."""

import pytest

from gpuscale.cli.app import run
from gpuscale.launch.read.detect import read_launch

QLORA = (
    "accelerate launch --num_processes 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B "
    "--use_qlora --lora_r 16 --per_device_train_batch_size 2 --max_length 2048 --bf16"
)
DEGREES = (
    "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-70B "
    "--tensor_parallel_degree 2 --fsdp_shard_degree 4 --per_device_train_batch_size 1 "
    "--max_length 4096 --bf16"
)
CONTEXT = (
    "base_model: meta-llama/Llama-3.1-8B\ndatasets: []\nsequence_len: 8192\n"
    "micro_batch_size: 1\ncontext_parallel_degree: 4\n"
)
FP8 = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\n"
    "cutoff_len: 4096\nper_device_train_batch_size: 1\nfp8: true\nbf16: true\n"
)
PRIME = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=rloo data.train_batch_size=256 "
    "data.n_samples_per_prompt=4 data.max_prompt_length=1024 data.max_response_length=3072 "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B trainer.n_gpus_per_node=8 trainer.nnodes=1 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
)


@pytest.mark.parametrize(
    ("name", "text", "keys"),
    [
        ("a.sh", QLORA, ["use_qlora"]),
        ("b.sh", DEGREES, ["tensor_parallel_degree", "fsdp_shard_degree"]),
        ("c.yaml", CONTEXT, ["context_parallel_degree"]),
        ("d.yaml", FP8, ["fp8"]),
        ("e.sh", PRIME, ["data.n_samples_per_prompt"]),
    ],
)
def test_what_says_how_a_job_runs_is_asked_for(name, text, keys, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    line = ["launch-check", str(tmp_path / name), "--gpus", "8"]
    run(line)
    out = capsys.readouterr().out
    assert "Not predicted" in out and all(f"what {key}: " in out for key in keys)
    run([*line, *(word for key in keys for word in ("--ignore", key))])
    assert "Not predicted" not in capsys.readouterr().out


def test_a_key_that_its_framework_does_not_have_is_shown(tmp_path, capsys):
    text = FP8.replace("fp8: true", "cutof_len: 2048\nlogging_steps: 5\nneat_packing: false")
    (tmp_path / "a.yaml").write_text(text)
    run(["launch-check", str(tmp_path / "a.yaml"), "--gpus", "8"])
    out = capsys.readouterr().out
    assert "cutof_len" in out and "logging_steps" not in out and "neat_packing" not in out


@pytest.mark.parametrize(
    ("file", "text", "asked"),
    [
        ("a.sh", "torchrun pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 2 "
         "--hybrid-context-parallel --fp8-margin 0 --ckpt-fully-parallel-save",
         {"hybrid_context_parallel": "True"}),
        ("a.toml", "[training]\nseq_len = 8\n[parallelism]\ntensor_parallel_degree = 2\n"
         "shard_experts_degree = 4\n", {"parallelism.shard_experts_degree": "4"}),
        ("b.toml", "[training]\nseq_len = 8\n[parallelism]\ntensor_parallel_degree = 2\n"
         "[activation_checkpoint]\nmode = 'wise'\n", {"activation_checkpoint.mode": "wise"}),
    ],
)  # fmt: skip
def test_keys_of_pre_training_that_nobody_reads_stop_the_verdict(file, text, asked):
    assert read_launch({file: text}).asked == asked
