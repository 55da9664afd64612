"""Explanations that can be wrong: every formula gives its value over the inputs that it names."""

import json
import math
import random
import re
import shlex

import pytest
from running import invoke

from gpuscale.answers.table import COMMANDS
from gpuscale.core.quantity import UNITS, dimension_of
from gpuscale.textbook.evaluate import ARITHMETIC, evaluate

GPUS = ("h100", "a100-80gb", "b200", "rtx-4090", "mi300x", "v100", "tpu-v5p", "gh200")
DENSE = ("llama3-8b", "qwen2.5-7b", "llama2-13b", "gemma2-9b", "phi4")
SPARSE = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b")


def sizes(draw, n):
    return " ".join(str(draw.choice((1, 7, 64, 300, 4096, 6000, 28672))) for _ in range(n))


DRAWN = {
    "matmul-time": (12, lambda d: f"{d.choice(GPUS)} {sizes(d, 3)} --batch {d.choice((1, 1, 5))}"),
    "collective": (
        16,
        lambda d: (
            f"{d.choice(('all-reduce', 'all-gather', 'all-to-all', 'send-recv', 'broadcast'))} "
            f"{d.choice(('dgx-h100', 'dgx-a100', 'gb200-nvl72', 'rtx-3090', 'mi300x'))} "
            f"--gpus {d.choice((2, 4, 8))} --bytes {d.choice((900, 1e5, 3e7, 1e9))}"
        ),
    ),
    "model": (5, lambda d: f"{d.choice(DENSE + SPARSE)} --kv-bytes {d.choice((1, 2))}"),
    "roofline": (4, lambda d: f"{d.choice(DENSE + SPARSE)} --gpus {d.choice((8, 64, 512))}"),
    "network": (
        6,
        lambda d: (
            f"--gpus {d.choice((512, 1024, 4096))} --topology "
            + d.choice(("fat-tree", "rail-optimised", "dragonfly", "torus", "slim-fly"))
        ),
    ),
    "checkpoint": (
        6,
        lambda d: (
            f"{d.choice(DENSE)} --gpus {d.choice((8, 64, 4096))} --saver "
            f"{d.choice(('sync', 'async', 'memory'))} --recovery {d.choice(('hot', 'manual'))} "
            f"--stragglers {d.choice((0.01, 0.02))}"
        ),
    ),
    "memory": (
        5,
        lambda d: (
            f"{d.choice(DENSE)} --gpus 8 --micro-batch {d.choice((1, 2))} --zero "
            f"{d.choice((0, 1, 3))} --recompute {d.choice(('none', 'full', 'selective'))}"
        ),
    ),
    "memory --serve": (
        5,
        lambda d: (
            f"{d.choice(DENSE + SPARSE)} --gpus {d.choice((1, 4, 8))} --gpu "
            f"{d.choice(('h100', 't4', 'a100-80gb'))} --concurrency {d.choice((1, 64))}"
        ),
    ),
}
"""Command -> (how many, a job at random)."""

