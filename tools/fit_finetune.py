"""Fit the memory and time parameters of fine-tuning families to measured runs; prints TOML lines.

    python tools/fit_finetune.py memory runs.csv [--held-out]

Each family has a few free parameters with priors; `--held-out` leaves one group of rows out at a
time and prints the error of the rows left out.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.memory import finetune_memory
from gpuscale.core.memory.facts import model_facts
from gpuscale.evidence.fit.least_squares import fit
from gpuscale.evidence.rows.finetune import FinetuneRow, finetune_row
from gpuscale.evidence.rows.measurements import read_rows
from gpuscale.evidence.score.records import quantile

if TYPE_CHECKING:
    from gpuscale.core.finetune.parameters import FinetuneParameters

MEMORY = {  # parameter -> spread of ln(value)
    "working_factor": 0.4,
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
}
SCALE = 0.1
WEAK = 0.3
"""Weight of a weak row against a good one."""

_FACTS: dict[int, object] = {}


def predict(row: FinetuneRow, p: FinetuneParameters) -> float:
    """Predicted over measured memory of a row, as a logarithm."""
    key = id(row.model)
    if key not in _FACTS:
        _FACTS[key] = model_facts(row.model)
    memory = finetune_memory(row.model, _FACTS[key], row.job, p)  # type: ignore[arg-type]
    return math.log(memory.kind_bytes(row.memory_kind) / (row.memory_bytes or 1.0))


def fitted(rows: list[FinetuneRow], start: FinetuneParameters, weak: bool) -> FinetuneParameters:
    """Fit one family."""
    names = [n for n in MEMORY if getattr(start, n) > 0]
    weight = [1.0 if r.classes["quality"] == "good" else WEAK for r in rows]

    def at(x: list[float]) -> FinetuneParameters:
        values = {n: getattr(start, n) * math.exp(v) for n, v in zip(names, x, strict=True)}
        values["fragmentation"] = max(1.0, values.get("fragmentation", 1.0))
        return replace(start, **values)  # type: ignore[arg-type]

    def residuals(x: list[float]) -> list[float]:
        p = at(x)
        return [w * predict(r, p) for r, w in zip(rows, weight, strict=True)]

    zero = [0.0] * len(names)
    return at(fit(residuals, zero, zero, [MEMORY[n] for n in names], SCALE, 40))


def errors(rows: list[FinetuneRow], p: FinetuneParameters) -> list[float]:
    """|predicted/measured - 1| of the good rows."""
    good = [r for r in rows if r.classes["quality"] == "good"]
    return [abs(math.exp(predict(r, p)) - 1) for r in good]


def main() -> None:
    """Fit every family and print what changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["memory"])
    parser.add_argument("file")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--family", default="")
    given = parser.parse_args()
    parsed = [finetune_row(r, i) for i, r in enumerate(read_rows(given.file), 1)]
    rows = [r for r in parsed if isinstance(r, FinetuneRow) and r.memory_bytes]
    everything: list[float] = []
    left_out: list[float] = []
    for family in sorted({r.software.name for r in rows}):
        if not family.startswith(given.family):
            continue
        mine = [r for r in rows if r.software.name == family]
        table = mine[0].software.finetune
        if table is None:
            continue
        start = table.to_core()
        found = fitted(mine, start, weak=True)
        before, after = errors(mine, start), errors(mine, found)
        everything += after
        if given.held_out:
            for group in sorted({r.classes["group"] for r in mine}):
                rest = [r for r in mine if r.classes["group"] != group]
                out = [r for r in mine if r.classes["group"] == group]
                left_out += errors(out, fitted(rest, start, weak=True) if rest else start)
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


if __name__ == "__main__":
    main()
