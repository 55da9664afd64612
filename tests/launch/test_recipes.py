"""Recipes of Megatron-Bridge and NeMo 2: what commands, scripts and overrides of them say."""

import re

import pytest

from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.detect import read_launch

BRIDGE = """
from megatron.bridge.recipes.llama import llama3_70b_pretrain_config
def main():
    cfg = llama3_70b_pretrain_config()
    cfg.model.tensor_model_parallel_size = 2
    cfg.train.global_batch_size = 256
    pretrain(config=cfg)
"""
ALIAS = BRIDGE.replace("_config\n", "_config as made\n").replace(
    "llama3_70b_pretrain_config()", "made()"
)
NEMO = """
from nemo.collections import llm
def configure(nodes: int = 1, gpus_per_node: int = 8):
    recipe = llm.llama3_8b.pretrain_recipe(num_nodes=nodes, num_gpus_per_node=gpus_per_node)
    recipe.trainer.strategy.context_parallel_size = 1
    recipe.data.micro_batch_size = 2
    return recipe
if __name__ == "__main__":
    run.run(configure(nodes=2))
"""
PARTIAL = """
from functools import partial
from nemo.collections import llm
def configure(nodes=2, rows=64):
    make = partial(llm.llama3_8b.pretrain_recipe, num_nodes=nodes, tensor_parallelism=2)
    recipe = make(num_gpus_per_node=8)
    recipe.data = custom(seq_length=4096, global_batch_size=rows)
    return recipe
"""
TUNED = """
from nemo.collections.llm.recipes import llama31_70b
def recipe():
    sizes, nodes = 1, 4
    made = llama3_70b.pretrain_recipe(performance_mode=True)
    made = set_primary_perf_configs(made, "pre_train", num_nodes=4, num_gpus_per_node=8, mbs=1,
        gbs=256, tp_size=1, pp_size=4, cp_size=2, compute_dtype="fp8")
    return made
"""
WRITTEN_OUT = """
from nemo import lightning as nl
data = llm.MockDataModule(seq_length=4096, micro_batch_size=1, global_batch_size=32)
strategy = nl.MegatronStrategy(tensor_model_parallel_size=2, pipeline_model_parallel_size=4)
llm.pretrain(
    model=llm.LlamaModel(llm.Llama31Config8B()), data=data,
    trainer=nl.Trainer(devices=8, num_nodes=2, strategy=strategy),
)
"""
CONTAINER = """
def create_config(model_id="meta-llama/Llama-3.2-1B"):
    model = AutoBridge.from_hf_pretrained(model_id).to_megatron_provider()
    model.tensor_model_parallel_size = 2
    train = TrainingConfig(micro_batch_size=4, global_batch_size=8)
    return ConfigContainer(train=train, model=model)
"""
COMMAND = (
    "nemo llm pretrain --factory llama3_70b trainer.num_nodes=8 "
    "trainer.strategy.context_parallel_size=1"
)
ALIGNER = """
trainer: {num_nodes: 8, devices: 8, precision: bf16, dpo: {max_epochs: 1}}
pretrained_checkpoint: {restore_from_path: null}
model: {micro_batch_size: 1, global_batch_size: 64}
"""
BERT = """
name: megatron_bert
trainer: {num_nodes: 1, devices: 8}
model: {micro_batch_size: 4, tensor_model_parallel_size: 1, num_layers: 12, hidden_size: 768,
  num_attention_heads: 12, bert_binary_head: true}
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [  # degrees of the recipes: Megatron-Bridge 2026-08-22, NeMo 2.5
        ("a.sh", "run_recipe.py --recipe llama3_70b_pretrain_config", (4, 4, 2, 512, 32)),
        (
            "a.sh",
            "torchrun --nproc-per-node 8 run_recipe.py --model llama3_8b --mode sft",
            (2, 1, 1, 8, 8),
        ),
        ("a.py", BRIDGE, (2, 4, 2, 256, 32)),
        ("a.py", ALIAS, (2, 4, 2, 256, 32)),
        ("a.py", NEMO, (1, 1, 1, 512, 16)),
        ("a.sh", COMMAND, (4, 4, 1, 512, 64)),
        ("a.py", PARTIAL, (2, 1, 2, 64, 16)),
        ("a.py", WRITTEN_OUT, (2, 4, 1, 32, 16)),
        ("a.py", TUNED, (1, 4, 2, 256, 32)),
        (
            "a.py",
            BRIDGE.replace("config()", "config(train_iters=9, pipeline_model_parallel_size=2)"),
            (2, 2, 2, 256, 32),
        ),
        ("a.py", CONTAINER, (2, 1, 1, 8, None)),
    ],
)
def test_a_recipe_says_what_is_not_said_otherwise(name, text, expected):
    found = read_launch({name: text})
    assert (found.tp, found.pp, found.cp, found.global_batch_size, found.world_size) == expected
    assert re.match(r"(meta-llama/)?llama-?3", (found.model_name or "").lower())


def test_several_recipes_in_one_file_are_named():
    text = BRIDGE.replace("main", "a_config") + BRIDGE.replace("main", "b_config")
    with pytest.raises(GpuscaleError, match="2 recipes in one file"):
        read_launch({"library.py": text})


def test_overrides_alone_leave_the_degrees_to_the_recipe():
    text = "model: {seq_length: 4096}\ntrain: {global_batch_size: 32}\nscheduler: {}"
    found = read_launch({"overrides.yaml": text})
    assert (found.kind, found.global_batch_size) == ("megatron-bridge", 32)
    assert found.unread["layout"] == "as its recipe says"


def test_the_format_of_a_nemo_script_is_that_of_its_plugin():
    text = NEMO.replace("return", "recipe.trainer.plugins = bf16_with_fp8_mixed()\n    return")
    assert read_launch({"a.py": text}).precision == "fp8"


def test_nemo_aligner_and_other_models_than_decoders():
    found = read_launch({"dpo.yaml": ALIGNER})
    assert (found.rl, found.world_size) == ({"method": "dpo"}, 64)
    assert "bert" in read_launch({"bert.yaml": BERT}).beyond[0]


def test_sections_of_flagscale_are_megatrons_options():
    text = """
