"""What `launch` writes is read back as the same job; what a framework cannot say is said."""

import json
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import invoke

import gpuscale
from gpuscale.answers.launch_check import LaunchCheck
from gpuscale.answers.launch_check.check import _model, found_in
from gpuscale.answers.launch_check.tuned import _options, software_of
from gpuscale.answers.saved import launch_of
from gpuscale.answers.training.asked import Memory
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import load_software
from gpuscale.launch.dialects.rows import known_keys
from gpuscale.launch.dialects.write import launch_script, options
from gpuscale.launch.found import layout_of
from gpuscale.render.text import plain

FINE_TUNING = {
    "llama-factory": ("llama-factory",),
    "axolotl": ("axolotl",),
    "trl": ("trl", "hf-peft", "hf-deepspeed", "hf-fsdp"),
    "ms-swift": ("ms-swift",),
    "megatron-swift": ("megatron-swift",),
    "megatron-bridge": ("megatron-bridge",),
    "llama-factory-mca": ("llama-factory-mca",),
    "torchtune": ("torchtune",),
    "unsloth": ("unsloth",),
    "openrlhf": ("openrlhf",),
    "nemo-rl": ("nemo-rl",),
    "verl-sft": ("verl",),
    "nemo-automodel": ("nemo-automodel",),
    "oumi": ("hf-peft",),
    "litgpt": ("litgpt",),
    "mistral-finetune": ("hf-peft",),
    "llm-foundry": ("hf-fsdp",),
    "veomni": ("fsdp",),
}
MEGATRON = ("megatron-swift", "megatron-bridge", "llama-factory-mca")
RL = {"trl": "trl", "verl": "verl", "openrlhf": "openrlhf", "nemo-rl": "nemo-rl"}
SAME_FIGURES = {"hf-peft", "hf-deepspeed", "hf-fsdp", "trl", "fsdp-qlora"}
"""Names of one family: whose figures hold is told by how the job is sharded."""
FOLLOWS = {
    "accumulation": {"global_batch_size"},
    "offload_parameters": {"zero_stage"},
    "offload_activations": {"recompute"},
    "rl.engine": {"rl.rollout_tp"},
    "rl.prompts": {"rl.updates"},
    "rl.prompt": {"seq_len"},
    "cp": {"cp_kind"},
}
"""Field that cannot be said -> those that are other for it."""


def read_again(written, name, text, saved):
    """Job of the files, as the answer that `launch-check` gives keeps it."""
    found = found_in({name: text}, {}, ())
    assert not found.wrong and not found.unread and not found.beside, (found, text)
    gpu = saved["cluster"]["gpu"]["name"]
    model, missing = _model(LaunchCheck((name,), gpu=gpu), found)
    assert model is not None and not missing, (missing, text)
    options = _options(LaunchCheck((name,), gpu=gpu), found, model, found.world_size)
    answer = Memory(found.model_name, **options).answer()
    return plain(answer.job()), answer.result, found


def left_over(saved, again, unsaid):
    """Fields that are otherwise and that nobody said are."""
    known = set(unsaid) | {f for name in unsaid for f in FOLLOWS.get(name, ())}
    known |= {"lora_alpha"} | ({"zero_stage"} if saved["layout"]["dp"] == 1 else set())
    one = {**saved["layout"], **saved["tuning"], **saved["settings"]}
    two = {**again["layout"], **again["tuning"], **again["settings"]}
    return {
        key: (one.get(key), two.get(key))
        for key in one | two
        if one.get(key) != two.get(key) and key not in known
    }


def unknown_keys(launch, framework):
    """Keys that are written and that the framework's own classes do not have."""
    known = known_keys({"verl-sft": "verl", "megatron-swift": "ms-swift"}.get(framework, framework))
    keys = {key.lstrip("-+") for key in options(launch, framework)}
    return {k for k in keys if known and not {k, k.rpartition(".")[2]} & {*known, "_component_"}}


def as_written(framework, asked, wrapper):
    """Answer of a job, the job as it keeps it, its launch, and the files of that."""
    answer = gpuscale.memory(**asked)
    launch = launch_of(answer.to_dict()["job"])
    return answer, answer.to_dict()["job"], launch, launch_script(launch, framework, wrapper)


def round_trip(framework, asked, wrapper):
    """Write a job and read it again: no key is invented, and none is read otherwise."""
    answer, saved, launch, (written, name, text) = as_written(framework, asked, wrapper)
    assert unknown_keys(launch, framework) == set()
    again, result, found = read_again(written, name, text, saved)
    assert left_over(saved, again, written.unsaid_fields) == {}, text
    assert again["model"] == saved["model"]
    return answer, saved, written, again, result, found


