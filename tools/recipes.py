"""Published recipes of experts beside the search: a table of docs/accuracy.md.

python tools/recipes.py             print the table
python tools/recipes.py --update    write it between the markers of docs/accuracy.md

A recipe is a measured run of the package's own copy whose layout is printed, interleaving of a
pipeline included, of a vendor's performance pages. The search has the software's own space, the
same settings and the same memory rule as `plan`; its claim is the expert's step over its own, both
predicted.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from gpuscale.answers.training.plan_case import fit_factor
from gpuscale.core.layout import Layout
from gpuscale.core.search.engine import search
from gpuscale.core.search.space import default_space
from gpuscale.core.step.step import breakdown
from gpuscale.core.words import STEP_PARTS
from gpuscale.evidence.rows_runs import TrainingRun
from gpuscale.evidence.score_runs import own_copy, problem_of, read_runs

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
START, END = "<!-- recipes by tools/recipes.py -->\n", "<!-- end of recipes -->\n"
SOURCE = "megatron-bridge-perf"
CLAIM = 0.08
"""Claims above this are suspicions about a term."""


@dataclass(frozen=True)
class Beside:
    """Another recipe of the vendor for a model, GPU and format; no time of it is published."""

    model: str
    gpu: str
    precision: str
    tp: int
    pp: int
    ep: int
    micro_batch_size: int
    n_gpus: int


BESIDE = (
    Beside("Qwen3-235B-A22B", "GB200", "mxfp8", 1, 1, 64, 1, 128),
    Beside("Qwen3-30B-A3B", "B200", "fp8", 1, 1, 8, 4, 8),
    Beside("GPT-OSS-120B", "H100", "bf16", 1, 4, 8, 1, 64),
    Beside("nemotron-3-super", "B200", "mxfp8", 1, 1, 8, 1, 64),
    Beside("nemotron-3-super", "B200", "nvfp4", 2, 1, 8, 1, 64),
)
"""Megatron-Bridge of 2026-08-22, `perf_recipes` (Qwen3-235B: `paged_stash_dev` and
`partial_cg_dev`), and its pull request 6043 (Nemotron 3 Super: experts inside a node)."""


@dataclass(frozen=True)
class Claim:
    """A recipe, what the search has instead, and which term makes the difference."""

    run: TrainingRun
    expert_s: float
    found_s: float
    found: Layout
    term: str
    of_the_gain: float  # share of that term

    @property
    def gain(self) -> float:
        """What the search claims over the expert."""
        return self.expert_s / self.found_s - 1


def claim_of(run: TrainingRun) -> Claim | None:
    """Search the job of a recipe; None where it cannot be modelled or nothing fits."""
    if run.model is None or run.layout is None or run.reason:
        return None
    lay = run.layout
    if lay.pp > 1 and run.full_spec == "no":  # without the interleaving of its stages
        return None
    problem = problem_of(run)
    hw, sw, facts = problem.hardware, problem.software, problem.facts
    problem = replace(problem, fit_factor=fit_factor("safe", run.software))
    space = default_space(facts, hw.scaleup_domain_gpus, lay.precision)
    best = search(problem, space, 0, follow_families=False).best
    if best is None:
        return None
    mine, _ = breakdown(run.model, hw, sw, lay)
    theirs, _ = breakdown(run.model, hw, sw, best.layout)
    gains = {k: mine.parts()[k] - theirs.parts()[k] for k in mine.parts()}
    term = max(gains, key=lambda k: gains[k])
    gain = mine.total_s - theirs.total_s
    return Claim(
        run,
        mine.total_s,
        theirs.total_s,
        best.layout,
        term,
        gains[term] / gain if gain > 0 else 0.0,
    )


def job_of(run: TrainingRun) -> tuple[object, ...]:
    """Tell two jobs apart: model, GPU, length, format."""
    assert run.model is not None and run.layout is not None
    return run.model.name, run.gpu, run.layout.seq_len, run.layout.precision


def confirmed(claim: Claim, runs: list[TrainingRun]) -> bool:
    """Whether the same experts measured another layout of the job faster by half the claim."""
    mine, lay = claim.run.tokens_per_s_per_gpu, claim.run.layout
    if not mine or lay is None:
        return False
    return any(
        other.tokens_per_s_per_gpu is not None
        and other.tokens_per_s_per_gpu / mine - 1 > claim.gain / 2
        and other.layout is not None
        and short(other.layout) != short(lay)
        and job_of(other) == job_of(claim.run)
        for other in runs
        if other.model is not None and other.layout is not None
    )


def beside(claim: Claim) -> Beside | None:
    """Find the vendor's recipe that leaves the published one the way the search does."""
    run, lay = claim.run, claim.run.layout
    assert lay is not None and run.model is not None
    for other in BESIDE:
        if (other.model, other.gpu, other.precision) != (run.model.name, run.gpu, lay.precision):
            continue
        moves = [
            (
                getattr(other, axis) - getattr(lay, axis),
                getattr(claim.found, axis) - getattr(lay, axis),
            )
            for axis in ("tp", "pp", "ep", "micro_batch_size")
        ]
        if any(a for a, _ in moves) and all(a * b > 0 for a, b in moves if a):
            return other
    return None


