"""Fit the serving parameters on the package's own copy of measured serving rows.

    python tools/fit_serving.py [--rows FILE] [--check]     writes presets/serving/*.toml
    python tools/fit_serving.py --held-out                  scores with sources, models left out
    python tools/fit_serving.py --intervals                 intervals of the shipped parameters

A handful of parameters for all frameworks (kernels.toml) and four of each framework family; none
belongs to a model, a source or a GPU. The loss is the soft absolute error of ln(predicted /
measured), so rows with settings that they do not print (speculative decoding, a limit on the
sequences in the server) weigh little. Priors hold what the rows do not determine.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuscale.core.serving.records import Kernels, ServingSite, ServingSoftware
from gpuscale.evidence.rows.measurements import number, read_rows
from gpuscale.evidence.rows.serving import ServedRow, served_row
from gpuscale.evidence.score.inference import QUANTITIES, own_inference, predict_served
from gpuscale.evidence.score.records import quantile
from gpuscale.io.serving import FRAMEWORKS, serving_site

FOLDER = Path(__file__).resolve().parent.parent / "presets" / "serving"
SCALE = 0.15
WEIGHTS = {"ttft_ms": 0.5, "tpot_ms": 1.0, "throughput_tok_s": 1.0}

# name, prior, spread of the logarithm, lower and upper bound, unit, origin of the prior
KERNELS = (
    ("linear_factor", 1.1, 0.15, 1.0, 2.0, "products in a model over the same ones alone"),
    ("grouped_memory_eff", 0.75, 0.2, 0.3, 0.95, "prior: streams reach 0.7 to 0.9"),
    ("grouped_compute_eff", 0.5, 0.3, 0.1, 0.9, "prior: below the plain product's 0.7"),
    ("prefill_attention_eff", 0.55, 0.2, 0.2, 0.9, "prior: FlashAttention-3, arXiv:2407.08608"),
    ("decode_attention_eff", 0.7, 0.2, 0.2, 0.95, "prior: streams reach 0.7 to 0.9"),
    ("small_kernel_s", 1.5e-6, 0.4, 2e-7, 1e-5, "prior: a small kernel within a CUDA graph"),
    ("all_reduce_factor", 1.0, 0.3, 1.0, 4.0, "isolated collective of serving libraries"),
    ("queue_factor", 1.0, 0.5, 0.1, 5.0, "prior: independent arrivals"),
)
SOFTWARE = (
    ("host_s", 1e-3, 0.7, 1e-5, 1e-2, "prior: a scheduler step of 1 ms"),
    ("host_per_sequence_s", 5e-6, 0.8, 1e-7, 2e-4, "prior: sampling and text, 5 us a token"),
    ("prompt_layer_s", 5e-4, 0.7, 1e-5, 5e-3, "prior: 50 launches of 10 us"),
    ("prompt_expert_layer_s", 5e-4, 0.7, 1e-5, 5e-3, "prior: 50 more launches of 10 us"),
    ("burst_frac", 0.15, 0.7, 0.01, 1.0, "prior: the first of ten waves, and what stays of it"),
    ("request_s", 0.02, 0.7, 1e-3, 0.3, "prior: HTTP, tokeniser"),
)

UNRECORDED = 0.25
"""Weight of rows of models published with multi-token prediction whose use is not recorded."""


def speculative(row: ServedRow) -> bool:
    """Whether a closed-loop row may be measured with drafts of the model's own prediction layer."""
    return row.kind == "closed" and row.model.n_mtp_layers > 0