@st.composite
def tuned(draw):
    framework = draw(st.sampled_from(sorted(FINE_TUNING)))
    method = draw(st.sampled_from(("full", "lora", "qlora", "dora")))
    gpus = draw(st.sampled_from((1, 2, 8, 16)))
    micro = draw(st.sampled_from((1, 2, 4)))
    asked = {
        "model": draw(st.sampled_from(("llama3-8b", "qwen2.5-7b", "mistral-7b"))),
        "software": draw(st.sampled_from(FINE_TUNING[framework])),
        "method": method,
        "gpus": gpus,
        "micro_batch": micro,
        "accumulation": draw(st.sampled_from((1, 2, 8))),
        "seq_len": draw(st.sampled_from((512, 4096, 8192))),
        "recompute": draw(st.sampled_from(("none", "full"))),
        "cp": draw(st.sampled_from((None, None, None, 2))) if gpus > 1 else None,
        "loss": draw(st.sampled_from((None, "eager", "fused", "chunked"))),
        "attention": draw(st.sampled_from((None, "eager", "flash2"))),
        "optimizer": draw(st.sampled_from((None, "adamw", "paged-adamw-8bit", "adamw-8bit"))),
        "zero": draw(st.sampled_from((None, 0, 1, 2, 3))) if gpus > 1 else None,
        "offload": draw(st.sampled_from((None, None, "optimizer", "parameters,optimizer"))),
    }
    if framework in MEGATRON:
        asked |= {name: draw(st.sampled_from((1, 2))) for name in ("tp", "pp")}
        asked["recompute"] = draw(st.sampled_from(("none", "selective", "full")))
    if method != "full":
        asked["rank"] = draw(st.sampled_from((8, 64)))
        asked["targets"] = draw(st.sampled_from((("all-linear",), ("q", "v"), ("q", "k", "v"))))
        asked["base"] = draw(st.sampled_from((None, None, "int8", "nf4")))
    return framework, asked


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(tuned(), st.sampled_from(("torchrun", "slurm")))
def test_a_fine_tuning_job_is_read_back_as_it_was(job, wrapper):
    framework, asked = job
    with suppress(GpuscaleError):  # no such job
        asked |= {"gpu": "h100-sxm"}
        answer, saved, written, again, result, found = round_trip(framework, asked, wrapper)
        same = {saved["software"], again["software"]}
        assert len(same) == 1 or same <= SAME_FIGURES, software_of(found)
        if not written.unsaid and len(same) == 1:
            assert result.peak_bytes == answer["peak_bytes"]
            assert result.step_s == answer["step_s"]


@st.composite
def rolled_out(draw):
    framework = draw(st.sampled_from(sorted(RL)))
    asked = {
        "model": draw(st.sampled_from(("llama3-8b", "qwen2.5-7b"))),
        "software": RL[framework],
        "method": draw(st.sampled_from(("grpo", "dapo", "dpo", "rloo", "ppo"))),
        "gpus": draw(st.sampled_from((1, 8, 16))),
        "micro_batch": draw(st.sampled_from((1, 2))),
        "prompts": draw(st.sampled_from((16, 128))),
        "seq_len": None,
        "recompute": draw(st.sampled_from(("none", "full"))),
        "offload": draw(st.sampled_from((None, "parameters,optimizer"))),
    }
    if asked["method"] == "dpo":
        return framework, asked | {"seq_len": 2048}
    asked["prompt"] = draw(st.sampled_from((512, 1024)))
    asked["max_response"] = draw(st.sampled_from((1024, 7168)))
    if asked["method"] != "ppo":
        asked["group"] = draw(st.sampled_from((4, 16)))
    if draw(st.booleans()):
        asked["rollout_tp"] = draw(st.sampled_from((1, 2)))
    return framework, asked


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(rolled_out(), st.sampled_from(("torchrun", "slurm")))
def test_a_job_of_rl_is_read_back_as_it_was(job, wrapper):
    framework, asked = job
    with suppress(GpuscaleError):  # no such job
        round_trip(framework, asked | {"gpu": "h100-sxm"}, wrapper)


PRETRAINING = {
    "megatron": ("megatron-core", ("llama3-8b", "mixtral-8x7b", "deepseek-v3")),
    "megatron-bridge": ("megatron-bridge", ("llama3-8b", "qwen3-30b-a3b")),
    "primus": ("megatron-core", ("llama3-8b", "mixtral-8x7b", "deepseek-v3")),
    "torchtitan": ("torchtitan", ("llama3-8b", "llama3-70b", "qwen3-30b-a3b")),
    "deepspeed": ("deepspeed-zero3", ("llama3-8b", "qwen2.5-14b")),
    "accelerate": ("fsdp", ("llama3-8b", "qwen2.5-14b")),
    "maxtext": ("jax", ("llama3-8b", "mixtral-8x7b")),
    "nanotron": ("nanotron", ("llama3-8b", "llama2-7b")),
    "olmo-core": ("pytorch", ("llama3-8b", "olmo2-7b")),
}
SAID = {
    "overlap_tp": "tensor parallelism without",
    "overlap_dp": "data parallelism without",
    "recompute": "recomputation",
    "precision": "fp8",
    "sequence_parallel": "sequence parallelism",
    "zero_stage": "ZeRO",
    "shard_group_size": "shards of|replicas of|ZeRO",
    "offload_optimizer": "on the host|offload",
}
"""Field of a layout -> what its words hold where a framework has none for it."""
MEANINGLESS = {"tp": ("overlap_tp", "sequence_parallel"), "cp": ("cp_kind",), "pp": ("overlap_pp",)}


