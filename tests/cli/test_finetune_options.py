"""Every option given with `--method` changes the answer or is refused with a reason."""

import json

import pytest
from running import invoke

from gpuscale.answers.ask import fields_of
from gpuscale.answers.training.asked import Memory
from gpuscale.answers.training.plan import Plan
from gpuscale.cli.app import run

VALUES = {
    "gpus": "4",
    "micro_batch": "4",
    "global_batch": "64",
    "recompute": "selective",
    "recompute_layers": "3",
    "order": "tp-cp-pp-dp",
    "offload": "optimizer,gradients",
    "precision": "fp8",
    "recipe": "fp32-adam",
    "software": "torchtune",
    "seq_len": "1000",
    "max": "micro-batch",
    "base": "int8",
    "targets": "q,v",
    "optimizer": "lion",
    "loss": "fused",
    "attention": "eager",
    "mean_len": "700",
    "max_len": "1000",
    "host_memory": "1GB",
    "engine": "hf",
    "critic": "gpt2-xl",
    "cluster": "dgx-a100",
    "gpu": "a100-80gb",
    "catalogue": "documents",
    "schedule": "gpipe",
    "cp_kind": "ring",
    "freeze": "2",
    "site": "france",
    "fleet": "llama3-h100",
    "mtbf": "3h",
    "recovery": "hot",
    "saver": "sync",
    "store": "9 GB/s",
    "interval": "3h",
    "tokens": "5M",
    "objective": "fewest-gpus",
    "fit": "tight",
    "price": "7 USD/h",
    "deadline": "30d",
    "budget": "5kUSD",
    "max_step_time": "5s",
    "scaling": "strong",
    "stragglers": "0.3",
    "mfu_at_least": "0.4",
    "weights": "fp8",
    "kv": "fp8",
    "context": "4k",
    "sequence_parallel": "off",
    "prompt": "300",
    "response": "300",
    "max_response": "900",
    "dispatcher": "deepep",
    "moe_kernels": "2025",
    "recompute_modules": "moe_act",
    "moments": "bf16",
    "gradients": "bf16",
}
"""Another value than the default; those left out are a switch, `off` or 2."""

NOT_OF_A_JOB = {
    *("model", "set", "calibration", "sweep", "sweep_show", "method", "own", "job", "params"),
    "show_job",
}

WIRES = ("gpus_per_node", "nics", "link")
ALLOWED = {  # what may change nothing, and why
    ("grpo", "packing"): "its samples are put together already",
    ("lora", "dp"): "the degree that --gpus means",
    ("grpo", "dp"): "the degree that --gpus means",
    ("lora", "recompute"): "selective keeps what none keeps under flash attention",
    ("grpo", "recompute"): "selective keeps what none keeps under flash attention",
    ("lora", "group_by_length"): "rows are full unless --mean-len says it",
    ("lora", "fit"): "the fastest fits at its upper end already",
    ("lora", "micro_batch"): "the plan takes 4 by itself",
    **{(m, o): "two GPUs are in one node" for m in ("lora", "grpo") for o in WIRES},
}


def given(name: str, field: object) -> list[str]:
    """One option with another value than its default."""
    flag = "--" + name.replace("_", "-")
    if isinstance(getattr(field, "default", None), bool):
        return [flag]
    switch = name.startswith("overlap") or name == "cuda_graphs"
    return [flag, VALUES.get(name, "off" if switch else "2")]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "grpo"])
@pytest.mark.parametrize(("command", "question"), [("memory", Memory), ("plan", Plan)])
def test_no_option_is_ignored(capsys, method, command, question):
    ask = [command, "qwen3-0.6b", "--method", method]
    machine = ["--gpu", "h100"] if command == "plan" else []
    where = ["--gpus", "2"]
    code = run([*ask, *machine, *where])
    usual = capsys.readouterr().out
    assert code in (0, 1)
    silent = []
    for name, (field, _) in fields_of(question).items():
        if name in NOT_OF_A_JOB or (question is Plan and name in fields_of(Memory)):
            continue  # what both have is read by the same code
        at = [] if name in ("gpu", "cluster") else machine
        of = [] if name == "gpus" else where
        code = run([*ask, *at, *of, *given(name, field)])
        found = capsys.readouterr()
        if code == 2:
            assert found.err.startswith("error: ") and not found.out, name
            continue
        assert code in (0, 1), (name, found.err)
        if found.out == usual and (method, name) not in ALLOWED:
            silent.append(name)
    assert not silent


