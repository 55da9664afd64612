"""Fit the parameters of the step model to published runs, and write them into the presets.

    python tools/fit_step.py              # fit, report, write
    python tools/fit_step.py --dry        # fit and report
    python tools/fit_step.py --cv         # leave one source out

Maximum a posteriori in log space: a robust (Huber) sum of squared log errors of step time over the
rows, plus a Gaussian prior on every parameter, by damped Gauss-Newton with numerical derivatives.
Priors, their widths and ties stand beside the values in `presets/train` and `presets/software`.
Rows: the package's own copy of the measurements (good and fully specified), each source and each
`dup_group` weighted down by the square root of its size, so that no single one rules.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from gpuscale.core.step.records import Hardware
from gpuscale.core.step.step import breakdown
from gpuscale.io.measurements import TrainingRun, training_runs
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step_calibration import FILES, Calibration, calibrated_tables, train_folder
from gpuscale.io.step_hardware import measured_hardware
from gpuscale.io.presets import preset_names, preset_path
from gpuscale.specs.software import Calibrated

HUBER = 0.12  # log error beyond which a row counts linearly
SIGMA = 0.06  # log error of a good row: half model, half repetition


class Problem:
    """Rows, parameters and their residuals."""

    def __init__(self, runs: list[TrainingRun], layouts: list[TrainingRun]) -> None:
        self.runs = [r for r in runs if usable(r)] + [r for r in layouts if clean_layout(r)]
        self.tables = all_tables()
        self.groups = tie_groups(self.tables)
        self.free = [k for k in self.groups if self.tables[self.groups[k][0]].prior_spread > 0]
        self.measured = np.array([math.log(r.step_time_s or 1.0) for r in self.runs])
        self.weight = row_weights(self.runs)
        self.prior = np.array([math.log(self.tables[self.groups[k][0]].prior) for k in self.free])
        self.width = np.array([self.tables[self.groups[k][0]].prior_spread for k in self.free])
        self.start = np.array([math.log(self.tables[self.groups[k][0]].value) for k in self.free])
        self.uses = None

    def calibration(self, x: np.ndarray) -> Calibration:
        cal = Calibration({path: t.value for path, t in self.tables.items()})
        for key, value in zip(self.free, x, strict=True):
            for path in self.groups[key]:
                cal[path] = math.exp(value)
        return cal

    def log_times(self, x: np.ndarray, rows: list[int] | None = None) -> np.ndarray:
        cal = self.calibration(x)
        hardware: dict[int, Hardware] = {}
        out = []
        memo: dict = {}
        for i in rows if rows is not None else range(len(self.runs)):
            out.append(math.log(predict(self.runs[i], cal, memo)))
        return np.array(out)

    def jacobian(self, x: np.ndarray, base: np.ndarray) -> np.ndarray:
        jac = np.zeros((len(self.runs), len(x)))
        if self.uses is None:
            self.uses = [affected(self.runs, self.groups[k]) for k in self.free]
        for j in range(len(x)):
            rows = self.uses[j]
            if not rows:
                continue
            y = x.copy()
            y[j] += 0.01
            jac[rows, j] = (self.log_times(y, rows) - base[rows]) / 0.01
        return jac

    def objective(self, x: np.ndarray, base: np.ndarray, mask: np.ndarray | None = None) -> float:
        r = base - self.measured
        a = np.abs(r)
        rho = np.where(a <= HUBER, r * r, 2 * HUBER * a - HUBER**2) / SIGMA**2
        w = self.weight if mask is None else self.weight * mask
        return float((w * rho).sum() + (((x - self.prior) / self.width) ** 2).sum())


def affected(runs: list[TrainingRun], paths: list[str]) -> list[int]:
    """Rows that a parameter can change."""
    kinds = {tuple(p.split(".")[:2]) for p in paths}
    if any(k[0] == "kernels" for k in kinds):
        return list(range(len(runs)))
    names = {k[0]: {q[1] for q in kinds if q[0] == k[0]} for k in kinds}
    rows = []
    for i, r in enumerate(runs):
        own = {"software": r.software, "fabric": r.hardware.fabric_class}
        arch = {r.hardware.architecture, r.hardware.gpu_name}
        if any(own.get(k) in v for k, v in names.items()) or arch & names.get("arch", set()):
            rows.append(i)
    return rows


_HW: dict = {}


def records(run, cal, memo=None):
    memo = {} if memo is None else memo
    predict(run, cal, memo)
    return list(memo.values())


def predict(run: TrainingRun, cal: Calibration, memo: dict) -> float:
    """Expected step time of a row under a set of parameters. [s]."""
    key = (
        run.hardware.gpu_name,
        run.hardware.gpus_per_node,
        run.hardware.scaleout_bytes_per_s_per_gpu,
        run.hardware.fabric_class,
        run.hardware.scaleup_domain_gpus,
        tuple(run.hardware.overrides.items()),
    )
    if key not in memo:
        memo[key] = measured_hardware(run.hardware, cal)
    hw = memo[key]
    skey = (run.software, hw.architecture, tuple(run.options.items()), run.layout.precision)
    if skey not in memo:
        memo[skey] = software_record(
            load_software(run.software),
            hw.architecture,
            run.options,
            precision=run.layout.precision,
            calibration=cal,
        )
    return breakdown(run.model, hw, memo[skey], run.layout)[0].total_s


def usable(run: TrainingRun) -> bool:
    """Good, fully specified and timed."""
    return (
        run.layout is not None
        and run.step_time_s is not None
        and not run.reason
        and (run.full_spec == "yes" or partly(run))
        and run.quality not in ("suspect", "weak")
        and (run.software != "nanotron" or not stalled(run))
    )


def partly(run: TrainingRun) -> bool:
    """Rows whose only blank is the recompute of a family that uses none; they count a quarter."""
    return (
        run.full_spec.startswith("all but")
        and run.quality == "good"
        and run.software in ("megatron-core", "megatron-bridge")
    )


def stalled(run: TrainingRun) -> bool:
    """Rows of the nanotron grid with an unexplained stall of each micro-batch (no model involved).

    (time - compute at 25 % MFU with bubble) / m above 0.3 s at tp <= 8, above 0.6 s from 32
    nodes, or above 1.5 s; and all 64-node groups.
    """
    from gpuscale.core.step.weights import model_flop_per_token

    lay, nodes = run.layout, run.n_gpus / run.hardware.gpus_per_node
    if nodes >= 64:
        return True
    flop = model_flop_per_token(run.model, lay.seq_len) * lay.global_batch_size * lay.seq_len
    m = lay.n_micro_batches
    compute = flop / (0.25 * 989.4e12 * run.n_gpus) * (1 + (lay.pp - 1) / m)
    stall = (run.step_time_s - compute) / m
    return stall > 1.5 or (nodes >= 32 and stall > 0.6) or (lay.tp <= 8 and stall > 0.3)


def clean_layout(run: TrainingRun) -> bool:
    return run.layout is not None and run.step_time_s is not None and not stalled(run)


def row_weights(runs: list[TrainingRun]) -> np.ndarray:
    groups = Counter(r.dup_group or r.id for r in runs)
    family = ["grid" if r.software == "nanotron" else r.source for r in runs]
    sources = Counter(family)
    w = np.array(
        [
            1.0
            / math.sqrt(groups[r.dup_group or r.id])
            / math.sqrt(sources[f] / 20.0 + 1.0)
            * (0.5 if r.superseded else 1.0)
            * (1.0 if r.full_spec in ("yes", "") else 0.25)
            * (0.35 if f == "grid" else 1.0)
            for r, f in zip(runs, family, strict=True)
        ]
    )
    return w * len(runs) / w.sum() * 0.5


def all_tables() -> dict[str, Calibrated]:
    tables = dict(calibrated_tables())
    for name in preset_names("software"):
        spec = load_software(name)
        for key, table in spec.calibration:
            if table is not None:
                tables[f"software.{name}.{key}"] = table
    return tables


def tie_groups(tables: dict[str, Calibrated]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for path, table in tables.items():
        groups.setdefault(table.tie or path, []).append(path)
    return groups


def fit(problem: Problem, mask: np.ndarray | None = None, steps: int = 8, x=None, log=True):
    x = problem.start.copy() if x is None else x.copy()
    base = problem.log_times(x)
    best = problem.objective(x, base, mask)
    damping = 1e-2
    for step in range(steps):
        started = time.time()
        jac = problem.jacobian(x, base)
        r = base - problem.measured
        w = (
            problem.weight
            / SIGMA**2
            * np.where(np.abs(r) <= HUBER, 1.0, HUBER / np.maximum(np.abs(r), 1e-9))
        )
        if mask is not None:
            w = w * mask
        h = jac.T @ (w[:, None] * jac) + np.diag(1 / problem.width**2)
        g = jac.T @ (w * r) + (x - problem.prior) / problem.width**2
        improved = False
        for _ in range(6):
            dx = np.clip(-np.linalg.solve(h + damping * np.diag(np.diag(h)), g), -0.5, 0.5)
            y = x + dx
            new = problem.log_times(y)
            value = problem.objective(y, new, mask)
            if value < best:
                gain = best - value
                x, base, best, improved = y, new, value, True
                damping = max(1e-4, damping / 4)
                break
            damping *= 6
        if log:
            print(
                f"step {step}: objective {best:.2f}  MAPE {np.abs(np.expm1(base - problem.measured)).mean():.4f}  {time.time() - started:.0f} s",
                flush=True,
            )
        if not improved or gain < 1e-3:
            break
    return x, base


def write(problem: Problem, x: np.ndarray) -> None:
    """Put the fitted values into the preset files, in place of the old ones."""
    values = {}
    for key, value in zip(problem.free, x, strict=True):
        for path in problem.groups[key]:
            values[path] = math.exp(value)
    for file, prefix in [(train_folder() / f, p) for p, f in FILES.items()] + [
        (preset_path("software", n), f"software.{n}.calibration") for n in preset_names("software")
    ]:
        text = Path(file).read_text()
        for path, value in values.items():
            full = path.replace("software.", "software.", 1)
            if path.startswith("software."):
                _, name, key = path.split(".")
                full = f"software.{name}.calibration.{key}"
            if not full.startswith(prefix + "."):
                continue
            inner = full[len(prefix) + 1 :]
            header = f"[calibration.{inner}]" if prefix.startswith("software") else f"[{inner}]"
            text = re.sub(
                re.escape(header) + r"\nvalue = \S+", f"{header}\nvalue = {value:.5g}", text
            )
        Path(file).write_text(text)


def report(runs, base, measured, label=""):
    from collections import defaultdict

    err = np.expm1(base - measured)
    by = defaultdict(list)
    for i, r in enumerate(runs):
        grid = r.software == "nanotron"
        moe = r.classes.get("dense_or_moe") == "moe"
        if r.full_spec.startswith("all"):
            by["(recompute blank)" + (" moe" if moe else "")].append(i)
            continue
        by["grid" if grid else "all but grid"].append(i)
        if not grid:
            by["  moe" if moe else "  dense"].append(i)
            if r.quality == "good" and not r.superseded:
                by["good newest " + ("moe" if moe else "dense")].append(i)
        by["  " + (r.source if not grid else "grid")].append(i)
        if not grid:
            by["    " + r.hardware.gpu_name + " " + r.layout.precision].append(i)
    for k in by:
        e = err[by[k]]
        a = np.abs(e)
        print(
            f"{k:32s} n {len(e):4d}  MAPE {100 * a.mean():5.1f}  median {100 * np.median(a):5.1f}  p90 {100 * np.quantile(a, 0.9):5.1f}  bias {100 * e.mean():+5.1f}"
        )


def cross_validate(problem: Problem, steps: int = 4) -> dict[str, tuple[int, float, float]]:
    """Leave one source out: (rows, MAPE of the full fit, MAPE when left out) by source."""
    x, base = fit(problem, steps=steps, log=False)
    label = [
        "nanotron grid"
        if r.software == "nanotron"
        else r.source.replace("-2024-08", "").split("-v")[0]
        for r in problem.runs
    ]
    found = {}
    for name in dict.fromkeys(label):
        rows = [i for i, n in enumerate(label) if n == name and counted(problem.runs[i])]
        if not rows:
            continue
        mask = np.array([0.0 if n == name else 1.0 for n in label])
        y, left = fit(problem, mask, steps=steps, x=x, log=False)
        error = np.abs(np.expm1(base - problem.measured))[rows].mean()
        out = np.abs(np.expm1(left - problem.measured))[rows].mean()
        found[name] = (len(rows), float(error), float(out))
        print(
            f"{name:28s} n {len(rows):4d}  fitted {100 * error:5.1f}  left out {100 * out:5.1f}",
            flush=True,
        )
    n = sum(v[0] for v in found.values())
    rest = {k: v for k, v in found.items() if k != "nanotron grid"}
    m = sum(v[0] for v in rest.values())
    print(
        f"all without the grid: fitted {100 * sum(v[0] * v[1] for v in rest.values()) / m:.1f}  "
        f"left out {100 * sum(v[0] * v[2] for v in rest.values()) / m:.1f}; mean of sources "
        f"{100 * np.mean([v[1] for v in rest.values()]):.1f} / {100 * np.mean([v[2] for v in rest.values()]):.1f}"
    )
    return found


def counted(run: TrainingRun) -> bool:
    return run.full_spec in ("yes", "") and not run.superseded


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--runs", default="")
    ap.add_argument("--layouts", default="")
    ap.add_argument("--dry", action="store_true")
    ap.add_argument("--cv", action="store_true")
    ap.add_argument("--steps", type=int, default=8)
    args = ap.parse_args()
    p = Problem(training_runs(args.runs), training_runs(args.layouts))
    t = time.time()
    base = p.log_times(p.start)
    print(
        len(p.runs),
        "rows",
        len(p.free),
        "free parameters; one pass",
        round(time.time() - t, 2),
        "s",
    )
    report(p.runs, base, p.measured)
    if args.cv:
        cross_validate(p, args.steps)
        return
    if args.steps:
        x, base = fit(p, steps=args.steps)
        report(p.runs, base, p.measured)
        for k, v in sorted(zip(p.free, x)):
            print(f"{k:50s} {math.exp(v):.4g}   prior {p.tables[p.groups[k][0]].prior:.4g}")
        if not args.dry:
            write(p, x)


if __name__ == "__main__":
    main()
