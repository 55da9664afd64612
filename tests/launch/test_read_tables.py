"""Configurations that are one table, of frameworks that have no command of their own to read."""

import pytest

from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.detect import read_launch
from gpuscale.launch.read.kinds import KINDS

SHAPE = "hidden_size: 512, num_hidden_layers: 4, num_attention_heads: 8, intermediate_size: 1024"
NEOX = """{
  # a comment, and a comma at the end: YAML, not JSON
  "pipe-parallel-size": 2, "model-parallel-size": 4, "num-layers": 12, "hidden-size": 768,
  "num-attention-heads": 12, "seq-length": 2048, "pos-emb": "rotary", "norm": "rmsnorm",
  "activation": "swiglu", "intermediate-size": 6144, "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true},
  "checkpoint-activations": true, "no-weight-tying": true,
}"""
NANOTRON = f"""
parallelism: {{dp: 4, tp: 2, pp: 2, tp_mode: REDUCE_SCATTER, recompute_layer: true}}
tokens: {{micro_batch_size: 2, batch_accumulation_per_replica: 8, sequence_length: 4096}}
optimizer: {{zero_stage: 1}}
model: {{dtype: bfloat16, model_config: {{{SHAPE}, num_key_value_heads: 2, vocab_size: 32000}}}}
"""
FOUNDRY = """
variables: {max_seq_len: 2048}
max_seq_len: ${variables.max_seq_len}
model: {name: mpt_causal_lm, d_model: 1024, n_heads: 8, n_layers: 6, expansion_ratio: 4,
  vocab_size: 50368}
train_loader: {name: text}
global_train_batch_size: 256
device_train_microbatch_size: 4
precision: amp_bf16
fsdp_config: {sharding_strategy: SHARD_GRAD_OP, activation_checkpointing: true}
"""
OLMO = """
model: {d_model: 2048, n_heads: 16, n_layers: 8, mlp_hidden_size: 16384, max_sequence_length: 4096,
  vocab_size: 100278, embedding_size: 100352, weight_tying: false, rope: true,
  layer_norm_type: rms, activation_type: swiglu}
global_train_batch_size: 1024
device_train_microbatch_size: 2
precision: amp_bf16
fsdp: {sharding_strategy: null}
activation_checkpointing: one_in_four
"""
LINGUA = """
distributed: {fsdp_type: full_shard, tp_size: 2, dp_replicate: 2, dp_shard: 8}
model: {dim: 3072, n_layers: 4, n_heads: 24, n_kv_heads: 8, vocab_size: 128256}
data: {root_dir: data, batch_size: 2, seq_len: 4096}
"""
LEVANTER = """
data: {tokenizer: meta-llama/Llama-3.1-8B}
model: {type: llama, seq_len: 4096, hidden_dim: 4096, intermediate_dim: 14336, num_layers: 32,
  num_heads: 32, num_kv_heads: 8}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 512, per_device_parallelism: 4,
  model_axis_size: 2}
"""
TORCHTUNE = """
model: {_component_: torchtune.models.llama3_1.qlora_llama3_1_8b, lora_rank: 16}
tokenizer: {max_seq_len: 4096}
optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit}
batch_size: 2
gradient_accumulation_steps: 8
enable_activation_checkpointing: true
dtype: bf16
"""
LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3.1-8B
precision: bf16-true
devices: 4
num_nodes: 2
train: {global_batch_size: 64, micro_batch_size: 4, max_seq_length: 512}
"""
VEOMNI = """
model: {model_path: Qwen/Qwen3-30B-A3B}
data: {max_seq_len: 8192}
train: {micro_batch_size: 1, global_batch_size: 64, accelerator: {ulysses_size: 4, ep_size: 8}}
"""
OUMI = """
model: {model_name: meta-llama/Llama-3.1-70B-Instruct, model_max_length: 2048,
  torch_dtype_str: bfloat16}
training: {trainer_type: TRL_SFT, use_peft: true, per_device_train_batch_size: 2,
  gradient_accumulation_steps: 4, enable_gradient_checkpointing: true}
