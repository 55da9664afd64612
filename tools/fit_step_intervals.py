"""Widths of the stated 80 % intervals of step times: conformal, by rows and by sources.

    python tools/fit_step_intervals.py          # print
    python tools/fit_step_intervals.py --write  # and write presets/train/intervals.toml

A step has the 80 % quantile of |ln(predicted / measured)| over rows whose source was left out of
the fit, dense or MoE, and over the dense jobs of `tools/ordinary.py`, which it never saw: what a
new site errs by. Rows whose stack (family and architecture) another source measured err no less, so
there is no narrower class for them. A width holds 80 % of the rows and, every source counted as one
whatever its number of rows, 80 % of the sources; none is below `LEAST`.
Needs numpy.
"""

from __future__ import annotations

import argparse
import math
import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

from gpuscale.core.step.interval import interval_classes
from gpuscale.evidence.rows.measurements import TrainingRun
from gpuscale.evidence.score.records import quantile
from gpuscale.evidence.score.runs import feasible, is_stalled, own_runs, records_of, step_seconds
from gpuscale.io.step_calibration import train_folder

LEAST = {"dense": 0.10, "moe": 0.20}
MIN_ROWS = 8
GIVEN = {
    "unknown": (0.35, "no validation row of the class; chosen"),
    "hardware/unknown": (0.30, "architecture without a fitted row; the held-out AMD rows"),
}
FITTED = ("ampere", "hopper", "blackwell", "blackwell-ultra", "tpu-v5p", "tpu-v6e", "tpu-v7")

Errors = dict[str, dict[str, list[float]]]  # class -> source -> ln ratio


def by_sources(errors: dict[str, list[float]], q: float) -> float:
    """Quantile of all magnitudes, each source weighing the same.

    >>> by_sources({"a": [0.1] * 9, "b": [0.3]}, 0.8)
    0.3
    """
    pairs = sorted((abs(e), 1.0 / len(found)) for found in errors.values() for e in found)
    reached, total = 0.0, sum(w for _, w in pairs)
    for value, weight in pairs:
        reached += weight / total
        if reached >= q - 1e-9:
            return value
    return pairs[-1][0]


def kind_errors() -> tuple[Errors, Errors, Errors]:
    """Errors of the fit, without the source, and those of stacks that others measured, by kind."""
    fit: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("fit_step.py")))
    problem = fit["Problem"](fit["fitted_rows"]())
    base = problem.log_times(problem.shipped)
    left = fit["left_out"](problem, problem.shipped, base)
    fitted: Errors = defaultdict(_by_source)
    without: Errors = defaultdict(_by_source)
    others: Errors = defaultdict(_by_source)
    stacks = [stack_of(run) for run in problem.runs]
    sources: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for stack, run in zip(stacks, problem.runs, strict=True):
        sources[stack].add(fit["label"](run))
    rows = zip(problem.runs, stacks, base - problem.measured, left, strict=True)
    for run, stack, here, there in rows:
        if not fit["counted"](run):
            continue
        kind, source = stack[0], fit["label"](run)
        fitted[kind][source].append(float(here))
        without[kind][source].append(float(there))
        if len(sources[stack]) > 1:
            others[kind][source].append(float(there))
    return fitted, without, others


def _by_source() -> dict[str, list[float]]:
    return defaultdict(list)


def stack_of(run: TrainingRun) -> tuple[str, str, str]:
    """Kind of a model, family, architecture."""
    return run.classes.get("dense_or_moe", "dense"), run.software, run.hardware.architecture


def class_errors() -> dict[str, list[float]]:
    """|ln ratio| of the rows of the classes that no kind says: blanks assumed, wide TP ..."""
    found: dict[str, list[float]] = defaultdict(list)
    for given in own_runs():
        if given.model is None or given.layout is None or given.step_time_s is None:
            continue
        stalled = given.software == "nanotron" and is_stalled(given)
        if given.quality == "suspect" or given.superseded or stalled:
            continue
        run = feasible(given)
        assert run.model is not None and run.layout is not None
        hw, _ = records_of(run)
        off = abs(math.log(step_seconds(run) / given.step_time_s))
        classes = interval_classes(run.model, hw, run.software, run.layout, len(run.assumed))
        for name in ("assumed", "wide-tp", "linear-attention"):
            if name in classes:
                found[name].append(off)
    return found


def site_gain(errors: dict[str, list[float]]) -> float:
    """Width over that without it, once each source's median error is taken off its rows. [1]."""
    left = {
        name: [abs(e - quantile(found, 0.5)) for e in found]
        for name, found in errors.items()
        if len(found) >= MIN_ROWS
    }
    whole = {name: [abs(e) for e in errors[name]] for name in left}
    return min(1.0, by_sources(left, 0.8) / by_sources(whole, 0.8))


