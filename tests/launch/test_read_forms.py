"""More forms of launch files: RL, performance scripts, manifests, settings of older releases."""

import json

import pytest

from gpuscale.cli.app import run
from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.detect import read_launch

VERL = """
MODEL=$HOME/models/Qwen3-8B
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 \\
  data.max_prompt_length=512 data.max_response_length=1536 actor_rollout_ref.model.path=$MODEL \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=True trainer.nnodes=2 \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.n_gpus_per_node=8 $@
"""

VERL_MEGATRON = """
python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer.yaml' \\
  algorithm.adv_estimator=gae actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B \\
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \\
  actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 trainer.nnodes=4
"""

OPENRLHF = """
read -r -d '' OPTIONS <<EOF
openrlhf.cli.train_dpo --pretrain meta-llama/Meta-Llama-3-8B --micro_train_batch_size 2 \\
  --train_batch_size 64 --max_len 4096 --zero_stage 3 --gradient_checkpointing
EOF
deepspeed --num_gpus 8 --module $OPTIONS
"""

RAY = """
ARGS=(--actor.model_name_or_path Qwen/Qwen3-4B --rollout.batch_size 64 --train.batch_size 512
  --rollout.n_samples_per_prompt 8 --data.max_len 5120 --rollout.max_new_tokens 4096)
ray job submit -- python3 -m openrlhf.cli.train_ppo_ray ${ARGS[@]} --ds.ring_attn_size 2 \\
  --algo.advantage.estimator reinforce_baseline --actor.num_nodes 2 --actor.num_gpus_per_node 4
"""

PERFORMANCE = """
worker=$(cat <<- EOM
  if [ "\\$RANK" -eq "0" ]; then echo first ; fi ;
  nsys profile -o "/$LOGS/x" python scripts/performance/custom_setup_experiment.py --gpu gb200 \\
    --model_recipe_name qwen3_30b_a3b --num_gpus 16 --gpus_per_node 4 --compute_dtype fp8_mx \\
    --pipeline_model_parallel_size 2 --expert_model_parallel_size 8 --global_batch_size 512 \\
    --recompute_modules moe_act --seq_length 4096
EOM
)
echo "$worker" > worker.sh
torchrun --nproc-per-node="4" --nnodes="4" --no-python bash worker.sh
"""

NEMO = """
run: {name: small}
trainer: {num_nodes: 2, devices: 8, precision: bf16}
model:
  tensor_model_parallel_size: 2
  encoder_seq_length: 4096
  micro_batch_size: 1
  num_layers: 4
  hidden_size: 1024
  ffn_hidden_size: 2816
  num_attention_heads: 16
  num_query_groups: 4
  activation: fast-swiglu
  share_embeddings_and_output_weights: false
  bias: false
  override_vocab_size: 32000
  optim: {name: distributed_fused_adam}
  peft: {peft_scheme: lora, lora_tuning: {adapter_dim: 64}}
"""

OLD_TOML = """
[model]
name = "llama3"
flavor = "70B"
[training]
batch_size = 2
seq_len = 8192
tensor_parallel_degree = 4
data_parallel_replicate_degree = 2
[experimental]
pipeline_parallel_degree = 2
"""

JOBSET = """
kind: JobSet
spec:
  replicatedJobs:
  - replicas: 2
    template:
      spec:
        template:
          spec:
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: tpu7x
              cloud.google.com/gke-tpu-topology: 4x4x4
            containers:
            - command: [bash, -c, "echo start; (export A=1 && python3 -m MaxText.train
                configs/base.yml model_name=llama3.1-8b per_device_batch_size=1
                max_target_length=4096) & wait"]
"""

FSDP = """#SBATCH --nodes=2
#SBATCH --gres=gpu:a100:4
export LAUNCHER="accelerate launch --num_machines $SLURM_NNODES --num_processes 8 \\
  --use_fsdp --fsdp_sharding_strategy FULL_SHARD --mixed_precision bf16"
srun $LAUNCHER train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2
"""

WRITTEN = """
GBS=32
cat > ds.json <<EOF
{"train_batch_size": $GBS, "zero_optimization": {"stage": $STAGE}, "bf16": {"enabled": true}}
EOF
deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path Qwen/Qwen3-8B
"""