FIXED = (
    "matmul-time h100 256 8192 28672 --dtypes bf16,fp8,bf16 --groups 4 --batch 2",
    "matmul-time h100 1e9 --op axpy",
    "matmul-time v100 3000 --op copy",
    "collective all-reduce dgx-h100 --gpus 64 --bytes 1GB",
    "collective all-reduce dgx-a100 --gpus 64 --bytes 64MB --algorithm tree",
    "collective all-to-all dgx-h100 --gpus 32 --bytes 256MB --top-k 8 --once-per-node",
    "collective all-gather h100 --shape 4096x65536",
    "collective all-gather dgx-h100 --gpus 64 --sweep 1KiB:1GiB",
    "network h100-superpod --gpus 1024",
    "roofline chip --gpu h100",
    "roofline dp --gpu h100 --batch-tokens 4M --gpus 64",
    "roofline tp --gpu h100 --ffn 28672",
    "memory --params 7B --gpus 8 --zero 2 --recipe fp32-adam",
    "memory --params 7B --serve --weights int4",
    "memory deepseek-v3 --gpus 256 --pp 8 --ep 32 --recompute full --recompute-layers 2",
    "memory nemotron-3-nano --gpus 8",
    "memory llama3-8b --gpu rtx-4090 --method qlora",
    "memory mixtral-8x7b --gpu a100-80gb --gpus 4 --method qlora --zero 3",
    "memory qwen2.5-7b --gpu h100 --gpus 8 --method grpo",
    "plan llama3-70b --gpus 64 --spot --site france --price '2 USD/h'",
    "plan llama3-8b --gpus 16 --software fsdp --tokens 1T --mtbf 3h --interval 1h",
    "plan llama3-8b --gpus 64 --deadline 60d --tokens 1T --tp 1 --pp 1 --cp 1",
    "plan mixtral-8x7b --gpus 32 --precision fp8 --pp 2 --tp 4",
    "plan llama3-8b --gpus 8 --gpu h100 --method lora --examples 10000 --mean-len 500",
    "plan llama3-8b --gpu h100 --gpus 16 --method grpo --engine async --rollout-gpus 8 --steps 9",
    "plan llama3-8b --gpu a100-80gb --gpus 8 --method ppo",
    "plan llama3-8b --gpu h100 --gpus 8 --method dpo",
    "serve llama3-8b --gpu h100 --gpus 1 --concurrency 4 --input 300 --output-len 30",
    "serve llama3-70b --gpu h100 --gpus 4 --tp 4 --weights fp8 --draft eagle:4 --accept 0.7 "
    "--concurrency 4 --input 500 --output-len 50",
    "serve llama3-8b --gpu h100 --gpus 2 --disagg 1xTP1+1xTP1 --burst 9 --input 100 "
    "--output-len 20",
    "timeline llama3-8b --gpus 32 --pp 4 --vpp 2 --tp 2 --cp 2",
    "timeline llama3-8b --gpus 16 --pp 4 --schedule zb-h1 --software any",
    "quiz gpu.quiz1.q3.h100",
    "explain mfu",
    "compare h100 a100-80gb",
)

TERMS = {
    "matmul-time": {"time_s": "time_s", "expected_time_s": "expected.time_s"},
    "collective": {
        "time_s": "time_s",
        "busbw_bytes_per_s": "busbw_bytes_per_s",
        "expected_time_s": "expected.time_s",
    },
    "model": {
        k: k for k in ("params", "active_params", "training_flop_per_token", "kv_bytes_per_token")
    },
    "network": {"n_switches": "n_switches", "collective_bytes_per_s": "collective_bytes_per_s"},
    "checkpoint": {
        "checkpoint_bytes": "checkpoint_bytes",
        "write_s": "save.write_s",
        "blocking_s": "save.blocking_s",
        "load_s": "save.load_s",
        "expected_s": "outlook.expected_s",
        "n_interruptions": "n_interruptions",
        "lost_frac": "lost_frac",
        "usd": "bill.charge.usd",
        "energy_j": "bill.charge.energy_j",
        "carbon_kg": "bill.charge.carbon_kg",
    },
    "plan": {
        "step_s": "step_s",
        "roofline_s": "roofline_s",
        "mfu": "mfu",
        "tokens_per_s": "tokens_per_s",
        "peak_bytes": "peak_bytes",
        "capacity_bytes": "capacity_bytes",
        "ideal_s": "run.time_s",
        "expected_s": "run.expected_s",
        "gpu_hours": "run.gpu_hours",
        "usd": "run.usd",
    },
    "memory": {"peak_bytes": "expected.total_bytes", "capacity_bytes": "capacity_bytes"},
    "memory --serve": {
        "total_bytes": "per_gpu.total_bytes",
        "max_concurrency": "per_gpu.max_concurrency",
        "capacity_bytes": "per_gpu.usable_bytes",
    },
    "serve": {
        "n_gpus": "n_gpus",
        "ttft_p95_s": "ttft_p95_s",
        "tpot_p95_s": "tpot_p95_s",
        "output_tokens_per_s": "output_tokens_per_s",
        "usd_per_million_output_tokens": "usd_per_million_output_tokens",
    },
    "timeline": {"step_s": "step_s", "bubble_frac": "bubble_frac"},
    "tuning": {
        "run_s": "run_s",
        "step_s": "step_s",
        "peak_bytes": "peak_bytes",
        "usd": "cost_usd",
        "tokens_per_s": "tokens_per_s",
    },
    "rl": {"step_s": "step_s", "peak_bytes": "peak_bytes", "tokens_per_s": "tokens_per_s"},
}
"""Kind of answer -> term of each headline number and where the answer has it."""

WITHOUT = {
    "presets": "figures with their sources",
    "schema": "a shape",
    "study": "answers of other commands, each with its terms",
    "check": "answers of other commands, each with its terms",
    "validate": "measurements beside predictions",
    "calibrate": "a fit",
    "diagnose": "causes ranked, each with its own source",
    "launch": "a file",
}
"""Commands whose answer is no formula, and what it is."""