peft: {q_lora: true, lora_r: 16}
fsdp: {enable_fsdp: true}
"""
PRIME = """
seq_len = 8192
[model]
name = "Qwen/Qwen3-30B-A3B"
[deployment]
num_train_nodes = 2
[trainer.model]
ep = 8
cp = 2
[trainer.model.ac]
freq = 1
[orchestrator]
batch_size = 512
group_size = 16
sampling = { max_tokens = 4096 }
"""
NEMO_RL = """
defaults: ../grpo_math_1B.yaml
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 32}
policy:
  model_name: openai/gpt-oss-20b
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  megatron_cfg: {enabled: true, expert_model_parallel_size: 8, tensor_model_parallel_size: 4}
  generation: {vllm_cfg: {tensor_parallel_size: 2}}
cluster: {num_nodes: 8, gpus_per_node: 8}
"""
AREAL = """
allocation_mode: sglang:d4t2+megatron:d2p2t4
actor: {path: Qwen/Qwen3-8B, dtype: bfloat16, gradient_checkpointing: true,
  mb_spec: {max_tokens_per_mb: 16384}}
gconfig: {n_samples: 8, max_new_tokens: 3072}
train_dataset: {batch_size: 64, max_length: 1024}
"""
AUTOMODEL = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 256, local_batch_size: 4}
distributed: {strategy: fsdp2, tp_size: 2, cp_size: 4, activation_checkpointing: true}
model: {pretrained_model_name_or_path: Qwen/Qwen3-8B}
peft: {dim: 32}
packed_sequence: {packed_sequence_size: 16384}
"""
MISTRAL = """
model_id_or_path: mistralai/Mistral-7B-v0.3
lora: {rank: 64}
seq_len: 32768
batch_size: 1
"""
ROLL = """
pretrain: Qwen/Qwen2.5-7B-Instruct
rollout_batch_size: 64
prompt_length: 2048
response_length: 4096
num_return_sequences_in_group: 8
adv_estimator: grpo
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 8}
  strategy_args: {strategy_name: megatron_train, strategy_config: {
    tensor_model_parallel_size: 2, recompute_granularity: full}}
  device_mapping: list(range(0,16))
actor_infer: {strategy_args: {strategy_config: {tensor_parallel_size: 4}}}
"""
SKYRL = """
uv run -m skyrl.train.entrypoints.main_base trainer.policy.model.path="Qwen/Qwen3-8B" \\
  trainer.algorithm.advantage_estimator="grpo" trainer.placement.policy_num_gpus_per_node=8 \\
  trainer.placement.policy_num_nodes=2 trainer.train_batch_size=128 \\
  trainer.micro_train_batch_size_per_gpu=2 trainer.max_prompt_length=1024 \\
  generator.n_samples_per_prompt=5 generator.sampling_params.max_generate_length=3072
"""
CORE = """
torchrun --nproc-per-node=8 src/examples/llm/train.py run --model-factory=olmo2_7B \\
  --sequence-length=4096 --train_module.rank_microbatch_size=8192 \\
  --data_loader.global_batch_size=1048576 --train_module.dp_config.name=hsdp \\
  --train_module.dp_config.num_replicas=2 "--train_module.ac_config={mode: full}"
"""
SAMPLES = {"method": "grpo", "prompts": 32, "group": 16, "max_response": 4096}
CASES = [
    ("a.yml", NEOX, "gpt-neox", {"pp": 2, "tp": 4, "zero_stage": 1, "precision": "bf16"}),
    ("a.yml", NEOX, "gpt-neox", {"accumulation": 8, "recompute": "full", "seq_len": 2048}),
    ("a.yaml", NANOTRON, "nanotron", {"world_size": 16, "zero_stage": 1, "accumulation": 8}),
    ("a.yaml", NANOTRON, "nanotron", {"sequence_parallel": True, "recompute": "full"}),
    ("a.yaml", FOUNDRY, "llm-foundry", {"seq_len": 2048, "zero_stage": 2, "precision": "bf16"}),
    ("a.yaml", OLMO, "olmo", {"global_batch_size": 1024, "recompute_layers": 2, "zero_stage": 3}),
    ("a.yaml", LINGUA, "lingua", {"world_size": 32, "dp_replicate": 2, "tp": 2, "zero_stage": 3}),
    ("a.yaml", LEVANTER, "levanter", {"global_batch_size": 512, "micro_batch_size": 4, "tp": 2}),
    (
        "a.yaml",
        TORCHTUNE,
        "torchtune",
        {"model_name": "llama3.1-8b", "method": "qlora", "lora_rank": 16, "seq_len": 4096},
    ),
    ("a.yaml", TORCHTUNE, "torchtune", {"optimizer": "paged-adamw-8bit", "recompute": "full"}),
    (
        "a.yaml",
        LITGPT,
        "litgpt",
        {"model_name": "meta-llama/Meta-Llama-3.1-8B", "world_size": 8, "zero_stage": 3},
    ),
    ("a.yaml", VEOMNI, "veomni", {"cp": 4, "cp_kind": "ulysses", "ep": 8, "recompute": "full"}),
    ("a.yaml", OUMI, "oumi", {"method": "qlora", "lora_rank": 16, "zero_stage": 3}),
    ("a.toml", PRIME, "prime-rl", {"world_size": 16, "cp": 2, "ep": 8, "rl": SAMPLES}),
    ("a.yaml", NEMO_RL, "nemo-rl", {"world_size": 64, "tp": 4, "ep": 8, "zero_stage": 1}),
    (
        "a.yaml",
        NEMO_RL,
        "nemo-rl",
        {"global_batch_size": 2048, "seq_len": 4096, "beside": ["../grpo_math_1B.yaml"]},
    ),
    ("a.yaml", AUTOMODEL, "nemo-automodel", {"tp": 2, "cp": 4, "lora_rank": 32, "seq_len": 16384}),
    ("a.yaml", MISTRAL, "mistral-finetune", {"method": "lora", "lora_rank": 64, "seq_len": 32768}),
    ("a.yaml", ROLL, "roll", {"tp": 2, "world_size": 16, "recompute": "full", "seq_len": 6144}),
    ("a.sh", SKYRL, "skyrl", {"world_size": 16, "global_batch_size": 640, "seq_len": 4096}),
    ("a.sh", CORE, "olmo-core", {"model_name": "olmo2-7b", "micro_batch_size": 2, "zero_stage": 3}),
    ("a.sh", CORE, "olmo-core", {"global_batch_size": 256, "dp_replicate": 2, "recompute": "full"}),
    ("a.yaml", AREAL, "areal", {"tp": 4, "pp": 2, "world_size": 24, "micro_batch_size": 4}),
]


