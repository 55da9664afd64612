"""Published training runs as `plan` says them: the tables of docs/layouts.md and docs/accuracy.md.

python tools/layouts.py             print the tables
python tools/layouts.py --update    write them between the markers of the pages
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
START, END = "<!-- table by tools/layouts.py -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Published:
    """One layout that was really used (or that a document recommends), and what was measured."""

    name: str
    job: str  # arguments of `gpuscale plan`
    pins: str  # the published layout
    mfu: float | None = None  # published
    step_s: float | None = None  # published, or from published GPU-hours


ROCE = "--cluster meta-24k-roce"
H800 = "--cluster deepseek-h800 --precision fp8 --seq-len 4096 --set software.moe_kernels=2025"
CASES = (
    Published(
        "LLaMA-3 405B, 8,192 GPUs, 8k",
        f"llama3-405b --gpus 8192 {ROCE}",
        "--tp 8 --cp 1 --pp 16 --dp 64",
        mfu=0.43,
    ),
    Published(
        "LLaMA-3 405B, 16,384 GPUs, 8k",
        f"llama3-405b --gpus 16384 {ROCE}",
        "--tp 8 --cp 1 --pp 16 --dp 128",
        mfu=0.41,
    ),
    Published(
        "LLaMA-3 405B, 16,384 GPUs, 128k",
        f"llama3-405b --gpus 16384 --seq-len 131072 {ROCE}",
        "--tp 8 --cp 16 --pp 16 --dp 8 --cp-kind all-gather",
        mfu=0.38,
    ),
    Published(
        "DeepSeek-V3, 2,048 H800",
        f"deepseek-v3 --gpus 2048 {H800}",
        "--tp 1 --cp 1 --pp 16 --dp 128 --ep 64 --zero 1 --schedule dualpipe --software any",
        step_s=2.664e6 * 3600 / 2048 / (14.8e12 / (15360 * 4096)),
    ),
    Published(
        "LLaMA-3 70B, 4,096 H100: TP 8 x PP 8 x DP 64",
        "llama3-70b --gpus 4096",
        "--tp 8 --cp 1 --pp 8 --dp 64",
    ),
    Published(
        "LLaMA-3 70B, 4,096 H100: TP 8 x DP 512",
        "llama3-70b --gpus 4096",
        "--tp 8 --cp 1 --pp 1 --dp 512",
    ),
    Published(
        "LLaMA-3 70B, 4,096 H100: TP 8, ZeRO-3",
        "llama3-70b --gpus 4096",
        "--tp 8 --cp 1 --pp 1 --zero 3",
    ),
)
"""Llama 3 report (arXiv:2407.21783), table 4; DeepSeek-V3 report (arXiv:2412.19437), sections 3.2
and 4.2, GPU-hours of table 1; "How to Scale Your Model", GPU chapter, Quiz 5 question 2."""


@dataclass(frozen=True)
class Run:
    """A whole run: the command with its public configuration, and what was printed of it."""

    name: str
    job: str  # arguments of `gpuscale plan`
    unit: str  # of `READ`
    published: float
    source: str


READ: dict[str, Callable[[dict[str, Any]], float]] = {
    "s": lambda r: float(r["step_s"]),
    "% MFU": lambda r: 100.0 * float(r["mfu"]),
    "TFLOP/s": lambda r: float(r["model_flop_per_s_per_gpu"]) / 1e12,
    "tokens/s": lambda r: float(r["tokens_per_s_per_gpu"]),
}
"""Unit of a published figure, per GPU but for the step -> how an answer says it."""

A100 = "--gpu a100-80gb --seq-len 2048"
MTNLG = (
    f"megatron-530b {A100} --tp 8 --pp 35 --global-batch 1920 --recompute full "
    "--software megatron-deepspeed --sequence-parallel off"
)
SELECTIVE = f"{A100} --tp 8 --micro-batch 1 --recompute selective"
LLAMA2 = "--gpu a100-80gb --gpus 1024 --batch-tokens 4M --seq-len 4096 --software fsdp"
RUNS = (
    Run(
        "LLaMA-3 405B, 8,192 H100",
        f"{CASES[0].job} {CASES[0].pins}",
        "% MFU",
        43,
        "arXiv:2407.21783, table 4",
    ),
    Run("16,384 H100", f"{CASES[1].job} {CASES[1].pins}", "% MFU", 41, "the same"),
    Run("131k tokens", f"{CASES[2].job} {CASES[2].pins}", "% MFU", 38, "the same"),
    Run("DeepSeek-V3, 2,048 H800", f"{CASES[3].job} {CASES[3].pins}", "s", 19.9, "table 1"),
    Run(
        "Nemotron-4 340B, 1,536 H100",
        "nemotron4-340b --gpus 1536 --tp 8 --pp 12 --dp 16 --global-batch 768 --seq-len 4096",
        "s",
        10.3,
        "arXiv:2406.11704, table 2",
    ),
    Run(
        "6,144 H100",
        "nemotron4-340b --gpus 6144 --tp 8 --pp 12 --dp 64 --global-batch 2304 --seq-len 4096",
        "s",
        8.0,
        "the same",
    ),
    Run("MT-NLG 530B, 2,240 A100", f"{MTNLG} --gpus 2240", "s", 60.1, "arXiv:2201.11990, 2.3"),
    Run("2,800 A100", f"{MTNLG} --gpus 2800", "s", 50.2, "the same"),
    Run("3,360 A100", f"{MTNLG} --gpus 3360", "s", 44.4, "the same"),
    Run(
        "BLOOM 176B, 384 A100",
        f"bloom-176b {A100} --gpus 384 --tp 4 --pp 12 --dp 8 --micro-batch 2 --global-batch 2048 "
        "--recompute full --software megatron-deepspeed --sequence-parallel off --nics 4 "
        "--link 100Gb/s --set cluster.fabric_class=omni-path",
        "s",
        105,
        "BigScience, log of tr11-176B",
    ),
    Run(
        "OPT-175B, 992 A100",
        f"opt-175b {A100} --gpus 992 --tp 8 --batch-tokens 2M --precision fp16 --software any",
        "TFLOP/s",
        147,
        "arXiv:2205.01068, section 2.5",
    ),
    Run(
        "GPT-3 175B, 64 A100",
        f"gpt3-175b {SELECTIVE} --gpus 64 --pp 8 --vpp 3 --global-batch 64 "
        "--software megatron-lm-2021",
        "s",
        13.75,
        "arXiv:2205.05198, table 5",
    ),
    Run(
        "530B, 280 A100",
        f"megatron-530b {SELECTIVE} --gpus 280 --pp 35 --vpp 3 --global-batch 280",
        "s",
        37.83,
        "the same",
    ),
    Run(
        "1T, 512 A100",
        f"megatron-1t {SELECTIVE} --gpus 512 --pp 64 --global-batch 512 "
        "--software megatron-lm-2021",
        "s",
        71.49,
        "the same",
    ),
    Run(
        "175B by Megatron-LM, 12,288 A100",
        f"megatron-175b {A100} --gpus 12288 --tp 8 --pp 8 --vpp 6 --global-batch 6144 "
        "--software megatron-lm-2021",
        "s",
        8.57,
        "MegaScale, arXiv:2402.15627, table 2",
    ),
    Run(
        "Falcon-180B, 4,096 A100 40GB",
        "falcon-180b --gpu a100-40gb --gpus 4096 --tp 8 --pp 8 --dp 64 --global-batch 2048 "
        "--seq-len 2048",
        "tokens/s",
        139,
        "model card: 3.5T tokens, 7M GPU-hours",
    ),
    Run("Llama-2 7B", f"llama2-7b {LLAMA2}", "tokens/s", 3014, "arXiv:2307.09288, table 2, hours"),
    Run("Llama-2 13B", f"llama2-13b {LLAMA2}", "tokens/s", 1507, "the same"),
    Run("Llama-2 70B", f"llama2-70b {LLAMA2}", "tokens/s", 323, "the same"),
)

TUNED = ("--maturity", "tuned")  # published runs of these sizes are


def planned(arguments: str) -> dict[str, Any]:
    """Run one `gpuscale plan`."""
    from gpuscale.cli.app import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(["plan", *arguments.split(), *TUNED, "--alternatives", "0", "--json"])
    result: dict[str, Any] = json.loads(out.getvalue())["result"]
    return result


def layout_text(result: dict[str, Any]) -> str:
    """Layout in one cell."""
    from gpuscale.answers.training.plan_text import short
    from gpuscale.core.layout import Layout

    return short(Layout(**{**result["layout"], "order": tuple(result["layout"]["order"])}))


def cells(case: Published) -> list[str]:
    """One line of the table."""
    best = planned(case.job)
    theirs = planned(f"{case.job} {case.pins} --fit expected")  # they ran near the limit
    measured = "-"
    if case.mfu is not None:
        measured = f"MFU {100 * case.mfu:.0f} %"
    elif case.step_s is not None:
        measured = f"{case.step_s:.1f} s"
    answers = [
        f"{r['step_s']:.2f} s, MFU {100 * r['mfu']:.1f} %" + ("" if r["fits"] else ", does not fit")
        for r in (theirs, best)
    ]
    more = theirs["step_s"] / best["step_s"] - 1
    return [
        case.name,
        layout_text(theirs),
        answers[0],
        measured,
        layout_text(best),
        answers[1],
        f"{100 * more:+.0f} %",
    ]


def table() -> str:
    """All cases as Markdown."""
    head = ["job", "published layout", "expected", "measured", "chosen", "expected", "published"]
    rows = [head, ["---"] * len(head), *(cells(case) for case in CASES)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def run_cells(run: Run) -> list[str]:
    """One line of the table of whole runs; the ratio is of times, above 1 predicted slower."""
    result = planned(f"{run.job} --fit expected")
    expected = READ[run.unit](result)
    ratio = expected / run.published if run.unit == "s" else run.published / expected
    inside = result["step_low_s"] <= result["step_s"] / ratio <= result["step_high_s"]
    return [
        run.name,
        f"`{run.job}`",
        f"{expected:,.4g} {run.unit}",
        f"{run.published:,g} {run.unit}",
        f"{ratio:.2f}",
        "yes" if inside else "no",
        run.source,
    ]


def run_table() -> str:
    """Whole runs as Markdown."""
    head = ["run", "gpuscale plan", "expected", "published", "time", "in the 80 %", "source"]
    rows = [head, ["---"] * len(head), *(run_cells(run) for run in RUNS)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def main() -> None:
    """Print the tables, or put them into their pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true")
    if not parser.parse_args().update:
        print(table() + run_table(), end="")
        return
    for name, written in (("layouts.md", table()), ("accuracy.md", run_table())):
        text = (DOCS / name).read_text("utf-8")
        before, after = text.index(START) + len(START), text.index(END)
        (DOCS / name).write_text(text[:before] + written + text[after:], "utf-8")


if __name__ == "__main__":
    main()