class Problem:
    """Rows, their sites, and the vector of logarithms of all parameters."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        self.names = [("kernels", *p) for p in KERNELS]
        self.names += [(f, *p) for f in FRAMEWORKS for p in SOFTWARE]
        self.prior = np.log([p[2] for p in self.names])
        self.spread = np.array([p[3] for p in self.names])
        self.low, self.high = np.log([p[4] for p in self.names]), np.log([p[5] for p in self.names])
        self.rows: list[tuple[ServedRow, dict[str, float]]] = []
        for i, row in enumerate(rows, 1):
            parsed = served_row(row, i)
            if isinstance(parsed, str):
                continue
            found = {q: v for q in QUANTITIES if (v := number(row.get(q))) is not None}
            if found:
                self.rows.append((parsed, found))
        self.base: dict[tuple[str, str], ServingSite] = {}
        for parsed, _ in self.rows:
            key = (parsed.cluster.name, parsed.framework)
            if key not in self.base:
                self.base[key] = serving_site(
                    parsed.cluster, kernels=Kernels(), software=ServingSoftware(parsed.framework)
                )
        self.labels = [(i, q) for i, (_, found) in enumerate(self.rows) for q in found]
        self.weight = np.array(
            [
                WEIGHTS[q] * (UNRECORDED if speculative(self.rows[i][0]) else 1.0)
                for i, q in self.labels
            ]
        )

    def parameters(self, x: np.ndarray) -> dict[str, dict[str, Any]]:
        """Parameter values by file."""
        out: dict[str, dict[str, Any]] = defaultdict(dict)
        for (file, name, *_), value in zip(self.names, x, strict=True):
            out[file][name] = float(f"{math.exp(value):.4g}")
        return out

    def shipped(self) -> np.ndarray:
        """Logarithms of the parameters in the presets."""
        from gpuscale.io.serving import load_serving_kernels

        found = {"kernels": load_serving_kernels(), **{f: framework_base(f) for f in FRAMEWORKS}}
        return np.log([float(getattr(found[file], name)) for file, name, *_ in self.names])

    def residuals(self, x: np.ndarray, only: set[int] | None = None) -> np.ndarray:
        """ln(predicted / measured) of every quantity (of the rows `only`)."""
        values = self.parameters(x)
        kernels = Kernels(**values["kernels"])
        soft = {f: replace(framework_base(f), **values[f]) for f in FRAMEWORKS}
        sites = {
            key: replace(site, kernels=kernels, software=soft[key[1]])
            for key, site in self.base.items()
        }
        out = []
        for i, (row, found) in enumerate(self.rows):
            if only is not None and i not in only:
                continue
            got, _ = predict_served(row, sites[(row.cluster.name, row.framework)])
            out += [math.log(max(1e-9, got[q]) / v) for q, v in found.items()]
        return np.array(out)

    def jacobian(self, x: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Differences of 3 % in each parameter."""
        columns = []
        for j in range(len(x)):
            step = 0.03 if x[j] + 0.03 <= self.high[j] else -0.03
            moved = x.copy()
            moved[j] += step
            columns.append((self.residuals(moved) - r) / step)
        return np.array(columns).T

    def step(
        self, x: np.ndarray, r: np.ndarray, jac: np.ndarray, keep: np.ndarray, damping: float
    ) -> np.ndarray:
        """One damped Gauss-Newton step of the robust loss, kept in the bounds."""
        w = keep * self.weight / (SCALE**2 * np.sqrt(1.0 + (r / SCALE) ** 2))
        normal = jac.T @ (w[:, None] * jac) + np.diag(1.0 / self.spread**2)
        gradient = -(jac.T @ (w * r)) - (x - self.prior) / self.spread**2
        normal += damping * np.diag(np.diag(normal))
        moved = x + np.asarray(np.linalg.solve(normal, gradient))
        return np.asarray(np.clip(moved, self.low, self.high))

    def cost(self, x: np.ndarray, r: np.ndarray) -> float:
        """Robust loss with priors."""
        data = 2.0 * (np.sqrt(1.0 + (r / SCALE) ** 2) - 1.0) * self.weight
        return float(data.sum() + (((x - self.prior) / self.spread) ** 2).sum())

    def fit(self, rounds: int = 14) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(parameters, residuals, jacobian) at the optimum."""
        x = self.prior.copy()
        r = self.residuals(x)
        cost, damping = self.cost(x, r), 1e-2
        jac = self.jacobian(x, r)
        for n in range(rounds):
            for _ in range(5):
                trial = self.step(x, r, jac, np.ones(len(r)), damping)
                trial_r = self.residuals(trial)
                trial_cost = self.cost(trial, trial_r)
                if trial_cost < cost:
                    break
                damping *= 10.0
            else:
                break
            gain, x, r, cost = cost - trial_cost, trial, trial_r, trial_cost
            damping = max(damping / 10.0, 1e-4)
            print(f"round {n}: loss {cost:.1f}", flush=True)
            if gain < 1e-3 * cost:
                break
            jac = self.jacobian(x, r)
        return x, r, jac

    def held_out(self, x: np.ndarray, r: np.ndarray, jac: np.ndarray, key: str) -> None:
        """Scores of each value of a class, predicted by a fit on all other rows.

        The fit starts at the full one and uses its jacobian, three steps.
        """
        groups: dict[str, set[int]] = defaultdict(set)
        for i, (row, _) in enumerate(self.rows):
            groups[row.classes.get(key, "?")].add(i)
        for name, inside in sorted(groups.items()):
            keep = np.array([float(i not in inside) for i, _ in self.labels])
            at, moved = x, r
            for _ in range(3):
                at = self.step(at, moved, jac, keep, 1e-3)
                moved = r + jac @ (at - x)
            scores = self.residuals(at, inside)
            labels = [q for i, q in self.labels if i in inside]
            print(f"{key} {name}: " + report(scores, labels), flush=True)


def framework_base(name: str) -> ServingSoftware:
    """Load a framework, for its settings that are no fitted numbers."""
    from gpuscale.io.serving import load_framework

    return load_framework(name)


def report(r: np.ndarray, labels: Sequence[str]) -> str:
    """MAPE and median by quantity."""
    parts = []
    for q in QUANTITIES:
        errors = [abs(math.exp(v) - 1) for v, label in zip(r, labels, strict=True) if label == q]
        if errors:
            parts.append(
                f"{q} n {len(errors)} MAPE {100 * np.mean(errors):.1f} "
                f"median {100 * np.median(errors):.1f}"
            )
    return "; ".join(parts)


def write(problem: Problem, x: np.ndarray, r: np.ndarray) -> None:
    """Write kernels.toml, one file for each framework, and intervals.toml."""
    values = problem.parameters(x)
    for file, table in values.items():
        path = FOLDER / f"{file}.toml"
        kept = fixed_lines(path)
        origin = {n: o for f, n, *_, o in problem.names if f == file}
        lines = [
            *kept,
            'source = "tools/fit_serving.py on gpuscale/data/validation/inference.csv.gz"',
        ]
        lines += [f"{name} = {value:.4g}" for name, value in table.items()]
        lines += ["", "[origin]  # of the prior that the fit starts from"]
        lines += [f'{name} = "{origin[name]}"' for name in table]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_intervals(problem, r)


FITTED = {n for n, *_ in (*KERNELS, *SOFTWARE)} | {"source"}


def fixed_lines(path: Path) -> list[str]:
    """Lines of a preset that the fit does not write: names, settings, comments."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith("[origin]"):
            break
        if line.strip() and line.split("=")[0].strip() not in FITTED:
            lines.append(line)
    return lines


