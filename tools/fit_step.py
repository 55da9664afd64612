"""Fit the parameters of the step model to published runs, and write them into the presets.

    python tools/fit_step.py              # fit, report
    python tools/fit_step.py --write      # and write presets/train and presets/software
    python tools/fit_step.py --cv         # leave one source out

Maximum a posteriori in log space: a robust (Huber) sum of squared log errors of step time over the
rows, plus a Gaussian prior on every parameter, by damped Gauss-Newton with numerical derivatives.
Priors, their widths and ties stand beside the values in the presets. Rows: the package's own copy
of the measurements (good and fully specified; those that only leave the recompute blank count a
quarter); each source and each `dup_group` is weighted down by the root of its size, so that no
single one rules. Needs numpy.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections import Counter, defaultdict
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpuscale.core.model.params import ModelWeights, model_weights
from gpuscale.core.step.records import Hardware, Software
from gpuscale.core.step.step import breakdown
from gpuscale.evidence.rows_runs import TrainingRun
from gpuscale.evidence.score_runs import is_stalled, own_copy, read_runs
from gpuscale.io.presets import preset_names, preset_path
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step import FILES, Calibration, calibrated_tables, step_hardware, train_folder
from gpuscale.specs.software import FittedValue

HUBER = 0.12
"""Log error beyond which a row counts linearly."""

SIGMA = 0.06
"""Log error of a good row: half of it model, half repetition."""

DIFFERENCE = 0.01
"""Step of the numerical derivatives, in ln(parameter)."""

framework = lru_cache(load_software)
own_runs = lru_cache(lambda name="training_runs": read_runs(own_copy(name)))

Array = np.ndarray[Any, np.dtype[np.float64]]


class Problem:
    """Rows to fit, their weights, and the free parameters with their priors."""

    def __init__(self, runs: list[TrainingRun], tables: dict[str, FittedValue] | None = None):
        """Take the rows to fit and the parameter tables; by default those shipped."""
        self.runs = runs
        self.tables = tables or all_tables()
        self.groups = tie_groups(self.tables)
        first = {key: self.tables[paths[0]] for key, paths in self.groups.items()}
        met = {key: affected(runs, paths) for key, paths in self.groups.items()}
        self.free = [k for k, table in first.items() if table.prior_spread > 0 and met[k]]
        self.measured = np.array([math.log(run.step_time_s or 1.0) for run in runs])
        self.weight = row_weights(runs)
        self.prior = np.array([math.log(first[key].prior) for key in self.free])
        self.width = np.array([first[key].prior_spread for key in self.free])
        self.shipped = np.array([math.log(first[key].value) for key in self.free])
        self.rows_of = [met[key] for key in self.free]
        self.held = [model_weights(run.model) for run in runs if run.model is not None]

    def calibration(self, x: Array) -> Calibration:
        """All parameters for one vector of free ones (their logarithms)."""
        cal = Calibration({path: table.value for path, table in self.tables.items()})
        for key, value in zip(self.free, x, strict=True):
            for path in self.groups[key]:
                cal[path] = math.exp(value)
        return cal

    def log_times(self, x: Array, rows: list[int] | None = None) -> Array:
        """Take the logarithm of the expected step time of all rows, or of some."""
        cal, memo = self.calibration(x), Records()
        chosen = range(len(self.runs)) if rows is None else rows
        times = [memo.predict(self.runs[i], cal, self.held[i]) for i in chosen]
        return np.array([math.log(time_s) for time_s in times])

    def jacobian(self, x: Array, base: Array) -> Array:
        """Differentiate `log_times` by each parameter."""
        jac = np.zeros((len(self.runs), len(x)))
        for j, rows in enumerate(self.rows_of):
            if rows:
                moved = x.copy()
                moved[j] += DIFFERENCE
                jac[rows, j] = (self.log_times(moved, rows) - base[rows]) / DIFFERENCE
        return jac

    def objective(self, x: Array, base: Array, mask: Array | None = None) -> float:
        """Robust misfit and prior."""
        off = np.abs(base - self.measured)
        rho = np.where(off <= HUBER, off * off, 2 * HUBER * off - HUBER**2) / SIGMA**2
        weight = self.weight if mask is None else self.weight * mask
        return float((weight * rho).sum() + (((x - self.prior) / self.width) ** 2).sum())

    def newton(self, x: Array, base: Array, mask: Array | None = None) -> tuple[Array, Array]:
        """(Hessian of half the objective, gradient of half) in Gauss-Newton form."""
        jac, off = self.jacobian(x, base), base - self.measured
        robust = np.where(np.abs(off) <= HUBER, 1.0, HUBER / np.maximum(np.abs(off), 1e-9))
        weight = self.weight / SIGMA**2 * robust * (1.0 if mask is None else mask)
        hessian = jac.T @ (weight[:, None] * jac) + np.diag(1.0 / self.width**2)
        return hessian, jac.T @ (weight * off) + (x - self.prior) / self.width**2


class Records:
    """Hardware and software records of rows under one calibration, made once each."""

    def __init__(self) -> None:
        """Start empty."""
        self.hardware: dict[Any, Hardware] = {}
        self.software: dict[Any, Software] = {}

    def of(self, run: TrainingRun, cal: Calibration) -> tuple[Hardware, Software]:
        """Return the records of a row."""
        h = run.hardware
        assert h is not None
        key = (run.gpu, h.gpus_per_node, h.fabric_class, h.node_egress_bytes_per_s)
        if key not in self.hardware:
            self.hardware[key] = step_hardware(h, cal)
        hw = self.hardware[key]
        assert run.layout is not None
        kind = (run.software, h.gpu.name, tuple(run.options.items()), run.layout.precision)
        if kind not in self.software:
            self.software[kind] = software_record(
                framework(run.software),
                hw.architecture,
                run.options,
                precision=run.layout.precision,
                calibration=cal,
                gpu=h.gpu.name,
            )
        return hw, self.software[kind]

    def predict(self, run: TrainingRun, cal: Calibration, weights: ModelWeights) -> float:
        """Return the expected step time of a row. [s]."""
        hw, sw = self.of(run, cal)
        assert run.model is not None and run.layout is not None
        return breakdown(run.model, hw, sw, run.layout, weights=weights)[0].total_s


def affected(runs: list[TrainingRun], paths: list[str]) -> list[int]:
    """Rows that a parameter can change."""
    kinds = {tuple(path.split(".")[:2]) for path in paths}
    if any(kind[0] == "kernels" for kind in kinds):
        return list(range(len(runs)))
    rows = []
    for i, run in enumerate(runs):
        own = {
            ("software", run.software),
            ("fabric", run.hardware.fabric_class),
            ("fabric", "default"),
            ("arch", run.hardware.gpu.architecture),
            ("arch", run.hardware.gpu.name),
            ("arch", run.hardware.gpu.architecture.split("-")[0]),
            ("arch", "default"),
        }
        if own & kinds:
            rows.append(i)
    return rows


def fitted_rows() -> list[TrainingRun]:
    """Rows of the package's own copy that are fitted: runs and the layout grid."""
    runs = [as_software_does(run) for run in own_runs() if usable(run)]
    return runs + [
        run for run in own_runs("layouts") if run.step_time_s and run.layout and not is_stalled(run)
    ]


