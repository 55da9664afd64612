"""`gpuscale plan --method ...`: how to fine-tune on what one has, how long it takes and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.answers import options
from gpuscale.answers.ask import refuse_others
from gpuscale.answers.changed import changed
from gpuscale.answers.finetune.asked import DEFAULT_SEQ_LEN, RL, task_of
from gpuscale.answers.finetune.case import default_software, make_case
from gpuscale.answers.finetune.memory import inputs_of, kept_job, remedy_table
from gpuscale.answers.finetune.plan_blocks import (
    MOST_COMPARED,
    Option,
    TuningPlan,
    compared,
    compared_text,
    option_table,
    plan_facts,
    plan_terms,
    time_table,
)
from gpuscale.answers.finetune.summary import passed_over_points, plan_summary
from gpuscale.answers.finetune.tried import best_on, bolder
from gpuscale.answers.finetune.verdict import verdict_of
from gpuscale.answers.finetune.wanted import one, settled
from gpuscale.answers.finetune.words import (
    head_text,
    part_rows,
    time_text,
    trained_words,
    verdict_text,
)
from gpuscale.answers.memory import Memory
from gpuscale.answers.money import bill_of, rate_of
from gpuscale.answers.saved import launched
from gpuscale.core.finetune.bench import host_bytes_per_node
from gpuscale.core.finetune.remedy import remedies
from gpuscale.core.quantity import format_count, format_si
from gpuscale.core.records import made_of
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_names
from gpuscale.io.run import rent_of
from gpuscale.render.document import Bars, Document, Facts, Text

if TYPE_CHECKING:
    from gpuscale.answers.finetune.case import Case
    from gpuscale.answers.plan import Plan
    from gpuscale.core.finetune.bench import Trial
    from gpuscale.core.finetune.job import Job
    from gpuscale.core.verdict import Verdict
    from gpuscale.render.document import Block

COUNTS = (1, 2, 4, 8)
"""GPUs tried where no number is given: what one machine has."""

DEFAULT_BATCH = 16
"""Sequences of a step, where none are given: a usual value of fine-tuning recipes."""


def tuning_plan(asked: Plan) -> Document:
    """Answer a question about a fine-tuning run."""
    refuse_others(asked, task_of(asked), asked.method or "")
    if asked.method in RL:
        return _rl_plan(asked)
    tokens, told = _tokens(asked)
    found: list[tuple[Case, Trial]] = []
    cases: list[Case] = []
    for where in _places(asked):
        for n in asked.gpus or COUNTS:
            case = case_of(asked, where, n)
            cases.append(case)
            if best := best_on(asked, case):
                found.append((case, best))
    usd = _prices(asked, cases)
    if found:
        case, trial = min(found, key=lambda f: _rank(f, usd, asked))
    else:
        case = cases[-1]
        trial = case.bench.trial(case.job)
    return _document(asked, case, trial, _result(asked, (case, trial), found, tokens, usd), told)


def _tokens(asked: Plan) -> tuple[float, str]:
    """(tokens of the run, how they are counted)."""
    epochs = asked.epochs or 1.0
    given = [n for n in ("examples", "tokens", "steps") if getattr(asked, n) is not None]
    if len(given) > 1:
        raise GpuscaleError(f"give one of --{', --'.join(given)}: each is the length of the run")
    if asked.tokens is not None:
        times = f" x {epochs:g} epochs" if asked.epochs else ""
        return asked.tokens * epochs, f"{asked.tokens:,.0f} tokens{times}"
    lengths = (asked.mean_len, asked.max_len, asked.seq_len[0] if asked.seq_len else None)
    mean = next((n for n in lengths if n is not None), None)
    if asked.steps is not None:
        batch = asked.global_batch[0] if asked.global_batch else DEFAULT_BATCH
        if asked.accumulation is not None:
            if len(asked.gpus or COUNTS) > 1:
                raise GpuscaleError("--steps and --accumulation need one number of --gpus")
            batch = _question(asked, "", (asked.gpus or COUNTS)[0]).global_batch or batch
        each = batch * (mean or DEFAULT_SEQ_LEN)
        return asked.steps * each, f"{asked.steps:,} steps of {each:,.0f} tokens"
    if asked.examples is None:
        if asked.epochs:
            raise GpuscaleError("--epochs needs --examples or --tokens")
        return 1e6, "per million tokens (--examples or --tokens for a run)"
    if mean is None:
        raise GpuscaleError(
            "--examples needs --mean-len: the mean tokens of one",
            "for example --examples 52k --mean-len 180 --max-len 1024",
        )
    total = asked.examples * mean * epochs
    return total, f"{asked.examples:,} examples of {mean:g} tokens x {epochs:g} epochs"


def _places(asked: Plan) -> tuple[str, ...]:
    """Clusters and GPUs to compare."""
    if asked.cluster and asked.gpu is not None:
        raise GpuscaleError("give --cluster or --gpu, not both")
    if asked.cluster:
        return asked.cluster
    if asked.gpu is not None:
        return tuple(dict.fromkeys(g.strip() for g in asked.gpu.split(",") if g.strip()))
    return tuple(g for g in preset_names("gpu") if not g.startswith("tpu") and rent_of(g))


def _rl_plan(asked: Plan) -> Document:
    """One machine and one number of GPUs."""
    from gpuscale.answers.finetune.rl import rl_document

    places = _places(asked) if asked.cluster or asked.gpu is not None else ("dgx-h100",)
    if len(places) > 1 or (asked.gpus and len(asked.gpus) > 1):
        raise GpuscaleError("one GPU and one number of them is wanted with an RL method")
    question = _question(asked, places[0], asked.gpus[0] if asked.gpus else 8)
    price = (asked.price or {}).get("") or next(iter((asked.price or {}).values()), None)
    return rl_document(asked, "plan", question, price)


def case_of(asked: Plan, where: str, n_gpus: int) -> Case:
    """Case of a question on a number of GPUs of one kind."""
    default = default_software(asked.method or "lora", n_gpus)
    return make_case(_question(asked, where, n_gpus), software=asked.software or default)


@dataclass
class Sized(options.Wired, Memory):
    """A plan's question on one number of GPUs of one kind, as `memory` asks it."""


