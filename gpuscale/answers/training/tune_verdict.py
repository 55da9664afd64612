"""Whether a fine-tuning or RL job fits: over the settings that the question leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuscale.answers.training.tune_case import FinetuneCase
from gpuscale.core import verdict
from gpuscale.core.finetune.bench import (
    CHANGES,
    BenchChange,
    Trial,
    change_words,
    sharded,
    tried_with,
    worth_a_line,
)
from gpuscale.core.finetune.method import Job
from gpuscale.core.finetune.parameters import WEIGHTS
from gpuscale.core.finetune.states import IN_BACKWARD, optimizer
from gpuscale.core.numeric import Z80
from gpuscale.core.records import replace
from gpuscale.core.words import gb
from gpuscale.io.finetune import finetune_parameters
from gpuscale.io.step import spread

PRIORS: dict[str, dict[str, float]] = {
    "recompute": {"full": 0.7, "none": 0.3},
    "loss": {"eager": 0.75, "fused": 0.25},
    "micro_batch": {"1": 0.7, "4": 0.3},
    "optimizer": {"adamw": 0.85, "adamw-8bit": 0.15},
    "zero_stage": {"3": 0.85, "2": 0.15},
    "adapters' zero_stage": {"3": 0.7, "0": 0.3},
    "weights": {"fp32": 0.7, "bf16": 0.3},
}
"""Setting -> ways that people have it around an engine, with their weights: priors, for those whose
framework has no counted examples. What was taken stands for the heavier way."""

TAKEN = 0.85
"""Weight of what a named framework does by itself, and of what an answer takes where none is named
and says so: prior. A script around an engine may do either."""


def _taken(case: FinetuneCase) -> dict[str, str]:
    """Return what a job has of each setting that may be open."""
    job = case.job
    layout, full, p = job.layout, not job.method.adapts, case.bench.site(job)[2]
    found = {
        "recompute": layout.recompute,
        "loss": job.loss,
        "micro_batch": str(layout.micro_batch_size),
    }
    if full:
        found["optimizer"] = _own(job)
    kept = p.full_weights_bytes if full else p.frozen_bytes
    taken = next((name for name, each in WEIGHTS.items() if each == kept), "bf16")
    open_ = taken == "fp32" or case.older_values("weights")
    if open_ and not (full and p.full_master_bytes) and not job.method.quantised:
        found["weights"] = taken
    if layout.dp > 1 and job.method.shardable:
        found["zero_stage"] = str(layout.zero_stage)
    return found


def _own(job: Job) -> str:
    """Optimizer of a job, as `--optimizer` has it."""
    return job.optimizer.name + IN_BACKWARD * job.optimizer.in_backward


OPTIONS = {"zero_stage": "--zero", "weights": "--base"}
"""Settings whose option has another name."""


def open_settings(case: FinetuneCase) -> tuple[verdict.Open, ...]:
    """List settings of a job that nobody said, with the weight of what was taken and of the rest.

    The weights are the shares of the framework's own examples where these were counted, else
    priors: what a framework does by itself weighs more than what scripts around an engine do.
    Where no version is said, some jobs run with an older one.
    """
    found = []
    chosen = bool(finetune_parameters(case.software).sharded)  # by scripts, of what they run on
    for field, taken in _taken(case).items():
        habit, prior = case.habits.get(field), PRIORS[field]
        shares = dict(habit.shares or {}) if habit and case.named else {}
        if field in ("optimizer", "zero_stage") and not (shares or (chosen and not habit)):
            continue  # what the framework has is all that it runs with
        if case.job.method.adapts:
            prior = PRIORS.get(f"adapters' {field}", prior)
        if taken not in shares:
            first = TAKEN if habit or not case.named else max(prior.values())
            other = next(v for v in (*prior, "full") if v != taken)
            shares = {taken: first, other: 1.0 - first}
        own = shares.pop(taken), taken
        runs = (v for v in shares if case.bench.legal(as_set(case.job, {field: v})))
        option = OPTIONS.get(field, "--" + field.replace("_", "-"))
        found.append(verdict.Open(field, option, (own, *((shares[v], v) for v in runs))))
    found.append(verdict.Open("seq_len", "--seq-len", verdict.LENGTHS))
    if older := tuple((share, stack) for stack, (share, _) in case.older.items()):
        now = 1.0 - math.fsum(share for share, _ in older)
        found.append(verdict.Open("version", "--software", ((now, "today's version"), *older)))
    return tuple(s for s in found if s.field in case.unsaid)


def as_set(job: Job, values: Mapping[str, str]) -> Job:
    """Return the job with open settings set."""
    layout = job.layout.as_set(values)
    kept = {name: values.get(name, getattr(job, name)) for name in ("loss", "weights")}
    made = replace(job, layout=layout, **kept)
    if values.get("optimizer", _own(job)) != _own(job):
        made = replace(made, optimizer=optimizer(values["optimizer"]))
    if layout.recompute != "full" and job.layout.recompute == "full":
        return made.on_host(job.offload - {"activations"})
    return made


def as_open(case: FinetuneCase, values: Mapping[str, str]) -> Job:
    """Return the case's job with open settings set; an older stack has all of its own together."""
    _, then = case.older.get(values.get("version", ""), (0.0, {}))
    open_ = _taken(case).keys() & case.unsaid
    return as_set(case.job, {**values, **{f: v for f, v in then.items() if f in open_}})


