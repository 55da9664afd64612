"""Launch files in the forms that public repositories have them: what of them is read."""

import pytest

from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.detect import read_launch

DEEPSPEED = """
GPUS_PER_NODE=4
NNODES=4
ARGS=" --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 \\
  --max-position-embeddings 2048 --micro-batch-size 8 --global-batch-size 512 --fp16 \\
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --checkpoint-activations \\
  --deepspeed --deepspeed_config ds.json --zero-stage 1 "
export LAUNCHER="torch.distributed.launch --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
export CMD="$(pwd)/pretrain_gpt.py $ARGS"
srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD'
"""

SWIFT = """
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\
NPROC_PER_NODE=4 \\
megatron sft --model Qwen/Qwen3-30B-A3B-Base --tuner_type full --expert_model_parallel_size 4 \\
  --micro_batch_size 1 --global_batch_size 16 --max_length 8192 --sequence_parallel true \\
  --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
"""

MAXTEXT = """
ARGS="model_name=llama3.1-70b per_device_batch_size=0.125 ici_fsdp_parallelism=-1 \\
ici_context_parallelism=8 max_target_length=131072 quantization=fp8_full remat_policy=custom"
xpk workload create --device-type=tpu7x-4x8x8 --num-slices=1 \\
  --command="set -e && python3 -m maxtext.trainers.pre_train.train maxtext/configs/base.yml $ARGS"
"""

MESH = (
    "python3 -m MaxText.train configs/base.yml model_name=llama2-7b per_device_batch_size=2 "
    "dcn_data_parallelism=16 ici_fsdp_parallelism=8"
)

KUBERNETES = """
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - command: [torchrun, --nproc_per_node=8, --nnodes=2, pretrain_gpt.py, --num-layers, '2',
              --hidden-size, '64', --num-attention-heads, '4', --seq-length, '512',
              --tensor-model-parallel-size, '2', --micro-batch-size, '1', --global-batch-size, '8']
            resources: {limits: {nvidia.com/gpu: 8}}
"""

SERVED = """
kind: Deployment
spec:
  template:
    spec:
      containers:
      - command: ["/bin/sh", "-c"]
        args: ["vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2"]
"""

OWN = """#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
srun torchrun --nproc_per_node=8 --nnodes=$SLURM_JOB_NUM_NODES ./train.py --hidden_width=2048
"""

LWS = """
kind: LeaderWorkerSet
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
        - command: [sh, -c, "bash serve.sh leader; python3 -m vllm.entrypoints.openai.api_server
            --model meta-llama/Llama-3.1-405B-Instruct -tp 8 --pipeline_parallel_size 2"]
---
kind: Service
"""

ARGUMENTS = """
MODEL_PATH=a/b
while getopts "m:h" opt; do
  case $opt in
    m) MODEL_PATH="$OPTARG" ;;
    ?) echo "no" ;;
  esac
done
srun bash -c "vllm serve $MODEL_PATH -tp 8 -pp 4"
"""

TABLE = """
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --bf16: true
  --sequence-parallel: true
  --swiglu: false
  --tensor-model-parallel-size: 2
  --expert-model-parallel-size: 2
"""

BRIDGE = """
model:
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 2
  pipeline_model_parallel_layout: [[embedding, decoder], [decoder, decoder], [decoder, loss]]
  recompute_granularity: selective
  recompute_modules: [mla_up_proj, moe_act]
  moe_token_dispatcher_type: flex
  moe_flex_dispatcher_backend: hybridep
  cuda_graph_impl: transformer_engine
optimizer:
  exp_avg_dtype: bf16
  exp_avg_sq_dtype: bf16
"""

DSTACK = """
type: service
env: [MODEL=openai/gpt-oss-120b, HF_TOKEN]
commands:
  - vllm serve $MODEL --tensor-parallel-size 2
"""

