"""Scores what `gpuscale memory` says of public jobs that ran, or ran out of memory.

`tests/data/verdicts.csv` has one row a job: the thread, what it states as options (`asked`), the
software with version or date, what it leaves open (`unsaid`), the outcome, and its half. The
held-out half is chosen by a hash of the thread, before any prediction was seen.

    python tools/verdicts.py [--half held-out] [--rows OUT.csv] [--kind lora]

A row whose software has no version is asked with the thread's month.
"""

import argparse
import csv
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from running import invoke

from gpuscale.errors import GpuscaleError
from gpuscale.io.software import framework_habits

FLAT = 0.95
"""From here on a fit is said without a percentage."""


def predict(row, versions=True):
    """(P(fits) or None, said flatly, GB, first line or the error)."""
    args = ["memory", *row["asked"].split()]
    if row["software"] and "--serve" not in args:
        name, _, version = row["software"].partition(":")
        try:
            dated = f"{name}:{version or row['date']}"
            framework_habits(dated, {})
            name = dated if versions else name
        except GpuscaleError:
            pass  # its versions are not known
        args += ["--software", name]
    done = invoke(*args, "--json")
    if done.returncode not in (0, 1):
        return None, False, None, done.stderr.strip().splitlines()[0]
    result = json.loads(done.stdout)["result"]
    said = next((line for line in invoke(*args).stdout.splitlines() if line.strip()), "")
    total = result.get("peak_bytes", math.nan)
    p = result["fits_probability"]
    return p, p >= FLAT, total / 1e9, said


def brier(pairs):
    """Mean squared error of probabilities, of (p, outcome 0 or 1)."""
    return sum((p - o) ** 2 for p, o in pairs) / len(pairs) if pairs else math.nan


def report(scored, name):
    """Print the scores of one group."""
    pairs = [(p, o) for p, o, _ in scored]
    if not pairs:
        return
    oom = [flat for p, o, flat in scored if not o]
    ran = [flat for p, o, flat in scored if o]
    right = sum((p >= 0.5) == bool(o) for p, o in pairs) / len(pairs)
    base = sum(o for _, o in pairs) / len(pairs)
    print(
        f"{name:12} n {len(pairs):3}  Brier {brier(pairs):.3f} (rate {base * (1 - base):.3f})  "
        f"right {right:.0%}  OOM said to fit flatly {sum(oom)}/{len(oom)}  "
        f"ran, said to fit flatly {sum(ran)}/{len(ran)}"
    )


def main():
    """Score the rows and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", default="tests/data/verdicts.csv")
    parser.add_argument("--half", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--rows", default="")
    parser.add_argument("--no-versions", action="store_true")
    asked = parser.parse_args()
    rows = list(csv.DictReader(Path(asked.file).open()))
    rows = [r for r in rows if asked.half in ("", r["half"]) and asked.kind in ("", r["kind"])]
    groups, lines, unscored = defaultdict(list), [], []
    for row in rows:
        p, flat, gb, said = predict(row, not asked.no_versions)
        lines.append([row["id"], row["outcome"], p, gb, said, row["asked"], row["software"]])
        if p is None:
            unscored.append(f"{row['id']} {row['asked'][:60]}: {said}")
            continue
        one = (p, row["outcome"] == "fits", flat)
        for name in ("all", row["half"], row["kind"]):
            groups[name].append(one)
    for name, scored in groups.items():
        report(scored, name)
    bins = defaultdict(list)
    for p, o, _ in groups["all"]:
        bins[min(9, int(10 * p))].append((p, o))
    for _, pairs in sorted(bins.items()):
        mean, ran = (sum(x[k] for x in pairs) / len(pairs) for k in (0, 1))
        print(f"  said {mean:4.0%}: {ran:4.0%} of {len(pairs)} ran")
    print(f"not scored: {len(unscored)}", *unscored, sep="\n  ")
    if asked.rows:
        with Path(asked.rows).open("w", newline="") as file:
            csv.writer(file).writerows(lines)


if __name__ == "__main__":
    main()
