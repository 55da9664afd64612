"""Fit the memory parameters of framework families to published peaks, and write the presets.

    python tools/fit_memory.py [--runs FILE] [--layouts FILE]            # fit and report
    python tools/fit_memory.py ... --write                               # and write presets

Each group names the rows it is fitted to, the parameters that are free (the rest is counted or
read, see the `sources` of the presets) and the families that take the result. The objective is the
mean absolute logarithm of predicted over measured; the simplex search is deterministic.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuscale.core.memory.facts import ModelFacts, model_facts
from gpuscale.core.memory.parameters import MemoryParameters, parameters_of
from gpuscale.core.memory.peak import printed_bytes
from gpuscale.evidence.rows_runs import TrainingRun
from gpuscale.evidence.score_runs import read_runs
from gpuscale.io.software import load_software

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "gpuscale" / "data" / "validation"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one recipe, what is free in it, and who takes the result."""

    name: str
    families: tuple[str, ...]  # the first one's preset is the start
    chosen: Callable[[TrainingRun], bool]
    free: tuple[tuple[str, float], ...]  # parameter, step of the simplex
    layouts: bool = False
    every: int = 1  # take each n-th row, for time


GROUPS = (
    Group(
        "megatron",
        (
            "megatron-no-overlap",
            "megatron-core",
            "megatron-bridge",
            "megatron-lm-2021",
            "mlperf-submission",
        ),
        lambda r: r.software == "megatron-no-overlap",
        (("fused_logits_bytes", 1.0), ("head_gradient_bytes", 1.0), ("live_layers", 0.5)),
    ),
    Group(
        "megatron-deepspeed",
        ("megatron-deepspeed",),
        lambda r: r.software == "megatron-deepspeed" and r.full_spec == "yes",
        (("live_layers", 0.5), ("context_bytes", 1e9)),
    ),
    Group(
        "torchtitan",
        ("torchtitan",),
        lambda r: (  # an unprinted micro-batch is known where a step has one for each stage
            r.software == "torchtitan"
            and r.memory_kind == "reserved"
            and r.layout is not None
            and (r.full_spec == "yes" or r.layout.n_micro_batches in (1, r.layout.pp))
        ),
        (("gathered_tensors", 1.0), ("fragmentation", 0.03)),
    ),
    Group(
        "nanotron",
        ("nanotron",),
        lambda r: True,
        (
            ("hidden_bytes", 3.0),
            ("ffn_bytes", 0.4),
            ("logits_bytes", 2.0),
            ("whole_logits_bytes", 0.5),
            ("live_layers", 0.5),
            ("workspace_bytes", 2e8),
        ),
        layouts=True,
        every=4,
    ),
)

_FACTS: dict[str, ModelFacts] = {}


def facts(run: TrainingRun) -> ModelFacts:
    """Facts of a run's model, once per model."""
    key = repr(run.model)
    if key not in _FACTS:
        assert run.model is not None
        _FACTS[key] = model_facts(run.model)
    return _FACTS[key]


def predicted(run: TrainingRun, parameters: MemoryParameters) -> float:
    """Bytes of a run, counted as its source counts."""
    assert run.layout is not None
    return printed_bytes(facts(run), run.layout, parameters, run.memory_kind)


def of_run(run: TrainingRun, family: MemoryParameters) -> MemoryParameters:
    """Parameters of the family with the settings of the run."""
    software = load_software(run.software).model_copy(update=dict(run.changes))
    own = parameters_of(software, run.options)
    names = (
        "unfused_attention",
        "fused_cross_entropy",
        "loss",
        "recompute_modules",
        "offloaded_layers",
    )
    return replace(family, **{n: getattr(own, n) for n in names})


def usable(run: TrainingRun) -> bool:
    """Whether a row has a memory figure and a layout that can be modelled."""
    return bool(run.memory_bytes and run.layout and run.model and run.quality == "good")


def simplex(
    f: Callable[[Sequence[float]], float], start: Sequence[float], steps: Sequence[float]
) -> list[float]:
    """Minimise by Nelder and Mead's simplex, restarted twice with smaller steps."""
    best = list(start)
    for scale in (1.0, 0.5, 0.25):
        best = _nelder_mead(f, best, [s * scale for s in steps])
    return best