CASES = [
    ("a.dstack.yml", DSTACK, {"kind": "vllm", "model_name": "openai/gpt-oss-120b", "tp": 2}),
    ("a.yaml", LWS, {"kind": "vllm", "tp": 8, "pp": 2, "n_gpus": 16}),
    ("a.slurm", ARGUMENTS, {"kind": "vllm", "model_name": "a/b", "tp": 8, "pp": 4}),
    ("a.yaml", TABLE, {"kind": "megatron", "tp": 2, "ep": 2, "sequence_parallel": True}),
    (
        "a.yaml",
        BRIDGE,
        {
            "stage_layers": (1, 2, 1),
            "settings": {
                "cuda_graphs": "layer",
                "dispatcher": "hybridep",
                "recompute_modules": ("mla_up_proj", "moe_act"),
                "moments": "bf16",
            },
        },
    ),
    (
        "a.slurm",
        DEEPSPEED,
        {
            "kind": "megatron",
            "software": "megatron-deepspeed",
            "tp": 4,
            "pp": 2,
            "zero_stage": 1,
            "recompute": "full",
            "world_size": 16,
            "not_understood": [],
        },
    ),
    (
        "a.sh",
        SWIFT,
        {"kind": "ms-swift", "ep": 4, "world_size": 4, "seq_len": 8192, "sequence_parallel": True},
    ),
    (
        "a.sh",
        MAXTEXT,
        {"kind": "maxtext", "cp": 8, "world_size": 256, "seq_len": 131072, "micro_batch_size": 2},
    ),
    ("a.sh", MESH, {"world_size": 128, "dp_replicate": 16, "zero_stage": 3, "seq_len": 2048}),
    ("a.yaml", KUBERNETES, {"kind": "megatron", "world_size": 16, "tp": 2, "seq_len": 512}),
    ("a.yaml", SERVED, {"kind": "vllm", "tp": 2, "method": "serve"}),
    ("a.sbatch", OWN, {"kind": "program", "world_size": 32, "not_understood": ["--hidden_width"]}),
    (
        "a.sh",
        "MODEL=7B\ncase $MODEL in\n7B)\nTP=2\n;;\n*)\nTP=8\n;;\nesac\n"
        "for LR in 1e-4 2e-4; do\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 "
        "--tensor-model-parallel-size $TP --lr $LR --seq-length $N\ndone",
        {"tp": 2, "unread": {"seq_len": "$N"}},
    ),
]


@pytest.mark.parametrize(("name", "text", "wanted"), CASES)
def test_a_form_of_launch_file_is_read(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_a_name_of_an_environment_is_no_server():
    with pytest.raises(GpuscaleError, match="not a launch file"):
        read_launch({"a.slurm": "conda activate sglang\npython router.py --port 80\n"})


def test_a_page_is_no_launch_file():
    with pytest.raises(GpuscaleError, match="a page or notes"):
        read_launch({"README.md": "# Title\n\nimport this\n"})


SMALL = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
FLAGS = f"{SMALL} --max-position-embeddings 1024"


@pytest.mark.parametrize(
    ("text", "world_size"),
    [
        (f"torchrun pretrain_gpt.py {FLAGS}", 1),  # torchrun's own default
        (f"NUM_GPUS=64\ndeepspeed pretrain_gpt.py {FLAGS}", 64),
        (f"#SBATCH -N 2\nNUM_GPUS=16\nsrun python pretrain_gpt.py {FLAGS}", 16),
        (f"#SBATCH -N 2\nNUM_GPUS=4\nsrun python pretrain_gpt.py {FLAGS}", 8),
        (f"#SBATCH -G H100:4\npython pretrain_gpt.py {FLAGS}", 4),
        (f"#SBATCH --gres=gpu:8 -N 1\nsrun -n 1 -N 1 ray start\npython pretrain_gpt.py {FLAGS}", 8),
        (
            "#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-task=1\n"
            f"srun python pretrain_gpt.py {FLAGS}",
            8,
        ),
        (f"srun accelerate launch --num_processes $N pretrain_gpt.py {FLAGS}", None),
    ],
)
def test_gpus_are_those_of_the_command_that_trains(text, world_size):
    assert read_launch({"run.sh": text}).world_size == world_size


def test_old_megatron_says_the_batch_of_a_replica_and_a_fork_names_its_program_otherwise():
    text = f"python -m torch.distributed.launch --nproc_per_node 8 finetune_gpt.py {FLAGS}"
    found = read_launch({"run.sh": f"{text} --batch-size 8 --model-parallel-size 2 --fp16"})
    assert (found.kind, found.micro_batch_size, found.tp) == ("megatron", 8, 2)
    assert found.model is not None and found.model.position == "learned"


def test_an_account_names_the_gpu():
    text = "#SBATCH --account=abc@v100\n#SBATCH --gres=gpu:4\nsrun python pretrain_gpt.py " + FLAGS
    assert read_launch({"run.slurm": text}).gpu == "v100"


def test_scripts_that_a_script_starts_and_sources_are_read_with_it():
    inner = f"TP=$1\nsource ./env.sh\ntorchrun --nproc_per_node $G pretrain_gpt.py {FLAGS} "
    files = {
        "inner.sh": f"{inner} --tensor-model-parallel-size $TP",
        "d/env.sh": "export G=8",
        "outer.sbatch": "#SBATCH -N 2\nsrun bash inner.sh 4",
    }
    found = read_launch(files)
    assert (found.tp, found.world_size) == (4, 16)
    with pytest.raises(GpuscaleError, match="starts inner.sh"):
        read_launch({"outer.sbatch": files["outer.sbatch"]})


def test_a_program_of_ones_own_says_what_any_program_means():
    text = (
        "MODEL=''\nwhile [ $# -gt 0 ]; do case $1 in --model) MODEL=$2; shift 2;; esac; done\n"
        "torchrun --nproc_per_node 8 tune.py --model $MODEL --max_seq_len 4096 --cfg my_$MODEL.yaml"
    )
    found = read_launch({"run.sh": text})
    assert (found.kind, found.world_size, found.seq_len) == ("program", 8, 4096)
    assert found.beside == ["my_\x00$MODEL.yaml"]


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        ("--overlapped-distributed-optimizer", "zero_stage", 1),
        ("--no-cuda", "other_machine", "processors without a GPU"),
    ],
)
def test_options_of_forks_of_megatron(options, field, expected):
    found = read_launch({"run.sh": f"torchrun pretrain_gpt.py {FLAGS} --bf16 {options}"})
    assert getattr(found, field) == expected


