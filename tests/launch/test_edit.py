"""Files changed to another layout: read again, they say what that layout's own file says."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from running import invoke
from test_write import DATA, job_of

from gpuscale.launch.dialects.write import launch_script, options
from gpuscale.launch.read.detect import read_launch
from gpuscale.launch.read.edit import KINDS, changed

FIELDS = (
    *("tp", "pp", "vpp", "cp", "ep", "etp", "stage_layers", "dp_replicate", "zero_stage"),
    *("micro_batch_size", "global_batch_size", "accumulation", "recompute", "recompute_layers"),
    *("sequence_parallel", "overlap_tp", "overlap_dp", "offload_optimizer"),
)
RECORDED = {"megatron-bridge": "megatron"}
UNKNOWN = {"megatron-bridge": ("gpt3-175b", "mixtral-8x7b")}  # without a recipe


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_read_as_the_layout_that_was_wanted(kind):
    rows = json.loads((DATA / f"{RECORDED.get(kind, kind)}.json").read_text("utf-8"))["rows"]
    jobs = [job_of(row) for row in sorted(rows, key=lambda row: row["model"])[::3]]
    tried = 0
    for have, want in pairwise(jobs):
        if have.model.name != want.model.name or have.model.name in UNKNOWN.get(kind, ()):
            continue
        want = replace(want, layout=replace(want.layout, seq_len=have.layout.seq_len))
        _, name, text = launch_script(have, kind, "torchrun")
        after = changed({name: text}, options(have, kind), options(want, kind))[name]
        again, own = (
            read_launch({name: t}) for t in (after, launch_script(want, kind, "slurm")[2])
        )
        assert {f: getattr(again, f) for f in FIELDS} == {f: getattr(own, f) for f in FIELDS}
        tried += 1
    assert tried > 20


FORMS = {
    "arrays.sh": (
        'A=(\n  --tensor-model-parallel-size 8\n  --sequence-parallel # of TP\n)\nrun "${A[@]}"\n',
        {"--tensor-model-parallel-size": "8", "--sequence-parallel": True},
        {"--tensor-model-parallel-size": "1", "--use-megatron-fsdp": True},
        'A=(\n  --tensor-model-parallel-size 1 --use-megatron-fsdp\n)\nrun "${A[@]}"\n',
    ),
    "sums.sh": (
        "run --micro-batch-size $((B / 4)) --pipeline-model-parallel-size $PP\n",
        {"--micro-batch-size": "2", "--pipeline-model-parallel-size": "1"},
        {"--micro-batch-size": "4", "--pipeline-model-parallel-size": "1"},
        "run --micro-batch-size 4 --pipeline-model-parallel-size $PP\n",
    ),
    "bare.sh": (
        "a) run --gradient_checkpointing ;;\n",
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": False},
        "a) run --gradient_checkpointing false ;;\n",
    ),
    "one_string.sh": (
        'A="--pipeline-model-parallel-size 2"\n',
        {"--pipeline-model-parallel-size": "2"},
        {"--pipeline-model-parallel-size": "2", "--pipeline-model-parallel-layout": "Et|tL"},
        'A="--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tL"\n',
    ),
    "titan.toml": (
        "[training]\nbatch_size = 8\n\n[parallelism]\ntensor_parallel_degree = 1\n\n"
        '[comm]\nmode = "x"\n',
        {"training.local_batch_size": 8, "parallelism.tensor_parallel_degree": 1},
        {
            "training.local_batch_size": 2,
            "parallelism.tensor_parallel_degree": 1,
            "parallelism.context_parallel_degree": 2,
            "activation_checkpoint.mode": "none",
        },
        "[training]\nbatch_size = 2\n\n[parallelism]\ncontext_parallel_degree = 2\n"
        'tensor_parallel_degree = 1\n\n[comm]\nmode = "x"\n\n'
        '[activation_checkpoint]\nmode = "none"\n',
    ),
    "bridge.yaml": (
        "model:\n  tensor_model_parallel_size: 8\n  sequence_parallel: true\n",
        {"model.tensor_model_parallel_size": 8, "model.sequence_parallel": True},
        {
            "model.tensor_model_parallel_size": 1,
            "model.sequence_parallel": False,
            "model.recompute_granularity": "full",
        },
        "model:\n  tensor_model_parallel_size: 1\n  recompute_granularity: full\n"
        "  sequence_parallel: false\n",
    ),
    "recipe.py": (
        "cfg.model.tensor_model_parallel_size = 8\nrecipe(pipeline_model_parallel_size=2, x=1)\n",
        {"model.tensor_model_parallel_size": 8, "model.pipeline_model_parallel_size": 2},
        {"model.tensor_model_parallel_size": 4, "model.pipeline_model_parallel_size": 1},
        "cfg.model.tensor_model_parallel_size = 4\nrecipe(pipeline_model_parallel_size=1, x=1)\n",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_options_are_set_added_and_taken_out_as_people_write_them(name):
    before, have, want, after = FORMS[name]
    assert changed({name: before}, have, want) == {name: after}


def test_the_diff_of_the_best_layout_can_be_applied(tmp_path):
    """The changed file is launched as the best layout: nothing is left to change."""
    text = (DATA.parents[2] / "docs/examples/train.sh").read_text("utf-8")
    (tmp_path / "train.sh").write_text(text, "utf-8")
    r = json.loads(invoke("launch-check", str(tmp_path / "train.sh"), "--json").stdout)["result"]
    assert r["changes"] and not r["left"]
    lines = text.splitlines()
    for line in r["diff"]:
        if line.startswith("-") and not line.startswith("---"):
            at = lines.index(line[1:])
            lines.pop(at)
        elif line.startswith("+") and not line.startswith("+++"):
            lines.insert(at, line[1:])
            at += 1
    (tmp_path / "train.sh").write_text("\n".join(lines) + "\n", "utf-8")
    r = json.loads(invoke("launch-check", str(tmp_path / "train.sh"), "--json").stdout)["result"]
    assert not r["changes"] and r["slower_factor"] < 1.001


TUNED = {
    "axolotl.yaml": (
        "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nsequence_len: 4096\n"
        "micro_batch_size: 1\ngradient_accumulation_steps: 8\ngradient_checkpointing: true\n",
        {"recompute"},
    ),
    "sft.sh": (
        "torchrun --nproc_per_node 8 sft.py --model_name_or_path meta-llama/Llama-3.1-8B "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 16 --bf16 True "
        "--gradient_checkpointing True --max_seq_length 2048 --deepspeed ds.json\n",
        {"recompute", "zero_stage"},  # micro-batches of 2 fit at 56 %: too unsure
    ),
    "short.sh": (
        "torchrun --nproc_per_node 8 sft.py --model_name_or_path meta-llama/Llama-3.1-8B "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 16 --bf16 True "
        "--gradient_checkpointing True --max_seq_length 1024 --deepspeed ds.json\n",
        {"micro_batch_size", "accumulation", "recompute", "zero_stage"},
    ),
}


@pytest.mark.parametrize("name", TUNED)
def test_a_fine_tuning_launch_is_told_what_is_faster(name, tmp_path, monkeypatch):
    """The files with the diff applied are as fast as the best: nothing more to change."""
    monkeypatch.chdir(tmp_path)
    text, fields = TUNED[name]
    (tmp_path / name).write_text(text, "utf-8")
    zero = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n'
    (tmp_path / "ds.json").write_text(zero, "utf-8")
    beside = ("ds.json",) if "ds.json" in text else ()
    given = ("launch-check", name, *beside, "--gpus", "8", "--gpu", "h100", "--json")
    r = json.loads(invoke(*given).stdout)["result"]
    assert {c["field"] for c in r["changes"]} == fields
    assert r["slower_factor"] > 1.2 and not r["left"]
    file = ""
    for line in r["diff"]:
        if line.startswith("+++ b/"):
            file = line[6:]
            lines = (tmp_path / file).read_text("utf-8").splitlines()
        elif line.startswith("-") and not line.startswith("---"):
            at = lines.index(line[1:])
            lines.pop(at)
        elif line.startswith("+"):
            lines.insert(at, line[1:])
            (tmp_path / file).write_text("\n".join(lines) + "\n", "utf-8")
    r = json.loads(invoke(*given).stdout)["result"]
    assert not r["changes"] and r["slower_factor"] < 1.001
