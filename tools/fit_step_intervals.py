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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpuscale.core.settings import STACKS, Way, mixed, tuned_probability
from gpuscale.core.step.ideal import interval_classes
from gpuscale.evidence.records import quantile
from gpuscale.evidence.rows_runs import TrainingRun
from gpuscale.evidence.score_runs import feasible, is_stalled, own_copy, problem_of, read_runs
from gpuscale.io.hardware import load_gpu
from gpuscale.io.jobs import evidence
from gpuscale.io.software import load_software
from gpuscale.io.step import train_folder

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


def counted_runs() -> Iterator[TrainingRun]:
    """List the timed runs that are neither suspect nor superseded nor stalled."""
    for given in read_runs(own_copy("training_runs")):
        if given.model is None or given.layout is None or given.step_time_s is None:
            continue
        stalled = given.software == "nanotron" and is_stalled(given)
        if not (given.quality == "suspect" or given.superseded or stalled):
            yield given


def class_errors() -> dict[str, list[float]]:
    """|ln ratio| of the rows of the classes that no kind says: blanks assumed, wide TP ..."""
    found: dict[str, list[float]] = defaultdict(list)
    for given in counted_runs():
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
"""End of the name of a source whose jobs were asked about because they are slow: half a weight in
medians; whoever asks here may well ask for that reason, so reaches count it whole."""
BALANCE = {
    "tuned": (1.0, "published recipes force a balance"),
    "as-it-comes": (1.2, "prior: below the 1.2 to 1.8 to one of routers that are fine-tuned"),
    "script": (1.2, "as it comes"),
}


class Job(NamedTuple):
    """A job, its maturity, what is said of it, and ln of measured over tuned time."""

    source: str
    kind: str  # moe, or the stack of its software
    maturity: str  # tuned, or that of its software
    error: float
    said: tuple[str, ...]
    n_gpus: int
    ordinary: bool = True


def ordinary_jobs() -> list[Job]:
    """Pretraining jobs of `tools/ordinary.py`; fine-tuning and RL have widths of their own."""
    made: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("ordinary.py")))
    found = []
    for o in made["outcomes"]():
        row = o.row
        if o.refused or made["is_weak"](row) or row["kind"] != "pretrain" or row["held"]:
            continue
        spec = load_software(made["software_of"](row) or "megatron-core")
        found.append(
            Job(
                row["source"].split(",")[0] + (CHOSEN if row["complaint"] == "yes" else ""),
                "moe" if o.has_experts and spec.stack != "eager" else spec.stack,
                "tuned" if row["maturity"] == "tuned" else spec.maturity,
                math.log(o.measured_s / (o.step_s - o.untuned_s)),
                evidence(load_gpu(o.gpu), o.has_experts),
                int(row["gpus"]),
            )
        )
    return found


def recipe_jobs() -> list[Job]:
    """List published recipes and tables, which somebody tuned."""
    found = []
    for given in counted_runs():
        spec = load_software(given.software)
        run, at = feasible(given, problem_of(given))
        assert run.layout is not None
        experts = run.classes.get("dense_or_moe") == "moe"
        found.append(
            Job(
                given.source,
                "moe" if experts and spec.stack != "eager" else spec.stack,
                "tuned",
                math.log(given.step_time_s / at.step_s),
                evidence(given.hardware.gpu, experts),
                run.layout.n_gpus,
                ordinary=False,
            )
        )
    return found


MARKS = ("experts", "fp8_gpu")
RIDGE = 0.3
"""Pull of each log odds to none."""


def posterior(jobs: list[Job]) -> dict[str, float]:
    """Log odds that a job was tuned, sources counted alike: logistic regression."""
    counts = Counter(job.source for job in jobs)
    w = np.array([1.0 / counts[job.source] for job in jobs])
    y = np.array([job.maturity == "tuned" for job in jobs], float)
    marks = [[1.0, *(m in job.said for m in MARKS), math.log2(job.n_gpus) / 8] for job in jobs]
    a, b = np.array(marks, float), np.zeros(len(MARKS) + 2)
    pull = RIDGE * np.diag([1e-6] + [1.0] * (len(b) - 1))
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(-a @ b))
        b += np.linalg.solve((a.T * (w * p * (1 - p))) @ a + pull, a.T @ (w * (y - p)) - pull @ b)
    names = ("base", *MARKS, "doubling")
    return dict(zip(names, [*map(float, b[:-1]), float(b[-1]) / 8], strict=True))


def key_of(job: Job) -> str:
    """Row of the table that a job belongs to."""
    return "any/tuned" if job.maturity == "tuned" else f"{job.kind}/{job.maturity}"


def weighed(
    jobs: Iterable[Job], errors: Iterable[float], chosen: float = 0.5
) -> list[tuple[float, float]]:
    """Errors with the share of their source, sorted; `chosen`: weight of one asked as slow."""
    jobs = list(jobs)
    counts = Counter(job.source for job in jobs)
    return sorted(
        (e, (chosen if job.source.endswith(CHOSEN) else 1.0) / counts[job.source])
        for job, e in zip(jobs, errors, strict=True)
    )


def at(pairs: list[tuple[float, float]], reach: float) -> float:
    """First value at which so much weight is reached."""
    reached = 0.0
    for value, weight in pairs:
        reached += weight
        if reached >= reach - 1e-9:
            return value
    return pairs[-1][0]


