"""Widths of the stated 80 % intervals of step times: conformal, by rows and by sources.

    python tools/fit_step_intervals.py          # print
    python tools/fit_step_intervals.py --write  # and write presets/train/intervals.toml

A step has the 80 % quantile of |ln(predicted / measured)| over rows whose source was left out of
the fit, dense or MoE: what a tuned recipe errs by. What jobs take that nobody tuned stands beside
it, by maturity, from `tools/ordinary.py`: a median and a width on each side.
Rows whose stack (family and architecture) another source measured err no less. A width holds
80 %, every source counted as one whatever its number of rows; none is below `LEAST`.
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
from gpuscale.core.step.maturity import STACKS
from gpuscale.evidence.rows.measurements import TrainingRun
from gpuscale.evidence.score.records import quantile
from gpuscale.evidence.score.runs import feasible, is_stalled, own_runs, problem_of
from gpuscale.io.software import load_software
from gpuscale.io.step_calibration import train_folder

LEAST = {"dense": 0.10, "moe": 0.16}
WIDE = (("nanotron", "nanotron grid"),)
"""Families of which one source tried every layout, the bad ones too."""
MIN_ROWS = 8
AMD = (
    "chosen: 1.8 either way until a stack is measured; torchtitan takes up to 1.58 times what is "
    "expected, Primus 0.69 times"
)
GIVEN = {
    "unknown": (0.35, "no validation row of the class; chosen"),
    "hardware/unknown": (0.30, "architecture without a fitted row"),
    "hardware/cdna3": (0.588, AMD),
    "hardware/cdna4": (0.588, AMD),
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
    return run.classes.get("dense_or_moe", "dense"), run.software, run.hardware.gpu.architecture


def class_errors() -> dict[str, list[float]]:
    """|ln ratio| of the rows of the classes that no kind says: blanks assumed, wide TP ..."""
    found: dict[str, list[float]] = defaultdict(list)
    for given in own_runs():
        if given.model is None or given.layout is None or given.step_time_s is None:
            continue
        stalled = given.software == "nanotron" and is_stalled(given)
        if given.quality == "suspect" or given.superseded or stalled:
            continue
        problem = problem_of(given)
        run, found_step = feasible(given, problem)
        assert run.model is not None and run.layout is not None
        off = abs(math.log(found_step.step_s / given.step_time_s))
        classes = interval_classes(run.model, problem.hardware, run.software, run.layout)
        for name in ("wide-tp", "linear-attention"):
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


MATURITIES = ("as-it-comes", "script")
PRIOR = 1.3
"""Median before any job is seen, and it counts as one source."""
PRIORS = {"any/tuned": 1.0, "ready/as-it-comes": 1.0, "moe/as-it-comes": 1.0}
"""Kinds with another prior, and with a width of their own."""
CHOSEN = " (asked for its slowness)"
"""End of the name of a source whose jobs were asked about because they are slow: half a weight."""
BALANCE = {
    "tuned": (1.0, "published recipes force a balance"),
    "as-it-comes": (1.2, "prior: below the 1.2 to 1.8 to one of routers that are fine-tuned"),
    "script": (1.2, "as it comes"),
}


def ordinary_errors() -> dict[str, Errors]:
    """Ln of measured over expected time of the jobs of `tools/ordinary.py`, maturity taken off.

    By kind and maturity of the software, as the command takes it; jobs that somebody tuned are a
    kind of their own. Fine-tuning and RL have widths of their own.
    """
    made: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("ordinary.py")))
    found: dict[str, Errors] = defaultdict(lambda: defaultdict(list))
    for o in made["outcomes"]():
        row = o.row
        if o.refused or made["is_weak"](row) or row["kind"] != "pretrain":
            continue
        spec = load_software(made["software_of"](row) or "megatron-core")
        kind = "moe" if o.has_experts else spec.stack
        name = "tuned" if row["maturity"] == "tuned" else spec.maturity
        kind = "any" if name == "tuned" else kind
        error = math.log(o.measured_s / (o.step_s - o.untuned_s))
        source = row["source"].split(",")[0] + (CHOSEN if row["complaint"] == "yes" else "")
        found[f"{kind}/{name}"][source].append(error)
    return found


def weighed(errors: dict[str, list[float]]) -> list[tuple[float, float]]:
    """Errors with the share of their source, sorted."""
    weights = {name: 0.5 if name.endswith(CHOSEN) else 1.0 for name in errors}
    return sorted((e, weights[name] / len(found)) for name, found in errors.items() for e in found)


def at(pairs: list[tuple[float, float]], reach: float) -> float:
    """First value at which so much weight is reached."""
    reached = 0.0
    for value, weight in pairs:
        reached += weight
        if reached >= reach - 1e-9:
            return value
    return pairs[-1][0]


def median_of(errors: dict[str, list[float]], prior: float) -> float:
    """Median by sources; the prior counts as one."""
    pairs = sorted([*weighed(errors), (math.log(prior), 1.0)])
    return at(pairs, 0.5 * sum(w for _, w in pairs))


Fitted = dict[str, tuple[float, float, float]]


def spreads(jobs: dict[str, Errors]) -> Fitted:
    """Median of each kind and maturity, and how far jobs lie below and above it.

    Dense jobs of all stacks that leave something to tune share one width. It is conformal: the
    next job counts as one more source beyond each end.
    """
    medians = {key: median_of(found, PRIORS.get(key, PRIOR)) for key, found in jobs.items()}
    pools: dict[str, Errors] = defaultdict(lambda: defaultdict(list))
    for key, found in jobs.items():
        for source, errors in found.items():
            pools[key if key in PRIORS else ""][f"{key} {source}"] += [
                e - medians[key] for e in errors
            ]
    made = {}
    for key in jobs:
        pairs = weighed(pools[key if key in PRIORS else ""])
        total = sum(w for _, w in pairs)
        low, high = at(pairs, 0.1 * (total + 1) - 1), at(pairs, 0.9 * (total + 1))
        made[key] = medians[key], max(0.0, -low), max(0.0, high)
    return made


def judged(jobs: dict[str, Errors]) -> dict[str, tuple[float, float]]:
    """(median error, share inside) by kind of jobs whose source was left out. [%]."""
    found: dict[str, tuple[float, float]] = {}
    for key, errors in jobs.items():
        offs, inside = [], []
        for source, own in errors.items():
            rest = {
                k: {s: e for s, e in v.items() if k != key or s != source} for k, v in jobs.items()
            }
            median, faster, slower = spreads(rest)[key]
            offs += [abs(math.expm1(median - e)) for e in own]
            inside += [-faster <= e - median <= slower for e in own]
        found[key] = 100.0 * quantile(offs, 0.5), 100.0 * sum(inside) / len(inside)
    return found


def halves(jobs: dict[str, Errors]) -> tuple[float, float]:
    """(median error, share inside) of one half of the sources by what the other half gives. [%]."""
    offs, inside = [], []
    for other in (0, 1):
        own = {
            k: {s: e for i, (s, e) in enumerate(sorted(v.items())) if i % 2 != other}
            for k, v in jobs.items()
        }
        made = spreads(own)
        for key, found in jobs.items():
            median, faster, slower = made[key]
            for i, (_, errors) in enumerate(sorted(found.items())):
                if i % 2 == other:
                    offs += [abs(math.expm1(median - e)) for e in errors]
                    inside += [-faster <= e - median <= slower for e in errors]
    return 100.0 * quantile(offs, 0.5), 100.0 * sum(inside) / len(inside)


def maturity_lines() -> list[str]:
    """Tables of the maturities: median, and how far the 80 % lie on each side of it."""
    jobs, lines = ordinary_errors(), []
    made, left = spreads(jobs), judged(jobs)
    print("by halves of the sources: median error {:.0f} %, inside {:.0f} %".format(*halves(jobs)))
    for kind in (*STACKS, "moe"):
        for name in ("tuned", *MATURITIES):
            key = f"{kind}/{name}" if f"{kind}/{name}" in jobs else f"{kind}/as-it-comes"
            key = "any/tuned" if name == "tuned" else key
            median, faster, slower = made[key]
            if name == "tuned":
                median = 0.0
            if key in jobs:
                n = sum(map(len, jobs[key].values()))
                source = f"{n} jobs of {len(jobs[key])} sources, none fitted (tools/ordinary.py)"
                off, inside = left[key]
                print(
                    f"{kind}/{name}: median {math.exp(median):.2f}, / {math.exp(faster):.2f}, x "
                    f"{math.exp(slower):.2f}; {source}; left out {off:.0f} %, inside {inside:.0f} %"
                )
            lines += ["", f'[maturity."{kind}/{name}"]', f"median = {math.exp(median):.3f}"]
            lines += [f"faster = {faster:.3f}", f"slower = {slower:.3f}"]
            if kind == "moe":
                lines += [f"balance = {BALANCE[name][0]:g}"]
                source += f"; balance: {BALANCE[name][1]}"
            lines += [f'source = "{source}"']
    return lines


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
    widths = {}
    for kind in LEAST:
        width = max(LEAST[kind], by_sources(without[kind], 0.8))
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
    for family, source in WIDE:
        offs = [abs(e) for e in without["dense"][source]]
        rests = f"{len(offs)} rows of {source}, left out of the fit"
        widths[f"family/{family}"] = (quantile(offs, 0.8), rests)
    gain = site_gain(without["dense"])
    widths["site"] = (gain, "share of the width left once a step was measured: the same rows")
    print(f"site: {gain:.2f} of the width is left")
    for name, offs in sorted(class_errors().items()):
        if len(offs) >= MIN_ROWS:
            widths[name] = (max(0.10, quantile(offs, 0.8)), f"{len(offs)} rows")
    for arch in FITTED:
        widths[f"hardware/{arch}"] = (0.0, "fitted on published runs")
    lines = [
        "# Half widths of ln(step time) of the stated 80 % intervals.",
        "# Written by tools/fit_step_intervals.py; classes are those of core/step/interval.py.",
    ]
    for name, (width, source) in {**GIVEN, **widths}.items():
        lines += ["", f'[class."{name}"]', f"width = {width:.3f}", f'source = "{source}"']
    lines += maturity_lines()
    if write:
        (train_folder() / "intervals.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
