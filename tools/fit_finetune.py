"""Fit the memory and time parameters of fine-tuning families to measured runs; prints TOML lines.

    python tools/fit_finetune.py memory runs.csv [--held-out]
    python tools/fit_finetune.py time runs.csv [--held-out]

Each family has a few free parameters with priors; those of time share figures of an architecture.
`--held-out` leaves groups of rows out and prints the error of the rows left out; `--fold N` does a
fifth of that.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.answers.validate.tuned import tuned_row
from gpuscale.core.finetune.memory import finetune_memory
from gpuscale.core.finetune.parameters import FinetuneParameters
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.fit_collectives import fit
from gpuscale.evidence.records import quantile
from gpuscale.io.finetune import as_loaded, finetune_site
from gpuscale.io.step import Calibration, load_calibration
from gpuscale.io.text import read_rows

if TYPE_CHECKING:
    from gpuscale.answers.validate.tuned import TunedRow
    from gpuscale.specs.software import SoftwareSpec

MEMORY = {  # parameter -> spread of ln(value)
    "working_factor": 0.2,
    "kept_factor": 0.25,
    "norm_bytes": 0.5,
    "packed_input_bytes": 0.5,
    "adapter_input_bytes": 0.4,
    "logits_eager_bytes": 0.25,
    "logits_chunked_bytes": 0.5,
    "logits_fused_bytes": 0.5,
    "gathered_layers": 0.5,
    "overhead_bytes": 0.7,
    "fragmentation": 0.03,
    "sharded_fragmentation": 0.03,
}
SCALE = 0.1
WEAK = 0.15
"""Weight of a weak row against a good one."""

TIME = {  # parameter of a family -> spread of ln(value)
    "elementwise_factor": 0.4,
    "host_layer_s": 0.5,
    "dp_exposed_frac": 0.4,
    "adapter_passes": 0.6,
    "adapter_launch_s": 0.7,
    "dequantise_eff_frac": 0.5,
    "dequantise_gptq_frac": 0.5,
}
ARCHITECTURES = {  # figure of an architecture or GPU -> spread of ln(value)
    "ada-geforce.product_bf16_frac": 0.1,
    "ada-geforce.attention_eff": 0.2,
    "ampere-geforce.product_bf16_frac": 0.1,
    "ampere-geforce.attention_eff": 0.2,
    "ada.product_bf16_frac": 0.15,
    "h20-sxm-96gb.product_bf16_frac": 0.1,
    "h20-sxm-96gb.attention_eff": 0.15,
    "blackwell.flash2_factor": 0.5,
    "cdna3.product_fp8_frac": 0.25,
}
SHARED = {"attention_long_gain": 0.4}
"""Figures that all families share."""
FOLDS = 5


@dataclass(frozen=True)
class FinetuneRow:
    """A run as the command takes it, the family whose figures hold, and what it is counted as."""

    run: TunedRow
    software: SoftwareSpec
    classes: dict[str, str]


def read(path: str) -> list[FinetuneRow]:
    """Read the runs of a file that the command can predict; what is held out stays unseen."""
    found = []
    for row in read_rows(path):
        if row.get("half") == "held-out":
            continue
        try:
            run = tuned_row(row)
        except (ValueError, GpuscaleError):
            continue
        classes = {name: row.get(name, "") for name in ("source", "quality", "group")}
        found.append(FinetuneRow(run, run.case.family(), classes))
    return found


def predict(row: FinetuneRow, p: FinetuneParameters) -> float:
    """Predicted over measured memory of a row, as a logarithm."""
    run, bench = row.run, row.run.case.bench
    p = as_loaded(p, run.case.job)
    memory = finetune_memory(bench.model, bench.facts, run.case.job, p)
    return math.log(memory.kind_bytes(run.memory_kind) / (run.memory_bytes or 1.0))


def fitted(rows: list[FinetuneRow], start: FinetuneParameters, weak: bool) -> FinetuneParameters:
    """Fit one family."""
    traced = {n for n, origin in start.sources.items() if origin.startswith("traced")}
    names = [n for n in MEMORY if getattr(start, n) > 0 and n not in traced]
    weight = [1.0 if r.classes["quality"] == "good" else WEAK for r in rows]

    def at(x: list[float]) -> FinetuneParameters:
        values = {n: getattr(start, n) * math.exp(v) for n, v in zip(names, x, strict=True)}
        for name in ("fragmentation", "sharded_fragmentation"):
            values[name] = max(1.0, values.get(name, 1.0))
        return replace(start, **values)  # type: ignore[arg-type]

    def residuals(x: list[float]) -> list[float]:
        p = at(x)
        return [w * predict(r, p) for r, w in zip(rows, weight, strict=True)]

    zero = [0.0] * len(names)
    return at(fit(residuals, zero, zero, [MEMORY[n] for n in names], SCALE, 40))


ENOUGH = 20
"""Rows left out from which a family has a width of its own; fewer share that of all."""


def conformal_factor(ratios: list[float], share: float = 0.8) -> float:
    """Factor that holds `share` of the rows left out: split conformal (Vovk et al. 2005)."""
    ordered = sorted(abs(v) for v in ratios)
    rank = min(len(ordered), math.ceil(share * (len(ordered) + 1)))
    return math.exp(ordered[rank - 1])


def print_widths(left: list[tuple[str, float]], name: str) -> None:
    """Print the interval factor of all rows left out, and of the families with enough of them."""
    print(f"# {name} of all families: {conformal_factor([v for _, v in left]):.3f}")
    for family in sorted({f for f, _ in left}):
        own = [v for f, v in left if f == family]
        if len(own) >= ENOUGH:
            print(f"{family} {name} = {conformal_factor(own):.3f}")


def errors(rows: list[FinetuneRow], p: FinetuneParameters) -> list[float]:
    """|predicted/measured - 1| of the good rows."""
    good = [r for r in rows if r.classes["quality"] == "good"]
    return [abs(math.exp(predict(r, p)) - 1) for r in good]


class Clock:
    """Times of rows as a function of the free parameters, as logarithms of their change."""

    def __init__(self, rows: list[FinetuneRow]) -> None:
        self.families = sorted({r.software.name for r in rows})
        self.specs = {r.software.name: r.software for r in rows}
        self.calibration = load_calibration()
        self.names = [f"{f}:{n}" for f in self.families for n in TIME if self.start(f, n) > 0]
        self.names += [n for n in ARCHITECTURES if f"arch.{n}" in self.calibration]
        self.names += list(SHARED)
        self.known: dict[tuple[object, ...], float] = {}

    def start(self, family: str, name: str) -> float:
        """Value that a family's preset has today."""
        spec = self.specs[family]
        own = spec.calibration.get(name)
        return float(own.value) if own is not None else float(getattr(spec.finetune, name))

    def prior(self, name: str) -> float:
        """ln(prior / value of today) of a parameter; 0 where a preset states no other prior."""
        family, _, bare = name.rpartition(":")
        if not family:
            return 0.0
        spec = self.specs[family]
        own = spec.calibration.get(bare)
        if own is not None:
            return math.log(own.prior / own.value) if own.prior_spread > 0 else 0.0
        default = getattr(FinetuneParameters(), bare)
        return math.log(default / self.start(family, bare)) if default else 0.0

    def spread(self, name: str) -> float:
        """Prior spread of a parameter."""
        bare = name.split(":")[-1]
        return TIME.get(bare) or ARCHITECTURES.get(bare) or SHARED[bare]

    def ratios(self, rows: list[FinetuneRow], x: list[float]) -> list[float]:
        """Predicted over measured step times, as logarithms: of a row once for what moves it."""
        factor = {n: math.exp(v) for n, v in zip(self.names, x, strict=True)}
        found = []
        for row in rows:
            gpu = row.run.case.loaded.cluster.gpu
            heads = (f"{row.software.name}:", f"{gpu.architecture}.", f"{gpu.name}.", *SHARED)
            own = {n: v for n, v in factor.items() if n.startswith(heads)}
            key = (id(row), *own.values())
            if key not in self.known:
                self.known[key] = self.ratio(row, own)
            found.append(self.known[key])
        return found

    def ratio(self, row: FinetuneRow, factor: dict[str, float]) -> float:
        """Predicted over measured step time of a row, as a logarithm."""
        calibration = Calibration(self.calibration)
        for name in ARCHITECTURES:
            if f"arch.{name}" in calibration:
                calibration[f"arch.{name}"] *= factor.get(name, 1.0)
        case, family = row.run.case, row.software.name
        site = finetune_site(case.loaded.cluster, row.software, case.job, calibration)
        own = {n: factor.get(f"{family}:{n}", 1.0) for n in TIME}
        in_step = "elementwise_factor host_layer_s dp_exposed_frac".split()
        sw = replace(site.sw, **{n: getattr(site.sw, n) * own[n] for n in in_step})
        kept = {n: v for n, v in own.items() if hasattr(site.parameters, n)} | {
            n: factor[n] for n in SHARED
        }
        p = replace(
            site.parameters, **{n: getattr(site.parameters, n) * v for n, v in kept.items()}
        )
        figures = site.hw, sw, p
        bench = replace(case.bench, site=lambda _: figures)
        return math.log(bench.step(case.job).step_s / (row.run.step_s or 1.0))

    def fit(self, rows: list[FinetuneRow]) -> list[float]:
        """Parameters that fit the rows best; sources with many rows count less each."""
        per_source: dict[str, int] = {}
        for r in rows:
            key = r.classes["source"]
            per_source[key] = per_source.get(key, 0) + 1
        weight = [
            (1.0 if r.classes["quality"] == "good" else WEAK)
            * min(1.0, (20.0 / per_source[r.classes["source"]]) ** 0.5)
            for r in rows
        ]

        def residuals(x: list[float]) -> list[float]:
            return [w * v for w, v in zip(weight, self.ratios(rows, x), strict=True)]

        prior = [self.prior(n) for n in self.names]
        spread = [self.spread(n) for n in self.names]
        return fit(residuals, prior, prior, spread, SCALE, 12)