UNFITTED_TPUS = ("tpu-v3", "tpu-v4")
"""Generations without a row in the fit, of which `tools/ordinary.py` has jobs."""


def ordinary_errors() -> dict[str, dict[str, list[float]]]:
    """Ln ratio of the jobs of `tools/ordinary.py`, by class and source."""
    made: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("ordinary.py")))
    found: Errors = defaultdict(lambda: defaultdict(list))
    for o in made["outcomes"]():
        script = "--software pytorch" in o.job.ask
        name = {"untuned": "untuned-experts", "dense": "family/pytorch" if script else "dense"}
        tpu = any(f"--gpu {gpu} " in o.job.ask for gpu in UNFITTED_TPUS)
        names = [f"hardware/{gpu}" for gpu in UNFITTED_TPUS] if tpu else [name.get(o.job.kind)]
        for known in filter(None, names):
            found[known][o.job.source].append(math.log(o.ratio))
    return found


def held(errors: dict[str, list[float]], width: float) -> tuple[float, float]:
    """(share of the rows inside a width, mean of the shares of the sources). [%]."""
    inside = {k: [abs(e) <= width for e in v] for k, v in errors.items()}
    rows = [i for v in inside.values() for i in v]
    shares = [sum(v) / len(v) for v in inside.values()]
    return 100.0 * sum(rows) / len(rows), 100.0 * sum(shares) / len(shares)


def said(errors: dict[str, list[float]]) -> str:
    """Name what a width rests on."""
    n = sum(map(len, errors.values()))
    return f"{n} rows of {len(errors)} sources, each left out of the fit or never in it"


def mean_error(errors: list[float]) -> float:
    """Mean absolute relative error. [%]."""
    return 100.0 * sum(abs(math.expm1(e)) for e in errors) / len(errors)


def main() -> None:
    """Compute and write."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--write", action="store_true")
    write = ap.parse_args().write
    fitted, without, others = kind_errors()
    ordinary = ordinary_errors()
    without["dense"] |= ordinary.pop("dense")
    widths = {}
    for kind in LEAST:
        offs = [abs(e) for found in without[kind].values() for e in found]
        width = max(LEAST[kind], by_sources(without[kind], 0.8), quantile(offs, 0.8))
        widths[kind] = (width, said(without[kind]))
        print(f"{kind}: left out {width:.3f}, fitted {by_sources(fitted[kind], 0.8):.3f}")
        for name, errors in (
            ("left out", without[kind]),
            ("left out, others measured the stack", others[kind]),
            ("fitted", fitted[kind]),
        ):
            if errors:
                rows, mean = held(errors, width)
                quantile_80 = by_sources(errors, 0.8)
                print(
                    f"  {name}: {quantile_80:.3f} holds 80 %; the width {rows:.0f} % of the rows, "
                    f"{mean:.0f} % as mean of {len(errors)} sources"
                )
        for name, found in without[kind].items():
            seen = mean_error(fitted[kind][name]) if name in fitted[kind] else math.nan
            shown = f"  {name[:28]:28s} n {len(found):4d}"
            print(f"{shown}  fitted {seen:5.1f}  out {mean_error(found):5.1f}")
    gain = site_gain(without["dense"])
    widths["site"] = (gain, "share of the width left once a step was measured: the same rows")
    print(f"site: {gain:.2f} of the width is left")
    for name, offs in sorted(class_errors().items()):
        if len(offs) >= MIN_ROWS:
            widths[name] = (max(0.10, quantile(offs, 0.8)), f"{len(offs)} rows")
    for name, errors in ordinary.items():
        n = sum(map(len, errors.values()))
        rests = f"{n} jobs of {len(errors)} sources, none fitted (tools/ordinary.py)"
        widths[name] = (by_sources(errors, 0.8), rests)
        print(f"{name}: {widths[name][0]:.3f}, {rests}")
    for arch in FITTED:
        widths[f"hardware/{arch}"] = (0.0, "fitted on published runs")
    lines = [
        "# Half widths of ln(step time) of the stated 80 % intervals.",
        "# Written by tools/fit_step_intervals.py; classes are those of core/step/interval.py.",
    ]
    for name, (width, source) in {**GIVEN, **widths}.items():
        lines += ["", f'[class."{name}"]', f"width = {width:.3f}", f'source = "{source}"']
    if write:
        (train_folder() / "intervals.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
