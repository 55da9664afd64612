"""What 56 more files of strangers were read wrongly for, or asked without need: small excerpts."""

import json

import pytest

from gpuscale.cli.app import run
from gpuscale.core.model.params import count_params
from gpuscale.io.models import load_model
from gpuscale.launch.dialects.nested import dialect
from gpuscale.launch.read.detect import read_launch

# inclusionAI/AReaL@4aef98d8 examples/alignment/hhrlhf_dpo.yaml
PAIRS = """
cluster: {n_nodes: 1, n_gpus_per_node: 8}
actor:
  backend: "fsdp:d8p1t1"
  path: Qwen/Qwen2.5-7B
  gradient_checkpointing: true
  dtype: bfloat16
  mb_spec: {max_tokens_per_mb: 4096, granularity: 2}
train_dataset: {batch_size: 64, path: Anthropic/hh-rlhf, type: dpo, max_length: 2048}
valid_dataset: {batch_size: 64}
"""
# inclusionAI/AReaL@4aef98d8 examples/tau2/config_235b_moe_airline.yaml
TURNS = """
cluster: {n_nodes: 10, n_gpus_per_node: 8}
gconfig: {n_samples: 16, max_new_tokens: 8192, max_tokens: 30000}
rollout: {backend: "sglang:d4t8"}
actor:
  backend: "megatron:(attn:d1p12t4|ffn:d1p12e4)"
  path: Qwen/Qwen3-235B-A22B
  gradient_checkpointing: true
  mb_spec: {max_tokens_per_mb: 32768}
  megatron: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}
  kl_ctl: 0.0
train_dataset: {batch_size: 16, max_length: 1024}
"""
# axolotl-ai-cloud/axolotl@067b021c8 examples/distributed-parallel/qwen3-8b-fsdp-tp-cp.yaml
SHARDS = """
base_model: Qwen/Qwen3-8B
dp_shard_size: 2
context_parallel_size: 2
tensor_parallel_size: 2
fsdp_version: 2
fsdp_config: {offload_params: false, reshard_after_forward: true}
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 8192
micro_batch_size: 1
"""
# aws-samples/awsome-distributed-training@7217859f
# 3.test_cases/pytorch/verl/kubernetes/rlvr/recipe/run_qwen3-235b_megatron_96gb.sh
ON_HOST = """
HOME_OF_DATA=${HOME_OF_DATA:-"${HOME}/verl"}
MODEL_PATH=$HOME_OF_DATA/models/Qwen3-235B-A22B
MODEL_PATH="${MODEL_PATH:-Qwen/Qwen3-VL-235B-A22B-Instruct}"
python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer.yaml' \\
    data.train_batch_size=32 actor_rollout_ref.rollout.n=8 algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path="${MODEL_PATH}" actor_rollout_ref.actor.ppo_mini_batch_size=16 \\
    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=1. \\
    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=4
"""
# allenai/open-instruct@e6c3044a scripts/train/debug/oc_sft_olmo3_7b_1node.sh
SUBMITS = """
uv run python mason.py --cluster ai2/jupiter --num_nodes 1 --gpus 8 -- torchrun --nnodes=1 \\
    --nproc_per_node=8 open_instruct/olmo_core_finetune.py --model_name_or_path a/b \\
    --max_seq_length 32768 --per_device_train_batch_size 1 --gradient_accumulation_steps 4
"""
# InftyAI/llmaz@3c13ff3 docs/examples/sglang/playground.yaml
PLAYGROUND = """
kind: OpenModel
metadata: {name: qwen2-0--5b}
spec:
  source: {modelHub: {modelID: Qwen/Qwen2-0.5B-Instruct}}
  inferenceConfig: {flavors: [{name: t4, limits: {nvidia.com/gpu: 1}}]}
---
kind: Playground
metadata: {name: qwen2-0--5b}
spec:
  modelClaim: {modelName: qwen2-0--5b}
  backendRuntimeConfig: {backendName: sglang, args: [--context-length, "4096"]}
"""
# AI-Hypercomputer/tpu-recipes@c8cfe2f inference/ironwood/vLLM/Gemma4/gemma4-server.yaml
HALVES = """
kind: Deployment
spec:
  template:
    spec:
      nodeSelector:
        cloud.google.com/gke-tpu-accelerator: tpu7x
        cloud.google.com/gke-tpu-topology: 2x2x1
      containers:
      - image: vllm/vllm-tpu:nightly
        command: ["python3", "-m", "vllm.entrypoints.openai.api_server"]
        args: ["--model=google/gemma-4-31B-it", "--data-parallel-size=4"]
"""
ALONE = """
CUDA_VISIBLE_DEVICES=0 python prepare.py
NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model a/b --max_length 64
CUDA_VISIBLE_DEVICES=0 swift infer --model out
"""
SWIFT = "swift sft --model a/b --max_length 64"
AND_SERVED = """
llamafactory-cli train --model_name_or_path a/b --stage sft --finetuning_type lora \\
    --per_device_train_batch_size 1
vllm serve out/merged --tensor-parallel-size 4
"""


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "a.yaml",
            PAIRS,
            {"rl": {"method": "dpo"}, "seq_len": 2048, "micro_batch_size": 1, "asked": {}}
            | {"global_batch_size": 64, "n_gpus": 8},
        ),
        ("a.yaml", TURNS, {"seq_len": 30000, "recompute": "full", "asked": {}, "n_gpus": 80}),
        ("a.yaml", SHARDS, {"n_gpus": 8, "tp": 2, "cp": 2, "zero_stage": 3, "asked": {}}),
        ("a.sh", ON_HOST, {"model_name": "Qwen3-235B-A22B", "offload_optimizer": True}),
        ("a.sh", ON_HOST, {"asked": {}}),
        ("a.sh", SUBMITS, {"n_nodes": 1, "gpus_per_node": 8, "seq_len": 32768}),
        ("a.yaml", PLAYGROUND, {"kind": "sglang", "gpu": "t4", "seq_len": 4096}),
        ("a.yaml", PLAYGROUND, {"model_name": "Qwen/Qwen2-0.5B-Instruct"}),
        ("a.yaml", HALVES, {"beyond": ["tpu7x: a device of vllm there is half of a chip"]}),
        ("a.sh", ALONE, {"gpus_per_node": 4, "kind": "ms-swift"}),
        ("a.sh", f"N=1\nNPROC_PER_NODE=4 python mason.py -- {SWIFT}", {"gpus_per_node": 4}),
        ("a.sh", f"NPROC_PER_NODE=2 {SWIFT}\nNPROC_PER_NODE=4 {SWIFT}", {"gpus_per_node": 2}),
        ("a.sh", AND_SERVED, {"kind": "llama-factory", "tp": 1, "method": "lora"}),
    ],
)
def test_what_is_read(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def answered(tmp_path, capsys, text, name="a.sh"):
    (tmp_path / name).write_text(text)
    run(["launch-check", str(tmp_path / name), "--json"])
    return json.loads(capsys.readouterr().out)["result"]


@pytest.mark.slow
def test_gpus_that_roll_out_need_not_divide_into_the_trainer(tmp_path, capsys):
    result = answered(tmp_path, capsys, TURNS, "a.yaml")
    assert result["layout"]["tp"] * result["layout"]["pp"] == 48  # of 80, 32 roll out


@pytest.mark.slow
def test_data_parallel_servers_of_sglang_are_copies(tmp_path, capsys):
    line = "python -m sglang.launch_server --model-path openai/gpt-oss-120b --dp-size 2 {}"
    for more, layout in (("", "2 x TP 1 gives"), ("--tp 2 --enable-dp-attention", "DPA 2")):
        (tmp_path / "a.sh").write_text(line.format(more))
        run(["launch-check", str(tmp_path / "a.sh")])
        assert layout in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "gathers"),
    [("", True), ("--moe-a2a-backend none", True), ("--enable-ep-moe", True)]
    + [("--moe-a2a-backend deepep", False), ("--enable-deepep-moe", False)],
)
def test_ranks_of_sglang_gather_tokens_unless_another_way_is_named(more, gathers):
    line = "python -m sglang.launch_server --model-path a/b --tp 16 --dp 16 --enable-dp-attention"
    assert read_launch({"a.sh": f"{line} {more}"}).serves.get("no_deepep", False) is gathers