@pytest.mark.parametrize(("name", "text", "kind", "wanted"), CASES)
def test_a_table_is_read(name, text, kind, wanted):
    found = read_launch({name: text})
    assert found.kind == kind
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_every_dialect_has_a_file_here():
    assert {kind for _, _, kind, _ in CASES} == {one.kind for one in KINDS.values() if one.told_by}


@pytest.mark.parametrize(
    ("name", "text", "layers", "ffn", "gated", "vocabulary"),
    [
        ("a.yml", NEOX, 12, 2048, True, 50_432),  # a third of 6,144
        ("a.yaml", NANOTRON, 4, 1024, True, 32_000),
        ("a.yaml", FOUNDRY, 6, 4096, False, 50_368),
        ("a.yaml", OLMO, 8, 8192, True, 100_352),  # half of both halves
        ("a.yaml", LINGUA, 4, 8192, True, 128_256),  # 8/3 of 3,072
        ("a.yaml", LEVANTER, 32, 14_336, True, 128_256),  # the vocabulary of the tokenizer's model
    ],
)
def test_the_shape_of_a_table_is_built(name, text, layers, ffn, gated, vocabulary):
    model = read_launch({name: text}).model
    dense = model.ffns["dense"]
    assert (model.n_layers, model.vocab_size) == (layers, vocabulary)
    assert (dense.ffn_hidden_size, dense.gated) == (ffn, gated)


def test_llama3_of_levanter_has_the_parameters_of_the_model():
    from gpuscale.core.model.params import count_params
    from gpuscale.io.models import load_model

    read = read_launch({"a.yaml": LEVANTER}).model
    known = load_model("llama3-8b").spec
    assert count_params(read) == count_params(known)


UNSLOTH = """
from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
max_seq_length = 1024 * 4
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Qwen3-14B", max_seq_length=max_seq_length, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=32, use_gradient_checkpointing="unsloth")
SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2,
    gradient_accumulation_steps=4, optim="adamw_8bit"))
model, tokenizer = FastLanguageModel.from_pretrained(model_name="lora_model")
"""
TRL = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model_name", default="Qwen/Qwen3-8B")
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model_name, torch_dtype=torch.bfloat16)
config = DPOConfig(output_dir="out", per_device_train_batch_size=args.batch_size, bf16=True,
    gradient_checkpointing=True, max_length=2048)
