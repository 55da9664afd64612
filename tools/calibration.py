"""Calibration of what is claimed, as the opening of `docs/accuracy.md` shows it.

    python tools/ordinary.py --say-maturity --rows ORDINARY.csv
    python tools/verdicts.py --rows VERDICTS.csv
    python tools/calibration.py ORDINARY.csv VERDICTS.csv [--update]

An interval said to hold 80 % is made narrower or wider as the quantiles of a normal logarithm; how
many measurements lie inside is counted by sources, each with one vote. Tuned recipes are those of
`gpuscale validate --runs` that are good, fully specified and newest.
"""

import argparse
import csv
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import NormalDist, fmean

from gpuscale.evidence.score_runs import own_copy, predict_run_rows

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
START, END = "<!-- calibration by tools/calibration.py -->\n", "<!-- end of calibration -->\n"
SAID = (0.5, 0.8, 0.95)
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.01)
COUNTED = {"full_spec": "yes", "quality": "good", "newest": "yes", "clean": "yes"}

Point = tuple[str, float, float, float]
"""Source, ln of measured over expected, ln widths below and above of the 80 % interval."""


def point(source: str, low: float, expected: float, high: float, measured: float) -> Point:
    """Make the point of one measurement."""
    return source, *(math.log(v / expected) for v in (measured, low, high))


def tuned() -> list[Point]:
    """Points of the recipes that somebody tuned."""
    return [
        point(r.classes["source"], r.low, r.predicted, r.high, r.measured)
        for r in predict_run_rows(own_copy("training_runs"))
        if r.ratio and r.measured and r.predicted and r.low and r.high
        if all(r.classes.get(key) == value for key, value in COUNTED.items())
    ]


def ordinary(path: str) -> list[Point]:
    """Points of the jobs that `tools/ordinary.py --rows` wrote."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["expected"]]
    names = ("low_s", "expected", "high_s", "measured")
    return [point(r["source"], *(float(r[n]) for n in names)) for r in rows]


def inside(points: list[Point], said: float) -> float:
    """Share of the sources' measurements inside the interval of a probability."""
    k = NormalDist().inv_cdf(0.5 + said / 2.0) / NormalDist().inv_cdf(0.9)
    found: dict[str, list[bool]] = defaultdict(list)
    for source, off, low, high in points:
        found[source].append(low * k <= off <= high * k)
    return fmean(fmean(one) for one in found.values())


def verdicts(path: str) -> list[tuple[float, float, int]]:
    """(mean probability said, share that ran, jobs) of what `tools/verdicts.py --rows` wrote."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = [(float(r[2]), r[1] == "fits") for r in csv.reader(file) if r[2]]
    found = []
    for low, high in zip(BINS, BINS[1:], strict=False):
        here = [(p, ran) for p, ran in rows if low <= p < high]
        found.append((fmean(p for p, _ in here), fmean(ran for _, ran in here), len(here)))
    return found


def bar(share: float) -> str:
    """Share as a number and a bar of twenty.

    >>> bar(0.5)
    '`██████████          `  50 %'
    """
    return f"`{'█' * round(20 * share):20}` {100 * share:3.0f} %"


def page(ordinary_rows: str, verdict_rows: str) -> str:
    """Write the three plots."""
    sets = (tuned(), ordinary(ordinary_rows))
    lines = ["| interval said to hold | tuned: holds | as it comes: holds |", "|---|---|---|"]
    lines += [
        f"| {100 * p:.0f} % | " + " | ".join(bar(inside(s, p)) for s in sets) + " |" for p in SAID
    ]
    lines += ["", "| verdict: said to fit | ran | jobs |", "|---|---|---|"]
    lines += [f"| {100 * p:.0f} % | {bar(ran)} | {n} |" for p, ran, n in verdicts(verdict_rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the plots, or write them into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ordinary")
    parser.add_argument("verdicts")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    made = page(options.ordinary, options.verdicts)
    if not options.update:
        sys.stdout.write(made)
        return
    text = PAGE.read_text("utf-8")
    before, after = text.index(START) + len(START), text.index(END)
    PAGE.write_text(text[:before] + made + text[after:], "utf-8")


if __name__ == "__main__":
    main()
