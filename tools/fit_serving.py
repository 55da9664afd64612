"""Fit the serving parameters on the package's own copy of measured serving rows.

    python tools/fit_serving.py [--warm] [--check]    fits, scores what is left out, writes
    python tools/fit_serving.py --warm --every 3 --frozen     the same in ten minutes of one core
    python tools/fit_serving.py --intervals           of the shipped parameters: scores, intervals
    python tools/fit_serving.py --widths FOLDER --slice 1/4   every fourth row, as it is answered
    python tools/fit_serving.py --widths FOLDER       intervals of these that hold sources alike
    python tools/fit_serving.py --warm --where 'closed vllm' --only '^vllm.(prompt|intake)'

A handful of parameters for all frameworks (kernels.toml) and four of each framework family; none
belongs to a model, a source or a GPU. The loss is the soft absolute error of ln(predicted /
measured), so rows with settings that they do not print (speculative decoding, a limit on the
sequences in the server) weigh little. Priors hold what the rows do not determine.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuscale.answers.serve import Serve
from gpuscale.answers.serve.case import ServeCase, candidates, wanted_of
from gpuscale.answers.serve.no_room import settled
from gpuscale.answers.validate.served import (
    FURTHER,
    QUANTITIES,
    asked_of,
    classes_of,
    predict_inference_rows,
    values_of,
)
from gpuscale.answers.validate.served_rows import engine_of, kind_of
from gpuscale.core.serving.choose import FoundReplica, choose
from gpuscale.core.serving.records import Kernels, ServingSoftware
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.records import quantile
from gpuscale.evidence.rows_named import number
from gpuscale.evidence.score_runs import own_copy
from gpuscale.io.serving import FRAMEWORKS
from gpuscale.io.text import read_rows, read_toml

FOLDER = Path(__file__).resolve().parent.parent / "presets" / "serving"
SCALE = 0.12
MOST_EFF = 0.95
"""No kernel reaches more of a peak."""
ALL = (*QUANTITIES, *FURTHER)
WEIGHTS = {
    "ttft_ms": 0.3,
    "tpot_ms": 1.0,
    "throughput_tok_s": 1.0,
    "p99_ttft_ms": 0.3,
    "p99_tpot_ms": 0.1,
    "power_w": 0.0,  # its two numbers are not fitted here
}

# name, prior, spread of the logarithm, lower and upper bound, unit, origin of the prior
KERNELS = (
    ("linear_factor", 1.1, 0.15, 1.0, 2.0, "products in a model over the same ones alone"),
    ("grouped_memory_eff", 0.75, 0.2, 0.3, 0.95, "prior: streams reach 0.7 to 0.9"),
    ("grouped_vector_ratio", 30.0, 0.3, 1.0, 300.0, "prior: DeepGEMM, 1.0 of 1.98 PFLOP/s of H100"),
    ("scaled_vector_share", 0.2, 0.5, 0.01, 1.0, "prior: loads and stores, no sums of blocks"),
    ("grouped_ramp_rows", 32.0, 0.5, 1.0, 500.0, "prior: half a tile of 64 rows"),
    ("grouped_ramp_depth", 256.0, 0.3, 16.0, 3000.0, "prior: two to four steps of the k loop"),
    ("routing_alike", 0.1, 0.5, 0.001, 0.5, "prior: a tenth; 0 is random routing"),
    ("routed_passes", 6.0, 0.5, 1.0, 60.0, "prior: gather 2, quantise 1.5, combine 2.5"),
    ("widened_compute_eff", 0.8, 0.2, 0.2, 1.0, "prior: Marlin, arXiv:2408.11743"),
    ("widened_memory_eff", 0.85, 0.15, 0.3, 1.0, "prior: Marlin, arXiv:2408.11743"),
    ("expert_skew", 0.2, 0.7, 0.01, 2.0, "prior: busiest rank 20 % above random routing"),
    ("prefill_attention_eff", 0.55, 0.2, 0.2, 0.9, "prior: FlashAttention-3, arXiv:2407.08608"),
    ("decode_attention_eff", 0.7, 0.2, 0.2, 0.95, "prior: streams reach 0.7 to 0.9"),
    ("decode_flop_eff", 0.75, 0.1, 0.3, 0.95, "prior: FlashMLA, 0.65 of H100 to 0.9 of H20"),
    ("small_kernel_s", 1.5e-6, 0.4, 2e-7, 1e-5, "prior: a small kernel within a CUDA graph"),
    ("all_reduce_factor", 1.0, 0.3, 0.5, 4.0, "isolated collective of serving libraries"),
    ("crossing_s", 2e-5, 0.7, 1e-6, 5e-4, "prior: a proxy's hand-over and a synchronisation"),
    ("host_blend", 3.0, 0.3, 1.2, 8.0, "prior: between a sum (1) and the longer one"),
    ("exchange_overlap", 0.7, 0.2, 0.05, 1.0, "prior: DeepSeek-V3, section 3.4"),
    ("cold_s", 0.1, 0.4, 1e-3, 2.0, "prior: kernels are loaded and tuned at first use"),
)
SOFTWARE = (
    ("host_s", 1e-3, 0.7, 1e-5, 2e-2, "prior: a scheduler step of 1 ms"),
    ("host_per_sequence_s", 5e-6, 0.8, 1e-7, 2e-4, "prior: sampling and text, 5 us a token"),
    ("step_s", 2e-4, 0.7, 1e-6, 5e-3, "prior: a graph's launch and the copy of its inputs"),
    ("linear_factor", 1.0, 0.05, 0.7, 2.0, "prior: the libraries' products are alike"),
    ("small_factor", 1.0, 0.3, 0.2, 5.0, "prior: the engines' small kernels are alike"),
    ("prompt_layer_s", 5e-4, 0.7, 1e-5, 5e-3, "prior: 50 launches of 10 us"),
    ("prompt_expert_layer_s", 5e-4, 0.7, 1e-5, 5e-3, "prior: 50 more launches of 10 us"),
    ("grouped_factor", 1.0, 0.2, 0.5, 3.0, "prior: the engines' grouped kernels are alike"),
    ("intake_s", 2e-3, 0.7, 1e-4, 3e-2, "prior: template and tokeniser of a prompt in Python"),
    ("request_s", 0.02, 0.7, 1e-3, 0.3, "prior: HTTP, tokeniser"),
)
MATURITY = (
    ("new.vllm", 1.2, 0.4, 1.0, 5.0, "prior: a fifth longer"),
    ("new.sglang", 1.2, 0.4, 1.0, 5.0, "prior: a fifth longer"),
    ("first", 1.2, 0.4, 1.0, 5.0, "prior: a fifth longer"),
)
"""Attention, experts and small kernels of an architecture that is new to an engine's version."""

