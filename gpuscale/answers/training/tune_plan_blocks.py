"""A plan of fine-tuning: what it says as data, its tables and terms."""

from __future__ import annotations

from collections.abc import Sequence

from gpuscale.answers import summary
from gpuscale.answers.money import bill_rows
from gpuscale.answers.run_terms import BilledTime, bill_terms
from gpuscale.answers.summary import Room
from gpuscale.answers.training import tune_words
from gpuscale.answers.training.tune_case import SHORT, FinetuneCase
from gpuscale.answers.training.tune_verdict import CHOSEN, chosen_rows, mended
from gpuscale.core.finetune.bench import BenchChange, Trial
from gpuscale.core.finetune.memory import FinetuneMemory
from gpuscale.core.quantity import format_count, format_si
from gpuscale.core.records import Term, dataclass, term_of, total_of
from gpuscale.core.run.bill import Bill
from gpuscale.core.step.records import Breakdown
from gpuscale.core.verdict import MUCH
from gpuscale.core.words import STEP_PARTS, gb
from gpuscale.render.document import Column, Point, Table

SEARCHED = ("recompute", "micro_batch_size", "zero_stage", "offload_optimizer", "dp", "tp", "ep")
"""Fields of a layout that a plan of fine-tuning chooses."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run the job."""

    gpu: str
    cluster: str
    n_gpus: int
    software: str
    tp: int
    ep: int
    zero_stage: int
    micro_batch_size: int
    global_batch_size: int
    recompute: str
    offload: tuple[str, ...]
    fits: bool
    peak_bytes: float
    capacity_bytes: float
    step_s: float
    tokens_per_s: float  # without padding
    run_s: float  # of all tokens
    usd_per_gpu_hour: float | None
    price_origin: str
    cost_usd: float | None
    host_bytes_per_node: float


@dataclass(frozen=True, slots=True)
class Against:
    """A kind of GPU against the slowest of those asked for, each at its best."""

    gpu: str
    n_gpus: int
    against: str
    against_gpus: int
    speed_ratio: float  # tokens per second over those of the other
    cost_ratio: float | None  # money of the run over the other's; None where a price is not known


@dataclass(frozen=True, slots=True)
class TuningPlan(Room):
    """The chosen way, the others, and what would help where none fits."""

    tokens: float
    chosen: Option
    n_gpus: int
    maturity: str  # tuned, as-it-comes or script: how wide the interval is
    decides: str  # the setting that nobody said and that moves the peak most
    run_s: float
    cost_usd: float | None
    bill: Bill  # money, energy and carbon of the run
    expected: FinetuneMemory
    breakdown: Breakdown
    unpack_s: float
    offload_s: float
    options: tuple[Option, ...]
    against: tuple[Against, ...]  # several kinds of GPUs: the ratios
    remedies: tuple[BenchChange, ...]
    passed_over: Option | None  # faster, where memory is no more than expected
    passed_over_fits_probability: float | None


def plan_facts(
    case: FinetuneCase, trial: Trial, r: TuningPlan, host_bytes: float | None
) -> list[tuple[str, str, str]]:
    """Answer in figures beside its summary: rate, what the cost rests on, states, the hosts."""
    c, step = r.chosen, trial.step
    which = "without padding" if step.tokens < step.padded_tokens else "all of them trained on"
    rate = f"{c.tokens_per_s / c.n_gpus:,.0f} per GPU, {which}"
    rows = [("tokens/s", f"{c.tokens_per_s:,.0f}", rate)]
    if c.cost_usd is None:
        rows.append(("cost", "-", f"no price of {c.gpu} is known: --price '0.4 USD/h'"))
    rows += [row for row in bill_rows(r.bill) if row[0] != "cost"]
    states = ("states", *tune_words.states_text(trial.job, case.bench.site(trial.job)[2]))
    has = f"per node, of {gb(host_bytes)}" if host_bytes else "per node"
    rows += [states, ("host memory", gb(c.host_bytes_per_node), has)]
    return rows + (chosen_rows(case, trial.job) if r.decides else [])


OFFLOADED = {**STEP_PARTS, "offload_s": "offload"}
"""Parts of a step in words, whatever is offloaded."""


def time_table(r: TuningPlan) -> Table:
    """Where the step goes."""
    parts = {**r.breakdown.parts(), "offload_s": r.offload_s}
    rows = [(OFFLOADED[k], v) for k, v in parts.items() if v > 5e-4 * r.step_s]
    return tune_words.share_table("part", "step by part", rows, r.step_s, 1)


def compared(options: Sequence[Option]) -> tuple[Against, ...]:
    """Compare the best way of each kind of GPU with the slowest kind."""
    best = {o.gpu: o for o in sorted(options, key=lambda o: o.tokens_per_s)}
    if len(best) < 2:
        return ()
    *others, slow = sorted(best.values(), key=lambda o: -o.tokens_per_s)
    return tuple(
        Against(
            gpu=o.gpu,
            n_gpus=o.n_gpus,
            against=slow.gpu,
            against_gpus=slow.n_gpus,
            speed_ratio=o.tokens_per_s / slow.tokens_per_s,
            cost_ratio=o.cost_usd / slow.cost_usd if o.cost_usd and slow.cost_usd else None,
        )
        for o in others
    )


MOST_COMPARED = 6
"""Comparisons that are said in words; more are in the table."""