FRAGMENT = """
TP=${TP:-4}
MODEL_ARGS=(--num-layers 8 --hidden-size 512 --num-attention-heads 8)
PARALLEL="--tensor-model-parallel-size $TP --seq-length 2048 --micro-batch-size 2"
"""

GRPO = """
model_name_or_path: Qwen/Qwen3-1.7B
per_device_train_batch_size: 8
gradient_accumulation_steps: 2
max_prompt_length: 256
max_completion_length: 768
num_generations: 4
"""

SERVER = """
kind: Deployment
spec: {template: {spec: {
  nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4},
  containers: [{command: [python3, -m, vllm.entrypoints.openai.api_server],
    args: [--model=Qwen/Qwen3-8B, --tensor-parallel-size=2]}]}}}
"""

DSTACK = """
type: service
commands: [vllm serve Qwen/Qwen3-32B --tensor-parallel $DSTACK_GPUS_NUM]
resources: {gpu: "MI300X:4", shm_size: 16GB}
"""

PRIMUS = """
modules:
  pre_trainer:
    framework: megatron
    model: mixtral_8x22B_v0.1.yaml
    overrides:
      micro_batch_size: 2
      global_batch_size: ${PRIMUS_GBS:128}
      seq_length: ${PRIMUS_SEQ_LENGTH:4096}
      expert_model_parallel_size: 8
"""

STACK = """
servingEngineSpec:
  modelSpec:
  - name: one
    modelURL: openai/gpt-oss-20b
    requestGPU: 2
    vllmConfig: {tensorParallelSize: 2, maxModelLen: 8000, extraArgs: [--max-num-seqs, "16"]}
"""

NODES = """
torchrun --nnodes $(grep -c host hosts) --nproc-per-node 8 pretrain_gpt.py --num-layers 2 \\
  --tensor-model-parallel-size 2
"""

SLIME = """
PERF=(--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 4
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1)
ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate \\
  --hf-checkpoint $BASE/Qwen3-30B-A3B/ --rollout-batch-size 32 --n-samples-per-prompt 8 \\
  --rollout-max-response-len 8192 --global-batch-size 256 --rollout-num-gpus-per-engine 8 ${PERF[@]}
"""

INTERPOLATED = """
trainer: {devices: 8, num_nodes: 1}
model:
  tensor_model_parallel_size: 1
  micro_batch_size: 2
  data: {train_ds: {micro_batch_size: "${model.micro_batch_size}", max_seq_length: 2048}}
"""

DYNAMIC = (
    "actor_rollout_ref.actor.use_dynamic_bsz=True "
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384"
)