def far_from_measured(case: FinetuneCase, job: Job, rl: bool) -> list[str]:
    """Name what of a job was measured less than the rest."""
    layout = job.layout
    marks = {
        "offload": bool(job.offload),
        "context": layout.cp > 1,
        "split": layout.tp * layout.pp > 1,
        "experts": case.loaded.model.has_experts,
        "rl": rl,
        "old stack": job.attention == "eager",
        "unnamed": not case.named,
    }
    return [name for name, holds in marks.items() if holds]


def verdict_of(
    case: FinetuneCase,
    job: Job,
    chosen: Sequence[str] = (),
    peak_bytes: Callable[[Job, Mapping[str, str]], float] | None = None,
    host_bytes: float | None = None,
) -> verdict.Verdict:
    """Verdict of a job.

    `chosen`: settings that the answer itself chose and tells. `peak_bytes`: of a step of RL, under
    open settings; `host_bytes`: what it needs of a node.
    """
    rl = peak_bytes is not None
    at = replace(case, job=job, unsaid=case.unsaid - set(chosen))

    def peak(values: Mapping[str, str]) -> float:
        made = as_open(at, values)
        return peak_bytes(made, values) if peak_bytes else case.bench.memory(made).total_bytes

    # `--base` has another meaning in RL
    moves = verdict.moving((s for s in open_settings(at) if not rl or s.field != "weights"), peak)
    settings = [s for s, _ in moves]
    cases = [(w, peak(values)) for w, values in verdict.ways(settings)]
    how, usable = spread(), case.bench.usable_bytes
    family = case.bench.site(job)[2].interval_factor_80
    width = how.width(family, far_from_measured(case, job, rl))
    settled = not settings and not rl  # of RL a question says never all
    bench = case.bench
    needs = host_bytes or bench.host_bytes_per_node(job, bench.memory(job))
    room, told = bench.host_room_bytes(job), bench.host_bytes is not None
    on_host = how.on_host(needs, room, told=told)
    chance = how.chance(cases, usable, width, settled=settled)
    p = min(chance, on_host)  # the scarcer decides
    low, high = verdict.between(cases, max(verdict.SLIGHT, math.log(family)) / Z80)
    asks = verdict.deciding(moves, cases[0][1], usable, job.layout.seq_len)
    own = verdict.probability(cases, usable, width, how.bias)
    held = high >= usable or p >= verdict.HELD
    return verdict.Verdict(p, low, high, asks, "" if held else verdict.beyond(own, chance, p))