def test_a_playground_serves_the_model_that_it_claims():
    other = PLAYGROUND.split("---")[0].replace("qwen2-0--5b", "other").replace("2-0.5B", "2-72B")
    found = read_launch({"a.yaml": f"{other}---{PLAYGROUND}"})
    assert (found.model_name, found.gpu) == ("Qwen/Qwen2-0.5B-Instruct", "t4")
    found = read_launch(
        {"a.yaml": PLAYGROUND.replace("[{name: t4, ", "{name: {t4: 1, ").replace("]", "}", 1)}
    )
    assert (found.model_name, found.gpu) == ("Qwen/Qwen2-0.5B-Instruct", None)


OPTIONS = "--model_name_or_path a/b --per_device_train_batch_size 3 --max_seq_length 64"
MEGATRON = (
    "python submit.py --gpus 8 'torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 "
    "--hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 3'"
)


@pytest.mark.parametrize(
    ("line", "n_gpus"), [(f"torchrun --nproc_per_node 8 sft.py -- {OPTIONS}", 8), (MEGATRON, None)]
)
def test_a_submitter_hands_over_a_command_and_no_options(line, n_gpus):
    found = read_launch({"a.sh": line})
    assert (found.micro_batch_size, found.gpus_per_node) == (3, n_gpus)


