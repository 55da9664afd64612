"""Widths of the stated 80 % intervals of step times, from the validation rows of each class.

    python tools/fit_step_intervals.py          # print
    python tools/fit_step_intervals.py --write  # and write presets/train/intervals.toml

The width of a class is the 80 % quantile of |ln(predicted/measured)| over its rows, a tenth wider,
since the same rows fitted the parameters; a class of fewer than `MIN_ROWS` rows has none of its
own and takes its kind's, dense or MoE.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict

from gpuscale.core.step.interval import interval_classes
from gpuscale.evidence.score.records import quantile
from gpuscale.evidence.score.runs import feasible, is_stalled, own_runs, records_of, step_seconds
from gpuscale.io.step_calibration import train_folder

MIN_ROWS = 8
MARGIN = 1.1
LEAST = {"dense": 0.065, "moe": 0.13}

GIVEN = {
    "unknown": (0.35, "no validation row of the class; chosen"),
    "hardware/unknown": (0.30, "architecture without a fitted row; the held-out TPU and AMD rows"),
}
FITTED = ("ampere", "hopper", "blackwell", "blackwell-ultra")


def errors() -> dict[str, list[float]]:
    """Class -> |ln ratio| of its rows."""
    found: dict[str, list[float]] = defaultdict(list)
    for given in own_runs():
        if given.model is None or given.layout is None or given.step_time_s is None:
            continue
        if given.quality == "suspect" or given.superseded:
            continue
        if given.software == "nanotron" and is_stalled(given):
            continue
        run = feasible(given)
        assert run.model is not None and run.layout is not None
        hw, _ = records_of(run)
        off = abs(math.log(step_seconds(run) / given.step_time_s))
        classes = interval_classes(run.model, hw, run.software, run.layout, len(run.assumed))
        if run.full_spec == "yes" and run.quality == "good":
            for name in classes[1:]:
                found[name].append(off)
        elif "assumed" in classes:
            found["assumed"].append(off)
        if "linear-attention" in classes:
            found["linear-attention"].append(off)
    return found


def main() -> None:
    """Compute and write."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--write", action="store_true")
    write = ap.parse_args().write
    lines = [
        "# Half widths of ln(step time) that hold 80 % of the validation rows of a class.",
        "# Written by tools/fit_step_intervals.py; classes are those of core/step/interval.py.",
    ]
    widths = {}
    for name, offs in sorted(errors().items()):
        if len(offs) >= MIN_ROWS:
            width = max(LEAST.get(name.split("/")[0], 0.065), MARGIN * quantile(offs, 0.8))
            widths[name] = (width, f"{len(offs)} rows, tools/fit_step_intervals.py")
    for arch in FITTED:
        widths[f"hardware/{arch}"] = (0.0, "fitted on published runs")
    for name, (width, source) in {**GIVEN, **widths}.items():
        lines += ["", f'[class."{name}"]', f"width = {width:.3f}", f'source = "{source}"']
        print(f"{name:32s} {width:.3f}  {source}")
    if write:
        (train_folder() / "intervals.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