OF_ARCHITECTURE = {  # parameter -> spread of ln(own / common)
    "grouped_memory_eff": 0.15,
    "grouped_vector_ratio": 0.3,
    "grouped_ramp_rows": 0.3,
    "routed_passes": 0.3,
    "widened_compute_eff": 0.3,
    "widened_memory_eff": 0.3,
    "prefill_attention_eff": 0.2,
    "small_kernel_s": 0.3,
    "all_reduce_factor": 0.3,
}
ARCHITECTURES = ("blackwell", "cdna3", "cdna4", "apple-m3")
"""Architectures with parameters of their own: their kernels and libraries are others than Hopper's,
on which most rows were measured. The prior of each is the common value."""

OF_EXPERTS = {
    *(name for name, *_ in KERNELS if name.startswith(("grouped", "rout"))),
    "expert_skew",
    "exchange_overlap",
}
"""Parameters that change nothing of a dense model."""

OWN = {
    ("apple-m3", "small_kernel_s"): 2.5,
    ("apple-m3", "widened_memory_eff"): 1.2,
    ("blackwell", "widened_compute_eff"): 0.4,
    ("blackwell", "widened_memory_eff"): 0.4,
}
"""Priors of an architecture over the common value, where it is another one: Metal takes 10 us
from one kernel to the next and unpacks at the memory's speed (XiongjieDai/GPU-Benchmarks-on-LLM-
Inference, AlexsJones/llmfit); what unpacks weights on Blackwell is written in warp-level
instructions (Marlin)."""