DEGREES = "tp pp vpp cp ep etp dp zero micro_batch recompute_layers".split()
"""Options that a plan without a method searches over, and one with a method takes one of."""


def _question(asked: Plan, where: str, n_gpus: int) -> Memory:
    if asked.seq_len and len(asked.seq_len) > 1:
        raise GpuscaleError("--seq-len: one length is wanted with --method")
    batch = asked.global_batch[0] if asked.global_batch else None
    for name in DEGREES:
        one(asked, name, 1)
    split = one(asked, "tp", 1) * one(asked, "pp", 1) * one(asked, "cp", 1)
    dp = max(1, n_gpus // split)
    said = asked.micro_batch is not None or asked.accumulation is not None
    if batch is None and not said and asked.method not in RL:
        batch = -(-DEFAULT_BATCH // dp) * dp
    made = made_of(
        Sized,
        asked,
        cluster=where or None,
        gpu=None,
        gpus=n_gpus,
        global_batch=batch,
        seq_len=asked.seq_len[0] if asked.seq_len else None,
    )
    return settled(made)


def _prices(asked: Plan, cases: list[Case]) -> dict[str, tuple[float | None, str]]:
    """(price of a GPU-hour, its origin) by cluster."""
    found: dict[str, tuple[float | None, str]] = {}
    for case in cases:
        cluster = case.loaded.cluster
        prices = asked.price or {}
        names = (cluster.name, case.loaded.gpu.name, "")
        given = next((prices[name] for name in names if prices.get(name)), None)
        rate = rate_of(cluster, given, asked.spot)
        words = (rate.kind, rate.origin, rate.as_of) if rate else ()
        usd = rate.usd_per_gpu_hour if rate else None
        found[cluster.name] = usd, ", ".join(filter(None, words))
    return found


def _rank(
    found: tuple[Case, Trial], usd: dict[str, tuple[float | None, str]], asked: Plan
) -> tuple[float, float, float]:
    """Order of preference: the fastest on the GPUs that one has, else the cheapest.

    Of one kind of GPU the fewest that hold it, without the host's memory if they can; `memory`
    takes one too where no number is given.
    """
    case, trial = found
    n, rate = trial.job.layout.n_gpus, trial.step.tokens_per_s
    price = usd[case.loaded.cluster.name][0]
    cost = n / rate * (price if price is not None else 1.0)
    unpriced = 0.0 if price is not None or all(p is None for p, _ in usd.values()) else 1.0
    if asked.gpus:  # the number is given: use them
        return unpriced, 0.0, 1.0 / rate if len(asked.gpus) == 1 else cost
    if len(_places(asked)) > 1:
        return unpriced, 0.0, cost
    return unpriced, n + (max(COUNTS) if trial.job.offload else 0.0), cost


def _option(
    case: Case, trial: Trial, tokens: float, usd: dict[str, tuple[float | None, str]]
) -> Option:
    from gpuscale.core.run.time import rental_usd

    layout = trial.job.layout
    price, origin = usd[case.loaded.cluster.name]
    run_s = tokens / trial.step.tokens_per_s
    return made_of(
        Option,
        layout,
        trial,
        trial.step,
        gpu=case.loaded.gpu.name,
        cluster=case.loaded.cluster.name,
        software=case.software.name,
        offload=tuple(sorted(trial.job.offload)),
        peak_bytes=trial.memory.total_bytes,
        capacity_bytes=trial.usable_bytes,
        run_s=run_s,
        usd_per_gpu_hour=price,
        price_origin=origin,
        cost_usd=None if price is None else rental_usd(layout.n_gpus, run_s, price),
        host_bytes_per_node=host_bytes_per_node(trial, case.bench.gpus_per_node),
    )


CHOSEN = ("recompute", "micro_batch", "zero_stage", "optimizer")
"""Settings that a plan chooses and tells."""


def _answer(case: Case, trial: Trial, r: TuningPlan) -> str:
    said = verdict_text(case, trained_words(trial.job), r, r.n_gpus)
    if not r.fits:
        return f"{said}."
    cost = f" and {format_si(r.cost_usd, 'usd', 3)}" if r.cost_usd else ""
    tokens = format_count(r.tokens, 3)
    return f"{said}; {tokens} tokens take {time_text(r.run_s)}{cost}."


def _result(
    asked: Plan,
    chosen_of: tuple[Case, Trial],
    found: list[tuple[Case, Trial]],
    tokens: float,
    usd: dict[str, tuple[float | None, str]],
) -> TuningPlan:
    """Put the record of an answer together: the chosen way, and all that were found."""
    case, trial = chosen_of
    options = tuple(_option(c, t, tokens, usd) for c, t in found)
    chosen = _option(case, trial, tokens, usd)
    given = chosen.usd_per_gpu_hour if chosen.price_origin == "given" else None
    bill = bill_of(
        asked, case.loaded.cluster, chosen.run_s, chosen.n_gpus, given=given, tokens=tokens
    )
    width = case.bench.site(trial.job)[2].step_interval_factor_80

    def verdict(job: Job) -> Verdict:
        return verdict_of(case, job, lambda job, _: case.bench.memory(job).total_bytes, CHOSEN)

    said = verdict(trial.job)
    alone = len(found) == 1 and len(_places(asked)) == 1
    bold = bolder(asked, case, trial) if alone else None
    return made_of(
        TuningPlan,
        said,
        chosen,
        trial,
        trial.step,
        trial.job,
        tokens=tokens,
        chosen=chosen,
        step_low_s=trial.step.step_s / width,
        step_high_s=trial.step.step_s * width,
        memory_interval_factor_80=trial.interval_factor_80,
        cost_usd=bill.charge.usd,
        bill=bill,
        expected=trial.memory,
        breakdown=trial.step.parts,
        options=options,
        against=compared(options),
        remedies=remedies(case.bench, trial),
        taken=tuple(a for a in case.assumed if not a.startswith("software")),  # a plan chooses it
        passed_over=_option(case, bold, tokens, usd) if bold else None,
        passed_over_fits_probability=verdict(bold.job).fits_probability if bold else None,
    )


def _document(asked: Plan, case: Case, trial: Trial, r: TuningPlan, told: str) -> Document:
    head = f"{_answer(case, trial, r)}\n{head_text(case, trial.job)}"
    if r.taken:
        head += "\ntaken: " + "; ".join(r.taken)
    head += "".join(f"\n{p.key}, {p.value}; {p.note}" for p in passed_over_points(r))
    rows = part_rows(trial.memory)
    bars = Bars([(label, v, gb(v)) for label, v in rows], limit=trial.usable_bytes, title="memory")
    others: list[Block] = [option_table(r)] if len(r.options) > 1 else []
    others += [Text(compared_text(r))] if 0 < len(r.against) <= MOST_COMPARED else []
    facts = Facts(plan_facts(case, trial, r, told=told, host_bytes=asked.host_memory))
    details: dict[str, list[Block]] = {
        "figures": [Text(head), facts],
        "memory": [bars],
        "step": [time_table(r)],
        "alternatives": others,
        "remedies": [remedy_table(r.remedies)] if r.remedies else [],
        "changed": changed(case.loaded),
    }
    return Document.layered(
        "plan",
        inputs_of(case, trial.job) | {"tokens": r.tokens},
        r,
        plan_summary(case, trial, r, _answer(case, trial, r), told),
        details,
        warnings=case.warnings(),
        answered_no=not r.fits,
        terms=plan_terms(case, trial, r),
        csv_table=option_table(r),
        job=lambda: kept_job(case, trial),
        launch=launched(lambda: kept_job(case, trial)),
    )
