"""Fits the width of verdicts to the development half of `tests/data/verdicts.csv`.

Three figures: the bias of ln(measured / predicted), the width of a job whose settings are all
known, and the chance that a job does something else than it states. Threads count alike; the score
printed is of threads left out one at a time. The distances in `presets/train/verdicts.toml` keep
their ratios.

    python tools/fit_verdicts.py
"""

import csv
import math
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import NormalDist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import verdicts

import gpuscale.answers.finetune.verdict as tuned
import gpuscale.answers.memory.train as trained
from gpuscale.core import verdict as core

SEEN = []


def recorded(cases, usable_bytes, width, *_):
    """Keep what a probability is made of."""
    SEEN.append((list(cases), usable_bytes, width))
    return 0.5


def rows():
    """(thread, ran, cases, usable, own width, width of distances) of the development half."""
    tuned.probability = trained.probability = recorded
    plain = core.Spread.width
    found = []
    for row in csv.DictReader(Path("tests/data/verdicts.csv").open()):
        if row["half"] != "development" or row["kind"] == "serve":
            continue
        widths = []

        def width(self, factor, far=(), widths=widths):
            own = math.log(max(1.0, factor)) / core.Z80
            far = list(far)
            widths.append((own, plain(core.Spread(0.0, 1e-9, self.distance), 1.0, far), far))
            return 1.0

        core.Spread.width = width
        SEEN.clear()
        if verdicts.predict(row)[0] is not None and SEEN:
            cases, usable, _ = SEEN[-1]
            found.append((row["thread"], row["outcome"] == "fits", cases, usable, *widths[-1][:2]))
    return found


def chance(row, bias, floor, scale, odd):
    """Probability of one row."""
    _, _, cases, usable, own, far = row
    normal = NormalDist(bias, math.hypot(max(own, floor), scale * far))
    total = sum(w for w, _ in cases)
    p = sum(w * normal.cdf(math.log(usable / max(b, 1.0))) for w, b in cases) / total
    return (1.0 - odd) * p + odd / 2.0


def loss(found, weights, at):
    """Mean log loss, threads counted alike, with a weak pull to the prior."""
    total = 0.0
    for row in found:
        p = chance(row, *at)
        total -= weights[row[0]] * math.log(p if row[1] else 1.0 - p)
    return total + 2.0 * (at[0] / 0.2) ** 2 * 0.1 + 0.1 * (math.log(at[2]) / 0.7) ** 2


GRID = (
    (-0.05, 0.0, 0.05, 0.1, 0.15, 0.2),
    (0.08, 0.12, 0.16, 0.2, 0.3),
    (0.5, 0.7, 1.0, 1.4, 2.0),
    (0.01, 0.04, 0.08, 0.12, 0.18, 0.25, 0.35),
)


def fit(found):
    """Best point of the grid."""
    threads = Counter(row[0] for row in found)
    weights = {thread: 1.0 / n for thread, n in threads.items()}
    return min(product(*GRID), key=lambda at: loss(found, weights, at))


def main():
    """Fit, and score threads that were left out."""
    found = rows()
    print("all:", fit(found))
    folds, score = 8, []
    names = sorted({row[0] for row in found})
    for k in range(folds):
        out = set(names[k::folds])
        at = fit([r for r in found if r[0] not in out])
        score += [(chance(r, *at) - r[1]) ** 2 for r in found if r[0] in out]
        print(k, at)
    print(f"Brier of threads left out: {sum(score) / len(score):.3f} of {len(score)} rows")


if __name__ == "__main__":
    main()
