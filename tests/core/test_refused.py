"""What frameworks refuse together: each row by a command, and by `launch-check` of a file."""

import pytest

from gpuscale.cli.app import run
from gpuscale.meant import packaged

LORA, GRPO = "--method lora", "--method grpo"
ROWS = [  # table of refused.toml, words of its `why`, software, what is asked, what is allowed
    ("axolotl", "8-bit", "axolotl", f"{LORA} --tp 2 --optimizer adamw-8bit", "--optimizer adamw"),
    ("axolotl", "recomputation", "axolotl", f"{LORA} --offload activations --recompute none",
     "--recompute full"),
    ("axolotl", "preference", "axolotl", "--method dpo --packing", "--method lora"),
    ("axolotl", "micro-batch of 1", "axolotl", f"{LORA} --cp 2 --packing --micro-batch 2",
     "--micro-batch 1"),
    ("axolotl", "FlashAttention 2", "axolotl", f"{LORA} --cp 2 --attention eager",
     "--attention flash2"),
    ("axolotl", "Muon", "axolotl", "--method full --optimizer muon --zero 1", "--zero 3"),
    ("axolotl", "fused loss", "axolotl", f"{GRPO} --cp 2 --loss fused", "--loss eager"),
    ("groups", "two answers", "trl", f"{GRPO} --group 1", "--group 4"),
    ("llama-factory", "4 bits", "llama-factory", "--method qlora --base int8 --zero 3",
     "--zero 2"),
    ("llama-factory", "GPTQ", "llama-factory", f"{LORA} --base int4-g128 --zero 3", "--zero 2"),
    ("llama-factory", "GaLore with adapters", "llama-factory", f"{LORA} --optimizer galore",
     "--optimizer adamw"),
    ("llama-factory", "under DeepSpeed", "llama-factory",
     "--method full --optimizer galore --zero 2", "--zero 0"),
    ("llama-factory", "layer by layer", "llama-factory",
     "--method full --optimizer galore+in-backward --zero 0", "--gpus 1"),
    ("llama-factory", "pure bf16", "llama-factory", "--method full --base bf16 --zero 3",
     "--zero 2"),
    ("llama-factory", "neat_packing", "llama-factory", "--method dpo --packing",
     "--method lora"),
    ("llama-factory", "beyond supervised", "llama-factory", "--method dpo --loss fused",
     "--loss eager"),
    ("llama-factory", "fp8", "llama-factory", "--method qlora --precision fp8",
     "--precision bf16"),
    ("llama-factory-mca", "adapters", "llama-factory", f"{LORA} --pp 2", "--method full"),
    ("llama-factory-mca", "DPO only", "llama-factory", "--method ppo --pp 2", "--method dpo"),
    ("llama-factory-unsloth", "ZeRO-3", "llama-factory-unsloth", f"{LORA} --zero 3", "--zero 2"),
    ("ms-swift", "packed rows need", "ms-swift", f"{LORA} --packing --attention eager",
     "--attention flash2"),
    ("ms-swift", "rows are packed", "ms-swift", "--method ppo --packing", "--method dpo"),
    ("ms-swift", "sequences are split", "ms-swift", "--method ppo --cp 2", "--method dpo"),
    ("ms-swift", "with split", "ms-swift", f"{GRPO} --cp 2 --loss fused", "--loss eager"),
    ("ms-swift", "over packed", "ms-swift", f"{GRPO} --packing --loss fused", "--loss eager"),
    ("megatron-swift", "frozen", "megatron-swift", "--method full --freeze 4 --pp 2", "--pp 1"),
    ("trl", "split sequences", "trl", f"{GRPO} --cp 2", "--cp 1"),
    ("trl", "packed rows", "trl", f"{LORA} --packing --cp 2 --cp-kind ring", "--cp-kind ulysses"),
    ("transformers", "tensor", "hf-trainer", "--method full --tp 2 --zero 0", "--zero 3"),
    ("transformers", "context", "hf-trainer", "--method full --cp 2 --cp-kind ring --zero 0",
     "--zero 3"),
    ("transformers", "GaLore", "hf-trainer",
     "--method full --optimizer galore+in-backward --zero 0", "--gpus 1"),
    ("peft", "DoRA", "hf-peft", "--method dora --base int4-g128", "--base nf4"),
    ("litgpt", "one GPU", "litgpt", "--method qlora", "--gpus 1"),
    ("torchtune", "recomputation", "torchtune",
     "--method full --offload activations --recompute none", "--recompute full"),
    ("torchtune", "accumulation", "torchtune",
     "--method full --optimizer adamw+in-backward --accumulation 2", "--accumulation 1"),
    ("torchtune", "no fp16", "torchtune", "--method full --precision fp16", "--precision bf16"),
    ("torchtune", "with fp8", "torchtune", "--method full --precision fp8 --cp 2", "--cp 1"),
    ("torchtune", "data ranks", "torchtune", "--method full --tp 8 --offload parameters",
     "--tp 4"),
    ("unsloth", "fp8", "unsloth", f"{LORA} --precision fp8", "--precision bf16"),
    ("nemo-rl", "log-prob", "nemo-rl", f"{GRPO} --cp 2 --loss fused", "--loss eager"),
    ("nemo-rl", "sharded only", "nemo-rl", f"{GRPO} --offload optimizer --zero 0", "--zero 1"),
    ("nemo-rl", "Adam and SGD", "nemo-rl", f"{GRPO} --offload optimizer --optimizer muon --zero 1",
     "--optimizer adamw"),
    ("nemo-automodel", "tensor", "nemo-automodel", "--method full --zero 0 --tp 2", "--zero 3"),
    ("nemo-automodel", "context", "nemo-automodel", "--method full --zero 0 --cp 2", "--zero 3"),
    ("nemo-automodel", "expert", "nemo-automodel",
     "--method full --zero 0 --ep 2 --model qwen3-30b-a3b", "--zero 3"),
    ("nanotron", "one replica", "nanotron", "--cp 8 --zero 1", "--cp 4"),
    ("megatron-bridge", "packed", "megatron-bridge", f"{LORA} --packing --micro-batch 2",
     "--micro-batch 1"),
    ("prime-rl", "micro-batch of 1", "prime-rl", "--method full --cp 2 --micro-batch 2",
     "--micro-batch 1"),
    ("prime-rl", "FlashAttention", "prime-rl", "--method full --cp 2 --attention eager",
     "--attention flash2"),
    ("prime-rl", "Muon", "prime-rl", "--method full --optimizer muon --offload parameters",
     "--optimizer adamw"),
    ("prime-rl", "MXFP8", "prime-rl",
     "--dispatcher deepep --precision mxfp8 --model qwen3-30b-a3b", "--precision bf16"),
    ("megatron", "two stages", "megatron-core", "--pp 2 --vpp 2 --overlap-pp off",
     "--overlap-pp on"),
    ("megatron", "Transformer Engine", "megatron-core", "--cp 2 --attention eager",
     "--attention best"),
    ("megatron", "Megatron-FSDP", "megatron-core", "--method full --optimizer muon --zero 3",
     "--zero 1"),
    ("megatron-deepspeed", "experts", "megatron-deepspeed",
     "--ep 2 --zero 3 --model qwen3-30b-a3b", "--zero 1"),
    ("deepspeed", "Muon", "hf-deepspeed",
     "--method full --optimizer muon --offload optimizer --zero 2", "--zero 3"),
    ("gpt-neox", "mixtures", "gpt-neox", "--zero 2 --model qwen3-30b-a3b", "--zero 1"),
    ("maxtext", "fp8", "jax", "--precision fp8 --global-batch 16 --micro-batch 1",
     "--micro-batch 2"),
]  # fmt: skip