CHOSEN = ("recompute", "micro_batch", "zero_stage", "optimizer")
"""Settings that a plan chooses and tells."""


def chosen_rows(case: FinetuneCase, job: Job) -> list[tuple[str, str, str]]:
    """Name the options that a plan chose and that `memory` leaves open, and its peak without them.

    Empty where they move nothing.
    """
    at = replace(case, job=job)

    def peak(values: Mapping[str, str]) -> float:
        return at.bench.memory(as_open(at, values)).total_bytes

    moves = verdict.moving((s for s in open_settings(at) if s.field in CHOSEN), peak)
    if not moves:
        return []
    without = verdict_of(case, case.job)
    ends = f"{without.peak_low_bytes / 1e9:,.1f} to {gb(without.peak_high_bytes)}"
    told = " ".join(f"{s.option} {s.ways[0][1]}" for s, _ in moves)
    return [("chosen", "", f"{told}; left to the framework: {ends}")]


def in_shards(case: FinetuneCase) -> FinetuneCase | None:
    """Case with its replicas sharded, as it says; None where none are, or may be."""
    at = case.job.layout
    parted = at.dp == 1 or at.dp < at.n_gpus or at.ep > 1 or at.zero_stage == 3
    job = sharded(case.job, at.n_gpus, 3)
    if parted or not case.job.method.shardable or not case.bench.legal(job):
        return None
    told = f"ZeRO 3, as stage {at.zero_stage} does not fit (--zero)"
    return replace(case, job=job, assumed=(*case.assumed, told))


LIKELY = 2 / 3
"""Probability from which nothing is named that would make a job fit more surely."""

SURER = 0.1
"""Probability that a change must add to be named, where a job fits already."""

FIELDS = {"micro-batch": "micro_batch", "shard": "zero_stage"}
"""Changes whose setting has another name."""

OTHER_JOB = ("offload parameters", "method", "gpus")
"""Changes that make a much slower job, or another one: the last ones named."""


def _changes(case: FinetuneCase, trial: Trial) -> Iterator[tuple[BenchChange, Job, str]]:
    """Yield what may be done alone, the job with it and the setting that is said then.

    First an open setting said to be as it was taken.
    """
    at, step_s = trial.memory.total_bytes, trial.step.step_s
    for s in open_settings(case):
        if s.field not in ("seq_len", "version"):
            words = f"{s.option} {s.ways[0][1]}"
            yield BenchChange(s.field, words, 0.0, at, step_s, 0.0, fits=True), trial.job, s.field
    for name in sorted(CHANGES, key=OTHER_JOB.__contains__):
        found = tried_with(case.bench, trial, name) if name != "length" else None
        if found and worth_a_line(case.bench, trial, found[1]):
            words = change_words(trial.job, name, short=True).format(found[1].job.layout.cp)
            yield replace(found[0], words=words), found[1].job, FIELDS.get(name, name)


def mended(case: FinetuneCase, trial: Trial, chosen: Sequence[str] = ()) -> BenchChange | None:
    """Return the first change that alone makes a job likely to fit, else what helps most.

    `chosen`: as in `verdict_of`. None where the job is likely to fit, and where nothing helps.
    """
    at = replace(case, job=trial.job, unsaid=case.unsaid - set(chosen))
    own = verdict_of(at, trial.job)
    if own.fits_probability >= LIKELY:
        return None
    best, least = None, max(verdict.EVEN[1], own.fits_probability + SURER)
    for change, job, field in _changes(at, trial):
        if change.name in OTHER_JOB and (best or own.fits):
            break
        p = verdict_of(replace(at, unsaid=at.unsaid - {field}), job).fits_probability
        if p > least:
            best, least = replace(change, fits=True, fits_probability=p), p
            if p >= LIKELY:
                break
    return best
