"""Files of one launch that name each other: configurations, programs, command-line overrides."""

import json

import pytest

from gpuscale.cli.app import run
from gpuscale.launch.read.detect import read_launch

PROGRAM = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, BitsAndBytesConfig
p = argparse.ArgumentParser()
p.add_argument("--model", default="gpt2")
p.add_argument("--four_bit", action="store_true")
p.add_argument("--batch", type=int, default=2)
args = p.parse_args()
LENGTH = 1024
if args.four_bit:
    quant = BitsAndBytesConfig(load_in_4bit=True)
else:
    quant = BitsAndBytesConfig(load_in_8bit=True)
model = AutoModelForCausalLM.from_pretrained(args.model, quantization_config=quant)
model = get_peft_model(model, LoraConfig(r=4 * 8))
rows = tokenizer(text, truncation=True, max_length=LENGTH)
a = TrainingArguments("o", per_device_train_batch_size=args.batch, deepspeed="ds/a.json",
    gradient_accumulation_steps=64 // args.batch, bf16=torch.cuda.is_bf16_supported())
Trainer(model=model, args=a)
"""
ZERO = json.dumps({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})
YAML = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\n"
VERL = """
actor_rollout_ref:
  model: {path: "${oc.env:MODEL,Qwen/Qwen3-8B}", lora_rank: 0}
  actor: {use_dynamic_bsz: true, ppo_max_token_len_per_gpu: 4096, ulysses_sequence_parallel_size: 2}
  rollout: {n: 1, n_agent: 5}
algorithm: {adv_estimator: grpo}
data: {train_batch_size: 64}
"""


def launch(files, given=1):
    """Read the first files of a launch; the others are there to be found."""
    names = list(files)

    def look(path):
        last = path.rsplit("/", 1)[-1]
        return next(((n, files[n]) for n in names[given:] if n.endswith(last)), None)

    return read_launch({n: files[n] for n in names[:given]}, look=look)


CASES = [
    (
        {"a.sh": "torchrun --nproc_per_node 2 t.py --model Qwen/Qwen3-8B --batch 4 --four_bit"},
        {"t.py": PROGRAM, "ds/a.json": ZERO},
        {"model_name": "Qwen/Qwen3-8B", "method": "qlora", "lora_rank": 32, "accumulation": 16},
    ),
    (
        {"t.py": PROGRAM},
        {"a.json": ZERO},
        {
            "method": "lora",
            "weights": "int8",
            "seq_len": 1024,
            "zero_stage": 2,
            "precision": "bf16",
        },
    ),
    (
        {"a.sh": "NPROC_PER_NODE=4 FORCE_TORCHRUN=1 llamafactory-cli train ex/s.yaml lora_rank=64"},
        {"s.yaml": YAML + "deepspeed: ds/a.json\n", "a.json": ZERO},
        {"kind": "llama-factory", "lora_rank": 64, "gpus_per_node": 4, "zero_stage": 2},
    ),
    (
        {"a.sh": "accelerate launch --config_file $ROOT/c.yaml -m axolotl.cli.train q.yml"},
        {
            "c.yaml": "distributed_type: MULTI_GPU\nnum_processes: 3\n",
            "q.yml": "base_model: a/b\nadapter: qlora\nfsdp_config:\n",
        },
        {"kind": "axolotl", "n_gpus": 3, "zero_stage": None, "method": "qlora", "beside": []},
    ),
    (
        {"v.yaml": VERL},
        {},
        {
            "kind": "verl",
            "model_name": "Qwen/Qwen3-8B",
            "micro_batch_size": 8,
            "global_batch_size": 320,
            "seq_len": 1024,
            "gpus_per_node": 8,
        },
    ),
    (
        {
            "a.sh": "python qlora.py --model_name_or_path a/b --source_max_len 384 --bits 4 "
            "--target_max_len 128 --lora_r 64"
        },
        {},
        {"method": "qlora", "seq_len": 512},
    ),
]


LINES = [
    ("megatron sft --load Qwen3-30B-A3B-Base-mcore --overlap_param_gather true "
     "--overlap_grad_reduce true --micro_batch_size $(expr 32 / 8 / 2)",
     {"model_name": "Qwen3-30B-A3B-Base", "micro_batch_size": 2, "wrong": []}),
    ("read -r -d '' args <<EOF\nopenrlhf.cli.train_sft --pretrain a/b --max_len 2048 \\\nEOF\n"
     "torchrun --nproc_per_node 4 -m ${args}", {"kind": "openrlhf", "seq_len": 2048}),
    ("python t.py --model_name_or_path a/b --gradient_checkpointing False", {"recompute": "none"}),
    ("torchrun t.py --model_name_or_path a/b --fsdp 'full_shard auto_wrap offload'",
     {"zero_stage": 3, "offload_parameters": True}),
    ("python t.py --model_name_or_path /m/b/pytorch_model-00002-of-00002.bin --batch_size 4",
     {"model_name": "/m/b", "micro_batch_size": 4}),
    ("deepspeed t.py --model_name_or_path a/b --deepspeed $FILE", {"beside": ["\0$FILE"]}),
    ("deepspeed t.py --model_id a/b-vl --deepspeed src/ds.config --output_dir c --learning_rate 1",
     {"beside": ["src/ds.config"], "model_name": "a/b-vl"}),
    ("torchrun t.py --model_name_or_path a/b --lora_r 4 --lora_target_modules q_proj v_proj \\\n"
     "--bf16 True", {"targets": ("q", "v"), "precision": "bf16"}),
    ("torchrun t.py --model_name_or_path google/t5-v1_1-large",
     {"beyond": ["google/t5-v1_1-large: an encoder and a decoder, "
                 "not a decoder-only language model"]}),
    ("ray job submit -- python examples/train_ppo_ray.py --pretrain a/b --actor_num_nodes 1 "
     "--actor_num_gpus_per_node 2 --vllm_num_engines 2 --vllm_tensor_parallel_size 2 "
     "--critic_num_nodes 1 --critic_num_gpus_per_node 2", {"kind": "openrlhf", "n_gpus": 8}),
    ("python train.py --actor-num-gpus-per-node 8 --rollout-batch-size 8 --loss-type sft_loss "
     "--max-tokens-per-gpu 4096", {"kind": "slime", "rl": {}, "seq_len": 4096}),
    ("torchrun --nproc_per_node 2 t.py --model_name_or_path a/b --rl dpo --max_prompt_length 9 "
     "--max_completion_length 9", {"rl": {"method": "dpo"}}),
    ("torchrun $(which swift) sft --model a/b --lora_rank 4", {"kind": "ms-swift"}),
    ("swift rlhf --rlhf_type gkd --model a/b --teacher_model c/d",
     {"beyond": ["gkd: distillation from a second model is not predicted"]}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_lines_of_trainers(line, wanted):
    found = read_launch({"a.sh": line})
    assert {key: getattr(found, key) for key in wanted} == wanted


@pytest.mark.parametrize(("given", "near", "wanted"), CASES)
def test_files_that_name_each_other_are_one_launch(given, near, wanted):
    found = launch(given | near)
    assert {key: getattr(found, key) for key in wanted} == wanted
    assert not found.wrong


def test_a_configuration_is_found_from_the_folder_above(tmp_path, capsys):
    for folder in (".git", "scripts", "conf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf" / "a.json").write_text(ZERO)
    script = "deepspeed --num_gpus 2 t.py --model_name_or_path gpt2 --deepspeed $D/conf/a.json"
    (tmp_path / "scripts" / "a.sh").write_text(script)
    assert run(["launch-check", str(tmp_path / "scripts" / "a.sh"), "--json"]) == 0
    r = json.loads(capsys.readouterr().out)["result"]
    assert r["said"]["zero_stage"] == 2 and r["missing"] == []
    assert any("offload_param" in note for note in r["notes"])


def test_adapters_over_gptq_weights_hold_four_bits(tmp_path, capsys):
    peaks = []
    for model in ("Qwen/Qwen2-7B-Instruct", "/m/Qwen2-7B-Instruct-GPTQ-Int4"):
        (tmp_path / "a.yaml").write_text(YAML.replace("Qwen/Qwen2.5-7B", model))
        run(["launch-check", str(tmp_path / "a.yaml"), "--gpus", "1", "--json"])
        peaks.append(json.loads(capsys.readouterr().out)["result"]["peak_bytes"])
    assert peaks[0] - peaks[1] > 0.6 * 1.5 * 7.6e9  # 2 bytes a weight against about a half


def test_of_a_model_that_sees_the_first_lines_say_what_is_predicted(tmp_path, capsys):
    for model, says in (("Qwen/Qwen2.5-VL-7B-Instruct", True), ("Qwen/Qwen2.5-7B", False)):
        line = f"NPROC_PER_NODE=8 swift sft --model {model} --max_length 512"
        (tmp_path / "a.sh").write_text(line)
        assert run(["launch-check", str(tmp_path / "a.sh")]) == 0
        head = " ".join(capsys.readouterr().out.splitlines()[:5])
        assert ("language part alone is predicted" in head) is says