@st.composite
def laid_out(draw):
    framework = draw(st.sampled_from(sorted(PRETRAINING)))
    software, models = PRETRAINING[framework]
    gpus, micro = draw(st.sampled_from((8, 16, 64))), draw(st.sampled_from((1, 2)))
    asked = {
        "model": draw(st.sampled_from(models)),
        "software": software,
        "gpus": gpus,
        "cluster": draw(st.sampled_from(("dgx-h100", "dgx-b200"))),
        "micro_batch": micro,
        "global_batch": gpus * micro * draw(st.sampled_from((1, 4))),
        "seq_len": 8192,
        "recompute": draw(st.sampled_from(("none", "full", "selective"))),
        "precision": draw(st.sampled_from(("bf16", "bf16", "fp8"))),
    }
    if software not in ("fsdp", "deepspeed-zero3"):
        asked |= {name: draw(st.sampled_from((1, 2, 4))) for name in ("tp", "pp")}
    for name, values in (("vpp", (1, 2)), ("zero", (0, 1, 2, 3)), ("shard_group", (8,)),
                         ("cp", (2,)), ("overlap_dp", ("off",)), ("offload", ("optimizer",)),
                         ("sequence_parallel", ("off",)), ("ep", (2, 8))):  # fmt: skip
        if draw(st.integers(0, 4)) == 0:
            asked[name] = draw(st.sampled_from(values))
    return framework, asked


def test_experts_under_maxtext_are_split_as_the_rest(tmp_path):
    """One time of the layout in full, of its file, and of its pins."""
    job = "mixtral-8x7b --software jax --cluster dgx-h100 --gpus 16"
    pins = "--tp 4 --ep 2 --zero 3 --recompute full"
    file = str(tmp_path / "run.sh")
    done = invoke("plan", *job.split(), *pins.split(), "-o", file, "--json")
    plan = json.loads(done.stdout)["result"]
    assert plan["layout"]["etp"] == 4 and "not expressed" not in Path(file).read_text()
    read = json.loads(invoke("launch-check", file, "--cluster", "dgx-h100", "--json").stdout)
    assert read["result"]["layout"]["etp"] == 4
    assert read["result"]["step_s"] == pytest.approx(plan["step_s"], rel=1e-9)
    memory = json.loads(invoke("memory", *job.split(), *pins.split(), "--json").stdout)
    assert memory["result"]["layout"]["etp"] == 4


@settings(max_examples=40, deadline=None)
@given(laid_out(), st.sampled_from(("torchrun", "slurm")))
def test_a_pre_training_layout_is_read_back_as_it_was(job, wrapper):
    framework, asked = job
    with suppress(GpuscaleError):  # no such layout
        _, _, launch, (written, name, text) = as_written(framework, asked, wrapper)
        found = found_in({name: text}, {}, ())
        assert not found.wrong and not found.beside, (found, text)
        model, _ = _model(LaunchCheck((name,), cluster=asked["cluster"]), found)
        software = load_software(asked["software"])
        read = layout_of(found, model, software, found.world_size, None)
        one, two = asdict(launch.layout), asdict(read)
        for lay, layout in ((one, launch.layout), (two, read)):
            lay["schedule"] = layout.schedule_name if layout.pp > 1 else ""
            lay["shard_group_size"] = layout.shard_group_size or layout.dp * layout.cp
            lay["stage_layers"] = layout.stage_layers or launch.stage_layers
        unsaid = " ".join(written.unsaid)
        idle = {n for degree, names in MEANINGLESS.items() if one[degree] == 1 for n in names}
        idle |= set() if launch.layout.sequence_parallel else {"overlap_tp"}  # which needs it
        idle |= {"zero_stage"} if launch.layout.dp * launch.layout.cp == 1 else set()
        other = {
            key: (one[key], two[key])
            for key in one
            if one[key] != two[key] and key not in idle
            and not (key in SAID and re.search(SAID[key], unsaid))
        }  # fmt: skip
        assert other == {}, (other, written.unsaid, text)