def asked(software, words, instead=""):
    """Arguments of `memory`, those of `instead` in the place of the ones of its name."""
    given = dict(pair.partition(" ")[::2] for pair in f" {words}".split(" --")[1:])
    given |= dict(pair.partition(" ")[::2] for pair in f" {instead}".split(" --")[1:])
    model, gpus = given.pop("model", "llama3-8b"), given.pop("gpus", "8")
    options = [word for k, v in given.items() for word in ([f"--{k}", v] if v else [f"--{k}"])]
    return [model, "--gpu", "h100", "--gpus", gpus, "--software", software, *options]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "why", "software", "words", "instead"), ROWS)
def test_a_row_is_refused_and_what_is_beside_it_is_not(
    table, why, software, words, instead, capsys
):
    (row,) = [r for r in packaged("refused.toml")[table] if why in r["why"]]
    assert run(["memory", *asked(software, words)]) == 2
    out, err = capsys.readouterr()
    assert row["why"] in err and row["source"] in err and out == ""
    assert run(["memory", *asked(software, words, instead)]) in (0, 1)


def test_every_row_is_tried():
    tried = {(table, why) for table, why, *_ in ROWS}
    for table, rows in packaged("refused.toml").items():
        for row in rows:
            assert [why for name, why in tried if name == table and why in row["why"]], row