CASES = [
    (
        "a.yaml",
        PRIMUS,
        {
            "kind": "megatron",
            "version": "Primus",
            "model_name": "mixtral-8x22b",
            "global_batch_size": 128,
            "seq_len": 4096,
            "ep": 8,
        },
    ),
    ("a.yaml", STACK, {"kind": "vllm", "tp": 2, "seq_len": 8000, "max_seqs": 16}),
    ("a.sh", NODES, {"gpus_per_node": 8, "n_nodes": None, "world_size": None}),
    (
        "a.sh",
        SLIME,
        {
            "kind": "slime",
            "model_name": "Qwen3-30B-A3B",
            "world_size": 16,
            "tp": 2,
            "ep": 4,
            "global_batch_size": 256,
            "recompute": "full",
            "rl": {
                "method": "grpo",
                "prompts": 32,
                "group": 8,
                "max_response": 8192,
                "rollout_tp": 8,
                "no_kl": True,
            },
        },
    ),
    (
        "a.sh",
        "torchrun finetune.py --model_name_or_path a/b --use_lora --bf16 True",
        {"kind": "trainer", "method": "lora"},
    ),
    ("a.yaml", INTERPOLATED, {"micro_batch_size": 2, "seq_len": 2048}),
    ("a.sh", VERL.replace("trainer.nnodes=2", DYNAMIC), {"micro_batch_size": 8}),
    (
        "a.sh",
        VERL,
        {
            "kind": "verl",
            "model_name": "Qwen3-8B",
            "world_size": 16,
            "zero_stage": 3,
            "micro_batch_size": 4,
            "global_batch_size": 2048,
            "seq_len": 2048,
            "offload_optimizer": True,
            "rl": {
                "method": "grpo",
                "prompts": 256,
                "prompt": 512,
                "max_response": 1536,
                "group": 8,
                "rollout_tp": 2,
                "no_kl": True,
            },
        },
    ),
    ("a.sh", VERL_MEGATRON, {"tp": 4, "ep": 8, "zero_stage": 1, "seq_len": 1024}),
    (
        "a.sh",
        OPENRLHF,
        {
            "kind": "openrlhf",
            "zero_stage": 3,
            "micro_batch_size": 2,
            "global_batch_size": 64,
            "seq_len": 4096,
            "recompute": "full",
            "world_size": 8,
            "rl": {"method": "dpo"},
        },
    ),
    (
        "a.sh",
        RAY,
        {
            "cp": 2,
            "world_size": 8,
            "global_batch_size": 512,
            "rl": {
                "method": "reinforce++",
                "prompts": 64,
                "group": 8,
                "max_response": 4096,
                "prompt": 1024,
            },
        },
    ),
    (
        "a.sh",
        PERFORMANCE,
        {
            "kind": "megatron-bridge",
            "model_name": "qwen3-30b-a3b",
            "world_size": 16,
            "pp": 2,
            "ep": 8,
            "precision": "mxfp8",
            "gpu": "gb200",
            "recompute": "selective",
            "settings": {"recompute_modules": ("moe_act",)},
        },
    ),
    (
        "a.yaml",
        NEMO,
        {"tp": 2, "world_size": 16, "method": "lora", "lora_rank": 64, "zero_stage": 1},
    ),
    ("a.toml", OLD_TOML, {"tp": 4, "pp": 2, "dp_replicate": 2, "micro_batch_size": 1}),
    (
        "a.yaml",
        JOBSET,
        {"kind": "maxtext", "world_size": 128, "gpu": "tpu-v7x", "micro_batch_size": 2},
    ),
    ("a.sbatch", FSDP, {"world_size": 8, "zero_stage": 3, "precision": "bf16", "gpu": "a100"}),
    ("a.sh", WRITTEN, {"kind": "trainer", "global_batch_size": 32, "precision": "bf16"}),
    ("a.sh", FRAGMENT, {"kind": "megatron", "tp": 4, "seq_len": 2048, "micro_batch_size": 2}),
    (
        "a.yaml",
        GRPO,
        {
            "kind": "trainer",
            "seq_len": 1024,
            "rl": {"method": "grpo", "group": 4, "prompt": 256, "max_response": 768, "no_kl": True},
        },
    ),
    ("a.yaml", SERVER, {"kind": "vllm", "tp": 2, "gpu": "l4", "not_understood": []}),
    ("a.dstack.yml", DSTACK, {"kind": "vllm", "tp": 4, "gpu": "mi300x"}),
    (
        "a.yml",
        "base_model: a/b\nload_in_8bit: true\nadapter: lora\nlora_r: 8\nrl: dpo\n",
        {"kind": "axolotl", "weights": "int8", "rl": {"method": "dpo"}},
    ),
    (
        "a.sh",
        "torchrun --nproc_per_node 8 train.py --num-layers 2 --hidden-size 64 --freeze-LM "
        "--num-attention-heads 4 --tensor-model-parallel-size 2",
        {"beyond": ["train.py --freeze-LM: not the training of a decoder-only language model"]},
    ),
    (
        "a.sh",
        "torchrun pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 2\n"
        "torchrun pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 4 --seq-length 64\n",
        {"tp": 4, "unresolved": ["one of 2 commands: others are not read"]},
    ),
]


@pytest.mark.parametrize(("name", "text", "wanted"), CASES)
def test_a_form_of_launch_file_is_read(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_the_model_of_a_nemo_file_is_built():
    model = read_launch({"a.yaml": NEMO}).model
    assert model.n_layers == 4 and model.vocab_size == 32000 and not model.tie_embeddings
    assert model.ffns["dense"].gated and model.mixers["full"].n_kv_heads == 4


def test_a_toml_beside_its_script_says_the_rest():
    script = (
        "torchrun --nproc_per_node 8 train.py --job.config_file ./llama3_70b.toml "
        "--training.seq_len 4096 torchtitan"
    )
    alone = read_launch({"a.sh": script})
    assert alone.beside == ["llama3_70b.toml"] and alone.model_name == "llama3.1-70b"
    both = read_launch({"a.sh": script, "llama3_70b.toml": OLD_TOML})
    assert (both.tp, both.pp, both.seq_len, both.zero_stage) == (4, 2, 4096, 2)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("README", "# Title\n```bash\nimport this\n```\n", "a page or notes"),
        ("a.yaml", "size: {{ .Values.size }}\n", "a Helm template"),
    ],
)
def test_what_is_no_launch_file_is_named(name, text, why):
    with pytest.raises(GpuscaleError, match=why):
        read_launch({name: text})


