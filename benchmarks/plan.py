"""Plans: whole-process time and memory, and layouts per second of the search alone.

python benchmarks/plan.py [--runs 5]
"""

from __future__ import annotations

import argparse
import runpy
import time
from pathlib import Path

SIZES = "64,128,256,512,1024,1536,2048,3072,4096,6144,8192,16384"
H800 = "--cluster deepseek-h800 --precision fp8 --seq-len 4096"

LIMITS_S = {
    "plan llama3-70b --gpus 4096": 1.0,
    "plan llama3-405b --gpus 16384": 1.0,
    "plan llama3-405b --gpus 16384 --seq-len 131072": 1.0,
    "plan deepseek-v3 --gpus 2048": 2.0,
    f"plan deepseek-v3 --gpus 2048 {H800}": 2.0,
    "plan llama3-405b --gpus 131072": 3.0,
    "plan llama3-70b --gpus 131072 --batch-tokens 64M": 3.0,
    f"plan llama3-70b --gpus {SIZES}": 5.0,
    "plan llama3-70b --gpus 8 --objective fewest-gpus": 1.0,
}
LIMIT_MB = 250.0
LIMIT_PER_S = 100_000.0

SEARCHES = (
    ("llama3-70b", "dgx-h100", "bf16", 8192, 512, 4096),
    ("llama3.1-405b", "dgx-h100", "bf16", 8192, 2048, 16384),
    ("deepseek-v3", "deepseek-h800", "fp8", 4096, 15360, 2048),
    ("deepseek-v3", "dgx-h100", "bf16", 8192, 7680, 2048),
)


def search_rate(
    model: str, cluster: str, precision: str, seq_len: int, batch: int, n_gpus: int
) -> tuple[int, float]:
    """(layouts declared, CPU seconds) of one search, everything loaded before."""
    from gpuscale.core.rules import facts_of
    from gpuscale.core.search.engine import search
    from gpuscale.core.search.space import default_space
    from gpuscale.io.hardware import load_cluster
    from gpuscale.io.jobs import make_problem
    from gpuscale.io.models import load_model
    from gpuscale.io.software import load_software

    spec = load_model(model).spec
    facts = facts_of(spec, seq_len, batch, n_gpus)
    problem = make_problem(spec, load_cluster(cluster), load_software(), facts, precision)
    space = default_space(facts, problem.hardware.scaleup_domain_gpus, precision)
    start = time.process_time()
    found = search(problem, space, 3)
    return found.counts.declared, time.process_time() - start


def main() -> int:
    """Print one line per command and per search; exit 1 if a limit does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    measure = runpy.run_path(str(Path(__file__).with_name("startup.py")))["measure"]
    missed = 0
    for text, limit_s in LIMITS_S.items():
        median_s, cpu_s, peak_mb, code = measure(text.split(), runs)
        wrong = median_s > limit_s or peak_mb > LIMIT_MB or code > 1
        missed += wrong
        print(
            f"{median_s:7.3f} s  limit {limit_s} s  CPU {cpu_s:6.3f} s  {peak_mb:4.0f} MB  {text}"
            + ("  MISSED" if wrong else "")
        )
    for case in SEARCHES:
        declared, took = search_rate(*case)
        rate = declared / took
        missed += rate < LIMIT_PER_S
        print(
            f"{declared:12,} layouts  {took:6.3f} s  {rate:12,.0f} layouts/s on one core  "
            f"{case[0]} on {case[-1]:,} GPUs of {case[1]}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
