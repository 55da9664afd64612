"""Hints name a likely typing mistake, or say what a thing is called here."""

import re

import pytest
from running import invoke

from gpuscale.errors import typo_of

ALIKE = [  # what merely spells alike, and what must not be offered for it
    ("memory llama3-8b --lora", "--format"),
    ("memory llama3-8b --checkpoint", "--catalogue"),
    ("memory gpt-5", "gpt-3"),
    ("memory llama-4", "llama3"),
    ("train llama3-8b", "plan?"),
    ("gemm h100 64 64 64", "gemma"),
]


@pytest.mark.parametrize(("line", "other"), ALIKE)
def test_a_hint_is_never_what_merely_spells_alike(line, other):
    r = invoke(*line.split())
    assert (r.returncode, r.stdout) == (2, "")
    assert r.stderr.startswith("error: ") and "hint: " in r.stderr
    assert "did you mean" not in r.stderr and other not in r.stderr.partition("hint:")[2]


@pytest.mark.parametrize(
    ("name", "other"),
    [("b100", "a100"), ("a1000", "a100"), ("4070", "4090"), ("rtx5070", "rtx5070ti")],
)
def test_another_product_is_no_typing_mistake(name, other):
    assert typo_of(name, [other]) == ""


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("launch llama3-8b", "--plan: Saved answer of `plan`, `memory` or `serve` (-o FILE.json)"),
        ("memory ./config.json", "--model: Model preset, TOML file, Hugging Face config.json"),
        ("launch-check no.sh", "FILE: Files of one launch: a script"),
        ("check x.toml", "--file: TOML with [[job]]"),
        ("compare a.json b.json", "--things: Two or more of a kind: answers saved by --json"),
        ("serve llama3-8b --gpu h100 --trace no.csv", "--trace: Traffic of a CSV file"),
    ],
)
def test_a_file_that_is_not_there_has_what_its_option_takes(line, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    r = invoke(*line.split())
    assert (r.returncode, r.stdout) == (2, "")
    assert "no such file" in r.stderr and f"hint: {hint}" in r.stderr


@pytest.mark.parametrize("option", ["--require step_s<1m", "--deadline 1m"])
def test_m_is_no_time_and_the_error_says_what_minutes_are(option):
    r = invoke(*f"plan llama3-8b --gpus 8 --gpu h100 {option}".split())
    assert (r.returncode, r.stdout) == (2, "")
    assert "unit 'm' in '1m' is not known here; try min for minutes" in r.stderr


NAMED_HERE = [
    ("llama3 70b --gpus 8", "`llama3-70b` is a model: `gpuscale plan llama3-70b --gpus 8`"),
    ("h100", "`h100` is a GPU"),
    ("help nosuch", "gpuscale --help"),
    ("flops llama3-8b", "gpuscale model"),
    ("--gpus 8 plan llama3-8b", "`gpuscale plan ... --gpus`"),
    ("plan llama3-8b 8 h100", "--gpus 8 --gpu h100"),
    ("plan llama3-8b --gpsu 8", "`--gpus`"),
    ("plan llama3-8b --gpus 8xh100", "h100 with --gpus 8"),
    ("plan llama3-8b \u2014gpus 8", "two hyphens: --gpus"),
    ("plan llama3-8b --gpus 64 128", "64,128"),
    ("checkpoint llama3-8b --time 30 days", "30days"),
    ("plan llama3-8b --gpus 8 --deadline 30", "--deadline 30s, 30h or 30d"),
    ("plan llama3-8b --gpus 8 --days 30", "--deadline (as 30d"),
    ("plan llama3-8b --gpus 8 --mfu 40%", "--mfu-at-least"),
    ("memory llama3-8b --throughput 3k", "--measured 'step_time=17.2 s' of diagnose"),
    ("diagnose llama3-8b --step-time 120s", "--measured (as 'step_time=17.2 s'"),
    ("diagnose llama3-8b --mfu 0.3", "--measured (as mfu=0.31)"),
    ("plan llama3-8b --gpus 8 --color never", "NO_COLOR=1"),
    ("plan llama3-8b --gpus 8 --quiet", "--show summary"),
    ("plan llama3-8b --gpus 8 -j", "--format json"),
    ("plan llama3-8b --gpus 8 --show", "gpuscale plan --help"),
    ("memory llama3-8b --gpus 8 --json=yes", "`--json` alone"),
    ("memory llama3-8b --gpu a100 80gb", "`a100-80gb`"),
    ("memory llama3-8b --recompute", "gpuscale memory --help"),
    ("plan llama3-8b --gpus 8 --set gpu.memory=96GB", "gpu.hbm_bytes"),
    ("collective all-reduce 1GB --gpus 8", "h100 1GB"),
    ("matmul-time 8192 8192 8192", "the name of a GPU"),
    ("matmul-time h100 8192x8192x8192", "gpuscale matmul-time b200 64 4096 8192"),
    ("compare h100 vs a100", "gpuscale compare h100 a100"),
    ("memory llama3-8b --lora", "--method lora"),
    ("memory llama3-8b --batch 4", "--global-batch"),
    ("serve llama3-8b --batch-size 4", "--concurrency (requests in flight)"),
    ("checkpoint llama3-8b --nics 4", "--set (as cluster.node_egress_bytes_per_s='100 GB/s'"),
    ("checkpoint llama3-8b --gpus-per-node 4", "--set (as cluster.gpus_per_node=4)"),
    ("matmul-time h100 4 4 4 --bs 4", "--batch (products in one launch)"),
    ("roofline llama3-8b --bits 4", "--dtype"),
    ("plan llama3-8b --tensor-parallel 8", "--tp"),
    ("serve llama3-8b --tensor-parallel-size 8", "--tp"),
    ("plan llama3-8b --zero3", "--zero 3"),
    ("plan llama3-8b --num_gpus 8", "--gpus"),
    ("matmul-time h100 4 4 4 --num-gpus 8", "one GPU"),
    ("memory llama3-8b --quant int4", "--weights (of served weights)"),
    ("memory llama3-8b --ctx 4096", "--seq-len (tokens of a training sequence)"),
    ("serve llama3-8b --seq 4096", "--input (tokens of a prompt)"),
    ("serve llama3-8b --rank 8", "--method lora of plan"),
    ("serve llama3-8b 4090", "--gpu 4090"),
    ("serve llama3-8b --gpu 4090x2", "4090 with --gpus 2"),
    ("serve llama3-8b --gpu mac-studio", "m3-ultra"),
    ("memory 13b", "gpuscale presets 13b --kind model"),
    ("network fat-tree", "--topology fat-tree"),
    ("compare 4090 3090 --model llama2-13b", "--sweep gpu="),
    ("serve llama3-8b --prompt-len 512", "--input (tokens of a prompt)"),
    ("serve llama3-8b --max-new-tokens 512", "--output-len (tokens of an answer)"),
    ("plan llama3-8b --method grpo --prompt-len 512", "--prompt (its mean tokens)"),
    ("plan llama3-8b --method grpo --generations 8", "--group (responses to a prompt)"),
    ("plan llama3-8b --lr 1e-4", "not covered"),
    ("serve llama3-8b --epochs 3", "an option of plan"),
    ("network h100 --gradient-checkpointing", "of training"),
    ("serve llama3-8b --gpu-memory-utilization 0.9", "--memory-frac"),
    ("plan llama3-8b --vram 48GB", "--set"),
    ("model qwen3", "qwen3-8b"),
    ("model gpt-4", "not published"),
    ("model bert", "not covered"),
    ("model 7b", "--params"),
    ("model llama-70b", "llama3-70b or llama3.1-70b"),
    ("matmul-time rtx6000 4 4 4", "which one"),
    ("matmul-time 8xh100 4 4 4", "h100 with --gpus 8"),
    ("matmul-time dgx-h100 4 4 4", "a cluster"),
    ("matmul-time k80 4 4 4", "not covered"),
    ("memory llama3-8b --method sft", "full"),
    ("memory llama3-8b --software vllm", "serve --engine"),
    ("memory llama3-8b --software zero3", "--zero 3"),
    ("memory llama3-8b --serve --weights gguf", "q4_k_m"),
    ("collective reduce h100 --bytes 1GB", "not covered"),
    ("vram llama3-8b", "gpuscale memory"),
    ("finetune llama3-8b", "--method lora"),
    ("inference llama3-8b", "gpuscale serve"),
    ("gemm h100 1 1 1", "matmul-time"),
    ("plan llama3-70b --gpu h1000", "of h there are h100"),
    ("plan llama3-70b --gpu H1OO", "of h there are h100"),
    ("memory llama3-8b --gpu rtx4909", "of rtx there are rtx4090"),
    ("memory llama3-8b --gpu rtx-4900", "of rtx there are rtx-4090"),
    ("memory llama3-8b --gpu 3900", "of numbers alone there are 3090"),
    ("memory llama3-8b --gpu b2000", "of b there are b200"),
    ("memory llama3-8b --gpu mi3000x", "of mi there are mi300x"),
    ("memory llama3-9b", "of llama3 there are llama3-8b"),
    ("memory llama3.4-70b", "of llama there are llama3.1-70b"),
    ("memory lamma3-8b", "did you mean `llama3-8b`?"),
    ("plan llama3-70b 8xH100", "h100 with --gpus 8"),
    ("plan llama3-8b --gpus 2x8", "all nodes together: 2 times 8"),
    ("plan llama3-8b --gpus 64-128", "64..128"),
    ("serve llama3-8b -tp 2", "two hyphens: --tp"),
    ("serve llama3-8b --engine llama.cpp -ngl 99", "two hyphens: --ngl"),
    ("serve llama3-8b --n-gpu-layers 99", "--ngl"),
    ("serve llama3-8b --isl 1024", "--input (tokens of a prompt)"),
    ("serve llama3-8b --enable-prefix-caching", "--prefix-hit"),
    ("serve llama3-8b --num-prompts 100", "--concurrency (requests in flight)"),
    ("serve llama3-8b --weights 4", "int4 or awq"),
    ("serve llama3-8b --kv fp8_e5m2", "it is fp8"),
    ("memory llama3-8b --inference", "--serve"),
    ("memory llama3-8b --train", "gpuscale plan"),
    ("memory llama3-8b --gpu-memory 24", "gpu.hbm_bytes"),
    ("how many gpus for llama 70b", "gpuscale plan"),
]


@pytest.mark.parametrize(("line", "said"), NAMED_HERE)
def test_a_hint_says_what_a_thing_is_called_here(line, said):
    r = invoke(*line.split())
    assert r.returncode == 2 and said in r.stderr.partition("hint:")[2]


@pytest.mark.parametrize(
    "name", ["3090", "rtx3090", "a4000", "v100", "a6000", "h100", "4090", "RTX_4090", "a100-40gb"]
)
def test_usual_names_of_gpus_are_known(name):
    assert invoke("matmul-time", name, "64", "64", "64").returncode == 0


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-8b-instruct",
        "meta-llama/Llama-3.1-8B",
        "https://huggingface.co/meta-llama/Llama-3.1-8B",
        "Qwen/Qwen3-8B",
        "mistral-7b",
        "Llama-3-8B",
    ],
)
def test_names_of_the_hub_are_known(name):
    assert invoke("model", name).returncode == 0