OF_ENGINE = {
    ("llamacpp", "prompt_layer_s"): 0.12,
    ("llamacpp", "prompt_expert_layer_s"): 0.3,
    ("llamacpp", "request_s"): 0.25,
}
"""Priors of an engine over the others': one without an interpreter launches a layer in 60 us, one
with experts in 0.15 ms more, and its rows are without HTTP (llama-bench)."""

REQUESTS = 300
"""Requests of a closed loop that the fit replays, at least three rounds."""

LARGE = 150
"""Rows of a source beyond which `--every` takes only some of them, each with more weight."""

LEFT_OUT = ("model", "framework", "architecture", "source")
"""Classes of which each value is left out of the fit in turn."""

UNRECORDED = 0.25
"""Weight of rows with drafts of unknown acceptance, and of models with a prediction layer whose
use is not recorded."""

KEPT_OUT = "kept out of fits"
"""In the note of rows that only score a fit."""

PASS_ALONE = 4.0
"""Weight of the rows of one pool: the rate of a pass by itself, without queue or harness."""


OF_DRAFTS = {"given": "+drafts", "assumed": "+drafts", "not recorded": "+unrecorded"}
"""What the class of an interval says of drafts; nothing where there are none."""


def interval_class(classes: Mapping[str, str], quantity: str) -> str:
    """Class of rows whose errors give an interval: kind of load, drafts, experts, quantity.

    The last first tokens of a benchmark that others of the same seed ran before, on a server that
    keeps prompts, wait for as many as it has forgotten, which no row prints (SGLang issue 39651).
    """
    if quantity.startswith("p99") and classes["cache"] == "not recorded":
        return f"unrecorded/{quantity}"
    settled_one = classes["maturity"] == "settled"
    drafts = OF_DRAFTS.get(classes["drafts"], "") if settled_one else "+new"
    return f"{classes['kind']}{drafts}/{classes['dense_or_moe']}/{quantity}"


@dataclass(frozen=True)
class FitRow:
    """A row, its question without limits, and what was measured."""

    row: Mapping[str, str]
    exact: Serve
    asked: Serve
    case: ServeCase
    classes: Mapping[str, str]
    measured: Mapping[str, float]

    @property
    def stage(self) -> tuple[str, str]:
        """Engine, and how new the architecture is to it."""
        return self.classes["framework"], self.classes["maturity"]


def fit_row(row: Mapping[str, str]) -> FitRow | None:
    """Take a row that the command answers; None for another."""
    measured = {q: v for q in ALL if (v := number(row.get(q))) and v > 0.0}
    try:
        exact, assumed = asked_of(row)
        asked = exact
        few = asked.concurrency and min(
            asked.requests or REQUESTS, max(REQUESTS, 3 * asked.concurrency)
        )
        asked = replace(asked, ttft=None, tpot=None, requests=few)
        case, _, _ = settled(asked)
        best = answered(asked, case)
    except (GpuscaleError, ValueError, ArithmeticError):
        return None
    if best is None or not measured:
        return None
    return FitRow(row, exact, asked, case, classes_of(row, case, best, assumed), measured)


def chosen(row: Mapping[str, str], where: str) -> bool:
    """Whether a row is of a kind of load and an engine that a regular expression names."""
    try:
        return bool(re.search(where, f"{kind_of(row)} {engine_of(row)[0]}"))
    except GpuscaleError:
        return False


def answered(asked: Serve, case: ServeCase) -> FoundReplica | None:
    """Best layout of a question on the sites of a case; None where none fits."""
    found = candidates(asked, case)
    return choose(found, wanted_of(asked, case, found), asked.seed, shown=1).best