# THUDM/slime@624b824a scripts/low_precision/run-qwen3-30B-A3B-int4.sh
INT4 = """
python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \\
  --hf-checkpoint /root/{name}/ --rollout-batch-size 32 --n-samples-per-prompt 8 \\
  --rollout-max-response-len 8192 --global-batch-size 256 --tensor-model-parallel-size 4 \\
  --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 \\
  --sequence-parallel --recompute-granularity full --recompute-method uniform \\
  --recompute-num-layers 1 --max-tokens-per-gpu 8192 \\
  --rollout-num-gpus-per-engine 1 --sglang-mem-fraction-static 0.7 --optimizer-cpu-offload
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fits"), [("Qwen3-30B-A3B-INT4", True), ("Qwen3-30B-A3B", False)])
def test_the_engine_holds_the_checkpoint_as_it_is(name, fits, tmp_path, capsys):
    assert answered(tmp_path, capsys, INT4.format(name=name))["fits"] is fits
    if not fits:
        run(["launch-check", str(tmp_path / "a.sh")])
        assert "its engine has no room for a sequence" in capsys.readouterr().out


# allenai/OLMo-core@fa6c5014 src/scripts/train/OLMo2/OLMo2-32B.py and
# src/scripts/lambda/slurm-1B-test.sbatch
CLASSES = """
from olmo_core.nn.transformer import TransformerConfig
SEQUENCE_LENGTH = 4096
GLOBAL_BATCH_SIZE = 2048 * SEQUENCE_LENGTH
def build_model_config(common):
    return TransformerConfig.olmo2_13B(vocab_size=common.tokenizer.padded_vocab_size())
def build_train_module_config(common):
    return TransformerTrainModuleConfig(
        rank_microbatch_size=2 * 4096,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.{kind}, param_dtype=DType.bfloat16
        ),
        ac_config=TransformerActivationCheckpointingConfig(
            mode=TransformerActivationCheckpointingMode.{mode}
        ),
        float8_config=Float8Config(enabled=False),
    )
"""


@pytest.mark.parametrize(
    ("kind", "mode", "asked"),
    [
        ("fsdp", "full", []),
        ("hsdp", "full", ["train_module.dp_config.name"]),
        ("fsdp", "selected_modules", ["train_module.ac_config.mode"]),
    ],
)
def test_programs_of_olmo_core_are_read_by_its_classes(kind, mode, asked):
    text = CLASSES.replace("{kind}", kind).replace("{mode}", mode)
    found = read_launch({"OLMo2-13B.py": text})
    assert (found.kind, found.model_name, list(found.asked)) == ("olmo-core", "olmo2-13b", asked)
    assert (found.micro_batch_size, found.global_batch_size, found.seq_len) == (2, 2048, 4096)
    assert found.recompute == ("full" if mode == "full" else None)
    line = (
        "srun entrypoint.sh OLMo2-13B.py train x --train_module.rank_microbatch_size=$((4 * 4096))"
    )
    found = read_launch({"a.sh": line, "OLMo2-13B.py": text})
    assert (found.micro_batch_size, found.beside, found.model_name) == (4, [], "olmo2-13b")
    assert read_launch({"a.sh": line}).beside == ["OLMo2-13B.py"]


def test_batches_of_olmo_core_are_no_sequences_where_no_length_is_said():
    text = CLASSES.replace("{kind}", "fsdp").replace("{mode}", "full")
    found = read_launch({"a.py": text.replace("SEQUENCE_LENGTH = 4096", "SEQUENCE_LENGTH = n()")})
    assert (found.micro_batch_size, found.global_batch_size, found.seq_len) == (None, None, None)
    assert found.unread["micro_batch_size"] == "8192 tokens"


# parameters of ai2-olmo-core 3.0.0, TransformerConfig.FACTORY(vocab_size=...).num_params
COUNTED = {
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama2-7b": 6_738_415_616,
    "llama3-70b": 70_588_156_548,
    "llama3-8b": 8_030_261_248,
    "llama3.1-405b": 405_853_388_800,
    "olmo2-13b": 13_716_198_400,
    "olmo2-32b": 32_234_279_936,
    "olmo2-7b": 7_298_617_344,
    "olmo3-32b": 32_233_522_176,
    "olmo3-7b": 7_298_011_136,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
}


def test_models_of_olmo_core_have_the_parameters_that_its_classes_count():
    assert set(COUNTED) == set(dialect("olmo-core").names)
    for name, n_params in COUNTED.items():
        assert count_params(load_model(name).spec).total_params == pytest.approx(n_params, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["qwen3_14B", "olmo2_1B_v2"])
def test_a_factory_that_is_not_known_is_no_model_of_a_like_name(factory, tmp_path, capsys):
    text = CLASSES.replace("{kind}", "fsdp").replace("{mode}", "full")
    result = answered(tmp_path, capsys, text.replace("olmo2_13B", factory), "a.py")
    assert any(f"the model, which is {factory}" in said for said in result["missing"])