def said(other: Beside | None) -> str:
    """Say a recipe of the vendor in a cell."""
    if other is None:
        return ""
    tp = f"TP{other.tp} " if other.tp > 1 else ""
    pp = f"PP{other.pp} " if other.pp > 1 else ""
    return f"{tp}{pp}EP{other.ep} mb{other.micro_batch_size}, {other.n_gpus} GPUs"


def short(layout: Layout) -> str:
    """Layout in one cell."""
    from gpuscale.answers.training.plan_text import short as words

    return words(layout)


def claims(runs: list[TrainingRun]) -> list[Claim]:
    """Claims of all recipes, largest first."""
    found = [c for c in map(claim_of, runs) if c is not None]
    return sorted(found, key=lambda c: -c.gain)


def table() -> str:
    """Summarise the claims, and list those that are suspicions."""
    runs = [r for r in read_runs(own_copy("training_runs")) if r.source == SOURCE]
    found = claims(runs)
    over = [c for c in found if c.gain > CLAIM]
    newest = [c for c in found if not c.run.superseded]
    told = {id(c) for c in over if confirmed(c, runs)}
    also = {id(c) for c in over if beside(c)} - told
    median = statistics.median(c.gain for c in found)
    terms = Counter(STEP_PARTS[c.term] for c in over)
    lines = [
        f"{len(found)} recipes: the search claims more than {100 * CLAIM:.0f} % over the expert in "
        f"{len(over)}, {100 * median:.1f} % in the median. The term that makes most of each claim: "
        + ", ".join(f"{term} {n}" for term, n in terms.most_common())
        + f". In {len(told)} of them the experts themselves measured another layout of the job "
        f"faster, by half the claim or more; {len(also)} others leave the recipe the way another "
        f"recipe of the vendor does, of which no time is published: "
        f"{len(over) - len(told) - len(also)} remain as suspicions. Of the "
        f"{len(newest)} newest recipes "
        f"{sum(c.gain > CLAIM for c in newest)} are over {100 * CLAIM:.0f} %.",
        "",
        "| recipe | expert | search | claim | term | of the gain | measured since | other recipe |",
        "|---|---|---|---|---|---|---|---|",
    ]
    seen: set[tuple[str, str, str]] = set()
    for c in over:
        lay = c.run.layout
        assert lay is not None and c.run.model is not None
        name = f"{c.run.model.name}, {c.run.n_gpus} {c.run.gpu}, {lay.precision}"
        key = (name, short(lay), short(c.found))
        if key in seen:
            continue
        seen.add(key)
        lines.append(
            f"| {name} | {short(lay)} | {short(c.found)} | {100 * c.gain:.0f} % | "
            f"{STEP_PARTS[c.term]} | {100 * c.of_the_gain:.0f} % | "
            f"{'yes' if id(c) in told else ''} | {said(beside(c))} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    made = table()
    if not parser.parse_args().update:
        print(made)
        return
    text = PAGE.read_text("utf-8")
    before, after = text.index(START) + len(START), text.index(END)
    PAGE.write_text(text[:before] + made + text[after:], "utf-8")


if __name__ == "__main__":
    main()