def compared_text(r: TuningPlan) -> str:
    """Say which kind of GPU is faster, by how much, and which is cheaper.

    >>> from types import SimpleNamespace as N
    >>> print(compared_text(N(against=(Against("b", 4, "a", 8, 2.0, 1.25),))))
    4 b against 8 a: 2.00 times as fast, at 1.25 times the cost: a is cheaper
    """
    lines = []
    for a in r.against:
        words = f"{a.n_gpus} {a.gpu} against {a.against_gpus} {a.against}: "
        words += f"{a.speed_ratio:.2f} times as fast"
        if a.cost_ratio is None:
            words += ", a price is not known (--price a=2USD/h,b=3USD/h)"
        else:
            cheaper = a.gpu if a.cost_ratio < 1 else a.against
            words += f", at {a.cost_ratio:.2f} times the cost: {cheaper} is cheaper"
        lines.append(words)
    return "\n".join(lines)


def option_table(r: TuningPlan) -> Table:
    """Every way that was tried, the chosen first."""

    def money(value: float | None) -> str:
        return "-" if value is None else f"{value:,.2f} USD"

    columns = (
        Column("gpu", "ways that fit", right=False),
        Column("n_gpus", "GPUs"),
        Column("zero_stage", "ZeRO"),
        Column("micro_batch_size", "micro-batch"),
        Column("recompute", "recompute", right=False),
        Column("offload", "offload", lambda v: ", ".join(v) or "-", right=False),
        Column("peak_bytes", "memory", gb),
        Column("tokens_per_s", "tokens/s", lambda v: f"{v:,.0f}"),
        Column("run_s", "run", tune_words.time_text),
        Column("cost_usd", "cost", money),
    )
    return Table.of(columns, r.options)


def plan_terms(case: FinetuneCase, trial: Trial, r: TuningPlan) -> tuple[Term, ...]:
    """Explain the headline numbers as arithmetic over their parts."""
    parts = {name: v for name, v in r.breakdown.parts().items() if v} | {"offload_s": r.offload_s}
    data = "tokens of the data, without padding"
    trained = "tokens of a step that are trained on, without padding"
    passes = "parts of a training step; frozen maps have an input gradient alone"
    return (
        term_of("run_s", "s", "tokens / tokens_per_s", data, r),
        total_of("step_s", r.step_s, "s", parts, passes),
        term_of(
            "tokens_per_s", "", "step_tokens / step_s", trained, r, step_tokens=trial.step.tokens
        ),
        *tune_words.memory_terms(case, trial.job, r.expected),
        *bill_terms(r.bill, BilledTime(r.run_s, float(r.chosen.n_gpus))),
    )


FUSED = "loss fused, as whole logits fit nowhere"
"""How `taken` says that whole logits were given up."""


def plan_answer(case: FinetuneCase, trial: Trial, r: TuningPlan, short: str) -> str:
    """First sentence: whether it fits (`short`: the hosts do not), what it needs, time and cost."""
    words = tune_words.trained_words(trial.job)
    said = tune_words.verdict_text(case, words, r, r.n_gpus)
    if not r.fits:
        return f"{said}{short}."
    moved = sorted(trial.job.offload - case.job.offload)
    needs = [f"{', '.join(moved)} on the host"] if moved else []
    needs += ["--loss fused"] if any(FUSED in text for text in case.assumed) else []
    with_ = f" with {' and '.join(needs)}, not without" if needs else ""
    cost = f" and {format_si(r.cost_usd, 'usd', 3)}" if r.cost_usd else ""
    tokens = format_count(r.tokens, 3)
    return f"{said}{with_}; {tokens} tokens take {tune_words.time_text(r.run_s)}{cost}{short}."


def step_asks(case: FinetuneCase, trial: Trial, fused: Trial | None) -> list[str]:
    """Ask for what nobody said and makes a step much shorter; `fused`: without whole logits."""
    own, time = trial.step.step_s, tune_words.time_text
    rows = f"{SHORT * trial.job.layout.seq_len:,.0f} tokens"
    ways = [(case.short_step_s(trial), "--mean-len", "full rows", rows)]
    ways += [(fused.step.step_s, "--loss", trial.job.loss, "fused")] if fused else []
    return [
        f"{option}: {time(own)} with {taken}, {time(other)} with {with_}"
        for other, option, taken, with_ in sorted(ways)
        if own > MUCH * other
    ]


def passed_over_points(r: TuningPlan) -> list[Point]:
    """Name the faster way that fits less surely, with its gain and its risk."""
    f, chance = r.passed_over, r.passed_over_fits_probability
    if f is None or chance is None or f.tokens_per_s < r.tokens_per_s * summary.WORTH_SAYING:
        return []
    split = "".join(f"{n} {v}, " for n, v in (("TP", f.tp), ("EP", f.ep)) if v > 1)
    what = f"{split}micro-batch {f.micro_batch_size}, recompute {f.recompute}, ZeRO {f.zero_stage}"
    what += f", offload {', '.join(f.offload)}" if f.offload else ""
    return [summary.bolder_point(what, f.tokens_per_s / r.tokens_per_s, f.peak_bytes, chance)]


def plan_summary(
    case: FinetuneCase, trial: Trial, r: TuningPlan, said: str, told: str
) -> list[Point]:
    """Summary of a fine-tuning run."""
    found = tune_words.head_points(case, trial.job, r, said)
    found += [] if r.decides else [Point(*row) for row in chosen_rows(case, trial.job)]
    if r.fits and (mend := mended(case, trial, CHOSEN)):
        found.append(Point("surer", f"with {tune_words.mend_text(mend)}"))
    found.append(tune_words.step_point(r))
    if r.fits:
        found.append(Point("run", tune_words.time_text(r.run_s), told))
        found += summary.cost_points(r.bill)
        parts = {**r.breakdown.parts(), "offload_s": r.offload_s}
        found.append(summary.bottleneck(parts, OFFLOADED, r.step_s))
    else:
        found += tune_words.remedy_points(r.remedies)
    found += passed_over_points(r)
    found += summary.taken_points(r.taken, r.decides)
    return [*found, summary.FILED] if r.fits else found