def fit_time(parsed: list[FinetuneRow], held_out: bool, only: int | None = None) -> None:
    """Fit all families together and print what changed; `only`: what one fold leaves out."""
    rows = [r for r in parsed if r.run.step_s and r.run.timed and r.run.gpu_known]
    rows = [r for r in rows if r.classes["quality"] == "good"]
    clock = Clock(rows)
    before = [abs(math.exp(v) - 1) for v in clock.ratios(rows, [0.0] * len(clock.names))]
    x = clock.fit(rows) if only is None else [0.0] * len(clock.names)
    after = [abs(math.exp(v) - 1) for v in clock.ratios(rows, x)]
    print(
        f"# time: {len(rows)} rows, median {quantile(before, 0.5):.3f} -> "
        f"{quantile(after, 0.5):.3f}, p90 {quantile(before, 0.9):.3f} -> {quantile(after, 0.9):.3f}"
    )
    for name, v in zip(clock.names, x, strict=True):
        family, _, bare = name.rpartition(":")
        if family:
            print(f"{family} {bare} = {clock.start(family, bare) * math.exp(v):.4g}")
        elif name in SHARED:
            print(f"* {name} = {math.exp(v):.4g} times")
        else:
            print(f"arch {name} = {clock.calibration[f'arch.{name}'] * math.exp(v):.4g}")
    if held_out:
        groups = sorted({r.classes["group"] for r in rows})
        left: list[float] = []
        widths: list[tuple[str, float]] = []
        for fold in range(FOLDS) if only is None else [only]:
            gone = set(groups[fold::FOLDS])
            rest = [r for r in rows if r.classes["group"] not in gone]
            out = [r for r in rows if r.classes["group"] in gone]
            found = clock.fit(rest)
            ratios = clock.ratios(out, found)
            widths += [(r.software.name, v) for r, v in zip(out, ratios, strict=True)]
            left += [abs(math.exp(v) - 1) for v in ratios]
            for r, v in zip(out, ratios, strict=True):
                print(f"left out,{r.classes['source']},{r.software.name},{math.exp(v):.4f}")
        print(f"# groups left out: median {quantile(left, 0.5):.3f}, p90 {quantile(left, 0.9):.3f}")
        print_widths(widths, "step_interval_factor_80")


