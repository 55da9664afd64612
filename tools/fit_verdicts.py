"""Fits the width of verdicts to the development half of `tests/data/verdicts.csv`.

The bias of ln(measured / predicted), the width of a job whose settings are all known, the chance
that a job does something else than it states, and how far such jobs lie above. Threads count alike;
the score printed is of threads left out one at a time. The distances in
`presets/train/verdicts.toml` keep their ratios.

    python tools/fit_verdicts.py
"""

import argparse
import csv
import math
import sys
from collections import Counter
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import verdicts

from gpuscale.core import verdict as core
from gpuscale.core.numeric import Z80

SEEN = []


def recorded(self, cases, usable_bytes, width, *, settled):
    """Keep what a probability is made of."""
    SEEN.append((list(cases), usable_bytes, settled))
    return 0.5


def rows():
    """(thread, ran, cases, usable, settled, own width, width of distances), development half."""
    core.Spread.chance = recorded
    plain = core.Spread.width
    found = []
    for row in csv.DictReader(Path("tests/data/verdicts.csv").open()):
        if row["half"] != "development" or row["kind"] == "serve":
            continue
        widths = []

        def width(self, factor, far=(), widths=widths):
            own = math.log(max(1.0, factor)) / Z80
            widths.append((own, plain(core.Spread(0.0, 1e-9, self.distance), 1.0, far)))
            return 1.0

        core.Spread.width = width
        SEEN.clear()
        if verdicts.predict(row)[0] is not None and SEEN:  # its own first, then what would help
            found.append((row["thread"], row["outcome"] == "fits", *SEEN[0], *widths[0]))
    return found


def chance(row, bias, floor, scale, odd, odd_bias):
    """Probability of one row."""
    _, _, cases, usable, settled, own, far = row
    width = math.hypot(max(own, floor), scale * far)
    how = core.Spread(bias, odd_open=odd, odd_bias=odd_bias)
    return CHANCE(how, cases, usable, width, settled=settled)


CHANCE = core.Spread.chance


def loss(found, weights, at):
    """Mean log loss, threads counted alike, with a weak pull to the prior."""
    total = 0.0
    for row in found:
        p = chance(row, *at)
        total -= weights[row[0]] * math.log(p if row[1] else 1.0 - p)
    return total + 2.0 * (at[0] / 0.2) ** 2 * 0.1 + 0.1 * (math.log(at[2]) / 0.7) ** 2


GRID = (
    (0.0, 0.05, 0.1, 0.15),
    (0.08, 0.1, 0.14, 0.18),
    (0.5, 1.0, 1.4),
    (0.1, 0.2, 0.3, 0.4, 0.5),
    (0.2, 0.5, 0.8),
)


def fit(found):
    """Best point of the grid."""
    threads = Counter(row[0] for row in found)
    weights = {thread: 1.0 / n for thread, n in threads.items()}
    return min(product(*GRID), key=lambda at: loss(found, weights, at))


def main():
    """Fit, and score threads that were left out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.parse_args()
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