@pytest.mark.parametrize("one", [0, 5, 8, 30, 43, 48])
def test_a_plan_is_refused_where_nothing_that_is_left_open_runs(one, capsys):
    table, why, software, words, instead = ROWS[one]
    assert run(["plan", *asked(software, words)]) == 2
    assert why in capsys.readouterr().err
    assert run(["plan", *asked(software, words, instead)]) in (0, 1)


def test_a_plan_looks_for_what_is_allowed(capsys):
    """Recomputation is open: activations go to the host with it."""
    words = "llama3-8b --gpu a100 --gpus 8 --method full --software axolotl --offload activations"
    assert run(["plan", *words.split(), "--json"]) == 0
    assert '"recompute": "full"' in capsys.readouterr().out


def test_a_search_leaves_out_what_is_refused():
    """Of chunks over two stages only those with overlapped sends; the rest of the space stays."""
    import gpuscale

    pinned = dict(model="llama3-8b", gpus=8, cluster="dgx-h100", pp=2, vpp=2, tp=2, global_batch=64)
    both = gpuscale.plan(**pinned)
    assert both.result.layout.overlap_pp
    with pytest.raises(gpuscale.GpuscaleError, match="two stages"):
        gpuscale.plan(**pinned, overlap_pp="off")


FILES = {
    "ax.yml": (
        "base_model: meta-llama/Meta-Llama-3-8B\ndatasets: [{path: tatsu-lab/alpaca, type: alpaca}]"
        "\nadapter: lora\nsequence_len: 2048\noptimizer: adamw_bnb_8bit\ntensor_parallel_size: 2\n",
        "8-bit AdamW",
    ),
    "lf.yaml": (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ndo_train: true\n"
        "finetuning_type: lora\nquantization_bit: 8\ncutoff_len: 2048\ndataset: alpaca\n"
        "deepspeed: examples/deepspeed/ds_z3_config.json\n",
        "only a base in 4 bits",
    ),
    "lit.sh": (
        "litgpt finetune_lora meta-llama/Llama-2-7b-hf --quantize bnb.nf4 --precision bf16-true "
        "--devices 8 --train.micro_batch_size 1 --train.max_seq_length 512\n",
        "one GPU only",
    ),
    "tune.yaml": (
        "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\n"
        "tokenizer: {max_seq_len: 2048}\noptimizer: {_component_: torch.optim.AdamW}\n"
        "batch_size: 2\ndtype: bf16\n"
        "enable_activation_checkpointing: False\nenable_activation_offloading: True\n",
        "with recomputation only",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_is_refused(name, tmp_path, capsys):
    text, why = FILES[name]
    (tmp_path / name).write_text(text)
    assert run(["launch-check", str(tmp_path / name), "--gpus", "8"]) == 1
    assert why in capsys.readouterr().out


@pytest.mark.parametrize("software", ["verl", "trl", "openrlhf", "nemo-rl"])
def test_a_step_of_rl_is_answered_where_a_preset_has_sources_alone(software, capsys):
    assert run(["memory", *asked(software, GRPO)]) in (0, 1)
    assert "GRPO" in capsys.readouterr().out
