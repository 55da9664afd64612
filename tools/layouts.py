"""Published training layouts beside those that `plan` chooses: the table of docs/layouts.md.

python tools/layouts.py             print the table
python tools/layouts.py --update    write it between the markers of docs/layouts.md
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "layouts.md"
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


def planned(arguments: str) -> dict[str, Any]:
    """Run one `gpuscale plan`."""
    from gpuscale.cli.app import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(["plan", *arguments.split(), "--alternatives", "0", "--json"])
    result: dict[str, Any] = json.loads(out.getvalue())["result"]
    return result


def layout_text(result: dict[str, Any]) -> str:
    """Layout in one cell."""
    from gpuscale.answers.plan.text import short
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


def main() -> None:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true")
    if not parser.parse_args().update:
        print(table(), end="")
        return
    text = PAGE.read_text("utf-8")
    before, after = text.index(START) + len(START), text.index(END)
    PAGE.write_text(text[:before] + table() + text[after:], "utf-8")


if __name__ == "__main__":
    main()