def test_multiquery_attention_of_bigcodes_fork_has_one_head_of_keys():
    found = read_launch(
        {"run.sh": f"torchrun pretrain_gpt.py {FLAGS} --attention-head-type multiquery"}
    )
    assert found.model is not None and found.model.mixers["full"].n_kv_heads == 1


def test_programs_of_megatron_that_do_not_pretrain_are_told():
    for program in ("tasks/main.py", "examples/export/gpt_ptq.py", "tools/generate_samples_gpt.py"):
        found = read_launch({"run.sh": f"torchrun --nproc_per_node 8 {program} {FLAGS} --bf16"})
        assert found.beyond and program in found.beyond[0]


def test_qwens_script_says_its_adapters_over_4_bits_by_an_option_of_its_own():
    text = "torchrun finetune.py --model_name_or_path Qwen/Qwen-7B-Chat --use_lora --q_lora"
    found = read_launch({"run.sh": f"{text} --per_device_train_batch_size 2"})
    assert found.method == "qlora"


SHAPE = "--num-layers 12 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --bf16 "
RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 " + SHAPE


@pytest.mark.parametrize(
    ("text", "layers", "vocabulary"),
    [  # symbols of mamba_hybrid_layer_allocation.py; vocabularies padded to 128 as Megatron does
        (RUN + "--hybrid-layer-pattern M-*E --num-experts 8", (1, 1, 2), 50304),
        (RUN + "--hybrid-attention-ratio 0.25 --hybrid-mlp-ratio 0.5", (3, 3, 6), 50304),
        (RUN + "--tokenizer-type Llama2Tokenizer", (0, 12, 0), 32000),
        (RUN + "--tokenizer-model /data/Qwen/Qwen3-8B", (0, 12, 0), 151936),
    ],
)
def test_layers_of_a_pattern_and_entries_of_a_tokenizer(text, layers, vocabulary):
    model = read_launch({"a.sh": text}).model
    runs = [one.split(" x ") for one in model.layers.split(", ")]
    count = {
        k: sum(int(n) for n, of in runs if of.startswith(k)) for k in ("mamba", "full", "none")
    }
    assert (tuple(count.values()), model.vocab_size) == (layers, vocabulary)


def test_layers_that_do_not_divide_into_stages_are_refused():
    found = read_launch({"a.sh": RUN + "--pipeline-model-parallel-size 8"})
    assert "12 layers do not divide into 8 stages" in found.wrong[0]
    split = "--decoder-last-pipeline-num-layers 5"
    assert not read_launch({"a.sh": RUN + "--pipeline-model-parallel-size 8 " + split}).wrong


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("mpiexec -n 16 -ppn 4 python3 train.py --a 1", 16),
        ("deepspeed -i worker-0:0,1 pretrain_gpt.py --deepspeed " + SHAPE, 2),
        (
            "python3 train_async.py --actor-num-gpus-per-node 4 --actor-num-nodes 1 "
            "--rollout-num-gpus 2 --rollout-batch-size 8 --num-layers 2",
            6,
        ),
    ],
)
def test_gpus_of_launchers(text, gpus):
    assert read_launch({"a.sh": text}).world_size == gpus


def test_layers_of_a_list_and_a_job_that_a_script_writes_in_an_unknown_folder():
    split = "--pipeline-model-parallel-size 2 --num-layer-list 7,5"
    assert read_launch({"a.sh": RUN + split}).stage_layers == (7, 5)
    body = "cat > $ROOT/job.sbatch <<EOM\n#!/bin/bash\n#SBATCH --nodes=$N\n" + RUN + "\nEOM\n"
    found = read_launch({"a.sh": "N=4\n" + body + "sbatch $ROOT/job.sbatch"})
    assert found.world_size == 32


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sft.yaml", "model_name_or_path: a/b\nfinetuning_type: full\nenable_liger_kernel: true\n"),
        ("sft.yml", "base_model: a/b\nadapter: lora\nliger_fused_linear_cross_entropy: true\n"),
        (
            "a.sh",
            "python sft.py --model_name_or_path a/b --deepspeed d.json --use_liger_kernel True",
        ),
        ("b.sh", "swift sft --model a/b --train_type full --use_liger_kernel true"),
    ],
)
def test_a_fused_loss_is_read_where_it_is_said(name, text):
    assert read_launch({name: text}).tuning == {"loss": "fused"}