def as_software_does(run: TrainingRun) -> TrainingRun:
    """Recompute as the software does by itself, where a row does not print it."""
    if not run.open_recompute or run.layout is None:
        return run
    usual = load_software(run.software).recompute
    return replace(run, layout=replace(run.layout, recompute=usual))


def usable(run: TrainingRun) -> bool:
    """Good, timed, fully specified (or but for the recompute), without an unexplained stall."""
    if run.layout is None or run.hardware is None or run.step_time_s is None or run.reason:
        return False
    if run.hardware.gpu.architecture not in own_architectures():
        return False
    if run.quality in ("suspect", "weak") or not (run.full_spec == "yes" or partly(run)):
        return False
    return run.software != "nanotron" or not is_stalled(run)


@lru_cache
def own_architectures() -> frozenset[str]:
    """Architectures with a free parameter: what another does differently is no family's doing."""
    free = {p.split(".")[1] for p, t in calibrated_tables() if t.prior_spread > 0}
    return frozenset(
        run.hardware.gpu.architecture
        for run in own_runs()
        if run.hardware is not None
        and free
        & {
            run.hardware.gpu.architecture,
            run.hardware.gpu.architecture.split("-")[0],
            run.hardware.gpu.name,
        }
    )


def partly(run: TrainingRun) -> bool:
    """Rows whose only blank is the recompute, of families that use none."""
    return (
        run.full_spec.startswith("all but")
        and run.quality == "good"
        and run.software in ("megatron-core", "megatron-bridge", "jax")
    )