def _nelder_mead(
    f: Callable[[Sequence[float]], float], start: list[float], steps: list[float]
) -> list[float]:
    n = len(start)
    points = [start] + [
        [v + (steps[j] if i == j else 0) for j, v in enumerate(start)] for i in range(n)
    ]
    ranked = sorted((f(p), p) for p in points)
    for _ in range(60 * n):
        if ranked[-1][0] - ranked[0][0] < 1e-6:
            break
        centre = [sum(p[j] for _, p in ranked[:-1]) / n for j in range(n)]
        worst = ranked[-1][1]

        def at(
            t: float, centre: list[float] = centre, worst: list[float] = worst
        ) -> tuple[float, list[float]]:
            point = [c + t * (c - w) for c, w in zip(centre, worst, strict=True)]
            return f(point), point

        trial = at(1.0)
        if trial[0] < ranked[0][0]:
            trial = min(trial, at(2.0))
        elif trial[0] >= ranked[-2][0]:
            trial = min(trial, at(-0.5)) if trial[0] > ranked[-1][0] else min(trial, at(0.5))
        if trial[0] < ranked[-1][0]:
            ranked[-1] = trial
        else:
            low = ranked[0][1]
            shrunk = [[(a + b) / 2 for a, b in zip(low, p, strict=True)] for _, p in ranked[1:]]
            ranked = [ranked[0]] + [(f(p), p) for p in shrunk]
        ranked.sort()
    return ranked[0][1]


def fit(group: Group, runs: Sequence[TrainingRun]) -> tuple[dict[str, float], list[float]]:
    """Fitted values of a group, and predicted over measured of its rows."""
    start = parameters_of(load_software(group.families[0]))
    names = [n for n, _ in group.free]
    steps = [s for _, s in group.free]

    def with_values(x: Sequence[float]) -> MemoryParameters:
        low = {n: 1.0 if n == "fragmentation" else 0.0 for n in names}
        return replace(start, **{n: max(low[n], v) for n, v in zip(names, x, strict=True)})

    def loss(x: Sequence[float]) -> float:
        family = with_values(x)
        outside = sum(max(0.0, -v / s) for v, s in zip(x, steps, strict=True))
        return 0.01 * outside + statistics.fmean(
            abs(math.log(predicted(r, of_run(r, family)) / (r.memory_bytes or 1.0))) for r in runs
        )

    best = simplex(loss, [getattr(start, n) for n in names], steps)
    family = with_values(best)
    values = {n: float(f"{getattr(family, n):.3g}") for n in names}
    family = replace(family, **values)
    return values, [predicted(r, of_run(r, family)) / (r.memory_bytes or 1.0) for r in runs]


def write(families: Sequence[str], values: dict[str, float]) -> None:
    """Put fitted values into the [memory] tables of the presets."""
    for name in families:
        path = ROOT / "presets" / "software" / f"{name}.toml"
        head, mark, memory = path.read_text().partition("[memory]\n")
        for key, value in values.items():
            memory = re.sub(rf"(?m)^{key} = [0-9.e+]+$", f"{key} = {value!r}", memory, count=1)
        path.write_text(head + mark + memory)


def main() -> None:
    """Fit every group; print what it found; write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=DATA / "training_runs.csv.gz")
    parser.add_argument("--layouts", type=Path, default=DATA / "layouts.csv.gz")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for group in GROUPS:
        if given.only not in group.name:
            continue
        rows = read_runs(given.layouts if group.layouts else given.runs)
        runs = [r for r in rows if r.memory_bytes and r.layout and r.model and group.chosen(r)]
        runs = [r for r in runs if r.quality in ("good", "")][:: group.every]
        values, ratios = fit(group, runs)
        mape = 100 * statistics.fmean(abs(x - 1) for x in ratios)
        print(f"{group.name}: {len(runs)} rows, MAPE {mape:.2f} %, {values}")
        if given.write:
            write(group.families, values)


if __name__ == "__main__":
    main()
