#!/usr/bin/env python3
"""Ask DeepSpeed's own parser whether it takes a DeepSpeed JSON file, on a CPU.

Install:  pip install torch deepspeed          (CPU torch is enough; tried with deepspeed 0.19.8)
Use:      python judge_deepspeed.py ds.json --world-size 64 [--model-parallel 8]

Prints `OK {facts}` and exits 0, or `REJECT: reason` and exits 1; 2 when it cannot judge.
`--model-parallel` is tp * pp of the launcher: DeepSpeed divides the batch by the data-parallel
ranks only, which the file cannot say. DeepSpeed ignores top-level keys it does not know; they are
listed as `ignored` (with --strict they are a rejection).
"""

import argparse
import json
import os
import sys
from contextlib import redirect_stdout


class Watched(dict):
    """The file as a dict that remembers which of its keys were looked up."""

    asked: set[str] = set()

    def get(self, key, default=None):
        """Look a key up, and remember it."""
        Watched.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key):
        Watched.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        Watched.asked.add(key)
        return super().__contains__(key)

    def pop(self, key, *default):
        """Take a key out, and remember it."""
        Watched.asked.add(key)
        return super().pop(key, *default)


# Read by the engine, not by the parser.
READ_LATER = {
    "compile",
    "tensor_parallel",
    "hybrid_engine",
    "compression_training",
    "scheduler",
    "optimizer",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--model-parallel", type=int, default=1)
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    if args.world_size % args.model_parallel:
        print(
            f"REJECT: {args.world_size} ranks: no multiple of model parallel {args.model_parallel}"
        )
        return 1
    dp = args.world_size // args.model_parallel
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        with redirect_stdout(open(os.devnull, "w")):
            import deepspeed
            import deepspeed.runtime.config as config
            from deepspeed.runtime.config_utils import (
                dict_raise_error_on_duplicate_keys as no_duplicates,
            )
    except ImportError as error:
        print(f"CANNOT JUDGE: {error}", file=sys.stderr)
        return 2
    # Without a process group the class takes one rank: give it the data-parallel size.
    config.dist.get_rank = lambda group=None: 0
    config.dist.get_world_size = lambda group=None: dp
    try:
        with redirect_stdout(open(os.devnull, "w")):
            import hjson

            with open(args.file) as handle:
                raw = hjson.load(handle, object_pairs_hook=no_duplicates)
            parsed = config.DeepSpeedConfig(Watched(raw))
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        print(f"REJECT: {type(error).__name__}: {reason[:600]}")
        return 1
    ignored = sorted(set(raw) - Watched.asked - READ_LATER)
    facts = {
        "deepspeed": deepspeed.__version__,
        "data_parallel": dp,
        "global_batch": parsed.train_batch_size,
        "micro_batch": parsed.train_micro_batch_size_per_gpu,
        "accumulation": parsed.gradient_accumulation_steps,
        "zero_stage": int(parsed.zero_optimization_stage),
        "ignored": ignored,
    }
    if ignored and args.strict:
        print(f"REJECT: keys that DeepSpeed ignores: {', '.join(ignored)}")
        return 1
    print("OK", json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
