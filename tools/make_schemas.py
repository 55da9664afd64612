"""Write gpuscale/schemas/COMMAND.json from the answers to the lines of SAMPLES.

python tools/make_schemas.py            write
python tools/make_schemas.py --check    say which files would change; exit 1 if any
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

SAMPLES = """
matmul-time b200 64 4096 8192 --dtype bf16
matmul-time h100 256 8192 28672 --dtypes bf16,fp8,bf16 --batch 2 --groups 4
matmul-time h100 1e9 --op add
matmul-time v100 64 4096 8192 --dtype fp16 --efficiency 0.7
collective all-gather h100 --shape 4096x65536
collective all-reduce dgx-h100 --sweep 1KiB:1GiB
collective all-to-all dgx-h100 --gpus 64 --bytes 1GB
collective all-reduce dgx-h100 --gpus 64 --bytes 1GB
collective all-reduce dgx-h100 --bytes 1GB --algorithm sharp
collective send-recv dgx-h100 --bytes 1GB
collective broadcast dgx-h100 --bytes 1GB
roofline llama3-70b --cluster dgx-h100 --gpus 4096
roofline deepseek-v3 --cluster dgx-h100 --gpus 2048
roofline llama3-8b --cluster dgx-h100
roofline chip h100
plan llama3-70b --gpus 4096
plan llama3-405b --gpus 8
plan deepseek-v3 --gpus 2048
plan llama3-8b --gpus 64..256 --deadline 300d
timeline llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 32
timeline llama3-8b --gpus 8
serve llama3.1-70b --gpus 8 --weights fp8 --rate 5/s --ttft p95:500ms --tpot p95:30ms
serve llama3-8b --gpus 1 --concurrency 8
serve llama3-8b --gpus 1 --burst 20
serve llama3-8b --gpus 4 --disagg 1xTP1+3xTP1 --rate 5
serve llama3.1-70b --gpu rtx-4090 --gpus 1
network h100-superpod --gpus 1024
network dgx-h100 --gpus 64
network gb200-nvl72 --gpus 1152
network dgx-b200 --gpus 256
network dgx1-v100 --gpus 64
network pod-tpu-v4 --gpus 512
network superpod-h100-1su --cables
network dgx-h100 --gpus 4096 --topology dragonfly
network --gpus 8192 --oversubscription 7 --switch QM9700
timeline llama3-70b --gpus 64 --tp 8 --pp 4 --global-batch 32
memory llama3-70b --cluster dgx-h100 --tp 8 --pp 8
memory deepseek-v3 --cluster dgx-h100 --tp 8 --pp 16 --stages
memory llama3-70b --cluster dgx-h100 --min-gpus
memory llama3-8b --cluster dgx-h100 --serve
memory llama3-70b --cluster dgx-h100 --tp 1
model deepseek-v3 --seq-len 4096
model llama3-70b
model gpt2
compare h100 b200
compare llama3-8b deepseek-v3
compare dgx-h100 gb200-nvl72 dgx-b200
compare dgx-h100 pod-tpu-v5e --all
compare docs/examples/job-h100.toml docs/examples/job-b200.toml
quiz
quiz llm.quiz5.q2.3.tokens
explain
explain mfu
explain moe
validate
calibrate --template gemm
presets
presets --kind gpu
presets show h100
presets show dgx-h100
presets show llama3-70b
memory llama3-70b --tp 8 --sweep pp=4,8
memory llama3-70b --serve --sweep context=8k..64k --sweep gpus=1,4
collective all-reduce dgx-h100 --bytes 1GB --sweep cluster=dgx-h100,nope
matmul-time h100 1 4096 8192 --sweep m=16..256 --sweep-show bound
"""

FOLDER = Path(__file__).resolve().parent.parent / "gpuscale" / "schemas"


def answer(line: str) -> dict[str, Any]:
    """Give the JSON answer to a command line."""
    from gpuscale.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*shlex.split(line), "--json"])
    if code not in (0, 1):
        raise SystemExit(f"gpuscale {line}: exit {code}: {err.getvalue()}")
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def answered_by(line: str) -> str:
    """Name that the answer to a line carries: the command, or `sweep` for a what-if sweep."""
    return "sweep" if "--sweep" in line and "=" in line else line.split()[0]


def schemas() -> dict[str, str]:
    """Text of every command's schema."""
    from gpuscale.answers.table import COMMANDS
    from gpuscale.render.schema import of_answers

    lines = SAMPLES.strip().splitlines()
    found = {}
    for name in [*COMMANDS, "sweep"]:
        answers = [answer(line) for line in lines if answered_by(line) == name]
        if answers:
            found[name] = json.dumps(of_answers(name, answers), indent=1) + "\n"
    return found


def main() -> int:
    """Write the files, or compare them."""
    changed = 0
    for name, text in schemas().items():
        path = FOLDER / f"{name}.json"
        if path.exists() and path.read_text("utf-8") == text:
            continue
        changed += 1
        print(path.name)
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
    return 1 if changed and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