def write_intervals(problem: Problem, r: np.ndarray) -> None:
    """80 % quantile of |ln ratio| of each kind of load and quantity."""
    classes: dict[str, list[float]] = defaultdict(list)
    for (i, q), value in zip(problem.labels, r, strict=True):
        row = problem.rows[i][0]
        classes[f"{row.kind}/{row.classes['dense_or_moe']}/{q}"].append(abs(float(value)))
    lines = [
        "# Half widths of ln(value) that hold 80 % of the rows of a class.",
        "# Written by tools/fit_serving.py.",
        "",
        "[class.unknown]",
        "width = 0.6",
        'source = "no row of the class; chosen"',
        "",
        '[class."unseen-architecture"]',
        "width = 0.4",
        'source = "no row of the class; chosen, the left-out medians are 7 to 21 %"',
    ]
    for name, errors in sorted(classes.items()):
        lines += [
            "",
            f'[class."{name}"]',
            f"width = {quantile(errors, 0.8) + 0.0005:.3f}",
            f'source = "{len(errors)} rows, tools/fit_serving.py"',
        ]
    (FOLDER / "intervals.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=Path, default=own_inference())
    parser.add_argument("--check", action="store_true", help="do not write")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--intervals", action="store_true", help="of the shipped parameters only")
    args: Any = parser.parse_args(argv)
    problem = Problem(read_rows(args.rows))
    if args.intervals:
        write_intervals(problem, problem.residuals(problem.shipped()))
        return
    x, r, jac = problem.fit()
    print("all: " + report(r, [q for _, q in problem.labels]))
    for file, table in problem.parameters(x).items():
        print(file, table)
    if not args.check:
        write(problem, x, r)
    if args.held_out:
        for key in ("source", "framework", "model", "architecture"):
            problem.held_out(x, r, jac, key)


if __name__ == "__main__":
    main()
