"""Whole-process times of the commands that a person waits for: median of several runs.

python benchmarks/startup.py [--runs 9] [--markdown]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMITS_S = {
    "--version": 0.05,
    "--help": 0.1,
    "matmul-time b200 64 4096 8192": 0.25,
    "collective all-reduce dgx-h100 --bytes 1GB": 0.25,
    "memory llama3-70b --cluster dgx-h100": 0.25,
    "quiz": 0.5,
    "serve llama3-70b --gpus 8 --tp 8 --concurrency 64": 0.4,
    "serve llama3-70b --gpus 8 --weights fp8 --rate 5/s --ttft p95:500ms --tpot p95:30ms": 1.0,
    "serve deepseek-v3 --gpu h200 --gpus 16 --engine any --disagg auto --rate 3 --tpot 50ms": 3.0,
    "plan llama3-70b --gpus 4096": 1.0,
    "plan llama3-405b --gpus 16384": 1.0,
    "plan deepseek-v3 --gpus 2048": 2.0,
    "plan llama3-405b --gpus 131072": 3.0,
}


def measure(args: list[str], runs: int) -> tuple[float, float, float, int]:
    """Measure a command: median seconds, least CPU seconds, peak MB and exit code."""
    beside = Path(sys.executable).with_name("gpuscale")
    program = str(beside) if beside.exists() else shutil.which("gpuscale") or "gpuscale"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    times, cpu_s, peak_kb, code = [], [], 0, 0
    for _ in range(runs + 1):  # the first one fills the caches, bytecode as well
        start = time.perf_counter()
        child = subprocess.Popen(
            [program, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
        )
        _, status, usage = os.wait4(child.pid, 0)
        times.append(time.perf_counter() - start)
        cpu_s.append(usage.ru_utime + usage.ru_stime)
        child.returncode = code = os.waitstatus_to_exitcode(status)
        peak_kb = max(peak_kb, usage.ru_maxrss)
    return statistics.median(times[1:]), min(cpu_s), peak_kb / 1e3, code


def main() -> int:
    """Print one line per command; exit 1 if a limit does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--markdown", action="store_true", help="a table for the README")
    given = parser.parse_args()
    if given.markdown:
        print("| command | median | CPU | limit | memory |\n|---|---:|---:|---:|---:|")
    slow = 0
    for text, limit_s in LIMITS_S.items():
        median_s, cpu_s, peak_mb, code = measure(text.split(), given.runs)
        slow += median_s > limit_s or code > 1
        note = f"  exit {code}" if code > 1 else "  SLOW" if median_s > limit_s else ""
        if given.markdown:
            print(
                f"| `gpuscale {text}` | {median_s:.2f} s | {cpu_s:.2f} s "
                f"| {limit_s} s | {peak_mb:.0f} MB |"
            )
        else:
            print(
                f"{median_s:7.3f} s  limit {limit_s:4} s  CPU {cpu_s:6.3f} s  {peak_mb:4.0f} MB  "
                f"{text}{note}"
            )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
