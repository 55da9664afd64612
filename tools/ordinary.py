"""Jobs of ordinary users, asked as a newcomer would: a table of docs/accuracy.md.

python tools/ordinary.py             print the table
python tools/ordinary.py --update    write it between the markers of docs/accuracy.md

Public figures of one node to a few, consumer cards, other vendors, and mixtures of experts as a
framework runs them by default. None is a row of the fit; each command says what the source prints
and nothing else. Figures of whole runs hold stops and evaluations, so they are slower than a step.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import statistics
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
START, END = "<!-- ordinary jobs by tools/ordinary.py -->\n", "<!-- end of ordinary jobs -->\n"


@dataclass(frozen=True)
class Job:
    """A question and its measured outcome, in tokens/s per GPU, or FLOP/s where only that is."""

    name: str
    ask: str  # arguments of `gpuscale plan`
    tokens_per_s: float
    source: str
    flop_per_s: bool = False
    kind: str = "dense"
    """Experts `untuned`: as the software comes; `run`: a whole run; `eager`: not compiled."""


EAGER = "--attention eager --set software.compiled=false --fit expected"
GPT2 = "gpt2 --seq-len 1024 --software pytorch"
QWEN = "qwen3-30b-a3b --seq-len 4096"
GH = "github.com"
EFA = f"{GH}/awslabs/awsome-distributed-ai, megatron-bridge"
JOBS = (
    Job(
        "GPT-2 124M, 8 A100 40GB, nanoGPT",
        f"{GPT2} --gpu a100-40gb --gpus 8 --global-batch 480 --micro-batch 12",
        480 * 1024 / 0.562 / 8,
        f"{GH}/karpathy/nanoGPT/issues/110",
    ),
    Job(
        "GPT-2 124M, RTX 4090, nanoGPT",
        f"{GPT2} --gpu rtx-4090 --gpus 1 --global-batch 60 --micro-batch 12",
        0.29 * 312e12 / 8.55e8,
        f"{GH}/karpathy/nanoGPT/issues/182",
    ),
    Job(
        "GPT-2 124M, 2 RTX 4090",
        f"{GPT2} --gpu rtx-4090 --gpus 2 --global-batch 512",
        221e3 / 2,
        "tylerromero.com/posts/nanogpt-speedrun-worklog",
    ),
    Job(
        "GPT-2 124M, RTX 3090, not compiled",
        f"{GPT2} --gpu rtx-3090 --gpus 1 --global-batch 6 --micro-batch 6 {EAGER}",
        20e3,
        "gilesthomas.com, LLM from scratch, part 28",
        kind="eager",
    ),
    Job(
        "GPT-2 124M, 8 A100 40GB",
        f"{GPT2} --gpu a100-40gb --gpus 8 --global-batch 512",
        1.1e6 / 8,
        "debtirthasaha.github.io/blog/2026/gpt2-124m",
    ),
    Job(
        "GPT-2 124M, A100 80GB",
        f"{GPT2} --gpu a100-80gb --gpus 1 --global-batch 44 --micro-batch 44 {EAGER}",
        44 * 1024 * 1.5,
        f"{GH}/oumi-ai/oumi/pull/103",
        kind="eager",
    ),
    Job(
        "GPT-2 124M, 8 A100 80GB, llm.c",
        f"{GPT2} --gpu a100-80gb --gpus 8 --global-batch 512 --micro-batch 64",
        10e9 / 5400 / 8,
        f"{GH}/karpathy/llm.c/discussions/481",
    ),
    Job(
        "GPT-2 1.5B, 8 H100, llm.c",
        "gpt2-xl --seq-len 1024 --gpu h100-sxm --gpus 8 --global-batch 1024 --micro-batch 16 "
        "--software pytorch",
        1048576 / 2.8 / 8,
        f"{GH}/karpathy/llm.c/discussions/677",
    ),
    Job(
        "GPT-2 1.5B, 8 MI300X, fp8",
        "gpt2-xl --seq-len 1024 --gpu mi300x --gpus 8 --global-batch 224 --micro-batch 28 "
        "--precision fp8 --software pytorch",
        315e12,
        f"{GH}/ROCm/TransformerEngine/issues/76",
        flop_per_s=True,
    ),
    Job(
        "TinyLlama 1.1B, 16 A100 40GB, lit-gpt",
        "tinyllama-1.1b --seq-len 2048 --gpu a100-40gb --gpus 16 --batch-tokens 2M "
        "--micro-batch 8 --software litgpt",
        24e3,
        f"{GH}/jzhang38/TinyLlama",
    ),
    Job(
        "InternLM 7B, 8 A100, InternEvo",
        "llama1-7b --seq-len 2048 --gpu a100-80gb --gpus 8 --global-batch 64 --micro-batch 2",
        4078,
        f"{GH}/InternLM/InternLM, train_performance.md",
    ),
    Job(
        "InternLM 7B, 1,024 A100, InternEvo",
        "llama1-7b --seq-len 2048 --gpu a100-80gb --gpus 1024 --global-batch 8192 --micro-batch 2",
        3625,
        "the same",
    ),
    Job(
        "Llama 7B, 8 A800, torchtitan",
        "llama2-7b --seq-len 2048 --gpu a800-sxm-80gb --gpus 8 --recompute full "
        "--software torchtitan",
        3600,
        f"{GH}/Doraemonzzz/torchtitan_plugin",
    ),
    Job(
        "Llama-2 7B, 128 A100, FSDP",
        "llama2-7b --seq-len 4096 --gpu a100-80gb --gpus 128 --global-batch 256 --micro-batch 2 "
        "--software fsdp",
        3700,
        f"{GH}/foundation-model-stack/fms-fsdp",
    ),
    Job(
        "Llama-2 13B, 128 A100, FSDP",
        "llama2-13b --seq-len 4096 --gpu a100-80gb --gpus 128 --global-batch 256 --micro-batch 2 "
        "--software fsdp",
        1800,
        "the same",
    ),
    Job(
        "Llama-3 70B, 64 H100, NeMo AutoModel",
        "llama3-70b --seq-len 8192 --gpu h100-sxm --gpus 64 --global-batch 128 --micro-batch 1 "
        "--software fsdp",
        866.77,
        "docs.nvidia.com/nemo/automodel, performance summary",
    ),
    Job(
        "Llama-3.2 3B, 4 GH200",
        "llama3.2-3b --seq-len 8192 --gpu gh200-96gb --gpus 4 --global-batch 256 --micro-batch 1",
        18200,
        f"{GH}/swiss-ai/Megatron-LM/pull/10",
    ),
    Job(
        "MPT-7B, 8 Gaudi 2, LLM Foundry",
        "mpt-7b --seq-len 2048 --gpu gaudi2 --gpus 8 --software fsdp",
        260e12,
        "databricks.com, LLM training and inference with Gaudi 2",
        flop_per_s=True,
    ),
    Job(
        "LLaMA 65B, 2,048 A100",
        "llama1-65b --seq-len 2048 --gpu a100-80gb --gpus 2048 --batch-tokens 4M",
        380,
        "arXiv:2302.13971, section 2.4",
    ),
    Job(
        "LLaMA 7B, 1T tokens, GPU-hours",
        "llama1-7b --seq-len 2048 --gpu a100-80gb --gpus 256 --batch-tokens 4M",
        1e12 / 82432 / 3600,
        "arXiv:2302.13971, table 15",
        kind="run",
    ),
    Job(
        "MPT-7B, 440 A100 40GB, 9.5 days",
        "mpt-7b --seq-len 2048 --gpu a100-40gb --gpus 440 --global-batch 1760 --software fsdp",
        1e12 / (9.5 * 86400) / 440,
        "mosaicml.com/blog/mpt-7b",
        kind="run",
    ),
    Job(
        "Phi-2, 96 A100, 14 days",
        "phi-2 --seq-len 2048 --gpu a100-80gb --gpus 96 --software deepspeed-zero3",
        1.4e12 / (14 * 86400) / 96,
        "huggingface.co/microsoft/phi-2",
        kind="run",
    ),
    Job(
        "LLaMA 7B, 8 A100 40GB, lit-llama",
        "llama1-7b --seq-len 2048 --gpu a100-40gb --gpus 8 --recompute full --software litgpt",
        2000,
        f"{GH}/Lightning-AI/lit-llama/issues/119",
    ),
    Job(
        "LLaMA 7B, 8 A100, Megatron-DeepSpeed",
        "llama1-7b --seq-len 2048 --gpu a100-80gb --gpus 8 --software megatron-deepspeed",
        2900,
        f"{GH}/Lightning-AI/lit-llama/issues/119",
    ),
    Job(
        "LLaMA 7B, 8 A100, PaddlePaddle",
        "llama1-7b --seq-len 2048 --gpu a100-80gb --gpus 8 --batch-tokens 4M --micro-batch 4 "
        "--tp 1 --pp 1 --zero 2 --recompute none --precision fp16",
        4267,
        f"{GH}/flagos-ai/FlagPerf/pull/278",
    ),
    Job(
        "LLaMA 13B, 8 A100, NeMo",
        "llama1-13b --seq-len 2048 --gpu a100-80gb --gpus 8 --global-batch 32 --micro-batch 1 "
        "--tp 4 --pp 1 --recompute selective --software nemo",
        1900,
        f"{GH}/NVIDIA-NeMo/Speech/issues/8059",
    ),
    Job(
        "Llama 3.2 8B, 128 GH200",
        "llama3.1-8b --gpu gh200 --gpus 128 --batch-tokens 2M",
        413e12,
        f"{GH}/swiss-ai/Megatron-LM/pull/29",
        flop_per_s=True,
    ),
    Job(
        "SmolLM3 3B, B200, torchtitan, fp8",
        "smollm3-3b --seq-len 4096 --gpu b200 --gpus 8 --software torchtitan --precision fp8",
        41400,
        "tzafon.ai/blog/breaking-40k-tokens",
    ),
    Job(
        "Llama 3.2 1B, 4 TPU v4, Levanter",
        "llama3.2-1b --gpu tpu-v4 --gpus 4 --software levanter",
        53e3 / 4,
        f"{GH}/marin-community/marin/issues/1826",
    ),
    Job(
        "LLaMA 7B, TPU v4, EasyLM",
        "llama1-7b --seq-len 2048 --gpu tpu-v4 --gpus 128 --batch-tokens 4M --software easylm",
        2200,
        f"{GH}/young-geng/EasyLM/issues/61",
    ),
    Job(
        "GPT-J 6B, 4 TPU v3, Mesh Transformer JAX",
        "gpt-j-6b --seq-len 2048 --gpu tpu-v3 --gpus 4 --batch-tokens 32k --software jax",
        5e3 / 4,
        f"{GH}/young-geng/EasyLM/issues/61",
    ),
    Job(
        "MiniCPM 2.4B, 160 A100, two weeks",
        "minicpm-2b --gpu a100-80gb --gpus 160",
        1.1e12 / (14.5 * 86400) / 160,
        f"{GH}/OpenBMB/MiniCPM/issues/190",
        kind="run",
    ),
    Job(
        "Mixtral 8x7B, 32 MI300X, Primus",
        "mixtral-8x7b --seq-len 4096 --gpu mi300x --gpus 32 --global-batch 128 --micro-batch 2 "
        "--tp 1 --pp 1 --ep 8",
        390e12,
        f"{GH}/AMD-AGI/Primus/pull/55",
        flop_per_s=True,
        kind="untuned",
    ),
    Job(
        "Mixtral 8x7B, 16 H100",
        "mixtral-8x7b --seq-len 4096 --gpu h100-sxm --gpus 16 --global-batch 128 --micro-batch 1 "
        "--tp 2 --ep 8",
        128 * 4096 / 5.72 / 16,
        f"{GH}/NVIDIA/Megatron-LM/issues/756",
        kind="untuned",
    ),
    Job(
        "Mixtral 8x7B, 16 H100, first try",
        "mixtral-8x7b --seq-len 4096 --gpu h100-sxm --gpus 16 --global-batch 128",
        128 * 4096 / 5.72 / 16 * 130 / 228,
        f"{GH}/NVIDIA/Megatron-LM/issues/756",
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 16 H800",
        "qwen3-30b-a3b --seq-len 8192 --gpu h800-sxm --gpus 16 --global-batch 128 --tp 1 --pp 2 "
        "--ep 8 --micro-batch 1",
        6325,
        f"{GH}/alibaba/Pai-Megatron-Patch/issues/643",
        kind="untuned",
    ),
    Job(
        "Qwen3-235B-A22B, 256 H800",
        "qwen3-235b-a22b --seq-len 4096 --gpu h800-sxm --gpus 256 --global-batch 2048 --tp 2 "
        "--pp 32 --vpp 3 --ep 8 --micro-batch 1",
        1461.56,
        f"{GH}/alibaba/Pai-Megatron-Patch/issues/658",
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 32 H100",
        f"{QWEN} --gpu h100-sxm --gpus 32",
        120e12,
        f"{GH}/NVIDIA/Megatron-LM/issues/2762",
        flop_per_s=True,
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 8 B200",
        f"{QWEN} --gpu b200-sxm --gpus 8 --global-batch 64 --tp 1 --pp 1 --ep 8 --micro-batch 1",
        150e12,
        f"{GH}/yanring/Megatron-MoE-ModelZoo/issues/7",
        flop_per_s=True,
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 8 B200, torchtitan",
        f"{QWEN} --gpu b200-sxm --gpus 8 --software torchtitan --ep 8",
        9930,
        f"{GH}/NousResearch/torchtitan/pull/19",
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 8 B200, torchtitan, EP 1",
        "qwen3-30b-a3b --seq-len 8192 --gpu b200-sxm --gpus 8 --software torchtitan --ep 1 "
        "--global-batch 64 --micro-batch 8",
        19500,
        f"{GH}/mlc-ai/pith-train/issues/79",
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 64 H100, EP over 2 nodes",
        f"{QWEN} --cluster aws-p5 --gpus 64 --global-batch 256 --tp 8 --pp 4 --ep 16 --etp 1 "
        "--micro-batch 4 --recompute none",
        256 * 4096 / 8.60 / 64,
        f"{EFA}, qwen3-30b",
        kind="untuned",
    ),
    Job(
        "Qwen3-30B-A3B, 64 H100, EP over 4 nodes",
        f"{QWEN} --cluster aws-p5 --gpus 64 --global-batch 256 --tp 8 --pp 2 --ep 32 --etp 1 "
        "--micro-batch 4 --recompute none",
        256 * 4096 / 9.24 / 64,
        f"{EFA}, qwen3-30b",
        kind="untuned",
    ),
    Job(
        "Qwen3-235B-A22B, 32 B300, EP over 2 nodes",
        "qwen3-235b-a22b --seq-len 4096 --gpu b300-sxm --gpus 32 --global-batch 128 --tp 8 "
        "--pp 2 --ep 16 --etp 1 --micro-batch 4 --recompute full",
        128 * 4096 / 15.18 / 32,
        f"{EFA}, qwen3-235b",
        kind="untuned",
    ),
    Job(
        "Kimi-K2, 256 B300, EP over 4 nodes",
        "kimi-k2 --seq-len 4096 --gpu b300-sxm --gpus 256 --global-batch 256 --tp 8 --pp 8 "
        "--ep 32 --etp 1 --micro-batch 4 --recompute none",
        256 * 4096 / 9.303 / 256,
        f"{EFA}, kimi-k2",
        kind="untuned",
    ),
    Job(
        "DeepSeek-V2-Lite, 8 H100, torchtitan",
        "deepseek-v2-lite --seq-len 4096 --gpu h100-sxm --gpus 8 --software torchtitan",
        11600,
        f"{GH}/pytorch/torchtitan/issues/1789",
        kind="untuned",
    ),
)


def answer_to(ask: str) -> dict[str, Any]:
    """Run one `gpuscale plan`."""
    from gpuscale.cli.app import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(["plan", *ask.split(), "--alternatives", "0", "--json"])
    result: dict[str, Any] = json.loads(out.getvalue())["result"]
    return result


@dataclass(frozen=True)
class Outcome:
    """A job, the predicted time over the measured one, and whether its interval holds it."""

    job: Job
    predicted: float
    ratio: float
    inside: bool


def outcome_of(job: Job) -> Outcome:
    """Ask one."""
    r = answer_to(job.ask)
    key = "model_flop_per_s_per_gpu" if job.flop_per_s else "tokens_per_s_per_gpu"
    ratio = job.tokens_per_s / float(r[key])
    inside = r["step_low_s"] <= r["step_s"] / ratio <= r["step_high_s"]
    return Outcome(job, float(r[key]), ratio, inside)


@lru_cache
def outcomes() -> tuple[Outcome, ...]:
    """Ask all."""
    return tuple(map(outcome_of, JOBS))


def summary(found: list[Outcome]) -> str:
    """Spread of the ratios, of the steps, of runs and of experts."""
    said = []
    names = {
        "dense": "dense",
        "eager": "dense and not compiled",
        "run": "whole runs",
        "untuned": "experts untuned",
    }
    for kind, name in names.items():
        ratios = [o.ratio for o in found if o.job.kind == kind]
        off = statistics.median(abs(r - 1) for r in ratios)
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        held = sum(o.inside for o in found if o.job.kind == kind)
        said.append(
            f"{name} {len(ratios)}, median error {100 * off:.0f} %, time in the mean "
            f"{mean:.2f} of the measured, {held} in their 80 %"
        )
    return f"{len(found)} jobs: " + "; ".join(said) + ".\n"


def table(found: list[Outcome]) -> str:
    """Write the jobs as Markdown."""
    head = ["job", "gpuscale plan", "expected", "measured", "time", "in the 80 %", "source"]
    rows = [head, ["---"] * len(head)]
    for o in found:
        scale, unit = (1e12, " TFLOP/s") if o.job.flop_per_s else (1.0, "")
        rows.append(
            [
                o.job.name,
                f"`{o.job.ask}`",
                f"{o.predicted / scale:,.0f}{unit}",
                f"{o.job.tokens_per_s / scale:,.0f}{unit}",
                f"{o.ratio:.2f}",
                "yes" if o.inside else "no",
                o.job.source,
            ]
        )
    return summary(found) + "\n" + "".join("| " + " | ".join(row) + " |\n" for row in rows)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true")
    made = table(list(outcomes()))
    if not parser.parse_args().update:
        print(made, end="")
        return
    text = PAGE.read_text("utf-8")
    before, after = text.index(START) + len(START), text.index(END)
    PAGE.write_text(text[:before] + made + text[after:], "utf-8")


if __name__ == "__main__":
    main()