trainer = DPOTrainer(model, args=config)
"""


def test_the_calls_of_a_python_script_say_its_job():
    found = read_launch({"a.py": UNSLOTH})
    wanted = {
        "kind": "unsloth",
        "model_name": "unsloth/Qwen3-14B",
        "method": "qlora",
        "lora_rank": 32,
        "seq_len": 4096,
        "micro_batch_size": 2,
        "accumulation": 4,
        "optimizer": "adamw-8bit",
        "recompute": "full",
        "world_size": 1,
    }
    assert {key: getattr(found, key) for key in wanted} == wanted
    found = read_launch({"a.py": TRL})
    assert (found.model_name, found.micro_batch_size) == ("Qwen/Qwen3-8B", 4)
    assert found.rl == {"method": "dpo"} and found.recompute == "full"


def test_a_python_file_of_an_attacker_is_not_executed():
    bomb = "data = dict(seq_len=9**9**9**9, micro_bsz=2)\nparallel = dict(a=[" + "(" * 500
    grows = "a = [1]\n" + "a = [a, a]\n" * 60 + "model = dict(model_path='x', b=a)\ntrain = dict()"
    for text in (bomb, grows, "x = " + "-" * 5_000 + "1", "import os\nos.abort()\n"):
        with pytest.raises(GpuscaleError, match="a Python program"):
            read_launch({"a.py": text})


COMPOSE = """
services:
  one:
    image: vllm/vllm-openai:${TAG:-latest}
    command: >
      --model ${MODEL:-Qwen/Qwen3-8B}
      --tensor-parallel-size 2
"""
POD = """
kind: Deployment
spec: {template: {spec: {containers: [{image: "vllm/vllm-openai:v0.9",
  env: [{name: MODEL, value: Qwen/Qwen3-8B}],
  args: ["--model", "$(MODEL)", "--tensor-parallel-size=2"]}]}}}
"""
KSERVE = """
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
spec: {model: {uri: "hf://Qwen/Qwen3-8B"}, parallelism: {tensor: 2},
  template: {containers: [{env: [{name: VLLM_ADDITIONAL_ARGS, value: --max-num-seqs 16}]}]}}
"""
PREDICTOR = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec: {predictor: {model: {modelFormat: {name: huggingface},
  args: [--model_id=Qwen/Qwen3-8B, --tensor-parallel-size=2]}}}
"""


CONFIG = "model: Qwen/Qwen3-8B\ntensor-parallel-size: 2\nmax-model-len: 8192\nenforce_eager: true\n"


@pytest.mark.parametrize("text", [COMPOSE, POD, KSERVE, PREDICTOR, CONFIG])
def test_the_arguments_of_an_image_or_a_resource_start_a_server(text):
    found = read_launch({"a.yaml": text})
    assert (found.kind, found.model_name, found.tp) == ("vllm", "Qwen/Qwen3-8B", 2)


def test_other_engines_are_read():
    gguf = "llama-server -m $HOME/models/Qwen3-8B-Q4_K_M.gguf -c 16384 -np 4 -ngl 99"
    found = read_launch({"a.sh": gguf})
    wanted = ("llamacpp", "Qwen3-8B-Q4_K_M", 16384, 4)
    assert (found.kind, found.model_name, found.seq_len, found.max_seqs) == wanted
    found = read_launch({"a.sh": "text-generation-launcher --model-id a/b --num-shard 4"})
    assert (found.kind, found.tp, found.n_gpus) == ("tgi", 4, 4)


def test_older_and_other_words_of_known_frameworks():
    old = "python main_ppo.py actor_rollout_ref.actor.ppo_micro_batch_size=16 trainer.nnodes=1 "
    found = read_launch({"a.sh": old + "trainer.n_gpus_per_node=8"})
    assert found.micro_batch_size == 2
    sft = "torchrun -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=a/b data.max_length=64"
    assert read_launch({"a.sh": sft}).kind == "verl"
    table = '{"model_name_or_path": "a/b", "per_device_train_batch_size": 2, "train_mode": "qlora"}'
    found = read_launch({"sft.json": table})
    assert (found.kind, found.micro_batch_size, found.method) == ("trainer", 2, "qlora")
    nemo = "torchrun train.py --config-name=gpt_sft trainer.devices=2 ++model.restore_from_path=a "
    found = read_launch({"a.sh": nemo + "model.tensor_model_parallel_size=4"})
    assert (found.tp, found.beside) == (4, ["gpt_sft.yaml"])
    found = read_launch({"a.sh": "python train_zero.py --pretrain a/b --zero-stage 2"})
    assert found.kind == "program"