def label(run: TrainingRun) -> str:
    """Source that a row counts for; the grid is one."""
    return "nanotron grid" if run.software == "nanotron" else run.source


def row_weights(runs: list[TrainingRun]) -> Array:
    """Weight of each row: its group and source share one, by the root of their sizes."""
    groups = Counter(run.dup_group or run.id for run in runs)
    sources = Counter(label(run) for run in runs)
    weights = np.array(
        [
            1.0
            / math.sqrt(groups[run.dup_group or run.id])
            / math.sqrt(sources[label(run)] / 20.0 + 1.0)
            * (0.5 if run.superseded else 1.0)
            * (1.0 if run.full_spec in ("yes", "") else 0.25)
            * (0.35 if run.software == "nanotron" else 1.0)
            for run in runs
        ]
    )
    return np.asarray(weights * len(runs) / weights.sum() * 0.5)


def all_tables() -> dict[str, FittedValue]:
    """Path -> table of every calibrated parameter that is shipped."""
    tables = dict(calibrated_tables())
    for name in preset_names("software"):
        for key, table in load_software(name).calibration.items():
            tables[f"software.{name}.{key}"] = table
    return tables


def tie_groups(tables: dict[str, FittedValue]) -> dict[str, list[str]]:
    """Name of a tie, or the path itself -> paths that are fitted as one."""
    groups: dict[str, list[str]] = {}
    for path, table in tables.items():
        groups.setdefault(table.tie or path, []).append(path)
    return groups


def fit(
    problem: Problem,
    mask: Array | None = None,
    start: Array | None = None,
    steps: int = 12,
    log: bool = True,
) -> tuple[Array, Array]:
    """(parameters, ln of step times) at the optimum, from the priors or from `start`."""
    x = problem.prior.copy() if start is None else start.copy()
    base = problem.log_times(x)
    best, damping = problem.objective(x, base, mask), 1e-2
    for step in range(steps):
        started, before = time.time(), best
        hessian, gradient = problem.newton(x, base, mask)
        for _ in range(6):
            scale = hessian + damping * np.diag(np.diag(hessian))
            moved = x + np.clip(-np.linalg.solve(scale, gradient), -0.5, 0.5)
            times = problem.log_times(moved)
            value = problem.objective(moved, times, mask)
            if value < best:
                x, base, best = moved, times, value
                damping = max(1e-5, damping / 5)
                break
            damping *= 6
        if log:
            error = np.abs(np.expm1(base - problem.measured)).mean()
            print(
                f"step {step}: objective {best:.3f}  MAPE {100 * error:.2f} %  "
                f"{time.time() - started:.0f} s",
                flush=True,
            )
        if before - best < 1e-4:
            break
    return x, base


def write(problem: Problem, x: Array, base: Array) -> None:
    """Put the fitted values, and their spread, into the preset files in place of the old ones."""
    cal = problem.calibration(x)
    hessian, _ = problem.newton(x, base)
    deviation = np.sqrt(np.diag(np.linalg.inv(hessian)))
    spread = {
        path: math.exp(d)
        for key, d in zip(problem.free, deviation, strict=True)
        for path in problem.groups[key]
    }
    files = [(train_folder() / file, prefix, "") for prefix, file in FILES.items()]
    files += [
        (preset_path("software", n), f"software.{n}", "calibration.")
        for n in preset_names("software")
    ]
    for file, prefix, table in files:
        text = Path(file).read_text()
        for path in spread:
            if path.startswith(prefix + "."):
                header = f"[{table}{path[len(prefix) + 1 :]}]"
                text = re.sub(
                    re.escape(header) + r"\nvalue = \S+(\nprior = \S+\nprior_spread = \S+)"
                    r"(\nspread = \S+)?",
                    f"{header}\nvalue = {cal[path]:.5g}\\1\nspread = {spread[path]:.3f}",
                    text,
                )
        Path(file).write_text(text)


def counted(run: TrainingRun) -> bool:
    """Rows that the scores are about: fully specified and newest."""
    return run.full_spec in ("yes", "") and not run.superseded


