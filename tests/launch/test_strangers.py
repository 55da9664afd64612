"""What files of strangers were read wrongly for, or asked without need, by classes."""

import pytest

from gpuscale.cli.app import run
from gpuscale.launch.read.detect import read_launch

VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 "
    "actor_rollout_ref.rollout.n=8 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 trainer.n_gpus_per_node=8 "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B trainer.nnodes={nodes}"
)
PEFT = (
    "python train.py --model_name_or_path a/b-7b --per_device_train_batch_size 2 --max_seq_len 512 "
    "--lora_r 8 --use_peft_lora {lora} --use_4bit_quantization {bits}"
)
OWN = (
    "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "from peft import LoraConfig, get_peft_model\n"
    "@dataclass\nclass Own:\n    lora_r: int = 64\n    with_lora: bool = False\n"
    "def adapt(model):\n    return get_peft_model(model, LoraConfig(r=own.lora_r))\n"
    "own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()\n"
    "model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path)\n"
    "if own.with_lora:\n    model = adapt(model)\n"
    "Trainer(model=model, args=args).train()\n"
)
SERVER = (
    "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n      - image: OURS\n"
    "        args: ['--model=a/b', '--tensor-parallel-size=2']\n"
    "        env:\n        - name: VLLM_ATTENTION_BACKEND\n          value: FLASHINFER\n"
)
DSTACK = (
    "type: task\ncommands:\n  - python train.py --model_name_or_path a/b "
    "--per_device_train_batch_size 1\nresources:\n  gpu: {gpu}\n"
)
FREEZE = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: freeze\ncutoff_len: 64\n"
CONTEXT = (
    "parallelism: {context_parallel_size: 4, dp: 4, tp: 2, pp: 1}\n"
    "tokens: {micro_batch_size: 1, sequence_length: 65536, batch_accumulation_per_replica: 3}\n"
    "model: {dtype: bfloat16, model_config: {hidden_size: 2048, num_hidden_layers: 36, "
    "num_attention_heads: 16, num_key_value_heads: 4, intermediate_size: 11008, vocab_size: 9984, "
    "_attn_implementation: llama3_ring_attention, ring_attn_heads_k_stride: 1}}\n"
    "optimizer: {zero_stage: 0}\nlighteval: {parallelism: {tp: 2, dp: 4}, batch_size: 8}\n"
)
MODULE = "deepspeed --num_gpus 8 --module own.dpo --model_name_or_path a/b --sets c --epochs 2"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.sh", VERL.format(nodes=2), {"global_batch_size": 512, "world_size": 16, "asked": {}}),
        ("a.sh", VERL.format(nodes="TO_BE_FILLED"), {"n_nodes": None, "world_size": None}),
        ("a.sh", PEFT.format(lora=True, bits=True), {"method": "qlora", "lora_rank": 8}),
        ("a.sh", PEFT.format(lora=True, bits=False), {"method": "lora", "asked": {}}),
        ("a.sh", PEFT.format(lora=False, bits=False), {"method": "full", "lora_rank": None}),
        ("a.yaml", SERVER, {"kind": "vllm", "tp": 2}),
        ("a.yaml", "- engine: sglang\n  engine_args: {model: a/b, tp_size: 4}\n", {"tp": 4}),
        ("a.yaml", "served-model-name: a/b\ntp-size: 8\nmem-fraction-static: 0.8\n", {"tp": 8}),
        ("a.yaml", DSTACK.format(gpu="48GB"), {"gpus_per_node": 1}),
        ("a.yaml", DSTACK.format(gpu="A100:80GB:8"), {"gpus_per_node": 8}),
        ("a.sh", MODULE, {"kind": "program"}),
        ("a.sh", VERL.format(nodes=1) + " actor_rollout_ref.model.lora.rank=8", {"lora_rank": 8}),
        (
            "a.yaml",
            FREEZE,
            {"beyond": ["freeze: a part of the weights trains, which is not predicted"]},
        ),
        ("a.yaml", CONTEXT, {"cp": 4, "cp_kind": "all-gather", "n_gpus": 32, "asked": {}}),
    ],
)
def test_what_is_read(name, text, wanted):
    found = read_launch({name: text})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_a_model_that_is_served_by_its_name_is_named():
    found = read_launch({"a.yaml": "served-model-name: a/b\ntp-size: 8\nmodel-path:\n"})
    assert found.model_name == "a/b"


@pytest.mark.slow
@pytest.mark.parametrize(("said", "method"), [("", "full"), ("--with_lora True", "lora")])
def test_what_a_branch_calls_that_is_not_taken_is_not_read(said, method):
    line = f"python own.py --model_name_or_path a/b --per_device_train_batch_size 1 {said}"
    found = read_launch({"a.sh": line, "own.py": OWN})
    assert found.method == method


def test_updates_of_a_step_are_those_of_the_file(tmp_path, capsys):
    (tmp_path / "a.sh").write_text(VERL.format(nodes=1))
    run(["launch-check", str(tmp_path / "a.sh"), "--show", "all"])
    assert "in 4 updates" in capsys.readouterr().out