def test_what_a_script_says_of_its_machines():
    one = "#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\nsrun --ntasks-per-node=1 torchrun t.py"
    assert read_launch({"a.sh": one}).world_size == 4
    line = "deepspeed --include a:0,1@b:0,1 t.py --model_name_or_path a/b --deepspeed ds_z3.json"
    found = read_launch({"a.sh": line})
    assert (found.world_size, found.zero_stage, len(found.notes)) == (4, 3, 1)
    server = "srun --nodes=1 serve & srun --nodes $((N-1)) torchrun --nproc-per-node 8 t.py"
    assert read_launch({"a.sh": server}).world_size is None
    npus = "NPUS_PER_NODE=8\ntorchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2"
    assert read_launch({"a.sh": npus}).other_machine == "Ascend NPUs"


def test_what_a_script_leaves_open_is_asked_for():
    found = read_launch({"a.sh": "deepspeed t.py --model_name_or_path $3 --max_length $L"})
    assert found.model_name is None and found.unread == {"model": "$3", "seq_len": "$L"}
    found = read_launch({"a.sh": "torchrun run_recipe.py --recipe qwen3_8b_pretrain -tp $TP"})
    assert found.unread == {"tp": "$TP"}
    read = "IFS=, read -r TP PP <<< 2,4\ntorchrun run_recipe.py --recipe a -tp $TP -pp $PP"
    assert [getattr(read_launch({"a.sh": read}), key) for key in ("tp", "pp")] == [2, 4]


def test_what_a_file_trains_beyond_a_language_model_is_said():
    remax = "python -m verl.trainer.main_ppo algorithm.adv_estimator=remax "
    vision = "deepspeed t.py --model_name_or_path a/b --vision_tower c/d"
    for text in (remax + "actor_rollout_ref.model.path=a/b", vision):
        assert len(read_launch({"a.sh": text}).beyond) == 1


def test_an_evaluation_is_no_training():
    text = "model_name_or_path: a/b\nfinetuning_type: lora\ntask: mmlu_test\nn_shot: 5\n"
    assert read_launch({"a.yaml": text}).beyond == ["task: an evaluation, not a training"]


def test_gpus_that_a_variable_says_are_not_taken_from_elsewhere():
    text = "GPUS_PER_NODE=4\npython setup_experiment.py --model_recipe_name a --num_gpus $ALL"
    assert read_launch({"a.sh": text}).world_size is None


def test_a_folder_names_its_model(tmp_path, capsys):
    from gpuscale.cli.app import run

    path = tmp_path / "a.sh"
    path.write_text("vllm serve /models/DeepSeek-R1-Distill-Llama-8B")
    assert run(["launch-check", str(path)]) == 0
    assert "llama3.1-8b is taken by its name" in capsys.readouterr().out


def test_a_folder_of_the_hubs_cache_names_the_model():
    path = "$HF_HOME/hub/models--openai--gpt-oss-120b/snapshots/b5c9"
    assert read_launch({"a.sh": f"vllm serve {path}"}).model_name == "openai/gpt-oss-120b"


def test_experts_of_megatron_deepspeed_are_in_every_second_layer():
    line = (
        "deepspeed pretrain_gpt.py --deepspeed --num-layers 4 --hidden-size 64 --num-experts 8 "
        "--num-attention-heads 4 --seq-length 64"
    )
    model = read_launch({"a.sh": line}).model
    assert [ffn for _, ffn in model.layer_sequence] == ["dense", "moe", "dense", "moe"]
    assert model.ffns["moe"].top_k == 1


def test_an_older_swift_names_its_stage_and_a_cache_its_model():
    """ms-swift 2: `default-zero3`; ModelScope writes a dot of a folder as three underscores."""
    text = (
        "NPROC_PER_NODE=3 swift sft --model_id_or_path /models/Qwen2-1___5B-Instruct "
        "--sft_type full --max_length 8192 --batch_size 4 --deepspeed default-zero3\n"
    )
    found = read_launch({"run.sh": text}, {})
    assert (found.zero_stage, found.offload_parameters, found.method) == (3, False, "full")
    assert found.model_name.endswith("Qwen2-1.5B-Instruct")
    assert "sft_type" not in found.not_understood