def check(tmp_path, capsys, text, *more, name="run.sh"):
    path = tmp_path / name
    path.write_text(text)
    code = run(["launch-check", str(path), *more, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_rl_is_answered_as_memory_does(tmp_path, capsys):
    code, launch = check(tmp_path, capsys, VERL, "--cluster", "dgx-h100")
    line = (
        "memory qwen3-8b --gpus 16 --method grpo --software verl --zero 3 --micro-batch 4 "
        "--prompts 256 --group 8 --prompt 512 --max-response 1536 --rollout-tp 2 "
        "--offload optimizer --recompute full --no-kl --json"
    )
    run(line.split())
    memory = json.loads(capsys.readouterr().out)["result"]
    r = launch["result"]
    assert code == 0 and r["kind"] == "verl" and r["method"] == "grpo"
    assert (r["step_s"], r["peak_bytes"]) == (memory["step_s"], memory["peak_bytes"])


def test_adapters_over_megatron_are_predicted(tmp_path, capsys):
    text = (
        "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --tuner_type lora "
        "--lora_rank 8 --expert_model_parallel_size 8 --micro_batch_size 2 --global_batch_size 16 "
        "--max_length 2048"
    )
    code, launch = check(tmp_path, capsys, text)
    r = launch["result"]
    assert code == 0 and r["software"] == "megatron-swift" and not r["missing"]
    line = (
        "memory qwen3-30b-a3b --gpus 8 --method lora --rank 8 --software megatron-swift --ep 8 "
        "--zero 1 --micro-batch 2 --global-batch 16 --seq-len 2048 --recompute none --json"
    )
    run(line.split())
    assert r["peak_bytes"] == json.loads(capsys.readouterr().out)["result"]["peak_bytes"]


def test_the_gpu_of_a_file_is_the_one_asked_about(tmp_path, capsys):
    _, own = check(tmp_path, capsys, FSDP, "--seq-len", "1024")
    assert own["inputs"]["cluster"] == own["result"]["gpu"] == "a100"
    _, other = check(tmp_path, capsys, FSDP, "--seq-len", "1024", "--cluster", "dgx-h100")
    assert other["inputs"]["cluster"] == "dgx-h100"


AXOLOTL = """base_model: Qwen/Qwen3-14B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
sequence_len: 8192
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
gradient_checkpointing: true
flash_attention: true
"""


def test_another_loss_is_one_of_the_changes(tmp_path, capsys):
    machine = ("--gpu", "3090", "--gpus", "2")
    _, launch = check(tmp_path, capsys, AXOLOTL, *machine, name="a.yml")
    r, loss = launch["result"], {"field": "loss", "have": "eager", "best": "fused"}
    assert loss in r["changes"] and r["left"] == []
    assert "+liger_fused_linear_cross_entropy: true" in r["diff"]
    assert "+plugins: [axolotl.integrations.liger.LigerPlugin]" in r["diff"]
    text = AXOLOTL + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
    text += "liger_fused_linear_cross_entropy: true\n"
    for c in (c for c in r["changes"] if c != loss):
        key = c["field"].replace("accumulation", "gradient_accumulation_steps")
        text = text.replace(f"{key}: {c['have']}", f"{key}: {c['best']}")
    _, then = check(tmp_path, capsys, text, *machine, name="b.yml")
    assert then["result"]["fits"]
    assert then["result"]["peak_bytes"] == pytest.approx(r["best_peak_bytes"])


def test_the_key_of_a_fused_loss_is_written(tmp_path, capsys):
    text = """stage: sft
do_train: true
model_name_or_path: Qwen/Qwen3-14B
finetuning_type: lora
quantization_bit: 4
cutoff_len: 8192
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
    _, launch = check(tmp_path, capsys, text, "--gpu", "3090", "--gpus", "2", name="a.yaml")
    r = launch["result"]
    assert "+enable_liger_kernel: true" in r["diff"], r["changes"]
    assert not [c for c in r["left"] if c["field"] == "loss"]