def row_weight(row: FitRow, quantity: str) -> float:
    """Weight of a row in the fit: less where settings that matter are not printed."""
    kind = row.classes["kind"]
    if KEPT_OUT in row.row.get("note", ""):
        return 0.0
    weight = UNRECORDED if row.classes["drafts"] in ("assumed", "not recorded") else 1.0
    if kind == "pools" and quantity == "ttft_ms":
        return 0.0  # the first wave of requests at a single prefill worker
    if row.exact.ttft or row.exact.tpot:
        return 0.0  # bound by the 99th percentile, which the fit does not simulate
    if kind in ("prefill", "decode"):
        return PASS_ALONE
    if row.classes["quality"] == "weak":
        return UNRECORDED
    return weight * (0.3 if kind == "burst" else 1.0)


class Problem:
    """Rows, their sites, and the vector of logarithms of all parameters."""

    def __init__(self, rows: Sequence[dict[str, str]], every: int = 1, only: str = "") -> None:
        self.names = [("kernels", *p) for p in KERNELS]
        self.names += [
            (f, p[0], OF_ENGINE.get((f, p[0]), 1.0) * p[1], *p[2:])
            for f in FRAMEWORKS
            for p in SOFTWARE
        ]
        self.names += [
            (f"architecture.{a}", n, OWN.get((a, n), 1.0), w, 0.3, 6.0, "prior: the common value")
            for a in ARCHITECTURES
            for n, w in OF_ARCHITECTURE.items()
        ]
        self.names += [("maturity", *p) for p in MATURITY]
        self.free = np.array([bool(re.search(only, f"{f}.{p}")) for f, p, *_ in self.names])
        self.prior = np.log([p[2] for p in self.names])
        self.spread = np.array([p[3] for p in self.names])
        self.low, self.high = np.log([p[4] for p in self.names]), np.log([p[5] for p in self.names])
        self.rows: list[FitRow] = []
        many = Counter(row.get("source", "").split(":")[0] for row in rows)
        thinned: list[float] = []
        for i, row in enumerate(rows, 1):
            large = many[row.get("source", "").split(":")[0]] > LARGE
            found = None if large and i % every else fit_row(row)
            if found is not None:
                self.rows.append(found)
                thinned.append(float(every) if large else 1.0)
        self.labels = [(i, q) for i, row in enumerate(self.rows) for q in row.measured]
        self.weight = np.array(
            [WEIGHTS[q] * thinned[i] * row_weight(self.rows[i], q) for i, q in self.labels]
        )

    def parameters(self, x: np.ndarray) -> dict[str, dict[str, Any]]:
        """Parameter values by file; of an architecture the products with the common ones."""
        out: dict[str, dict[str, Any]] = defaultdict(dict)
        for (file, name, *_), value in zip(self.names, x, strict=True):
            common = out["kernels"][name] if file.startswith("architecture") else 1.0
            value = math.exp(value) * common
            if name.endswith("_eff"):
                value = min(value, MOST_EFF)
            out[file][name] = float(f"{value:.4g}")
        return out

    def shipped(self) -> np.ndarray:
        """Logarithms of the parameters in the presets."""
        from gpuscale.io.serving import load_maturity, load_serving_kernels

        common = load_serving_kernels()
        found = []
        for file, name, *_ in self.names:
            if file.startswith("architecture"):
                own = load_serving_kernels(file.split(".", 1)[1])
                found.append(getattr(own, name) / getattr(common, name))
            elif file == "maturity":
                known, of = load_maturity(), name.partition(".")[2]
                found.append(known.new[of] if of else known.first)
            else:
                record = common if file == "kernels" else framework_base(file)
                found.append(float(getattr(record, name)))
        return np.log(found)

    def affected(self, j: int) -> set[int]:
        """Rows that parameter j can change."""
        file, parameter = self.names[j][:2]
        if file == "kernels":
            rows = enumerate(self.rows)
            if parameter not in OF_EXPERTS:
                return {i for i, _ in rows}
            return {i for i, row in rows if row.classes["dense_or_moe"] == "moe"}
        if file == "maturity":
            of = parameter.partition(".")[2]
            rows = enumerate(self.rows)
            if of:
                return {i for i, r in rows if r.stage[1] != "settled" and r.stage[0] == of}
            return {i for i, r in rows if r.stage[1] == "first"}
        key, name = ("architecture", file[13:]) if "." in file else ("framework", file)
        return {i for i, row in enumerate(self.rows) if row.classes[key] == name}

    def residuals(
        self, x: np.ndarray, only: set[int] | None = None, *, whole: bool = False
    ) -> np.ndarray:
        """ln(predicted / measured) of every quantity (of the rows `only`).

        `whole` asks as `gpuscale validate` does, with all requests and scenarios' limits.
        """
        values, out = self.parameters(x), []
        for i, row in enumerate(self.rows):
            if only is not None and i not in only:
                continue
            sites = {}
            for engine, site in row.case.sites.items():
                own = values.get(f"architecture.{site.arch_name}", {})
                factor = newness(values["maturity"], row.stage)
                soft = replace(site.software, **values[engine], kernels_factor=factor)
                kernels = Kernels(**{**values["kernels"], **own})
                sites[engine] = replace(site, kernels=kernels, software=soft)
            case = replace(row.case, sites=sites)
            best = answered(row.exact if whole else row.asked, case)
            got = values_of(row.row, case, best) if best else {}
            out += [math.log(max(1e-9, got.get(q, v)) / v) for q, v in row.measured.items()]
        return np.array(out)

    def jacobian(self, x: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Differences of 3 % in each parameter."""
        columns = []
        for j in range(len(x)):
            if not self.free[j]:
                columns.append(np.zeros(len(r)))
                continue
            step = 0.03 if x[j] + 0.03 <= self.high[j] else -0.03
            moved = x.copy()
            moved[j] += step
            only = self.affected(j)
            column = np.zeros(len(r))
            if only:
                at = np.array([i in only for i, _ in self.labels])
                column[at] = (self.residuals(moved, only) - r[at]) / step
            columns.append(column)
        return np.array(columns).T

    def step(
        self, x: np.ndarray, r: np.ndarray, jac: np.ndarray, keep: np.ndarray, damping: float
    ) -> np.ndarray:
        """One damped Gauss-Newton step of the robust loss, kept in the bounds."""
        w = keep * self.weight / (SCALE**2 * np.sqrt(1.0 + (r / SCALE) ** 2))
        normal = jac.T @ (w[:, None] * jac) + np.diag(1.0 / self.spread**2)
        gradient = -(jac.T @ (w * r)) - (x - self.prior) / self.spread**2
        normal += damping * np.diag(np.diag(normal))
        normal[~self.free] = np.eye(len(x))[~self.free]
        gradient[~self.free] = 0.0
        moved = x + np.asarray(np.linalg.solve(normal, gradient))
        return np.asarray(np.clip(moved, self.low, self.high))

    def cost(self, x: np.ndarray, r: np.ndarray) -> float:
        """Robust loss with priors."""
        data = 2.0 * (np.sqrt(1.0 + (r / SCALE) ** 2) - 1.0) * self.weight
        return float(data.sum() + (((x - self.prior) / self.spread) ** 2).sum())

    def fit(
        self, rounds: int = 14, *, warm: bool = False, frozen: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(parameters, residuals, jacobian) at the optimum, by first derivatives if `frozen`."""
        x = np.clip(self.shipped() if warm else self.prior.copy(), self.low, self.high)
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
            if not frozen:
                jac = self.jacobian(x, r)
        return x, r, jac

    def left_out(self, x: np.ndarray, r: np.ndarray, jac: np.ndarray, key: str) -> np.ndarray:
        """Residuals of every row, predicted by a fit on the rows of all other values of a class.

        The fit starts at the full one and uses its jacobian, three steps. Prints a line a value.
        """
        groups: dict[str, set[int]] = defaultdict(set)
        for i, row in enumerate(self.rows):
            groups[row.classes.get(key, "?")].add(i)
        out = r.copy()
        for name, inside in sorted(groups.items()):
            at_rows = np.array([i in inside for i, _ in self.labels])
            at, moved = x, r
            for _ in range(3):
                at = self.step(at, moved, jac, 1.0 - at_rows, 1e-3)
                moved = r + jac @ (at - x)
            out[at_rows] = self.residuals(at, inside)
            labels = [q for i, q in self.labels if i in inside]
            print(f"{key} {name}: " + report(out[at_rows], labels), flush=True)
        print(f"{key}, all left out: " + report(out, [q for _, q in self.labels]), flush=True)
        return out


def newness(factors: Mapping[str, float], stage_of: tuple[str, str]) -> float:
    """Factor of a site's kernels by the engine and the stage of the architecture."""
    engine, stage = stage_of
    if stage == "settled":
        return 1.0
    return factors.get(f"new.{engine}", 1.0) * (factors["first"] if stage == "first" else 1.0)


def framework_base(name: str) -> ServingSoftware:
    """Load a framework, for its settings that are no fitted numbers."""
    from gpuscale.io.serving import load_framework

    return load_framework(name)


def report(r: np.ndarray, labels: Sequence[str]) -> str:
    """MAPE, median and p90 by quantity."""
    parts = []
    for q in ALL:
        errors = [abs(math.exp(v) - 1) for v, label in zip(r, labels, strict=True) if label == q]
        if errors:
            parts.append(
                f"{q} n {len(errors)} MAPE {100 * np.mean(errors):.1f} "
                f"median {100 * np.median(errors):.1f} p90 {100 * quantile(errors, 0.9):.1f}"
            )
    return "; ".join(parts)


def write(problem: Problem, x: np.ndarray) -> None:
    """Write kernels.toml and one file for each framework."""
    values = problem.parameters(x)
    for file, table in values.items():
        if file.startswith("architecture"):
            continue
        if file == "maturity":
            text = (FOLDER / "maturity.toml").read_text(encoding="utf-8")
            for name, value in table.items():
                text = re.sub(
                    rf"\b{name.split('.')[-1]} = [\d.]+",
                    f"{name.split('.')[-1]} = {value:.4g}",
                    text,
                    count=1,
                )
            (FOLDER / "maturity.toml").write_text(text, encoding="utf-8")
            continue
        path = FOLDER / f"{file}.toml"
        head, kept = fixed_lines(path)
        origin = {n: o for f, n, *_, o in problem.names if f == file}
        lines = [*head, 'source = "tools/fit_serving.py on the package\'s own serving rows"']
        lines += [f"{name} = {value:.4g}" for name, value in table.items()]
        lines += [line for section in kept for line in ("", *section)]
        for own in (f for f in values if f.startswith("architecture") and file == "kernels"):
            lines += ["", f"[{own}]", *(f"{n} = {v:.4g}" for n, v in values[own].items())]
        lines += ["", "[origin]  # of the prior that the fit starts from"]
        lines += [f'{name} = "{origin[name]}"' for name in table]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


FITTED = {n for n, *_ in (*KERNELS, *SOFTWARE)} | {"source"}


def fixed_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """Lines of a preset that the fit does not write: settings of its head, other sections."""
    parts: dict[str, list[str]] = {"": []}
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith("["):
            section = line.strip("[] ").split("]")[0]
            parts[section] = [line]
        elif line.strip() and (section or line.split("=")[0].strip() not in FITTED):
            parts[section].append(line)
    written = ("", "origin")
    others = [v for k, v in parts.items() if k not in written and not k.startswith("architecture")]
    return parts[""], others


SEEN = 4
"""How often a row counts as it is with itself in the fit, for once each with its model and with its
source left out: a question is mostly about a model that has rows."""

FEWEST = 12
"""Residuals below which a class takes the width of all rows of its quantity."""


def write_intervals(
    problem: Problem, left_out: Sequence[np.ndarray], architecture: np.ndarray, *, whole: bool
) -> None:
    """80 % quantile of |ln ratio| of each class; rows seen, and with model or source left out.

    Classes that the rows are not of stay as they are; where they are not all rows (`whole`), so do
    those of all kinds of load and of an unseen architecture.
    """
    classes: dict[str, list[float]] = defaultdict(list)
    for r in left_out:
        for (i, q), value in zip(problem.labels, r, strict=True):
            for name in (interval_class(problem.rows[i].classes, q), f"any/{q}"):
                classes[name].append(abs(float(value)))
    path = FOLDER / "intervals.toml"
    known = read_toml(path)
    out = {name: (c["width"], c["source"]) for name, c in known["class"].items()}
    for name, errors in classes.items():
        if len(errors) >= FEWEST * len(left_out) and (whole or not name.startswith("any/")):
            n = len(errors) // len(left_out)
            out[name] = (quantile(errors, 0.8) + 0.0005, f"{n} rows, tools/fit_serving.py")
    if whole:
        unseen = [v for q in ALL for v in classes[f"any/{q}"]]
        out["unknown"] = (quantile(unseen, 0.9), "no row of the class: 90 % of all rows")
        for q in ("ttft_ms", "tpot_ms"):
            of = [abs(v) for v, (_, p) in zip(architecture, problem.labels, strict=True) if p == q]
            text = "80 % of all rows, their architecture left out of the fit; at least"
            out[f"unseen/{q}"] = (quantile(of, 0.8), text)
    lines = path.read_text(encoding="utf-8").split("\n[measured.")[0].splitlines()[:3]
    for engine, rows in known["measured"].items():
        listed = ", ".join(f'"{name}"' for name in rows["architectures"])
        lines += ["", f"[measured.{engine}]  # four rows and more; day of the oldest version"]
        lines += [f"architectures = [{listed}]", f'since = "{rows["since"]}"']
    for name, (width, text) in sorted(out.items()):
        lines += ["", f'[class."{name}"]', f"width = {width:.3f}", f'source = "{text}"']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


MOST_OF_ONE = 12
"""Values of a source in a class beyond which more of them count no more: sources count alike."""

WIDTHS_OF = r"p99_|power_w|^pools|^offline|^burst|ttft_ms"
"""Classes whose widths `--widths` writes; those of TPOT and tokens/s of loops are of the fit."""

Residuals = dict[str, dict[str, list[float]]]
"""|ln(predicted / measured)| by class of an interval and source."""


def score_slice(rows: Sequence[dict[str, str]], folder: Path, k: int, n: int) -> None:
    """Score every n-th row as the command answers it, and keep what an interval is made of."""
    kept = []
    for one in predict_inference_rows(rows[k - 1 :: n]):
        if one.measured and one.predicted and one.classes.get("kind"):
            ratio = abs(math.log(one.predicted / one.measured))
            kept.append([one.quantity, one.classes, ratio])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{k}of{n}.json").write_text(json.dumps(kept), encoding="utf-8")


def width_of(by_source: Mapping[str, Sequence[float]], without: str = "") -> float:
    """80 % quantile of a class with its sources counted alike, one of them left out.

    Of a single source 90 %: it does not say how another differs.
    """
    weighted = sorted(
        (value, min(len(values), MOST_OF_ONE) / len(values))
        for source, values in by_source.items()
        if source != without
        for value in values
    )
    left = (0.8 if len(by_source) > 1 else 0.9) * sum(weight for _, weight in weighted)
    for value, weight in weighted:
        left -= weight
        if left <= 1e-9:
            return value
    return math.nan


def widths_of(folder: Path, *, write: bool) -> None:
    """Print what the widths of other sources hold of each source, and write those of all.

    Of the slices that are in the folder: every n-th row, so that fewer slices are a sample. A width
    that rests on fresh sources, of which fewer hold, stays.
    """
    found: Residuals = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*of*.json")):
        for quantity, classes, value in json.loads(path.read_text("utf-8")):
            for name in (interval_class(classes, quantity), f"any/{quantity}"):
                found[name][classes["source"]].append(value)
    held: dict[tuple[str, str], list[bool]] = defaultdict(list)
    text = (FOLDER / "intervals.toml").read_text(encoding="utf-8")
    for name, by_source in sorted(found.items()):
        values = sum(len(of) for of in by_source.values())
        quantity, alone = name.rsplit("/", 1)[1], len(by_source) < 2
        for source, of in by_source.items():
            wide = found[f"any/{quantity}"] if alone else by_source
            inside = [value <= width_of(wide, source) for value in of]
            if name.startswith("any/"):
                continue
            held[source, quantity] += inside
            held["all", quantity] += inside
        fresh = re.search(re.escape(f'[class."{name}"]') + r"\nwidth.*\n.*fresh", text)
        if values >= FEWEST and re.search(WIDTHS_OF, name) and not fresh:
            origin = f"{values} rows of {len(by_source)} sources counted alike, as answered"
            new = f'width = {width_of(by_source):.3f}\nsource = "{origin}, tools/fit_serving.py"'
            head = f'[class."{name}"]'
            if head not in text:
                text += f"\n{head}\n{new}\n"
            text = re.sub(re.escape(head) + r"\nwidth.*\nsource.*", f"{head}\n{new}", text)
            print(f"{name}: {new.splitlines()[0]}, {values} rows, {len(by_source)} sources")
    for (source, quantity), inside in sorted(held.items()):
        if len(inside) >= FEWEST:
            print(f"{source} {quantity}: {100 * sum(inside) / len(inside):.0f} % of {len(inside)}")
    if write:
        (FOLDER / "intervals.toml").write_text(text, encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=Path, nargs="*", default=[own_copy("inference")])
    parser.add_argument("--check", action="store_true", help="do not write")
    parser.add_argument("--every", type=int, default=1, help="every n-th row of large sources")
    parser.add_argument("--frozen", action="store_true", help="derivatives of the start throughout")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--where", default="", help="rows: regular expression of kind and engine")
    parser.add_argument("--only", default="", help="parameters to fit, a regular expression")
    parser.add_argument("--warm", action="store_true", help="start at the shipped parameters")
    parser.add_argument("--intervals", action="store_true", help="of the shipped parameters only")
    parser.add_argument("--widths", type=Path, help="folder of scored slices")
    parser.add_argument("--slice", default="", help="score this part of the rows, as 1/4")
    args: Any = parser.parse_args(argv)
    if args.widths:
        if args.slice:
            rows = [row for path in args.rows for row in read_rows(path)]
            score_slice(rows, args.widths, *(int(part) for part in args.slice.split("/")))
        else:
            widths_of(args.widths, write=not args.check)
        return
    rows = [row for path in args.rows for row in read_rows(path) if chosen(row, args.where)]
    problem = Problem(rows, args.every, args.only)
    if args.intervals:
        x = problem.shipped()
        r = problem.residuals(x)
        jac = problem.jacobian(x, r)
    else:
        x, r, jac = problem.fit(args.rounds, warm=args.warm, frozen=args.frozen)
    print("all: " + report(r, [q for _, q in problem.labels]))
    for file, table in problem.parameters(x).items():
        print(file, table)
    if not args.check and not args.intervals:
        write(problem, x)
    found = {key: problem.left_out(x, r, jac, key) for key in LEFT_OUT}
    if not args.check:
        exact = problem.residuals(x, whole=True)
        left = [exact + found[key] - r for key in ("model", "source", "architecture")]
        left = [*[exact] * SEEN, *left[:2]], left[2]
        write_intervals(problem, *left, whole=not args.where)


if __name__ == "__main__":
    main()