def main() -> None:
    """Fit every family and print what changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["memory", "time"])
    parser.add_argument("file")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--family", default="")
    parser.add_argument("--fold", type=int, choices=range(FOLDS), help="of the times: one part")
    given = parser.parse_args()
    parsed = read(given.file)
    if given.what == "time":
        fit_time(parsed, given.held_out or given.fold is not None, given.fold)
        return
    rows = [r for r in parsed if r.run.memory_bytes]
    everything: list[float] = []
    left_out: list[float] = []
    widths: list[tuple[str, float]] = []
    for family in sorted({r.software.name for r in rows}):
        if not family.startswith(given.family):
            continue
        mine = [r for r in rows if r.software.name == family]
        table = mine[0].software.finetune
        if table is None:
            continue
        start = table
        found = fitted(mine, start, weak=True)
        before, after = errors(mine, start), errors(mine, found)
        everything += after
        if given.held_out:
            for group in sorted({r.classes["group"] for r in mine}):
                rest = [r for r in mine if r.classes["group"] != group]
                out = [r for r in mine if r.classes["group"] == group]
                p = fitted(rest, start, weak=True) if rest else start
                left_out += errors(out, p)
                good = [r for r in out if r.classes["quality"] == "good"]
                widths += [(family, predict(r, p)) for r in good]
        if after:
            print(
                f"# {family}: {len(after)} good of {len(mine)}; median {quantile(before, 0.5):.3f} "
                f"-> {quantile(after, 0.5):.3f}, p90 {quantile(before, 0.9):.3f} -> "
                f"{quantile(after, 0.9):.3f}"
            )
        for name in MEMORY:
            if getattr(found, name) != getattr(start, name):
                print(f"{family} {name} = {getattr(found, name):.4g}")
    print(
        f"# all: {len(everything)}, median {quantile(everything, 0.5):.3f}, p90 "
        f"{quantile(everything, 0.9):.3f}"
    )
    if left_out:
        print(
            f"# groups left out: median {quantile(left_out, 0.5):.3f}, p90 "
            f"{quantile(left_out, 0.9):.3f}"
        )
        print_widths(widths, "interval_factor_80")


if __name__ == "__main__":
    main()