GIVEN = re.compile(r"^(stated|as given|simulated|95th|mean, simulated|root of)|simulated: ")


def drawn():
    """Jobs at random, the same in every run."""
    for name, (n, job) in DRAWN.items():
        draw = random.Random(name)
        yield from (f"{name} {job(draw)}" for _ in range(n))


def walk(terms, top=True):
    for term in terms:
        yield term, top
        yield from walk(term["children"], False)


def wrong(term, top):
    """Say what is wrong with a term, or nothing."""
    formula, inputs = term["formula"], term["inputs"]
    if not formula:
        if inputs or not term["source"]:
            return "neither a formula nor a source"
        return "prose" if top and not GIVEN.search(term["source"]) else ""
    value = evaluate(formula, (ARITHMETIC | inputs).__getitem__)
    if not math.isclose(value, term["value"], rel_tol=1e-9):
        return f"{value} is not {term['value']}"
    names = set(re.findall(r"[A-Za-z_]\w*", formula))
    if unused := set(inputs) - names:
        return f"inputs that it does not use: {unused}"
    for child in term["children"]:
        if inputs.get(child["name"]) != child["value"]:
            return f"its child {child['name']} is none of its inputs"
    if top and not term["source"]:
        return "no source"
    if term["unit"] and (term["unit"] not in UNITS or term["unit"] != dimension_of(term["name"])):
        if term["unit"] != "count" and dimension_of(term["name"]):
            return f"unit {term['unit']}"
    return ""


def explained(line):
    done = invoke(*shlex.split(line), "--explain", "--json")
    assert done.returncode in (0, 1), (line, done.stderr)
    return json.loads(done.stdout)


def kind_of(line, answer):
    words = shlex.split(line)
    if "--method" in words:
        return "rl" if "estimate" in answer["result"] else "tuning" if words[0] == "plan" else ""
    if "--serve" in words:
        return "memory --serve" if words[0] == "memory" and "--params" not in words else ""
    if "--params" in words or "--deadline" in words or "--sweep" in words:
        return ""
    return words[0]


@pytest.mark.slow
@pytest.mark.parametrize("line", [*FIXED, *drawn()])
def test_every_formula_gives_its_value(line):
    answer = explained(line)
    assert answer["explain"]
    found = [(t["name"], said) for t, top in walk(answer["explain"]) if (said := wrong(t, top))]
    assert found == []
    values = {t["name"]: t["value"] for t in answer["explain"]}
    for name, path in TERMS.get(kind_of(line, answer), {}).items():
        at = answer["result"]
        for key in path.split("."):
            at = at and at[key]
        if at is not None:
            assert math.isclose(values[name], at, rel_tol=1e-12), name


LAUNCHED = (
    "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
    "--micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16 "
    "--use-distributed-optimizer --sequence-parallel",
    "vllm serve llama3-8b --tensor-parallel-size 2 --max-model-len 4096",
)


@pytest.mark.parametrize("command", LAUNCHED)
def test_a_launch_file_is_explained(command, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(command)
    answer = explained(f"launch-check {path} --model llama3-8b --gpus 16")
    found = [(t["name"], said) for t, top in walk(answer["explain"]) if (said := wrong(t, top))]
    assert found == [] and answer["explain"]
    values = {t["name"]: t["value"] for t in answer["explain"]}
    if answer["result"]["step_s"]:
        assert values["peak_bytes"] == answer["result"]["peak_bytes"]
        assert values["step_s"] == answer["result"]["step_s"]


def test_every_command_is_here():
    asked = {line.split()[0] for line in [*FIXED, *DRAWN]} | {"launch-check"}
    assert asked | set(WITHOUT) == set(COMMANDS)


def test_inputs_are_not_made_of_the_result():
    """Twice the bandwidth of the data sheet is twice that input, whatever the time becomes."""
    for line, name, at in (
        ("matmul-time h100 64 4096 8192", "bytes_per_s", "gpu.hbm_bytes_per_s=6.7TB/s"),
        ("checkpoint llama3-8b --gpus 64", "power_w", ""),
    ):
        before = explained(line)["explain"]
        if at:
            after = explained(f"{line} --set {at}")["explain"]
            assert after[0]["inputs"][name] == 6.7e12 != before[0]["inputs"][name]
        else:  # the energy's time is that of the run, said in a term of its own
            energy = next(t for t in before if t["name"] == "energy_j")
            run = next(t for t in before if t["name"] == "expected_s")
            assert energy["inputs"]["time_s"] == run["value"]