def report(problem: Problem, base: Array) -> None:
    """Print errors by kind and by source."""
    error = np.expm1(base - problem.measured)
    rows: dict[str, list[int]] = defaultdict(list)
    for i, run in enumerate(problem.runs):
        kind = run.classes.get("dense_or_moe", "dense")
        if partly(run):
            rows[f"recompute blank, {kind}"].append(i)
        elif run.software == "nanotron":
            rows["nanotron grid"].append(i)
        else:
            rows["all but the grid"].append(i)
            rows[kind].append(i)
            rows["  " + run.source].append(i)
    for name, chosen in rows.items():
        off = np.abs(error[chosen])
        print(
            f"{name:28s} n {len(off):4d}  MAPE {100 * off.mean():5.1f}  median "
            f"{100 * np.median(off):5.1f}  p90 {100 * np.quantile(off, 0.9):5.1f}  bias "
            f"{100 * error[chosen].mean():+5.1f}"
        )


def cross_validate(problem: Problem, steps: int = 4) -> dict[str, tuple[int, float, float]]:
    """Leave one source out: (rows, MAPE of the full fit, MAPE when left out) by source."""
    x, base = fit(problem, start=problem.shipped, steps=steps, log=False)
    labels = [label(run) for run in problem.runs]
    found = {}
    for name in dict.fromkeys(labels):
        rows = [i for i, n in enumerate(labels) if n == name and counted(problem.runs[i])]
        if not rows:
            continue
        mask = np.array([0.0 if n == name else 1.0 for n in labels])
        _, left = fit(problem, mask, x, steps, log=False)
        error = [float(np.abs(np.expm1(t - problem.measured))[rows].mean()) for t in (base, left)]
        found[name] = (len(rows), error[0], error[1])
        print(
            f"{name:28s} n {len(rows):4d}  fitted {100 * error[0]:5.1f}  left out "
            f"{100 * error[1]:5.1f}",
            flush=True,
        )
    rest = [v for k, v in found.items() if k != "nanotron grid"]
    n = sum(v[0] for v in rest)
    print(
        f"without the grid: rows {100 * sum(v[0] * v[1] for v in rest) / n:.1f} fitted, "
        f"{100 * sum(v[0] * v[2] for v in rest) / n:.1f} left out; mean of sources "
        f"{100 * np.mean([v[1] for v in rest]):.1f}, "
        f"{100 * np.mean([v[2] for v in rest]):.1f}"
    )
    return found


def left_out(problem: Problem, x: Array, base: Array) -> Array:
    """Logarithm of predicted over measured of each row, fitted without its source.

    One Newton step from the fit of all rows with the source's rows taken away, predictions moved
    along their derivatives: seconds instead of a fit per source.
    """
    jac, off = problem.jacobian(x, base), base - problem.measured
    robust = np.where(np.abs(off) <= HUBER, 1.0, HUBER / np.maximum(np.abs(off), 1e-9))
    weight = problem.weight / SIGMA**2 * robust
    labels = np.array([label(run) for run in problem.runs])
    found = off.copy()
    for name in dict.fromkeys(labels):
        kept = weight * (labels != name)
        hessian = jac.T @ (kept[:, None] * jac) + np.diag(1.0 / problem.width**2)
        gradient = jac.T @ (kept * off) + (x - problem.prior) / problem.width**2
        moved = jac @ -np.linalg.solve(hessian, gradient)
        found[labels == name] += moved[labels == name]
    return np.asarray(found)


def main() -> None:
    """Fit, report, and write if asked."""
    ap = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    ap.add_argument("--write", action="store_true", help="write the presets")
    ap.add_argument("--cv", action="store_true", help="leave one source out")
    ap.add_argument("--shipped", action="store_true", help="start from the shipped values")
    ap.add_argument("--steps", type=int, default=12)
    args = ap.parse_args()
    problem = Problem(fitted_rows())
    print(f"{len(problem.runs)} rows, {len(problem.free)} free parameters")
    if args.cv:
        cross_validate(problem, min(args.steps, 4))
        return
    start = problem.shipped if args.shipped else None
    x, base = fit(problem, start=start, steps=args.steps)
    report(problem, base)
    for key, value, prior in sorted(zip(problem.free, x, problem.prior, strict=True)):
        print(f"{key:52s} {math.exp(value):10.4g}   prior {math.exp(prior):.4g}")
    if args.write:
        write(problem, x, base)


if __name__ == "__main__":
    main()
