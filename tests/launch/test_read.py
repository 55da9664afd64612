"""Launch files of every kind: what is read of them."""

import pytest

from gpuscale.core.layout import layout_chunks
from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.detect import read_launch

MEGATRON = """#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
TP=${TP:-4}
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm
    --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256
)
srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py "${MODEL_ARGS[@]}" \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 --sequence-parallel \\
    --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16 \\
    --use-distributed-optimizer --recompute-granularity full --recompute-method uniform \\
    --tensr-parallel 3
"""
DEEPSPEED = """{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
"bf16": {"enabled": true}, "zero_optimisation": {"stage": 3},
"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}"""
ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: true
parallelism_config:
  parallelism_config_dp_shard_size: 8
  parallelism_config_tp_size: 2
"""
TITAN_TOML = """[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
"""
TITAN = """torchrun --nproc_per_node=8 --nnodes 4 -m torchtitan.train --module llama3 \\
 --config llama3_8b --parallelism.tensor_parallel_degree 2 --training.local_batch_size=2 \\
 --parallelism.tensor_paralel_degree 3 activation-checkpoint:none"""
FACTORY = """model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: lora
lora_rank: 16
quantization_bit: 4
cutoff_len: 4096
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
AXOLOTL = """base_model: NousResearch/Llama-2-7b-hf
adapter: qlora
load_in_4bit: true
lora_r: 32
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
bf16: auto
"""
BRIDGE = """model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  context_parallel_size: 1
  sequence_parallel: true
train:
  global_batch_size: 256
  micro_batch_size: 2
"""
SKY = """num_nodes: 2
resources: {accelerators: H100:8}
run: |
  torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 \\
    --num-attention-heads 4 --tensor-model-parallel-size 2 --seq-length 512
"""
CASES = [
    (
        "run.sh",
        MEGATRON,
        {
            "kind": "megatron",
            "tp": 4,
            "pp": 2,
            "world_size": 64,
            "micro_batch_size": 1,
            "global_batch_size": 128,
            "seq_len": 8192,
            "precision": "bf16",
            "recompute": "full",
            "zero_stage": 1,
            "sequence_parallel": True,
            "asked": {"tensr_parallel": "3"},
        },
    ),
    (
        "ds_config.json",
        DEEPSPEED,
        {
            "kind": "deepspeed",
            "zero_stage": 2,
            "offload_optimizer": True,
            "micro_batch_size": 4,
            "accumulation": 2,
            "precision": "bf16",
            "not_understood": ["zero_optimisation (DeepSpeed ignores it)"],
        },
    ),
    (
        "fsdp.yaml",
        ACCELERATE,
        {
            "kind": "accelerate",
            "world_size": 16,
            "tp": 2,
            "zero_stage": 3,
            "recompute": "full",
            "precision": "bf16",
            "wrong": [],
            "not_understood": [],
        },
    ),
    (
        "llama3_70b.toml",
        TITAN_TOML,
        {
            "kind": "torchtitan",
            "model_name": "llama3.1-70b",
            "tp": 8,
            "micro_batch_size": 8,
            "seq_len": 8192,
            "zero_stage": 3,
            "recompute": "full",
        },
    ),
    (
        "train.sh",
        TITAN,
        {
            "kind": "torchtitan",
            "model_name": "llama3.1-8b",
            "tp": 2,
            "world_size": 32,
            "micro_batch_size": 2,
            "recompute": "none",
            "not_understood": ["--parallelism.tensor_paralel_degree"],
        },
    ),
    (
        "sft.yaml",
        FACTORY,
        {
            "kind": "llama-factory",
            "method": "qlora",
            "lora_rank": 16,
            "seq_len": 4096,
            "micro_batch_size": 2,
            "accumulation": 4,
            "precision": "bf16",
            "model_name": "meta-llama/Meta-Llama-3-8B-Instruct",
        },
    ),
    (
        "qlora.yml",
        AXOLOTL,
        {
            "kind": "axolotl",
            "method": "qlora",
            "lora_rank": 32,
            "recompute": "full",
            "micro_batch_size": 2,
            "seq_len": 4096,
        },
    ),
    (
        "bridge.yaml",
        BRIDGE,
        {
            "kind": "megatron-bridge",
            "tp": 4,
            "pp": 2,
            "cp": 1,
            "global_batch_size": 256,
            "micro_batch_size": 2,
            "sequence_parallel": True,
        },
    ),
    ("sky.yaml", SKY, {"kind": "megatron", "tp": 2, "world_size": 16, "seq_len": 512}),
    (
        "serve.sh",
        "vllm serve Qwen/Qwen3-32B -tp 4 --max-model-len 32K --gpu-memory-utilization .9",
        {
            "kind": "vllm",
            "method": "serve",
            "model_name": "Qwen/Qwen3-32B",
            "tp": 4,
            "seq_len": 32768,
            "memory_utilization": 0.9,
            "not_understood": [],
        },
    ),
    (
        "serve.sh",
        "python -m sglang.launch_server --model-path a/b --tp 8 --dp 4 --enable-dp-attention",
        {"kind": "sglang", "model_name": "a/b", "tp": 8, "dp": 4, "n_gpus": 8},
    ),
]


@pytest.mark.parametrize(("name", "text", "wanted"), CASES, ids=[c[2]["kind"] for c in CASES])
def test_a_launch_file_is_read(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_megatron_flags_make_the_model_they_describe():
    from gpuscale.core.model.params import count_params

    found = read_launch({"run.sh": MEGATRON})
    assert found.model is not None
    assert count_params(found.model).total_params == pytest.approx(8.03e9, rel=1e-3)  # Llama 3 8B


def test_script_and_the_json_it_names_are_one_launch():
    script = (
        "deepspeed --num_gpus 8 train.py --model_name_or_path a/b "
        "--per_device_train_batch_size 4 --deepspeed ds.json"
    )
    found = read_launch({"run.sh": script, "ds.json": DEEPSPEED})
    assert (found.kind, found.model_name, found.world_size) == ("trainer", "a/b", 8)


@pytest.mark.parametrize(
    ("layout", "chunks"),
    [
        ("Et*3|(tt|)*29,m|L", [3, *[2] * 29, 0, 0]),  # docs of Megatron-LM, DeepSeek-V3
        ("E|(t|)*3,m|m||L", [0, 1, 1, 1, 0, 0, 0, 0]),
    ],
)
def test_layout_strings(layout, chunks):
    assert layout_chunks(layout) == chunks


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", '{"a": 1}', "not a DeepSpeed configuration"),
        ("a.yaml", "a: [", "not YAML"),
        ("a.yaml", "- 1", "a YAML mapping is expected"),
        ("a.yaml", "a: 1", "not a launch file of a known kind"),
        ("a.toml", "[x]\ny = 1", "not a torchtitan configuration"),
        ("a.py", "import torch", "a Python program that names no model"),
        ("a.sh", "echo hello", "not a launch file of a known kind"),
        ("a.sh", "", "not a launch file of a known kind"),
    ],
)
def test_what_is_no_launch_file_is_refused(name, text, part):
    with pytest.raises(GpuscaleError, match=part):
        read_launch({name: text})
