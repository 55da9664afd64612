"""Speed of the load simulator: requests a second, a burst and a trace of a million requests.

python benchmarks/serve.py [--million]
"""

from __future__ import annotations

import argparse
import sys
import time

from gpuscale.core.serving.scheduler import Scheduler
from gpuscale.core.serving.simulator import simulate
from gpuscale.core.serving.traffic import Lengths, closed_traffic, open_traffic

CASES = {  # name -> (requests, rate or 0 for a closed loop of 64, limit in seconds)
    "10,000 requests at 2/s": (10_000, 2.0, 1.0),
    "10,000 requests at 8/s": (10_000, 8.0, 1.0),
    "10,000 requests, 64 in flight": (10_000, 0.0, 1.0),
}
MILLION = {"1,000,000 requests at 6/s": (1_000_000, 6.0, 60.0)}


class Steps:
    """Passes of an 8B model on an A100."""

    def decode(self, n: int) -> tuple[float, float]:
        """Give the time of a pass of n sequences, and of a token of context."""
        return 9e-3 + 3e-5 * n, 8.2e-8

    def prompt(self, tokens: int, keys: float, n: int, prompts: int) -> float:
        """Give the time that prompt tokens add."""
        return (9e-3 if n == 0 else 0.0) + tokens * (6.4e-5 + keys * 1.7e-9)


def main() -> int:
    """Print one line per case; exit 1 if a limit does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--million", action="store_true", help="the long trace too")
    cases = CASES | (MILLION if parser.parse_args().million else {})
    slow = 0
    for name, (n, rate, limit_s) in cases.items():
        prompts, answers = Lengths("lognormal", 1000, 0.7), Lengths("exp", 250)
        if rate:
            traffic = open_traffic(prompts, answers, rate, n)
        else:
            traffic = closed_traffic(prompts, answers, 64, n)
        start = time.process_time()
        simulate(Steps(), Scheduler(2048, 256, 400_000.0, 8.0), traffic)
        took_s = time.process_time() - start
        slow += took_s > limit_s
        print(f"{took_s:7.3f} s CPU  limit {limit_s:4g} s  {name}{'  SLOW' * (took_s > limit_s)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