@pytest.mark.parametrize("word", ["awq", "Q4", "q8", "fp8", "int4", "half"])
def test_formats_of_weights_are_called_alike(word):
    """`--weights` of memory knows the words of serve."""
    line = "memory llama3-8b --serve --gpus 8"
    assert invoke(*line.split(), "--weights", word).returncode == 0


def test_a_hint_leads_to_what_exists():
    """Every preset that a hint names is there."""
    from gpuscale.io.presets import find_preset
    from gpuscale.meant import names

    named = {
        (kind.lower(), name)
        for kind in ("model", "GPU")
        for said in names()[kind].values()
        if said.startswith(("which one", "it is"))
        for name in re.findall(r"[\w.-]*[a-z][\w.-]*\d[\w-]*", said.partition(";")[0])
    }
    assert len(named) > 8
    assert [n for kind, n in named if find_preset(kind, n) is None] == []


@pytest.mark.parametrize("name", ["mpt-7b", "llama-13b", "bloom-7b", "falcon-40b", "gemma-7b"])
def test_usual_models_are_themselves(name):
    r = invoke("model", name)
    assert r.returncode == 0
    assert r.stdout.lower().startswith(name.partition("-")[0])


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("plan llama3-8b --gpus 8,000", "8000"),
        ("plan llama3-8b --gpus 1,024", "1024"),
        ("plan llama3-8b --gpus 8 --tokens 1,000,000", "1000000"),
        ("plan llama3-8b --gpus 8 --budget 1,000USD", "1000USD"),
    ],
)
def test_thousands_have_no_comma(line, written):
    r = invoke(*line.split())
    assert (r.returncode, r.stdout) == (2, "")
    assert f" has commas; write {written}\n" in r.stderr


def test_a_size_beyond_the_limit_is_written_out():
    r = invoke("plan", "llama3-8b", "--gpus", "99999999")
    assert "must be between 1 and 4,194,304, got 99,999,999" in r.stderr


def test_help_behind_a_command_is_its_help():
    assert invoke("plan", "help").stdout == invoke("plan", "--help").stdout


def test_a_run_of_less_than_a_batch_is_doubted():
    r = invoke("plan", "llama3-8b", "--gpus", "8", "--tp", "1", "--pp", "1", "--tokens", "15")
    assert r.returncode == 0 and "--tokens is less than one batch" in r.stderr