system: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, precision: {bf16: true}}
model: {num_layers: 27, hidden_size: 2048, num_attention_heads: 16, num_experts: 64,
  seq_length: 4096, moe_router_topk: 6, moe_ffn_hidden_size: 1408,
  micro_batch_size: 1, global_batch_size: 128}
data: {tokenizer: {vocab_size: 102400}}
"""
    found = read_launch({"16b.yaml": text})
    assert (found.kind, found.tp, found.precision) == ("megatron", 2, "bf16")
    assert found.model is not None and any(f.kind == "moe" for f in found.model.ffns.values())


ALIGNED = "trainer: {devices: 1}\nmodel: {global_batch_size: 8, restore_from_path: a.nemo}\nname: "


@pytest.mark.parametrize(
    ("text", "name", "method", "trains"),
    [
        ("python scripts/training/run_recipe.py --recipe gemma3_1b_sft_config", "a.sh", "full", 1),
        ("nemo llm finetune --factory 'llama3_8b(peft_scheme=None)'", "a.sh", "full", 1),
        (f"{ALIGNED}megatron_gpt_sft", "gpt_sft.yaml", "full", 1),
        (f"{ALIGNED}megatron_gpt_infer_topk_logits", "topk.yaml", "pretrain", 0),
        (
            "python compute_topk_logits.py trainer.devices=8 model.restore_from_path=a.nemo",
            "a.sh",
            "pretrain",
            0,
        ),
    ],
)
def test_tuning_and_programs_that_do_not_train(text, name, method, trains):
    found = read_launch({name: text})
    assert (found.kind, found.method, not found.beyond) == ("megatron-bridge", method, bool(trains))


@pytest.mark.parametrize(
    ("name", "model", "method"),
    [
        ("--model_name llama31_8b", "llama3.1-8b", "pretrain"),
        ("--model_name llama3 --model_size 70b --task lora", "llama3-70b", "lora"),
        ("--model_name nemotron3_nano", "nemotron-3-nano", "pretrain"),
        ("--model_name nvidia/Llama-3.1-8B", "nvidia/Llama-3.1-8B", "pretrain"),
        ("--model_name $FLAVOUR", None, "pretrain"),
    ],
)
def test_performance_scripts_name_a_model_by_its_flavour(name, model, method):
    text = f"python scripts/performance/run_script.py {name} --gpu b200 --num_gpus 64 -tp 4"
    found = read_launch({"a.sh": text})
    assert (found.model_name, found.method, found.n_gpus) == (model, method, 64)