def middle(pairs: list[tuple[float, float]]) -> float:
    """Weighted median, between two values where it lies between them.

    >>> middle([(0.0, 1.0), (1.0, 1.0)]), middle([(0.0, 1.0), (0.5, 1.0), (1.0, 1.0)])
    (0.5, 0.5)
    """
    weights = np.array([w for _, w in pairs])
    at_middle = np.cumsum(weights) - weights / 2.0
    return float(np.interp(weights.sum() / 2.0, at_middle, [v for v, _ in pairs]))


def median_of(key: str, jobs: Iterable[Job]) -> float:
    """Median of jobs of one kind and maturity, the prior as one more source; not below 0."""
    jobs = list(jobs)
    pairs = weighed(jobs, (job.error for job in jobs))
    return max(0.0, middle(sorted([*pairs, (math.log(PRIORS.get(key, PRIOR)), 1.0)])))


def spreads(jobs: list[Job]) -> dict[str, Way]:
    """Median of each kind and maturity, and how far jobs lie below and above it.

    Dense jobs of all stacks that leave something to tune share one width, of each job over the
    median without its source. It is conformal: the next job counts as one more source beyond each
    end.
    """
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[key_of(job)].append(job)
    without = {
        (key, source): median_of(key, (j for j in group if j.source != source))
        for key, group in groups.items()
        for source in {j.source for j in group}
    }
    made = {}
    for key, group in groups.items():
        like = [
            j
            for j in jobs
            if (key_of(j) if key_of(j) in PRIORS else "") == (key if key in PRIORS else "")
        ]
        pairs = weighed(like, (j.error - without[key_of(j), j.source] for j in like), 1.0)
        total = sum(w for _, w in pairs)
        low, high = at(pairs, 0.1 * (total + 1) - 1), at(pairs, 0.9 * (total + 1))
        median = 0.0 if key == "any/tuned" else median_of(key, group)
        made[key] = Way(median, max(0.0, -low), max(0.0, high))
    return made


def judged(jobs: list[Job], recipes: list[Job]) -> dict[str, list[tuple[float, bool]]]:
    """(relative error, whether inside) of jobs whose source was left out, by row and in all."""
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for source in {job.source for job in [*jobs, *recipes]}:
        rest = [job for job in jobs if job.source != source]
        rest += [job for job in recipes if job.source != source]
        odds, ways = posterior(rest), spreads(rest)
        for job in (j for j in [*jobs, *recipes] if j.source == source):
            usual = "script" if job.maturity == "script" else "as-it-comes"
            other = ways.get(f"{job.kind}/{usual}", Way(math.log(PRIOR), 0.2, 0.7))
            share = tuned_probability(odds, job.said, job.n_gpus)
            way = mixed(ways["any/tuned"], other, share)
            off = job.error - way.median
            one = abs(math.expm1(-off)), -way.faster <= off <= way.slower
            for name in ("ordinary", key_of(job)) if job.ordinary else ("recipes",):
                found[name].append(one)
    return found


def maturity_lines() -> list[str]:
    """Log odds of a tuned job; median and reach of each maturity."""
    jobs, recipes = ordinary_jobs(), recipe_jobs()
    made, left = spreads([*jobs, *recipes]), judged(jobs, recipes)
    for key, rows in sorted(left.items()):
        off = 100.0 * quantile([e for e, _ in rows], 0.5)
        inside = 100.0 * sum(i for _, i in rows) / len(rows)
        print(f"{key}, sources left out: n {len(rows)}, median {off:.0f} %, inside {inside:.0f} %")
    n_sources = len({job.source for job in [*jobs, *recipes]})
    lines = ["", "[posterior]"]
    lines += [f"{k} = {v:.3f}" for k, v in posterior([*jobs, *recipes]).items()]
    lines += [
        f'source = "log odds that a job was tuned, {len(jobs) + len(recipes)} jobs of {n_sources} '
        "sources, each counted as one: one GPU, a model with experts, a GPU with FP8 units and "
        'HBM, each doubling of the GPUs"'
    ]
    for kind in (*STACKS, "moe"):
        for name in ("tuned", *MATURITIES):
            key = f"{kind}/{name}" if f"{kind}/{name}" in made else f"{kind}/as-it-comes"
            key = "any/tuned" if name == "tuned" else key
            way, group = made[key], [job for job in [*jobs, *recipes] if key_of(job) == key]
            n, sources = len(group), len({job.source for job in group})
            source = f"{n} jobs of {sources} sources"
            source += ", fitted ones too" if name == "tuned" else ", none fitted"
            source += " (tools/ordinary.py)"
            lines += ["", f'[maturity."{kind}/{name}"]', f"median = {math.exp(way.median):.3f}"]
            lines += [f"faster = {way.faster:.3f}", f"slower = {way.slower:.3f}"]
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
    ap.add_argument("--maturity", action="store_true", help="print the maturities alone")
    write = ap.parse_args().write
    if ap.parse_args().maturity:
        print("\n".join(maturity_lines()))
        return
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
        "# Written by tools/fit_step_intervals.py; classes are those of core/step/ideal.py.",
    ]
    for name, (width, source) in {**GIVEN, **widths}.items():
        lines += ["", f'[class."{name}"]', f"width = {width:.3f}", f'source = "{source}"']
    lines += maturity_lines()
    if write:
        (train_folder() / "intervals.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