REFUSED = [
    (("--method", "lora", "--vpp", "2"), "--vpp needs --pp above 1"),
    (("--method", "lora", "--gpus", "2", "--cp-kind", "ring"), "--cp-kind needs --cp"),
    (("--method", "grpo", "--max", "seq-len"), "--max has no meaning"),
    (("--method", "grpo", "--prompt", "900", "--seq-len", "800"), "leaves nothing of 800"),
    (("--method", "grpo", "--prompts", "4", "--global-batch", "64"), "above the 32 samples"),
    (("--method", "grpo", "--critic", "gpt2"), "is for --method ppo"),
    (("--method", "grpo", "--lag", "4"), "--lag is for --engine async"),
    (("--method", "simpo", "--engine", "split"), "simpo has no rollout"),
    (("--method", "lora", "--recompute-layers", "3"), "recomputes all layers or none"),
    (("--method", "full", "--precision", "fp32"), "--software trl"),
]


@pytest.mark.parametrize(("args", "words"), REFUSED)
def test_options_without_effect_are_refused(capsys, args, words):
    code = run(["memory", "qwen3-0.6b", *args])
    found = capsys.readouterr()
    assert (code, found.out) == (2, "") and words in found.err


def test_a_framework_moves_to_the_host_what_it_can():
    job = ["llama3-70b", "--method", "qlora", "--gpu", "rtx-4090", "--gpus", "1"]
    refused = invoke("memory", *job, "--software", "unsloth", "--offload", "parameters")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "unsloth keeps them on the GPU" in refused.stderr
    assert invoke("plan", *job, "--software", "unsloth").returncode == 1
    moved = invoke("plan", *job, "--software", "hf-deepspeed")
    assert moved.returncode == 0 and "offload" in moved.stdout


@pytest.mark.parametrize(
    "moved", ["optimizer", "activations", "parameters", "optimizer,activations"]
)
def test_the_closest_plan_keeps_what_was_asked_for(moved):
    line = ("llama3-70b", "--gpu", "rtx-4090", "--gpus", "8", "--method", "full")
    done = invoke("plan", *line, "--offload", moved, "--json")
    assert done.returncode == 1
    assert sorted(json.loads(done.stdout)["result"]["chosen"]["offload"]) == sorted(
        moved.split(",")
    )


@pytest.mark.parametrize(
    ("software", "n_gpus", "parts"),
    [
        ("litgpt", 1, ()),
        ("litgpt", 4, ()),
        ("torchtune", 1, ()),  # no FSDP on one GPU
        ("torchtune", 4, ()),  # the fused loss fits before
        ("ms-swift", 1, ("gradients", "optimizer", "parameters")),
        ("megatron-swift", 4, ()),  # weights stay: the optimizer's states alone do not make it fit
    ],
)
def test_a_plan_moves_to_the_host_what_the_framework_can(software, n_gpus, parts):
    job = ["llama3-8b", "--method", "full", "--gpu", "rtx-3090", "--gpus", str(n_gpus), "--json"]
    chosen = json.loads(invoke("plan", *job, "--software", software).stdout)["result"]["chosen"]
    assert tuple(chosen["offload"]) == parts


def test_experts_run_as_the_classes_of_the_version():
    """A loop over experts before Transformers 5, one product since; Llama 4 computes them all."""

    def asked(model, software):
        args = ("--gpu", "h200", "--gpus", "8", "--zero", "3", "--max-len", "4096")
        args += ("--micro-batch", "1", "--recompute", "full", "--software", software)
        done = invoke("memory", model, "--method", "lora", *args, "--json")
        return json.loads(done.stdout)["result"]

    was, now = (asked("qwen3-30b-a3b", s)["step_s"] for s in ("trl:2025-06", "trl"))
    assert was > 10 * now
    assert asked("qwen3-30b-a3b", "hf-deepspeed")["step_s"] == pytest.approx(now, rel=0.5)
    was, now = (asked("qwen3-30b-a3b", s)["step_s"] for s in ("verl:2025-10", "verl"))
    assert was > 2 * now  # a framework without a row of its own: Transformers of that day
    all_of_them, chosen = (asked("llama4-scout", s) for s in ("trl", "nemo-automodel"))
    assert all_of_them["step_s"] > 3 * chosen["step_s"]
    held = [r["expected"]["working_bytes"] for r in (all_of_them, chosen)]
    assert held[0] > 3 * held[1]


def test_chunks_of_a_loss_are_the_framework_s_own():
    """TRL has logits of some tokens at a time, torchtune whole ones in 16 bits."""

    def held(loss):
        args = ("--gpu", "h100", "--gpus", "8", "--zero", "3", "--max-len", "65536")
        args += ("--micro-batch", "1", "--recompute", "full", "--software", "trl:2026-08")
        done = invoke("memory", "qwen3-8b", "--method", "full", *args, "--loss", loss, "--json")
        return json.loads(done.stdout)["result"]["expected"]["peaks"]["loss"]

    assert held("eager") > 1.5 * held("chunked")
    assert held("chunked") == pytest.approx(held("fused"), rel=0.05)
